"""Options of the ViT family: each one does what it says and nothing else."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from mone.models import ViTConfig, budget_counts, functional

SIZE = {
    "width": 16,
    "depth": 4,
    "num_heads": 2,
    "mlp_dim": 32,
    "patch_size": (2, 2),
    "image_size": (6, 6),
    "channels": 1,
    "num_classes": 3,
}
WIDTHS = (4, 8, 16)


def _cfg(**options) -> ViTConfig:
    method = options.pop("method", "mone")
    widths = WIDTHS if method in ("mone", "matvit") else ()
    return ViTConfig(**{**SIZE, **options}, method=method, widths=widths)


def _params(cfg, seed=1):
    params = functional.init(cfg, 0)
    leaves, tree = jax.tree.flatten(params)
    keys = jax.random.split(jax.random.key(seed), len(leaves))
    return jax.tree.unflatten(
        tree, [p + 0.2 * jax.random.normal(k, p.shape) for p, k in zip(leaves, keys, strict=True)]
    )


def _images(cfg, batch=3):
    return jax.random.normal(jax.random.key(2), (batch, *cfg.image_size, cfg.channels))


def _forward(cfg, params, counts=None, **kwargs):
    return jax.jit(lambda p, x: functional.apply(cfg, p, x, counts, **kwargs))(params, _images(cfg))


def _unstacked(params, depth):
    """Turn stacked blocks into a list of blocks."""
    blocks = params["trunk"]["blocks"]["stacked"]
    layers = {i: jax.tree.map(lambda p, i=i: p[i], blocks) for i in range(depth)}
    return {**params, "trunk": {**params["trunk"], "blocks": {"layers": layers}}}


@pytest.mark.parametrize("method", ["mone", "mod"])
def test_unrolled_equals_scanned(method):
    scanned, unrolled = _cfg(method=method), _cfg(method=method, scan=False)
    params = _params(scanned)
    counts = budget_counts(scanned, 0.7)
    a, _ = _forward(scanned, params, counts)
    b, _ = _forward(unrolled, _unstacked(params, 4), counts)
    np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


def test_unrolled_and_scanned_start_equal():
    unrolled = functional.init(_cfg(scan=False), 7)
    expected = _unstacked(functional.init(_cfg(), 7), 4)
    jax.tree.map(np.testing.assert_array_equal, unrolled, expected)


def test_layers_start_different_and_seeds_matter():
    qkv = functional.init(_cfg(), 0)["trunk"]["blocks"]["stacked"]["attn"]["qkv"]["kernel"]
    assert not np.allclose(qkv[0], qkv[1])
    other = functional.init(_cfg(), 1)["trunk"]["blocks"]["stacked"]["attn"]["qkv"]["kernel"]
    assert not np.allclose(qkv, other)


def test_rematerialisation_changes_no_gradient():
    cfg, remat = _cfg(), _cfg(remat="block")
    params, counts = _params(cfg), budget_counts(cfg, 0.6)

    def grads(cfg):
        def loss(p):
            logits, _ = functional.apply(
                cfg, p, _images(cfg), counts, key=jax.random.key(0), train=True
            )
            return jnp.square(logits).sum()

        return jax.jit(jax.grad(loss))(params)

    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5),
        grads(cfg),
        grads(remat),
    )


def test_bfloat16_compute_keeps_float32_where_it_matters():
    cfg = _cfg(dtype="bfloat16")
    params, counts = _params(cfg), budget_counts(cfg, 0.6)
    logits, out = _forward(cfg, params, counts)
    assert logits.dtype == jnp.float32
    assert out["routers"][0]["probs"].dtype == jnp.float32
    assert out["features"].dtype == jnp.bfloat16
    expected, _ = _forward(_cfg(), params, counts)
    # 8 bits of mantissa through four blocks.
    assert np.abs(logits - expected).max() < 0.1 * np.abs(expected).max()


@pytest.mark.parametrize("pool", ["cls", "map"])
def test_pooling_heads_depend_on_every_token(pool):
    cfg = _cfg(pool=pool)
    params, counts = _params(cfg), budget_counts(cfg, 0.6)
    assert sum(counts) == cfg.num_patches == 9
    grad = jax.jit(jax.grad(lambda x: functional.apply(cfg, params, x, counts)[0].sum()))(
        _images(cfg)
    )
    per_patch = np.abs(grad).reshape(3, 3, 2, 3, 2).sum((2, 4))
    assert (per_patch > 0).all()


def test_class_token_rides_with_the_widest_expert_in_use():
    """Its features change beyond the width of every narrower expert."""
    cfg = _cfg(pool="cls")
    params = _params(cfg)
    model = functional.build(cfg, params)
    x = jnp.concatenate([model.embed(_images(cfg)), jnp.ones((3, 1, 16))], axis=1)
    for counts, width in (((5, 4, 0), 8), ((3, 3, 3), 16), ((9, 0, 0), 4)):
        tokens, _ = model.trunk(x, counts, pinned=1, router="learned", key=None, route_key=None)
        last = np.asarray(tokens.restore_order(tokens.grouped()))[:, -1]
        assert (last[:, :width] != 1).all(), counts
        np.testing.assert_array_equal(last[:, width:], 1)


def test_random_router_ignores_the_input_and_needs_a_key():
    cfg = _cfg()
    params, counts = _params(cfg), (3, 3, 3)
    runs = [
        _forward(cfg, params, counts, router="random", key=jax.random.key(k))[1]["routers"][0]
        for k in (0, 0, 1)
    ]
    np.testing.assert_array_equal(runs[0]["assignment"], runs[1]["assignment"])
    assert (np.asarray(runs[0]["assignment"]) != np.asarray(runs[2]["assignment"])).any()
    with pytest.raises(ValueError, match="PRNG key"):
        functional.apply(cfg, params, _images(cfg), counts, router="random")


def test_several_routers_route_each_on_its_own():
    cfg = _cfg(router_layers=(1, 3))
    _, out = _forward(cfg, _params(cfg), (3, 3, 3))
    assert list(out["routers"]) == [1, 3]
    first, second = (np.asarray(r["assignment"]) for r in out["routers"].values())
    assert (first != second).any()


def test_dropping_is_on_in_training_only_and_follows_the_key():
    cfg = _cfg(dropout=0.5, drop_path=0.5)
    params, counts = _params(cfg), (3, 3, 3)
    plain, _ = _forward(_cfg(), params, counts)
    evaluated, _ = _forward(cfg, params, counts)
    np.testing.assert_array_equal(plain, evaluated)
    a, b, c = (
        _forward(cfg, params, counts, train=True, key=jax.random.key(k))[0] for k in (0, 0, 1)
    )
    np.testing.assert_array_equal(a, b)
    assert not np.allclose(a, c)
    assert not np.allclose(a, plain)
    with pytest.raises(ValueError, match="PRNG key"):
        functional.apply(cfg, params, _images(cfg), counts, train=True)


def test_stochastic_depth_keeps_the_expectation():
    """Averaged over many keys the branch keeps its scale; block 0 is never dropped."""
    cfg = _cfg(depth=1, drop_path=0.5)
    params = _params(cfg)
    plain, _ = _forward(cfg, params, (3, 3, 3))
    dropped, _ = _forward(cfg, params, (3, 3, 3), train=True, key=jax.random.key(0))
    np.testing.assert_allclose(dropped, plain, rtol=1e-6)


def test_mixture_of_depths_equals_a_per_token_loop():
    """Skipped tokens are untouched; picked ones get r (block(x) - x) among themselves."""
    cfg = _cfg(method="mod", depth=2)
    params = _params(cfg)
    model = functional.build(cfg, params)
    x = model.embed(_images(cfg))
    tokens, routed = model.trunk(x, (6, 3), pinned=0, router="learned", key=None, route_key=None)
    got = np.asarray(tokens.grouped())
    dense = np.asarray(model.trunk._dense(x, range(1), None))
    scores = dense @ np.asarray(params["trunk"]["routers"][0]["kernel"])[:, 0]
    for image in range(3):
        picked = np.sort(np.argsort(-scores[image], kind="stable")[:3])
        np.testing.assert_array_equal(
            np.flatnonzero(np.asarray(routed[1]["assignment"][image])), picked
        )
        alone = model.trunk._dense(jnp.asarray(dense[image : image + 1, picked]), range(1, 2), None)
        expected = dense[image].copy()
        expected[picked] += scores[image, picked, None] * (np.asarray(alone)[0] - expected[picked])
        np.testing.assert_allclose(got[image], expected, rtol=2e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("method", "counts"), [("mone", (4, 4)), ("mone", (4, 4, 4)), ("matvit", (3, 3, 3))]
)
def test_counts_that_do_not_fit_are_refused(method, counts):
    cfg = _cfg(method=method)
    with pytest.raises(ValueError, match="counts="):
        functional.apply(cfg, _params(cfg), _images(cfg), counts)


def test_lowers_for_accelerators_without_one():
    """The attention product is chosen for the compile target, not for this host."""
    cfg = _cfg(dtype="bfloat16")
    params, counts = functional.abstract_params(cfg), (3, 3, 3)
    forward = jax.jit(lambda p, x: functional.apply(cfg, p, x, counts)[0])
    images = jax.ShapeDtypeStruct((3, *cfg.image_size, cfg.channels), jnp.float32)
    traced = forward.trace(params, images)
    cpu, tpu = (traced.lower(lowering_platforms=(p,)).as_text() for p in ("cpu", "tpu"))
    assert cpu != tpu


def test_router_noise_explores_in_training_only():
    """Noise changes who goes where, not the probability that scales the FFN."""
    quiet, noisy = _cfg(), _cfg(router_noise=3.0)
    params, counts = _params(quiet), (3, 3, 3)
    _, expected = _forward(quiet, params, counts)
    _, evaluated = _forward(noisy, params, counts)
    _, trained = _forward(noisy, params, counts, train=True, key=jax.random.key(0))
    expected, evaluated, trained = (o["routers"][0] for o in (expected, evaluated, trained))
    np.testing.assert_array_equal(evaluated["assignment"], expected["assignment"])
    assert (np.asarray(trained["assignment"]) != np.asarray(expected["assignment"])).any()
    np.testing.assert_allclose(trained["probs"], expected["probs"], rtol=1e-6)
    for row in np.asarray(trained["assignment"]):
        np.testing.assert_array_equal(np.bincount(row), counts)
    with pytest.raises(ValueError, match="PRNG key"):
        functional.apply(noisy, params, _images(noisy), counts, train=True)
