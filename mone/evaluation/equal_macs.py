"""Accuracy of every model at the MACs of one: what two curves of a sweep say, read off them.

Budgets of different methods cost differently, so their accuracies are not comparable one by one.
Each training's own curve is interpolated, linearly in MACs, at the budgets of a reference model;
mean and spread are over the seeds after that. Nothing is extrapolated.
"""

import dataclasses
import math
import statistics
from collections.abc import Sequence
from typing import Any

import numpy as np

from mone.evaluation.report import Row, mac_unit, three_digits

# Budgets of two methods that are meant to be equal differ by a router, or by rounding to tokens.
_SAME = 0.01
_DENSE = "dense ViTs, one training a budget"


@dataclasses.dataclass(frozen=True)
class EqualMacs:
    """Accuracies at the MACs of the reference model's budgets.

    Attributes:
      reference: Its name.
      e_c: Its budgets, ascending.
      macs: Their MACs an image.
      accuracy: By model, at each budget: mean and sample standard deviation over the seeds (NaN
        for a single one), or None where the model has no budget at or around those MACs.
    """

    reference: str
    e_c: tuple[float, ...]
    macs: tuple[int, ...]
    accuracy: dict[str, list[tuple[float, float] | None]]


def equal_macs(rows: Sequence[Row]) -> EqualMacs | None:
    """Compare models at the MACs of the first MoNE's budgets.

    Dense ViTs of different sizes are joined to one curve, unless two have the same MACs.

    Args:
      rows: Of a sweep.

    Returns:
      The comparison; None without a MoNE or without anything to compare it with.
    """
    reference = next((row.model for row in rows if row.method == "mone"), None)
    curves = _curves(rows)
    if reference is None or len(curves) < 2:
        return None
    budgets = {row.e_c: row.macs for row in rows if row.model == reference}
    e_c = tuple(sorted(budgets))
    macs = tuple(budgets[value] for value in e_c)
    accuracy = {name: [_at(seeds, x) for x in macs] for name, seeds in curves.items()}
    return EqualMacs(reference, e_c, macs, accuracy)


def equal_macs_cells(found: EqualMacs) -> tuple[list[str], list[list[str]]]:
    """Return the header and the rows of the comparison, as text."""
    unit, unit_name = mac_unit(found.macs)
    header = ["model", *(f"e_c {value:g}" for value in found.e_c)]
    costs = [f"{unit_name} an image", *(three_digits(macs / unit) for macs in found.macs)]
    lines = [[name, *map(_cell, values)] for name, values in found.accuracy.items()]
    return header, [costs, *lines]


def equal_macs_markdown(found: EqualMacs) -> str:
    """Return the comparison as a Markdown table, with its explanation above it."""
    header, cells = equal_macs_cells(found)
    lines = [header, ["---"] + ["---:"] * (len(header) - 1), *cells]
    table = "\n".join("| " + " | ".join(line) + " |" for line in lines)
    return f"{equal_macs_legend(found)}\n\n{table}\n"


def equal_macs_legend(found: EqualMacs) -> str:
    """Return the sentence that explains the table."""
    return (
        f"Accuracy (%) at the MACs of {found.reference}; the other models' curves are "
        "interpolated linearly in MACs, seed by seed, and not extrapolated."
    )


def equal_macs_tree(found: EqualMacs) -> dict[str, Any]:
    """Return the comparison for JSON; NaN becomes None."""
    accuracy = {
        name: [value and [None if math.isnan(v) else v for v in value] for value in values]
        for name, values in found.accuracy.items()
    }
    return {**dataclasses.asdict(found), "accuracy": accuracy}


def _curves(rows: Sequence[Row]) -> dict[str, dict[int, dict[int, float]]]:
    """Return accuracy by model, seed and MACs."""
    sizes = {row.model: row.macs for row in rows if row.method == "dense"}
    join = len(sizes) > 1 and len(set(sizes.values())) == len(sizes)
    curves: dict[str, dict[int, dict[int, float]]] = {}
    for row in rows:
        name = _DENSE if join and row.method == "dense" else row.model
        curves.setdefault(name, {}).setdefault(row.seed, {})[row.macs] = row.accuracy
    return curves


def _at(seeds: dict[int, dict[int, float]], macs: int) -> tuple[float, float] | None:
    """Interpolate each seed's curve, then take mean and deviation."""
    values = []
    for curve in seeds.values():
        x = sorted(curve)
        if not x[0] * (1 - _SAME) <= macs <= x[-1] * (1 + _SAME):
            return None
        values.append(float(np.interp(macs, x, [curve[v] for v in x])))
    return statistics.fmean(values), statistics.stdev(values) if values[1:] else math.nan


def _cell(value: tuple[float, float] | None) -> str:
    if value is None:
        return "-"
    mean, deviation = value
    text = f"{100 * mean:.2f}"
    return text if math.isnan(deviation) else f"{text} ± {100 * deviation:.2f}"
