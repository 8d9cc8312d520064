"""A campaign for people and for machines: the progress of it, and what was checked in numbers."""

from __future__ import annotations

import shlex
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from attrs import frozen

from toktier.campaign.exhaustive import Enumeration
from toktier.campaign.reproduction import versions
from toktier.campaign.verification import Campaign
from toktier.inspection import visible

if TYPE_CHECKING:
    import pathlib

    from rich.progress import Progress
    from rich.table import Table

COUNTED = ("texts", "characters", "cuts", "programs", "operations")

RELATION = "relation"
"""What is checked when it is no engine."""

PAIRS = 8
"""Pairs left on the table that are shown, at most."""


@frozen
class Outcome:
    """What came of a verification.

    Attributes:
        source: The tokenizer as the user named it.
        digest: The family's.
        seed: Of everything random.
        seconds: How long the checks took.
        counts: For each check and engine, what was checked, in numbers.
        fallen_back: For each engine, how many texts went to the reference in its place.
        left_out: Why other engines do not serve.
        enumeration: What the enumeration found; None when there was none.
        difference: What differs, in words; None when nothing does.
        file: Where the first difference was saved, if it could be.
        given: Characters of the files.
        stopped: Whether the user stopped it before the time was up.
    """

    source: str
    digest: str
    seed: int
    seconds: float
    counts: Mapping[tuple[str, str | None], Counter[str]]
    fallen_back: Mapping[str, int]
    left_out: Mapping[str, str]
    enumeration: Enumeration | None = None
    difference: str | None = None
    file: pathlib.Path | None = None
    given: int = 0
    stopped: bool = False

    @property
    def command(self) -> str | None:
        """What replays the difference."""
        return None if self.file is None else f"toktier reproduce {shlex.quote(str(self.file))}"


@contextmanager
def _progress(total: float) -> Iterator[Progress]:
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

    columns = TextColumn("{task.description}", markup=False), BarColumn(), TaskProgressColumn(), TimeRemainingColumn()
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        progress.add_task("", total=total)
        yield progress


def watched(campaign: Campaign, seconds: float) -> bool:
    """Checks for some seconds, with a progress bar on the standard error stream; whether the user let it."""
    began = time.monotonic()
    try:
        with _progress(seconds) as progress:
            for step in campaign.steps(seconds):
                progress.update(progress.task_ids[0], completed=time.monotonic() - began, description=step)
    except KeyboardInterrupt:
        return False
    return True


def enumerated(enumerate_all: Callable[[Callable[[float], None]], Enumeration]) -> Enumeration:
    """Enumerates, with a progress bar on the standard error stream.

    Args:
        enumerate_all: Is given what to call with the share that is done.
    """
    with _progress(1.0) as progress:
        progress.update(progress.task_ids[0], description="all short strings")
        return enumerate_all(lambda share: progress.update(progress.task_ids[0], completed=share))


def table(outcome: Outcome) -> Table:
    """What was checked, in numbers; what fell back is texts that went to the reference in place of an engine."""
    from rich import box
    from rich.table import Table

    found = Table("check", box=box.SIMPLE_HEAD, pad_edge=False, padding=0)
    for name in (*COUNTED, "fell\nback"):
        found.add_column(name, justify="right", no_wrap=True)
    total, shown = Counter[str](), set[str | None]()
    for (check, engine), counts in outcome.counts.items():
        if engine not in shown:
            found.add_section()
            fallen_back = f"{outcome.fallen_back[engine]:,}" if engine else ""
            found.add_row(engine or RELATION, *[""] * len(COUNTED), fallen_back, style="bold")
        shown.add(engine)
        total += counts
        found.add_row(f"  {check}", *_numbers(counts))
    found.add_section()
    found.add_row("all", *_numbers(total), f"{sum(outcome.fallen_back.values()):,}")
    return found


def enumeration_table(found: Enumeration) -> Table:
    """What an enumeration found."""
    from rich import box
    from rich.table import Table

    what = f"strings of up to {found.length} characters, one of each of {len(found.representatives)} atoms"
    rows = {
        what: f"{found.strings:,}",
        "places at which they were cut": f"{found.cuts:,}",
        "of these certified": f"{found.certified:,}",
        "certified cuts that change ids": f"{found.failed:,}",
        "pairs outside the relation at which no id changed": f"{len(found.left):,}",
    }
    shown = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=0, show_header=False)
    shown.add_column()
    shown.add_column(justify="right")
    for what, value in rows.items():
        shown.add_row(what, value)
    return shown


def left_on_the_table(found: Enumeration) -> str:
    """Some of the pairs at which no id ever changed, although the relation has to do without them."""
    some = ", ".join(f"{visible(left)} before {visible(right)}" for left, right in found.left[:PAIRS])
    return f"Outside the relation, though no id changed: {some or 'none'}{', ...' * (len(found.left) > PAIRS)}"


def summary(outcome: Outcome) -> str:
    """What came of it, in a few words."""
    if outcome.difference is not None:
        saved = "" if outcome.file is None else f"\nsaved to {outcome.file}; to see it again:\n  {outcome.command}"
        return f"DIFFERENT: {outcome.difference}{saved}"
    found = f"No difference from the reference in {outcome.seconds:.0f} s; seed {outcome.seed}."
    read = {check: counts["characters"] for (check, engine), counts in outcome.counts.items() if engine is None}
    if "files" in read and read["files"] < outcome.given and not outcome.stopped:
        share = read["files"] / outcome.given
        found += f" Time was enough for {share:.0%} of the files: give it more with --seconds."
    return found + " It was stopped before its time was up." * outcome.stopped


def as_json(outcome: Outcome) -> dict[str, Any]:
    """Everything for machines."""
    enumeration = outcome.enumeration
    return {
        "tokenizer": outcome.source,
        "digest": outcome.digest,
        "versions": versions(),
        "seed": outcome.seed,
        "seconds": outcome.seconds,
        "stopped": outcome.stopped,
        "characters_given": outcome.given,
        "checks": [
            {"check": check, "engine": engine} | {name: counts[name] for name in COUNTED}
            for (check, engine), counts in outcome.counts.items()
        ],
        "encoded_by_the_reference": dict(outcome.fallen_back),
        "left_out": dict(outcome.left_out),
        "exhaustive": enumeration and _as_json(enumeration),
        "difference": outcome.difference,
        "reproduction": outcome.file and str(outcome.file),
        "command": outcome.command,
    }


def _as_json(found: Enumeration) -> dict[str, Any]:
    numbers = ("length", "representatives", "strings", "cuts", "certified", "failed", "left")
    return {name: getattr(found, name) for name in numbers}


def _numbers(counts: Counter[str]) -> list[str]:
    return [f"{counts[name]:,}" if counts[name] else "" for name in COUNTED]
