"""Atoms: the code points partitioned so that no set of a given list tells two members of one atom apart."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from attrs import field, frozen

from toktier.families.pattern import Unsupported
from toktier.families.probing import CODE_POINTS, Runs

MAX_ATOMS = 2_000
"""What is derived has the atoms squared as its size, and takes the third power of them as its time: here some seconds
and 200 MB. Production tokenizers have 65 at most."""

MAX_CELLS = 50_000_000
"""Bytes of the table of runs and sets that a partition is made from. For production tokenizers it has 300,000."""


def refuse_too_many(atoms: int) -> None:
    """Makes sure, before anything of their size is made, that there are not too many atoms.

    Raises:
        Unsupported: There are.
    """
    if atoms > MAX_ATOMS:
        raise Unsupported(f"more than {MAX_ATOMS:,} characters or sets of characters are told apart: {atoms:,}")


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


def partition(sets: Sequence[Runs]) -> Alphabet:
    """The coarsest alphabet in which every given set is a union of atoms; the k-th property is to be in the k-th set.

    Works on the boundaries of the sets' runs, some thousands, and not on the million code points.

    Args:
        sets: Each as ascending run boundaries ``[start, stop, start, stop, ...]``.

    Raises:
        Unsupported: There are too many atoms, or too many runs of too many sets to find out.

    Example:
        >>> alphabet = partition([np.array([97, 100]), np.array([99, 101])])  # a-c and c-d
        >>> alphabet.table[[96, 97, 98, 99, 100, 101]].tolist()
        [0, 2, 2, 3, 1, 0]
    """
    starts = np.unique(np.concatenate([[0], *sets]))
    starts = starts[starts < CODE_POINTS]
    if len(starts) * len(sets) > MAX_CELLS:
        raise Unsupported(f"{len(sets):,} sets of characters have {len(starts):,} runs, which are too many")
    inside = np.zeros((len(starts), len(sets)), bool)
    for k, runs in enumerate(sets):
        inside[:, k] = np.searchsorted(runs, starts, side="right") % 2 == 1
    # Rows as bits, compared as bytes, are in the order of the rows; as rows, thousands of columns would take seconds.
    bits = np.packbits(np.pad(inside, ((0, 0), (1, 0))), axis=1)
    _, firsts, atoms = np.unique(bits.view(f"V{bits.shape[1]}")[:, 0], return_index=True, return_inverse=True)
    refuse_too_many(len(firsts))
    return Alphabet(np.repeat(atoms.astype(np.int32), np.diff(np.append(starts, CODE_POINTS))), inside[firsts])
