"""Rows of a comparison and the tables made from them: terminal, Markdown, CSV, JSON."""

import csv
import dataclasses
import io
import json
import math
import statistics
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from mone.evaluation.latency import Timing

if TYPE_CHECKING:
    from rich.table import Table


@dataclasses.dataclass(frozen=True)
class Row:
    """One trained model at one budget."""

    model: str  # Experiment name; runs that differ in their seed only share it.
    method: str  # "dense", "matvit", "mone" or "mod".
    workdir: str
    seed: int
    e_c: float  # The budget asked for.
    realised_e_c: float  # The budget after rounding to whole tokens.
    counts: tuple[int, ...]  # Tokens by expert, ascending in width.
    macs: int  # Multiply-accumulates of one image's forward pass.
    mac_share: float  # macs / those of the dense ViT of the same sizes.
    accuracy: float  # Top-1 on the evaluation split, in 0..1.
    loss: float
    num_examples: int
    unreadable: int  # Images of the split that could not be read, and do not count.
    router: str  # "trained" or "random", at evaluation.
    timings: dict[int, Timing]  # By batch size; empty: not measured.


@dataclasses.dataclass(frozen=True)
class Summary:
    """All seeds of a model at one budget."""

    model: str
    method: str
    e_c: float
    macs: int
    mac_share: float
    accuracy: float  # Mean over the seeds.
    accuracy_sd: float  # Sample standard deviation over the seeds; NaN for a single one.
    num_seeds: int
    timings: dict[int, Timing]  # Of the first seed: speed does not depend on the weights.


def summarise(rows: Sequence[Row]) -> list[Summary]:
    """Join the rows that differ in their seed only; models in order of appearance."""
    groups: dict[tuple, list[Row]] = {}
    for row in rows:
        groups.setdefault((row.model, row.method, row.e_c, row.counts), []).append(row)
    return [_summary(group) for group in groups.values()]


def _summary(group: Sequence[Row]) -> Summary:
    first = group[0]
    accuracies = [row.accuracy for row in group]
    return Summary(
        model=first.model,
        method=first.method,
        e_c=first.e_c,
        macs=first.macs,
        mac_share=first.mac_share,
        accuracy=statistics.fmean(accuracies),
        accuracy_sd=statistics.stdev(accuracies) if len(group) > 1 else math.nan,
        num_seeds=len(group),
        timings=first.timings,
    )


def mac_unit(macs: Sequence[int]) -> tuple[float, str]:
    """Return the unit in which these MACs read best: (1e9, "GMAC") or (1e6, "MMAC")."""
    return (1e9, "GMAC") if max(macs, default=0) >= 1e9 else (1e6, "MMAC")


def table_cells(summaries: Sequence[Summary]) -> tuple[list[str], list[list[str]]]:
    """Return the header and the rows of the comparison, as text."""
    unit, unit_name = mac_unit([s.macs for s in summaries])
    sizes = sorted({size for s in summaries for size in s.timings})
    header = ["model", "e_c", unit_name, "accuracy %", *(f"batch {size}" for size in sizes)]
    cells = []
    for s in summaries:
        accuracy = f"{100 * s.accuracy:.2f}"
        if s.num_seeds > 1:
            accuracy += f" ± {100 * s.accuracy_sd:.2f}"
        line = [s.model, f"{s.e_c:g}", three_digits(s.macs / unit), accuracy]
        line += [_timing_cell(s.timings.get(size)) for size in sizes]
        cells.append(line)
    return header, cells


def three_digits(value: float) -> str:
    """Return a number with about three significant digits, trailing zeros kept."""
    return f"{value:.{0 if value >= 100 else 1 if value >= 10 else 2}f}"


def _timing_cell(timing: Timing | None) -> str:
    if timing is None:
        return "-"
    ratios = f"{timing.speed_up:.2f}x {100 * timing.share_of_mac_ratio:.0f}%"
    return f"{timing.images_per_second:,.0f} {ratios}"


