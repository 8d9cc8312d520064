"""What was measured, as tables and as JSON, and whether it is what it is to be."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from attrs import Attribute, asdict, frozen

import toktier
from toktier.bench.contenders import REMEMBERING
from toktier.bench.heading import heading
from toktier.bench.measuring import Bench, Result, Subject
from toktier.bench.plan import Plan
from toktier.terminal import without_folder

if TYPE_CHECKING:
    from rich.table import Table
    from rich.text import Text

LIBRARY_OF = {"gigatoken": "gigatoken", "tiktoken": "tiktoken", "memo": "tokenizers", "reference": "tokenizers"}
"""The library that an engine is made of, or takes the place of."""

REENCODING = {
    ("gigatoken", 100_000): 20,
    ("gigatoken", 1_000_000): 250,
    ("gigatoken", 4_400_000): 1000,
    ("tiktoken", 1_000_000): 100,
}
"""How many times as long as the append of a turn a full encode by the same library is to take at least."""

ALONE = 1.15
"""How many times as long as in the engine alone an append of many characters to a long context may take."""

FLAT = 1.5
"""How many times as long as at 100,000 characters an append may take at the longest context."""

MEMO = 6
"""How many times the reference's speed that of the engine memo is to be at least, on a text that it knows."""

HUNDRED_THOUSAND, MILLION = 100_000, 1_000_000

ROLES = {"toktier": "an engine", "library": "a library"}


@frozen
class Bar:
    """A figure that is to be reached.

    Attributes:
        engine: The engine that it is about.
        what: What it says.
        value: What was measured.
        limit: What it is to be.
        at_least: Whether that is the least; the most otherwise.
    """

    engine: str
    what: str
    value: float
    limit: float
    at_least: bool = True

    @property
    def met(self) -> bool:
        """Whether it is reached."""
        return self.value >= self.limit if self.at_least else self.value <= self.limit


def watched(bench: Bench) -> Result:
    """Measures, with a progress bar on the standard error stream."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn

    # Drawn between the steps only: a thread that draws would be measured.
    columns = TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeElapsedColumn()
    with Progress(*columns, console=Console(stderr=True), transient=True, auto_refresh=False) as progress:
        task = progress.add_task("", total=len(bench))
        for number, step in enumerate(bench.steps()):
            progress.update(task, completed=number, description=step, refresh=True)
    return bench.result()


def speedup(result: Result, engine: str, library: str, context: int, operation: str = "append") -> float | None:
    """How many times as long as an append of one turn with an engine a library's full encode takes."""
    append = result.median(operation, "toktier", engine, context)
    full = result.median("encode", "library", library, context)
    return full / append if full and append else None


def bars(result: Result) -> list[Bar]:
    """What is to be reached, as far as it was measured."""
    return [bar for engine in result.engines for bars in BARS for bar in bars(result, engine)]


def _reencoding(result: Result, engine: str) -> Iterator[Bar]:
    library, contexts = LIBRARY_OF[engine], result.plan.contexts
    for context in contexts:
        limit = 1 if context == contexts[0] else REENCODING.get((engine, context))
        # The library has just encoded the same text; so the append is given what the engine has seen, too.
        for operation in ("append", "append again"):
            ratio = speedup(result, engine, library, context, operation)
            if limit and ratio and (operation == "append" or library in REMEMBERING):
                yield Bar(engine, f"{library} in full ÷ {operation} to {size(context)}", ratio, limit)


def _alone(result: Result, engine: str) -> Iterator[Bar]:
    many = result.plan.appends[-1].characters
    again = result.median("append again", "toktier", engine, MILLION, many)
    alone = result.median("encode alone", "toktier", engine, MILLION, many)
    if again and alone:
        what = f"append {size(many)} to {size(MILLION)} ÷ these alone"
        yield Bar(engine, what, again / alone, ALONE, at_least=False)


def _flat(result: Result, engine: str) -> Iterator[Bar]:
    longest = result.plan.contexts[-1]
    near = result.median("append", "toktier", engine, HUNDRED_THOUSAND)
    far = result.median("append", "toktier", engine, longest)
    if near and far and longest > HUNDRED_THOUSAND:
        what = f"append to {size(longest)} ÷ append to {size(HUNDRED_THOUSAND)}"
        yield Bar(engine, what, far / near, FLAT, at_least=False)


def _memo(result: Result, engine: str) -> Iterator[Bar]:
    memo = result.median("encode", "toktier", engine, MILLION)
    reference = result.median("encode", "library", "tokenizers", MILLION)
    if engine == "memo" and memo and reference:
        yield Bar(engine, f"{size(MILLION)} in full by tokenizers ÷ memo", reference / memo, MEMO)


BARS = (_reencoding, _alone, _flat, _memo)


def tables(result: Result) -> Iterator[Text | Table]:
    """Everything for people: appends, whole texts, ratios, bars, each under its title."""
    from rich.text import Text

    for title, table in (
        ("Append of so many characters: median/P90/P99", _appends(result)),
        (f"All ids after {result.turn:,} more characters: median (*: of a text just encoded)", _ways(result)),
        (f"How many times as long as an append of {result.turn:,} a full encode takes", _ratios(result)),
        (f"Targets of the project, on a quiet machine, for appends of {result.turn:,}", _bars(bars(result))),
    ):
        yield Text(title, "bold")
        yield table


