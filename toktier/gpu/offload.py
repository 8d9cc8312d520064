"""Which texts the GPU is given: those that it encodes sooner than the processor, while it has little before it."""

from __future__ import annotations

import logging
import os
import threading
import time
import weakref
from collections.abc import Callable, Sequence
from pathlib import Path

from toktier.engines.base import Engine, Ids, Unavailable
from toktier.errors import EngineFailure
from toktier.gpu.encoder import LARGEST
from toktier.gpu.engine import GpuEngine, OnDevice

BACKLOG = 1 << 27
"""Characters that the device may have before it. With more, texts would wait for longer than they take here."""

LEAST, MOST = 1 << 10, 1 << 20
"""Characters between which the threshold is, whatever is measured."""

PATIENCE = 3
"""Requests in a row that may fail on the device before it is given no more."""

logger = logging.getLogger(__name__)


class Offload:
    """Encodes on the processor, and long texts on the GPU.

    A request that fails there is encoded here, so that nothing is lost; when it goes on failing, all are.

    Args:
        gpu: Encodes there.
        host: Encodes here.
        threshold: Characters from which on a request goes there. Not given: it is measured.
        backlog: Characters that may be there already.

    Attributes:
        threshold: Characters from which on a request goes there.
        offloaded: How many requests the device has encoded.
        declined: How many it was not given, although they were long enough, because it had too much before it.
        trouble: Why it is given no more; None while it is.
    """

    name = GpuEngine.name

    def __init__(self, gpu: GpuEngine, host: Engine, *, threshold: int | None = None, backlog: int = BACKLOG) -> None:
        self.gpu = gpu
        self.host = host
        self.threshold = measured_threshold(gpu, host) if threshold is None else threshold
        self.offloaded = self.declined = 0
        self.trouble: str | None = None
        self._backlog = backlog
        self._before = 0
        """Characters that the device has."""
        self._failures = 0
        self._lock = threading.Lock()
        _offloads.add(self)

    def __repr__(self) -> str:
        counted = f"{self.offloaded:,} requests, {self.declined:,} declined"
        return f"<toktier GPU from {self.threshold:,} characters on: {counted}; beside it {self.host!r}>"

    @property
    def call_size(self) -> int:
        """Characters that are worth a call: the chunks of a text are one request, if the device has them."""
        return LARGEST if self.trouble is None else getattr(self.host, "call_size", 0)

    def encode(self, text: str, *, continuation: bool = False) -> Ids:
        """The ids of a text, uint32, shape (tokens,)."""
        if len(text) < self.threshold:
            return self.host.encode(text)
        return self.encode_batch([text])[0]

    def encode_batch(self, texts: Sequence[str], *, continuation: bool = False) -> list[Ids]:
        """The ids of several texts."""
        size = sum(map(len, texts))
        if size >= self.threshold and self._admitted(size):
            try:
                ids = self.gpu.encode_batch(texts)
            except Unavailable as error:
                self._note(error)
            else:
                self._done()
                return ids
            finally:
                with self._lock:
                    self._before -= size
        return self.host.encode_batch(texts)

    def encode_on_device(self, texts: Sequence[str]) -> OnDevice:
        """The ids of several texts as one array on the device.

        Raises:
            EngineFailure: The device failed: nothing can be put there.
        """
        there = self._put_there(lambda: self.gpu.encode_on_device(texts))
        self._done()
        return there

    def uploaded(self, encoded: Sequence[Ids]) -> OnDevice:
        """Ids that were made here, as one array on the device.

        Raises:
            EngineFailure: As for :meth:`encode_on_device`.
        """
        return self._put_there(lambda: self.gpu.uploaded(encoded))

    def check(self) -> None:
        """Raises EngineFailure if the device is given no more texts."""
        if self.trouble is not None:
            raise EngineFailure(self.trouble)

    def _put_there(self, put: Callable[[], OnDevice]) -> OnDevice:
        self.check()
        try:
            return put()
        except Unavailable as error:
            self._note(error)
            raise EngineFailure(str(error)) from error

    def _admitted(self, size: int) -> bool:
        """Whether a request may go to the device; if so, it is counted as being there."""
        if self.trouble is not None:
            return False
        with self._lock:
            # A request by itself may be as large as it likes.
            if self._before and self._before + size > self._backlog:
                self.declined += 1
                return False
            self._before += size
            return True

    def _done(self) -> None:
        with self._lock:
            self.offloaded += 1
            self._failures = 0

    def _note(self, error: Unavailable) -> None:
        with self._lock:
            self._failures += 1
            # As a string: handlers keep what they are given, and with an error all that was at work.
            logger.warning("the GPU failed, and the processor encodes in its place: %s", str(error))
            if self._failures >= PATIENCE and self.trouble is None:
                self.trouble = f"the GPU is given no more texts, since it failed {self._failures} times: {error}"
                logger.warning("%s", self.trouble)

    def _renew(self) -> None:
        """In a child after a fork: the device is the parent's, and a lock may be held by nobody who is there."""
        self._lock = threading.Lock()
        self.trouble = "the GPU is given no more texts: CUDA cannot be used after a fork"


_offloads: weakref.WeakSet[Offload] = weakref.WeakSet()


def _renew_all() -> None:
    for offload in list(_offloads):
        offload._renew()


if hasattr(os, "register_at_fork"):  # not on Windows, which does not fork
    os.register_at_fork(after_in_child=_renew_all)


def measured_threshold(gpu: GpuEngine, host: Engine) -> int:
    """The characters that the processor encodes in the time of the shortest request to the device.

    The processor is measured with a text of which it has seen all, so that the threshold is high rather than low.
    """
    page = Path(__file__).read_text(encoding="utf-8")
    there = min(_seconds(gpu, page[:100]) for _ in range(20))
    here = min(_seconds(host, page) for _ in range(5))
    return max(LEAST, min(MOST, int(len(page) * there / here)))


def _seconds(engine: Engine, text: str) -> float:
    began = time.perf_counter()
    engine.encode(text)
    return time.perf_counter() - began
