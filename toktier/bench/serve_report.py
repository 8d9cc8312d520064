"""What front ends did under load, as a table and as JSON."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from attrs import asdict
from rich import box
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from toktier.bench.heading import heading
from toktier.bench.report import duration
from toktier.bench.serving import LIMITS, FrontEnd, Run, Trial, front_ends
from toktier.terminal import without_folder

FIRST = {"store": 100.0, "gigatoken": 50.0}
"""Calls a second at which the search begins, by the first word of a name; for all others SLOW."""
SLOW = 8.0


def watched(trial: Trial, max_bytes: int) -> list[FrontEnd]:
    """Looks for the highest rate of every front end, and tells the standard error stream where it is."""
    columns = TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn()
    measured = []
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("", total=None)
        for front_end in front_ends(trial.tok, max_bytes):
            for what in trial.search(front_end, FIRST.get(front_end.name.split(",")[0], SLOW)):
                progress.update(task, description=what)
            measured.append(front_end)
    return measured


def tables(measured: Sequence[FrontEnd]) -> list[Table]:
    """The highest rates, and every run."""
    columns = ["front end", "one call", *(f"P99 ≤ {duration(it)}" for it in LIMITS)]
    highest = _table("One call alone, and the highest rate in calls a second", columns)
    for front_end in measured:
        rates = (front_end.highest(limit) for limit in LIMITS)
        highest.add_row(
            front_end.name, duration(front_end.alone), *(f"{rate:,.0f}" if rate else "none" for rate in rates)
        )
    highest.add_section()
    highest.add_row("first ÷ best of the others", "", *(_ratio(measured, limit) for limit in LIMITS))
    runs = _table(
        "Latency from when a call was due", ["front end", "calls/s", "calls", "P50", "P99", "checked", "wrong"]
    )
    for front_end in measured:
        for run in sorted(front_end.runs, key=lambda run: run.rate):
            runs.add_row(front_end.name, *_cells(run), style="bold red" if run.wrong else "")
    return [highest, runs]


def _ratio(measured: Sequence[FrontEnd], limit: float) -> str:
    first, best = measured[0].highest(limit), max((it.highest(limit) for it in measured[1:]), default=0.0)
    return f"{first / best:.1f}" if best else "no other" if first else "none"


def _cells(run: Run) -> list[str]:
    times = ("given up" if math.isinf(it) else duration(it) for it in (run.p50, run.p99))
    return [f"{run.rate:,.0f}", f"{run.calls:,}", *times, str(run.checked), str(run.wrong)]


def _table(title: str, columns: Sequence[str]) -> Table:
    table = Table(title=title, box=box.SIMPLE_HEAD, pad_edge=False, title_justify="left")
    for number, name in enumerate(columns):
        table.add_column(name, justify="right" if number else "left", no_wrap=True)
    return table


def as_json(name: str, trial: Trial, measured: Sequence[FrontEnd]) -> dict[str, Any]:
    """Everything, with times in seconds; a run that was given up has none."""
    shown = without_folder(name)
    return heading(f"{shown}: front ends under load") | {
        "tokenizer": shown,
        "digest": trial.tok.family.digest,
        "sessions": trial.sessions,
        "bursts": trial.bursts,
        "front_ends": [
            {
                "name": front_end.name,
                "alone": front_end.alone if math.isfinite(front_end.alone) else None,
                "highest": {str(limit): front_end.highest(limit) for limit in LIMITS},
                "runs": [
                    {key: None if math.isinf(value) else value for key, value in asdict(run).items()}
                    for run in front_end.runs
                ],
            }
            for front_end in measured
        ],
    }
