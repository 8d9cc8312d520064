r"""The leftmost-first automaton of a split pattern: where a match that begins at a character ends.

A device has no stack to go back on, so the choices of a backtracking matcher are followed all at once, in their order.
Sources: K. Thompson, "Regular expression search algorithm" (1968), for the places and the subset construction; R. Cox,
"Regular expression matching: the virtual machine approach" (2009), for their order of preference and the cut at a
match. Here the subset construction is of ordered lists, and made before the text is seen.

A state is a list of places *before* what needs no character is followed, and that is followed when the next character
is known. So a condition on one character, which a lookahead is, is decided at once and never carried on. Two more
things become such conditions: that a possessive loop is left only where it cannot go on, and that a later branch of an
atomic group is tried only where an earlier one cannot match. What would need more than the next character to be decided
is :class:`~toktier.families.pattern.Unsupported`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt
from attrs import evolve, field, frozen

from toktier.families.automaton import automaton_of
from toktier.families.pattern import Unsupported
from toktier.families.syntax import UNBOUNDED, Alternation, Atomic, CharacterClass, Lookahead, Mode, Node, Repeat
from toktier.families.syntax import Sequence as Items

ENDS = 0x8000
"""The bit of a transition that says: a match ends before the character that was read."""

DEAD, START = 0, 1
"""The state in which nothing can follow any more, and the one at the first character of a match."""

MAX_STATES = 4_096
"""States before equal ones are merged, which takes up to two seconds of so many. The patterns of production tokenizers
have 35 at most."""

MAX_PLACES = 20_000
"""Places of a pattern, counted repetitions unrolled."""

MAX_STEPS = 1_000_000
"""Places that are passed to find all transitions: about half a second. Production tokenizers need 7,000."""

Table = npt.NDArray[np.uint16]


@frozen(eq=False)
class Matcher:
    """A deterministic automaton that finds the match which a backtracking matcher would find first.

    Attributes:
        transitions: ``transitions[state, class]`` is the next state, with :data:`ENDS` where a match ends before the
            character of that class; the last column is for the end of the text. Shape (states, classes + 1).
    """

    transitions: Table = field(repr=lambda table: f"<{len(table)} states, {table.shape[1] - 1} classes>")

    def end(self, classes: Sequence[int], start: int) -> int | None:
        """Where the match that begins at a character ends; None when there is none.

        Args:
            classes: The class of each character of a text.
            start: The place of a character.
        """
        state, end = START, None
        for at in range(start, len(classes) + 1):
            step = int(self.transitions[state, classes[at] if at < len(classes) else -1])
            if step & ENDS:
                end = at
            state = step & ~ENDS
            if state == DEAD:
                break
        return end


def matcher_of(tree: Node, members: Mapping[CharacterClass, npt.NDArray[np.bool_]]) -> Matcher:
    """The automaton of a split pattern's syntax tree.

    Args:
        tree: The pattern.
        members: Which classes of an alphabet each character class of the tree has; shape (classes,).

    Raises:
        Unsupported: The pattern can match the empty string, or something in it needs more than the next character to
            be decided, or it is too large.

    Example:
        >>> from toktier.families.pattern import parse
        >>> tree = parse("a+b|[ab]")
        >>> inside = {"a": [True, False], "b": [False, True], "[ab]": [True, True]}
        >>> members = {position: np.array(inside[position.source]) for position in automaton_of(tree).positions}
        >>> matcher = matcher_of(tree, members)
        >>> matcher, matcher.end([0, 0, 1, 1], 0), matcher.end([0, 0], 0)
        (Matcher(transitions=<5 states, 2 classes>), 3, 1)
    """
    # It refuses what can match the empty string. So no match ends where it begins.
    positions = dict.fromkeys(automaton_of(tree).positions)
    inside = np.stack([members[position] for position in positions], axis=1)
    # What no position tells apart is one symbol.
    symbols, of_class = np.unique(inside, axis=0, return_inverse=True)
    masks = {p: sum(1 << int(i) for i in np.flatnonzero(symbols[:, k])) for k, p in enumerate(positions)}
    places = _Places(masks, len(symbols) + 1)
    try:
        start = places.before(tree, _MATCH)
    except RecursionError:
        raise Unsupported("groups nested too deeply") from None
    table = minimised(places.determinised(start))
    return Matcher(np.ascontiguousarray(np.concatenate([table[:, of_class.reshape(-1)], table[:, -1:]], axis=1)))


_MATCH = 0
"""The place that is reached when all of the pattern has matched."""


@frozen
class _Place:
    """A place between two things to be matched.

    Attributes:
        symbols: The next symbols with which it can be passed, one bit each.
        reads: Whether passing it takes the symbol.
        then: The places behind it, the preferred first.
    """

    symbols: int
    reads: bool
    then: tuple[int, ...]


class _Places:
    """The places of a pattern, made from its end to its beginning. The last symbol is the end of the text."""

    def __init__(self, masks: Mapping[CharacterClass, int], symbols: int) -> None:
        self.masks = masks
        self.symbols = symbols
        self.every = (1 << symbols) - 1
        self.places = [_Place(self.every, False, ())]
        self.steps = 0

    def place(self, symbols: int, reads: bool, *then: int) -> int:
        """A new place."""
        if len(self.places) == MAX_PLACES:
            raise Unsupported(f"with its repetitions written out, the pattern has more than {MAX_PLACES:,} places")
        self.places.append(_Place(symbols, reads, then))
        return len(self.places) - 1

    def fork(self, *then: int) -> int:
        """A choice, the preferred first."""
        return self.place(self.every, False, *then)

    def where(self, symbols: int, then: int) -> int:
        """A condition on what is next."""
        return then if symbols == self.every else self.place(symbols, False, then)

    def before(self, node: Node, then: int) -> int:
        """The place from which a node is matched, and then what is behind it."""
        read = self.single(node)
        if read is not None:
            return self.place(read, True, then)
        if isinstance(node, Items):
            for item in reversed(node.items):
                then = self.before(item, then)
            return then
        if isinstance(node, Alternation):
            return self.fork(*(self.before(branch, then) for branch in node.branches))
        if isinstance(node, Atomic):
            return self.committed(node.node, then)
        if isinstance(node, Repeat):
            return self.repeated(node, then)
        decided = self.decided(node)
        if decided is None:
            raise Unsupported("a lookahead of more than one character")
        return self.where(decided, then)

    def repeated(self, node: Repeat, then: int) -> int:
        """The same for a repetition."""
        body, low, high = node.node, node.minimum, node.maximum
        if high > 1 and _nullable(body):
            raise Unsupported("a repetition of what can match the empty string")
        inner, leave = self.before, then
        if node.mode is Mode.POSSESSIVE:
            # Each turn is final, and another one is taken wherever it can match.
            inner = self.committed
            decided = self.decided(body)
            if low < high and decided is None:
                raise Unsupported("a possessive loop that needs more than one character to know whether it goes on")
            if low > 1 and not self.rigid(body):
                raise Unsupported("a possessive repetition of what can match in several ways")
            if low < high and decided is not None:
                leave = self.where(self.every & ~decided, then)
        if high == UNBOUNDED:
            loop = self.fork()
            again = inner(body, loop)
            self.places[loop] = _Place(self.every, False, (leave, again) if node.mode is Mode.LAZY else (again, leave))
            then = again if low else loop
            low -= low > 0
        else:
            for _ in range(high - low):
                again = inner(body, then)
                then = self.fork(leave, again) if node.mode is Mode.LAZY else self.fork(again, leave)
        for _ in range(low):
            then = inner(body, then)
        return then

    def committed(self, node: Node, then: int) -> int:
        """The place from which a node is matched in the first way that there is, and in no other."""
        if self.rigid(node):
            return self.before(node, then)
        if isinstance(node, Items):
            certain = True
            for item in reversed(node.items):
                if not certain and not self.rigid(item):
                    break  # if what is behind it fails, it may match in another way
                certain = certain and self.decided(item) == self.every
                then = self.committed(item, then)
            else:
                return then
        if isinstance(node, Repeat):
            if node.mode is Mode.LAZY:
                return self.committed(evolve(node, maximum=node.minimum, mode=Mode.GREEDY), then)
            return self.repeated(evolve(node, mode=Mode.POSSESSIVE), then)
        if isinstance(node, Alternation):
            choices: list[int] = []
            remaining: int | None = self.every
            for branch in node.branches:
                if remaining is None:
                    break
                choices.append(self.where(remaining, self.committed(branch, then)))
                decided = self.decided(branch)
                remaining = None if decided is None else remaining & ~decided
            else:
                return self.fork(*choices)
        raise Unsupported("an atomic group that needs more than one character to know what it keeps to")

    def single(self, node: Node) -> int | None:
        """What a node can read that always takes exactly one character, whatever comes after; None for any other."""
        if isinstance(node, CharacterClass):
            return self.masks[node]
        if isinstance(node, Atomic) or (isinstance(node, Repeat) and node.minimum == node.maximum == 1):
            return self.single(node.node)
        if isinstance(node, Alternation):
            read = 0
            for branch in node.branches:
                one = self.single(branch)
                if one is None:
                    return None
                read |= one
            return read
        if isinstance(node, Items) and node.items and all(isinstance(item, Lookahead) for item in node.items[:-1]):
            conditions, last = self.decided(Items(node.items[:-1])), self.single(node.items[-1])
            return None if conditions is None or last is None else conditions & last
        return None

    def decided(self, node: Node) -> int | None:
        """With which symbols next a node can match, if no other character matters; else None."""
        if isinstance(node, CharacterClass):
            return self.masks[node]
        if isinstance(node, Atomic):
            return self.decided(node.node)
        if isinstance(node, Lookahead):
            inner = self.decided(node.node)
            return self.every & ~inner if node.negative and inner is not None else inner
        if isinstance(node, Repeat):
            return self.every if node.minimum == 0 else self.decided(node.node) if node.minimum == 1 else None
        if isinstance(node, Alternation):
            found = 0
            for branch in node.branches:
                one = self.decided(branch)
                if one is None:
                    return None
                found |= one
            return found
        found = self.every
        for at, item in enumerate(node.items):
            one = self.decided(item)
            if one is None:
                return None
            found &= one
            if not isinstance(item, Lookahead):
                # The symbol may be taken, so that what is behind must be able to match anywhere.
                return found if all(self.decided(behind) == self.every for behind in node.items[at + 1 :]) else None
        return found

    def rigid(self, node: Node) -> bool:
        """Whether a node can match in one way at most, wherever it stands."""
        if isinstance(node, Items):
            return all(map(self.rigid, node.items))
        if isinstance(node, Repeat):
            return node.mode is Mode.POSSESSIVE or (node.minimum == node.maximum and self.rigid(node.node))
        return not isinstance(node, Alternation) or self.single(node) is not None

    def determinised(self, start: int) -> Table:
        """The transitions of all states that can be reached, by symbols."""
        numbers: dict[tuple[int, ...], int] = {(): DEAD, (start,): START}
        states = list(numbers)
        rows: list[list[int]] = []
        for state in states:  # which grows
            row: list[int] = []
            for symbol in range(self.symbols):
                reached, ends = self.step(state, 1 << symbol)
                if reached not in numbers:
                    if len(states) == MAX_STATES:
                        raise Unsupported(f"a matcher of more than {MAX_STATES:,} states")
                    numbers[reached] = len(states)
                    states.append(reached)
                row.append(numbers[reached] | ENDS * ends)
            rows.append(row)
        return np.array(rows, np.uint16)

    def step(self, state: tuple[int, ...], symbol: int) -> tuple[tuple[int, ...], bool]:
        """The places behind a symbol, the preferred first, and whether a match ends before it."""
        reached: dict[int, None] = {}
        passed: set[int] = set()
        stack = list(reversed(state))
        while stack:
            at = stack.pop()
            if at in passed:
                continue  # from there everything was tried in vain, or is preferred already
            passed.add(at)
            self.steps += 1
            if self.steps > MAX_STEPS:
                raise Unsupported(f"a matcher that takes more than {MAX_STEPS:,} steps to make")
            if at == _MATCH:
                return tuple(reached), True  # whatever is less preferred than a match is dropped
            place = self.places[at]
            if place.symbols & symbol:
                if place.reads:
                    reached[place.then[0]] = None
                else:
                    stack.extend(reversed(place.then))
        return tuple(reached), False


def _nullable(node: Node) -> bool:
    """Whether a node can match no characters, lookaheads taken to hold."""
    if isinstance(node, Items):
        return all(map(_nullable, node.items))
    if isinstance(node, Alternation):
        return any(map(_nullable, node.branches))
    if isinstance(node, Repeat):
        return node.minimum == 0 or _nullable(node.node)
    return isinstance(node, Lookahead) or (isinstance(node, Atomic) and _nullable(node.node))


def minimised(table: Table) -> Table:
    """The same with one state for all that cannot be told apart; :data:`DEAD` and :data:`START` stay what they are.

    Source: E. F. Moore, "Gedanken-experiments on sequential machines" (1956).
    """
    ends: Table = table & np.uint16(ENDS)
    following: Table = table & np.uint16(ENDS - 1)
    block: Table = np.zeros(len(table), np.uint16)
    known = 0
    while True:
        # States stay together if they were, and if the same symbols lead from them to states that were together.
        rows = np.ascontiguousarray(np.column_stack([block, ends | block[following]]))
        _, firsts, inverse = np.unique(rows.view(f"V{rows.shape[1] * 2}")[:, 0], return_index=True, return_inverse=True)
        block = inverse.astype(np.uint16)
        if len(firsts) == known:
            break
        known = len(firsts)
    others = sorted(int(first) for first in firsts if block[first] not in (block[DEAD], block[START]))
    kept = np.array([DEAD, START, *others])
    names: Table = np.zeros(len(firsts), np.uint16)
    names[block[kept[::-1]]] = np.arange(len(kept))[::-1]  # should START be dead, what leads there leads to DEAD
    result: Table = (ends | names[block[following]])[kept]
    return result
