"""Operations: what a caller does to sessions and engines, as data, and programs of them at random."""

from __future__ import annotations

import enum
import random
from collections.abc import Callable, Sequence
from typing import TypeAlias

from attrs import frozen


class Kind(enum.Enum):
    """What an operation calls; the value says it in words.

    Example:
        >>> Kind.APPEND.value
        'append'
    """

    APPEND = "append"
    EDIT = "edit"
    UPDATE = "update"
    FORK = "fork"
    REFUSED = "an operation that must raise"
    ENCODE = "encode"
    """The engine alone encodes a text."""
    PLAN = "encode in chunks"
    """The engine does, with the planner, which cuts what is long."""
    CUT = "cut everywhere"
    """The reference alone encodes what is between all certified cuts of a text."""

    def __repr__(self) -> str:
        return str(self)


OF_SESSIONS = (Kind.APPEND, Kind.EDIT, Kind.UPDATE, Kind.FORK, Kind.REFUSED)


@frozen
class Change:
    """One change: ``text[start:stop]`` becomes ``new``.

    Any integers will do: they are brought into range, whatever the text is.

    Attributes:
        start: The first character that is replaced; a negative one counts from the end.
        stop: The one behind the last; as well.
        new: What stands there then.

    Example:
        >>> Change(-3, -1, "AN").apply("banana")
        'banANa'
    """

    start: int
    stop: int
    new: str

    def span(self, length: int) -> tuple[int, int]:
        """The range in a text of some length; a negative position counts from the end."""
        places = [max(place + length, 0) if place < 0 else min(place, length) for place in (self.start, self.stop)]
        return min(places), max(places)

    def apply(self, text: str) -> str:
        """The text after the change."""
        start, stop = self.span(len(text))
        return text[:start] + self.new + text[stop:]


@frozen
class Operation:
    """One step of a program.

    Attributes:
        kind: What is called.
        changes: What it changes, one after the other: several for an update, none for a fork, one for the others. What
            concerns no session has its text there.
        at: Which of the sessions is used, counted round and round: there is one more after each fork.
        look: Read ids, list and text afterwards, keep them, and see that they stay as they are. The session then copies
            where it would else write in place, so programs do not always look.

    Example:
        >>> Operation(Kind.EDIT, (Change(0, 5, "Howdy"),), look=True)
        Operation(kind=Kind.EDIT, changes=(Change(start=0, stop=5, new='Howdy'),), at=0, look=True)
    """

    kind: Kind
    changes: tuple[Change, ...] = ()
    at: int = 0
    look: bool = False


END = 1 << 60
"""A position behind any text."""


def append(text: str, *, at: int = 0, look: bool = False) -> Operation:
    """A session is given more text."""
    return Operation(Kind.APPEND, (Change(END, END, text),), at, look)


def encode(text: str) -> Operation:
    """The engine alone is given a text."""
    return Operation(Kind.ENCODE, (Change(0, END, text),))


def plan(text: str) -> Operation:
    """The planner is given a text, to have it encoded by the engine."""
    return Operation(Kind.PLAN, (Change(0, END, text),))


def cut(text: str) -> Operation:
    """A text is cut at all its certified cuts."""
    return Operation(Kind.CUT, (Change(0, END, text),))


Program: TypeAlias = Sequence[Operation]


def shown(program: Program) -> str:
    """A program as code that can be run again."""
    return "[\n" + "".join(f"    {operation!a},\n" for operation in program) + "]"


def random_program(source: random.Random, texts: Callable[[int, int], str], length: int) -> list[Operation]:
    """A program of some operations on sessions.

    Args:
        source: Of everything random.
        texts: A random text of at least and at most so many fragments.
        length: How many operations.
    """
    program = []
    looks = source.choice((0.0, 0.2, 1.0))
    for _ in range(length):
        kind = source.choices(OF_SESSIONS, (40, 30, 20, 5, 5))[0]
        changes: tuple[Change, ...] = ()
        if kind is Kind.APPEND:
            changes = (Change(END, END, texts(0, 10)),)
        elif kind is not Kind.FORK:
            several = source.choice((1, 1, 2, 3, 5)) if kind is Kind.UPDATE else 1
            changes = tuple(_random_change(source, texts) for _ in range(several))
        program.append(Operation(kind, changes, source.randrange(4), source.random() < looks))
    return program


def _random_change(source: random.Random, texts: Callable[[int, int], str]) -> Change:
    start = source.choice((0, -1, END, source.randrange(10), source.randrange(100), -source.randrange(1, 10**4)))
    length = source.choice((0, 0, 1, source.randrange(10), source.randrange(100), source.randrange(3000)))
    stop = min(start + length, -1) if start < 0 else start + length
    return Change(start, stop, texts(0, 6))
