import json
import os
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from mone.errors import ConfigError
from mone.training.sharding import check_batch, make_mesh, put_batch

# Runs where eight devices are: three steps on one device, and on meshes of eight; the state of
# each is saved and restored onto another mesh.
CHILD = """
import json, sys, tempfile
import jax, numpy as np, optax
from jax.sharding import AxisType, Mesh
from mone import config as config_lib
from mone.models import budget_counts, vit_config
from mone.training.checkpoints import Checkpoints
from mone.training.optimiser import make_optimizer, make_schedule
from mone.training.sharding import batch_sharding, make_mesh, put_batch
from mone.training.state import abstract_state, init_state
from mone.training.step import CompiledSteps, make_step

config = config_lib.from_json(open(sys.argv[1]).read())
cfg = vit_config(config.model)
tx = make_optimizer(config, make_schedule("constant", 9))
budgets = (budget_counts(cfg, 0.75),)
rng = np.random.default_rng(0)
batches = [
    {"image": rng.normal(size=(16, 28, 28, 1)).astype(np.float32),
     "label": rng.integers(10, size=16).astype(np.int32)} for _ in range(3)
]

def mesh_of(data, fsdp):
    if data * fsdp == 1:
        return Mesh(np.array(jax.devices()[:1]).reshape(1, 1), ("data", "fsdp"),
                    axis_types=(AxisType.Auto,) * 2)
    config.mesh.data, config.mesh.fsdp = data, fsdp
    return make_mesh(config)

def run(mesh):
    abstract = abstract_state(cfg, tx, mesh, ema=True)
    state = init_state(cfg, tx, mesh, seed=0, ema=True)
    split = batch_sharding(mesh)
    shapes = {k: jax.ShapeDtypeStruct(v.shape, v.dtype, sharding=split)
              for k, v in batches[0].items()}
    steps = CompiledSteps(make_step(config, cfg, tx), abstract, shapes, mesh)
    losses = []
    for batch in batches:
        state, metrics = steps(state, put_batch(batch, mesh), budgets)
        losses.append(float(metrics["loss"]))
    assert jax.tree.map(lambda x: x.sharding, state) == jax.tree.map(
        lambda x: x.sharding, abstract)
    return abstract, state, losses

def gap(a, b):
    return max(float(np.max(np.abs(np.float64(x) - np.float64(y)) / (1e-2 + np.abs(np.float64(y)))))
               for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True))

meshes = {"1": mesh_of(1, 1), "data": mesh_of(8, 1), "fsdp": mesh_of(1, 8), "both": mesh_of(2, 4)}
runs = {k: run(m) for k, m in meshes.items()}
report = {"losses": {k: r[2] for k, r in runs.items()},
          "gap": {k: gap(r[1], runs["1"][1]) for k, r in runs.items()},
          "step": int(runs["both"][1].step)}
kernel = runs["both"][1].params["head"]["kernel"]
mu = jax.tree.leaves(runs["both"][1].opt_state)
report["kernel"] = [kernel.shape, kernel.sharding.shard_shape(kernel.shape)]
report["moments_split"] = sum(x.sharding.shard_shape(x.shape) != x.shape for x in mu)
report["restored"] = {}
for there, here in (("both", "1"), ("1", "both")):
    checkpoints = Checkpoints(tempfile.mkdtemp(), keep=1)
    checkpoints.save(runs[there][1], 3, {})
    checkpoints.wait()
    state, _ = checkpoints.restore(runs[here][0], 3)
    checkpoints.close()
    same = all(np.array_equal(x, y) for x, y in
               zip(jax.tree.leaves(state), jax.tree.leaves(runs[there][1]), strict=True))
    placed = all(x.sharding == y.sharding for x, y in
                 zip(jax.tree.leaves(state), jax.tree.leaves(runs[here][0]), strict=True))
    report["restored"][f"{there} to {here}"] = [same, placed]
print(json.dumps(report))
"""


@pytest.fixture(scope="module")
def report(tiny_config, tmp_path_factory):
    from mone import config as config_lib

    config = tiny_config(
        **{"batch_size": 16, "optimizer.accum_steps": 2, "optimizer.ema_decay": 0.5,
           "optimizer.moment_dtype": "float32", "optimizer.name": "sgd", "model.dropout": 0.2,
           "optimizer.learning_rate": 0.1, "model.pool": "cls"}
    )  # fmt: skip
    path = tmp_path_factory.mktemp("sharding") / "config.json"
    path.write_text(config_lib.to_json(config))
    env = os.environ | {"XLA_FLAGS": "--xla_force_host_platform_device_count=8"}
    done = subprocess.run(
        [sys.executable, "-c", CHILD, str(path)], env=env, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])


def test_eight_devices_compute_what_one_does(report):
    assert report["step"] == 3
    assert max(report["gap"].values()) < 2e-5
    for losses in report["losses"].values():
        assert losses == pytest.approx(report["losses"]["1"], rel=1e-6)
    assert len(set(report["losses"]["1"])) == 3


def test_fsdp_splits_parameters_and_optimiser_state(report):
    assert report["kernel"] == [[8, 10], [2, 10]]
    assert report["moments_split"] > 5


def test_checkpoints_move_between_meshes(report):
    assert report["restored"] == {
        "both to 1": [True, True],
        "1 to both": [True, True],
    }


@pytest.mark.parametrize(
    ("sizes", "message"),
    [
        ((-1, -1), "at most one may be -1"),
        ((0, 1), "must be positive"),
        ((3, 1), "product must be the number of devices, 1"),
        ((-1, 2), "2 does not divide the 1 devices"),
    ],
)
def test_mesh_errors(tiny_config, sizes, message):
    with pytest.raises(ConfigError, match=rf"mesh\.data={sizes[0]}.*{message}"):
        make_mesh(tiny_config(**{"mesh.data": sizes[0], "mesh.fsdp": sizes[1]}))


def test_batch_errors(tiny_config):
    mesh = make_mesh(tiny_config())
    check_batch(tiny_config(), mesh)
    with pytest.raises(ConfigError, match="batch_size=8 must be a positive multiple of 3"):
        check_batch(tiny_config(**{"optimizer.accum_steps": 3}), mesh)


def test_put_batch_splits_arrays_and_replicates_scalars(tiny_config):

    mesh = make_mesh(tiny_config())
    out = put_batch({"x": np.arange(4.0, dtype=np.float32), "a": np.float32(2)}, mesh)
    assert jnp.array_equal(out["x"], jnp.arange(4.0))
    assert out["a"].shape == ()
    assert isinstance(out["x"].sharding, jax.sharding.NamedSharding)
