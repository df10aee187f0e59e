"""The command line's grammar: sub-commands, their flags, and overrides of config fields."""

import argparse
import difflib
from collections.abc import Sequence
from typing import NoReturn

from mone import __version__
from mone.errors import UserError

_CONFIG_HELP = (
    "a shipped experiment (`mone config list`) or a .py file with get_config(arg), either "
    "followed by :args, for example imagenet1k/mone:S/16"
)
OVERRIDES = """\
Any field of the configuration can be set with --config.FIELD=VALUE, for example
  --config.batch_size=256 --config.model.depth=6 --config.budget.choices=0.2,0.4,0.8
`mone config show NAME` lists the fields with their values."""
EVALUATION_OVERRIDES = """\
How a trained model is evaluated can be changed with --config.FIELD=VALUE, for the fields of data
and eval only, for example
  --config.data.path=/data/tfds --config.data.eval_split=train[:1000] --config.eval.batch_size=64
`mone config show NAME` lists them."""
_E_C_HELP = "budgets, separated by commas: effective capacities in (0, 1], such as 0.2,0.4"
_JSON_HELP = "write the result as JSON, and nothing else, to standard output"


class Parser(argparse.ArgumentParser):
    """An ArgumentParser whose errors are `UserError`s that suggest the near match."""

    def __init__(self, *args, **kwargs):
        kwargs.setdefault("formatter_class", argparse.RawDescriptionHelpFormatter)
        super().__init__(*args, allow_abbrev=False, **kwargs)

    def error(self, message: str) -> NoReturn:
        """Raise the problem in place of printing the usage and leaving."""
        raise UserError(f"{message} (see `{self.prog} --help`)")

    def check_flags(self, args: Sequence[str]) -> None:
        """Raise a `UserError` for a flag that does not exist, before one that is missing."""
        parser, rest = self, list(args)
        while rest and rest[0] in parser._children():
            parser, rest = parser._children()[rest[0]], rest[1:]
        known = [name for action in parser._actions for name in action.option_strings]
        for flag in (arg.split("=", 1)[0] for arg in rest if arg.startswith("--")):
            if flag in known or flag == "--":
                continue
            if flag.startswith("--config."):
                if parser.epilog in (OVERRIDES, EVALUATION_OVERRIDES):
                    continue
                parser.error(f"{flag}: `{parser.prog}` takes no config fields")
            close = difflib.get_close_matches(flag, known, n=1)
            hint = f"did you mean {close[0]}?" if close else f"valid: {', '.join(sorted(known))}"
            parser.error(f"unknown flag {flag}; {hint}")

    def _children(self) -> dict[str, "Parser"]:
        for action in self._actions:
            if isinstance(action, argparse._SubParsersAction):
                return action.choices
        return {}


def take_overrides(argv: Sequence[str]) -> tuple[list[str], list[str]]:
    """Separate `--config.FIELD=VALUE` (or `--config.FIELD VALUE`) from the other arguments.

    Returns:
      The other arguments, and "FIELD=VALUE" strings in order.

    Raises:
      UserError: A field has no value.
    """
    rest, overrides = [], []
    arguments = iter(argv)
    for arg in arguments:
        if not arg.startswith("--config."):
            rest.append(arg)
            continue
        name, equals, value = arg.removeprefix("--config.").partition("=")
        if not equals:
            value = next(arguments, None)
            if value is None or value.startswith("--"):
                raise UserError(f"--config.{name}: give it a value, --config.{name}=VALUE")
        overrides.append(f"{name}={value}")
    return rest, overrides


