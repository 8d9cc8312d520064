"""Engines and libraries measured in turns on the same texts, and every result compared with the reference's.

A round gives everything its turn that is due, in an order drawn anew: whatever else the machine does meets all of them.
What is appended was never seen before by the engine. The reference is a copy of the library's tokenizer that nothing
else uses: it encodes each context with one turn in full, and a session with it as engine says what a change is to give.
"""

from __future__ import annotations

import gc
import random
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from itertools import pairwise
from typing import ParamSpec, TypeVar

import numpy as np
from attrs import evolve, frozen

from toktier.bench.contenders import REMEMBERING, Contender, Encode, contenders, copy_of
from toktier.bench.plan import Appends, NotMeasurable, Plan
from toktier.engines.base import Engine, Ids
from toktier.engines.reference import ReferenceEngine
from toktier.errors import UnknownEngine
from toktier.patch import Patch
from toktier.router import PROCESSOR
from toktier.session import Session
from toktier.tokenizer import Tokenizer

P = ParamSpec("P")
T = TypeVar("T")


@frozen
class Subject:
    """One thing that is measured.

    Attributes:
        operation: ``append``, and of several in a row the ``first append``; ``update``; ``encode``; and on a text that
            the engine has just encoded, ``append again`` beside ``encode alone``, which is the engine without the
            session and without the context.
        side: ``toktier`` or ``library``.
        name: The engine or the library.
        context: Characters before the change.
        characters: How many the change adds.
    """

    operation: str
    side: str
    name: str
    context: int
    characters: int


@frozen
class Row:
    """What was measured: seconds, and whether the ids were right.

    Attributes:
        subject: What it is about.
        samples: How many times it was measured.
        median: The median.
        p90: Nine out of ten took no longer.
        p99: The same of a hundred.
        mismatches: How many results differed from the reference's.
    """

    subject: Subject
    samples: int
    median: float
    p90: float
    p99: float
    mismatches: int


@frozen
class Result:
    """Everything that was measured.

    Attributes:
        plan: What was to be measured.
        engines: The engines that were, fastest first.
        libraries: The libraries that were.
        left_out: Why others were not, by ``(side, name)``.
        rows: By subject.
    """

    plan: Plan
    engines: tuple[str, ...]
    libraries: tuple[str, ...]
    left_out: dict[tuple[str, str], str]
    rows: dict[Subject, Row]

    @property
    def turn(self) -> int:
        """Characters of one turn."""
        return self.plan.appends[0].characters

    @property
    def mismatches(self) -> int:
        """How many results of toktier differed from the reference's."""
        return sum(row.mismatches for subject, row in self.rows.items() if subject.side == "toktier")

    def median(self, operation: str, side: str, name: str, context: int, characters: int | None = None) -> float | None:
        """A median by what it is about, a turn unless told otherwise; None if that was not measured."""
        row = self.rows.get(Subject(operation, side, name, context, characters or self.turn))
        return None if row is None else row.median


