import dataclasses

import jax
import numpy as np
import optax
import pytest
from PIL import Image

from mone.errors import CheckpointError
from mone.models import functional, vit_config
from mone.training.checkpoints import Checkpoints, flatten
from mone.training.state import new_state
from mone.training.transfer import resize_posemb, start_params
from mone.training.workdir import claim

POSEMB = "embed/posemb"


@pytest.fixture
def source(tiny_config, tmp_path):
    """Return a function that writes a run with random parameters and returns those, flat."""

    def make(**overrides):
        config = tiny_config(**overrides)
        shapes = functional.abstract_params(vit_config(config.model))
        rng = np.random.default_rng(0)
        params = jax.tree.map(lambda x: rng.normal(size=x.shape).astype(np.float32), shapes)
        claim(config, tmp_path)
        checkpoints = Checkpoints(tmp_path, keep=1)
        checkpoints.save(new_state(params, optax.identity(), ema=False), 0, {})
        checkpoints.close()
        return tmp_path, flatten(params)

    return make


@pytest.fixture
def start(tiny_config):
    """Return a function that starts a model, given by its fields: (got, fresh, notes), flat."""

    def make(workdir, **overrides):
        cfg = vit_config(tiny_config(**overrides).model)
        fresh = functional.init(cfg, seed=1)
        params, notes = start_params(workdir, cfg, fresh)
        assert jax.tree.structure(params) == jax.tree.structure(fresh)
        return flatten(params), flatten(fresh), notes

    return make


def _assert_taken(got, source, *, but=()):
    for name in got.keys() - set(but):
        np.testing.assert_array_equal(got[name], source[name])


def test_the_same_model_is_taken_as_it_is(source, start):
    workdir, old = source()
    got, _, notes = start(workdir)
    assert notes == ()
    assert got.keys() == old.keys()
    _assert_taken(got, old)


@pytest.mark.parametrize("method", ["dense", "matvit"])
def test_what_a_router_needs_is_fresh(source, start, method):
    workdir, old = source(**{"model.method": method})
    got, fresh, (note,) = start(workdir, **{"model.method": "mone"})
    new = {"trunk/blocks/layers/0/alpha", "trunk/routers/0/bias", "trunk/routers/0/kernel"}
    assert new == got.keys() - old.keys()
    assert note == f"freshly initialised, not there: {', '.join(sorted(new))}"
    _assert_taken(got, old, but=new)
    _assert_taken({name: got[name] for name in new}, fresh)


def test_a_router_without_use_is_left_out(source, start):
    workdir, old = source(**{"model.method": "mone"})
    got, _, (note,) = start(workdir, **{"model.method": "dense"})
    dropped = old.keys() - got.keys()
    assert len(dropped) == 3
    assert note == f"left out, not needed here: {', '.join(sorted(dropped))}"
    _assert_taken(got, old)


def test_a_classifier_for_other_classes_is_fresh(source, start):
    workdir, old = source(**{"model.num_classes": 4})
    got, fresh, (note,) = start(workdir, **{"model.head_bias": -3.0})
    head = ("head/bias", "head/kernel")
    assert note.endswith(f"for 10 classes in place of 4: {', '.join(head)}")
    _assert_taken(got, old, but=head)
    _assert_taken({name: got[name] for name in head}, fresh)
    np.testing.assert_array_equal(got["head/bias"], np.full(10, -3.0))


@pytest.mark.parametrize("pool", ["gap", "cls", "map"])
def test_a_position_embedding_is_resized_to_the_new_grid(source, start, pool):
    workdir, old = source(**{"model.pool": pool})
    got, _, (note,) = start(workdir, **{"model.pool": pool, "model.image_size": 56})
    assert note == f"resized from 2x2 to 4x4 patches: {POSEMB}"
    assert got[POSEMB].shape == (1, 16, 8)
    np.testing.assert_array_equal(got[POSEMB], resize_posemb(old[POSEMB], (2, 2), (4, 4)))
    _assert_taken(got, old, but=[POSEMB])


def test_a_grid_of_another_form_is_resized_though_the_tokens_are_as_many(source, tiny_config):
    workdir, old = source()
    cfg = dataclasses.replace(vit_config(tiny_config().model), image_size=(14, 56))
    params, (note,) = start_params(workdir, cfg, functional.init(cfg, seed=1))
    assert note == f"resized from 2x2 to 1x4 patches: {POSEMB}"
    got = params["embed"]["posemb"]
    np.testing.assert_array_equal(got, resize_posemb(old[POSEMB], (2, 2), (1, 4)))
    assert not np.allclose(got, old[POSEMB])


