"""One bounded executor for the chunks of long texts: the text that has least left is served first.

Whatever is short is encoded where it is asked for, and never waits here. When several long texts wait, one core is
left to those.

Source: the shortest remaining processing time first, which makes the mean wait the least (L. Schrage, "A proof of the
optimality of the shortest remaining processing time discipline", 1968), with ageing, so that no text waits for ever.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
import weakref
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from attrs import define, field

from toktier.engines.base import Engine, Ids

AGEING = 10_000_000
"""Characters: a text that has waited for a second passes one that is so much shorter."""


LEAST = 1 << 14
"""Characters that are worth a call, whatever the engine: of a batch of many short texts, several go together."""


@define(eq=False)
class _Job:
    """The chunks of one call."""

    engine: Engine
    chunks: Sequence[str]
    encoded: list[Ids | None]
    left: int
    """Characters that nobody has begun to encode."""
    since: float = field(factory=time.monotonic)
    begun: int = 0
    finished: int = 0
    error: BaseException | None = None
    done: threading.Event = field(factory=threading.Event)

    def urgency(self) -> float:
        """Least is served first."""
        return self.left - AGEING * (time.monotonic() - self.since)

    def take(self) -> range:
        """The chunks to encode next."""
        first, characters = self.begun, 0
        size = max(getattr(self.engine, "call_size", 0), LEAST)
        while self.begun < len(self.chunks) and (not characters or characters < size):
            characters += len(self.chunks[self.begun])
            self.begun += 1
        self.left -= characters
        return range(first, self.begun)

    def encode(self, some: range) -> None:
        """Encodes chunks; raises nothing."""
        try:
            if len(some) == 1:
                self.encoded[some[0]] = self.engine.encode(self.chunks[some[0]])
            else:
                encoded = self.engine.encode_batch([self.chunks[i] for i in some])
                for i, ids in zip(some, encoded, strict=True):
                    self.encoded[i] = ids
        except BaseException as error:  # it belongs to the caller, who waits
            self.error = error


class Executor:
    """Encodes the chunks of long texts on a few threads. Safe to share; does nothing until it is needed.

    A registry has one for all of its tokenizers. In the child of a fork it begins anew.

    Args:
        cores: How many processor cores may be busy with it. Not given: those that this process may use.

    Example:
        >>> import toktier
        >>> engine = toktier.load("toktier-mini").engine("reference")
        >>> [ids.tolist() for ids in Executor().encode(engine, ["Hello", " world"])]
        [[39, 523, 323], [3241, 1151]]
    """

    def __init__(self, cores: int | None = None) -> None:
        self._cores = cores or usable_cores()
        self._renew()
        _executors.add(self)

    def _renew(self) -> None:
        self._lock = threading.Lock()
        self._waiting: list[_Job] = []
        """Those with chunks that nobody has begun."""
        self._busy = 0
        self._threads: ThreadPoolExecutor | None = None

    def encode(self, engine: Engine, chunks: Sequence[str]) -> list[Ids]:
        """The ids of chunks, in order; the caller waits for them.

        Args:
            engine: What encodes. Whatever it raises is raised here.
            chunks: Texts, each of which is encoded by itself.

        Returns:
            An array for each chunk, uint32, shape (tokens,).

        Example:
            >>> import toktier
            >>> engine = toktier.load("toktier-mini").engine("memo")
            >>> [len(ids) for ids in Executor(2).encode(engine, ["One, two", " fold"])]
            [4, 2]
        """
        if not chunks:
            return []
        job = _Job(engine, chunks, [None] * len(chunks), sum(map(len, chunks)))
        with self._lock:
            self._waiting.append(job)
        try:
            if not self._engage():
                self._work_off(job)
            job.done.wait()
        except BaseException:  # a signal handler's: nobody waits for the rest
            self._withdraw(job)
            raise
        if job.error is not None:
            raise job.error
        return [ids for ids in job.encoded if ids is not None]

    def _limit(self) -> int:
        return self._cores if len(self._waiting) == 1 else max(1, self._cores - 1)

    def _engage(self) -> bool:
        """Makes as many threads busy as there should be; whether there is any."""
        while True:
            with self._lock:
                if not self._waiting or self._busy >= self._limit():
                    return True
                self._busy += 1
                self._threads = self._threads or ThreadPoolExecutor(self._cores, "toktier chunks")
            ticket = [True]
            try:
                self._threads.submit(self._work, ticket)
            except RuntimeError:  # no more threads, or the interpreter is about to end
                with self._lock:
                    ticket.clear()  # it may be in the queue all the same, for a thread that comes to be free
                    self._busy -= 1
                    return self._busy > 0

    def _work(self, ticket: list[bool]) -> None:
        while ticket:
            with self._lock:
                if not self._waiting or self._busy > self._limit():
                    self._busy -= 1
                    return
                job = min(self._waiting, key=_Job.urgency)
                some = self._taken(job)
                fewer = job not in self._waiting
            if fewer:
                self._engage()  # of several texts, there is one less: the core that was left alone may be free again
            self._encode(job, some)

    def _work_off(self, job: _Job) -> None:
        """Encodes a job here, for want of threads."""
        while True:
            with self._lock:
                if job not in self._waiting:
                    return
                some = self._taken(job)
            self._encode(job, some)

    def _taken(self, job: _Job) -> range:
        some = job.take()
        if job.begun == len(job.chunks):
            self._waiting.remove(job)
        return some

    def _encode(self, job: _Job, some: range) -> None:
        job.encode(some)
        with self._lock:
            job.finished += len(some)
            if job.error is not None and job in self._waiting:
                self._waiting.remove(job)
            if job.error is not None or job.finished == len(job.chunks):
                job.done.set()

    def _withdraw(self, job: _Job) -> None:
        with self._lock, contextlib.suppress(ValueError):
            self._waiting.remove(job)


def usable_cores() -> int:
    """The number of processors that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


_executors: weakref.WeakSet[Executor] = weakref.WeakSet()


def _renew_all() -> None:
    """In a child after a fork: there are no threads, and a lock may be held by one of them for ever."""
    for executor in list(_executors):
        executor._renew()


if hasattr(os, "register_at_fork"):  # not on Windows, which does not fork
    os.register_at_fork(after_in_child=_renew_all)