class Bench:
    """The engines and libraries of a tokenizer, about to be measured.

    Args:
        tok: The tokenizer.
        text: Begins with the longest context; what comes behind it is appended, bit by bit.
        plan: What to measure; fits the text.

    Raises:
        NotMeasurable: The tokenizer has no certified cuts.
    """

    def __init__(self, tok: Tokenizer, text: str, plan: Plan) -> None:
        if not tok.family.supported:
            raise NotMeasurable(f"each append would be a full encode, as there are no cuts: {tok.family.reason}")
        self.plan = plan
        self._tok = tok
        self._text = text
        self._used = plan.contexts[-1]
        self._source = random.Random(0)
        self._truth_engine = ReferenceEngine(copy_of(tok.reference.tokenizer))

        self._engines: dict[str, Engine] = {}
        self._contenders: list[Contender] = []
        self._left_out: dict[tuple[str, str], str] = {}
        self._contexts: dict[int, str] = {}
        self._sessions: dict[tuple[str, int], Session] = {}
        self._truths: dict[int, Session] = {}
        self._turns: dict[int, str] = {}
        self._wholes: dict[int, Ids] = {}
        """The ids of each context with a turn behind it, encoded in full."""
        self._seconds: defaultdict[Subject, list[float]] = defaultdict(list)
        self._mismatches: Counter[Subject] = Counter()

    def __len__(self) -> int:
        """The number of steps that :meth:`steps` takes."""
        return len(self.plan.contexts) + self.plan.rounds + 2

    def steps(self) -> Iterator[str]:
        """Measures, step by step; each is told before it is taken."""
        gc.disable()
        try:
            yield "loading engines and libraries"
            self._load()
            for context in self.plan.contexts:
                yield f"starting sessions of {context:,} characters"
                self._start(context)
            for number in range(self.plan.rounds):
                yield f"round {number + 1} of {self.plan.rounds}"
                gc.collect()
                self._round(number)
            yield "comparing with full encodes"
            self._finish()
        finally:
            gc.enable()

    def result(self) -> Result:
        """What was measured so far."""
        rows = {}
        for subject, seconds in self._seconds.items():
            median, p90, p99 = np.quantile(seconds, (0.5, 0.9, 0.99)).tolist()
            rows[subject] = Row(subject, len(seconds), median, p90, p99, self._mismatches[subject])
        libraries = tuple(contender.name for contender in self._contenders)
        return Result(self.plan, tuple(self._engines), libraries, self._left_out, rows)

    def _load(self) -> None:
        engines = {name: engine_of(self._tok, name) for name in PROCESSOR}
        self._engines = {name: engine for name, engine in engines.items() if not isinstance(engine, str)}
        self._contenders, left_out = contenders(self._tok.reference.tokenizer)
        self._left_out = {("toktier", name): why for name, why in engines.items() if isinstance(why, str)}
        self._left_out |= {("library", name): why for name, why in left_out.items()}

    def _start(self, context: int) -> None:
        # What ends where the rest begins: the kind of text that is encoded in full is the kind that is appended.
        text = self._contexts[context] = self._text[self.plan.contexts[-1] - context : self.plan.contexts[-1]]
        for name, engine in self._engines.items():
            self._sessions[name, context] = Session(self._tok, text, engine=engine)
        self._truths[context] = Session(self._tok, text, engine=self._truth_engine)
        self._turns[context] = self._fresh(self.plan.update)[0]
        self._wholes[context] = self._truth_engine.encode(text + self._turns[context])

    def _round(self, number: int) -> None:
        plan = self.plan
        for of in plan.appends:
            if plan.is_due(number, plan.times(of.share)):
                self._changes("append", of)
        if plan.is_due(number, plan.times(plan.updates)):
            self._changes("update", plan.update)
        for context in self._shuffled(plan.contexts):
            if plan.is_due(number, plan.encodes(context)):
                self._encodes(context)

    def _changes(self, operation: str, of: Appends) -> None:
        """New text for every session.

        One that is given several appends in a row finds the processor's caches full of other data at the first, and of
        its own at most of the others, as a library does that has just encoded the same text. Patches and ids are
        compared when all rows of an engine are over: in between that would read megabytes, and would be measured.
        """
        fresh = {context: self._fresh(of) for context in self.plan.contexts}
        expected = {c: [self._truths[c].append(piece) for piece in pieces] for c, pieces in fresh.items()}
        given = fresh
        if operation == "update":
            given = {c: [self._contexts[c] + piece for piece in pieces] for c, pieces in fresh.items()}
        for name in self._shuffled(self._engines):
            patches: dict[int, list[Patch]] = {}
            for context in self._shuffled(fresh):
                subject = Subject(operation, "toktier", name, context, of.characters)
                patches[context], seconds = _row(getattr(self._sessions[name, context], operation), given[context])
                self._seconds[subject] += seconds
                if operation == "append":
                    self._seconds[evolve(subject, operation="first append")].append(seconds[0])
            for context in fresh:
                subject = Subject(operation, "toktier", name, context, of.characters)
                self._compare(subject, patches[context], expected[context])
            if operation == "append" and of is self.plan.appends[0]:
                for context, pieces in fresh.items():
                    self._row_again(name, context, pieces, expected[context])
            if of is self.plan.appends[-1]:
                for context, pieces in fresh.items():
                    self._again(name, context, pieces[0], expected[context])
        for context in fresh:
            self._restore(self._truths[context], context)

    def _row_again(self, name: str, context: int, pieces: list[str], expected: list[Patch]) -> None:
        """The same appends once more: now the engine has seen their text, as has a library that encodes it again."""
        again = Subject("append again", "toktier", name, context, len(pieces[0]))
        patches, seconds = _row(self._sessions[name, context].append, pieces)
        self._seconds[again] += seconds
        self._compare(again, patches, expected)

    def _again(self, name: str, context: int, piece: str, expected: list[Patch]) -> None:
        """The engine alone on what was appended, and then the append once more."""
        alone = Subject("encode alone", "toktier", name, context, len(piece))
        again = Subject("append again", "toktier", name, context, len(piece))
        session = self._sessions[name, context]
        session.engine.encode(piece)  # so that the caches are as full of it for one as for the other
        ids, seconds = _timed(session.engine.encode, piece)
        self._seconds[alone].append(seconds)
        patch, seconds = _timed(session.append, piece)
        self._seconds[again].append(seconds)
        self._mismatches[alone] += not np.array_equal(ids, self._truth_engine.encode(piece))
        self._compare(again, [patch], expected)

    def _compare(self, subject: Subject, patches: list[Patch], expected: list[Patch]) -> None:
        """Counts what is wrong with patches and with the session they come from; takes the session back after that."""
        session, truth = self._sessions[subject.name, subject.context], self._truths[subject.context]
        wrong = sum(not _same(patch, right) for patch, right in zip(patches, expected, strict=True))
        self._mismatches[subject] += wrong or not np.array_equal(session.ids, truth.ids)
        self._restore(session, subject.context)

    def _encodes(self, context: int) -> None:
        """A context with a turn behind it, encoded in full by everything that can."""
        text, expected = self._contexts[context] + self._turns[context], self._wholes[context]
        for side, name, encode in self._shuffled(self._encoders()):
            if name in REMEMBERING:
                encode(text)
            ids, seconds = _timed(encode, text)
            subject = Subject("encode", side, name, context, self.plan.update.characters)
            self._seconds[subject].append(seconds)
            self._mismatches[subject] += not np.array_equal(np.asarray(ids, np.uint32), expected)

    def _encoders(self) -> Iterator[tuple[str, str, Encode]]:
        yield from (("library", contender.name, contender.encode) for contender in self._contenders)
        yield from (("toktier", name, engine.encode) for name, engine in self._engines.items())

    def _finish(self) -> None:
        """A last append to each session, compared with a full encode and not with another session."""
        for (name, context), session in self._sessions.items():
            session.append(self._turns[context])
            subject = Subject("append", "toktier", name, context, self.plan.update.characters)
            self._mismatches[subject] += not np.array_equal(session.ids, self._wholes[context])

    def _fresh(self, of: Appends) -> list[str]:
        """Text that nothing was given before."""
        start, self._used = self._used, self._used + of.characters * of.in_a_row
        return [self._text[i : i + of.characters] for i in range(start, self._used, of.characters)]

    def _restore(self, session: Session, context: int) -> None:
        session.update(self._contexts[context])

    def _shuffled(self, things: Iterable[T]) -> list[T]:
        listed = list(things)
        self._source.shuffle(listed)
        return listed


def engine_of(tok: Tokenizer, name: str) -> Engine | str:
    """An engine, or why it may not serve."""
    try:
        return tok.engine(name)
    except UnknownEngine as error:
        return str(error)


def _timed(call: Callable[P, T], *arguments: P.args, **named: P.kwargs) -> tuple[T, float]:
    start = time.perf_counter()
    result = call(*arguments, **named)
    return result, time.perf_counter() - start


def _row(call: Callable[[str], Patch], texts: list[str]) -> tuple[list[Patch], list[float]]:
    """Calls one after the other, with nothing in between, and the seconds that each takes."""
    patches, times = [], [time.perf_counter()]
    for text in texts:
        patches.append(call(text))
        times.append(time.perf_counter())
    return patches, [after - before for before, after in pairwise(times)]


def _same(patch: Patch, expected: Patch) -> bool:
    bounds = patch.start, patch.stop
    return bounds == (expected.start, expected.stop) and np.array_equal(patch.ids, expected.ids)
