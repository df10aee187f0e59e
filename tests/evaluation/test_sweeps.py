import csv
import json

import pytest
from PIL import Image

import mone.training
from mone.config import override
from mone.errors import CheckpointError, ConfigError
from mone.evaluation import sweep, sweeps, write_report
from mone.evaluation.cost import count_macs
from mone.evaluation.latency import Timing
from mone.evaluation.report import Row
from mone.models import vit_config


@pytest.fixture
def runs(monkeypatch, tiny_experiment, lively_params):
    """Make the loader know these runs: {directory: overrides}; returns the configurations."""
    configs = {}

    def read(workdir):
        if str(workdir) not in configs:
            raise CheckpointError(f"{workdir} is no work directory")
        return configs[str(workdir)]

    def load(workdir, *, overrides):
        config = override(read(workdir), overrides)
        return config, lively_params(config, config.seed)

    monkeypatch.setattr(mone.training, "read_config", read)
    monkeypatch.setattr(mone.training, "load_trained", load)

    def make(**overrides):
        configs.update({name: tiny_experiment(**fields) for name, fields in overrides.items()})
        return configs

    return make


def test_a_row_for_each_model_and_budget(runs, tmp_path):
    configs = runs(
        mone={"name": "MoNE"},
        mone1={"name": "MoNE", "seed": 1},
        mod={"name": "MoD", "model.method": "mod"},
        dense={"name": "ViT", "model.method": "dense"},
    )
    lines = []
    result = sweep(
        ["mone", "mone1", "mod", "dense"], e_c=(0.3, 0.6), batch_sizes=(2,), rounds=2,
        command="mone sweep ...", on_progress=lines.append,
    )  # fmt: skip
    assert [(r.model, r.seed, r.e_c) for r in result.rows] == [
        ("MoNE", 0, 0.3), ("MoNE", 0, 0.6), ("MoNE", 1, 0.3), ("MoNE", 1, 0.6),
        ("MoD", 0, 0.6), ("ViT", 0, 1.0),
    ]  # fmt: skip
    first, last = result.rows[0], result.rows[-1]
    cfg = vit_config(configs["mone"].model)
    assert first.macs == count_macs(cfg, first.counts).total
    assert first.num_examples == 20
    assert (last.mac_share, last.timings[2].speed_up) == (1.0, 1.0)
    assert first.timings == result.rows[2].timings  # Another seed is as fast.
    assert result.notes[:2] == [
        "Made by `mone sweep ...`.",
        "MoD has no budget 0.3: its lowest here is 0.6.",
    ]
    assert len(lines) == 5

    paths = write_report(result, tmp_path / "report", map_images=2)
    assert [path.name for path in paths] == [
        "sweep.csv", "sweep.json", "sweep.md", "sweep.png", "routing_MoNE.png", "routing_MoD.png",
    ]  # fmt: skip
    with paths[0].open() as file:
        assert [float(row["accuracy"]) for row in csv.DictReader(file)] == [
            row.accuracy for row in result.rows
        ]
    tree = json.loads(paths[1].read_text())
    assert [s["num_seeds"] for s in tree["summary"]] == [2, 2, 1, 1]
    assert tree["equal_macs"]["reference"] == "MoNE"
    assert set(tree["equal_macs"]["accuracy"]) == {"MoNE", "MoD", "ViT"}
    text = paths[2].read_text(encoding="utf-8")
    assert "Made by `mone sweep ...`." in text
    assert "at the MACs of MoNE" in text
    for path in paths[3:]:
        assert Image.open(path).width > 400


def test_a_busy_machine_is_told(runs, monkeypatch):
    def timings(spread):
        return lambda programs, **how: {
            name: {8: Timing(8, 1.0, 8e3, spread, 1.0, 1.0, 1.0)} for name in programs
        }

    runs(mone={})
    for spread, expected in ((0.4, ["40 % of their median"]), (0.1, [])):
        monkeypatch.setattr(sweeps, "measure_throughput", timings(spread))
        notes = sweep(["mone"], e_c=(0.6,), batch_sizes=(8,)).notes
        assert len(notes) == len(expected)
        assert all(text in note for text, note in zip(expected, notes, strict=True))


