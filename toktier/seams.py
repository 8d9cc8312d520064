"""Seams: certified cuts of one text, each with the number of ids to its left.

They are what makes an edit local: between two seams, text and ids are those of a text of its own.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left

import numpy as np
import numpy.typing as npt

from toktier.planner import CHUNK, CutPlanner

SPACING = 1024
"""Characters between two seams, about: an edit encodes at most some twice as many beside its own. But see COARSE."""

COARSE = 48 * SPACING
"""Characters from which on what is appended at once has seams only where the planner cuts it into chunks, since each
costs one more call of the engine. The first edit at a place makes them finer there."""

Seam = tuple[int, int]
"""A position in characters, and the number of ids left of it."""


class Seams:
    """The seams of a text in ascending order. The first is the beginning of the text, ``(0, 0)``; its end is none.

    Example:
        >>> seams = Seams()
        >>> seams.replace(1, 1, [(10, 2), (2000, 500)], 0, 0)
        >>> seams.replace(2, 2, [(50, 9)], shift=5, ids_shift=1)
        >>> [seams[k] for k in range(len(seams))]
        [(0, 0), (50, 9), (2005, 501)]
    """

    __slots__ = ("_counts", "_positions")

    def __init__(self) -> None:
        self._positions = array("q", (0,))
        self._counts = array("q", (0,))

    def __len__(self) -> int:
        return len(self._positions)

    def __getitem__(self, k: int) -> Seam:
        return self._positions[k], self._counts[k]

    def last(self) -> Seam:
        """The last seam."""
        return self._positions[-1], self._counts[-1]

    def extend(self, seams: list[Seam]) -> None:
        """Adds seams behind the last one. One whose neighbours are within SPACING of one another is dropped."""
        positions, counts = self._positions, self._counts
        for position, count in seams:
            while len(positions) > 1 and position - positions[-2] <= SPACING:
                positions.pop()
                counts.pop()
            positions.append(position)
            counts.append(count)

    def find(self, position: int) -> int:
        """The index of the first seam that is not left of a position; ``len(seams)`` when there is none."""
        return bisect_left(self._positions, position)

    def is_at(self, k: int, position: int) -> bool:
        """Whether there is a seam ``k``, and it lies at a position."""
        return k < len(self._positions) and self._positions[k] == position

    def replace(self, kept: int, rest: int, seams: list[Seam], shift: int, ids_shift: int) -> None:
        """Puts new seams between the first ``kept`` ones and those from ``rest`` on, which move.

        A seam between two others that are within SPACING of one another is dropped, so that there are never many.

        Args:
            kept: How many seams stay at the beginning.
            rest: The index of the first that stays behind them.
            seams: What comes between.
            shift: By how many characters the ones behind move.
            ids_shift: By how many ids their counts grow.
        """
        positions, counts = self._positions, self._counts
        last = len(positions) - 1
        if seams or rest <= last:
            following = seams[0][0] if seams else positions[rest] + shift
            while kept >= 2 and following - positions[kept - 2] <= SPACING:
                kept -= 1
        preceding = seams[-1][0] if seams else positions[kept - 1]
        while rest < last and positions[rest + 1] + shift - preceding <= SPACING:
            rest += 1
        if rest <= last:
            # They move in one step each; the list of a long text has thousands.
            moved = (
                np.frombuffer(positions[rest:], np.int64) + shift,
                np.frombuffer(counts[rest:], np.int64) + ids_shift,
            )
        del positions[kept:], counts[kept:]
        for position, count in seams:
            positions.append(position)
            counts.append(count)
        if rest <= last:
            positions.frombytes(moved[0].tobytes())
            counts.frombytes(moved[1].tobytes())

    def copy(self) -> Seams:
        """An independent copy."""
        other = Seams.__new__(Seams)
        other._positions, other._counts = self._positions[:], self._counts[:]
        return other

    @classmethod
    def of(cls, positions: npt.NDArray[np.int64], counts: npt.NDArray[np.int64]) -> Seams:
        """Seams from what :meth:`arrays` gave."""
        seams = cls.__new__(cls)
        seams._positions, seams._counts = array("q", positions.tobytes()), array("q", counts.tobytes())
        return seams

    def arrays(self) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """All positions, and all counts; copies."""
        return np.array(self._positions, np.int64), np.array(self._counts, np.int64)

    @property
    def nbytes(self) -> int:
        """Bytes held, the room for growth included."""
        return self._positions.__sizeof__() + self._counts.__sizeof__()


def breaks(planner: CutPlanner, window: str, *, to_end: bool, coarse: bool) -> list[int]:
    """Where to cut a window of a text into parts, whose separate encoding yields the id counts of new seams.

    About every SPACING characters, where it is more than twice as long. If the window is the end of the text, also as
    near to that as possible, which is where the next append will begin, and one SPACING before.

    Args:
        planner: Says where it may be cut.
        window: The text.
        to_end: Whether it is the end of the text.
        coarse: Whether a long one needs fewer seams.

    Returns:
        Certified cuts of the window, ascending.
    """
    found: list[int] = []
    length = len(window)
    if length > 2 * SPACING:
        found = planner.cuts(window, CHUNK if coarse and length > COARSE else SPACING)
    previous = found[-1] if found else 0
    # What a front end takes back is what it put at the end a moment ago, such as a generation prompt.
    before_end = length - SPACING if length > 2 * SPACING else 0
    if to_end and (at := planner.family.last_cut(window, previous, before_end)) > previous:
        found.append(at)
        previous = at
    if to_end and (at := planner.family.last_cut(window, previous, length)) > previous:
        found.append(at)
    return found
