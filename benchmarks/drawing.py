"""How plots look: what one says, as data, and the SVG of it, for a light page and for a dark one.

The same data gives the same bytes with one version of matplotlib. With another one it gives the same digest, which is
in the metadata of every SVG: of the data, and of this file.
"""

from __future__ import annotations

import hashlib
import io
import json
import math
import pathlib
import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Literal

import attrs
from attrs import frozen

from benchmarks.common import number
from toktier.bench.plot import apart, new_figure
from toktier.bench.report import duration, size, times

if TYPE_CHECKING:
    from matplotlib.axes import Axes

WIDTH = 8.0
"""Inches of every plot."""

FORMATS: Mapping[str, Callable[[float], str]] = {
    "seconds": duration,
    "characters": lambda value: size(round(value)),
    "number": number,
    "times": times,
}
"""How the values of an axis are written."""

THEMES = {
    "light": {
        "text": "#333333",
        "grid": "#dddddd",
        "gigatoken": "#0072b2",
        "tiktoken": "#bf5300",
        "memo": "#007a59",
        "tokenizers": "#555555",
        "fastokens": "#a8478f",
    },
    "dark": {
        "text": "#cfd0d0",
        "grid": "#3a3b3e",
        "gigatoken": "#56b4e9",
        "tiktoken": "#f0a058",
        "memo": "#33c498",
        "tokenizers": "#b0b0b0",
        "fastokens": "#e08fc9",
    },
}
"""Colors without a background, by library: people who do not see all of them can tell them apart."""

DIGEST = re.compile(r"drawn from: ([0-9a-f]{64})")

HOW = pathlib.Path(__file__).read_text(encoding="utf-8")
"""How plots are drawn. Whoever changes it makes all that were drawn before stale."""


@frozen
class Axis:
    """An axis.

    Attributes:
        label: What stands at it.
        values: How its values are written, of :data:`FORMATS`.
        ticks: Where they stand; empty for wherever matplotlib puts them.
        logarithmic: Whether equal distances are equal ratios. Else it begins at 0.
    """

    label: str
    values: str
    ticks: tuple[float, ...] = ()
    logarithmic: bool = True


@frozen
class Line:
    """A line, with its label at its end.

    Attributes:
        label: What it is.
        points: Pairs of x and y, from left to right.
        color: Of a theme.
        dashed: Whether it is what others do.
    """

    label: str
    points: tuple[tuple[float, float], ...]
    color: str
    dashed: bool = False


@frozen
class Lines:
    """A plot of lines.

    Attributes:
        title: What it shows.
        x: The axis to the right.
        y: The axis upwards.
        lines: The lines.
        marks: Values of y that have a meaning, and which.
    """

    title: str
    x: Axis
    y: Axis
    lines: tuple[Line, ...]
    marks: tuple[tuple[float, str], ...] = ()


@frozen
class Span:
    """A row: from one value to another.

    Attributes:
        label: What it is.
        begin: The first value, a small dot.
        end: The last one, a large dot; None where there is no other.
        color: Of a theme.
        dashed: Whether it is what others do.
    """

    label: str
    begin: float
    end: float | None
    color: str
    dashed: bool = False


@frozen
class Spans:
    """A plot of rows, in groups, from the top.

    Attributes:
        title: What it shows.
        x: The axis to the right.
        groups: Their names and rows.
    """

    title: str
    x: Axis
    groups: tuple[tuple[str, tuple[Span, ...]], ...]


Plot = Lines | Spans


def digest(plot: Plot) -> str:
    """Of all that a plot says, and of how it is drawn."""
    return hashlib.sha256(f"{json.dumps(attrs.asdict(plot))}\n{HOW}".encode()).hexdigest()


def drawn_from(svg: str) -> str | None:
    """The digest that an SVG was drawn from."""
    found = DIGEST.search(svg)
    return found[1] if found else None


def draw(plot: Plot, theme: str) -> bytes:
    """A plot as an SVG with no background.

    Raises:
        MissingPackage: There is no matplotlib.
    """
    rows = sum(len(group) for _, group in plot.groups) + 0.8 * len(plot.groups) if isinstance(plot, Spans) else 0
    figure = new_figure(WIDTH, 0.9 + 0.26 * rows if rows else 4.6)
    import matplotlib

    colors = THEMES[theme]
    settings: dict[Any, object] = {
        "svg.fonttype": "none",
        "svg.hashsalt": "toktier",
        "font.size": 10,
        "text.color": colors["text"],
        "axes.labelcolor": colors["text"],
        "axes.edgecolor": colors["text"],
        "xtick.color": colors["text"],
        "ytick.color": colors["text"],
    }
    written = io.BytesIO()
    with matplotlib.rc_context(settings):
        axes = figure.subplots()
        axes.patch.set_alpha(0)
        axes.set_title(plot.title, loc="left", fontsize=11)
        if isinstance(plot, Lines):
            _lines(axes, plot, colors)
        else:
            _spans(axes, plot, colors)
        about = {"Date": None, "Creator": None, "Title": plot.title, "Description": f"drawn from: {digest(plot)}"}
        figure.savefig(written, format="svg", transparent=True, metadata=about)
    # matplotlib ends some lines with spaces.
    lines = written.getvalue().decode().splitlines()
    return ("\n".join(line.rstrip() for line in lines) + "\n").encode()


