"""The picture of a comparison: accuracy against MACs and against measured images a second.

Colours are Okabe and Ito's, told apart by people who are colour-blind; each model has a marker of
its own as well, so that the picture survives a grey printer.
"""

import io
import itertools
import math
from collections.abc import Iterator, Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator, NullLocator

from mone.evaluation.report import Summary, mac_unit

_BLUE, _VERMILION, _GREEN, _PURPLE, _ORANGE, _SKY = (
    "#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9",
)  # fmt: skip
# What a method looks like, for its first model; further ones take what is left.
_METHOD_STYLE = {
    "dense": ("#000000", "*"),
    "mone": (_BLUE, "o"),
    "matvit": (_VERMILION, "s"),
    "mod": (_GREEN, "^"),
}
_LOG_ABOVE = (
    15.0  # Ratio of the largest to the smallest abscissa above which the axis is logarithmic.
)
_MORE_COLOURS = (_PURPLE, _ORANGE, _SKY, "#7F7F7F")
_MORE_MARKERS = "DvPXd<ph>8"


def accuracy_figure(summaries: Sequence[Summary], batch_size: int | None = None) -> Figure:
    """Draw accuracy against MACs and, if it was measured, against images a second.

    Args:
      summaries: What was measured; a line for each model, a point for each budget, a bar of one
        standard deviation where there are several seeds.
      batch_size: Which throughput the right panel shows; None: the largest batch measured.

    Returns:
      A matplotlib figure; `png(figure)` encodes it.
    """
    sizes = sorted({size for s in summaries for size in s.timings})
    if batch_size is None and sizes:
        batch_size = sizes[-1]
    panels = 2 if sizes else 1
    figure = Figure(figsize=(3.9 * panels + 0.4, 4.0), dpi=160, layout="constrained")
    axes = figure.subplots(1, panels, sharey=True, squeeze=False)[0]
    unit, unit_name = mac_unit([s.macs for s in summaries])
    styles = _styles(summaries)
    for model, style in styles.items():
        points = sorted((s for s in summaries if s.model == model), key=lambda s: s.macs)
        _line(axes[0], points, [s.macs / unit for s in points], style)
        if panels == 2:
            timed = [s for s in points if batch_size in s.timings]
            speeds = [s.timings[batch_size].images_per_second for s in timed]
            _line(axes[1], timed, speeds, style)
    axes[0].set(xlabel=f"{unit_name} an image", ylabel="top-1 accuracy (%)")
    axes[0].set_title("Compute", fontsize=11)
    if panels == 2:
        axes[1].set(xlabel=f"images a second, batch {batch_size} (this machine)")
        axes[1].set_title("Measured throughput", fontsize=11)
    for axis in axes:
        _finish(axis)
    handles, labels = axes[0].get_legend_handles_labels()
    figure.legend(
        handles, labels, loc="outside lower center", ncols=min(2 * panels + 1, len(labels)),
        frameon=False, fontsize=10,
    )  # fmt: skip
    return figure


def png(figure: Figure) -> bytes:
    """Encode a figure as PNG."""
    stream = io.BytesIO()
    figure.savefig(stream, format="png")
    return stream.getvalue()


def _styles(summaries: Sequence[Summary]) -> dict[str, tuple[str, str]]:
    """Return colour and marker of each model."""
    own, more = dict(_METHOD_STYLE), zip(itertools.cycle(_MORE_COLOURS), _more_markers())
    styles = {}
    for s in summaries:
        if s.model in styles:
            continue
        style = own.pop(s.method, None)
        if style is None:
            style = next(more)
        styles[s.model] = style
    return styles


def _more_markers() -> Iterator[str]:
    """Yield markers, none twice; numbers when shapes run out."""
    yield from _MORE_MARKERS
    yield from (f"${n}$" for n in itertools.count(1))


def _line(
    axis: Axes, points: Sequence[Summary], x: Sequence[float], style: tuple[str, str]
) -> None:
    if not points:
        return
    color, marker = style
    error = [0.0 if math.isnan(s.accuracy_sd) else 100 * s.accuracy_sd for s in points]
    y = [100 * s.accuracy for s in points]
    size = 13 if marker == "*" else 6.5
    axis.errorbar(
        x, y, yerr=error if any(error) else None, label=points[0].model, color=color,
        marker=marker, markersize=size, markeredgecolor="white", markeredgewidth=0.8,
        linewidth=1.8, capsize=2.5, elinewidth=1.2, zorder=3,
    )  # fmt: skip
    if len(points) == 1:
        axis.axhline(y[0], color=color, linewidth=0.9, linestyle=(0, (4, 3)), alpha=0.5, zorder=1)


def _finish(axis: Axes) -> None:
    """Set plain ticks (logarithmic for models of very different size), and a light grid."""
    low, high = axis.dataLim.intervalx
    if high / low > _LOG_ABOVE:
        axis.set_xscale("log")
        axis.set_xlim(low / 1.25, high * 1.25)
        decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
        ticks = [step * 10.0**k for k in decades for step in (1, 2, 5)]
        axis.set_xticks([tick for tick in ticks if low / 1.25 <= tick <= high * 1.25])
        axis.xaxis.set_minor_locator(NullLocator())
    else:
        axis.set_xlim(0, 1.06 * high)
        axis.xaxis.set_major_locator(MaxNLocator(6, steps=[1, 2, 5, 10]))
    axis.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.10g}"))
    axis.yaxis.set_major_locator(MaxNLocator(8, steps=[1, 2, 5, 10]))
    axis.grid(color="#DDDDDD", linewidth=0.7)
    axis.set_axisbelow(True)
    axis.spines[["top", "right"]].set_visible(False)
    axis.tick_params(labelsize=10)
