"""Session programs: what a caller does to sessions, as data, so that a failing one can be made smaller.

:func:`run` leads sessions through a program beside a plain string and a plain list, and compares with a full encode by
the reference after every operation.
"""

from __future__ import annotations

import contextlib
import enum
import random
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar
from unittest import mock

import numpy as np
from attrs import define, evolve, field, frozen

import toktier
from tests.material import Reference
from toktier import Patch, Session, difference, idarray, piecetable, planner, seams, session
from toktier.engines.base import Engine, Ids


class Kind(enum.Enum):
    """What is called."""

    APPEND = "append"
    EDIT = "edit"
    UPDATE = "update"
    FORK = "fork"
    REFUSED = "an operation that must raise"

    def __repr__(self) -> str:
        return str(self)


@frozen
class Change:
    """``text[start:stop]`` becomes ``new``. Any integers will do: they are brought into range, whatever the text is."""

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
        changes: What it changes, one after the other: several for an update, one for the others, none for a fork.
        at: Which of the sessions is used, counted round and round: there is one more after each fork.
        look: Read ids, list and text afterwards, keep them, and see that they stay as they are. The session then copies
            where it would else write in place, so programs do not always look.
    """

    kind: Kind
    changes: tuple[Change, ...] = ()
    at: int = 0
    look: bool = False


END = 1 << 60
"""A position behind any text."""


def append(text: str, *, at: int = 0, look: bool = False) -> Operation:
    return Operation(Kind.APPEND, (Change(END, END, text),), at, look)


Program = Sequence[Operation]


class Broken(Exception):
    """What an engine raises that was told to fail."""


@define
class Watched:
    """An engine that counts the characters it is given, and fails when it is told to."""

    engine: Engine
    characters: int = 0
    fails: bool = False
    name: str = "watched"

    def encode(self, text: str, *, continuation: bool = False) -> Ids:
        self._meet(text)
        return self.engine.encode(text, continuation=continuation)

    def encode_batch(self, texts: Sequence[str], *, continuation: bool = False) -> list[Ids]:
        self._meet(*texts)
        return self.engine.encode_batch(texts, continuation=continuation)

    def _meet(self, *texts: str) -> None:
        if self.fails:
            raise Broken
        self.characters += sum(map(len, texts))


@define
class _Beside:
    """A session, and what it should hold."""

    session: Session
    text: str = ""
    ids: list[int] = field(factory=list)


def run(program: Program, tok: toktier.Tokenizer, reference: Reference, engine: Engine | None = None) -> str | None:
    """What went wrong first in a program, in words; None when nothing did."""
    watched = Watched(engine or tok.engine())
    sessions = [_Beside(Session(tok, engine=watched))]
    handed_out: list[tuple[object, object]] = []
    for number, operation in enumerate(program, 1):
        beside = sessions[operation.at % len(sessions)]
        try:
            if operation.kind is Kind.FORK:
                sessions.append(_Beside(beside.session.fork(), beside.text, beside.ids.copy()))
                problem = None
            elif operation.kind is Kind.REFUSED:
                problem = _refused(beside, operation, watched)
            else:
                problem = _step(beside, operation, watched, tok, reference)
            if operation.look and not problem:
                problem = _look(beside, handed_out)
        except Exception as error:
            problem = f"{type(error).__name__}: {error}"
        if problem:
            return f"operation {number}, {operation.kind.value}: {problem}"
    for beside in sessions:
        if problem := _look(beside, handed_out):
            return f"at the end: {problem}"
    if any(not _same(before, after) for before, after in handed_out):
        return "an array or a list that was handed out has changed"
    return None


def _step(
    beside: _Beside, operation: Operation, watched: Watched, tok: toktier.Tokenizer, reference: Reference
) -> str | None:
    before, old = beside.text, len(beside.ids)
    for change in operation.changes:
        beside.text = change.apply(beside.text)
    watched.characters = 0
    patch = _call(beside.session, operation, before, beside.text)
    if not 0 <= patch.start <= patch.stop <= old:
        return f"{patch} is out of range for {old} ids"
    patch.apply(beside.ids)
    if beside.ids != (expected := reference(beside.text)):
        return first_difference(expected, beside.ids)
    if len(beside.session) != len(expected):
        return f"{len(beside.session)} ids, not {len(expected)}"
    if operation.kind is Kind.APPEND and tok.family.supported:
        tail = len(before) - tok.family.last_cut(before, 0, len(before) - 1)
        if watched.characters > tail + len(operation.changes[0].new):
            return f"the engine saw {watched.characters} characters, the last cut was {tail} before the end"
    return None


def _call(session: Session, operation: Operation, before: str, after: str) -> Patch:
    if operation.kind is Kind.UPDATE:
        return session.update(after)
    change = operation.changes[0]
    if operation.kind is Kind.APPEND:
        return session.append(change.new)
    return session.edit(*change.span(len(before)), change.new)


def _refused(beside: _Beside, operation: Operation, watched: Watched) -> str | None:
    """Calls that raise, after which the session must be as it was: what follows in the program shows it."""
    session, (change,) = beside.session, operation.changes
    length = len(beside.text)
    start, stop = change.span(length)
    calls: list[tuple[type[Exception], Callable[[], object]]] = [
        (toktier.InvalidText, lambda: session.append(f"{change.new}\ud800")),
        (toktier.InvalidText, lambda: session.edit(start, stop, f"\udfff{change.new}")),
        (toktier.InvalidText, lambda: session.update(f"{change.apply(beside.text)}\ud83d")),
        (IndexError, lambda: session.edit(start, length + 1, change.new)),
        (IndexError, lambda: session.edit(-1, stop, change.new)),
        (TypeError, lambda: session.append(change.new.encode())),  # type: ignore[arg-type]
        (TypeError, lambda: session.update(None)),  # type: ignore[arg-type]
    ]
    for error, call in calls:
        with contextlib.suppress(error):
            return f"{call()} where {error.__name__} was due"
    watched.fails = True
    try:
        # An update that changes nothing need not encode anything, but one at both ends must.
        session.update(f"{change.new}x{beside.text}y")
    except Broken:
        return None
    finally:
        watched.fails = False
    return "an engine that fails went unnoticed"


def _look(beside: _Beside, handed_out: list[tuple[object, object]]) -> str | None:
    session, ids = beside.session, beside.session.ids
    if ids.flags.writeable or ids.dtype != np.uint32:
        return f"ids are {'writeable ' * ids.flags.writeable}{ids.dtype}"
    listed = session.tolist()
    if not ids.tolist() == listed == beside.ids:
        return "ids, tolist() and the patches say different things"
    if session.text != beside.text:
        return "another text"
    handed_out += [(ids, ids.copy()), (listed, listed.copy())]
    return None


def _same(now: object, then: object) -> bool:
    return np.array_equal(now, then) if isinstance(now, np.ndarray) else now == then  # type: ignore[arg-type]


def first_difference(expected: Sequence[int], got: Sequence[int]) -> str:
    """Where two lists of ids part, in words."""
    at = next((i for i, (a, b) in enumerate(zip(expected, got, strict=False)) if a != b), min(len(expected), len(got)))
    return (
        f"{len(got)} ids where the reference has {len(expected)}; from id {at} on "
        f"{list(got[at : at + 6])} where it has {list(expected[at : at + 6])}"
    )


# Programs at random


def random_program(source: random.Random, texts: Callable[[int, int], str], length: int) -> list[Operation]:
    """A program of some operations.

    Args:
        source: Of everything random.
        texts: A random text of at least and at most so many fragments.
        length: How many operations.
    """
    program = []
    looks = source.choice((0.0, 0.2, 1.0))
    for _ in range(length):
        kind = source.choices(list(Kind), (40, 30, 20, 5, 5))[0]
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


@contextlib.contextmanager
def small_rooms() -> Iterator[None]:
    """Makes short texts large: seams, hunks and pieces become so small that a few characters have many of them."""
    with (
        mock.patch.multiple(seams, SPACING=6, CHUNK=12, COARSE=24),
        mock.patch.multiple(session, LONG=24, COARSE=24),
        mock.patch.multiple(planner, CHUNK=12, REACH=5, LONG=24),
        mock.patch.multiple(difference, SAMPLE=3, OFFSETS=(0, 2, 5, 11), REACH=40, WORTHWHILE=4),
        mock.patch.multiple(piecetable, LIMIT=8, BLOCK=4, SLACK=16),
        mock.patch.object(idarray, "SPARE", 1),
    ):
        yield


# The smallest that fails

Anything = TypeVar("Anything")


def shrink(items: Sequence[Anything], fails: Callable[[list[Anything]], bool]) -> list[Anything]:
    """A part of a sequence that fails, from which nothing can be left out without its failing no more."""
    kept, size = list(items), max(len(items) // 2, 1)
    while True:
        length, i = len(kept), 0
        while i < len(kept):
            shorter = kept[:i] + kept[i + size :]
            if fails(shorter):
                kept = shorter
            else:
                i += size
        if size == 1 and len(kept) == length:
            return kept
        size = max(size // 2, 1)


def shrink_text(text: str, fails: Callable[[str], bool]) -> str:
    """The same for a text, of which characters are left out."""
    return "".join(shrink(text, lambda characters: fails("".join(characters))))


def shrink_program(program: Program, fails: Callable[[Program], bool]) -> Program:
    """The same for a program, of which operations, changes, and characters of the texts are left out."""
    kept = shrink(program, fails)

    def with_changes(i: int, changes: Sequence[Change]) -> list[Operation]:
        return [*kept[:i], evolve(kept[i], changes=tuple(changes)), *kept[i + 1 :]]

    def with_text(i: int, k: int, text: str) -> list[Operation]:
        changes = kept[i].changes
        return with_changes(i, [*changes[:k], evolve(changes[k], new=text), *changes[k + 1 :]])

    def fewer_changes(i: int) -> list[Operation]:
        return with_changes(i, shrink(kept[i].changes, lambda changes: fails(with_changes(i, changes))))

    def less_text(i: int, k: int) -> list[Operation]:
        return with_text(i, k, shrink_text(kept[i].changes[k].new, lambda text: fails(with_text(i, k, text))))

    for i in range(len(kept)):
        if kept[i].kind is Kind.UPDATE:
            kept = fewer_changes(i)
        for k in range(len(kept[i].changes)):
            kept = less_text(i, k)
    return shrink(kept, fails)


def shown(program: Program) -> str:
    """A program as code that can be run again."""
    return "[\n" + "".join(f"    {operation!a},\n" for operation in program) + "]"
