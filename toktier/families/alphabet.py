"""Atoms: the code points partitioned so that no set of a given list tells two members of one atom apart."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt
from attrs import field, frozen

from toktier.families.probing import CODE_POINTS, Runs


@frozen(eq=False)
class Alphabet:
    """A partition of all code points into atoms, and what is known of each atom.

    Attributes:
        table: The atom of each code point, shape (0x110000,).
        properties: ``properties[atom, k]``: whether the members of the atom have the k-th property; shape (atoms, k).
    """

    table: npt.NDArray[np.int32] = field(repr=False)
    properties: npt.NDArray[np.bool_] = field(repr=False)

    @property
    def size(self) -> int:
        """The number of atoms."""
        return len(self.properties)

    def single_out(self, code_points: Iterable[int]) -> Alphabet:
        """The same with each of the given code points as an atom of its own, and without atoms that are now empty."""
        chosen = np.unique(np.fromiter(code_points, np.int64))
        table = self.table.copy()
        table[chosen] = self.size + np.arange(len(chosen))
        properties = np.concatenate([self.properties, self.properties[self.table[chosen]]])
        used = np.bincount(table, minlength=len(properties)) > 0
        return Alphabet((np.cumsum(used) - 1).astype(np.int32)[table], properties[used])


def partition(sets: Sequence[Runs]) -> Alphabet:
    """The coarsest alphabet in which every given set is a union of atoms; the k-th property is to be in the k-th set.

    Works on the boundaries of the sets' runs, some thousands, and not on the million code points.

    Args:
        sets: Each as ascending run boundaries ``[start, stop, start, stop, ...]``.

    Example:
        >>> alphabet = partition([np.array([97, 100]), np.array([99, 101])])  # a-c and c-d
        >>> alphabet.table[[96, 97, 98, 99, 100, 101]].tolist()
        [0, 2, 2, 3, 1, 0]
    """
    starts = np.unique(np.concatenate([[0], *sets]))
    starts = starts[starts < CODE_POINTS]
    inside = np.zeros((len(starts), len(sets)), bool)
    for k, runs in enumerate(sets):
        inside[:, k] = np.searchsorted(runs, starts, side="right") % 2 == 1
    properties, atoms = np.unique(inside, axis=0, return_inverse=True)
    return Alphabet(np.repeat(atoms.reshape(-1).astype(np.int32), np.diff(np.append(starts, CODE_POINTS))), properties)
