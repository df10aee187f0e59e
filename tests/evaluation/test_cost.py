import dataclasses

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mone.errors import ConfigError
from mone.evaluation.cost import count_macs, dense_macs, e_c_for_macs
from mone.models import ViTConfig, budget_counts, decode_variant, expert_counts, full_counts


def published(size: str, **fields) -> ViTConfig:
    """A 224 px, patch 16 model of the cost check, four experts."""
    sizes, patch = decode_variant(f"{size}/16")
    fields = {"method": "mone"} | fields
    widths = tuple(sizes.width // d for d in (8, 4, 2, 1)) if fields["method"] == "mone" else ()
    return ViTConfig(
        **vars(sizes), patch_size=(patch, patch), image_size=(224, 224), widths=widths, **fields
    )


def tiny(**fields) -> ViTConfig:
    defaults = dict(  # noqa: C408
        width=16, depth=4, num_heads=2, mlp_dim=32, patch_size=(4, 4), image_size=(16, 16),
        channels=1, num_classes=10, method="mone", widths=(2, 4, 8, 16),
    )  # fmt: skip
    return ViTConfig(**{**defaults, **fields})


# methods/mone.md, "Cost check": GMAC at 224 px, patch 16.
PUBLISHED = {
    "Ti": (1.25, {0.125: 0.34, 0.25: 0.47, 0.5: 0.73}),
    "S": (4.58, {0.125: 0.94, 0.25: 1.46, 0.5: 2.50}),
    "B": (17.5, {0.125: 2.9, 0.25: 5.0, 0.5: 9.2}),
    "L": (61.3, {0.125: 9.5, 0.25: 16.9, 0.5: 31.7}),
}


@pytest.mark.parametrize("size", PUBLISHED)
def test_published_figures(size):
    dense, nested = PUBLISHED[size]
    cfg = published(size)
    assert dense_macs(cfg).total / 1e9 == pytest.approx(dense, rel=0.02)
    for e_c, figure in nested.items():
        # The paper's figures count the capacity that was asked for, before whole tokens.
        whole = count_macs(cfg, budget_counts(cfg, e_c)).total / 1e9
        assert whole == pytest.approx(figure, rel=0.02), e_c


def test_full_width_is_the_dense_model_plus_the_router():
    cfg = published("S")
    full = count_macs(cfg)
    assert full == dataclasses.replace(dense_macs(cfg), router=196 * 384 * 4)
    assert full == count_macs(cfg, full_counts(cfg))


def test_one_expert_scales_the_projections_only():
    cfg = tiny(method="matvit")
    wide, narrow = (count_macs(cfg, expert_counts(cfg, j)) for j in (3, 1))
    assert narrow.attention_proj * 4 == wide.attention_proj
    assert narrow.ffn * 4 == wide.ffn
    assert narrow.attention_product == wide.attention_product == 4 * 2 * 16 * 16 * 16


def test_ffn_nesting_scales_the_ffn_only():
    cfg = tiny(method="matvit", nest="ffn")
    wide, narrow = (count_macs(cfg, expert_counts(cfg, j)) for j in (3, 0))
    assert narrow.ffn * 8 == wide.ffn
    assert dataclasses.replace(narrow, ffn=wide.ffn) == wide


def test_layers_before_the_router_are_full_width():
    cfg = tiny()
    counts = (8, 4, 2, 2)
    later = dataclasses.replace(cfg, router_layers=(1, 3))
    full, nested, mixed = (
        count_macs(c, k) for c, k in [(cfg, None), (cfg, counts), (later, counts)]
    )
    assert mixed.ffn == full.ffn // 4 + 3 * nested.ffn // 4
    assert mixed.router == 2 * nested.router


def test_counts_that_do_not_fit_are_refused():
    with pytest.raises(ValueError, match="sum to 16"):
        count_macs(tiny(), (1, 2, 3, 4))
    with pytest.raises(ValueError, match="4 numbers"):
        count_macs(tiny(), (16,))


@pytest.mark.parametrize("method", ["mone", "mod"])
@settings(deadline=None, max_examples=40)
@given(share=st.floats(0, 1))
def test_e_c_for_macs_is_the_largest_that_fits(method, share):
    cfg = published("Ti", method=method)
    low = count_macs(cfg, budget_counts(cfg, 0.125 if method == "mone" else 0.5)).total
    target = low + share * (count_macs(cfg).total - low)
    e_c = e_c_for_macs(cfg, target)
    assert count_macs(cfg, budget_counts(cfg, e_c)).total <= target
    if e_c < 1:
        assert count_macs(cfg, budget_counts(cfg, min(1, e_c + 1e-6))).total > target


def test_e_c_for_macs_takes_one_of_matvits_widths():
    cfg = tiny(method="matvit")
    cost = [count_macs(cfg, expert_counts(cfg, j)).total for j in range(4)]
    assert e_c_for_macs(cfg, cost[2]) == 0.5
    assert e_c_for_macs(cfg, cost[2] - 1) == 0.25


def test_e_c_for_macs_names_what_is_feasible():
    cfg = published("S")
    for target in (0.1e9, 5e9):
        with pytest.raises(ConfigError, match=r"0\.125 and 1 costs 0\.9328 to 4\.574 GMAC"):
            e_c_for_macs(cfg, target)
    with pytest.raises(ConfigError, match="GMAC"):
        e_c_for_macs(cfg, float("nan"))
