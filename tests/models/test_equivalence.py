"""Nested models equal the padded-and-masked float64 reference, forward and gradient."""

import importlib.util
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from mone.models import ViTConfig, budget_counts, expert_counts, functional

_spec = importlib.util.spec_from_file_location(
    "reference", Path(__file__).with_name("reference.py")
)
reference = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(reference)

BASE = {
    "width": 16,
    "depth": 3,
    "num_heads": 2,
    "mlp_dim": 32,
    "patch_size": (2, 2),
    "image_size": (6, 8),
    "channels": 2,
    "num_classes": 5,
}
CASES = {
    "dense": ({"method": "dense"}, None),
    "matvit": ({"method": "matvit", "widths": (2, 4, 8, 16)}, 1),
    "matvit_ffn": ({"method": "matvit", "widths": (2, 4, 8, 16), "nest": "ffn"}, 2),
    "mone": ({"method": "mone", "widths": (2, 4, 8, 16)}, 0.5),
    "mone_low": ({"method": "mone", "widths": (2, 4, 8, 16)}, 0.2),
    "mone_ffn": ({"method": "mone", "widths": (2, 4, 8, 16), "nest": "ffn"}, 0.5),
    "mone_uneven": ({"method": "mone", "widths": (3, 11, 16)}, 0.6),
    "mone_late": ({"method": "mone", "widths": (4, 16), "router_layers": (1,)}, 0.5),
    "mone_two": ({"method": "mone", "widths": (4, 8, 16), "router_layers": (0, 2)}, 0.5),
    "mone_dropped": (
        {"method": "mone", "widths": (4, 8, 16), "router_layers": (0, 2), "frozen": "dropped"},
        0.5,
    ),
    "matvit_dropped": ({"method": "matvit", "widths": (4, 16), "frozen": "dropped"}, 0),
    "mone_unscaled": ({"method": "mone", "widths": (4, 8, 16), "router_scale": False}, 0.5),
    "dense_cls": ({"method": "dense", "pool": "cls"}, None),
    "dense_map": ({"method": "dense", "pool": "map"}, None),
    "matvit_cls": ({"method": "matvit", "widths": (4, 8, 16), "pool": "cls"}, 1),
    "mone_cls": ({"method": "mone", "widths": (2, 4, 8, 16), "pool": "cls"}, 0.5),
    "mone_cls_two": (
        {"method": "mone", "widths": (4, 8, 16), "router_layers": (1, 2), "pool": "cls"},
        0.5,
    ),
    "mone_map": ({"method": "mone", "widths": (2, 4, 8, 16), "pool": "map"}, 0.5),
    "mone_whole": ({"method": "mone", "widths": (2, 4, 8, 16)}, 1.0),
}


def _randomised(params, seed):
    """Move every parameter off its initial value: zeros would hide mistakes."""
    leaves, tree = jax.tree.flatten(params)
    keys = jax.random.split(jax.random.key(seed), len(leaves))
    moved = [p + 0.1 * jax.random.normal(k, p.shape) for p, k in zip(leaves, keys, strict=True)]
    return jax.tree.unflatten(tree, moved)


def _setup(name):
    options, budget = CASES[name]
    cfg = ViTConfig(**BASE, **options)
    if budget is None:
        counts = (cfg.num_patches,)
    elif isinstance(budget, int):
        counts = expert_counts(cfg, budget)
    else:
        counts = budget_counts(cfg, budget)
    params = _randomised(functional.init(cfg, 0), 1)
    images = jax.random.normal(jax.random.key(2), (3, *cfg.image_size, cfg.channels))
    return cfg, counts, params, images


def _assignments(cfg, counts, out):
    if out["routers"]:
        return {layer: np.asarray(r["assignment"]) for layer, r in out["routers"].items()}
    return {0: np.full((3, cfg.num_patches), int(np.argmax(counts)))}


