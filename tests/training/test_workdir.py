import subprocess
import sys

import pytest

from mone import config as config_lib
from mone.errors import CheckpointError, ConfigError
from mone.training import load_trained, train
from mone.training.workdir import CONFIG, claim, differences, lock, read_config, write_atomic


def test_claim_writes_the_configuration_once(tiny_config, tmp_path):
    config, workdir = tiny_config(), tmp_path / "a" / "b"
    with lock(workdir):
        claim(config, workdir)
        assert differences(read_config(workdir), config) == []
        claim(config, workdir)
    assert sorted(p.name for p in workdir.iterdir()) == [".lock", CONFIG]


def test_another_configuration_is_refused_and_nothing_changes(tiny_config, tmp_path):
    claim(tiny_config(), tmp_path)
    before = (tmp_path / CONFIG).read_text()
    other = tiny_config(**{"seed": 3, "optimizer.learning_rate": 0.5, "log_every": 7})
    with pytest.raises(ConfigError) as e:
        claim(other, tmp_path)
    assert "seed: 0 -> 3" in str(e.value)
    assert "optimizer.learning_rate: 0.001 -> 0.5" in str(e.value)
    assert "log_every" not in str(e.value)
    assert (tmp_path / CONFIG).read_text() == before


def test_fields_that_may_change(tiny_config, tmp_path):
    claim(tiny_config(), tmp_path)
    fields = {"log_every": 9, "eval_every": 2, "profile_steps": 3, "checkpoint.keep": 5,
              "data.path": "/elsewhere", "data.threads": 1, "data.prefetch": 2,
              "mesh.fsdp": 4}  # fmt: skip
    claim(tiny_config(**fields), tmp_path)
    assert read_config(tmp_path).log_every == 9


def test_differences_names_fields_that_one_side_lacks(tiny_config):
    old = tiny_config()
    with old.unlocked():
        del old.optimizer.eps
    assert differences(old, tiny_config()) == ["optimizer.eps: '(none)' -> 1e-08"]


def test_checkpoints_without_configuration_are_not_a_run(tiny_config, tmp_path):
    (tmp_path / "checkpoints" / "5").mkdir(parents=True)
    with pytest.raises(CheckpointError, match=r"has checkpoints but no config\.json"):
        claim(tiny_config(), tmp_path)


def test_write_atomic_replaces_and_leaves_nothing(tmp_path):
    for text in ("one", "two"):
        write_atomic(tmp_path / "f", text)
        assert (tmp_path / "f").read_text() == text
    assert [p.name for p in tmp_path.iterdir()] == ["f"]


def test_load_trained_errors(tiny_config, tmp_path):
    with pytest.raises(CheckpointError, match="no work directory"):
        load_trained(tmp_path)
    claim(tiny_config(), tmp_path)
    with pytest.raises(CheckpointError, match="no complete checkpoint"):
        load_trained(tmp_path)
    text = config_lib.to_json(tiny_config())
    (tmp_path / CONFIG).write_text(text[: len(text) // 2])
    with pytest.raises(CheckpointError, match=r"cannot read .*config\.json"):
        load_trained(tmp_path)


def test_lock_keeps_another_process_out(tmp_path):
    code = (
        "import pathlib, sys; from mone.training.workdir import lock\n"
        "with lock(pathlib.Path(sys.argv[1])): pass"
    )
    command = [sys.executable, "-c", code, str(tmp_path)]
    with lock(tmp_path):
        refused = subprocess.run(command, capture_output=True, text=True)
    assert "another process is training in" in refused.stderr
    with lock(tmp_path):
        pass


def test_a_refused_process_leaves_the_configuration_alone(tiny_config, tmp_path):
    claim(tiny_config(), tmp_path)
    before = (tmp_path / CONFIG).read_text()
    with lock(tmp_path), pytest.raises(ConfigError, match="another process is training"):
        train(tiny_config(log_every=7), tmp_path)
    assert (tmp_path / CONFIG).read_text() == before


def test_a_file_is_no_work_directory(tiny_config, tmp_path):
    (tmp_path / "file").write_text("mine")
    for workdir in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(ConfigError, match=r"workdir=.*cannot be used"):
            train(tiny_config(), workdir)
    assert (tmp_path / "file").read_text() == "mine"
