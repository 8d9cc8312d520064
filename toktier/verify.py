"""Shadow verification: some of the answers, encoded again by the reference in the background.

A proof covers the definition of a tokenizer. It does not cover libraries and their caches, which may go wrong after
days, on a text that no test has. So a small share of what is served is compared with the reference while it is served.
"""

from __future__ import annotations

import contextlib
import logging
import math
import os
import pathlib
import queue
import random
import threading
import time
import weakref
from collections.abc import Callable
from types import TracebackType
from typing import NamedTuple

import numpy as np
from attrs import evolve, frozen

from toktier.campaign.operations import Kind, Program, cut, encode
from toktier.campaign.programs import Problem, in_words, reference_ids, run
from toktier.campaign.reproduction import Reproduction
from toktier.campaign.shrinking import shrink_program
from toktier.campaign.verification import SHRINKING, made_again, not_made_again
from toktier.engines.base import Engine, Ids, contained
from toktier.route import Route
from toktier.tokenizer import Tokenizer
from toktier.untrusted import Spans

WAITING = 64
"""Answers that wait to be looked at, at most."""

CHARACTERS = 1 << 23
"""Characters that these have together, at most."""

logger = logging.getLogger(__name__)


@frozen
class Checks:
    """What a verifier did.

    Attributes:
        checked: Answers that were compared.
        mismatched: Those that were not the reference's.
        dropped: Answers that were due and were not compared, because too many waited or the reference could not encode
            them.

    Example:
        >>> import toktier
        >>> tok = toktier.load("toktier-mini")
        >>> with ShadowVerifier(tok, sample=1.0, quarantine=None) as verifier:
        ...     encoded = tok.encode_batch(["One", "Two"])
        >>> verifier.checks()
        Checks(checked=2, mismatched=0, dropped=0)
    """

    checked: int = 0
    mismatched: int = 0
    dropped: int = 0


@frozen
class Mismatch:
    """An answer that is not the reference's.

    Attributes:
        path: What was called: ``"append"``, ``"edit"``, ``"update"``, ``"full"`` or ``"planned"``.
        engine: The name of the engine.
        reproduction: What differs, made as small as it could be.
        file: Where that is saved; None without a quarantine, or if it could not be written.

    Example:
        >>> import toktier
        >>> tok, found = toktier.load("toktier-mini"), list[Mismatch]()
        >>> class Wrong:
        ...     name = "wrong"
        ...
        ...     def encode(self, text, *, continuation=False):
        ...         return np.zeros(len(text[:1]), np.uint32)
        ...
        ...     def encode_batch(self, texts, *, continuation=False):
        ...         return [self.encode(text) for text in texts]
        >>> with ShadowVerifier(tok, sample=1.0, quarantine=None, on_mismatch=found.append):
        ...     session = toktier.Session(tok, "Hello", engine=Wrong())
        >>> found[0].path, found[0].engine, found[0].reproduction.expected, found[0].reproduction.got
        ('full', 'wrong', (78,), (0,))
    """

    path: str
    engine: str
    reproduction: Reproduction
    file: pathlib.Path | None


class _Answer(NamedTuple):
    path: str
    engine: Engine
    size: int
    text: Callable[[], str]
    ids: Ids
    untrusted: Spans


