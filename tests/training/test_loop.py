import json
import shutil

import jax
import numpy as np
import pytest
from tensorboard.backend.event_processing.plugin_event_accumulator import EventAccumulator
from tensorboard.util.tensor_util import make_ndarray

from mone import config as config_lib
from mone.errors import CheckpointError, ConfigError
from mone.training import NonFiniteError, load_trained, train
from mone.training.checkpoints import complete_steps, flatten
from mone.training.transfer import resize_posemb


def _records(workdir):
    records = [json.loads(line) for line in (workdir / "metrics.jsonl").read_text().splitlines()]
    for r in records:
        r.pop("images_per_second", None)
    return records


def _assert_same(a, b, **kwargs):
    x, y = (jax.tree.leaves(load_trained(w, **kwargs)[1]) for w in (a, b))
    assert len(x) == len(y) > 0
    for u, v in zip(x, y, strict=True):
        np.testing.assert_array_equal(u, v)


@pytest.fixture(scope="module")
def finished(tiny_config, tmp_path_factory):
    """A complete run: its configuration, directory, result and what was called back."""
    config = tiny_config(
        **{"model.dropout": 0.1, "data.mixup": 0.5, "optimizer.ema_decay": 0.9, "eval_every": 3,
           "checkpoint.keep": 10, "optimizer.learning_rate": 0.05}
    )  # fmt: skip
    workdir = tmp_path_factory.mktemp("finished")
    seen = []
    result = train(config, workdir, on_progress=seen.append)
    return config, workdir, result, seen


def test_a_run_leaves_everything_in_its_directory(finished):
    config, workdir, result, seen = finished
    assert (workdir / "config.json").read_text() == config_lib.to_json(config)
    assert complete_steps(workdir) == [2, 4, 6]
    records = _records(workdir)
    assert [(r["kind"], r["step"]) for r in records] == [
        ("train", 1), ("train", 2), ("train", 3), ("eval", 3),
        ("train", 4), ("train", 5), ("train", 6), ("eval", 6),
    ]  # fmt: skip
    assert len(seen) == len(records)
    assert result == {"step": 6, "kind": "eval", **{k: records[-1][k] for k in result}}
    assert result["accuracy"].keys() == {"1"}
    assert result["num_examples"] == 30


def _points(workdir):
    """Return what TensorBoard shows: (tag, step): value."""
    shown = EventAccumulator(str(workdir), {"tensors": 0})
    shown.Reload()
    return [
        (tag, e.step, float(make_ndarray(e.tensor_proto)))
        for tag in shown.Tags()["tensors"]
        for e in shown.Tensors(tag)
    ]


def test_tensorboard_shows_what_metrics_jsonl_has(finished, tmp_path):
    config, workdir, *_ = finished
    stopped = tmp_path / "stopped"

    def interrupt(record):
        if record["step"] == 5:  # The checkpoint is that of step 4.
            raise InterruptedRunError

    with pytest.raises(InterruptedRunError):
        train(config, stopped, on_progress=interrupt)
    assert ("train/loss", 5) in [(tag, step) for tag, step, _ in _points(stopped)]
    train(config, stopped)
    for path in (workdir, stopped):
        records = [json.loads(line) for line in (path / "metrics.jsonl").read_text().splitlines()]
        written = [
            (f"{r['kind']}/{k}" + (f"/{e_c}" if e_c else ""), r["step"], value)
            for r in records
            for k, v in r.items()
            if k not in ("step", "kind")
            for e_c, value in (v.items() if isinstance(v, dict) else [("", v)])
        ]
        shown = _points(path)
        assert sorted(p[:2] for p in shown) == sorted(p[:2] for p in written)
        np.testing.assert_allclose(
            [p[2] for p in sorted(shown)], [p[2] for p in sorted(written)], rtol=1e-6
        )