def notes(result: Result, text: str, wanted: Plan) -> list[str]:
    """What is not as asked for: who was left out, and why; what the text is too short for."""
    found = [f"{name} left out as {ROLES[side]}: {why}" for (side, name), why in result.left_out.items()]
    plan = result.plan
    if plan != wanted:
        found.append(
            f"The text has {len(text):,} characters, and nothing is appended twice: the longest context is"
            f" {size(plan.contexts[-1])} in place of {size(wanted.contexts[-1])}, and there are {plan.rounds} rounds in"
            f" place of {wanted.rounds}."
        )
    return found


def _appends(result: Result) -> Table:
    lengths = [f"{of.characters:,}" for of in result.plan.appends]
    table = _table(["engine"], ["to", *lengths, "wrong"])
    for engine in result.engines:
        for context in result.plan.contexts:
            subjects = [Subject("append", "toktier", engine, context, of.characters) for of in result.plan.appends]
            rows = [result.rows[subject] for subject in subjects]
            wrong = sum(row.mismatches for row in rows)
            first = engine if context == result.plan.contexts[0] else ""
            cells = (duration(row.median, row.p90, row.p99) for row in rows)
            table.add_row(first, size(context), *cells, str(wrong), style=_style(wrong))
        table.add_section()
    return table


def _ways(result: Result) -> Table:
    table = _table(["call", "by"], [*map(size, result.plan.contexts), "wrong"])
    for operation, side, names, call in (
        ("first append", "toktier", result.engines, "append, first"),
        ("append again", "toktier", result.engines, "append again"),
        ("update", "toktier", result.engines, "update"),
        ("encode", "toktier", result.engines, "full encode"),
        ("encode", "library", result.libraries, "by the library"),
    ):
        for name in names:
            rows = [result.rows[Subject(operation, side, name, c, result.turn)] for c in result.plan.contexts]
            wrong = sum(row.mismatches for row in rows)
            first = call if name == names[0] else ""
            mark = "*" if operation == "encode" and name in REMEMBERING else ""
            table.add_row(first, name + mark, *(duration(row.median) for row in rows), str(wrong), style=_style(wrong))
        table.add_section()
    return table


def _ratios(result: Result) -> Table:
    table = _table(["append with", "full encode by"], [size(context) for context in result.plan.contexts])
    for engine, library in pairs(result):
        ratios = [speedup(result, engine, library, context) for context in result.plan.contexts]
        table.add_row(engine, library, *("" if ratio is None else times(ratio) for ratio in ratios))
    return table


def pairs(result: Result) -> list[tuple[str, str]]:
    """Each engine with its own library, and the fastest engine with those that no engine is made of."""
    own = [(engine, LIBRARY_OF[engine]) for engine in result.engines]
    others = [library for library in result.libraries if library not in LIBRARY_OF.values()]
    return [pair for pair in own if pair[1] in result.libraries] + [(result.engines[0], other) for other in others]


def _bars(found: Sequence[Bar]) -> Table:
    from rich.text import Text

    table = _table(["engine", "what"], ["measured", "target", ""])
    table.caption = "A miss is about speed, never about ids."
    for bar in found:
        limit = f"{'≥' if bar.at_least else '≤'} {bar.limit:g}×"
        met = Text("met", "green") if bar.met else Text("missed", "yellow")
        table.add_row(bar.engine, bar.what, times(bar.value), limit, met)
    return table


def _table(left: Sequence[str], right: Sequence[str]) -> Table:
    """An empty table, with columns of words and then columns of numbers."""
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=0)
    for name in left:
        table.add_column(name, no_wrap=True)
    for name in right:
        table.add_column(name, justify="right", no_wrap=True)
    return table


def _style(wrong: int) -> str:
    return "bold red" if wrong else ""


def size(characters: int) -> str:
    """A number of characters.

    >>> size(1_400), size(10_000), size(4_400_000)
    ('1,400', '10 K', '4.4 M')
    """
    if characters >= MILLION:
        return f"{characters / MILLION:g} M"
    return f"{characters // 1000} K" if characters % 1000 == 0 else f"{characters:,}"


def duration(*seconds: float) -> str:
    """Times in the unit that suits the first.

    >>> duration(2.51e-5, 0.0012), duration(0.0123)
    ('25.1/1200 µs', '12.3 ms')
    """
    scale, unit = (1e6, "µs") if seconds[0] < 1e-3 else (1e3, "ms") if seconds[0] < 1 else (1.0, "s")
    return "/".join(digits(scale * each).replace(",", "") for each in seconds) + f" {unit}"


def times(ratio: float) -> str:
    """A ratio.

    >>> times(1234.5), times(1.049)
    ('1,234×', '1.05×')
    """
    return f"{digits(ratio)}×"


def digits(value: float) -> str:
    """A number in three digits, or all that stand before its point."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def as_json(name: str, tok: toktier.Tokenizer, text: str, result: Result, remarks: Sequence[str]) -> dict[str, Any]:
    """Everything for machines; times are in seconds."""
    shown = without_folder(name)
    return heading(f"{shown}: appends, updates and full encodes") | {
        "tokenizer": shown,
        "digest": tok.family.digest,
        "characters": len(text),
        "plan": asdict(result.plan),
        "left_out": [{"side": side, "name": name, "why": why} for (side, name), why in result.left_out.items()],
        "notes": list(remarks),
        "rows": [asdict(row.subject) | asdict(row, filter=_is_measured) for row in result.rows.values()],
        "bars": [asdict(bar) | {"met": bar.met} for bar in bars(result)],
    }


def _is_measured(attribute: Attribute[Any], value: object) -> bool:
    return attribute.name != "subject"
