"""The static description of a model: variants, widths, and errors that name the field."""

import pytest
from ml_collections import ConfigDict

from mone.configs import base
from mone.models import SIZES, ViTConfig, decode_variant, halving_widths, vit_config

TINY = {
    "width": 32,
    "depth": 2,
    "num_heads": 2,
    "mlp_dim": 64,
    "patch_size": (4, 4),
    "image_size": (8, 8),
}


def _model(**fields) -> ConfigDict:
    model = base.base().model
    model.update(fields)
    return model


@pytest.mark.parametrize("name", SIZES)
def test_every_size_is_a_valid_model(name):
    cfg = vit_config(_model(variant=f"{name}/16"))
    assert cfg.num_patches == 196
    assert cfg.widths == tuple(cfg.width // k for k in (8, 4, 2, 1))
    assert cfg.mlp_dim == 4 * cfg.width
    assert cfg.width // cfg.num_heads in (64, 80)


def test_explicit_sizes_override_the_variant():
    cfg = vit_config(_model(variant="B/32", depth=6))
    assert (cfg.width, cfg.depth, cfg.patch_size) == (768, 6, (32, 32))


@pytest.mark.parametrize("variant", ["X/16", "B16", "B/", "B/0", "b/16"])
def test_unknown_variants_list_the_valid_ones(variant):
    with pytest.raises(ValueError, match=r"model\.variant.*Ti, S, B, L, H"):
        decode_variant(variant)


def test_missing_sizes_are_named_together():
    with pytest.raises(ValueError, match=r"model\.width, model\.depth.*model\.variant"):
        vit_config(_model(num_heads=2))


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"num_heads": 3}, r"model\.num_heads=3"),
        ({"image_size": (9, 8)}, r"model\.image_size"),
        ({"pool": "mean"}, r"model\.pool='mean'.*gap, cls, map"),
        ({"method": "moe"}, r"model\.method='moe'"),
        ({"dropout": 1.0}, r"model\.dropout=1\.0"),
        ({"method": "mone", "widths": (8, 4, 32)}, r"ascending"),
        ({"method": "mone", "widths": (8, 16)}, r"end with model\.width=32"),
        ({"method": "mone", "widths": (32,), "router_layers": (2,)}, r"router_layers.*0\.\.1"),
        ({"method": "mone", "widths": (32,), "router_layers": ()}, r"router_layers"),
        ({"method": "matvit", "widths": (5, 32), "mlp_dim": 66, "nest": "ffn"}, r"whole"),
        ({"method": "mone", "widths": (32,), "router_noise": -1.0}, r"model\.router_noise=-1\.0"),
        ({"method": "dense", "widths": (8, 32)}, r"model\.widths.*dense"),
        ({"method": "mod", "mod_every": 3}, r"model\.mod_every=3"),
        ({"depth": 0}, r"model\.depth=0"),
    ],
)
def test_errors_name_the_field_the_value_and_what_is_valid(fields, named):
    with pytest.raises(ValueError, match=named):
        ViTConfig(**{**TINY, **fields})


def test_several_problems_come_in_one_message():
    with pytest.raises(ValueError, match=r"model\.pool.*model\.remat"):
        ViTConfig(**TINY, pool="x", remat="y")


def test_widths_that_cannot_halve():
    with pytest.raises(ValueError, match=r"model\.num_experts=4.*model\.width=12"):
        halving_widths(12, 4)


def test_ffn_nesting_keeps_tokens_at_full_width():
    cfg = ViTConfig(**TINY, method="mone", widths=(8, 32), nest="ffn")
    assert cfg.token_widths == (32, 32)
    assert cfg.hidden_widths == (16, 64)
