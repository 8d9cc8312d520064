"""Programs led beside plain data: sessions and engines do what operations say, and a string and a list say what is due.

:func:`run` compares with a full encode by the reference after every operation. What operations are is
:mod:`toktier.campaign.operations`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
from attrs import define, evolve, field, frozen

from toktier import seams
from toktier.campaign.operations import OF_SESSIONS, Kind, Operation, Program
from toktier.campaign.watched import Broken, Watched
from toktier.engines.base import Engine, Ids, contained
from toktier.engines.reference import ReferenceEngine
from toktier.errors import InvalidText
from toktier.planner import parts
from toktier.session import Session
from toktier.tokenizer import Tokenizer

if TYPE_CHECKING:
    from toktier import Patch

Reference: TypeAlias = Callable[[str], list[int]]
"""A full encode by the reference library."""


@frozen
class Problem:
    """What went wrong in a program.

    Attributes:
        number: Of the operation, counted from 1; None when it shows only afterwards.
        kind: What the operation calls.
        message: What is wrong, in words.
        expected: The ids of the reference, if it is them that differ.
        got: The ids in their place.

    Example:
        >>> print(Problem(2, Kind.EDIT, "another text"))
        operation 2, edit: another text
    """

    number: int | None
    kind: Kind | None
    message: str
    expected: tuple[int, ...] | None = field(default=None, repr=False)
    got: tuple[int, ...] | None = field(default=None, repr=False)

    def __str__(self) -> str:
        return self.message if self.kind is None else f"operation {self.number}, {self.kind.value}: {self.message}"


def reference_ids(tok: Tokenizer) -> Reference:
    """A full encode by the tokenizer's own reference.

    Example:
        >>> import toktier
        >>> reference_ids(toktier.load("toktier-mini"))("Hello")
        [39, 523, 323]
    """
    engine = tok.engine(ReferenceEngine.name)
    return lambda text: engine.encode(text).tolist()


def run(program: Program, tok: Tokenizer, reference: Reference, engine: Engine | None = None) -> Problem | None:
    """What went wrong first in a program; None when nothing did.

    Args:
        program: What to do.
        tok: The tokenizer.
        reference: What to compare with. A text that it cannot encode ends the program: nothing is right or wrong.
        engine: What encodes for the sessions, and is given texts alone. Not given: the tokenizer's ``"auto"``.

    Example:
        >>> import toktier
        >>> from toktier.campaign.operations import append, cut
        >>> tok = toktier.load("toktier-mini")
        >>> run([append("A few"), append(" words."), cut("A few words.")], tok, reference_ids(tok))
    """
    led = _Led(tok, reference, Watched(engine or tok.engine()))
    for number, operation in enumerate(program, 1):
        try:
            problem = led.step(operation)
        except _Unanswered:
            return None
        except BaseException as error:
            if not contained(error):
                raise
            problem = _problem(f"{type(error).__name__}: {error}")
        if problem:
            return evolve(problem, number=number, kind=operation.kind)
    return led.end()


class _Unanswered(Exception):
    """The reference cannot encode a text, so there is nothing to compare with."""


@define
class _Beside:
    """A session, and what it should hold."""

    session: Session
    text: str = ""
    ids: list[int] = field(factory=list)


class _Led:
    """The sessions of a program on its way."""

    def __init__(self, tok: Tokenizer, reference: Reference, watched: Watched) -> None:
        self._tok, self._reference, self._watched = tok, reference, watched
        self._sessions = [_Beside(Session(tok, engine=watched))]
        self._handed_out: list[tuple[Ids | list[int], Ids | list[int]]] = []

    def step(self, operation: Operation) -> Problem | None:
        """Does an operation, and sees whether all is right."""
        beside = self._sessions[operation.at % len(self._sessions)]
        if operation.kind not in OF_SESSIONS:
            return self._alone(operation.kind, operation.changes[0].new)
        problem = None
        if operation.kind is Kind.FORK:
            self._sessions.append(_Beside(beside.session.fork(), beside.text, beside.ids.copy()))
        elif operation.kind is Kind.REFUSED:
            problem = self._refused(beside, operation)
        else:
            problem = self._changed(beside, operation)
        return self._looked(beside) if operation.look and not problem else problem

    def end(self) -> Problem | None:
        """Sees whether all is right still."""
        for beside in self._sessions:
            if problem := self._looked(beside):
                return evolve(problem, message=f"at the end: {problem.message}")
        if not all(np.array_equal(now, then) for now, then in self._handed_out):
            return _problem("an array or a list that was handed out has changed")
        return None

    def _alone(self, kind: Kind, text: str) -> Problem | None:
        expected = self._expected(text)
        if kind is Kind.ENCODE:
            got = self._watched.encode(text).tolist()
        elif kind is Kind.PLAN:
            got = self._tok.planner.encode(text, self._watched).tolist()
        else:
            got = self._cut_everywhere(text)
        return None if got == expected else _differing(expected, got)

    def _cut_everywhere(self, text: str) -> list[int]:
        family, known = self._tok.family, dict[str, list[int]]()  # a long text has the same words again and again
        first, *others = parts(text, family.cuts(text, continuation=True).tolist())
        found = self._expected(first)[:]
        for part in others:
            if part not in known:
                lead = family.lead(part) or ""
                known[part] = self._expected(lead + part)[len(self._expected(lead)) :]
            found += known[part]
        return found

    def _changed(self, beside: _Beside, operation: Operation) -> Problem | None:
        before, old = beside.text, len(beside.ids)
        for change in operation.changes:
            beside.text = change.apply(beside.text)
        self._watched.characters = 0
        expected = self._expected(beside.text)
        patch = _call(beside.session, operation, before, beside.text)
        if not 0 <= patch.start <= patch.stop <= old:
            return _problem(f"{patch} is out of range for {old} ids")
        patch.apply(beside.ids)
        if beside.ids != expected:
            return _differing(expected, beside.ids)
        if len(beside.session) != len(expected):
            return _problem(f"{len(beside.session)} ids, not {len(expected)}")
        return self._of_the_change(before, operation) if operation.kind is Kind.APPEND else None

    def _of_the_change(self, before: str, operation: Operation) -> Problem | None:
        """Whether an append cost no more than what was appended."""
        family, seen = self._tok.family, self._watched.characters
        tail = len(before) - family.last_cut(before, 0, len(before) - 1)
        allowed = tail + len(operation.changes[0].new)
        if family.prefixed:
            allowed += 2 * (allowed // seams.SPACING + 3)  # each part, and each lead by itself, has one more character
        if not family.supported or seen <= allowed:
            return None
        return _problem(f"the engine saw {seen} characters, the last cut was {tail} before the end")

    def _refused(self, beside: _Beside, operation: Operation) -> Problem | None:
        """Calls that raise, after which the session must be as it was: what follows in the program shows it."""
        session, (change,) = beside.session, operation.changes
        length = len(beside.text)
        start, stop = change.span(length)
        calls: list[tuple[type[Exception], Callable[[], object]]] = [
            (InvalidText, lambda: session.append(f"{change.new}\ud800")),
            (InvalidText, lambda: session.edit(start, stop, f"\udfff{change.new}")),
            (InvalidText, lambda: session.update(f"{change.apply(beside.text)}\ud83d")),
            (IndexError, lambda: session.edit(start, length + 1, change.new)),
            (IndexError, lambda: session.edit(-1, stop, change.new)),
            (TypeError, lambda: session.append(change.new.encode())),  # type: ignore[arg-type]
            (TypeError, lambda: session.update(None)),  # type: ignore[arg-type]
        ]
        for error, call in calls:
            with contextlib.suppress(error):
                return _problem(f"{call()} where {error.__name__} was due")
        self._watched.fails = True
        try:
            # An update that changes nothing need not encode anything, but one at both ends must.
            session.update(f"{change.new}x{beside.text}y")
        except Broken:
            return None
        finally:
            self._watched.fails = False
        return _problem("an engine that fails went unnoticed")

    def _looked(self, beside: _Beside) -> Problem | None:
        session, ids = beside.session, beside.session.ids
        if ids.flags.writeable or ids.dtype != np.uint32:
            return _problem(f"ids are {'writeable ' * ids.flags.writeable}{ids.dtype}")
        listed = session.tolist()
        if not ids.tolist() == listed == beside.ids:
            return _problem("ids, tolist() and the patches say different things")
        if session.text != beside.text:
            return _problem("another text")
        self._handed_out += [(ids, ids.copy()), (listed, listed.copy())]
        return None

    def _expected(self, text: str) -> list[int]:
        try:
            return self._reference(text)
        except BaseException as error:
            if not contained(error):
                raise
            raise _Unanswered from error


def _call(session: Session, operation: Operation, before: str, after: str) -> Patch:
    if operation.kind is Kind.UPDATE:
        return session.update(after)
    change = operation.changes[0]
    if operation.kind is Kind.APPEND:
        return session.append(change.new)
    return session.edit(*change.span(len(before)), change.new)


def _problem(message: str) -> Problem:
    return Problem(None, None, message)


def _differing(expected: Sequence[int], got: Sequence[int]) -> Problem:
    return Problem(None, None, in_words(expected, got), tuple(expected), tuple(got))


def first_difference(expected: Sequence[int], got: Sequence[int]) -> int:
    """Where two lists of ids part.

    >>> first_difference([1, 2, 3], [1, 2, 4]), first_difference([1, 2], [1, 2, 3])
    (2, 2)
    """
    pairs = enumerate(zip(expected, got, strict=False))
    return next((i for i, (a, b) in pairs if a != b), min(len(expected), len(got)))


def in_words(expected: Sequence[int], got: Sequence[int]) -> str:
    """The same in words.

    >>> in_words([1, 2, 3], [1, 2, 4])
    '3 ids where the reference has 3; from id 2 on [4] where it has [3]'
    """
    at = first_difference(expected, got)
    return (
        f"{len(got)} ids where the reference has {len(expected)}; from id {at} on "
        f"{list(got[at : at + 6])} where it has {list(expected[at : at + 6])}"
    )
