import json
import shutil
import subprocess
import sys

import pytest

from mone.cli import main

TINY = [
    "--config.batch_size=8", "--config.num_epochs=0", "--config.num_steps=2",
    "--config.model.width=16", "--config.model.depth=2", "--config.model.num_heads", "2",
    "--config.model.mlp_dim=32", "--config.model.patch_size=7",
    "--config.data.eval_split=test[:20]", "--config.eval.batch_size=8",
    "--config.eval.e_c=0.5,1.0", "--config.budget.choices=(0.5,)", "--config.checkpoint.every=2",
    "--config.optimizer.warmup_epochs=0",
]  # fmt: skip


@pytest.fixture(scope="module")
def workdir(tmp_path_factory):
    """A trained run."""
    path = tmp_path_factory.mktemp("run") / "mone"
    assert main(["train", "--config=embedded/mone", f"--workdir={path}", *TINY]) == 0
    return path


def run(capsys, *argv):
    """Return (exit code, standard output, standard error)."""
    code = main(list(argv))
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def test_training_again_reports_the_same_as_json(workdir, capsys):
    command = ["train", "--config=embedded/mone", "--workdir", str(workdir), *TINY, "--json"]
    code, out, _ = run(capsys, *command)
    record = json.loads(out)
    assert (code, record["step"], record["num_examples"]) == (0, 2, 20)
    assert list(record["accuracy"]) == ["0.5", "1"]


def test_eval_agrees_with_training(workdir, capsys):
    code, out, _ = run(capsys, "eval", f"--workdir={workdir}", "--json")
    results = json.loads(out)["results"]
    lines = (workdir / "metrics.jsonl").read_text().splitlines()
    trained = [r for r in map(json.loads, lines) if r["kind"] == "eval"][-1]
    assert code == 0
    assert {f"{r['e_c']:g}": r["accuracy"] for r in results} == trained["accuracy"]
    assert results[0]["macs"] < results[1]["macs"]
    code, out, _ = run(capsys, "eval", f"--workdir={workdir}", "--e_c", "0.6", "--router=random")
    assert code == 0
    assert "20 images, random router" in out
    assert " 0.6 " in out


def test_eval_on_another_split(workdir, tmp_path, capsys):
    argv = ["eval", f"--workdir={workdir}", "--e_c=1", "--json"]
    fields = ["--config.data.eval_split=train[:9]", "--config.eval.batch_size", "4"]
    code, out, err = run(capsys, *argv, *fields)
    assert code == 0, err
    assert json.loads(out)["results"][0]["num_examples"] == 9
    for command in (argv, ["sweep", str(workdir), f"--output={tmp_path}"]):
        code, out, err = run(capsys, *command, *fields, "--config.model.depth=3")
        assert (code, out) == (2, "")
        assert err.startswith("mone: error: model.depth=3: a trained run keeps this field")


def test_sweep_writes_its_report(workdir, tmp_path, capsys):
    output = tmp_path / "report"
    argv = ["sweep", str(workdir), f"--output={output}", "--e_c=0.5"]
    argv += ["--config.data.eval_split=test[:5]", "--batch_sizes=1,2"]
    code, out, err = run(capsys, *argv, "--rounds=2", "--json")
    assert code == 0, err
    tree = json.loads(out)
    assert tree == json.loads((output / "sweep.json").read_text())
    assert list(tree["rows"][0]["timings"]) == ["1", "2"]
    assert tree["rows"][0]["num_examples"] == 5
    assert tree["notes"][0].startswith("Made by `mone sweep ")
    code, out, err = run(capsys, *argv[:-1], "--batch_sizes=0")
    assert code == 0, err
    assert "accuracy %" in out
    assert str(output / "sweep.png") in out
    assert "evaluating" in err


def test_cost_of_budgets_and_targets(capsys):
    argv = ["cost", "--config=imagenet1k/mone:S/16", "--e_c=0.4", "--gmacs=1.5"]
    code, out, _ = run(capsys, *argv, "--json")
    report = json.loads(out)
    target, given = report["budgets"]
    assert code == 0
    assert report["parameters"] == 22_051_448
    assert report["dense_macs"] / 1e9 == pytest.approx(4.58, rel=0.02)
    assert (given["e_c"], given["counts"]) == (0.4, [62, 55, 46, 33])
    assert given["total_macs"] == sum(given["macs"].values())
    assert 1.48e9 < target["total_macs"] <= 1.5e9
    assert target["e_c"] < 0.4
    _, out, _ = run(capsys, *argv)
    assert "62/55/46/33" in out
    assert "22,051,448 parameters" in out
    assert "…" not in out


def test_config_list_and_show(capsys):
    code, out, _ = run(capsys, "config", "list", "--json")
    listed = json.loads(out)
    assert code == 0
    assert "MoNE" in listed["embedded/mone"]
    code, out, _ = run(capsys, "config", "show", "embedded/mone", "--config.model.depth", "7")
    assert code == 0
    assert "model.depth = 7" in out.splitlines()
    _, shown, _ = run(capsys, "config", "show", "embedded/mone", "--json")
    assert json.loads(shown)["model"]["method"] == "mone"


