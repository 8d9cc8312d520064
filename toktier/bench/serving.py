"""Front ends under load: the store, and those that encode every transcript again.

A front end is a process with an event loop. It sees which call has arrived, puts the transcript together (in the place
of reading it from a socket), has it encoded and answers. The load comes from another process.
"""

from __future__ import annotations

import asyncio
import gc
import multiprocessing
import random
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from multiprocessing.connection import Connection
from typing import TypeAlias

import numpy as np
from attrs import define, field, frozen

from toktier.bench.contenders import REMEMBERING, Contender, contenders
from toktier.bench.load import Board, Call, Load, generate, load
from toktier.bench.measuring import engine_of
from toktier.engines.base import Ids
from toktier.router import PROCESSOR
from toktier.store import SessionStore
from toktier.tokenizer import Tokenizer

LIMITS = (0.010, 0.050)
"""The P99 latencies that are to be held, in seconds."""

CHECKED = 0.05
"""The share of the answers that are compared with the reference's."""

SLOWEST = 2.0
"""Calls a second below which there is nothing to look for."""

ALONE = 9
"""Calls that are made one after the other, before any load."""

MOST_KEPT = 16
"""Answers of one run that are compared, at most: each is a full encode by the reference."""

FEWEST = 50
"""Calls of a run."""

GLANCE = 10_000
"""Turns of the event loop without a call, after which it looks whether the load is there at all."""

Answer: TypeAlias = Callable[[str, str], Awaitable[Ids]]
"""Gives the ids of a transcript, by the name of its session."""


@frozen
class Run:
    """A front end at one rate.

    Attributes:
        rate: Calls a second that were offered.
        calls: How many there were.
        p50: The median latency in seconds; infinite when the front end fell so far behind that the run was given up.
        p99: One in a hundred took longer.
        checked: Answers that were compared with the reference's.
        wrong: How many of them differed.
    """

    rate: float
    calls: int
    p50: float
    p99: float
    checked: int
    wrong: int


@define
class FrontEnd:
    """Something that answers calls.

    Attributes:
        name: What it is.
        answer: Does it.
        remembers: Whether it is faster for what it has met, so that it is shown everything before it is measured.
        alone: Seconds that a call takes without any other, the median; infinite before that is measured.
        runs: What was measured, in the order in which it was.
    """

    name: str
    answer: Answer
    remembers: bool
    alone: float = float("inf")
    runs: list[Run] = field(factory=list)

    def highest(self, limit: float) -> float:
        """The highest rate at which the P99 was held; 0 if there is none."""
        return max((run.rate for run in self.runs if run.p99 <= limit), default=0.0)

    def lowest(self, limit: float) -> float:
        """The lowest rate at which it was not held, of those above the highest at which it was."""
        failed = (run.rate for run in self.runs if run.p99 > limit and run.rate > self.highest(limit))
        return min(failed, default=float("inf"))


def front_ends(tok: Tokenizer, max_bytes: int) -> Iterator[FrontEnd]:
    """All that there are: the store, every engine that serves the tokenizer, and the libraries themselves."""
    engines = [name for name in PROCESSOR if not isinstance(engine_of(tok, name), str)]
    store = SessionStore(tok, engine=engines[0], max_bytes=max_bytes)

    async def stored(text: str, session: str) -> Ids:
        return await store.encode_async(text, session=session)

    yield FrontEnd(f"store, {engines[0]}", stored, remembers=True)
    for name in engines:
        yield FrontEnd(f"{name}, stateless", _stateless(tok.engine(name).encode), remembers=name in REMEMBERING)
    for library in contenders(tok.reference.tokenizer)[0]:
        yield FrontEnd(f"{library.name} itself", _by_library(library), remembers=library.name in REMEMBERING)


def _by_library(library: Contender) -> Answer:
    return _stateless(lambda text: np.asarray(library.encode(text), np.uint32))


def _stateless(encode: Callable[[str], Ids]) -> Answer:
    async def answer(text: str, session: str) -> Ids:
        return encode(text)

    return answer


