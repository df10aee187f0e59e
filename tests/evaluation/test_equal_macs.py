import json
import math

import pytest

from mone.evaluation.equal_macs import equal_macs, equal_macs_cells, equal_macs_tree
from mone.evaluation.report import Row


def curve(model, method, points, seed=0):
    return [
        Row(
            model=model, method=method, seed=seed, e_c=e_c, macs=macs, accuracy=accuracy,
            workdir="", realised_e_c=e_c, counts=(), mac_share=0.5, loss=0.0, num_examples=1,
            unreadable=0, router="trained", timings={},
        )
        for e_c, macs, accuracy in points
    ]  # fmt: skip


MONE = [(0.6, 6_000_000, 0.9), (0.2, 2_000_000, 0.7)]
MATVIT = [(0.125, 1_000_000, 0.5), (0.5, 5_000_000, 0.7), (1.0, 9_000_000, 0.8)]


def test_other_models_are_interpolated_seed_by_seed():
    rows = curve("MoNE", "mone", MONE) + curve("MoNE", "mone", MONE, seed=1)
    rows += curve("MatViT", "matvit", MATVIT)
    rows += curve("MatViT", "matvit", [(e, m, a + 0.1) for e, m, a in MATVIT], seed=1)
    found = equal_macs(rows)
    assert (found.reference, found.e_c, found.macs) == ("MoNE", (0.2, 0.6), (2_000_000, 6_000_000))
    assert found.accuracy["MoNE"] == [(pytest.approx(0.7), 0), (pytest.approx(0.9), 0)]
    deviation = pytest.approx(0.1 / math.sqrt(2))
    assert found.accuracy["MatViT"] == [
        (pytest.approx(0.6), deviation), (pytest.approx(0.775), deviation),
    ]  # fmt: skip
    header, cells = equal_macs_cells(found)
    assert header == ["model", "e_c 0.2", "e_c 0.6"]
    assert cells[0] == ["MMAC an image", "2.00", "6.00"]
    assert cells[2] == ["MatViT", "60.00 ± 7.07", "77.50 ± 7.07"]


def test_nothing_is_extrapolated():
    rows = curve("MoNE", "mone", MONE) + curve("ViT", "dense", [(1.0, 5_950_000, 0.8)])
    rows += curve("MoD", "mod", [(0.5, 2_100_000, 0.3), (1.0, 6_100_000, 0.5)])
    found = equal_macs(rows)
    # Within one per cent counts as the same: the router's own cost.
    assert found.accuracy["ViT"] == [None, (0.8, pytest.approx(math.nan, nan_ok=True))]
    assert found.accuracy["MoD"][0] is None
    assert equal_macs_cells(found)[1][2] == ["ViT", "-", "80.00"]
    tree = json.loads(json.dumps(equal_macs_tree(found), allow_nan=False))
    assert tree["accuracy"]["ViT"] == [None, [0.8, None]]


def test_dense_models_of_several_sizes_are_one_curve():
    rows = curve("MoNE", "mone", MONE)
    rows += curve("ViT-8", "dense", [(1.0, 2_000_000, 0.6)])
    rows += curve("ViT-16", "dense", [(1.0, 6_000_000, 0.8)])
    (name,) = set(equal_macs(rows).accuracy) - {"MoNE"}
    assert name == "dense ViTs, one training a budget"
    assert [value[0] for value in equal_macs(rows).accuracy[name]] == [0.6, 0.8]
    rows += curve("ViT-8, long", "dense", [(1.0, 2_000_000, 0.7)])
    assert set(equal_macs(rows).accuracy) == {"MoNE", "ViT-8", "ViT-16", "ViT-8, long"}


def test_without_a_reference_or_a_rival_there_is_nothing_to_compare():
    assert equal_macs(curve("MatViT", "matvit", MATVIT)) is None
    assert equal_macs(curve("MoNE", "mone", MONE)) is None
