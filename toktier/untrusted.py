"""Which characters of a text are untrusted: written by somebody who must not be able to make special tokens.

A text is given with the *spans* of its untrusted characters; everything else is trusted. A session keeps them as the
places at which trust changes, so that an edit moves them as it moves the text.
"""

from __future__ import annotations

import operator
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from typing import Literal, TypeAlias

import numpy as np
import numpy.typing as npt

Span: TypeAlias = tuple[int, int]
"""From a character up to another one, which is not in it any more."""

Spans: TypeAlias = tuple[Span, ...]
"""Spans in ascending order, none of which is empty, overlaps the next one or touches it."""

Special: TypeAlias = Literal["token", "text"]
"""What a special token in a text is: a token, or text like any other because nobody trusts who wrote it."""


def checked_spans(untrusted: Iterable[Sequence[int]], length: int) -> Spans:
    """What a caller gave as the untrusted spans of a text, in order and merged.

    Args:
        untrusted: Pairs of positions in characters, in any order.
        length: Characters of the text.

    Raises:
        TypeError: It is something else.
        IndexError: A span does not lie in the text.

    Example:
        >>> checked_spans([(7, 9), (2, 5), (5, 6), (4, 4)], 10)
        ((2, 6), (7, 9))
    """
    try:
        pairs = sorted((operator.index(start), operator.index(stop)) for start, stop in untrusted)
    except (TypeError, ValueError) as error:
        raise TypeError(f"untrusted must be pairs (start, stop) of characters: {error}") from None
    for start, stop in pairs:
        if not 0 <= start <= stop <= length:
            raise IndexError(f"untrusted span ({start}, {stop}) is out of range: 0 <= start <= stop <= {length}")
    return merged(pairs)


def is_text(special: Special) -> bool:
    """Whether special tokens are to be text.

    Raises:
        ValueError: It is neither ``"token"`` nor ``"text"``.
    """
    if special not in ("token", "text"):  # whatever it is, hashable or not
        raise ValueError(f"special must be 'token' or 'text', not {special!r}")
    return special == "text"


def within(spans: Spans, start: int, stop: int) -> Spans:
    """What of some spans lies in a part of the text, counted from its beginning.

    >>> within(((2, 6), (7, 9)), 4, 8)
    ((0, 2), (3, 4))
    """
    if start == stop:
        return ()
    first = bisect_right(spans, start, key=operator.itemgetter(1))
    last = bisect_left(spans, stop, key=operator.itemgetter(0))
    return tuple((max(a, start) - start, min(b, stop) - start) for a, b in spans[first:last])


def merged(ascending: Iterable[Span]) -> Spans:
    """Spans that begin in ascending order, less those that are empty, where what overlaps or touches is one.

    >>> merged([(0, 2), (1, 3), (3, 5), (6, 6), (7, 8)])
    ((0, 5), (7, 8))
    """
    found: list[Span] = []
    for start, stop in ascending:
        if found and start <= found[-1][1]:
            found[-1] = found[-1][0], max(stop, found[-1][1])
        elif start < stop:
            found.append((start, stop))
    return tuple(found)


class Untrusted:
    """The untrusted characters of a text that changes.

    Example:
        >>> untrusted = Untrusted()
        >>> untrusted.replace(0, 0, 10, ((2, 6),))
        >>> untrusted.replace(4, 5, 3, ())
        >>> untrusted.spans()
        ((2, 4), (7, 8))
    """

    __slots__ = ("_edges",)

    def __init__(self, spans: Spans = ()) -> None:
        self._edges = array("q", (edge for span in spans for edge in span))
        """Where untrusted characters begin and end, by turns; ascending."""

    def __bool__(self) -> bool:
        return bool(self._edges)

    def spans(self) -> Spans:
        """All of them."""
        return _paired(self._edges)

    def within(self, start: int, stop: int) -> Spans:
        """Those in a part of the text, counted from its beginning."""
        edges = self._edges
        if not edges or start == stop:
            return ()
        first, last = bisect_right(edges, start), bisect_left(edges, stop)
        inside = [edge - start for edge in edges[first:last]]
        if first % 2:  # trust was lost before, and comes back in the part or behind it
            inside.insert(0, 0)
        if len(inside) % 2:
            inside.append(stop - start)
        return _paired(inside)

    def around(self, left: int, change: tuple[int, int, int, Spans], right: int) -> Spans:
        """Those in a part of the text as it will be, counted from its beginning.

        Args:
            left: Where the part begins.
            change: The characters from one position to another become so many new ones, with untrusted spans.
            right: Where the part ends, in the text as it is.
        """
        start, stop, size, spans = change
        at, behind = start - left, start - left + size
        inside, after = ((a + at, b + at) for a, b in spans), self.within(stop, right)
        return merged([*self.within(left, start), *inside, *((a + behind, b + behind) for a, b in after)])

    def replace(self, start: int, stop: int, size: int, spans: Spans) -> None:
        """Puts new characters in the place of some.

        Args:
            start: The first character that goes.
            stop: The first that stays behind them.
            size: How many come instead.
            spans: Which of these are untrusted, counted from the first.
        """
        edges = self._edges
        if not edges and not spans:
            return
        kept, rest = bisect_left(edges, start), bisect_right(edges, stop)
        moved = array("q", (np.frombuffer(edges[rest:], np.int64) + (size - (stop - start))).tobytes())
        if rest % 2:
            moved.insert(0, start + size)
        closes = kept % 2
        del edges[kept:]
        if closes:
            edges.append(start)
        _join(edges, array("q", (start + edge for span in spans for edge in span)))
        _join(edges, moved)

    def copy(self) -> Untrusted:
        """An independent copy."""
        other = Untrusted.__new__(Untrusted)
        other._edges = self._edges[:]
        return other

    def array(self) -> npt.NDArray[np.int64]:
        """Begins and ends by turns; a copy."""
        return np.array(self._edges, np.int64)

    @classmethod
    def of(cls, edges: npt.NDArray[np.int64]) -> Untrusted:
        """From what :meth:`array` gave."""
        other = cls.__new__(cls)
        other._edges = array("q", edges.tobytes())
        return other

    @property
    def nbytes(self) -> int:
        """Bytes held, the room for growth included."""
        return self._edges.__sizeof__()


def _paired(edges: Sequence[int]) -> Spans:
    return tuple(zip(edges[::2], edges[1::2], strict=True))


def _join(edges: array[int], more: array[int]) -> None:
    """Adds edges behind others. What ends where the next begins is one."""
    if edges and more and edges[-1] == more[0]:
        edges.pop()
        del more[0]
    edges.extend(more)
