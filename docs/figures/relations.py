"""The figures of pair relations: the matrix of a real tokenizer, and that of one small enough to be read off."""

from __future__ import annotations

import functools
import unicodedata
from collections.abc import Callable, Iterator, Sequence

import tokenizers
from attrs import evolve, frozen
from tokenizers import Regex, models, pre_tokenizers

import toktier
from docs.figures.automata import PATTERN, can_cross
from docs.figures.drawing import Drawing, Palette
from toktier.families.automaton import automaton_of
from toktier.families.family import Family
from toktier.families.pattern import parse
from toktier.families.probing import Probe
from toktier.inspection import Kind, kinds, visible

SIDE = 27
"""Of a cell."""

GROUPS = {"L": "letters", "N": "numbers"}
"""General categories of Unicode."""

SPACES = " \t\n\v\f\r\x85\xa0"
"""What ``\\s`` contains below U+0250."""


@frozen
class Cell:
    """What a matrix says of a pair.

    Attributes:
        sign: What stands in the cell.
        is_cut: Whether every text may be cut between the two.
    """

    sign: str
    is_cut: bool = False


CUT = Cell("✓", is_cut=True)
LITERAL = Cell("‹›")
CROSSED = Cell("→")
NEITHER = Cell("·")
NOTHING = Cell("")


def mini(palette: Palette) -> str:
    """The relation of toktier-mini, and what its added tokens take from it."""
    family = toktier.load("toktier-mini").family
    bare = Family.derive(evolve(family.definition, literals=()), Probe())

    def cell(left: str, right: str) -> Cell:
        if family.is_pair(left, right):
            return CUT
        return LITERAL if bare.is_pair(left, right) else NOTHING

    legend = [
        (CUT, "certified cut: every text may be cut between the two"),
        (LITERAL, "would be one, but an added token has the two side by side"),
        (NOTHING, "not certified: the split pattern may see the two together"),
    ]
    return matrix("The pair relation of toktier-mini", family, cell, legend, palette)


def small(palette: Palette) -> str:
    """The relation of the example pattern, with the reason for each pair that is none."""
    family, automaton = example().family, automaton_of(parse(PATTERN))

    def cell(left: str, right: str) -> Cell:
        if family.is_pair(left, right):
            return CUT
        return CROSSED if can_cross(automaton, left, right) else NEITHER

    legend = [
        (CUT, "certified cut"),
        (CROSSED, "the pattern can read one after the other: an arrow joins them"),
        (NEITHER, "no arrow, but neither is in a match for certain"),
    ]
    return matrix(f"The pair relation behind {PATTERN.replace(' ', '␣')}", family, cell, legend, palette)


@functools.cache
def example() -> toktier.Tokenizer:
    """A tokenizer of single bytes behind the example pattern, with a model that may be given nothing in two parts."""
    bytes_only = {character: id for id, character in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
    tokenizer = tokenizers.Tokenizer(models.BPE(bytes_only, [], ignore_merges=True))
    split = pre_tokenizers.Split(Regex(PATTERN), "isolated")
    last = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([split, last])
    return toktier.load(tokenizer)


def matrix(
    title: str,
    family: Family,
    cell: Callable[[str, str], Cell],
    legend: Sequence[tuple[Cell, str]],
    palette: Palette,
) -> str:
    """Draws a relation: a row for what stands left of a cut, a column for what stands right of it."""
    every = kinds(family)
    left, top = 190, 78
    height = top + len(every) * SIDE + 26 + 24 * len(legend)
    drawing = Drawing((max(left + len(every) * SIDE + 12, 470), height), title, palette)
    drawing.text(12, 24, title, bold=True)
    drawing.text(12, top - 10, "character on the left ↓", color=palette.muted, size=12)
    drawing.text(left, top - 28, "character on the right →", color=palette.muted, size=12)
    for column, right in enumerate(every):
        drawing.text(
            left + (column + 0.5) * SIDE, top - 9, visible(right.examples[0]), size=15, anchor="middle", mono=True
        )
    for row, kind in enumerate(every):
        y = top + row * SIDE
        drawing.text(12, y + 18, visible(kind.examples[0]), size=15, mono=True)
        drawing.text(44, y + 18, named(kind, every), color=palette.muted, size=12)
        for column, right in enumerate(every):
            show(drawing, cell(kind.examples[0], right.examples[0]), left + column * SIDE, y)
    y = top + len(every) * SIDE + 18
    for number, (shown, meaning) in enumerate(legend):
        show(drawing, shown, 12, y + number * 24, side=20)
        drawing.text(40, y + number * 24 + 15, meaning, color=palette.muted, size=12)
    return drawing.svg()


def show(drawing: Drawing, cell: Cell, x: float, y: float, *, side: float = SIDE) -> None:
    """Draws a cell of a matrix, or of its legend."""
    tone = drawing.palette.encoded if cell.is_cut else drawing.palette.kept
    drawing.box(x + 1, y + 1, side - 2, side - 2, evolve(tone, edge=tone.fill), radius=3)
    if cell.sign:
        drawing.text(x + side / 2, y + side / 2 + 5, cell.sign, color=tone.text, size=13, anchor="middle")


def named(kind: Kind, every: Sequence[Kind]) -> str:
    """A kind in words, or its characters if they are few."""
    if sum(map(len, kind.characters)) <= 4:
        return " ".join(visible(one) for one in kind.examples)
    groups = groups_of(kind)
    if len(groups) > 1:
        return "all other characters"
    others = set().union(*(groups_of(other) for other in every if other is not kind))
    return f"all other {min(groups)}" if groups & others else min(groups)


def groups_of(kind: Kind) -> set[str]:
    """What a kind has of letters, numbers and so on below U+0250, where all versions of Unicode agree."""
    latin = (chr(point) for each in kind.characters for point in each if point < 0x250)
    return {"whitespace" if one in SPACES else GROUPS.get(unicodedata.category(one)[0], "characters") for one in latin}


def figures() -> Iterator[tuple[str, Callable[[Palette], str]]]:
    """The names of these figures, and what draws them."""
    yield "relation", mini
    yield "relation-small", small
