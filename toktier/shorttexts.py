"""Texts that are too short to be looked for by their prefixes: their ids, remembered for when they come again."""

from __future__ import annotations

import sys
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from functools import partial
from time import perf_counter_ns

import numpy as np

from toktier.engines.base import UINT32, Engine, Ids, checked
from toktier.explanation import Account, Explanation, Step, explained
from toktier.route import demotions
from toktier.tokenizer import Tokenizer
from toktier.untrusted import Spans

OVERHEAD = 400
"""Bytes of an entry beside text, salt, spans and ids."""

SPAN = 120
"""Bytes of an untrusted span."""


class ShortTexts:
    """The ids of texts, each as it is, in a budget of bytes. Safe to share between threads.

    Args:
        tok: The tokenizer.
        engine: What encodes.
        max_bytes: What all together may hold. Beyond that, those go that were not asked for for longest.
        ttl: Seconds after which a text that was not asked for goes.

    Example:
        >>> import toktier
        >>> short = ShortTexts(toktier.load("toktier-mini"), "memo", 1 << 20, 3600.0)
        >>> print(short.encode("Hello", "", ())[1]())
        full: text started; all of 5 characters encoded by memo; 3 ids replace 0; ... ms
        >>> print(short.remembered("Hello", "", ())[1]())
        full: text repeated; nothing of 5 characters had to be encoded; 0 ids replace 0; ... ms
    """

    def __init__(self, tok: Tokenizer, engine: str | Engine, max_bytes: int, ttl: float) -> None:
        self._tok, self._engine, self._max_bytes, self._ttl = tok, engine, max_bytes, ttl
        self._ids: OrderedDict[tuple[str, str, Spans], tuple[bytes, float]] = OrderedDict()
        """By salt, text and what of it is untrusted; and when they were last asked for."""
        self._bytes, self._trusted = 0, self._demotions()
        self._lock = threading.Lock()

    @property
    def nbytes(self) -> int:
        """Bytes that they are taken to hold."""
        return self._bytes

    def encode(self, text: str, salt: str, spans: Spans) -> tuple[Ids, Account]:
        """The ids of a text that is not remembered, and an account of that, for whoever asks for it.

        Args:
            text: The text.
            salt: Whose it is.
            spans: Its untrusted characters.
        """
        tok, engine = self._tok, self._encoding()
        began, trusted = perf_counter_ns(), self._demotions()
        if spans:
            known = tok.protection.encode(text, spans, engine).tobytes()
        else:
            known = checked(engine, engine.encode(text)).tobytes()
        if self._demotions() != trusted:  # meanwhile: the engine is another one now
            return self.encode(text, salt, spans)
        ids, took = np.frombuffer(known, UINT32), perf_counter_ns() - began
        tok.meter.count("full", engine.name, len(text), len(text), took)
        watcher = tok.meter.watcher
        if watcher is not None and watcher.is_due(len(text)):
            watcher.offer("full", engine, len(text), text.__str__, ids, untrusted=spans)
        with self._lock:
            if (salt, text, spans) not in self._ids and trusted == self._trusted:
                self._ids[salt, text, spans] = known, time.monotonic()
                self._bytes += _size(salt, text, spans, known)
            while self._bytes > self._max_bytes and self._ids:
                self._drop_oldest()
        return ids, partial(_account, "started", len(text), len(ids), lambda: engine, took)

    def remembered(self, text: str, salt: str, spans: Spans) -> tuple[Ids, Account] | None:
        """The same of a text that is remembered; None of another one."""
        began = perf_counter_ns()
        self._look_for_demotions()
        self.expire()
        with self._lock:
            known = self._ids.get((salt, text, spans))
            if known is None:
                return None
            self._ids[salt, text, spans] = known[0], time.monotonic()
            self._ids.move_to_end((salt, text, spans))
        ids = np.frombuffer(known[0], UINT32)
        return ids, partial(_account, "repeated", len(text), 0, self._encoding, perf_counter_ns() - began)

    def _encoding(self) -> Engine:
        return self._tok.engine(self._engine) if isinstance(self._engine, str) else self._engine

    def expire(self) -> None:
        """Forgets what was not asked for for too long."""
        limit = time.monotonic() - self._ttl
        with self._lock:
            while self._ids and next(iter(self._ids.values()))[1] < limit:
                self._drop_oldest()

    def _look_for_demotions(self) -> None:
        """Forgets what may be of an engine that was demoted meanwhile.

        Sessions see to that themselves, and the saver to what is on disk: for a short text nobody waits for that.
        """
        count = self._demotions()
        if count != self._trusted:
            with self._lock:
                self._ids.clear()
                self._bytes, self._trusted = 0, count

    def _demotions(self) -> int:
        return demotions.count(self._tok.family.digest)

    def _drop_oldest(self) -> None:
        (salt, text, spans), (ids, _) = self._ids.popitem(last=False)
        self._bytes -= _size(salt, text, spans, ids)
        if not self._ids:
            self._bytes = 0  # a signal between the two lines above would have left a part of the budget taken


def _size(salt: str, text: str, spans: Spans, ids: bytes) -> int:
    return OVERHEAD + sys.getsizeof(salt) + sys.getsizeof(text) + SPAN * len(spans) + len(ids)


def _account(met: str, characters: int, ids: int, engine: Callable[[], Engine], took: int) -> Explanation:
    windows = [(0, characters)] if met == "started" and characters else []
    step = Step("full", windows, 0, 0, ids, took)
    return explained(step, characters, engine().name, fallback=None).found("text", met)
