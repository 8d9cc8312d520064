"""What ``toktier inspect`` shows: the report on a tokenizer, and its relation with examples of characters."""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Iterable, Sequence
from typing import Any

from attrs import asdict, frozen
from rich.cells import cell_len
from rich.table import Table
from rich.text import Text

from toktier.families.family import Family
from toktier.families.literal import Literal
from toktier.families.probing import SURROGATES
from toktier.report import Report
from toktier.tokenizer import Tokenizer

FAMILIAR = "aZzé09½ \t\n\r_.,!'/<中あ한"
"""Characters that make good examples."""

ESCAPES = {" ": " ", "\t": "\\t", "\n": "\\n", "\r": "\\r"}
PICTURES = {" ": "␣", "\t": "␉", "\n": "␊", "\v": "␋", "\f": "␌", "\r": "␍"}


def inspection(tok: Tokenizer, report: Report) -> dict[str, Any]:
    """Everything that ``inspect`` knows, for machines."""
    family = tok.family
    alphabet = family.alphabet() if family.supported else ()
    firsts = [chr(ranges[0].start) for ranges in alphabet]
    return asdict(report) | {
        "source_digest": family.source_digest,
        "literals": [asdict(literal) for literal in family.definition.literals],
        "alphabet": [
            {
                "examples": [one for one in examples(ranges) if ord(one) not in SURROGATES],
                "characters": sum(map(len, ranges)),
                "cut_before": [i for i, right in enumerate(firsts) if family.is_pair(left, right)],
            }
            for left, ranges in zip(firsts, alphabet, strict=True)
        ],
    }


def overview(source: str, tok: Tokenizer, report: Report) -> Table:
    """The report without the relation: names on the left, values on the right."""
    table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    table.add_row("tokenizer", shown(source))
    table.add_row("digest", report.digest)
    table.add_row("source digest", tok.family.source_digest)
    no = Text.assemble(("no: ", "bold red"), shown(report.reason or ""))
    table.add_row("supported", Text("yes", "bold green") if report.supported else no)
    for i, stage in enumerate(report.stages):
        table.add_row("" if i else "pipeline", shown(stage))
    table.add_row("added tokens", added_tokens(tok.family.definition.literals))
    for name, evidence in report.engines.items():
        used = " (used)" if name == report.auto else ""
        table.add_row("engine", shown(f"{name}{used}, {evidence}"))
    pairs = f"{report.sync_pairs:,} of {report.atoms**2:,} pairs are certified cuts"
    nothing = "no certified cuts: ids are exact all the same, and every call encodes in full"
    table.add_row("relation", f"{report.atoms} atoms, {pairs}" if report.supported else nothing)
    return table


def added_tokens(literals: Sequence[Literal]) -> str:
    """The number of added tokens, how many have each flag, and the first few."""
    flags = ("special", "normalized", "lstrip", "rstrip", "single_word")
    counted = [(sum(getattr(literal, flag) for literal in literals), flag) for flag in flags]
    numbers = [str(len(literals)), *(f"{number} {flag}" for number, flag in counted if number)]
    few = [visible(literal.content) for literal in literals[:6]]
    return "\n".join([", ".join(numbers), " ".join([*few, *["…"] * (len(literals) > len(few))])]).strip()


@frozen
class Kind:
    """Atoms that are alike in the whole relation, with a few examples, the best first."""

    characters: list[range]
    examples: list[str]

    @property
    def symbol(self) -> str:
        """A character that stands for all in a table, one or two cells wide."""
        pictures = (PICTURES.get(example, example) for example in self.examples)
        return next((picture for picture in pictures if plain(picture)), "◌")

    @property
    def order(self) -> tuple[int, int]:
        """Letters, then numbers, then whitespace, then punctuation, then what cannot be seen."""
        best = self.examples[0]
        category = "Z" if best.isspace() else unicodedata.category(best)[0]
        return {"L": 0, "N": 1, "Z": 2, "C": 4}.get(category, 3), ord(best)


