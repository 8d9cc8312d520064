"""Added tokens, and condition 1: where a text may be cut for their sake.

The reference looks for them before anything else: the leftmost, and of several there the longest. No occurrence may
have both characters of a pair inside, or be told by one side of a cut what is on the other.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
from attrs import evolve, frozen

from toktier.families.pattern import Unsupported
from toktier.families.probing import Probe
from toktier.families.relation import Atoms, Pairs, Relation

FLAGS = ("special", "normalized", "lstrip", "rstrip", "single_word")
"""The flags of an added token."""


@frozen
class Literal:
    """An added token, with the flags of the reference library."""

    id: int
    content: str
    special: bool
    normalized: bool
    lstrip: bool
    rstrip: bool
    single_word: bool


def beside_literals(
    literals: list[Literal], relation: Relation, whitespace: Sequence[int], *, prefixed: bool
) -> Relation:
    """A relation less the pairs that literals can tell apart, where ``prefixed``, also by a prefix behind each."""
    singled = set(map(ord, "".join(literal.content for literal in literals))) if prefixed else _characters(literals)
    relation = relation.single_out([*whitespace, *singled])
    relation = relation.without(crossed_by_literals(literals, relation, whitespace))
    if prefixed:
        relation = relation.without(ended_by_literals(literals, relation, whitespace))
    return relation


def ended_by_literals(literals: Iterable[Literal], relation: Relation, whitespace: Iterable[int]) -> Pairs:
    """The pairs behind whose left character a literal may end, so that the right one begins a stretch."""
    ended = np.zeros((relation.size, relation.size), bool)
    for literal in literals:
        ended[relation.table[ord(literal.content[-1])]] = True
        if literal.rstrip:
            ended[relation.table[np.fromiter(whitespace, np.int64)]] = True
    return ended


def crossed_by_literals(literals: Iterable[Literal], relation: Relation, whitespace: Iterable[int]) -> Pairs:
    """The pairs that an occurrence of a literal can have inside, or can tell apart by its flags.

    Characters of literals of more than one, or with flags, must be atoms of their own, and ``whitespace`` where one
    of them strips.
    """
    crossed = np.zeros((relation.size, relation.size), bool)
    spaces = relation.table[np.fromiter(whitespace, np.int64)]
    everything = np.arange(relation.size, dtype=np.int32)
    for literal in literals:
        atoms = relation.table[[ord(character) for character in literal.content]]
        crossed[factors(atoms)] = True
        pairs = absorbed_left(atoms, spaces) if literal.lstrip else []
        pairs += absorbed_right(atoms, spaces) if literal.rstrip else []
        pairs += looked_at(atoms, everything) if literal.single_word else []
        for left, right in pairs:
            crossed[np.ix_(left, right)] = True
    return crossed


def factors(atoms: Atoms) -> tuple[Atoms, Atoms]:
    """The neighbours inside a literal: the left ones, and the right one of each."""
    return atoms[:-1], atoms[1:]


def absorbed_left(atoms: Atoms, spaces: Atoms) -> list[tuple[Atoms, Atoms]]:
    """The lefts and rights that can meet inside the whitespace that ``lstrip`` makes a part of the occurrence."""
    return [(spaces, spaces), (spaces, atoms[:1])]


def absorbed_right(atoms: Atoms, spaces: Atoms) -> list[tuple[Atoms, Atoms]]:
    """The lefts and rights that can meet inside the whitespace that ``rstrip`` makes a part of the occurrence."""
    return [(atoms[-1:], spaces), (spaces, spaces)]


def looked_at(atoms: Atoms, everything: Atoms) -> list[tuple[Atoms, Atoms]]:
    """The neighbours of which ``single_word`` looks at the outer one."""
    return [(everything, atoms[:1]), (atoms[-1:], everything)]


def as_matched(literal: Literal, normalizer: str | None, probe: Probe) -> Literal:
    """A ``normalized`` literal with the content that is looked for, which is a normalized one too."""
    content = literal.content
    if normalizer is not None:
        content = probe.normalize(normalizer, content)
    if not content:
        raise Unsupported(f"added token {literal.content!r}: nothing is left of it after normalization")
    return evolve(literal, content=content)


def refuse_equal_contents(normalized: list[Literal]) -> None:
    """Makes sure that no two literals are looked for by the same normalized content.

    Raises:
        Unsupported: Two are; the library then takes one of them at random each time that it is loaded.
    """
    first: dict[str, Literal] = {}
    for literal in normalized:
        other = first.setdefault(literal.content, literal)
        if other.id != literal.id:
            raise Unsupported(f"added tokens {other.id} and {literal.id} are one and the same after normalization")


def _characters(literals: list[Literal]) -> set[int]:
    """The characters that are in some pair of :func:`crossed_by_literals`; a single one without flags is in none."""
    flagged = [literal.content for literal in literals if literal.lstrip or literal.rstrip or literal.single_word]
    return set(map(ord, "".join([*flagged, *(t.content for t in literals if len(t.content) > 1)])))