def test_result_is_that_of_the_saved_averages(finished):
    from mone.data import eval_batches
    from mone.evaluation.accuracy import evaluate

    config, workdir, result, _ = finished
    loaded, params = load_trained(workdir)
    assert config_lib.to_json(loaded) == config_lib.to_json(config)
    again = evaluate(config, params, counts=None, batches=eval_batches(config))
    assert again["accuracy"] == result["accuracy"]["1"]
    assert again["loss"] == pytest.approx(result["loss"]["1"], rel=1e-6)
    raw = load_trained(workdir, ema=False)[1]
    assert not np.array_equal(raw["head"]["kernel"], params["head"]["kernel"])


def test_a_trained_model_is_loaded_for_another_evaluation(finished):
    config, workdir, *_ = finished
    overrides = ["data.threads=3", "data.eval_split=test[:7]", "eval.ema=false"]
    loaded, params = load_trained(workdir, overrides=overrides)
    assert (loaded.data.threads, loaded.data.eval_split) == (3, "test[:7]")
    assert loaded.model.to_dict() == config.model.to_dict()
    raw = load_trained(workdir, ema=False)[1]
    np.testing.assert_array_equal(params["head"]["kernel"], raw["head"]["kernel"])
    with pytest.raises(ConfigError, match=r"model\.width=16: a trained run keeps this field"):
        load_trained(workdir, overrides=["model.width=16"])
    with pytest.raises(ConfigError, match=r"eval\.batch_size=0: must be at least 1"):
        load_trained(workdir, overrides=["eval.batch_size=0"])


def test_running_a_finished_run_again_reports_it(finished):
    config, workdir, result, _ = finished
    before = {p: p.stat().st_mtime_ns for p in (workdir / "checkpoints").rglob("*")}
    seen = []
    assert train(config, workdir, on_progress=seen.append) == result
    assert seen == []
    assert {p: p.stat().st_mtime_ns for p in (workdir / "checkpoints").rglob("*")} == before


class InterruptedRunError(Exception):
    pass


def test_interrupted_at_any_step_it_ends_the_same(finished, tmp_path):
    config, workdir, result, _ = finished
    for stop in (1, 2, 3, 5, 6):

        def interrupt(record, stop=stop):
            if record["kind"] == "train" and record["step"] == stop:
                raise InterruptedRunError

        with pytest.raises(InterruptedRunError):
            train(config, tmp_path, on_progress=interrupt)
    assert train(config, tmp_path) == result
    for ema in (True, False):
        _assert_same(workdir, tmp_path, ema=ema)
    assert _records(tmp_path) == _records(workdir)


def test_means_of_losses_survive_an_interruption_between_logs(finished, tmp_path):
    config, workdir, *_ = finished
    losses = [r["loss"] for r in _records(workdir) if r["kind"] == "train"]
    config = config_lib.from_json(config_lib.to_json(config))
    config.log_every = 3

    def interrupt(record):
        raise InterruptedRunError

    with pytest.raises(
        InterruptedRunError
    ):  # At the record of step 3; the checkpoint is of step 2.
        train(config, tmp_path, on_progress=interrupt)
    train(config, tmp_path)
    got = [r["loss"] for r in _records(tmp_path) if r["kind"] == "train"]
    np.testing.assert_array_equal(got, [np.mean(losses[:3]), np.mean(losses[3:])])


def test_divergence_stops_and_keeps_the_last_good_checkpoint(tiny_config, tmp_path):
    config = tiny_config(
        **{"model.method": "dense", "optimizer.name": "sgd", "optimizer.learning_rate": 1e37,
           "optimizer.schedule": "constant", "optimizer.warmup_steps": 3, "checkpoint.every": 1,
           "optimizer.moment_dtype": "float32"}
    )  # fmt: skip
    with pytest.raises(NonFiniteError, match=r"step \d+: .*loss = .*(nan|inf)\b") as e:
        train(config, tmp_path)
    step = int(str(e.value).split(":")[0].removeprefix("step "))
    assert f"The checkpoint of step {step - 1} is kept" in str(e.value)
    assert complete_steps(tmp_path)[-1] == step - 1
    params = load_trained(tmp_path)[1]
    assert all(np.isfinite(x).all() for x in jax.tree.leaves(params))
    with pytest.raises(NonFiniteError, match=f"step {step}: "):
        train(config, tmp_path)


