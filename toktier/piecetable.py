"""The text of a session as a piece table: edited in place, never copied as a whole.

A Python string is immutable, so ``text[:start] + new + text[stop:]`` reads and writes all of it: 4 million
characters for one typed letter. A piece table (J S. Moore's, of the Xerox Bravo editor; C. Crowley, "Data
Structures for Text Sequences", 1998) keeps the strings it was given and describes the text as spans of them,
so that an edit touches spans only.
"""

from __future__ import annotations

import sys
from array import array
from bisect import bisect_left, bisect_right
from contextlib import suppress
from itertools import pairwise

import numpy as np

__all__ = ["PieceTable"]

LIMIT = 4096
"""Characters up to which the last piece grows; what an edit leaves of others is merged up to half of it."""
BLOCK = 1 << 16
"""Characters that a comparison copies at a time."""
SLACK = 1 << 16
"""Characters of sources that may always be kept alive without being part of the text."""


class PieceTable:
    """A text that is edited by ``splice`` and read by ``slice``, both at the cost of what they touch.

    Positions are characters (code points). The caller has validated them:
    ``0 <= start <= stop <= len(table)``. Any ``str`` is fine, lone surrogates included.

    Of two neighbouring pieces at least one has more than ``LIMIT // 2`` characters, so that there are at most
    ``2 * len(table) / (LIMIT // 2) + 1`` pieces however small the edits are.

    Strings are built before anything changes: running out of memory for one leaves the table as it was.

    Args:
        text: The text to begin with. It is referenced, not copied.

    Example:
        >>> table = PieceTable("one three")
        >>> table.splice(4, 4, "two ")
        >>> table.splice(len(table), len(table), " four")
        >>> table.slice(4, 13), table[0], len(table)
        ('two three', 'o', 18)
        >>> table.text()
        'one two three four'
    """

    __slots__ = ("_bounds", "_garbage", "_lows", "_sources")

    # Piece k holds the characters from _bounds[k] to _bounds[k + 1] of the text; they begin at _lows[k] in
    # _sources[k]. So _bounds begins with 0 and ends with the length of the text. No piece is empty.
    _sources: list[str]
    _lows: array[int]
    _bounds: array[int]
    _garbage: int  # no fewer than the characters of distinct sources that are not part of the text

    def __init__(self, text: str = "") -> None:
        self.replace_source(text)

    def __len__(self) -> int:
        """Characters in the text."""
        return self._bounds[-1]

    def __getitem__(self, i: int) -> str:
        """The character at ``i``, ``0 <= i < len(table)``."""
        bounds = self._bounds
        k = len(bounds) - 2 if i >= bounds[-2] else bisect_right(bounds, i) - 1
        return self._sources[k][self._lows[k] + i - bounds[k]]

    def slice(self, start: int, stop: int) -> str:
        """The characters from ``start`` to ``stop``: a copy of these alone.

        Example:
            >>> PieceTable("some text").slice(5, 9)
            'text'
        """
        if start >= stop:
            return ""
        bounds = self._bounds
        # Appending looks at the end of the text: the last piece is tried before any search.
        k = len(bounds) - 2 if start >= bounds[-2] else bisect_right(bounds, start) - 1
        skip = self._lows[k] - bounds[k]
        if stop <= bounds[k + 1]:
            return self._sources[k][start + skip : stop + skip]
        parts = [self._sources[k][start + skip : bounds[k + 1] + skip]]
        while stop > bounds[k + 2]:
            k += 1
            parts.append(self._piece(k))
        k += 1
        low = self._lows[k]
        parts.append(self._sources[k][low : low + stop - bounds[k]])
        return "".join(parts)

    def append(self, text: str) -> None:
        """Adds characters to the end, at the cost of O(len(text) + LIMIT).

        Example:
            >>> table = PieceTable("to be")
            >>> table.append(" continued")
            >>> table.text()
            'to be continued'
        """
        bounds, sources = self._bounds, self._sources
        length = bounds[-1]
        end = length + len(text)
        if sources and end - bounds[-2] <= LIMIT and length - bounds[-2] == len(sources[-1]):
            sources[-1] += text
            bounds[-1] = end
        elif text:
            sources.append(text)
            self._lows.append(0)
            bounds.append(end)

    def splice(self, start: int, stop: int, text: str) -> None:
        """Replace the characters from ``start`` to ``stop`` by ``text``.

        Costs O(len(text) + LIMIT), and the entries of the index behind the place are moved at C speed. Now
        and then a deletion also collapses the table: O(deleted), amortised.

        Args:
            start: Position of the first character to replace.
            stop: Position after the last one; equal to ``start`` for an insertion.
            text: The new characters; may be empty.

        Example:
            >>> table = PieceTable("hello world")
            >>> table.splice(0, 5, "goodbye")
            >>> table.text()
            'goodbye world'
        """
        bounds = self._bounds
        if start == bounds[-1]:
            self.append(text)
            return
        # The new piece takes in what is left of its neighbours where that is small. Of two pieces side by
        # side one is not, so each loop runs at most twice. A part of a string is never small.
        small = LIMIT // 2
        left, right = start, stop
        first = bisect_left(bounds, start)  # the pieces before this one stay, the last of them up to ``left``
        while first and left - bounds[first - 1] <= small:
            first -= 1
            left = bounds[first]
        after = bisect_right(bounds, stop) - 1  # this piece and those behind it stay, from ``right`` on
        last = len(bounds) - 1
        while after < last and bounds[after + 1] - right <= small:
            after += 1
            right = bounds[after]
        if left < start or stop < right:
            text = self.slice(left, start) + text + self.slice(stop, right)

        sources, lows, edges = ([text], [0], [left, left + len(text)]) if text else ([], [], [left])
        if after < last:
            sources.append(self._sources[after])
            lows.append(self._lows[after] + right - bounds[after])
            shift = edges[-1] - right
            if shift:
                tail = np.frombuffer(bounds, np.int64)[after + 1 :]
                tail += shift
                del tail  # an array that lends its memory to a view cannot grow
        self._sources[first : after + 1] = sources
        self._lows[first : after + 1] = array("q", lows)
        bounds[first : after + 1] = array("q", edges)
        self._garbage += right - left
        if self._garbage > bounds[-1] + SLACK:
            self._reclaim()

    def _reclaim(self) -> None:
        """Collapse into one string if that gives back about as much as it costs.

        A large source of which a small part is left (all but the head of a long prompt was deleted) would
        stay alive as a whole. So at most ``len(text) + SLACK`` characters may be unused: all distinct sources
        together have at most ``2 * len(text) + SLACK``.

        The counter only bounds the unused: it grows with each character that is deleted or merged. When it
        has reached the limit it is made exact here. If no more than half of it is real, the other half has to
        grow again before the next look; otherwise the O(remaining) characters of a collapse are O(deleted)
        before it. So both are paid for by what was deleted and merged (amortised).
        """
        length = self._bounds[-1]
        partial = self._partial()
        distinct = {id(source): len(source) for source, _ in partial}
        self._garbage = sum(distinct.values()) - sum(size for _, size in partial)
        if 2 * self._garbage > length + SLACK:
            with suppress(MemoryError):  # the edit is done and must not fail now; the next one tries again
                self.text()

    def text(self) -> str:
        """The whole text as one string.

        The table goes on with this string as its only source, so that both are the same memory. A table that
        is one whole string already returns it and copies nothing.

        Returns:
            The text.

        Raises:
            MemoryError: If there is no room for it; the table is as before.

        Example:
            >>> text = "as it is"
            >>> PieceTable(text).text() is text
            True
        """
        text = self.joined()
        if len(self._sources) > 1 or (self._sources and self._sources[0] is not text):
            self.replace_source(text)
        return text

    def joined(self) -> str:
        """The whole text as one string, which the table does not go on with; itself, if it is one already.

        Where some of the text is ASCII and some is not, the pieces may take a fourth of the memory.
        """
        return "".join([self._piece(k) for k in range(len(self._sources))])

    def replace_source(self, text: str) -> None:
        """Go on with ``text`` as the only source; nothing is copied.

        Args:
            text: The new text, whatever the old one was.

        Example:
            >>> table = PieceTable("old")
            >>> table.replace_source("new")
            >>> table.text()
            'new'
        """
        sources, lows = ([text], array("q", (0,))) if text else ([], array("q"))
        bounds = array("q", (0, len(text)) if text else (0,))
        # Side by side, so that nothing comes between them.
        self._sources, self._lows, self._bounds, self._garbage = sources, lows, bounds, 0

    def copy(self) -> PieceTable:
        """An independent table with the same text. The strings are shared: O(pieces).

        Example:
            >>> table = PieceTable("shared")
            >>> other = table.copy()
            >>> other.splice(0, 0, "no longer ")
            >>> table.text(), other.text()
            ('shared', 'no longer shared')
        """
        other = PieceTable.__new__(PieceTable)
        other._sources = self._sources.copy()
        other._lows = self._lows[:]
        other._bounds = self._bounds[:]
        other._garbage = self._garbage
        return other

    def common_prefix(self, other: str) -> int:
        """Length of the longest common prefix with ``other``, at the speed of a memory comparison.

        Args:
            other: The string to compare with.

        Returns:
            The largest n with ``table.slice(0, n) == other[:n]``, in characters.

        Example:
            >>> PieceTable("a transcript").common_prefix("a translation")
            7
        """
        self._separate()
        bounds = self._bounds
        for k, source in enumerate(self._sources):
            base, end = bounds[k], bounds[k + 1]
            skip = self._lows[k] - base
            # A piece that is a whole string is compared where it lies. If they differ, it is most often near the end:
            # one long slice before that is faster than many blocks, above all where those are narrower strings.
            if end - base == len(source):
                if other.startswith(source, base):
                    continue
                if end - base > 2 * BLOCK and other.startswith(source[:-BLOCK], base):
                    base = end - BLOCK
            while base < end:
                block = source[base + skip : min(base + BLOCK, end) + skip]
                if not other.startswith(block, base):
                    while len(block) > 1:
                        half = block[: len(block) // 2]
                        if other.startswith(half, base):
                            base += len(half)
                            half = block[len(half) :]
                        block = half
                    return base
                base += len(block)
        return bounds[-1]

    def _separate(self) -> None:
        """Make strings of their own of long pieces that are parts of others.

        Whoever compares once does it again, and then there is nothing to copy.
        """
        bounds = self._bounds
        for k, source in enumerate(self._sources):
            if 2 * BLOCK < bounds[k + 1] - bounds[k] < len(source):
                self._sources[k], self._lows[k] = self._piece(k), 0
                self._garbage += bounds[k + 1] - bounds[k]
        if self._garbage > bounds[-1] + SLACK:
            self._reclaim()

    def common_suffix(self, other: str, limit: int) -> int:
        """Length of the longest common suffix with ``other``, at most ``limit``.

        A short one costs little: the first block is small, and each next one has twice the size.

        Args:
            other: The string to compare with.
            limit: Characters to look at, at most the length of the shorter text (less the common prefix, if
                the two must not overlap).

        Returns:
            The largest n up to ``limit`` with which both end alike, in characters.

        Example:
            >>> PieceTable("in the end").common_suffix("at the end", 10)
            8
        """
        mine, theirs = self._bounds[-1], len(other)
        done, size = 0, 64
        while done < limit:
            size = min(size, limit - done)
            block = self.slice(mine - done - size, mine - done)
            if not other.endswith(block, 0, theirs - done):
                while len(block) > 1:
                    half = block[len(block) // 2 :]
                    if other.endswith(half, 0, theirs - done):
                        done += len(half)
                        half = block[: len(block) // 2]
                    block = half
                return done
            done += size
            size = min(2 * size, BLOCK)
        return done

    @property
    def pieces(self) -> int:
        """The number of pieces."""
        return len(self._sources)

    @property
    def nbytes(self) -> int:
        """Bytes held, those of the text included; strings that are shared with a copy count in both."""
        distinct = {id(source): source for source in self._sources}
        held = (self, self._sources, self._lows, self._bounds, *distinct.values())
        return sum(map(sys.getsizeof, held))

    def nbytes_overhead(self) -> int:
        """Bytes held beyond the characters of the text, in O(pieces).

        Counts the index, the headers of the strings, and those parts of them that are not (or no longer) part
        of the text. Strings that are shared with a copy count in both.

        Example:
            >>> 0 < PieceTable("text" * 1000).nbytes_overhead() < 1000
            True
        """
        header = sys.getsizeof("")
        total = sum(map(sys.getsizeof, (self, self._sources, self._lows, self._bounds)))
        total += header * len(self._sources)
        partial = self._partial()
        for source in {id(source): source for source, _ in partial}.values():
            total += sys.getsizeof(source) - header
        for source, size in partial:
            total -= (sys.getsizeof(source) - header) * size // len(source)
        return total

    def _partial(self) -> list[tuple[str, int]]:
        """The source and the length of each piece that is not a whole string."""
        return [
            (source, high - low)
            for source, (low, high) in zip(self._sources, pairwise(self._bounds), strict=True)
            if high - low < len(source)
        ]

    def _piece(self, k: int) -> str:
        """The characters of piece ``k``; the source itself, not a copy, if they are all of it."""
        low = self._lows[k]
        return self._sources[k][low : low + self._bounds[k + 1] - self._bounds[k]]
