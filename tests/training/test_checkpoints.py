import shutil

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from mone.errors import CheckpointError
from mone.training.checkpoints import (
    Checkpoints,
    compare_params,
    complete_steps,
    read_params,
)
from mone.training.state import new_state

PARAMS = {
    "embed": {"kernel": (4, 3), "bias": (3,)},
    "blocks": {"alpha": (2,)},
    "routers": {"kernel": (3, 2)},
}


def _params(shapes=PARAMS, value=1.0):
    return jax.tree.map(
        lambda s: jnp.full(s, value), shapes, is_leaf=lambda x: isinstance(x, tuple)
    )


def _state(step=0, value=1.0, *, ema=True):
    tx = optax.chain(optax.clip_by_global_norm(1.0), optax.scale_by_adam(mu_dtype="bfloat16"))
    state = new_state(_params(value=value), tx, ema=ema)
    return state.replace(step=jnp.int32(step))


def _abstract(state):
    return jax.tree.map(
        lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=x.sharding), state
    )


@pytest.fixture
def saved(tmp_path):
    """A work directory with checkpoints of steps 3 and 5 (parameters 3 and 5, averages 1)."""
    checkpoints = Checkpoints(tmp_path, keep=2)
    for step in (1, 3, 5):
        state = _state(step, float(step)).replace(ema=_params())
        checkpoints.save(state, step, {"data": {"position": 2**40 + step}, "losses": [0.1, step]})
    checkpoints.wait()
    checkpoints.close()
    return tmp_path


@pytest.mark.parametrize("ema", [True, False])
def test_round_trip_keeps_structure_values_and_dtypes(tmp_path, ema):
    state = _state(7, 2.0, ema=ema)
    checkpoints = Checkpoints(tmp_path, keep=1)
    checkpoints.save(state, 7, {"losses": [0.1]})
    checkpoints.close()
    checkpoints = Checkpoints(tmp_path, keep=1)
    got, host = checkpoints.restore(_abstract(state), checkpoints.latest_step())
    checkpoints.close()
    assert jax.tree.structure(got) == jax.tree.structure(state)
    for x, y in zip(jax.tree.leaves(got), jax.tree.leaves(state), strict=True):
        assert x.dtype == y.dtype
        np.testing.assert_array_equal(x, y)
    assert host == {"losses": [0.1]}


def test_keeps_the_newest(saved):
    assert complete_steps(saved) == [3, 5]


def test_a_state_may_be_donated_while_it_is_being_written(tmp_path):
    params = {"kernel": jnp.zeros((512, 1024))}
    state = new_state(params, optax.identity(), ema=False)
    advance = jax.jit(
        lambda s: s.replace(step=s.step + 1, params=jax.tree.map(lambda x: x + 1, s.params)),
        donate_argnums=0,
    )
    abstract = _abstract(state)
    checkpoints = Checkpoints(tmp_path, keep=10)
    for _ in range(5):
        state = advance(state)
        checkpoints.save(state, int(state.step), {})
        for _ in range(20):
            state = advance(state)
    checkpoints.wait()
    for step in complete_steps(tmp_path):
        got, _ = checkpoints.restore(abstract, step)
        np.testing.assert_array_equal(got.params["kernel"], float(step))
    assert complete_steps(tmp_path) == [1, 22, 43, 64, 85]
    checkpoints.close()


def test_host_data_may_change_while_it_is_being_written(saved):
    checkpoints = Checkpoints(saved, keep=30)
    state = new_state({"kernel": jnp.zeros((512, 512))}, optax.identity(), ema=False)
    losses = []
    for step in range(10, 20):
        losses.append(float(step))
        checkpoints.save(state.replace(step=jnp.int32(step)), step, {"losses": losses})
        losses.append(-1.0)
    checkpoints.wait()
    for step in range(10, 20):
        _, host = checkpoints.restore(_abstract(state), step)
        assert host["losses"][-1] == step
        assert len(host["losses"]) == 2 * (step - 10) + 1
    checkpoints.close()


def test_what_a_killed_save_left_is_ignored_and_removed(saved):
    partial = saved / "checkpoints" / "7.orbax-checkpoint-tmp"
    shutil.copytree(saved / "checkpoints" / "5", partial)
    assert complete_steps(saved) == [3, 5]
    checkpoints = Checkpoints(saved, keep=2)
    assert checkpoints.latest_step() == 5
    checkpoints.save(_state(7), 7, {})
    checkpoints.close()
    assert not partial.exists()
    assert complete_steps(saved) == [5, 7]


def test_read_params(saved):
    step, params = read_params(saved)
    assert step == 5
    np.testing.assert_array_equal(params["embed"]["kernel"], np.ones((4, 3)))
    step, params = read_params(saved, step=3, ema=False)
    assert step == 3
    np.testing.assert_array_equal(params["embed"]["kernel"], np.full((4, 3), 3.0))


def test_reading_errors(saved, tmp_path):
    with pytest.raises(CheckpointError, match="no complete checkpoint"):
        read_params(tmp_path / "elsewhere")
    with pytest.raises(CheckpointError, match=r"no checkpoint of step 4 .* 3, 5"):
        read_params(saved, step=4)


@pytest.mark.parametrize("item", ["params", "optimizer"])
def test_damaged_checkpoint_is_one_clear_error(saved, item):
    for path in (saved / "checkpoints" / "5" / item).rglob("*"):
        if path.is_file():
            path.write_bytes(path.read_bytes()[:5])
    checkpoints = Checkpoints(saved, keep=2)
    expected = r"cannot read the checkpoint .*checkpoints/5.* delete that directory"
    with pytest.raises(CheckpointError, match=expected):
        checkpoints.restore(_abstract(_state()), 5)
    checkpoints.close()


def test_renamed_checkpoint_is_noticed(saved):
    (saved / "checkpoints" / "5").rename(saved / "checkpoints" / "6")
    checkpoints = Checkpoints(saved, keep=2)
    with pytest.raises(CheckpointError, match="written after step 5"):
        checkpoints.restore(_abstract(_state()), 6)
    checkpoints.close()


def test_compare_params_lists_everything():
    expected = _params()
    found = _params({"embed": {"kernel": (4, 5)}, "blocks": {"alpha": (2,)}, "extra": (1,)})
    missing, extra, shapes = compare_params(expected, found)
    assert missing == ["embed/bias", "routers/kernel"]
    assert extra == ["extra"]
    assert shapes == ["embed/kernel: (4, 5) in the checkpoint, (4, 3) in the model"]