def kinds(family: Family) -> list[Kind]:
    """The atoms of a family, those with equal rows and equal columns of the relation together.

    Without lone surrogates, which are in no text.
    """
    atoms = ([each for each in ranges if each.start not in SURROGATES] for ranges in family.alphabet())
    alphabet = [ranges for ranges in atoms if ranges]
    firsts = [chr(ranges[0].start) for ranges in alphabet]
    alike: dict[tuple[bool, ...], list[range]] = {}
    for character, ranges in zip(firsts, alphabet, strict=True):
        row = tuple(family.is_pair(character, other) for other in firsts)
        column = tuple(family.is_pair(other, character) for other in firsts)
        alike.setdefault(row + column, []).extend(ranges)
    return sorted((Kind(ranges, examples(ranges)) for ranges in alike.values()), key=lambda kind: kind.order)


def examples(ranges: Iterable[range]) -> list[str]:
    """Some characters of some ranges: those that everybody knows, then those that can be seen, then the others."""
    ranges = sorted(ranges, key=lambda each: each.start)
    found = [character for character in FAMILIAR if any(ord(character) in each for each in ranges)]
    found += sorted((chr(point) for each in ranges[:64] for point in each[:4]), key=lambda one: not plain(one))
    return list(dict.fromkeys(found))[:8]


def relation(family: Family, width: int) -> list[Table]:
    """The pairs as a table with a row for what may stand left of a cut and a column for what may stand right of it.

    Where the columns do not fit side by side, they are divided among several tables.
    """
    all_kinds = kinds(family)
    most = max(1, (width - 22) // 2)
    blocks = math.ceil(len(all_kinds) / most)
    size = math.ceil(len(all_kinds) / blocks)
    room = max(12, min(44, width - 6 - 2 * size))
    return [grid(family, all_kinds, all_kinds[start : start + size], room) for start in range(0, len(all_kinds), size)]


def grid(family: Family, lefts: Sequence[Kind], rights: Sequence[Kind], room: int) -> Table:
    """One table of the relation, with ``room`` cells for examples."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column()
    table.add_column("left ╲ right", width=room, no_wrap=True, style="dim", header_style="dim")
    symbols = (right.symbol for right in rights)
    table.add_column("".join(symbol + " " * (2 - cell_len(symbol)) for symbol in symbols), no_wrap=True)
    for left in lefts:
        marks = Text()
        for right in rights:
            marks.append(*(("✓ ", "green") if family.is_pair(left.examples[0], right.examples[0]) else ("· ", "dim")))
        table.add_row(Text(left.symbol, "bold"), listed(left, room), marks)
    return table


def listed(kind: Kind, room: int) -> str:
    """As many examples of a kind as there is room for, and how many more characters it has."""
    total = sum(map(len, kind.characters))
    text, count = "", 0
    for example in kind.examples:
        longer = f"{text} {visible(example)}".lstrip()
        rest = f" +{total - count - 1:,}" if total > count + 1 else ""
        if text and cell_len(longer + rest) > room:
            break
        text, count = longer, count + 1
    return f"{text} +{total - count:,}" if total > count else text


def plain(character: str) -> bool:
    """Whether a character can be shown as it is: it has a width, joins no other, and leaves the direction alone."""
    apart = unicodedata.category(character)[0] not in "CMZ" and cell_len(character) > 0
    return apart and unicodedata.bidirectional(character) not in ("R", "AL")


def shown(text: str) -> str:
    r"""A text in one line, with everything escaped that does not show itself: controls, combining marks, and the like.

    >>> shown("a\tb"), shown("e\u0301\x1b[0m"), shown("\u0301")
    ('a\\tb', 'e<U+0301><U+001B>[0m', 'U+0301')
    """
    if len(text) == 1 and not plain(text) and text not in ESCAPES:
        return f"U+{ord(text):04X}"
    return "".join(c if plain(c) else ESCAPES.get(c, f"<U+{ord(c):04X}>") for c in text)


def visible(text: str) -> str:
    """The same, with spaces that can be seen."""
    return shown(text).replace(" ", "␣")