MISTAKES = {
    "unknown command": (["trian"], "'trian'"),
    "unknown flag": (["train", "--wrkdir=x"], "unknown flag --wrkdir; did you mean --workdir?"),
    "flag far from any": (["eval", "--zzz"], "valid: --e_c, --help"),
    "missing flag": (["eval"], "--workdir"),
    "unknown field": (
        ["cost", "--config=embedded/mone", "--config.model.dpth=3"],
        "did you mean model.depth",
    ),
    "wrong type": (
        ["cost", "--config=embedded/mone", "--config.model.depth=deep"],
        "model.depth",
    ),
    "field without value": (["config", "show", "embedded/mone", "--config.seed"], "config.seed"),
    "fields where there are none": (
        ["config", "list", "--config.seed=1"],
        "`mone config list` takes no config fields",
    ),
    "unknown config": (["cost", "--config=embeded/mone"], "embedded/mone"),
    "no such run": (["eval", "--workdir=/no/such/run"], "/no/such/run is no work directory"),
    "infeasible budget": (["cost", "--config=embedded/mone", "--e_c=0.01"], "[0.25, 1]"),
    "infeasible target": (["cost", "--config=embedded/mone", "--gmacs=9"], "GMAC"),
    "missing data": (
        ["train", "--config=fashion_mnist/vit", "--workdir=/no/run", "--config.data.path=/no/data"],
        "/no/data",
    ),
    "no number": (["cost", "--config=embedded/mone", "--e_c=a,b"], "not a list of numbers"),
}


@pytest.mark.parametrize("case", MISTAKES)
def test_a_mistake_is_one_line_and_exit_code_2(case, capsys):
    argv, expected = MISTAKES[case]
    code, out, err = run(capsys, *argv)
    assert (code, out) == (2, "")
    assert expected in err
    assert err.startswith("mone: error: ")
    assert err.count("\n") == 1


def test_another_configuration_does_not_touch_a_run(workdir, capsys):
    before = {p: p.read_bytes() for p in workdir.rglob("*") if p.is_file()}
    argv = ["train", "--config=embedded/mone", f"--workdir={workdir}", *TINY, "--config.seed=5"]
    code, _, err = run(capsys, *argv)
    assert code == 2
    assert "seed: 0 -> 5" in err
    assert {p: p.read_bytes() for p in workdir.rglob("*") if p.is_file()} == before


def test_an_unreadable_checkpoint_is_named_and_kept(workdir, tmp_path, capsys):
    damaged = tmp_path / "damaged"
    shutil.copytree(workdir, damaged)
    for path in damaged.glob("checkpoints/*/params/**/*"):
        if path.is_file():
            path.write_bytes(path.read_bytes()[:5])
    before = {p: p.read_bytes() for p in damaged.rglob("*") if p.is_file()}
    code, out, err = run(capsys, "eval", f"--workdir={damaged}")
    assert (code, out) == (2, "")
    assert f"cannot read the checkpoint {damaged}/checkpoints/" in err
    assert {p: p.read_bytes() for p in damaged.rglob("*") if p.is_file()} == before


def test_a_sweep_that_fails_overwrites_nothing(workdir, tmp_path, capsys):
    (tmp_path / "sweep.csv").write_text("precious")
    code, _, err = run(capsys, "sweep", str(workdir), "/no/run", f"--output={tmp_path}")
    assert code == 2
    assert "/no/run" in err
    assert [p.name for p in tmp_path.iterdir()] == ["sweep.csv"]
    assert (tmp_path / "sweep.csv").read_text() == "precious"


@pytest.mark.parametrize("command", ["", "train", "eval", "sweep", "cost", "config", "config show"])
def test_help_says_what_a_command_does(command, capsys):
    with pytest.raises(SystemExit) as leaving:
        main([*command.split(), "--help"])
    out = capsys.readouterr().out
    assert leaving.value.code == 0
    assert out.startswith(f"usage: mone {command}".rstrip())
    assert max(map(len, out.splitlines())) <= 100
    if command in ("train", "cost", "config show"):
        assert "--config.batch_size=256" in out
    if command in ("eval", "sweep"):
        assert "--config.data.path=" in out


def test_start_up_imports_nothing_heavy():
    program = """if True:
        import sys
        from mone.cli import main
        assert main(["config", "list"]) == 0
        heavy = {"jax", "flax", "tensorflow", "matplotlib", "orbax", "scipy"} & set(sys.modules)
        assert not heavy, heavy
    """
    subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, timeout=60)


def test_as_a_program():
    argv = [sys.executable, "-m", "mone.cli", "config", "list"]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0
    assert "embedded/mone" in done.stdout
    done = subprocess.run([*argv[:3], "eval"], capture_output=True, text=True, timeout=60)
    assert done.returncode == 2
    assert done.stderr.startswith("mone: error: ")
