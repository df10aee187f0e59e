"""The scripts of the published comparisons describe runs that exist and are matched as they say."""

import importlib.util
import sys
from pathlib import Path

import pytest

from mone import config as config_lib
from mone.evaluation import count_macs
from mone.models import full_counts, vit_config


@pytest.fixture(scope="module")
def script():
    path = Path(__file__).parents[1] / "experiments" / "fashion_mnist.py"
    spec = importlib.util.spec_from_file_location("fashion_mnist_experiment", path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def test_every_run_resolves_and_has_a_directory_of_its_own(script, tmp_path):
    directories = set()
    for run in script.runs():
        overrides, workdir = script.resolve(run, 1, tmp_path)
        config = config_lib.load(run.config, overrides)
        config_lib.validate(config)
        assert config.seed == 1
        directories.add(workdir)
    assert len(directories) == len(script.runs())
    assert {run.group for run in script.runs()} == {"start", *script.GROUPS}


def test_equal_flops_are_those_of_matvit(script, tmp_path):
    matvit = config_lib.load("fashion_mnist/matvit")
    target = script.EPOCHS * script.step_macs(matvit)

    def cost(run):
        overrides, _ = script.resolve(run, 0, tmp_path)
        config = config_lib.load(run.config, overrides)
        return config.num_epochs * script.step_macs(config)

    runs = {run.name: run for run in script.runs()}
    matched = [run for run in runs.values() if run.equal_flops and run.group != "start"]
    assert len(matched) >= 5
    for run in matched:
        spent = cost(run) + (cost(runs[run.init_from]) if run.init_from else 0)
        times = 4 if run.group == "long" else 1
        assert spent == pytest.approx(times * target, rel=1e-3), run.name


def test_runs_that_only_others_start_from_need_no_report(script, tmp_path):
    jobs = script.plan([0], ["start"], "", tmp_path)
    assert [job.run.name for job in jobs] == ["MatViT, half"]
    assert script.compare(jobs, tmp_path) == 0
    assert not list(tmp_path.iterdir())


def test_what_a_run_starts_from_is_trained_before_it(script, tmp_path):
    for group, name, source in (
        ("main", "MoNE from MatViT", "MatViT, half"),
        ("epochs", "MoNE, after MatViT", "MatViT"),
    ):
        jobs = script.plan([0, 1], [group], f"^{name}$", tmp_path)
        assert sorted((j.run.name, j.seed) for j in jobs) == sorted(
            (n, seed) for n in (name, source) for seed in (0, 1)
        )
        done = {(j.run.name, j.seed): j.done for j in jobs}
        for place, job in enumerate(jobs):
            if job.run.init_from:
                assert job.wait is done[source, job.seed]
                assert job.run.init_from in [j.run.name for j in jobs[:place]]


@pytest.mark.parametrize("e_c", [0.2, 0.5, 0.8])
def test_narrow_dense_models_have_the_macs_of_the_budget(script, e_c):
    def macs(*overrides):
        cfg = vit_config(config_lib.load("fashion_mnist/vit", overrides).model)
        return count_macs(cfg, full_counts(cfg)).total

    assert macs(*script.narrow_vit(e_c)) == pytest.approx(e_c * macs(), rel=0.06)


def test_a_run_starts_from_one_before_it(script):
    names = [run.name for run in script.runs()]
    for i, run in enumerate(script.runs()):
        assert not run.init_from or run.init_from in names[:i]


def test_plan_of_the_command(script, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["x", "--plan", "--seeds=0,1", "--only=^MatViT$"])
    assert script.main() == 0
    out = capsys.readouterr().out
    assert "matvit_s0" in out
    assert "2 trainings" in out