def test_init_from_is_a_start_and_never_a_resume(finished, tiny_config, tmp_path):
    _, workdir, *_ = finished
    config = tiny_config(
        **{"checkpoint.init_from": str(workdir), "model.method": "dense", "num_steps": 2,
           "optimizer.learning_rate": 1e-12, "optimizer.weight_decay": 0.0}
    )  # fmt: skip
    seen = []
    train(config, tmp_path, on_progress=seen.append)
    assert [r["step"] for r in seen if r["kind"] == "train"] == [1, 2]
    source, got = flatten(load_trained(workdir)[1]), flatten(load_trained(tmp_path)[1])
    assert {k for k in source if "router" not in k and "alpha" not in k} == set(got)
    for name, value in got.items():
        np.testing.assert_allclose(value, source[name], atol=1e-9)


def test_init_from_another_model_lists_what_does_not_fit(finished, tiny_config, tmp_path):
    _, workdir, *_ = finished
    config = tiny_config(**{"checkpoint.init_from": str(workdir), "model.mlp_dim": 8})
    with pytest.raises(CheckpointError, match=r"fc1/kernel: \(8, 16\).*\(8, 8\)"):
        train(config, tmp_path / "new")
    assert not (tmp_path / "new").exists()


def test_fine_tuning_on_larger_images_and_more_classes(finished, tiny_config, tmp_path, capsys):
    _, workdir, *_ = finished
    config = tiny_config(
        **{"checkpoint.init_from": str(workdir), "model.image_size": 42, "model.num_classes": 12,
           "num_steps": 1, "optimizer.learning_rate": 1e-12, "optimizer.weight_decay": 0.0}
    )  # fmt: skip
    train(config, tmp_path)
    told = " ".join(capsys.readouterr().err.split())
    assert "12 classes in place of 10: head/bias, head/kernel" in told
    assert "resized from 2x2 to 3x3 patches: embed/posemb" in told
    source, got = load_trained(workdir)[1], load_trained(tmp_path)[1]
    posemb = resize_posemb(source["embed"]["posemb"], (2, 2), (3, 3))
    np.testing.assert_allclose(got["embed"]["posemb"], posemb, atol=1e-6)
    np.testing.assert_allclose(got["embed"]["kernel"], source["embed"]["kernel"], atol=1e-6)
    assert got["head"]["kernel"].shape == (8, 12)


def test_another_configuration_in_the_same_directory_is_refused(finished):
    config, workdir, *_ = finished
    other = config_lib.from_json(config_lib.to_json(config))
    other.seed = 5
    with pytest.raises(ConfigError, match="seed: 0 -> 5"):
        train(other, workdir)
    assert complete_steps(workdir) == [2, 4, 6]


def test_mistakes_are_found_before_anything_is_written(tiny_config, tmp_path):
    for bad in ({"optimizer.accum_steps": 3}, {"mesh.data": 7}, {"batch_size": 400}):
        with pytest.raises(ConfigError):
            train(tiny_config(**bad), tmp_path / "new")
    assert not (tmp_path / "new").exists()


def test_profile(tiny_config, tmp_path):
    config = tiny_config(**{"model.method": "dense", "profile_steps": 2, "num_steps": 4})
    train(config, tmp_path)
    assert list((tmp_path / "profile").rglob("*.xplane.pb"))


def test_an_evaluation_that_a_kill_prevented_is_made_up_for(tiny_config, tmp_path):
    """Killed after the save of a step at which an evaluation is due, and before it."""
    config = tiny_config(**{"eval_every": 2, "checkpoint.keep": 10})
    train(config, tmp_path)
    expected = _records(tmp_path)
    log = tmp_path / "metrics.jsonl"
    lines = log.read_text().splitlines(keepends=True)
    first = next(i for i, r in enumerate(map(json.loads, lines)) if r["kind"] == "eval")
    log.write_text("".join(lines[:first]))
    for step in (4, 6):
        shutil.rmtree(tmp_path / "checkpoints" / str(step))
    train(config, tmp_path)
    assert _records(tmp_path) == expected