class ShadowVerifier:
    """Compares a sample of all that is encoded with a tokenizer, by sessions, stores and itself, with the reference.

    It attaches itself to the tokenizer, one at a time, until it is closed. A thread does the work; what is due while 64
    answers or 8 million characters wait already is dropped and counted. A mismatch is logged, saved in the quarantine
    as a reproduction for ``toktier reproduce FILE``, and handed to ``on_mismatch``. The engine is demoted, if it
    is one of the tokenizer's own: the reference answers in its place for this family, everywhere in this process, until
    :meth:`toktier.Tokenizer.restore`. Sessions encode their text anew when they are used the next time.

    Each call has the same chance to be looked at, whatever came before. How many are passed over until the next one is
    drawn from a geometric distribution, which comes to the same as a draw for each (C. T. Fan, M. E. Muller and I.
    Rezucha, "Development of sampling plans by using sequential (item by item) selection techniques and digital
    computers", 1962).

    Args:
        tok: The tokenizer.
        sample: The share of all calls that are looked at, ``0 < sample <= 1``.
        seed: Of the sampling: the same calls one after the other are looked at.
        quarantine: The folder for reproductions; None for none.
        on_mismatch: Called by the thread with each :class:`Mismatch`.
        demote: Whether an engine is demoted that gave other ids.

    Raises:
        TypeError: The share is no number.
        ValueError: The share is out of range, or the tokenizer has a verifier already.

    Example:
        >>> import toktier
        >>> tok = toktier.load("toktier-mini")
        >>> with ShadowVerifier(tok, sample=1.0, quarantine=None) as verifier:
        ...     patch = tok.session("The quick brown fox").append(" jumps")
        ...     _ = verifier.drain()
        ...     verifier.checks()
        Checks(checked=2, mismatched=0, dropped=0)
    """

    def __init__(
        self,
        tok: Tokenizer,
        *,
        sample: float = 0.05,
        seed: int = 0,
        quarantine: str | os.PathLike[str] | None = "toktier-reproductions",
        on_mismatch: Callable[[Mismatch], None] | None = None,
        demote: bool = True,
    ) -> None:
        if not isinstance(sample, (int, float)):
            raise TypeError(f"sample must be a number, not {sample!r}")
        if not 0 < sample <= 1:
            raise ValueError(f"sample must be a share of all calls, above 0 and up to 1, not {sample}")
        if tok.meter.watcher is not None:
            raise ValueError(f"{tok!r} has a verifier already: close that one first")
        self._tok, self._quarantine = tok, None if quarantine is None else pathlib.Path(quarantine)
        self._on_mismatch, self._demote = on_mismatch, demote
        self._scale = math.log1p(-sample) if sample < 1 else -math.inf
        self._source = random.Random(seed)
        self._reference = tok.engine("reference")
        self._begin()
        self._left = self._gap()
        """Calls up to the next one that is looked at."""
        tok.meter.watcher = self
        _verifiers.add(self)

    def _begin(self) -> None:
        self._lock = threading.Lock()
        self._finished_one = threading.Condition(self._lock)
        self._queue: queue.SimpleQueue[_Answer | None] = queue.SimpleQueue()
        self._taken = self._finished = self._characters = 0
        """Answers that were taken, those of them that are done, and the characters of the others."""
        self._checks = Checks()
        self._closed = False
        self._thread = threading.Thread(target=self._work, name="toktier verifier", daemon=True)
        self._thread.start()

    def __repr__(self) -> str:
        return f"<toktier.verify.ShadowVerifier of {self._tok!r}: {self._checks}>"

    def checks(self) -> Checks:
        """What was done so far, in numbers; :meth:`drain` first, to have all that was taken in them.

        Example:
            >>> import toktier
            >>> with ShadowVerifier(toktier.load("toktier-mini"), quarantine=None) as verifier:
            ...     verifier.checks()
            Checks(checked=0, mismatched=0, dropped=0)
        """
        with self._lock:
            return self._checks

    def is_due(self, size: int) -> bool:
        """Whether the next call is looked at; see :meth:`toktier.meter.Watcher.is_due`."""
        # Without a lock, which would cost more than all the rest: of calls at the same moment, one may go uncounted.
        self._left -= 1
        return self._left <= 0 and self._has_room(size)

    def offer(
        self, path: str, engine: Engine, size: int, text: Callable[[], str], ids: Ids, *, untrusted: Spans = ()
    ) -> None:
        """Takes an answer; see :meth:`toktier.meter.Watcher.offer`."""
        with self._lock:
            if not self._closed:
                # What a signal handler raises may come before either: what waits is looked at, counted or not.
                self._queue.put(_Answer(path, engine, size, text, ids, untrusted))
                self._taken += 1
                self._characters += size

    def drain(self, timeout: float | None = None) -> bool:
        """Waits until everything is compared that was taken before.

        Args:
            timeout: Seconds to wait, at most. Not given: until it is so.

        Returns:
            Whether that is so.

        Raises:
            RuntimeError: It is called by ``on_mismatch``, for which the work waits.

        Example:
            >>> import toktier
            >>> tok = toktier.load("toktier-mini")
            >>> with ShadowVerifier(tok, sample=1.0, quarantine=None) as verifier:
            ...     ids = tok.encode("Hello")
            ...     verifier.drain(timeout=60), verifier.checks().checked
            (True, 1)
        """
        self._not_from_within()
        with self._lock:
            taken = self._taken
            return self._finished_one.wait_for(lambda: self._finished >= taken, timeout)

    def close(self) -> None:
        """Compares what was taken, and looks at nothing more. Leaving a ``with`` block does this.

        Raises:
            RuntimeError: It is called by ``on_mismatch``, for which the work waits.

        Example:
            >>> import toktier
            >>> tok = toktier.load("toktier-mini")
            >>> verifier = ShadowVerifier(tok, sample=1.0, quarantine=None)
            >>> ids = tok.encode("Hello")
            >>> verifier.close()
            >>> verifier.checks().checked
            1
        """
        self._not_from_within()
        with self._lock:
            if not self._closed:
                self._closed = True
                self._queue.put(None)
        if self._tok.meter.watcher is self:
            self._tok.meter.watcher = None
        self._thread.join()

    def _not_from_within(self) -> None:
        if threading.current_thread() is self._thread:
            raise RuntimeError("on_mismatch cannot wait for the verifier, which waits for it")

    def __enter__(self) -> ShadowVerifier:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def _gap(self) -> int:
        """Calls from one that is looked at to the next: geometric, as if a coin were thrown for each."""
        return 1 + math.floor(math.log(1.0 - self._source.random()) / self._scale)

    def _has_room(self, size: int) -> bool:
        with self._lock:
            self._left = self._gap()
            waiting = self._taken - self._finished
            # One that is too long by itself is looked at when nothing else waits.
            if not waiting or (waiting < WAITING and self._characters + size <= CHARACTERS):
                return True
            self._checks = evolve(self._checks, dropped=self._checks.dropped + 1)
            return False

    def _work(self) -> None:
        while (answer := self._queue.get()) is not None:
            size = answer.size
            try:
                self._look_at(answer)
            except BaseException:  # whatever it is, the next answer is looked at
                with contextlib.suppress(BaseException):  # also where it is the logging that raises
                    logger.exception("an answer of engine %s could not be looked at", answer.engine.name)
            finally:
                del answer  # a session copies its ids while somebody looks at them
                with self._finished_one:
                    self._finished += 1
                    self._taken = max(self._taken, self._finished)
                    self._characters = self._characters - size if self._taken > self._finished else 0
                    self._finished_one.notify_all()

    def _look_at(self, answer: _Answer) -> None:
        text = answer.text()
        forged = bool(answer.untrusted) and self._tok.protection.is_forged(text, answer.untrusted)
        try:
            if forged:
                expected = self._tok.protection.encode(text, answer.untrusted, self._reference)
            else:
                expected = self._reference.encode(text)
        except BaseException as error:
            if not contained(error):
                raise
            with self._lock:
                self._checks = evolve(self._checks, dropped=self._checks.dropped + 1)
            return
        same = np.array_equal(expected, answer.ids)
        with self._lock:
            checks = self._checks
            self._checks = evolve(checks, checked=checks.checked + 1, mismatched=checks.mismatched + (not same))
        if not same:
            self._report(answer, text, expected.tolist(), forged=forged)

    def _report(self, answer: _Answer, text: str, expected: list[int], *, forged: bool) -> None:
        name, got = answer.engine.name, answer.ids.tolist()
        words = in_words(expected, got)
        is_ours = isinstance(answer.engine, Route) and answer.engine.digest == self._tok.family.digest
        if self._demote and is_ours:  # before anything else that may fail
            self._tok.demote(name, f"other ids than the reference's in {answer.path}: {words}")
        logger.error("%s with engine %s for %r: %s", answer.path, name, self._tok, words)
        if self._demote and is_ours:
            logger.error("the reference answers in place of %s until Tokenizer.restore(%r)", name, name)
        problem = Problem(1, Kind.ENCODE, words, tuple(expected), tuple(got))
        # A program has no untrusted text: such an answer is kept as it is.
        if forged:
            found = not_made_again(self._tok, name, [encode(text)], problem)
        else:
            found = self._reproduction(answer.engine, text, problem)
        file = None
        if self._quarantine is not None:
            try:
                file = found.save(self._quarantine)
                logger.error("what differs is kept: toktier reproduce %s", file)
            except OSError as error:
                logger.error("the reproduction cannot be saved: %s", error)
        if self._on_mismatch is not None:
            try:
                self._on_mismatch(Mismatch(answer.path, name, found, file))
            except Exception:
                logger.exception("on_mismatch raised")

    def _reproduction(self, engine: Engine, text: str, problem: Problem) -> Reproduction:
        """The smallest program that goes wrong.

        First without any engine: then it is the relation that is wrong. Then with a new engine, also one that has seen
        beginnings of the text; where that is of no use, with the one that gave the answer.
        """
        tok, name, program = self._tok, engine.name, [encode(text)]
        if found := made_again(tok, None, [cut(text)], problem, []):
            return found
        if isinstance(engine, Route):
            beginnings = [text[: len(text) * k // 8] for k in range(1, 8)]
            if found := made_again(tok, name, program, problem, beginnings):
                return found
        reference, itself = reference_ids(tok), engine.engine if isinstance(engine, Route) else engine

        def fails(shorter: Program) -> bool:
            return run(shorter, tok, reference, itself) is not None

        if not fails(program):
            return not_made_again(tok, name, program, problem)
        small = shrink_program(program, fails, until=time.monotonic() + SHRINKING)
        return Reproduction.of(tok, name, small, run(small, tok, reference, itself) or problem)


_verifiers: weakref.WeakSet[ShadowVerifier] = weakref.WeakSet()


def _begin_anew() -> None:
    """In a child after a fork, where there is no thread, and a lock may be held by one for ever."""
    for verifier in list(_verifiers):
        if not verifier._closed:
            verifier._begin()


if hasattr(os, "register_at_fork"):  # not on Windows, which does not fork
    os.register_at_fork(after_in_child=_begin_anew)
