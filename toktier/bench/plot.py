"""What was measured as a plot: the time that the ids of a longer text take, against its length."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import IO, TYPE_CHECKING

from toktier.bench.measuring import Result
from toktier.bench.report import duration, size
from toktier.errors import MissingPackage

if TYPE_CHECKING:
    from matplotlib.figure import Figure

COLORS = {
    "gigatoken": "#0072b2",
    "tiktoken": "#d55e00",
    "memo": "#009e73",
    "reference": "#444444",
    "tokenizers": "#444444",
    "fastokens": "#b0569b",
}
"""They can be told apart by people who do not see all of them; an engine has that of its library."""

GAP = 0.05
"""Between two labels, as a part of the height."""


def new_figure(width: float, height: float) -> Figure:
    """An empty figure, its sizes in inches.

    Raises:
        MissingPackage: There is no matplotlib.
    """
    try:
        from matplotlib.figure import Figure
    except ModuleNotFoundError:
        raise MissingPackage("a plot needs the package matplotlib: pip install matplotlib") from None
    return Figure((width, height), layout="constrained")


def plot(result: Result, name: str, file: IO[str]) -> None:
    """Writes an SVG: the append of each engine and the full encode of each library, both axes logarithmic.

    Raises:
        MissingPackage: There is no matplotlib.
    """
    figure = new_figure(9, 5.5)
    import matplotlib

    axes = figure.subplots()
    contexts = result.plan.contexts
    ends = {}
    for operation, side, names, style, label in (
        ("append", "toktier", result.engines, "-", "toktier append, {}"),
        ("encode", "library", result.libraries, "--", "{}, full encode"),
    ):
        for who in names:
            medians = [result.median(operation, side, who, context) or math.nan for context in contexts]
            axes.plot(contexts, medians, style, color=COLORS[who], marker="o", markersize=4)
            ends[label.format(who)] = (medians[-1], COLORS[who])
    axes.set(xscale="log", yscale="log", xlabel="characters of context")
    axes.set_title(f"{name}: the ids after {result.turn:,} more characters, median time", loc="left", fontsize=11)
    axes.set_xticks(contexts, [size(context) for context in contexts])
    axes.yaxis.set_major_formatter(lambda seconds, _: duration(seconds))
    axes.minorticks_off()
    axes.grid(color="#dddddd", linewidth=0.6)
    axes.spines[["top", "right"]].set_visible(False)

    # Each label beside the end of its line, and no two of them over one another.
    low, high = map(math.log, axes.get_ylim())
    labels = sorted(ends, key=lambda label: ends[label][0])
    heights = apart([(math.log(ends[label][0]) - low) / (high - low) for label in labels], GAP)
    for label, height in zip(labels, heights, strict=True):
        end, color = ends[label]
        axes.annotate(
            label,
            (contexts[-1], end),
            (1.03, height),
            textcoords="axes fraction",
            color=color,
            va="center",
            arrowprops={"arrowstyle": "-", "color": color, "linewidth": 0.6, "shrinkA": 0, "shrinkB": 4},
        )
    with matplotlib.rc_context({"svg.fonttype": "none"}):
        figure.savefig(file, format="svg", metadata={"Date": None})


def apart(heights: Sequence[float], gap: float) -> list[float]:
    """Ascending heights, moved away from one another as far as is needed, and about as far up as down.

    >>> apart([0.1, 0.5, 0.5, 0.9], 0.1)
    [0.1, 0.45, 0.55, 0.9]
    """
    # Each block is as high as its labels need, in the middle of where they want to be; blocks that touch are joined.
    blocks: list[list[float]] = []
    for height in heights:
        blocks.append([height])
        while len(blocks) > 1 and _top(blocks[-2], gap) + gap > _bottom(blocks[-1], gap):
            blocks[-2:] = [blocks[-2] + blocks[-1]]
    return [round(_bottom(block, gap) + gap * i, 6) for block in blocks for i in range(len(block))]


def _bottom(block: Sequence[float], gap: float) -> float:
    return sum(block) / len(block) - gap * (len(block) - 1) / 2


def _top(block: Sequence[float], gap: float) -> float:
    return sum(block) / len(block) + gap * (len(block) - 1) / 2