def legend(summaries: Sequence[Summary]) -> str:
    """Return the sentence that explains the table's columns."""
    unit = "Multiply-accumulates of one image's forward pass."
    seeds = sorted({s.num_seeds for s in summaries})
    accuracy = ""
    if seeds[-1] > 1:
        numbers = "-".join(map(str, dict.fromkeys((seeds[0], seeds[-1]))))
        accuracy = f" Accuracy: mean ± sample standard deviation over {numbers} seeds."
    if not any(s.timings for s in summaries):
        return unit + accuracy
    return (
        f"{unit}{accuracy} Batch columns: images a second, then the speed-up over the compiled "
        "dense ViT of the same sizes at that batch size, and that speed-up as a share of the "
        "ratio of their MACs."
    )


def rich_table(summaries: Sequence[Summary], width: int = 80) -> "Table":
    """Return the comparison as a table for a terminal that is `width` characters wide."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    header, cells = table_cells(summaries)
    columns = list(zip(header, *cells, strict=True))
    if sum(max(map(len, column)) + 3 for column in columns) > width:
        cells = [[cell.replace(" ", "\n", 1) if i > 3 else cell for i, cell in enumerate(line)]
                 for line in cells]  # fmt: skip
    table = Table(
        caption=legend(summaries), caption_justify="left", box=SIMPLE_HEAD,
        padding=(0, 1, 0, 0), pad_edge=False,
    )  # fmt: skip
    for index, name in enumerate(header):
        table.add_column(name, justify="left" if index == 0 else "right", no_wrap=True)
    previous = None
    for summary, line in zip(summaries, cells, strict=True):
        if previous is not None and summary.model != previous:
            table.add_section()
        table.add_row(*line)
        previous = summary.model
    return table


def markdown(summaries: Sequence[Summary], notes: Sequence[str] = ()) -> str:
    """Return the comparison as a Markdown table, with the legend and notes below it."""
    header, cells = table_cells(summaries)
    cells = [[_parenthesise(cell) if i > 3 else cell for i, cell in enumerate(line)]
             for line in cells]  # fmt: skip
    lines = [header, ["---"] + ["---:"] * (len(header) - 1), *cells]
    table = "\n".join("| " + " | ".join(line) + " |" for line in lines)
    return "\n\n".join([table, legend(summaries), *notes]) + "\n"


def _parenthesise(cell: str) -> str:
    """Turn "400 1.71x 72%" into "400 (1.71x, 72%)"."""
    speed, _, ratios = cell.partition(" ")
    return f"{speed} ({ratios.replace(' ', ', ')})" if ratios else speed


def csv_text(rows: Sequence[Row]) -> str:
    """Return one line a row; timings have a column for each figure and batch size."""
    flat = [_flat(row) for row in rows]
    names = list(dict.fromkeys(name for row in flat for name in row))
    stream = io.StringIO()
    writer = csv.DictWriter(stream, names, lineterminator="\n")
    writer.writeheader()
    writer.writerows(flat)
    return stream.getvalue()


def _flat(row: Row) -> dict[str, Any]:
    fields = dataclasses.asdict(row)
    timings = fields.pop("timings")
    fields["counts"] = " ".join(map(str, row.counts))
    for size, timing in timings.items():
        for name, value in timing.items():
            if name not in ("batch_size", "mac_ratio"):
                fields[f"{name}_b{size}"] = value
    return fields


def json_text(
    rows: Sequence[Row], environment: dict[str, Any], notes: Sequence[str] = (), **more: Any
) -> str:
    """Return everything as JSON: environment, notes, rows, their summaries over seeds, `more`."""
    tree = {
        "environment": environment,
        "notes": list(notes),
        "rows": [dataclasses.asdict(row) for row in rows],
        "summary": [_finite(dataclasses.asdict(s)) for s in summarise(rows)],
        **more,
    }
    return json.dumps(tree, indent=2, allow_nan=False) + "\n"


def _finite(fields: dict[str, Any]) -> dict[str, Any]:
    """Replace NaN, which JSON does not have, by null."""
    return {k: None if isinstance(v, float) and math.isnan(v) else v for k, v in fields.items()}