def test_fixed_position_embeddings_need_nothing(source, start):
    workdir, old = source(**{"model.posemb": "sincos2d"})
    got, _, notes = start(workdir, **{"model.posemb": "sincos2d", "model.image_size": 56})
    assert notes == ()
    _assert_taken(got, old)


def test_all_mismatches_are_listed_at_once_and_no_others(source, start):
    workdir, _ = source(**{"model.method": "dense", "model.num_classes": 4})
    with pytest.raises(CheckpointError) as e:
        start(
            workdir,
            **{"model.mlp_dim": 8, "model.pool": "cls", "model.posemb": "sincos2d",
               "model.image_size": 56},
        )  # fmt: skip
    first, *lines = str(e.value).splitlines()
    assert first == f"checkpoint.init_from={str(workdir)!r} does not fit the model:"
    block = "trunk/blocks/layers/0/mlp"
    assert sorted(line.strip() for line in lines) == [
        "cls: not in the checkpoint",
        f"{POSEMB}: not in the model",
        f"{block}/fc1/bias: (16,) in the checkpoint, (8,) in the model",
        f"{block}/fc1/kernel: (8, 16) in the checkpoint, (8, 8) in the model",
        f"{block}/fc2/kernel: (16, 8) in the checkpoint, (8, 8) in the model",
    ]


def test_another_width_on_another_grid_is_a_mismatch(source, start):
    workdir, _ = source()
    with pytest.raises(CheckpointError, match=r"posemb: \(1, 4, 8\) in .*, \(1, 16, 16\) in"):
        start(workdir, **{"model.width": 16, "model.image_size": 56})


def test_a_directory_that_is_no_run_is_named_with_its_field(start, tmp_path):
    with pytest.raises(CheckpointError, match=r"\.init_from='.*': .* is no work directory"):
        start(tmp_path / "nowhere")


def test_the_same_grid_changes_nothing():
    posemb = np.random.default_rng(0).normal(size=(1, 6, 3)).astype(np.float32)
    np.testing.assert_array_equal(resize_posemb(posemb, (2, 3), (2, 3)), posemb)


@pytest.mark.parametrize("new", [(24, 24), (7, 7), (5, 17), (1, 1)])
def test_a_constant_stays_constant(new):
    posemb = np.broadcast_to(np.float32([1.5, -2.0]), (1, 14 * 14, 2))
    got = resize_posemb(posemb, (14, 14), new)
    assert got.shape == (1, new[0] * new[1], 2)
    np.testing.assert_allclose(got, np.broadcast_to([1.5, -2.0], got.shape), rtol=1e-6)


@pytest.mark.parametrize(("old", "new"), [((4, 6), (10, 9)), ((12, 8), (4, 4))])
def test_a_ramp_stays_a_ramp_in_the_interior(old, new):
    def ramp(grid):  # In units of the image, at the centres of its patches.
        rows, columns = np.mgrid[: grid[0], : grid[1]]
        return np.stack([(rows + 0.5) / grid[0], (columns + 0.5) / grid[1]], -1)

    got = resize_posemb(ramp(old).astype(np.float32).reshape(1, -1, 2), old, new)
    rows, columns = (-(-new[i] // min(old[i], new[i])) for i in range(2))  # Edge that is clamped.
    inside = np.s_[rows:-rows, columns:-columns]
    got = np.asarray(got).reshape(*new, 2)[inside]
    assert got.size
    np.testing.assert_allclose(got, ramp(new)[inside], atol=1e-6)


@pytest.mark.parametrize("new", [(24, 24), (9, 6), (20, 5)])
def test_resizing_agrees_with_pillow(new):
    posemb = np.random.default_rng(0).normal(size=(1, 14 * 10, 3)).astype(np.float32)
    got = np.asarray(resize_posemb(posemb, (14, 10), new)).reshape(*new, 3)
    for channel in range(3):
        image = Image.fromarray(posemb[..., channel].reshape(14, 10))
        expected = image.resize(new[::-1], Image.Resampling.BILINEAR)
        np.testing.assert_allclose(got[..., channel], expected, atol=1e-5)
