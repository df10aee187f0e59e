import json

from mone.training.metrics_log import MetricsLog


def _lines(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_resuming_drops_steps_that_run_again_and_torn_lines(tmp_path):
    path = tmp_path / "metrics.jsonl"
    log = MetricsLog(path, 0)
    for step in (1, 2, 3, 4):
        log.write("train", step, {"loss": step / 3})
    log.write("eval", 2, {"accuracy": {"0.5": 0.25}})
    log.close()
    with open(path, "a") as f:
        f.write('{"step": 5, "kind": "tr')

    log = MetricsLog(path, 3)
    assert log.find("eval", 2)["accuracy"] == {"0.5": 0.25}
    assert log.find("eval", 3) is None
    assert log.find("train", 4) is None
    log.write("train", 4, {"loss": 7.0})
    log.close()
    assert [(r["kind"], r["step"]) for r in _lines(path)] == [
        ("train", 1), ("train", 2), ("train", 3), ("eval", 2), ("train", 4),
    ]  # fmt: skip
    assert _lines(path)[1]["loss"] == 2 / 3


def test_a_run_that_starts_over_starts_an_empty_log(tmp_path):
    path = tmp_path / "metrics.jsonl"
    log = MetricsLog(path, 0)
    log.write("train", 1, {})
    log.close()
    MetricsLog(path, 0).close()
    assert path.read_text() == ""
