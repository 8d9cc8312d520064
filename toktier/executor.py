"""One bounded executor for the chunks of long texts: the text that has least left is served first.

Whatever is short is encoded where it is asked for, and never waits here. When several long texts wait, one core is
left to those.

Source: the shortest remaining processing time first, which makes the mean wait the least (L. Schrage, "A proof of the
optimality of the shortest remaining processing time discipline", 1968), with ageing, so that no text waits for ever.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import queue
import threading
import time
import weakref
from collections.abc import Callable, Sequence
from typing import TypeAlias

from attrs import define, field

from toktier.engines.base import Engine, Ids

AGEING = 10_000_000
"""Characters: a text that has waited for a second passes one that is so much shorter."""


LEAST = 1 << 14
"""Characters that are worth a call, whatever the engine: of a batch of many short texts, several go together."""

PATIENCE = 5.0
"""Seconds for which the end of the interpreter waits for chunks that are being encoded."""

Ticket: TypeAlias = "list[bool]"
"""Has something in it for as long as the thread that serves it counts as busy."""

Tickets: TypeAlias = "queue.SimpleQueue[tuple[Callable[[Ticket], None], Ticket] | None]"


def _locked() -> threading.Lock:
    lock = threading.Lock()
    lock.acquire()
    return lock


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
    is_done: bool = False
    _done: threading.Lock = field(factory=_locked)
    """No event: what a signal's handler raises in one can leave its lock held, and this is one instruction."""

    def wait(self) -> None:
        """Waits until it is done."""
        self._done.acquire()

    def finish(self) -> None:
        """Lets the caller go. Whoever calls has the lock of the executor."""
        if not self.is_done:
            self.is_done = True
            self._done.release()

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
        self._busy = self._started = 0
        # No pool of threads of the standard library: an interrupt in its locks, which are Python, would wedge it.
        self._tickets: Tickets = queue.SimpleQueue()
        weakref.finalize(self, self._tickets.put, None).atexit = False  # handlers may encode to the very end

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
            job.wait()
        except BaseException:  # a signal handler's: nobody waits for the rest
            self._withdraw(job)
            raise
        if job.error is not None:
            raise job.error
        return [ids for ids in job.encoded if ids is not None]

    def _limit(self) -> int:
        return self._cores if len(self._waiting) == 1 else max(1, self._cores - 1)

    def _engage(self) -> bool:
        """Makes as many threads busy as there should be; whether that could be done."""
        while True:
            ticket: Ticket = []
            try:
                with self._lock:
                    if not self._waiting or self._busy >= self._limit():
                        return True
                    self._busy += 1
                    ticket.append(True)
                    is_short = self._started < self._busy
                if is_short:
                    self._start()
                self._tickets.put((self._work, ticket))
            except BaseException as error:
                with self._lock:
                    self._give_up(ticket)  # it may be in the queue all the same, for a thread that comes to be free
                if isinstance(error, RuntimeError):  # no threads, or the interpreter is about to end
                    return False
                raise  # of a signal's handler

    def _start(self) -> None:
        """Starts one more thread; raises RuntimeError if there can be none at all."""
        # A daemon: it waits for tickets until the interpreter ends, and _settle() for what it is at work on then.
        thread = threading.Thread(target=_serve, args=(self._tickets,), name="toktier chunks", daemon=True)
        try:
            thread.start()
        except RuntimeError:
            if not self._started:
                raise
        else:
            with self._lock:
                self._started += 1

    def _give_up(self, ticket: Ticket) -> None:
        """Makes the thread of a ticket busy no more, once."""
        if ticket:
            self._busy -= 1  # before the call, behind which a signal may come
            ticket.clear()

    def _work(self, ticket: Ticket) -> None:
        while True:
            with self._lock:
                if not ticket:
                    return
                if not self._waiting or self._busy > self._limit():
                    self._give_up(ticket)
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
                job.finish()

    def _withdraw(self, job: _Job) -> None:
        with self._lock, contextlib.suppress(ValueError):
            self._waiting.remove(job)


def _serve(tickets: Tickets) -> None:
    """Serves one ticket after the other, until the executor is gone."""
    while (item := tickets.get()) is not None:
        work, ticket = item
        work(ticket)
        del item, work, ticket  # nobody is to keep an executor that nobody uses
    tickets.put(None)  # for the other threads


def usable_cores() -> int:
    """The number of processors that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


_executors: weakref.WeakSet[Executor] = weakref.WeakSet()


def _settle() -> None:
    """At the end of the interpreter: no thread is to be in the middle of a library."""
    until = time.monotonic() + PATIENCE
    for executor in list(_executors):
        while executor._busy and time.monotonic() < until:
            time.sleep(0.001)


atexit.register(_settle)


def _renew_all() -> None:
    """In a child after a fork: there are no threads, and a lock may be held by one of them for ever."""
    for executor in list(_executors):
        executor._renew()


if hasattr(os, "register_at_fork"):  # not on Windows, which does not fork
    os.register_at_fork(after_in_child=_renew_all)
