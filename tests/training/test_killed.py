"""Killed with -9 at any moment and started again, a run ends as one that was never killed."""

import json
import signal
import subprocess
import sys
import time

import jax
import numpy as np
import pytest

from mone import config as config_lib
from mone.models import vit_config
from mone.training import load_trained, train
from mone.training.checkpoints import Checkpoints, complete_steps
from mone.training.optimiser import make_optimizer, make_schedule
from mone.training.sharding import make_mesh
from mone.training.state import abstract_state

CHILD = (
    "import sys; from mone import config; from mone.training import train\n"
    "train(config.from_json(open(sys.argv[1]).read()), sys.argv[2])"
)
STEPS = 40
DEADLINE = 240  # Seconds for one start.


@pytest.fixture(scope="module")
def start(tiny_config, tmp_path_factory):
    """Return the configuration and a function that starts its training in a directory."""
    config = tiny_config(
        **{"num_steps": STEPS, "checkpoint.every": 4, "checkpoint.keep": 2, "log_every": 13,
           "model.dropout": 0.2, "data.mixup": 0.5, "optimizer.ema_decay": 0.9,
           "optimizer.learning_rate": 0.01, "data.augment": "light1", "data.flip": True}
    )  # fmt: skip
    path = tmp_path_factory.mktemp("config") / "config.json"
    path.write_text(config_lib.to_json(config))

    def run(workdir):
        command = [sys.executable, "-u", "-c", CHILD, str(path), str(workdir)]
        return subprocess.Popen(command, stderr=subprocess.PIPE, text=True)

    return config, run


def _kill_when(process, moment):
    """Kill the process as soon as `moment()` holds; return whether it came to that."""
    end = time.monotonic() + DEADLINE
    while process.poll() is None and time.monotonic() < end:
        if moment():
            process.send_signal(signal.SIGKILL)
            process.communicate()
            return True
    process.communicate()
    return False


def _saving(workdir):
    return lambda: any("tmp" in p.name for p in (workdir / "checkpoints").glob("*"))


def _finish(process):
    _, stderr = process.communicate(timeout=DEADLINE)
    assert process.returncode == 0, stderr[-3000:]
    return stderr


def _records(workdir):
    records = [json.loads(line) for line in (workdir / "metrics.jsonl").read_text().splitlines()]
    for r in records:
        r.pop("images_per_second", None)
    return records


def _last_state(config, workdir):
    tx = make_optimizer(config, make_schedule("constant", 1))
    abstract = abstract_state(vit_config(config.model), tx, make_mesh(config), ema=True)
    checkpoints = Checkpoints(workdir, keep=2)
    out = checkpoints.restore(abstract, STEPS)
    checkpoints.close()
    return out


def test_killed_at_several_points_it_ends_the_same(start, tmp_path):
    config, run = start
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    train(config, whole)  # In this process: the others must agree with it, too.

    # Before there is a checkpoint: when the configuration is written, and while compiling.
    assert _kill_when(run(broken), (broken / "config.json").exists)
    assert complete_steps(broken) == []
    # In the middle of a save: what it was writing is still there, half-written.
    for _ in range(5):
        assert _kill_when(run(broken), _saving(broken))
        if _saving(broken)():
            break
    else:
        pytest.fail("no kill landed in a save")
    # Between two saves: some time after a new checkpoint.
    before = complete_steps(broken)
    assert _kill_when(run(broken), lambda: complete_steps(broken) != before)
    assert 0 < complete_steps(broken)[-1] < STEPS

    assert f"resuming after step {complete_steps(broken)[-1]}" in _finish(run(broken))
    assert complete_steps(broken) == complete_steps(whole) == [STEPS - 4, STEPS]
    (a, host_a), (b, host_b) = (_last_state(config, w) for w in (whole, broken))
    for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True):
        np.testing.assert_array_equal(x, y)
    assert host_a == host_b
    assert _records(whole) == _records(broken)
    assert [r["step"] for r in _records(whole) if r["kind"] == "train"] == [13, 26, 39, 40]
    assert np.any(load_trained(whole)[1]["head"]["kernel"] != 0)
