"""The smallest that fails: parts of texts and programs are left out for as long as the rest still does.

Source: A. Zeller and R. Hildebrandt, "Simplifying and isolating failure-inducing input" (2002), without their tests of
the parts themselves: what is left out is half of all at first, and at last one at a time.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from typing import TypeVar

from attrs import evolve

from toktier.campaign.operations import Change, Kind, Operation, Program, encode

Anything = TypeVar("Anything")


def shrink(
    items: Sequence[Anything], fails: Callable[[list[Anything]], bool], *, until: float = math.inf
) -> list[Anything]:
    """A part of a sequence that fails, from which nothing can be left out without its failing no more.

    Args:
        items: What fails.
        fails: Whether a part does.
        until: The time, by ``time.monotonic``, at which the smallest part that is known by then has to do.

    Example:
        >>> shrink("a needle in a haystack", lambda kept: {"n", "y"} <= set(kept))
        ['n', 'y']
    """
    kept, size = list(items), max(len(items) // 2, 1)
    while True:
        length, i = len(kept), 0
        while i < len(kept):
            if time.monotonic() > until:
                return kept
            shorter = kept[:i] + kept[i + size :]
            if fails(shorter):
                kept = shorter
            else:
                i += size
        if size == 1 and len(kept) == length:
            return kept
        size = max(size // 2, 1)


def shrink_text(text: str, fails: Callable[[str], bool], *, until: float = math.inf) -> str:
    """The same for a text, of which characters are left out.

    Example:
        >>> shrink_text("a needle in a haystack", lambda text: "needle" in text)
        'needle'
    """
    return "".join(shrink(text, lambda characters: fails("".join(characters)), until=until))


def shrink_program(program: Program, fails: Callable[[Program], bool], *, until: float = math.inf) -> Program:
    """The same for a program, of which operations, changes, and characters of the texts are left out.

    What the engine alone encodes is often a beginning of what it encodes next, and stays one.
    """
    kept = shrink_together(shrink(program, fails, until=until), fails, until=until)

    def fewer_changes(i: int) -> list[Operation]:
        fewer = shrink(kept[i].changes, lambda changes: fails(with_changes(kept, i, changes)), until=until)
        return with_changes(kept, i, fewer)

    def less_text(i: int, k: int) -> list[Operation]:
        text = shrink_text(kept[i].changes[k].new, lambda text: fails(with_text(kept, i, k, text)), until=until)
        return with_text(kept, i, k, text)

    for i in range(len(kept)):
        if kept[i].kind is Kind.UPDATE:
            kept = fewer_changes(i)
        for k in range(len(kept[i].changes)):
            kept = less_text(i, k)
    return shrink(kept, fails, until=until)


def shrink_together(program: list[Operation], fails: Callable[[Program], bool], *, until: float) -> list[Operation]:
    """Leaves out the same characters of the longest text that is encoded alone and of all that are beginnings of it."""
    alone = [i for i, operation in enumerate(program) if operation.kind is Kind.ENCODE]
    longest = max((program[i].changes[0].new for i in alone), key=len, default="")
    stops = {i: len(text) for i in alone if longest.startswith(text := program[i].changes[0].new)}
    if len(stops) < 2:
        return program

    def shortened(places: Sequence[int]) -> list[Operation]:
        short = list(program)
        for i, stop in stops.items():
            short[i] = encode("".join(longest[place] for place in places if place < stop))
        return short

    return shortened(shrink(range(len(longest)), lambda places: fails(shortened(places)), until=until))


def with_changes(program: Program, i: int, changes: Sequence[Change]) -> list[Operation]:
    """A program in which an operation has other changes."""
    return [*program[:i], evolve(program[i], changes=tuple(changes)), *program[i + 1 :]]


def with_text(program: Program, i: int, k: int, text: str) -> list[Operation]:
    """A program in which a change of an operation has another text."""
    changes = program[i].changes
    return with_changes(program, i, [*changes[:k], evolve(changes[k], new=text), *changes[k + 1 :]])