def write(plot: Plot, files: Mapping[str, pathlib.Path]) -> None:
    """Draws a plot for every theme."""
    for theme, file in files.items():
        file.write_bytes(draw(plot, theme))


def _set(axes: Axes, which: str, axis: Axis) -> None:
    """Scale, ticks and label."""
    axes.set(**{f"{which}label": axis.label})
    one = axes.xaxis if which == "x" else axes.yaxis
    if axis.logarithmic:
        axes.set(**{f"{which}scale": "log"})
    else:
        axes.set(**{f"{which}lim": (0, None)})
    if axis.ticks:
        one.set_ticks(axis.ticks)
        one.set_ticks((), minor=True)
    one.set_major_formatter(lambda value, _: FORMATS[axis.values](value))
    one.set_minor_formatter(lambda value, _: "")


def _frame(axes: Axes, colors: Mapping[str, str], grid: Literal["both", "x", "y"]) -> None:
    axes.grid(axis=grid, color=colors["grid"], linewidth=0.7)
    axes.set_axisbelow(True)
    axes.tick_params(which="both", length=0)
    axes.spines[["top", "right", "left"]].set_visible(False)


def _lines(axes: Axes, plot: Lines, colors: Mapping[str, str]) -> None:
    for line in plot.lines:
        style = (0, (4, 2)) if line.dashed else "-"
        marker = "o" if len(line.points) < 20 else ""
        axes.plot(*zip(*line.points, strict=True), ls=style, color=colors[line.color], marker=marker, markersize=4)
    for value, label in plot.marks:
        axes.axhline(value, color=colors["text"], linewidth=0.9, linestyle=":")
        place = (0.0, value)
        axes.annotate(label, place, (2, 3), xycoords=("axes fraction", "data"), textcoords="offset points", fontsize=9)
    _set(axes, "x", plot.x)
    _set(axes, "y", plot.y)
    _frame(axes, colors, "both")

    # Each label to the right of all lines, at about the height where its own ends, and no two over one another.
    scale = math.log if plot.y.logarithmic else float
    low, high = map(scale, axes.get_ylim())
    ordered = sorted(plot.lines, key=lambda line: line.points[-1][1])
    heights = apart([(scale(line.points[-1][1]) - low) / (high - low) for line in ordered], 0.058)
    for line, height in zip(ordered, heights, strict=True):
        axes.annotate(
            line.label,
            line.points[-1],
            (1.04, height),
            textcoords="axes fraction",
            color=colors[line.color],
            va="center",
            arrowprops={"arrowstyle": "-", "color": colors[line.color], "linewidth": 0.6, "shrinkA": 0, "shrinkB": 4},
        )


def _spans(axes: Axes, plot: Spans, colors: Mapping[str, str]) -> None:
    heights, labels, height = [], [], 0.0
    for name, group in plot.groups:
        axes.text(0, height, name, transform=axes.get_yaxis_transform(), va="center", fontweight="bold", fontsize=9)
        for span in group:
            height -= 1
            _span(axes, plot.x, span, height, colors[span.color])
            heights.append(height)
            labels.append(span.label)
        height -= 1.8
    axes.set_yticks(heights, labels)
    axes.set_ylim(height + 1.1, 0.7)
    _set(axes, "x", plot.x)
    _frame(axes, colors, "x")
    low, high = axes.get_xlim()
    # Room for what is written beside the first dot and the last.
    if plot.x.logarithmic:
        wider = (high / low) ** 0.08
        axes.set_xlim(low / wider, high * wider)
    else:
        axes.set_xlim(low, 1.06 * high)


def _span(axes: Axes, x: Axis, span: Span, height: float, color: str) -> None:
    style = (0, (2, 1)) if span.dashed else "-"
    right = span.end is not None and span.end >= span.begin
    dots = [(span.begin, 4, not right)]
    if span.end is not None:
        axes.plot((span.begin, span.end), (height, height), linestyle=style, linewidth=2, color=color)
        dots.append((span.end, 7, right))
    for value, dot, to_the_right in dots:
        axes.plot(value, height, "o", markersize=dot, color=color)
        axes.annotate(
            FORMATS[x.values](value),
            (value, height),
            (7 if to_the_right else -7, 0),
            textcoords="offset points",
            horizontalalignment="left" if to_the_right else "right",
            verticalalignment="center",
            fontsize=9,
            color=color,
        )
