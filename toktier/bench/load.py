"""The load of a serving front end, as data: who asks when, and how much there is and how much is new.

Calls arrive as a Poisson process unless they are to come in bursts. The distributions of what is in them are those
measured in the field for coding agents. What is made up is that time runs faster: a session
makes a call every twenty seconds or so, and those of a thousand calls a second would not fit in this machine's memory.
Here some hundred sessions make all the calls, in the order in which theirs would come.
"""

from __future__ import annotations

import heapq
import math
import random
import time
from collections import deque
from collections.abc import Iterator, Sequence
from multiprocessing.connection import Connection
from multiprocessing.shared_memory import SharedMemory

import numpy as np
import numpy.typing as npt
from attrs import define, frozen

CONTEXT, CONTEXT_SPREAD, LONGEST = 420_000, 0.95, 4_000_000
"""Characters of a context: the median, the spread of the logarithm, the most."""

NEW, NEW_SPREAD = 1_400, 1.42
"""Characters that a call adds: P90 9 K, P99 38 K."""

REBUILT = 0.023
"""Calls that start a session, or rebuild one with another beginning."""

USER_GAP, TOOL_GAP, TOOL_CALLS = 300.0, 4.0, 15
"""Seconds between the calls of a session, at a user's turn and at a tool's; how many of the latter come in a row."""

BURSTS = (0.0, 0.4, 0.5, 0.5, 1.1, 1.3, 1.3, 1.4, 6.0, 6.2, 14.0, 14.1, 14.1, 14.2, 14.2, 14.9)
"""When the calls of a burst arrive, in units of a mean gap, 16 of which the next burst follows: made up."""

PATIENCE = 20.0
"""Times the limit that a call may take before a run is given up as failed."""


@frozen
class Call:
    """One call of a front end.

    Attributes:
        at: When it arrives, in seconds from the beginning.
        session: The number of the session.
        version: How many times that was rebuilt before.
        start: Where its text begins in the text that all are parts of.
        length: Characters of it.
    """

    at: float
    session: int
    version: int
    start: int
    length: int

    @property
    def name(self) -> str:
        """The session's name."""
        return f"session {self.session}"

    def text(self, source: str) -> str:
        """The transcript, as it would come with the request: a string of its own, which takes one copy."""
        return source[self.start : self.start + self.length]


@define
class _Live:
    """A session as it is now."""

    number: int
    start: int
    length: int
    version: int = 0
    tool_calls: int = 0


@frozen
class Load:
    """The calls of some seconds.

    Attributes:
        before: What every session had before.
        calls: In the order in which they arrive.
    """

    before: tuple[Call, ...]
    calls: tuple[Call, ...]


def load(rate: float, count: int, *, sessions: int, available: int, bursts: bool = False, seed: int = 0) -> Load:
    """Makes up calls.

    Args:
        rate: Calls a second.
        count: How many.
        sessions: Live sessions.
        available: Characters of the text that all contexts are parts of.
        bursts: Whether they come in bursts, and not as a Poisson process.
        seed: The same seed makes the same calls.

    Example:
        >>> made = load(100.0, 1000, sessions=20, available=8_000_000)
        >>> len(made.before), len(made.calls), 8 < made.calls[-1].at < 12
        (20, 1000, True)
    """
    source = random.Random(seed)
    live = [_begun(source, number, available) for number in range(sessions)]
    before = tuple(Call(0.0, it.number, it.version, it.start, it.length) for it in live)
    due = [(source.random() * USER_GAP, it.number) for it in live]
    heapq.heapify(due)
    calls = []
    for at in _arrivals(source, rate, count, bursts=bursts):
        when, number = heapq.heappop(due)
        it = live[number]
        new = round(source.lognormvariate(math.log(NEW), NEW_SPREAD))
        if source.random() < REBUILT or it.length + new > min(LONGEST, available - it.start):
            it.version += 1
            fresh = _begun(source, number, available)
            it.start, it.length = fresh.start, fresh.length
        else:
            it.length += new
        calls.append(Call(at, number, it.version, it.start, it.length))
        it.tool_calls = it.tool_calls - 1 if it.tool_calls else source.randrange(2 * TOOL_CALLS)
        gap = TOOL_GAP if it.tool_calls else USER_GAP
        heapq.heappush(due, (when + source.lognormvariate(math.log(gap), 0.5), number))
    return Load(before, tuple(calls))


