"""The token ids of a session: a growable array that copies only what someone else may still look at."""

from __future__ import annotations

import sys

import numpy as np
import numpy.typing as npt

__all__ = ["IdArray"]

SPARE = 1024
"""Ids: the least room that a new buffer has beyond its content."""


class IdArray:
    """A growable array of token ids (uint32) whose handed-out views never change.

    A view shares memory with the array, so a cell that a view shows must not be written again. It is enough
    to remember how many cells were shown: a splice behind them writes in place, one that begins before their
    end goes to a new buffer. So a caller who only appends, or who never asks for a view, pays for no copy.

    Room for growth is about 1/8 of the content, and room that deletions leave is given back: at most 5 bytes
    an id, and a constant. A splice that runs out of memory leaves the array as it was.

    Positions are ids. The caller has validated them: ``0 <= start <= stop <= len(array)``.

    Example:
        >>> ids = IdArray()
        >>> ids.splice(0, 0, np.array([1, 2, 3], np.uint32))
        >>> before = ids.view()
        >>> ids.splice(1, 2, np.array([7, 8], np.uint32))
        >>> ids.view(), before
        (array([1, 7, 8, 3], dtype=uint32), array([1, 2, 3], dtype=uint32))
    """

    __slots__ = ("_buffer", "_capacity", "_length", "_shown")

    _buffer: npt.NDArray[np.uint32]
    _capacity: int  # len(_buffer); an attribute is faster to read
    _length: int
    _shown: int  # cells that a view or a fork may still read; never more than _length

    def __init__(self) -> None:
        self._buffer = np.empty(0, np.uint32)
        self._capacity = self._length = self._shown = 0

    def __len__(self) -> int:
        """Number of ids."""
        return self._length

    @property
    def nbytes(self) -> int:
        """Bytes of the buffer, the room for growth included. Forks that share one count it in each."""
        return 4 * self._capacity

    def view(self) -> npt.NDArray[np.uint32]:
        """The ids as a read-only array that shares their memory and never changes.

        Example:
            >>> ids = IdArray()
            >>> ids.view()
            array([], dtype=uint32)
        """
        self._shown = self._length
        # By way of a read-only buffer, so that nobody can make the array writeable again.
        return np.asarray(self._buffer[: self._length].data.toreadonly())

    def window(self, start: int, stop: int) -> npt.NDArray[np.uint32]:
        """The ids from ``start`` to ``stop``, for a look inside this library.

        The window is valid until the next splice and must not be handed out, written to, or spliced into its
        own array.

        Example:
            >>> ids = IdArray()
            >>> ids.splice(0, 0, np.array([1, 2, 3], np.uint32))
            >>> ids.window(1, 3).tolist()
            [2, 3]
        """
        return self._buffer[start:stop]

    def fork(self) -> IdArray:
        """An independent array with the same ids, in O(1): the two share a buffer until one of them writes.

        Example:
            >>> ids = IdArray()
            >>> other = ids.fork()
            >>> other.splice(0, 0, np.array([5], np.uint32))
            >>> len(ids), len(other)
            (0, 1)
        """
        other = IdArray.__new__(IdArray)
        # Without the room behind the content: only one side may write there.
        other._buffer = self._buffer[: self._length]
        other._capacity = other._length = other._shown = self._shown = self._length
        return other

    def splice(self, start: int, stop: int, ids: npt.NDArray[np.uint32]) -> None:
        """Replace the ids from ``start`` to ``stop`` by ``ids``.

        At the end this is an append in amortised O(len(ids)). In the middle the ids behind the place are
        moved once.

        Args:
            start: Index of the first id to replace.
            stop: Index after the last one; equal to ``start`` for an insertion.
            ids: The new ids; may be empty. A view of this array is allowed, a window is not.

        Raises:
            MemoryError: If a larger buffer is needed and there is no room for it; nothing has changed.

        Example:
            >>> ids = IdArray()
            >>> ids.splice(0, 0, np.array([1, 2, 3], np.uint32))
            >>> ids.splice(0, 2, np.array([9], np.uint32))
            >>> ids.view().tolist()
            [9, 3]
        """
        self.commit(start, stop, ids, self.prepare(start, stop, ids))

    def prepare(self, start: int, stop: int, ids: npt.NDArray[np.uint32]) -> npt.NDArray[np.uint32] | None:
        """The first half of a splice: all that may run out of memory. Nothing can be seen of it.

        Returns:
            What :meth:`commit` needs besides: a buffer with the ids as they will be, or None if they go where they are.
        """
        length = self._length
        total = start + len(ids) + length - stop
        fits = total <= self._capacity <= total + total // 4 + 4 * SPARE
        if start < self._shown and self._is_sole_owner():
            self._shown = 0
        if start >= self._shown and (fits or self._grow(total)):
            return None
        buffer = np.empty(_with_spare(total), np.uint32)
        buffer[:start] = self._buffer[:start]
        buffer[start : start + len(ids)] = ids
        buffer[start + len(ids) : total] = self._buffer[stop:length]
        return buffer

    def commit(
        self, start: int, stop: int, ids: npt.NDArray[np.uint32], prepared: npt.NDArray[np.uint32] | None
    ) -> None:
        """The second half of a splice, with the arguments of the first and what that returned; it cannot fail."""
        length = self._length
        end = start + len(ids)
        total = end + length - stop
        if prepared is not None:
            # The old one belongs to those who were shown it.
            self._buffer, self._capacity, self._length, self._shown = prepared, len(prepared), total, 0
            return
        if stop < length and stop != end:
            # Between memoryviews this is one memmove; numpy moves overlapping cells upwards one by one.
            cells = self._buffer.data
            cells[end:total] = cells[stop:length]
        self._buffer[start:end] = ids
        self._length = total

    def _grow(self, total: int) -> bool:
        """Enlarge the buffer itself to hold ``total`` ids; False if it is large enough or others refer to it.

        For a large block the system moves page tables, not content. The check of references is numpy's own:
        without it, a forgotten window would be left with memory that is no longer ours.
        """
        # It counts references, which is an interpreter's affair: what was handed out does not rest on it.
        if self._shown or total <= self._capacity:
            return False
        capacity = _with_spare(total)
        try:
            self._buffer.resize(capacity)
        except ValueError:
            return False
        self._capacity = capacity
        return True

    def _is_sole_owner(self) -> bool:
        """Whether all views and forks are gone, so that nobody can look at what was shown any more.

        Each of them holds a reference to the buffer, directly or by way of what it is a view of. Where references are
        not counted, or not at once, they are never all gone.
        """
        return self._buffer.base is None and _references(self._buffer) == SOLE


def _references(anything: object) -> int:
    return sys.getrefcount(anything) if hasattr(sys, "getrefcount") else 1 << 30


class _Holder:
    """An object with one attribute, as an array has its buffer."""

    def __init__(self) -> None:
        self.held = np.empty(1)

    def references(self) -> int:
        """How many references this interpreter counts when nobody else has one."""
        return _references(self.held)


SOLE = _Holder().references()
"""What :func:`_references` says of an attribute that nobody else refers to; interpreters differ."""


def _with_spare(total: int) -> int:
    """Cells of a buffer for ``total`` ids: 1/8 more, so that appending n ids copies O(n) of them in all."""
    return total + total // 8 + SPARE
