import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from mone.errors import ConfigError
from mone.training.optimiser import (
    decay_mask,
    ema_update,
    make_optimizer,
    make_schedule,
    run_length,
    warmup_length,
)


def test_cosine_schedule_with_warmup():
    s = make_schedule("cosine", 110, 10)
    t = np.arange(110)
    expected = 0.5 * (1 + np.cos(np.pi * np.clip((t - 10) / 100, 0, 1))) * np.minimum(1, t / 10)
    np.testing.assert_allclose([float(s(i)) for i in t], expected, rtol=1e-5, atol=1e-7)
    assert float(s(0)) == 0
    assert float(s(10)) == 1


def test_linear_and_constant_schedules():
    linear, constant = make_schedule("linear", 10), make_schedule("constant", 10, 5)
    np.testing.assert_allclose([float(linear(i)) for i in (0, 5, 10)], [1, 0.5, 0], atol=1e-7)
    np.testing.assert_allclose([float(constant(i)) for i in (0, 2, 5, 9)], [0, 0.4, 1, 1])


def test_schedule_errors():
    with pytest.raises(ConfigError, match=r"optimizer\.schedule='step'.*cosine"):
        make_schedule("step", 10)
    with pytest.raises(ConfigError, match="10 steps of warm-up"):
        make_schedule("cosine", 10, 10)


def test_run_and_warmup_length(tiny_config):
    epochs = tiny_config(**{"num_steps": 0, "num_epochs": 2.5, "optimizer.warmup_epochs": 0.5})
    assert run_length(epochs, 10) == 25
    assert warmup_length(epochs, 10) == 5
    steps = tiny_config(**{"optimizer.warmup_steps": 3, "optimizer.warmup_epochs": 0.5})
    assert run_length(steps, 10) == 6
    assert warmup_length(steps, 10) == 3
    with pytest.raises(ConfigError, match="exactly one"):
        run_length(tiny_config(num_epochs=1.0), 10)


def _problem(steps=5):
    rng = np.random.default_rng(0)
    params = {"fc": {"kernel": rng.normal(size=(4, 3)), "bias": rng.normal(size=3)}}
    grads = [jax.tree.map(lambda p: rng.normal(size=p.shape), params) for _ in range(steps)]
    return jax.tree.map(jnp.float32, params), jax.tree.map(jnp.float32, grads)


def _run(config, schedule, params, grads, trainable=None):
    tx = make_optimizer(config, schedule, trainable)
    state = tx.init(params)
    for g in grads:
        updates, state = tx.update(g, state, params)
        params = optax.apply_updates(params, updates)
    return params, state


def _clip(grads, norm):
    total = np.sqrt(sum(np.sum(np.float64(g) ** 2) for g in jax.tree.leaves(grads)))
    return jax.tree.map(lambda g: np.float64(g) * min(1.0, norm / total), grads)


def test_adamw_is_big_visions(tiny_config):
    config = tiny_config(
        **{"optimizer.moment_dtype": "float32", "optimizer.weight_decay": 0.01,
           "optimizer.learning_rate": 0.1, "optimizer.clip_norm": 0.7}
    )  # fmt: skip
    schedule = make_schedule("cosine", 8, 2)
    params, grads = _problem()
    got, _ = _run(config, schedule, params, grads)

    p = jax.tree.map(np.float64, params)["fc"]
    m = dict.fromkeys(p, 0.0)
    v = dict.fromkeys(p, 0.0)
    for t, g in enumerate(grads):
        s = float(schedule(t))
        g = _clip(g, 0.7)["fc"]
        for k in p:
            m[k] = 0.9 * m[k] + 0.1 * g[k]
            v[k] = 0.999 * v[k] + 0.001 * g[k] ** 2
            adam = m[k] / (1 - 0.9 ** (t + 1)) / (np.sqrt(v[k] / (1 - 0.999 ** (t + 1))) + 1e-8)
            decay = 0.01 * p[k] if k == "kernel" else 0.0
            p[k] = p[k] - s * (0.1 * adam + decay)
    for k in p:
        np.testing.assert_allclose(got["fc"][k], p[k], rtol=2e-5, atol=1e-6)


def test_sgd_momentum(tiny_config):
    config = tiny_config(
        **{"optimizer.name": "sgd", "optimizer.moment_dtype": "float32",
           "optimizer.learning_rate": 0.1, "optimizer.clip_norm": 0.0,
           "optimizer.weight_decay": 0.0}
    )  # fmt: skip
    params, grads = _problem()
    got, _ = _run(config, make_schedule("constant", 8), params, grads)
    p, m = np.float64(params["fc"]["kernel"]), 0.0
    for g in grads:
        m = 0.9 * m + np.float64(g["fc"]["kernel"])
        p = p - 0.1 * m
    np.testing.assert_allclose(got["fc"]["kernel"], p, rtol=1e-5)