def make_parser() -> Parser:
    """Build the whole grammar; nothing heavy is imported."""
    parser = Parser(
        prog="mone",
        description="Train, evaluate and compare vision transformers whose compute adapts.",
        epilog="`mone COMMAND --help` tells more; start with `mone config list`.",
    )
    parser.add_argument("--version", action="version", version=f"mone {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    _add_train(commands)
    _add_eval(commands)
    _add_sweep(commands)
    _add_cost(commands)
    _add_config(commands)
    return parser


def _add(commands, name: str, summary: str, description: str, epilog: str = "") -> Parser:
    return commands.add_parser(name, help=summary, description=description, epilog=epilog or None)


def _add_train(commands) -> None:
    parser = _add(
        commands, "train", "train a model, or go on with it",
        "Train the model that a configuration describes. The same command again goes on from\n"
        "the newest checkpoint of the work directory.",
        OVERRIDES,
    )  # fmt: skip
    parser.add_argument("--config", required=True, metavar="NAME", help=_CONFIG_HELP)
    parser.add_argument("--workdir", required=True, metavar="DIR", help="directory of the run")
    parser.add_argument(
        "--distributed", nargs="?", const="auto", metavar="HOST:PORT,PROCESSES,INDEX",
        help="train on several hosts (start the same command on each; the work directory must be "
        "one they share): join the others, found automatically on Cloud TPU, Slurm, Open MPI and "
        "Kubernetes, or through process 0 at HOST:PORT",
    )  # fmt: skip
    parser.add_argument("--json", action="store_true", help=_JSON_HELP)


def _add_eval(commands) -> None:
    parser = _add(
        commands, "eval", "accuracy of a trained model at one or more budgets",
        "Evaluate the newest checkpoint of a run on its evaluation split.",
        EVALUATION_OVERRIDES,
    )  # fmt: skip
    parser.add_argument("--workdir", required=True, metavar="DIR", help="directory of the run")
    parser.add_argument(
        "--e_c", type=numbers, metavar="LIST", help=f"{_E_C_HELP}; default: those of its config"
    )
    parser.add_argument(
        "--router", choices=("trained", "random"),
        help="random: route at random, which tells what the trained router is worth",
    )  # fmt: skip
    parser.add_argument("--step", type=int, help="which checkpoint; default: the newest")
    parser.add_argument("--json", action="store_true", help=_JSON_HELP)


def _add_sweep(commands) -> None:
    parser = _add(
        commands, "sweep", "compare trained models: accuracy, MACs, images a second",
        "Compare trained models over budgets, in one run on this machine. Writes sweep.csv,\n"
        ".json, .md, .png and pictures of the routing. Runs that differ only in their seed are\n"
        "one model, with mean and spread.",
        EVALUATION_OVERRIDES,
    )  # fmt: skip
    parser.add_argument("workdirs", nargs="+", metavar="DIR", help="directories of the runs")
    parser.add_argument("--output", required=True, metavar="DIR", help="directory of the report")
    parser.add_argument(
        "--e_c", type=numbers, metavar="LIST",
        help=f"{_E_C_HELP}, for mone and mod (matvit runs at its widths, dense at 1)",
    )  # fmt: skip
    parser.add_argument(
        "--batch_sizes", type=integers, default=(1, 8, 64), metavar="LIST",
        help="batch sizes to time, separated by commas; 0: no timing (default: 1,8,64)",
    )  # fmt: skip
    parser.add_argument(
        "--rounds", type=int, default=15, metavar="N",
        help="how often each program is timed, interleaved with the others (default: 15)",
    )  # fmt: skip
    parser.add_argument(
        "--router", choices=("trained", "random"), help="router at evaluation, as in `mone eval`"
    )
    parser.add_argument("--json", action="store_true", help=_JSON_HELP)


def _add_cost(commands) -> None:
    parser = _add(
        commands, "cost", "parameters, MACs and memory of a configuration, without training",
        "Count a model's parameters, the multiply-accumulates of one image's forward pass and\n"
        "the memory of training, from shapes alone.",
        OVERRIDES,
    )  # fmt: skip
    parser.add_argument("--config", required=True, metavar="NAME", help=_CONFIG_HELP)
    parser.add_argument(
        "--e_c", type=numbers, metavar="LIST", help=f"{_E_C_HELP}; default: eval.e_c"
    )
    parser.add_argument(
        "--gmacs", type=numbers, metavar="LIST",
        help="targets in GMAC an image: the largest budgets that cost no more",
    )  # fmt: skip
    parser.add_argument("--json", action="store_true", help=_JSON_HELP)


def _add_config(commands) -> None:
    parser = _add(
        commands, "config", "list the shipped experiments, or show one",
        "Look at configurations.",
    )  # fmt: skip
    actions = parser.add_subparsers(dest="action", metavar="list|show", required=True)
    listing = _add(actions, "list", "list the shipped experiments", "List shipped experiments.")
    listing.add_argument("--json", action="store_true", help=_JSON_HELP)
    show = _add(
        actions, "show", "print every field of an experiment",
        "Print every field of a configuration with its value, overrides applied and checked.",
        OVERRIDES,
    )  # fmt: skip
    show.add_argument("config", metavar="NAME", help=_CONFIG_HELP)
    show.add_argument("--json", action="store_true", help=_JSON_HELP)


def numbers(text: str) -> tuple[float, ...]:
    """Read `0.2,0.4` or `(0.2, 0.4)`."""
    return _sequence(text, float, "numbers")


def integers(text: str) -> tuple[int, ...]:
    """Read `1,8,64`."""
    return _sequence(text, int, "whole numbers")


def _sequence(text: str, kind: type, what: str) -> tuple:
    parts = [part.strip() for part in text.strip().strip("()[]").split(",") if part.strip()]
    try:
        values = tuple(kind(part) for part in parts)
    except ValueError:
        values = ()
    if not values:
        raise argparse.ArgumentTypeError(f"{text!r} is not a list of {what} such as 1 or 1,2")
    return values
