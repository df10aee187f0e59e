"""What the README shows works."""

import re
import shlex
from pathlib import Path

import numpy as np

from mone import config
from mone.cli_parser import make_parser, take_overrides

README = (Path(__file__).parents[1] / "README.md").read_text(encoding="utf-8")


def _blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", README, flags=re.DOTALL)


def test_python_example_runs():
    (block,) = _blocks("python")
    names = {}
    exec(block, names)  # The README is ours.
    assert names["counts"] == (62, 55, 46, 33)
    assert names["logits"].shape == (2, 1000)
    assert np.isfinite(names["logits"]).all()
    assert names["out"]["routers"][0]["assignment"].shape == (2, 196)


def test_commands_parse_and_their_configurations_resolve():
    lines = [line for block in _blocks("sh") for line in block.splitlines()]
    commands = [shlex.split(line, comments=True) for line in lines if line.startswith("mone ")]
    assert len(commands) >= 3
    for command in commands:
        arguments, overrides = take_overrides(command[1:])
        args = make_parser().parse_args(arguments)
        config.validate(config.load(args.config, overrides))


def test_targets_exist():
    makefile = (Path(__file__).parents[1] / "Makefile").read_text(encoding="utf-8")
    for target in re.findall(r"^make (\S+)", "\n".join(_blocks("sh")), flags=re.MULTILINE):
        assert re.search(rf"^{target}:", makefile, flags=re.MULTILINE), target
