"""Buckets that requests take turns in."""

from __future__ import annotations

import threading
import weakref
from collections import Counter, defaultdict
from collections.abc import Callable

from toktier.gpu.encoder import SMALLEST, Bucket

MOST = 4
"""Buckets of one capacity: so many requests are with the device, and others wait for one of them."""

KEPT = 1 << 27
"""Bytes of text for which buckets are kept that nobody uses; those that were not used for longest go first."""

GLANCE = 0.1
"""Seconds after which whoever waits looks again: a bucket that was lost to a signal is given back by nobody."""


class Pool:
    """The buckets of an encoder, made when they are needed. Safe to share between threads.

    One that nobody refers to any more, since a signal came at the wrong moment, does not count.

    Args:
        make: Makes a bucket of a capacity.
    """

    def __init__(self, make: Callable[[int], Bucket]) -> None:
        self._make = make
        self._free: list[Bucket] = []
        """Those that nobody uses; last the one that was given back last."""
        self._there: defaultdict[int, weakref.WeakSet[Bucket]] = defaultdict(weakref.WeakSet)
        """All there are, by their capacity."""
        self._coming: Counter[int] = Counter()
        """How many are being made of each capacity."""
        self._changed = threading.Condition()

    def take(self, size: int, *, wait: bool) -> Bucket | None:
        """A bucket for so many bytes, for the caller alone until it is given back.

        Args:
            size: Bytes of text.
            wait: Whether to wait when all are in use; otherwise None is given. Nobody who has one may wait for another.
        """
        capacity = max(SMALLEST, 1 << max(0, size - 1).bit_length())
        with self._changed:
            while True:
                for i, bucket in enumerate(self._free):
                    if bucket.capacity == capacity:
                        return self._free.pop(i)
                if len(self._there[capacity]) + self._coming[capacity] < MOST:
                    self._coming[capacity] += 1
                    break
                if not wait:
                    return None
                self._changed.wait(GLANCE)
        try:
            bucket = self._make(capacity)
            with self._changed:
                self._there[capacity].add(bucket)
            return bucket
        finally:
            with self._changed:
                self._coming[capacity] -= 1

    def give_back(self, bucket: Bucket) -> None:
        """Lets others use a bucket."""
        with self._changed:
            self._free.append(bucket)
            while sum(free.capacity for free in self._free) > KEPT:
                del self._free[0]
            self._changed.notify_all()

    def drop(self, bucket: Bucket | None) -> None:
        """Takes note that a bucket is to be used no more, since something went wrong with it."""
        if bucket is not None:
            bucket.abandon()
            with self._changed:
                self._there[bucket.capacity].discard(bucket)
                self._changed.notify_all()

    def clear(self) -> None:
        """Gives up all that nobody uses, for want of memory."""
        with self._changed:
            self._free.clear()
            self._changed.notify_all()
