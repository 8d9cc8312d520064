"""Which texts the GPU is given: those that it encodes sooner than the processor, while it has little before it."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Sequence
from pathlib import Path

from toktier.engines.base import Ids, contained
from toktier.engines.memo import MemoEngine
from toktier.families.family import valid_text
from toktier.gpu.encoder import LARGEST
from toktier.gpu.engine import GpuEngine

BACKLOG = 1 << 27
"""Characters that the device may have before it. With more, texts would wait for longer than they take here."""

LEAST, MOST = 1 << 10, 1 << 17
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
        threshold: Characters from which on a request goes there. Not given: it is measured, in a tenth of a second.
        backlog: Characters that may be there already.

    Attributes:
        threshold: Characters from which on a request goes there.
        offloaded: How many requests the device has encoded.
        declined: How many it was not given, although they were long enough, because it had too much before it.
        trouble: Why it is given no more; None while it is.
    """

    name = GpuEngine.name
    call_size = LARGEST  # the chunks of a text are one request

    def __init__(
        self, gpu: GpuEngine, host: MemoEngine, *, threshold: int | None = None, backlog: int = BACKLOG
    ) -> None:
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

    def encode(self, text: str, *, continuation: bool = False) -> Ids:
        """The ids of a text, uint32, shape (tokens,)."""
        if len(text) < self.threshold:
            return self.host.encode(text)
        return self.encode_batch([text])[0]

    def encode_batch(self, texts: Sequence[str], *, continuation: bool = False) -> list[Ids]:
        """The ids of several texts."""
        size = sum(map(len, texts))
        if size < self.threshold or not self._admitted(size):
            return self.host.encode_batch(texts)
        try:
            ids = self.gpu.encode_batch(texts)
        except BaseException as error:
            if not contained(error):
                raise
            for text in texts:
                valid_text(text)  # what is no text is no failure of the device
            self._note(error)
            return self.host.encode_batch(texts)
        finally:
            with self._lock:
                self._before -= size
        self.offloaded += 1
        self._failures = 0
        return ids

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

    def _note(self, error: BaseException) -> None:
        with self._lock:
            self._failures += 1
            logger.warning("the GPU failed (%r): the processor encodes in its place", error)
            if self._failures >= PATIENCE and self.trouble is None:
                self.trouble = f"the GPU is given no more texts, since it failed {self._failures} times: {error!r}"
                logger.warning("%s", self.trouble)


def measured_threshold(gpu: GpuEngine, host: MemoEngine) -> int:
    """The characters that the processor encodes in the time of the shortest request to the device.

    The processor is measured with a text of which it has seen all, so that the threshold is high rather than low.
    """
    page = Path(__file__).read_text()
    there = min(_seconds(gpu, page[:100]) for _ in range(20))
    here = min(_seconds(host, page) for _ in range(5))
    return max(LEAST, min(MOST, int(len(page) * there / here)))


def _seconds(engine: GpuEngine | MemoEngine, text: str) -> float:
    began = time.perf_counter()
    engine.encode(text)
    return time.perf_counter() - began
