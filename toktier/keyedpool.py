"""Threads that do what event loops must not wait for, one call at a time for each key."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable, Hashable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from attrs import define, field

T = TypeVar("T")


@define
class _Turn:
    """The calls of an event loop for one key: one has its turn, and the others wait."""

    lock: asyncio.Lock = field(factory=asyncio.Lock)
    calls: int = 0


class KeyedPool:
    """Threads for the calls of event loops. Calls for one key wait in the loop, where they keep no thread from others.

    Args:
        workers: How many calls are worked on at a time.
        name: What the threads are called.

    Example:
        >>> import asyncio
        >>> pool = KeyedPool(2, "an example")
        >>> asyncio.run(pool.run("chat-42", lambda: 6 * 7))
        42
        >>> pool.close()
    """

    def __init__(self, workers: int, name: str) -> None:
        self._threads = ThreadPoolExecutor(workers, name)  # which starts none before there is a call
        self._turns: dict[asyncio.AbstractEventLoop, dict[Hashable, _Turn]] = {}
        """By event loop and key: whose turn it is."""

    async def run(self, key: Hashable, call: Callable[[], T]) -> T:
        """What a call returns, after all calls for its key that came before it in this loop.

        One that is cancelled while a thread is at work is done all the same, and the next one waits for it.
        """
        loop = asyncio.get_running_loop()
        if loop not in self._turns:
            # Turns of loops that were closed in the middle never end. Keys are no weak ones: a turn refers to its loop.
            for other in list(self._turns):
                if other.is_closed():
                    self._turns.pop(other, None)
        which = loop, key
        turn = self._turns.setdefault(loop, {}).setdefault(key, _Turn())
        turn.calls += 1
        try:
            await turn.lock.acquire()
        except BaseException:
            self._leave_turn(which, turn)
            raise
        try:
            working = self.submit(call)
        except BaseException:
            self._end_turn(which, turn)
            raise
        # Until it is done, nobody else's turn has come, also if who waits for it is cancelled.
        working.add_done_callback(functools.partial(self._end_turn, which, turn))
        return await asyncio.shield(working)

    def submit(self, call: Callable[[], T]) -> asyncio.Future[T]:
        """What a call returns that waits for no other."""
        return asyncio.get_running_loop().run_in_executor(self._threads, call)

    def close(self) -> None:
        """Waits for the calls under way. Calls that come later raise."""
        self._threads.shutdown()

    def _end_turn(
        self, which: tuple[asyncio.AbstractEventLoop, Hashable], turn: _Turn, done: asyncio.Future[Any] | None = None
    ) -> None:
        turn.lock.release()
        self._leave_turn(which, turn)

    def _leave_turn(self, which: tuple[asyncio.AbstractEventLoop, Hashable], turn: _Turn) -> None:
        turn.calls -= 1
        loop, key = which
        if not turn.calls and (turns := self._turns.get(loop)) is not None:
            turns.pop(key, None)
            if not turns:
                self._turns.pop(loop, None)