def _enable_x64():
    return jax.enable_x64(True) if hasattr(jax, "enable_x64") else jax.experimental.enable_x64()


@pytest.mark.parametrize("name", CASES)
def test_forward_and_gradient_equal_the_float64_reference(name):
    cfg, counts, params, images = _setup(name)
    weights = np.random.default_rng(3).normal(size=(3, cfg.num_classes))

    def loss(params):
        logits, out = functional.apply(cfg, params, images, counts)
        return (logits * weights.astype(np.float32)).sum(), (logits, out)

    (_, (logits, out)), grads = jax.jit(jax.value_and_grad(loss, has_aux=True))(params)
    assignments = _assignments(cfg, counts, out)
    with _enable_x64():
        wide = jax.tree.map(lambda x: jnp.asarray(np.asarray(x), jnp.float64), (params, images))

        def reference_loss(params):
            logits = reference.vit(params, wide[1], cfg, assignments)
            return (logits * weights).sum(), logits

        (_, expected), expected_grads = jax.jit(jax.value_and_grad(reference_loss, has_aux=True))(
            wide[0]
        )
        assert expected.dtype == jnp.float64
        expected, expected_grads = jax.tree.map(np.asarray, (expected, expected_grads))
    _assert_close(logits, expected, "logits")
    flat, _ = jax.tree_util.tree_flatten_with_path(grads)
    for (path, got), want in zip(flat, jax.tree.leaves(expected_grads), strict=True):
        _assert_close(got, want, jax.tree_util.keystr(path))


def _assert_close(got, want, name):
    """Relative to the largest entry of each array, 1e-5."""
    got = np.asarray(got, np.float64)
    scale = max(np.abs(want).max(), 1e-3)
    assert np.abs(got - want).max() <= 1e-5 * scale, name


def test_full_budget_equals_the_dense_vit():
    """With alpha at its initial 0, e_c = 1 is the dense model: output and gradients."""
    mone = ViTConfig(**BASE, method="mone", widths=(2, 4, 8, 16))
    dense = ViTConfig(**BASE, method="dense")
    params = _randomised(functional.init(dense, 0), 1)
    nested = functional.init(mone, 5)
    blocks = nested["trunk"]["blocks"]["stacked"]
    blocks.update(params["trunk"]["blocks"]["stacked"])
    nested = {**params, "trunk": {**nested["trunk"]}}
    images = jax.random.normal(jax.random.key(2), (3, *mone.image_size, mone.channels))
    expected, _ = functional.apply(dense, params, images)
    got, _ = functional.apply(mone, nested, images, budget_counts(mone, 1.0))
    np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-6)

    def loss(cfg, counts):
        return lambda p: jnp.square(functional.apply(cfg, p, images, counts)[0]).sum()

    want = jax.jit(jax.grad(loss(dense, None)))(params)
    grads = jax.jit(jax.grad(loss(mone, budget_counts(mone, 1.0))))(nested)
    flat, _ = jax.tree_util.tree_flatten_with_path(want)
    for path, value in flat:
        found = grads
        for key in path:
            found = found[key.key]
        _assert_close(found, np.asarray(value, np.float64), jax.tree_util.keystr(path))


def test_tokens_of_narrow_experts_keep_their_frozen_features():
    cfg, counts, params, images = _setup("mone_low")
    model = functional.build(cfg, params)
    before = model.embed(images)
    tokens, routed = model.trunk(
        before, counts, pinned=0, router="learned", key=None, route_key=None
    )
    after = tokens.restore_order(tokens.grouped())
    widths = np.asarray(cfg.widths)[np.asarray(routed[0]["assignment"])]
    frozen = np.arange(cfg.width) >= widths[..., None]
    np.testing.assert_array_equal(np.asarray(after)[frozen], np.asarray(before)[frozen])
    assert not np.isclose(np.asarray(after)[~frozen], np.asarray(before)[~frozen]).all()