def test_timing_can_be_left_out_and_the_router_replaced(runs):
    runs(mone={})
    trained = sweep(["mone"], batch_sizes=())
    random = sweep(["mone"], batch_sizes=(), router="random")
    assert trained.rows[0].timings == {}
    assert {row.router for row in random.rows} == {"random"}
    assert [row.loss for row in trained.rows] != [row.loss for row in random.rows]


def test_same_name_for_different_experiments_is_told_apart(runs):
    runs(a={"budget.distill": 0.0}, b={"seed": 1}, c={"budget.distill": 0.5})
    result = sweep(["a", "b", "c"], e_c=(0.6,), batch_sizes=())
    assert [row.model for row in result.rows] == ["tiny (a)", "tiny (a)", "tiny (c)"]


def test_overrides_do_not_make_different_runs_the_same(runs):
    runs(a={"data.num_train": 10}, b={"data.num_train": 20, "data.eval_split": "train[:9]"})
    overrides = ["data.num_train=0", "data.eval_split=test[:6]"]
    result = sweep(["a", "b"], e_c=(0.6,), batch_sizes=(), overrides=overrides)
    assert [row.model for row in result.rows] == ["tiny (a)", "tiny (b)"]
    assert [row.num_examples for row in result.rows] == [6, 6]


def test_unreadable_images_are_told():
    shown = {
        "model": "m", "method": "dense", "workdir": "", "seed": 0, "e_c": 1.0, "realised_e_c": 1.0,
        "counts": (4,), "macs": 1, "mac_share": 1.0, "accuracy": 0.5, "loss": 1.0,
        "router": "trained", "timings": {},
    }  # fmt: skip
    assert sweeps._unreadable([Row(**shown, num_examples=9, unreadable=0)]) == []
    notes = sweeps._unreadable([Row(**shown, num_examples=7, unreadable=2)])
    assert notes == ["2 of 9 images could not be read and do not count."]


def test_data_in_several_places_is_told(runs):
    runs(a={"data.path": "/a"}, b={"data.path": "/b", "model.method": "dense"})
    notes = sweep(["a", "b"], e_c=(0.6,), batch_sizes=()).notes
    assert len(notes) == 1
    assert "data.path '/a', '/b'" in notes[0]


def test_mistakes_are_found_before_anything_is_computed(runs):
    runs(mone={}, other={"data.eval_split": "train[:10]"})
    with pytest.raises(ConfigError, match="nothing to compare"):
        sweep([])
    with pytest.raises(CheckpointError, match="missing"):
        sweep(["mone", "missing"])
    with pytest.raises(ConfigError, match="other was trained on other data than mone"):
        sweep(["mone", "other"])
    with pytest.raises(ConfigError, match=r"e_c=0\.1 is infeasible"):
        sweep(["mone"], e_c=(0.1,))


def test_same_last_folder_of_different_experiments_is_told_apart(runs):
    """Their accuracies must not be averaged as if they were seeds."""
    runs(**{"x/a": {"budget.distill": 0.0}, "y/a": {"budget.distill": 0.5}})
    result = sweep(["x/a", "y/a"], e_c=(0.6,), batch_sizes=())
    assert [row.model for row in result.rows] == ["tiny (a)", "tiny (y/a)"]


def test_one_training_is_not_counted_twice(runs):
    runs(a={}, b={"log_every": 7}, c={"seed": 1, "mesh.fsdp": 2})
    for pair in (["a", "a"], ["a", "b"]):
        with pytest.raises(ConfigError, match=r"same experiment with the same seed=0"):
            sweep(pair, e_c=(0.6,), batch_sizes=())
    result = sweep(["a", "c"], e_c=(0.6,), batch_sizes=())
    assert [row.model for row in result.rows] == ["tiny", "tiny"]
