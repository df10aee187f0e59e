import csv
import dataclasses
import io
import json
import math

import pytest
from rich.console import Console

from mone.evaluation import report
from mone.evaluation.latency import Timing


def timing(size, speed):
    return Timing(size, 1e3 * size / speed, speed, 0.05, 1.71, 2.38, 1.71 / 2.38)


def row(model="MoNE", seed=0, e_c=0.4, accuracy=0.8, timed=True, **fields):
    defaults = {
        "method": "mone", "workdir": f"runs/{seed}", "realised_e_c": e_c - 0.01,
        "counts": (5, 3, 1), "macs": 17_400_000, "mac_share": 0.42, "loss": 0.5,
        "num_examples": 1000, "unreadable": 0, "router": "trained",
        "timings": {1: timing(1, 400.0), 64: timing(64, 2345.6)} if timed else {},
    }  # fmt: skip
    return report.Row(model=model, seed=seed, e_c=e_c, accuracy=accuracy, **{**defaults, **fields})


def test_seeds_are_joined_with_mean_and_sample_deviation():
    rows = [row(seed=s, accuracy=a) for s, a in enumerate((0.80, 0.82, 0.87))]
    rows += [row(e_c=0.6, counts=(3, 3, 3)), row(model="ViT", method="dense", accuracy=0.9)]
    found = report.summarise(rows)
    assert [(s.model, s.e_c, s.num_seeds) for s in found] == [
        ("MoNE", 0.4, 3), ("MoNE", 0.6, 1), ("ViT", 0.4, 1),
    ]  # fmt: skip
    assert found[0].accuracy == pytest.approx(0.83)
    assert found[0].accuracy_sd == pytest.approx(math.sqrt((0.03**2 + 0.01**2 + 0.04**2) / 2))
    assert math.isnan(found[1].accuracy_sd)


def test_table_cells():
    rows = [row(seed=s, accuracy=a) for s, a in enumerate((0.81, 0.83))]
    rows += [row(e_c=0.6, macs=25_300_000, timed=False)]
    header, cells = report.table_cells(report.summarise(rows))
    assert header == ["model", "e_c", "MMAC", "accuracy %", "batch 1", "batch 64"]
    assert cells[0] == [
        "MoNE", "0.4", "17.4", "82.00 ± 1.41", "400 1.71x 72%", "2,346 1.71x 72%",
    ]  # fmt: skip
    assert cells[1] == ["MoNE", "0.6", "25.3", "80.00", "-", "-"]


def test_macs_keep_three_digits():
    rows = [row(e_c=e, macs=macs) for e, macs in enumerate((6_100_000, 10_930_000, 123_400_000))]
    _, cells = report.table_cells(report.summarise(rows))
    assert [line[2] for line in cells] == ["6.10", "10.9", "123"]


def test_unit_follows_the_size():
    assert report.mac_unit([900_000_000, 5]) == (1e6, "MMAC")
    assert report.mac_unit([1_200_000_000, 5]) == (1e9, "GMAC")


@pytest.mark.parametrize("width", [80, 140])
def test_terminal_table_is_never_cut(width):
    rows = [row(e_c=e, seed=s) for e in (0.125, 0.4) for s in (0, 1)] + [row(model="a ViT")]
    console = Console(width=width, file=io.StringIO())
    console.print(report.rich_table(report.summarise(rows), width))
    text = console.file.getvalue()
    assert "…" not in text
    for part in ("0.125", "80.00 ± 0.00", "2,346", "1.71x 72%", "share of the"):
        assert part in text


def test_markdown_is_a_table_with_its_legend_and_notes():
    text = report.markdown(report.summarise([row(), row(seed=1)]), ["Made by `mone sweep`."])
    lines = text.splitlines()
    assert lines[0] == "| model | e_c | MMAC | accuracy % | batch 1 | batch 64 |"
    assert len({line.count("|") for line in lines[:3]}) == 1
    assert "| 400 (1.71x, 72%) | 2,346 (1.71x, 72%) |" in lines[2]
    assert "over 2 seeds" in text
    assert "share of the ratio of their MACs" in text
    assert text.endswith("Made by `mone sweep`.\n")


def test_csv_holds_every_figure():
    rows = [row(), row(model="ViT, large", timed=False)]
    found = list(csv.DictReader(io.StringIO(report.csv_text(rows))))
    assert float(found[0]["accuracy"]) == 0.8
    assert found[0]["counts"] == "5 3 1"
    assert float(found[0]["images_per_second_b64"]) == 2345.6
    assert float(found[0]["share_of_mac_ratio_b1"]) == rows[0].timings[1].share_of_mac_ratio
    assert found[1]["model"] == "ViT, large"
    assert found[1]["speed_up_b64"] == ""


def test_json_holds_rows_and_summary():
    tree = json.loads(report.json_text([row()], {"jax": "1"}, ["note"]))
    assert tree["rows"][0]["timings"]["64"] == dataclasses.asdict(timing(64, 2345.6))
    assert tree["summary"][0]["accuracy_sd"] is None
    assert (tree["environment"], tree["notes"]) == ({"jax": "1"}, ["note"])