def test_first_moment_is_bfloat16_and_second_is_not(tiny_config):
    params, grads = _problem(1)
    _, state = _run(tiny_config(), make_schedule("constant", 8), params, grads)
    adam = next(s for s in state if isinstance(s, optax.ScaleByAdamState))
    assert adam.mu["fc"]["kernel"].dtype == jnp.bfloat16
    assert adam.nu["fc"]["kernel"].dtype == jnp.float32


def test_frozen_parameters_are_out_of_everything(tiny_config):
    config = tiny_config(**{"optimizer.clip_norm": 1.0})
    schedule = make_schedule("constant", 8)
    params, grads = _problem()
    grads = [{"fc": {**g["fc"], "kernel": 1e6 * g["fc"]["kernel"]}} for g in grads]
    trainable = {"fc": {"kernel": False, "bias": True}}
    got, state = _run(config, schedule, params, grads, trainable)
    np.testing.assert_array_equal(got["fc"]["kernel"], params["fc"]["kernel"])
    assert all(x.shape in ((), (3,)) for x in jax.tree.leaves(state))
    alone = {"fc": {"bias": params["fc"]["bias"]}}
    expected, _ = _run(config, schedule, alone, [{"fc": {"bias": g["fc"]["bias"]}} for g in grads])
    np.testing.assert_array_equal(got["fc"]["bias"], expected["fc"]["bias"])


def test_decay_goes_by_name_not_by_rank():
    params = {"a": {"kernel": np.ones(3), "bias": np.ones((2, 3))}, "posemb": np.ones((4, 3))}
    assert decay_mask(params) == {"a": {"kernel": True, "bias": False}, "posemb": False}


@pytest.mark.parametrize(("field", "value"), [("name", "lion"), ("moment_dtype", "float16")])
def test_unknown_names(tiny_config, field, value):
    with pytest.raises(ConfigError, match=rf"optimizer\.{field}='{value}'"):
        make_optimizer(tiny_config(**{f"optimizer.{field}": value}), make_schedule("constant", 1))


def test_ema():
    values = [np.float32(x) for x in (1.0, 2.0, 4.0)]
    ema = values[0]
    for t, x in enumerate(values):
        ema = ema_update({"p": ema}, {"p": x}, 0.15, jnp.int32(t))["p"]
    expected = 1.0
    for d, x in zip((0.1, 0.15, 0.15), values, strict=True):  # (1+t)/(10+t) is .1 at first.
        expected = d * expected + (1 - d) * x
    np.testing.assert_allclose(ema, expected, rtol=1e-6)


def _orthogonal(m):
    """Return the nearest semi-orthogonal matrix: what Newton-Schulz iterates towards."""
    u, _, v = np.linalg.svd(np.asarray(m, np.float64), full_matrices=False)
    return u @ v


@pytest.mark.parametrize("stacked", [False, True])
def test_muon_updates_block_matrices_and_nadam_the_rest(tiny_config, stacked):
    config = tiny_config(
        **{"optimizer.name": "muon", "optimizer.moment_dtype": "float32",
           "optimizer.learning_rate": 1.0, "optimizer.weight_decay": 0.0,
           "optimizer.clip_norm": 0.0}
    )  # fmt: skip
    shape = (2, 6, 24) if stacked else (6, 24)
    rng = np.random.default_rng(0)
    grads = {
        "trunk": {
            "blocks": {"fc1": {"kernel": rng.normal(size=shape), "bias": rng.normal(size=24)}},
            "routers": {"kernel": rng.normal(size=(6, 3))},
        },
        "head": {"kernel": rng.normal(size=(6, 10))},
    }
    grads = jax.tree.map(jnp.float32, grads)
    params = jax.tree.map(jnp.zeros_like, grads)
    tx = make_optimizer(config, make_schedule("constant", 10))
    updates, _ = tx.update(grads, tx.init(params), params)
    nadam = optax.scale_by_adam(0.9, 0.999, nesterov=True)
    expected, _ = nadam.update(grads, nadam.init(params))
    for rest in (("trunk", "routers", "kernel"), ("head", "kernel"),
                 ("trunk", "blocks", "fc1", "bias")):  # fmt: skip
        update, other = updates, expected
        for name in rest:
            update, other = update[name], other[name]
        np.testing.assert_allclose(update, -other, rtol=1e-5)
    kernel = grads["trunk"]["blocks"]["fc1"]["kernel"]
    found = np.asarray(updates["trunk"]["blocks"]["fc1"]["kernel"], np.float64)
    for grad, update in zip(kernel if stacked else kernel[None],
                            found if stacked else found[None], strict=True):  # fmt: skip
        # Five iterations leave singular values near 1, and the singular vectors as they are.
        direction = -update / (0.2 * np.sqrt(24))
        values = np.linalg.svd(direction, compute_uv=False)
        assert values.min() > 0.6
        assert values.max() < 1.3
        overlap = np.sum(direction * _orthogonal(grad)) / np.linalg.norm(direction)
        assert overlap / np.sqrt(6) > 0.95
