"""What the benchmarks share: text of any length, timing in turns, and how figures are shown."""

from __future__ import annotations

import argparse
import functools
import gc
import json
import pathlib
import statistics
import sys
import time
from collections.abc import Callable, Container, Mapping, Sequence
from itertools import chain

import attrs
from attrs import evolve, frozen
from rich import box
from rich.console import Console
from rich.table import Table

from tests import material
from toktier.bench.heading import heading
from toktier.replay import library_session


@frozen
class Figure:
    """One row of a report.

    Attributes:
        what: What was measured.
        at: On what, or at which size.
        value: The figure; of repeated measurements the median.
        unit: Such as ``us``, ``ms``, ``s``, ``characters``, ``bytes per id``; nothing for a ratio or a count.
        p90: Nine out of ten measurements were no greater.
        beside: What was measured in turns with it.
        beside_value: Its median, in the same unit.
        limit: What the figure must not exceed.
    """

    what: str
    at: str
    value: float
    unit: str = ""
    p90: float | None = None
    beside: str = ""
    beside_value: float | None = None
    limit: float | None = None

    @property
    def ratio(self) -> float | None:
        """The figure relative to what stands beside it."""
        return self.value / self.beside_value if self.beside_value else None


def anew(text: str) -> str:
    """An equal string with memory of its own, as each request has."""
    return "".join((text[:-1], text[-1:]))


def timed(what: str, at: str, seconds: Sequence[float], *, unit: str = "ms", limit: float | None = None) -> Figure:
    """A row of measured times, which are given in seconds."""
    scale = {"us": 1e6, "ms": 1e3, "s": 1.0}[unit]
    p90 = statistics.quantiles(seconds, n=10)[-1] * scale if len(seconds) > 10 else None
    return Figure(what, at, statistics.median(seconds) * scale, unit, p90, limit=limit)


def beside(figure: Figure, name: str, seconds: Sequence[float]) -> Figure:
    """The same row, beside the times of something else."""
    return evolve(figure, beside=name, beside_value=timed("", "", seconds, unit=figure.unit).value)


def in_turns(contenders: Mapping[str, Callable[[], object]], repeats: int) -> dict[str, list[float]]:
    """The seconds that each contender takes, again and again in turns: a busy machine is busy for all of them."""
    seconds: dict[str, list[float]] = {name: [] for name in contenders}
    for _ in range(repeats):
        for name, call in contenders.items():
            gc.collect()
            start = time.perf_counter()
            result = call()
            seconds[name].append(time.perf_counter() - start)
            del result  # freeing it is not what is measured
    return seconds


@functools.cache
def transcript(characters: int) -> str:
    """Real transcript text: the agent sessions, and then an agent that reads the standard library."""
    rendered = chain(
        map(material.chatml, material.agent_sessions()), (message.chatml() for message in library_session())
    )
    parts, length = [], 0
    for part in rendered:
        parts.append(part)
        length += len(part)
        if length >= characters:
            return "".join(parts)[:characters]
    raise ValueError(f"there are only {length:,} characters of real text here, not {characters:,}")


def arguments(description: str | None) -> argparse.ArgumentParser:
    """A command line that has ``--json``; the benchmark adds its own options."""
    parser = argparse.ArgumentParser(description=(description or "").split("\n\n")[0])
    parser.add_argument("--json", type=pathlib.Path, metavar="FILE", help="write the figures there too")
    return parser


def show(title: str, figures: Sequence[Figure], file: pathlib.Path | None, **more: object) -> None:
    """Prints one table, and writes the figures and what else there is to a file if there is to be one."""
    rows = []
    for f in figures:
        met = "" if f.limit is None else "met" if f.value <= f.limit else "[bold red]missed[/]"
        other = f"{f.beside} {number(f.beside_value)}" if f.beside else ""
        rows.append(
            (f.what, f.at, number(f.value), number(f.p90), f.unit, other, number(f.ratio), number(f.limit), met)
        )
    table(title, ("", "", "median", "P90", "", "beside it", "ratio", "limit", ""), rows)
    write(title, [attrs.asdict(figure) | {"ratio": figure.ratio} for figure in figures], file, **more)


def table(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]], words: Container[int] = range(2)) -> None:
    """Prints a table, without the columns that have nothing in them.

    Args:
        title: What stands above it.
        columns: Their names.
        rows: Their cells.
        words: Which columns are words, all others being numbers.
    """
    result = Table(title=title, box=box.SIMPLE, pad_edge=False)
    filled = [k for k in range(len(columns)) if any(row[k] for row in rows)]
    for k in filled:
        result.add_column(columns[k], justify="left" if k in words else "right")
    for row in rows:
        result.add_row(*(row[k] for k in filled))
    (Console() if sys.stdout.isatty() else Console(width=170)).print(result)


def write(title: str, figures: Sequence[Mapping[str, object]], file: pathlib.Path | None, **more: object) -> None:
    """Writes figures and what else there is to a JSON file, if there is to be one."""
    if file is not None:
        save(title, more | {"figures": figures}, file)


def save(title: str, content: Mapping[str, object], file: pathlib.Path) -> None:
    """Writes a JSON file under a head that says whence it comes."""
    headed = heading(title) | dict(content)
    file.write_text(json.dumps(headed, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def number(value: float | None) -> str:
    """A figure in three digits, or nothing."""
    if value is None:
        return ""
    if value >= 100 or value == int(value):
        return f"{value:,.0f}"
    return f"{value:.3g}"