def _begun(source: random.Random, number: int, available: int) -> _Live:
    length = min(round(source.lognormvariate(math.log(CONTEXT), CONTEXT_SPREAD)), LONGEST, available // 2)
    return _Live(number, source.randrange(available // 2), length)


def _arrivals(source: random.Random, rate: float, count: int, *, bursts: bool) -> Iterator[float]:
    at = 0.0
    for number in range(count):
        if bursts:
            whole, part = divmod(number, len(BURSTS))
            yield (len(BURSTS) * whole + BURSTS[part]) / rate
        else:
            at += source.expovariate(rate)
            yield at


class Board:
    """Where the load and a front end tell one another what has happened: memory that both see, without any messages.

    On some systems it takes a millisecond to wake another process, which is not what is to be measured.

    Args:
        calls: How many calls there are.
        name: Of the memory, to see the one that another process made.
    """

    def __init__(self, calls: int, name: str | None = None) -> None:
        self._memory = SharedMemory(name, create=name is None, size=16 * calls + 16)
        shared = self._memory.buf
        assert shared is not None
        self.state: npt.NDArray[np.int64] = np.frombuffer(shared, np.int64, 2)
        """How many calls were posted, and 1 once the load has ended, or -1 when it gave up."""
        self.posted: npt.NDArray[np.int64] = np.frombuffer(shared, np.int64, calls, 16)
        """The numbers of the calls, in the order in which they were posted."""
        self.answered: npt.NDArray[np.float64] = np.frombuffer(shared, np.float64, calls, 16 + 8 * calls)
        """When each call was answered, by its number; in seconds of the clock that all processes share."""
        if name is None:
            self.state[:] = self.posted[:] = 0
            self.answered[:] = 0.0

    @property
    def name(self) -> str:
        """What another process finds the memory by."""
        return self._memory.name

    def close(self, *, for_all: bool) -> None:
        """Lets go of the memory, or frees it."""
        del self.state, self.posted, self.answered
        self._memory.close()
        if for_all:
            self._memory.unlink()


def generate(connection: Connection, name: str, calls: Sequence[Call], limit: float) -> None:
    """Posts each call when it is due, unless one of the same session is not answered yet; then as soon as that is.

    Runs in a process of its own, and sends the latencies in seconds at the end: none, when a call took far too long. A
    latency counts from when the call was due: all that it had to wait for is part of it.

    Args:
        connection: To the front end, which says when it is ready.
        name: Of the board.
        calls: The calls.
        limit: The P99 that is wanted, in seconds.
    """
    board = Board(len(calls), name)
    try:
        connection.send(_generated(connection, board, calls, limit))
    finally:
        board.close(for_all=False)


def _generated(connection: Connection, board: Board, calls: Sequence[Call], limit: float) -> list[float]:
    latencies: list[float] = []
    open_calls: dict[int, deque[int]] = {}
    """By session, the call that was posted and those that wait for it."""
    sent = posted = 0

    def post(number: int) -> None:
        nonlocal posted
        board.posted[posted] = number
        posted += 1
        board.state[0] = posted

    connection.recv()
    begin = time.perf_counter()
    while len(latencies) < len(calls):
        now = time.perf_counter() - begin
        while sent < len(calls) and calls[sent].at <= now:
            queue = open_calls.setdefault(calls[sent].session, deque())
            queue.append(sent)
            if len(queue) == 1:
                post(sent)
            sent += 1
        for session, queue in list(open_calls.items()):
            answered = float(board.answered[queue[0]])
            if answered:
                latencies.append(answered - begin - calls[queue.popleft()].at)
            elif now - calls[queue[0]].at > PATIENCE * limit + 1.0:
                board.state[1] = -1
                return []
            if not queue:
                del open_calls[session]
            elif answered:
                post(queue[0])
        time.sleep(0.0001)
    board.state[1] = 1
    return latencies
