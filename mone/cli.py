"""The command line: `mone train | eval | sweep | cost | config`.

Thin: each command calls functions that a notebook can call as well. What a command reports goes
to standard output, everything else to standard error. A user's mistake (`UserError`) is one
message on standard error and exit code 2.
"""

import argparse
import ast
import contextlib
import json
import os
import shlex
import sys
from collections.abc import Callable, Sequence
from importlib import resources
from typing import Any

from mone.cli_parser import make_parser, take_overrides
from mone.errors import UserError
from mone.host_memory import keep_freed_memory

# Libraries are imported inside the commands: `mone config list` should not wait for JAX.


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command.

    Args:
      argv: Arguments without the program's name; None: those of the process.

    Returns:
      Exit code: 0, or 2 for a user's mistake.
    """
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")  # TensorFlow's start-up notices.
    argv = list(sys.argv[1:] if argv is None else argv)
    try:
        parser = make_parser()
        if not argv:
            parser.print_help(sys.stderr)
            return 2
        parser.check_flags(argv)
        arguments, overrides = take_overrides(argv)
        args = parser.parse_args(arguments)
        keep_freed_memory()
        args.overrides, args.line = overrides, shlex.join(["mone", *argv])
        with contextlib.redirect_stdout(sys.stderr) if args.json else contextlib.nullcontext():
            result, show = _COMMANDS[args.command](args)
        if args.json:
            print(json.dumps(result, indent=2, allow_nan=False))
        else:
            show()
    except UserError as error:
        print(f"mone: error: {error}", file=sys.stderr)
        return 2
    except BrokenPipeError:  # The reader (`head`, a pager) has what it wanted.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except KeyboardInterrupt:
        print("mone: interrupted", file=sys.stderr)
        return 130
    return 0


Result = tuple[Any, Callable[[], None]]  # What --json prints, and what prints it for people.


def _train(args: argparse.Namespace) -> Result:
    from mone.config import load
    from mone.training import train

    if args.distributed is not None:
        from mone.training.hosts import connect

        connect(args.distributed)
    record = train(load(args.config, args.overrides), args.workdir)

    def show() -> None:
        rows = [[e_c, f"{100 * value:.2f}"] for e_c, value in record["accuracy"].items()]
        _print_table(f"{args.workdir}, step {record['step']}", ["e_c", "accuracy %"], rows)

    return record, show


def _eval(args: argparse.Namespace) -> Result:
    from mone.data import eval_batches
    from mone.evaluation import count_macs, evaluate, evaluation_budgets
    from mone.evaluation.report import mac_unit
    from mone.models import vit_config
    from mone.training import load_trained

    config, params = load_trained(args.workdir, step=args.step, overrides=args.overrides)
    router = args.router or config.eval.router
    budgets = evaluation_budgets(config, args.e_c)
    batches = eval_batches(config)
    results = []
    for e_c, counts in budgets.items():
        macs = count_macs(vit_config(config.model), counts).total
        score = evaluate(
            config, params, counts=counts, batches=batches, router=router, key_seed=config.seed
        )
        results.append({"e_c": e_c, "counts": counts, "macs": macs, **score})

    def show() -> None:
        unit, name = mac_unit([r["macs"] for r in results])
        rows = [
            [f"{r['e_c']:g}", f"{r['macs'] / unit:.4g}", f"{100 * r['accuracy']:.2f}",
             f"{r['loss']:.4f}"]
            for r in results
        ]  # fmt: skip
        bad = results[0]["unreadable"]
        images = f"{results[0]['num_examples']} images" + (f" ({bad} unreadable)" if bad else "")
        title = f"{args.workdir}: {images}, {router} router"
        _print_table(title, ["e_c", name, "accuracy %", "loss"], rows)

    return {"workdir": args.workdir, "router": router, "results": results}, show


def _sweep(args: argparse.Namespace) -> Result:
    from mone.evaluation import summarise, sweep, write_report
    from mone.evaluation.equal_macs import equal_macs, equal_macs_cells, equal_macs_legend
    from mone.evaluation.files import output_directory
    from mone.evaluation.report import rich_table

    output_directory(args.output)
    result = sweep(
        args.workdirs,
        e_c=args.e_c,
        batch_sizes=() if args.batch_sizes == (0,) else args.batch_sizes,
        rounds=args.rounds,
        router=args.router,
        overrides=args.overrides,
        command=args.line,
        on_progress=_say,
    )
    paths = write_report(result, args.output)

    def show() -> None:
        console = _console()
        console.print(rich_table(summarise(result.rows), console.width))
        if (compared := equal_macs(result.rows)) is not None:
            _print_table(equal_macs_legend(compared), *equal_macs_cells(compared))
        for text in [*result.notes[1:], f"Wrote {', '.join(map(str, paths))}"]:
            console.print(text, markup=False, highlight=False, soft_wrap=True)

    return json.loads(result.json()), show


def _cost(args: argparse.Namespace) -> Result:
    from mone.config import load, validate
    from mone.evaluation.cost_report import cost_report, cost_text

    config = load(args.config, args.overrides)
    validate(config)
    report = cost_report(config, e_c=args.e_c, gmacs=args.gmacs)

    def show() -> None:
        header, rows, lines = cost_text(report)
        for line in lines:
            print(line)
        _print_table("", header, rows)

    return report, show


def _config(args: argparse.Namespace) -> Result:
    from mone import config as config_lib
    from mone.config_values import fields

    if args.action == "list":
        summaries = {name: _first_line(name) for name in config_lib.names()}

        def show() -> None:
            width = max(map(len, summaries))
            for name, text in summaries.items():
                print(f"{name:{width}}  {text}")

        return summaries, show
    config = config_lib.load(args.config, args.overrides)
    config_lib.validate(config)

    def show() -> None:
        for name, value in fields(config):
            print(f"{name} = {value!r}")

    return json.loads(config_lib.to_json(config)), show


def _first_line(name: str) -> str:
    """Return the first line of a shipped configuration's docstring, without importing it."""
    source = resources.files("mone.configs").joinpath(f"{name}.py").read_text(encoding="utf-8")
    return (ast.get_docstring(ast.parse(source)) or "").partition("\n")[0]


_COMMANDS = {"train": _train, "eval": _eval, "sweep": _sweep, "cost": _cost, "config": _config}


def _console() -> Any:
    from rich.console import Console

    return Console()


def _print_table(title: str, header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    console = _console()
    if title:
        console.print(title, markup=False, highlight=False)
    columns = list(zip(header, *rows, strict=True))
    if sum(max(map(len, column)) + 3 for column in columns) > console.width:
        rows = [[cell.replace(" ± ", "\n± ") for cell in row] for row in rows]
    table = Table(box=SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    for name in header:
        table.add_column(name, justify="right", no_wrap=True)
    for row in rows:
        table.add_row(*row)
    console.print(table)


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
