from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from mone.models import expert_counts, functional, vit_config
from mone.training import losses
from mone.training.sharding import make_mesh
from mone.training.state import TrainState, new_state
from mone.training.step import CompiledSteps, make_step, step_key


def _images(cfg, b=8):
    rng = np.random.default_rng(0)
    return {
        "image": jnp.float32(rng.normal(size=(b, *cfg.image_size, cfg.channels))),
        "label": jnp.int32(rng.integers(cfg.num_classes, size=b)),
    }


_jit = partial(jax.jit, static_argnums=2)


def _setup(config):
    """A state with a head that is not zero, so that every gradient is alive."""
    cfg = vit_config(config.model)
    params = functional.init(cfg, 0)
    head = params["head"]["kernel"]
    params["head"]["kernel"] = jax.random.normal(jax.random.key(1), head.shape)
    tx = optax.sgd(0.1)
    ema = config.optimizer.ema_decay > 0
    return cfg, tx, new_state(params, tx, ema=ema), _images(cfg)


@partial(jax.jit, static_argnums=(0, 3))
def _loss(cfg, params, batch, counts):
    logits, _ = functional.apply(cfg, params, batch["image"], counts)
    return losses.softmax_loss(logits, jax.nn.one_hot(batch["label"], cfg.num_classes))


def test_micro_batches_average_exactly(tiny_config):
    dense = {"model.method": "dense", "optimizer.ema_decay": 0.5}
    results = []
    for accum in (1, 4):
        config = tiny_config(**dense, **{"optimizer.accum_steps": accum})
        cfg, tx, state, batch = _setup(config)
        results.append(_jit(make_step(config, cfg, tx))(state, batch, ((4,),)))
    (whole, a), (parts, b) = results
    for k in a:
        np.testing.assert_allclose(a[k], b[k], rtol=5e-6)
    for x, y in zip(jax.tree.leaves(whole), jax.tree.leaves(parts), strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-5, atol=1e-7)
    grads = jax.jit(jax.grad(_loss, 1), static_argnums=(0, 3))(cfg, state.params, batch, (4,))
    expected = jax.tree.map(lambda p, g: p - 0.1 * g, state.params, grads)
    for x, y in zip(jax.tree.leaves(whole.params), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-5, atol=1e-7)
    np.testing.assert_allclose(a["grad_norm"], optax.global_norm(grads), rtol=1e-5)
    assert int(whole.step) == 1


def test_matvit_sums_the_losses_of_all_widths(tiny_config):
    config = tiny_config(**{"model.method": "matvit"})
    cfg, tx, state, batch = _setup(config)
    wide, narrow = expert_counts(cfg, 1), expert_counts(cfg, 0)
    _, metrics = _jit(make_step(config, cfg, tx))(state, batch, (wide, narrow))
    each = [_loss(cfg, state.params, batch, counts) for counts in (wide, narrow)]
    assert abs(each[0] - each[1]) > 1e-3
    np.testing.assert_allclose(metrics["loss"], sum(each), rtol=1e-6)


def test_distillation_mixes_the_narrow_loss_only(tiny_config):
    config = tiny_config(**{"model.method": "matvit", "budget.distill": 0.25})
    cfg, tx, state, batch = _setup(config)
    wide, narrow = expert_counts(cfg, 1), expert_counts(cfg, 0)
    _, metrics = _jit(make_step(config, cfg, tx))(state, batch, (wide, narrow))
    apply = jax.jit(functional.apply, static_argnums=(0, 3))
    teacher = jax.nn.softmax(apply(cfg, state.params, batch["image"], wide)[0])
    student = apply(cfg, state.params, batch["image"], narrow)[0]
    expected = _loss(cfg, state.params, batch, wide)
    expected += 0.75 * _loss(cfg, state.params, batch, narrow)
    expected += 0.25 * losses.softmax_loss(student, teacher)
    np.testing.assert_allclose(metrics["loss"], expected, rtol=1e-6)


def test_dropout_follows_the_step_and_nothing_else(tiny_config):
    config = tiny_config(**{"model.method": "dense", "model.dropout": 0.5})
    cfg, tx, state, batch = _setup(config)
    step = _jit(make_step(config, cfg, tx))
    later = state.replace(step=jnp.int32(1))
    first, again, second = (step(s, batch, ((4,),))[1]["loss"] for s in (state, state, later))
    assert first == again
    assert first != second


def test_step_keys_differ_from_those_that_initialise():
    keys = [jax.random.key_data(step_key(0, t)).tolist() for t in range(50)]
    keys += [
        jax.random.key_data(jax.random.fold_in(jax.random.key(0), t)).tolist() for t in range(50)
    ]
    assert len({tuple(k) for k in keys}) == 100


def test_mixup_enters_the_loss(tiny_config):
    config = tiny_config(**{"model.method": "dense"})
    cfg, tx, state, batch = _setup(config)
    step = _jit(make_step(config, cfg, tx, mixup=True))
    _, metrics = step(state, {**batch, "mixup": jnp.float32(0.7)}, ((4,),))
    targets = jax.nn.one_hot(batch["label"], cfg.num_classes)
    x, y = losses.mixup(batch["image"], targets, 0.7)
    logits, _ = jax.jit(functional.apply, static_argnums=(0, 3))(cfg, state.params, x, (4,))
    expected = losses.softmax_loss(logits, y)
    np.testing.assert_allclose(metrics["loss"], expected, rtol=1e-6)


def test_one_executable_for_each_tuple_of_budgets():
    traced = []

    def step(state, batch, budgets):
        traced.append(budgets)
        return state.replace(step=state.step + 1), {"loss": batch["x"].sum() * len(budgets)}

    state = TrainState(jnp.int32(0), {}, {}, {})
    mesh = make_mesh_of_one()
    shapes = jax.tree.map(
        lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=x.sharding), state
    )
    batch = {"x": jnp.ones(3)}
    steps = CompiledSteps(step, shapes, {"x": jax.ShapeDtypeStruct((3,), jnp.float32)}, mesh)
    for budgets in (((1,),), ((2,), (1,)), ((1,),)):
        state, metrics = steps(state, batch, budgets)
        assert float(metrics["loss"]) == 3 * len(budgets)
    assert traced == [((1,),), ((2,), (1,))]
    assert int(state.step) == 3
    steps.close()


def make_mesh_of_one():
    from mone.configs.base import base

    return make_mesh(base())


@pytest.mark.parametrize("name", ["softmax", "sigmoid"])
def test_loss_falls_on_one_batch(tiny_config, name):
    config = tiny_config(**{"model.method": "dense", "loss.name": name})
    cfg, _, state, batch = _setup(config)
    tx = optax.adam(0.02)
    state = new_state(state.params, tx, ema=False)
    step = _jit(make_step(config, cfg, tx))
    history = []
    for _ in range(40):
        state, metrics = step(state, batch, ((4,),))
        history.append(float(metrics["loss"]))
    assert history[-1] < 0.2 * history[0]
