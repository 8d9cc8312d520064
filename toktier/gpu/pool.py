"""Buckets that requests take turns in."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable

from toktier.gpu.encoder import SMALLEST, Bucket

MOST = 4
"""Buckets of one capacity: so many requests are with the device, and others wait for one of them."""


class Pool:
    """The buckets of an encoder, made when they are needed and kept. Safe to share between threads.

    Args:
        make: Makes a bucket of a capacity.
    """

    def __init__(self, make: Callable[[int], Bucket]) -> None:
        self._make = make
        self._free: dict[int, list[Bucket]] = {}
        self._made: Counter[int] = Counter()
        self._changed = threading.Condition()

    def take(self, size: int, *, wait: bool) -> Bucket | None:
        """A bucket for so many bytes, for the caller alone until it is given back or dropped.

        Args:
            size: Bytes of text.
            wait: Whether to wait when all are in use; otherwise None is given. Nobody who has one may wait for another.
        """
        capacity = max(SMALLEST, 1 << max(0, size - 1).bit_length())
        with self._changed:
            while True:
                if free := self._free.get(capacity):
                    return free.pop()
                if self._made[capacity] < MOST:
                    self._made[capacity] += 1
                    break
                if not wait:
                    return None
                self._changed.wait()
        try:
            return self._make(capacity)
        except BaseException:
            self._forget(capacity)
            raise

    def give_back(self, bucket: Bucket) -> None:
        """Lets others use a bucket."""
        with self._changed:
            self._free.setdefault(bucket.capacity, []).append(bucket)
            self._changed.notify_all()

    def drop(self, bucket: Bucket) -> None:
        """Takes note that a bucket is to be used no more, since something went wrong with it."""
        bucket.abandon()
        self._forget(bucket.capacity)

    def _forget(self, capacity: int) -> None:
        with self._changed:
            self._made[capacity] -= 1
            self._changed.notify_all()
