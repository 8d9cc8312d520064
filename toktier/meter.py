"""Counts what is done with a tokenizer, while it is done: calls, characters, latencies.

Counting must cost next to nothing beside an append of 20 microseconds, and lose nothing when threads count at once. So
each thread has counters of its own, which nobody else writes, and whoever wants to know adds them up.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable
from typing import Protocol, TypeAlias

from attrs import frozen

from toktier.engines.base import Engine, Ids
from toktier.untrusted import Spans

BUCKETS = 36
"""Of a histogram of latencies: bucket k has those below 2**k nanoseconds that no bucket before has; the last one has
all that took longer than 17 seconds."""

CALLS, SERVED, ENCODED, TOOK, FIRST_BUCKET = range(5)

_Counters: TypeAlias = "dict[tuple[str, str], list[int]]"


class Watcher(Protocol):
    """Somebody who looks at some of the answers, such as a :class:`toktier.verify.ShadowVerifier`.

    Any object with these two methods can be made the ``watcher`` of a tokenizer's meter, one at a time.

    Example:
        >>> import toktier
        >>> tok = toktier.Registry().load("toktier-mini")
        >>> class Reader:
        ...     def is_due(self, size):
        ...         return size < 100
        ...
        ...     def offer(self, path, engine, size, text, ids, *, untrusted=()):
        ...         print(path, engine.name, text(), len(ids))
        >>> tok.meter.watcher = Reader()
        >>> patch = tok.session("Hello", engine="memo").append(" world")
        full memo Hello 3
        append memo Hello world 5
    """

    def is_due(self, size: int) -> bool:
        """Whether to look at this one. Asked once for every answer, so it must be quick, and must not raise.

        Args:
            size: Characters of its text.

        Example:
            >>> import toktier
            >>> from toktier.verify import ShadowVerifier
            >>> tok = toktier.load("toktier-mini")
            >>> with ShadowVerifier(tok, sample=1.0, quarantine=None) as verifier:
            ...     verifier.is_due(1000)
            True
        """
        ...

    def offer(
        self, path: str, engine: Engine, size: int, text: Callable[[], str], ids: Ids, *, untrusted: Spans = ()
    ) -> None:
        """An answer that is due; must not take long, nor raise.

        Args:
            path: What was called: ``"append"``, ``"edit"``, ``"update"``, ``"full"`` or ``"planned"``, in chunks.
            engine: What encoded.
            size: Characters of the text.
            text: Gives the text, for which it may have to be put together.
            ids: The answer; it never changes; uint32, shape (tokens,).
            untrusted: The spans ``(start, stop)`` of the untrusted characters of the text, half-open, ascending.

        Example:
            >>> import toktier
            >>> from toktier.verify import ShadowVerifier
            >>> tok = toktier.load("toktier-mini")
            >>> engine = tok.engine("memo")
            >>> with ShadowVerifier(tok, quarantine=None) as verifier:
            ...     verifier.offer("full", engine, 5, lambda: "Hello", engine.encode("Hello"))
            ...     verifier.drain(), verifier.checks().checked
            (True, 1)
        """
        ...


@frozen
class Calls:
    """What calls of one kind came to; ``tok.meter.calls()`` has them by what was called and the engine.

    Attributes:
        calls: How many.
        served: Characters of the texts whose ids were asked for.
        encoded: Characters that an engine was given for that.
        seconds: How long they took together.
        histogram: How many took less than ``2**k`` nanoseconds and not less than half of that, for each k from 0 to 34;
            the last number is of all that took longer.

    Example:
        >>> import toktier
        >>> tok = toktier.Registry().load("toktier-mini")
        >>> patch = tok.session("Once upon a time", engine="memo").append(" there was")
        >>> calls = tok.meter.calls()["append", "memo"]
        >>> calls.calls, calls.served, calls.encoded, calls.reused, sum(calls.histogram)
        (1, 26, 10, 16, 1)
    """

    calls: int
    served: int
    encoded: int
    seconds: float
    histogram: tuple[int, ...]

    @property
    def reused(self) -> int:
        """The characters whose ids were known already, of those that were served."""
        return max(self.served - self.encoded, 0)


class _Alive:
    """Is there for as long as the thread that made it, whoever began that."""


class Meter:
    """The counters of one tokenizer. Safe to share between threads.

    Attributes:
        watcher: Who looks at some of the answers, if anybody does.

    Example:
        >>> meter = Meter()
        >>> meter.count("append", "memo", served=1000, encoded=20, took=17_000)
        >>> meter.calls()["append", "memo"].served
        1000
    """

    def __init__(self) -> None:
        self.watcher: Watcher | None = None
        self._own = threading.local()
        self._lock = threading.Lock()
        self._threads: list[tuple[weakref.ref[_Alive], _Counters]] = []
        self._gone: _Counters = {}
        """What threads counted that have ended."""

    def count(self, path: str, engine: str, served: int, encoded: int, took: int) -> None:
        """Counts a call.

        Args:
            path: What was called.
            engine: The name of what encoded.
            served: Characters of the text.
            encoded: Characters that the engine was given.
            took: Nanoseconds.
        """
        try:
            counters: _Counters = self._own.counters
        except AttributeError:
            counters = self._new_thread()
        counts = counters.get((path, engine))
        if counts is None:
            counts = counters[path, engine] = [0] * (FIRST_BUCKET + BUCKETS)
        counts[CALLS] += 1
        counts[SERVED] += served
        counts[ENCODED] += encoded
        counts[TOOK] += took
        bucket = took.bit_length()
        counts[FIRST_BUCKET + (bucket if bucket < BUCKETS else BUCKETS - 1)] += 1

    def calls(self) -> dict[tuple[str, str], Calls]:
        """What was counted so far, by path and engine."""
        with self._lock:
            total: _Counters = {}
            for counters in (self._gone, *(counters for _, counters in self._threads)):
                _add(total, counters.copy())
        return {
            key: Calls(c[CALLS], c[SERVED], c[ENCODED], c[TOOK] / 1e9, tuple(c[FIRST_BUCKET:]))
            for key, c in total.items()
        }

    def _new_thread(self) -> _Counters:
        counters: _Counters = {}
        with self._lock:
            alive = []
            for thread, theirs in self._threads:
                if thread() is not None:
                    alive.append((thread, theirs))
                else:
                    _add(self._gone, theirs)
            own = _Alive()
            self._threads = [*alive, (weakref.ref(own), counters)]
        self._own.alive, self._own.counters = own, counters
        return counters


def _add(total: _Counters, counters: _Counters) -> None:
    for key, counts in counters.items():
        total[key] = [a + b for a, b in zip(total.get(key, [0] * len(counts)), counts, strict=True)]
