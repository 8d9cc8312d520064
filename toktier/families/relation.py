"""A relation on neighbouring characters, and how it is taken back through the stages of a tokenizer.

The model, at the end, sees pieces; what it may be given separately is a relation there. Stage by stage, from the last
to the first, the relation becomes one on the characters that the stage is given, until it is one on the user's text.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
from attrs import evolve, field, frozen

from toktier.families.alphabet import Alphabet, refuse_too_many
from toktier.families.probing import CODE_POINTS, Runs

Pairs: TypeAlias = npt.NDArray[np.bool_]
"""``pairs[left, right]`` for two atoms; shape (atoms, atoms)."""

Atoms: TypeAlias = npt.NDArray[np.int32]
"""Some atoms; shape (n,)."""

Characters: TypeAlias = frozenset[int]
"""A set of code points."""


@frozen(eq=False)
class Relation:
    """Pairs of neighbouring characters, as pairs of atoms.

    Attributes:
        table: The atom of each code point, shape (0x110000,).
        pairs: ``pairs[left, right]``: whether two atoms are in the relation; shape (atoms, atoms).

    Example:
        >>> nothing = Relation.uniform(False)
        >>> nothing.single_out([ord("a"), ord("b")]).size
        3
    """

    table: npt.NDArray[np.int32] = field(repr=False)
    pairs: Pairs = field(repr=False)

    @classmethod
    def uniform(cls, holds: bool) -> Relation:
        """The relation of all pairs, or of none."""
        return cls(np.zeros(CODE_POINTS, np.int32), np.full((1, 1), holds))

    @property
    def size(self) -> int:
        """The number of atoms."""
        return len(self.pairs)

    def refined(self, alphabet: Alphabet) -> tuple[Relation, npt.NDArray[np.bool_]]:
        """The same relation on atoms that are told apart by an alphabet too.

        Returns:
            The relation, and for each of its atoms what the alphabet knows of it; shape (atoms, properties).

        Raises:
            Unsupported: There would be too many atoms.
        """
        table, mine, others = _told_apart(self.table, alphabet.table, alphabet.size)
        return Relation(table, self.pairs[np.ix_(mine, mine)]), alphabet.properties[others]

    def single_out(self, code_points: Iterable[int]) -> Relation:
        """The same relation with each of the given code points as an atom of its own.

        Raises:
            Unsupported: There would be too many atoms.
        """
        chosen = np.unique(np.fromiter(code_points, np.int64))
        table = np.zeros(CODE_POINTS, np.int32)
        table[chosen] = np.arange(1, len(chosen) + 1)
        return self.refined(Alphabet(table, np.zeros((len(chosen) + 1, 0), bool)))[0]

    def without(self, pairs: Pairs) -> Relation:
        """The relation less some pairs."""
        return evolve(self, pairs=self.pairs & ~pairs)

    def before(self, ends: Fates, starts: Fates) -> Relation:
        """The relation on what a rewriting is given, from that on what it gives.

        Args:
            ends: For each character, what the rewritten left side of a cut can end with when it ended with that.
            starts: The same for what the right side can begin with.

        Returns:
            The pairs of which all fates are related.
        """
        one, other = ends.matrix(self.size), starts.matrix(self.size)
        refused = one.astype(np.float32) @ (~self.pairs).astype(np.float32) @ other.T.astype(np.float32) > 0
        known = np.logical_and.outer(one.any(axis=1), other.any(axis=1))
        table, left, right = _told_apart(ends.table, starts.table, len(starts.fates))
        return Relation(table, (known & ~refused)[np.ix_(left, right)])


@frozen(eq=False)
class Fates:
    """What may become of each character, as sets of atoms.

    Attributes:
        table: The number of the fate of each code point, shape (0x110000,).
        fates: The atoms of each; none where it is not known.
    """

    table: npt.NDArray[np.int32] = field(repr=False)
    fates: Sequence[frozenset[int]] = field(repr=False)

    @classmethod
    def of(cls, images: Mapping[int, Characters], relation: Relation, unknown: Runs) -> Fates:
        """Those of characters that stay as they are, but for some; and for those of which nothing is known."""
        atoms_of: dict[Characters, int] = {}
        numbers = {frozenset((atom,)): atom for atom in range(relation.size)}
        table = relation.table.copy()
        for start, stop in unknown.reshape(-1, 2).tolist():
            table[start:stop] = numbers.setdefault(frozenset(), len(numbers))
        for code_point, image in images.items():
            if image not in atoms_of:
                atoms = frozenset(relation.table[list(image)].tolist())
                atoms_of[image] = numbers.setdefault(atoms, len(numbers))
            table[code_point] = atoms_of[image]
        refuse_too_many(len(numbers))
        return cls(table, list(numbers))

    def matrix(self, size: int) -> Pairs:
        """``matrix[fate, atom]``; shape (fates, atoms)."""
        result = np.zeros((len(self.fates), size), bool)
        for number, fate in enumerate(self.fates):
            result[number, list(fate)] = True
        return result


def _told_apart(one: Atoms, other: Atoms, size: int) -> tuple[Atoms, npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """The atoms of code points that two tables tell apart together.

    Args:
        one: A number for each code point, shape (0x110000,).
        other: The same.
        size: How many numbers there are in the other.

    Returns:
        The atom of each code point; and for each atom its number in the one table, and in the other.

    Raises:
        Unsupported: There would be too many.
    """
    both = one.astype(np.int64) * size + other
    used = np.flatnonzero(np.bincount(both))
    refuse_too_many(len(used))
    number = np.zeros(int(used[-1]) + 1, np.int32)
    number[used] = np.arange(len(used))
    return number[both], *np.divmod(used, size)