@define
class Trial:
    """What front ends are put to.

    Attributes:
        tok: The tokenizer.
        source: The text that all contexts are parts of.
        sessions: Live sessions.
        seconds: How long a run takes, about.
        bursts: Whether calls come in bursts.
        steps: How many times the highest rate is narrowed down.
    """

    tok: Tokenizer
    source: str
    sessions: int = 200
    seconds: float = 4.0
    bursts: bool = False
    steps: int = 3

    def search(self, front_end: FrontEnd, first: float) -> Iterator[str]:
        """Looks for the highest rates that hold the limits; tells what it is about to do."""
        made = self._load(first, ALONE)
        yield f"{front_end.name}: beginning"
        self._show(front_end, made)
        yield f"{front_end.name}: one call after the other"
        front_end.alone = asyncio.run(self._alone(front_end, made.calls))
        # What half of all calls miss when there are no others, no rate will hold.
        limits = [limit for limit in LIMITS if front_end.alone <= limit]
        if not limits:
            return
        rate = first
        while not front_end.runs or front_end.runs[-1].p99 <= limits[-1]:
            yield f"{front_end.name}: {rate:,.1f} calls a second"
            self.run(front_end, rate)
            rate *= 2
        for limit in reversed(limits):
            while front_end.highest(limit) == 0.0:
                slowest = min(run.rate for run in front_end.runs)
                if slowest / 2 < SLOWEST:
                    break
                yield f"{front_end.name}: {slowest / 2:,.1f} calls a second"
                self.run(front_end, slowest / 2)
        for limit in limits:
            for _ in range(self.steps):
                low, high = front_end.highest(limit), front_end.lowest(limit)
                if low and high < float("inf"):
                    rate = (low * high) ** 0.5
                    yield f"{front_end.name}: {rate:,.1f} calls a second"
                    self.run(front_end, rate)

    def run(self, front_end: FrontEnd, rate: float) -> Run:
        """Measures a front end at a rate."""
        made = self._load(rate, max(FEWEST, round(rate * self.seconds)))
        self._show(front_end, made, only_store=True)
        gc.collect()
        here, there = multiprocessing.Pipe()
        board = Board(len(made.calls))
        # The load must not wait for this process's interpreter: it is a process of its own.
        context = multiprocessing.get_context("spawn")
        arguments = there, board.name, made.calls, LIMITS[-1]
        process = context.Process(target=generate, args=arguments, daemon=True)
        process.start()
        there.close()
        try:
            kept = asyncio.run(_serve(here, board, front_end.answer, made, self.source))
            latencies = here.recv()
        except (EOFError, OSError):
            process.join(10)
            raise RuntimeError(f"the load has ended, exit status {process.exitcode}") from None
        finally:
            here.close()
            process.join(10)
            if process.is_alive():
                process.kill()
            board.close(for_all=True)
        wrong = sum(not self._is_right(made.calls[number], ids) for number, ids in kept)
        p50, p99 = np.quantile(latencies, (0.5, 0.99)).tolist() if latencies else (float("inf"), float("inf"))
        front_end.runs.append(Run(rate, len(made.calls), p50, p99, len(kept), wrong))
        return front_end.runs[-1]

    async def _alone(self, front_end: FrontEnd, calls: Sequence[Call]) -> float:
        times = []
        for call in calls:
            text = call.text(self.source)
            start = time.perf_counter()
            await front_end.answer(text, call.name)
            times.append(time.perf_counter() - start)
        return float(np.median(times))

    def _load(self, rate: float, count: int) -> Load:
        return load(rate, count, sessions=self.sessions, available=len(self.source), bursts=self.bursts)

    def _show(self, front_end: FrontEnd, made: Load, *, only_store: bool = False) -> None:
        """What the sessions had before, which is not measured."""
        if front_end.remembers and not (only_store and "store" not in front_end.name):

            async def all_of_them() -> None:
                for call in made.before:
                    await front_end.answer(call.text(self.source), call.name)

            asyncio.run(all_of_them())

    def _is_right(self, call: Call, ids: bytes) -> bool:
        """Whether these are the ids of a full encode by the reference, of which no session is a part."""
        return self.tok.engine("reference").encode(call.text(self.source)).tobytes() == ids


async def _serve(
    connection: Connection, board: Board, answer: Answer, made: Load, source: str
) -> list[tuple[int, bytes]]:
    """Answers calls until there are no more, or the load is gone; returns some of the answers."""
    chosen = random.Random(len(made.calls))
    kept: list[tuple[int, bytes]] = []
    tasks: set[asyncio.Task[None]] = set()

    async def respond(number: int) -> None:
        call = made.calls[number]
        ids = await answer(call.text(source), call.name)
        board.answered[number] = time.perf_counter()
        if chosen.random() < CHECKED and len(kept) < MOST_KEPT:
            kept.append((number, ids.tobytes()))

    connection.send("ready")
    begun = idle = 0
    while not board.state[1]:
        idle += 1
        if idle % GLANCE == 0 and connection.poll():
            break  # which the caller learns from the connection
        while begun < board.state[0]:
            task = asyncio.ensure_future(respond(int(board.posted[begun])))
            tasks.add(task)
            task.add_done_callback(tasks.discard)
            begun, idle = begun + 1, 0
            await asyncio.sleep(0)
        await asyncio.sleep(0)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    return kept
