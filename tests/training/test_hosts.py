"""Two real processes train one model, and fail together."""

import json
import socket
import subprocess
import sys

import jax
import numpy as np
import pytest

from mone import config as config_lib
from mone.errors import ConfigError, DataError
from mone.training import hosts, load_trained, train

# Each process has one device, whatever the tests' own process simulates.
CHILD = """\
import os, sys
os.environ["XLA_FLAGS"] = ""
from mone.training import hosts, train
from mone.errors import UserError
from mone import config
hosts.connect(sys.argv[1])
try:
    train(config.from_json(open(sys.argv[2]).read()), sys.argv[3])
except UserError as error:
    sys.exit(f"{type(error).__name__}: {error}")
"""
DEADLINE = 240  # Seconds.


@pytest.fixture
def two(tmp_path):
    """Return a function that trains on two processes: exit codes and standard errors."""

    def run(configs, workdir):
        with socket.socket() as s:
            s.bind(("localhost", 0))
            port = s.getsockname()[1]
        processes = []
        for index, config in enumerate(configs):
            path = tmp_path / f"{index}.json"
            path.write_text(config_lib.to_json(config))
            command = [sys.executable, "-c", CHILD, f"localhost:{port},2,{index}", str(path)]
            processes.append(
                subprocess.Popen([*command, str(workdir)], stderr=subprocess.PIPE, text=True)
            )
        try:
            errors = [p.communicate(timeout=DEADLINE)[1] for p in processes]
        finally:
            for p in processes:
                p.kill()
        return [p.returncode for p in processes], errors

    return run


def _records(workdir):
    return [json.loads(line) for line in (workdir / "metrics.jsonl").read_text().splitlines()]


@pytest.mark.parametrize("fsdp", [1, 2])
def test_two_processes_end_as_one_does_and_resume(two, tiny_config, tmp_path, fsdp):
    def config(**more):
        return tiny_config(**{"optimizer.name": "sgd", "data.augment": "light1", **more})

    train(config(**{"mesh.data": -1}), tmp_path / "one")
    pair = config(**{"mesh.data": -1, "mesh.fsdp": fsdp})
    codes, errors = two([pair, pair], tmp_path / "two")
    assert codes == [0, 0], errors
    # Only the first one speaks.
    assert "devices: 2 x cpu on 2 host(s)" in errors[0]
    assert "step 6/6" in errors[0]
    assert "step 6/6" not in errors[1]
    one, other = (load_trained(tmp_path / name)[1] for name in ("one", "two"))
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=2e-4, atol=2e-6), one, other)
    records = _records(tmp_path / "two")
    assert [r["step"] for r in records if r["kind"] == "train"] == [1, 2, 3, 4, 5, 6]
    mine, theirs = (_records(tmp_path / name)[-1] for name in ("one", "two"))
    assert theirs["num_examples"] == mine["num_examples"] == 30
    assert theirs["accuracy"] == mine["accuracy"]

    codes, errors = two([pair, pair], tmp_path / "two")  # Complete: only reported again.
    assert codes == [0, 0], errors
    assert "resuming after step 6" in errors[0]
    assert _records(tmp_path / "two") == records


def test_an_error_on_one_process_ends_both(two, tiny_config, tmp_path):
    good = tiny_config()
    codes, errors = two([good, tiny_config(seed=1)], tmp_path / "run")
    assert codes == [1, 1]
    assert "OtherHostError: process 1 cannot go on: all processes of a run must" in errors[0]
    assert "ConfigError" in errors[1]
    assert "seed: 0 -> 1" in errors[1]
    assert not (tmp_path / "run").exists() or not (tmp_path / "run" / "checkpoints").exists()


@pytest.mark.parametrize(
    "address",
    ["", "host", "host:1", "host:x,2,0", "host:1,2,2", "host:1,2,-1", ":1,2,0", "h:1,²,0"],
)
def test_an_address_that_cannot_be_used_is_named(address):
    with pytest.raises(ConfigError, match="HOST:PORT,PROCESSES,INDEX") as error:
        hosts.connect(address)
    assert f"--distributed={address}" in str(error.value)


def test_alone_everything_is_the_first_process():
    assert hosts.is_first()
    assert hosts.from_first({"a": [1]}) == {"a": [1]}
    with pytest.raises(DataError, match="gone"), hosts.same_fate():
        raise DataError("gone")
