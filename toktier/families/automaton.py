"""The Glushkov automaton of a split pattern: its positions, and which can come right after which.

Source: V. M. Glushkov, "The abstract theory of automata" (1961); see also G. Berry and R. Sethi, "From regular
expressions to deterministic automata" (1986). A position is one occurrence of a character class. Two additions
serve the cuts:

* A **lookahead** reads on from where it stands, so its positions follow whatever is consumed before it, as if it were
  one more branch, and nothing follows *it*. A pair of characters that no ``follow`` joins is then beyond consuming and
  peeking alike.
* **certain** positions match alone: if the text at some place begins with such a character, an attempt there
  succeeds whatever comes after. So that character never stays outside all matches.

Counted repetitions are not unrolled: ``follow`` relates classes, and all copies of a position have the same class.
"""

from __future__ import annotations

from collections.abc import Mapping

from attrs import field, frozen

from toktier.families.pattern import Unsupported
from toktier.families.syntax import Alternation, Atomic, CharacterClass, Lookahead, Mode, Node, Repeat

MAX_JOINED = 250_000
"""Pairs of positions that are joined, counted each time: a loop around a loop joins the same once more. The patterns of
production tokenizers join 61; a quarter of a million take a quarter of a second."""


@frozen
class Automaton:
    """What a split pattern can consume, as relations on positions.

    Attributes:
        positions: The character class of each position.
        follow: Pairs ``(i, j)``: in some path, also in one that fails later, ``j`` reads the character after ``i``'s.
        certain: Positions that match alone, each with its blockers: positions before it that would take the character
            first and not give it back. A character of the position's class and of no blocker's always begins a match.
    """

    positions: tuple[CharacterClass, ...]
    follow: frozenset[tuple[int, int]]
    certain: Mapping[int, frozenset[int]]


def automaton_of(tree: Node) -> Automaton:
    """The automaton of a split pattern's syntax tree.

    Raises:
        Unsupported: The pattern can match the empty string, or too much of it can follow too much else.

    Example:
        >>> from toktier.families.pattern import parse
        >>> automaton = automaton_of(parse("ab?|c"))
        >>> [position.source for position in automaton.positions]
        ['a', 'b', 'c']
        >>> sorted(automaton.follow), sorted(automaton.certain)
        ([(0, 1)], [0, 2])
    """
    builder = _Builder()
    try:
        whole = builder.fragment(tree)
    except RecursionError:
        raise Unsupported("groups nested too deeply") from None
    if whole.nullable:
        raise Unsupported("the pattern can match the empty string")
    return Automaton(tuple(builder.positions), frozenset(builder.follow), whole.certain)


@frozen
class _Fragment:
    """A node seen from outside: where it can be entered and left, and what it does without fail."""

    first: frozenset[int] = frozenset()
    last: frozenset[int] = frozenset()
    nullable: bool = True
    certain: Mapping[int, frozenset[int]] = field(factory=dict)
    atomic: bool = False
    """Holds a choice that is never revised."""
    conditional: bool = False
    """Holds a lookahead, so that it may fail where it would otherwise match."""


class _Builder:
    def __init__(self) -> None:
        self.positions: list[CharacterClass] = []
        self.follow: set[tuple[int, int]] = set()
        self.joined = 0

    def fragment(self, node: Node) -> _Fragment:
        if isinstance(node, CharacterClass):
            self.positions.append(node)
            here = frozenset((len(self.positions) - 1,))
            return _Fragment(here, here, False, dict.fromkeys(here, frozenset[int]()))
        if isinstance(node, Alternation):
            return self.alternation([self.fragment(branch) for branch in node.branches])
        if isinstance(node, Repeat):
            return self.repeat(node)
        if isinstance(node, Lookahead):
            # It is entered like a branch, left by nothing, and may veto what is around it.
            return _Fragment(first=self.fragment(node.node).first, nullable=True, conditional=True)
        if isinstance(node, Atomic):
            inner = self.fragment(node.node)
            return _Fragment(inner.first, inner.last, inner.nullable, inner.certain, True, inner.conditional)
        result = _Fragment()
        for item in node.items:
            result = self.concatenate(result, self.fragment(item))
        return result

    def alternation(self, branches: list[_Fragment]) -> _Fragment:
        return _Fragment(
            frozenset().union(*(branch.first for branch in branches)),
            frozenset().union(*(branch.last for branch in branches)),
            any(branch.nullable for branch in branches),
            {position: by for branch in branches for position, by in branch.certain.items()},
            any(branch.atomic for branch in branches),
            any(branch.conditional for branch in branches),
        )

    def concatenate(self, left: _Fragment, right: _Fragment) -> _Fragment:
        self.join(left.last, right.first)
        certain: dict[int, frozenset[int]] = {}
        if right.nullable and not right.conditional:
            certain.update(left.certain)
        if left.nullable and not left.conditional:
            # A left side that can be retried gives the character back; an atomic one keeps what it took.
            blockers = left.first if left.atomic else frozenset[int]()
            certain.update({position: by | blockers for position, by in right.certain.items()})
        return _Fragment(
            left.first | right.first if left.nullable else left.first,
            left.last | right.last if right.nullable else right.last,
            left.nullable and right.nullable,
            certain,
            left.atomic or right.atomic,
            left.conditional or right.conditional,
        )

    def repeat(self, node: Repeat) -> _Fragment:
        inner = self.fragment(node.node)
        if node.maximum == 0:
            return _Fragment()
        if node.maximum > 1:
            self.join(inner.last, inner.first)
        return _Fragment(
            inner.first,
            inner.last,
            inner.nullable or node.minimum == 0,
            inner.certain if node.minimum <= 1 else {},
            inner.atomic or node.mode is Mode.POSSESSIVE,
            inner.conditional,
        )

    def join(self, before: frozenset[int], after: frozenset[int]) -> None:
        self.joined += len(before) * len(after)
        if self.joined > MAX_JOINED:
            raise Unsupported(f"more than {MAX_JOINED:,} pairs of its classes can follow one another")
        self.follow.update((i, j) for i in before for j in after)
