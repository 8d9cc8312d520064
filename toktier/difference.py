"""What changed between the text of a session and a full text that is to replace it.

Front ends render the whole transcript again for every call. Most often only its end changed, and then one comparison
of memory finds it; but when reasoning is stripped from many old turns, or old tool results are shortened, there are
changes in many places, with long unchanged stretches between them. Any list of hunks that turns the one text into the
other is right; a short one saves work. This one is found greedily, by looking for samples of each text in the other.
"""

from __future__ import annotations

from typing import NamedTuple

from toktier.piecetable import PieceTable

SAMPLE = 48
"""Characters that must reappear for two places to be taken for the same."""

OFFSETS = (0, 64, 256, 1024, 4096, 16384)
"""Where samples are taken, in characters after the place from which the texts differ."""

REACH = 1 << 18
"""Characters in which samples are looked for first; only when none is found there, in all the rest."""

WORTHWHILE = 8192
"""Characters: a changed stretch shorter than this is not searched, an unchanged one shorter than half is not kept."""


class Hunk(NamedTuple):
    """One change: ``old[start:stop]`` becomes ``new[begin:end]``; positions are characters of texts, or ids.

    Attributes:
        start: The first that is replaced.
        stop: The one behind the last of them.
        begin: The first of what stands there now.
        end: The one behind the last of that.

    Example:
        >>> old, new = "one two three", "one 2 three"
        >>> change = Hunk(start=4, stop=7, begin=4, end=5)
        >>> old[: change.start] + new[change.begin : change.end] + old[change.stop :] == new
        True
    """

    start: int
    stop: int
    begin: int
    end: int


def hunks(table: PieceTable, new: str) -> list[Hunk]:
    """The changes that turn the text of a table into ``new``, in order and apart from one another.

    Costs one pass at the speed of memory comparison, and for each hunk a few searches of REACH characters, or of all
    the rest where that finds nothing.

    Args:
        table: The old text.
        new: The new one.

    Returns:
        No hunk when the texts are equal.

    Example:
        >>> hunks(PieceTable("one two three"), "one 2 three")
        [Hunk(start=4, stop=7, begin=4, end=5)]
    """
    hunk = single_hunk(table, new)
    if hunk is None:
        return []
    prefix, stop, _, end = hunk
    if end - prefix < WORTHWHILE or stop - prefix < WORTHWHILE:
        return [Hunk(prefix, stop, prefix, end)]
    old = table.slice(prefix, stop)
    found: list[Hunk] = []
    i, j = 0, prefix  # places in `old` and `new` from which the texts differ
    while i < len(old) or j < end:
        following_i, following_j = _meet(old, i, new, j, end)
        same = _common_prefix(old, following_i, new, following_j, end)
        hunk = Hunk(prefix + i, prefix + following_i, j, following_j)
        if found and hunk.start - found[-1].stop < WORTHWHILE // 2:
            hunk = Hunk(found[-1].start, hunk.stop, found.pop().begin, hunk.end)
        found.append(hunk)
        i, j = following_i + same, following_j + same
    return found


def single_hunk(table: PieceTable, new: str) -> Hunk | None:
    """The one change from the first place at which two texts differ to the last; None when they are equal.

    >>> single_hunk(PieceTable("one two three"), "one 2 three")
    Hunk(start=4, stop=7, begin=4, end=5)
    """
    prefix = table.common_prefix(new)
    suffix = table.common_suffix(new, min(len(table), len(new)) - prefix)
    stop, end = len(table) - suffix, len(new) - suffix
    return None if prefix == stop == end else Hunk(prefix, stop, prefix, end)


def _meet(old: str, i: int, new: str, j: int, end: int) -> tuple[int, int]:
    """The nearest places found at which the texts go on alike; the ends of both when there are none."""
    at_old, at_new = _nearest(old, i, new, j, end, reach=REACH)
    if at_old == len(old) and at_new == end:
        at_old, at_new = _nearest(old, i, new, j, end, reach=len(old) + end)
    # The sample was taken somewhere in an unchanged stretch: go back to where that begins.
    while at_old > i and at_new > j and old[at_old - 1] == new[at_new - 1]:
        at_old, at_new = at_old - 1, at_new - 1
    return at_old, at_new


def _nearest(old: str, i: int, new: str, j: int, end: int, *, reach: int) -> tuple[int, int]:
    """Where a sample of one text is in the other within ``reach``, with the least skipped; else the ends of both."""
    best, skipped = (len(old), end), len(old) - i + end - j
    for offset in OFFSETS:
        if skipped <= offset:
            break  # whatever a sample from so far away finds, it is no nearer
        places = []
        sample = new[j + offset : min(j + offset + SAMPLE, end)]
        if len(sample) == SAMPLE and (at := old.find(sample, i, i + reach)) >= 0:
            places.append((at, j + offset))
        sample = old[i + offset : i + offset + SAMPLE]
        if len(sample) == SAMPLE and (at := new.find(sample, j, min(end, j + reach))) >= 0:
            places.append((i + offset, at))
        for at_old, at_new in places:
            if at_old - i + at_new - j < skipped:
                best, skipped = (at_old, at_new), at_old - i + at_new - j
    return best


def _common_prefix(old: str, i: int, new: str, j: int, end: int) -> int:
    """How far two texts go on alike, in blocks that double, so that a short stretch costs little."""
    done, size = 0, SAMPLE
    limit = min(len(old) - i, end - j)
    while done < limit:
        size = min(size, limit - done)
        if old.startswith(new[j + done : j + done + size], i + done):
            done += size
            size = min(2 * size, 1 << 16)
        elif size == 1:
            break
        else:
            size //= 2
    return done
