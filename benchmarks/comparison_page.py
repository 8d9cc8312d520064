"""The tables and the plot of ``docs/comparison.md``, from what ``benchmarks.comparison`` has measured."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence

from attrs import frozen

from benchmarks import common
from benchmarks.common import number
from benchmarks.drawing import Axis, Span, Spans
from benchmarks.results import Results, load
from benchmarks.tables import machine_of, source, table

NAME = "comparison"
"""Of the file of figures."""

WAYS = {
    "messages": "a transcript that grows by whole messages",
    "chunks": "the same in streamed chunks, cut anywhere",
    "prompts": "as a front end renders it for each call: generation prompts that go, reasoning that is dropped",
    "languages": "texts in a hundred languages without special tokens, in chunks",
}
"""What grows how, in the order of the tables."""

WHATS = {
    "append": "a turn is added",
    "prompt": "a generation prompt goes, a turn is added",
    "again": "the same text again",
}

MAIN = "qwen3"
"""The tokenizer whose times are shown in full, if it is there."""

TOKTIER = "toktier"

PLOTTED = ("append", "prompt")
"""What is shown of all tokenizers."""


@frozen
class Wrong:
    """How often a contender was wrong.

    Attributes:
        tokenizer: On which tokenizer.
        way: In which way the text grew.
        contender: Who.
        turns: Of how many turns.
        wrong: How many had wrong ids. What is wrong stays so until the contender encodes that part anew.
        in_full: How many were answered by encoding at least as many characters as the text has. Of toktier, which does
            not encode with the strategies' library, that is not counted.
    """

    tokenizer: str
    way: str
    contender: str
    turns: int
    wrong: int
    in_full: int


@frozen
class Time:
    """How long a turn takes a contender.

    Attributes:
        tokenizer: On which tokenizer.
        contender: Who.
        at: How long the transcript is, in words.
        what: What kind of turn.
        milliseconds: The median.
    """

    tokenizer: str
    contender: str
    at: str
    what: str
    milliseconds: float


@frozen
class State:
    """What a contender holds.

    Attributes:
        tokenizer: On which tokenizer.
        contender: Who.
        bytes: For each character of the transcript.
    """

    tokenizer: str
    contender: str
    bytes: float


@frozen
class Comparison:
    """All figures.

    Attributes:
        fastest: The fastest engine of each tokenizer.
        left_out: The packages that took no part, and why.
        wrong: Wrong turns.
        times: Times of a turn.
        states: What is held.
    """

    fastest: dict[str, str]
    left_out: dict[str, str]
    wrong: list[Wrong]
    times: list[Time]
    states: list[State]

    @classmethod
    def of(cls, results: Results) -> Comparison:
        """The figures of a file.

        Raises:
            NoFigures: They are not all there.
        """
        return cls(
            results["fastest"],
            results["left_out"],
            [Wrong(**row) for row in results["wrong"]],
            [Time(**row) for row in results["times"]],
            [State(**row) for row in results["states"]],
        )

    @property
    def tokenizers(self) -> list[str]:
        """Their names, in order."""
        return list(self.fastest)

    @property
    def contenders(self) -> list[str]:
        """All of them, in order; a package that cannot load a tokenizer is missing for it."""
        return list(dict.fromkeys(row.contender for row in self.times))

    @property
    def main(self) -> str:
        """The tokenizer that is shown in full."""
        return main_of(self.tokenizers)

    @property
    def longest(self) -> str:
        """The longest transcript, in words."""
        return self.times[-1].at

    def time(self, tokenizer: str, contender: str, at: str, what: str) -> float | None:
        """Milliseconds; None where that was not measured."""
        found = (t for t in self.times if (t.tokenizer, t.contender, t.at, t.what) == (tokenizer, contender, at, what))
        return next((row.milliseconds for row in found), None)

    def share(self, contender: str) -> float:
        """Of all turns on all tokenizers, the share that was wrong."""
        rows = [row for row in self.wrong if row.contender == contender]
        return sum(row.wrong for row in rows) / sum(row.turns for row in rows)


def main_of(tokenizers: Sequence[str]) -> str:
    """The tokenizer whose times and state are shown in full."""
    return MAIN if MAIN in tokenizers else tokenizers[0]


Grid = tuple[str, list[str], list[list[str]]]
"""A table: its title, its columns, its rows."""


def wrong_grids(comparison: Comparison) -> Iterator[Grid]:
    """For each way of growing, the wrong turns of each contender on each tokenizer."""
    for way, title in WAYS.items():
        cells = {(row.contender, row.tokenizer): row for row in comparison.wrong if row.way == way}
        names = [name for name in comparison.contenders if any(key[0] == name for key in cells)]
        shown = [name for name in names if not name.startswith(TOKTIER)]
        rows = [[name, *(_wrong(cells.get((name, tok))) for tok in comparison.tokenizers)] for name in shown]
        own = [name for name in names if name.startswith(TOKTIER)]
        worst = [
            max((cells[name, tok] for name in own if (name, tok) in cells), key=lambda row: row.wrong, default=None)
            for tok in comparison.tokenizers
        ]
        rows.append([f"toktier ({len(own)} contenders, the worst)", *(_wrong(row, full=False) for row in worst)])
        turns = max((row.turns for row in cells.values()), default=0)
        if turns:
            yield f"Wrong turns: {title}, about {turns:,} turns", ["", *comparison.tokenizers], rows


def _wrong(row: Wrong | None, *, full: bool = True) -> str:
    if row is None:
        return ""
    cell = f"{row.wrong} of {row.turns:,}" if row.wrong else "0"
    return f"{cell} *" if full and 2 * row.in_full > row.turns else cell


def main_grid(comparison: Comparison) -> Iterator[Grid]:
    """Times of one tokenizer, and what is held."""
    tokenizer = comparison.main
    contexts = list(dict.fromkeys(row.at for row in comparison.times if row.tokenizer == tokenizer))
    columns = [(at, what) for at in contexts for what in WHATS]
    held = {row.contender: row.bytes for row in comparison.states if row.tokenizer == tokenizer}
    rows = [
        [
            name,
            *(milliseconds(comparison.time(tokenizer, name, at, what)) for at, what in columns),
            number(held.get(name)),
        ]
        for name in comparison.contenders
        if comparison.time(tokenizer, name, contexts[0], "append") is not None
    ]
    heads = [f"{at}, {what}" for at, what in columns]
    yield f"{tokenizer}: milliseconds of a turn, and bytes held for each character", ["", *heads, "bytes"], rows


def time_grids(comparison: Comparison) -> Iterator[Grid]:
    """Times on the longest context, on all tokenizers."""
    at = comparison.longest
    for what in PLOTTED:
        rows = []
        for name in comparison.contenders:
            cells = [milliseconds(comparison.time(tok, name, at, what)) for tok in comparison.tokenizers]
            if any(cells):
                rows.append([name, *cells])
        yield f"Milliseconds, {at} characters: {WHATS[what]}", ["", *comparison.tokenizers], rows


def milliseconds(value: float | None) -> str:
    """A time in three digits."""
    return "" if value is None else f"{value:.3f}" if value < 1 else number(value)


GRIDS: Mapping[str, Callable[[Comparison], Iterator[Grid]]] = {
    "comparison-wrong": wrong_grids,
    "comparison-main": main_grid,
    "comparison-times": time_grids,
}
"""The tables, by their places on the page."""


def show(comparison: Comparison) -> None:
    """Prints the tables."""
    for grids in GRIDS.values():
        for title, columns, rows in grids(comparison):
            common.table(title, columns, rows, words=range(1))


def block(grids: Callable[[Comparison], Iterator[Grid]]) -> Callable[[], str]:
    """What stands in a place of the page."""

    def written() -> str:
        comparison = Comparison.of(load(NAME))
        return "\n\n".join(f"**{title}**\n\n{table(columns, rows)}" for title, columns, rows in grids(comparison))

    return written


def origin() -> str:
    """Where the figures come from, in words."""
    results = load(NAME)
    comparison = Comparison.of(results)
    engines = ", ".join(f"{engine} of {tokenizer}" for tokenizer, engine in comparison.fastest.items())
    said = f"{source(results)}, on {machine_of(results)}. Fastest engines: {engines}."
    if comparison.left_out:
        said += f" Left out: {', '.join(f'{name} ({why})' for name, why in comparison.left_out.items())}."
    return said


BLOCKS: Mapping[str, Callable[[], str]] = {"comparison": origin} | {name: block(grids) for name, grids in GRIDS.items()}
"""What stands in the page, by its name there."""


def picture() -> Spans:
    """How long the turns of each contender take on the longest transcript, and how many are wrong."""
    comparison = Comparison.of(load(NAME))
    at = comparison.longest
    groups: dict[str, list[Span]] = {"toktier": [], "others, none of whose turns is wrong": [], "others": []}
    own, right, others = groups.values()
    for name in comparison.contenders:
        added, gone = (_median(comparison, name, at, what) for what in PLOTTED)
        if added is None:
            continue
        share = comparison.share(name)
        label = f"{name}: {100 * share:.2g} % of turns wrong" if share else name
        end = None if gone is None else gone / 1e3
        if name.startswith(TOKTIER):
            own.append(Span(label, added / 1e3, end, "gigatoken"))
        else:
            group, color = (others, "tiktoken") if share else (right, "tokenizers")
            group.append(Span(label, added / 1e3, end, color, dashed=True))
    return Spans(
        f"A turn on {at} characters, median of the tokenizers",
        Axis("", "seconds"),
        tuple((name, tuple(sorted(rows, key=lambda row: row.begin))) for name, rows in groups.items() if rows),
    )


def _median(comparison: Comparison, name: str, at: str, what: str) -> float | None:
    values = [comparison.time(tokenizer, name, at, what) for tokenizer in comparison.tokenizers]
    present = [value for value in values if value is not None]
    return statistics.median(present) if present else None
