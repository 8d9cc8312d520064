"""The synchronizing relation: the pairs of neighbouring characters between which every text may be cut.

A position with ``a`` on its left and ``b`` on its right is a certified cut when ``tok(X a b Y) == tok(X a) + tok(b Y)``
for all ``X`` and ``Y``. Three conditions make it so, each derived from the definition alone:

1. **No literal crosses** (:func:`crossed_by_literals`): no occurrence of an added token, with what its flags let it
   absorb or look at, has ``a`` and ``b`` inside.
2. **The normalizer commutes** (:func:`fates`), and whatever it can put in the places of ``a`` and ``b`` satisfies the
   rest.
3. **The splitters part them**: one of them has ``a`` or ``b`` inside a match for certain (:func:`parted_by_splitter`),
   and neither it nor any before it can cross from ``a`` to ``b`` (:func:`crossed_by_splitter`).

``docs/theory.md`` has the proof.
"""

from __future__ import annotations

import contextlib
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping

import numpy as np
import numpy.typing as npt
from attrs import evolve, field, frozen

from toktier.families.alphabet import Alphabet, partition, refuse_too_many
from toktier.families.automaton import Automaton, automaton_of
from toktier.families.definition import Definition, Literal, Pieces, Splitter
from toktier.families.normalization import Characters, Rewriting, rewriting
from toktier.families.pattern import MAX_ITEMS, CharacterClass, Unsupported
from toktier.families.probing import Probe, Runs

Relation = npt.NDArray[np.bool_]
"""``relation[i, j]``: the pair of atoms (i, j) is in it; shape (atoms, atoms)."""

Atoms = npt.NDArray[np.int32]
"""Some atoms; shape (n,)."""

MAX_SPLITTERS = 100
"""Different pre-tokenizers that divide: up to a fiftieth of a second each. Production tokenizers have 3 at most."""

MAX_FOLDED = 256
"""Pairs of case-insensitive characters that are tried on all of Unicode: a hundredth of a second each. Production
tokenizers have 10. Whoever has thousands has those that fold to one character, and is refused after all."""

MAX_PROBED = 64
"""Character classes of which the library is asked what they contain, which takes a fifteenth of a second each. Those of
production tokenizers are 18 at most."""


@frozen(eq=False)
class Synchronization:
    """An alphabet, and the pairs of its atoms between which every text may be cut.

    Attributes:
        table: The atom of each code point, shape (0x110000,).
        pairs: ``pairs[left, right]``; shape (atoms, atoms).
    """

    table: npt.NDArray[np.int32] = field(repr=False)
    pairs: Relation = field(repr=False)


def synchronize(definition: Definition, probe: Probe) -> Synchronization:
    """Derives the relation of a definition that is understood.

    Raises:
        Unsupported: A pattern or an added token turns out to be outside what the proof covers, or the definition is so
            large that it would take long.
    """
    splitters = distinct(definition.splitters)
    automata = list(map(automaton_in, splitters))
    classes = list(dict.fromkeys(position for automaton in automata for position in automaton.positions))
    refuse_too_large(automata, classes)
    for automaton, splitter in zip(automata, splitters, strict=True):
        with naming(splitter):
            refuse_folding_across_characters(automaton, probe)
    literals = definition.literals + definition.superseded
    raw = [literal for literal in literals if not literal.normalized]
    normalized = [as_matched(literal, definition, probe) for literal in literals if literal.normalized]
    refuse_equal_contents(normalized)
    strips = any(literal.lstrip or literal.rstrip for literal in literals)
    whitespace = _code_points(probe.whitespace()) if strips else []

    # Behind the normalizer, a character is what splitters and normalized literals can tell of it.
    inner = partition([members(position, probe) for position in classes])
    inner = inner.single_out([*whitespace, *_characters(normalized)])
    uncrossed = ~crossed_by_literals(normalized, inner, whitespace)
    parted = np.zeros_like(uncrossed)
    numbers = {position: number for number, position in enumerate(classes)}
    for automaton, splitter in zip(automata, splitters, strict=True):
        inside = inner.properties[:, [numbers[position] for position in automaton.positions]]
        # What a splitter has parted is in two pieces, which the later ones divide one by one, whatever they can cross.
        uncrossed &= ~crossed_by_splitter(automaton, inside)
        parted |= uncrossed & parted_by_splitter(automaton, inside, splitter.keeps)

    # Before it, a character is what may become of it, and the raw literals that it stands in.
    outer = fates(inner, rewriting(definition.normalizers, probe))
    outer = outer.single_out([*whitespace, *_characters(raw)])
    ends, starts = np.hsplit(outer.properties.astype(np.float32), 2)
    refused = ends @ (~parted).astype(np.float32) @ starts.T > 0
    known = np.logical_and.outer(ends.any(axis=1), starts.any(axis=1))
    return Synchronization(outer.table, known & ~refused & ~crossed_by_literals(raw, outer, whitespace))


# Condition 1: literals


def crossed_by_literals(literals: Iterable[Literal], alphabet: Alphabet, whitespace: Iterable[int]) -> Relation:
    """The pairs that an occurrence of a literal can have inside, or can tell apart by its flags.

    Characters of literals of more than one, or with flags, must be atoms of their own, and ``whitespace`` where one
    of them strips.
    """
    crossed = np.zeros((alphabet.size, alphabet.size), bool)
    spaces = alphabet.table[np.fromiter(whitespace, np.int64)]
    everything = np.arange(alphabet.size, dtype=np.int32)
    for literal in literals:
        atoms = alphabet.table[[ord(character) for character in literal.content]]
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


def as_matched(literal: Literal, definition: Definition, probe: Probe) -> Literal:
    """A ``normalized`` literal with the content that is looked for, which is a normalized one too."""
    content = literal.content
    for normalizer in definition.normalizers:
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


# Condition 2: the normalizer


def fates(inner: Alphabet, rewritten: Rewriting) -> Alphabet:
    """The characters before normalization, told apart by what may become of them.

    Returns:
        An alphabet with twice as many properties as ``inner`` has atoms: the atoms that the normalized text can
        end with when it ended with the character, then those that it can begin with. None of a half: no cut there.
    """
    atoms_of: dict[Characters, frozenset[int]] = {}

    def atoms(code_point: int, images: Mapping[int, Characters]) -> frozenset[int]:
        image = images.get(code_point)
        if image is None:
            return frozenset((int(inner.table[code_point]),))
        if image not in atoms_of:
            atoms_of[image] = frozenset(inner.table[list(image)].tolist())
        return atoms_of[image]

    # Whatever is never rewritten has itself as its only fate, which is numbered as its inner atom.
    numbers = {(frozenset((atom,)), frozenset((atom,))): atom for atom in range(inner.size)}
    table = inner.table.copy()
    for code_point in rewritten.ends.keys() | rewritten.starts.keys():
        fate = atoms(code_point, rewritten.ends), atoms(code_point, rewritten.starts)
        table[code_point] = numbers.setdefault(fate, len(numbers))
    refuse_too_many(len(numbers))
    properties = np.zeros((len(numbers), 2, inner.size), bool)
    for fate, number in numbers.items():
        for half in (0, 1):
            properties[number, half, list(fate[half])] = True
    return Alphabet(table, properties.reshape(len(numbers), -1))


# Condition 3: the splitters


def distinct(splitters: Iterable[Splitter]) -> list[Splitter]:
    """Each splitter once, at its first place: a second time it can cross and part nothing that it did not before.

    Raises:
        Unsupported: There are too many, or a pattern is too deep to be compared.
    """
    try:
        found = list(dict.fromkeys(splitters))
    except RecursionError:
        raise Unsupported("pre-tokenizer Split: groups nested too deeply") from None
    if len(found) > MAX_SPLITTERS:
        raise Unsupported(f"{len(found):,} different pre-tokenizers are more than {MAX_SPLITTERS}")
    return found


@contextlib.contextmanager
def naming(splitter: Splitter) -> Iterator[None]:
    """Names the splitter in the reason of an :class:`Unsupported` that is raised inside."""
    try:
        yield
    except Unsupported as error:
        raise Unsupported(f"pre-tokenizer {splitter.name}: {error}") from None


def automaton_in(splitter: Splitter) -> Automaton:
    """The automaton of a splitter.

    Raises:
        Unsupported: The pattern can match the empty string, or is too large.
    """
    with naming(splitter):
        return automaton_of(splitter.tree)


def refuse_too_large(automata: Iterable[Automaton], classes: Iterable[CharacterClass]) -> None:
    """Makes sure that all splitters together are not too large.

    Raises:
        Unsupported: They are.
    """
    positions = sum(len(automaton.positions) for automaton in automata)
    if positions > MAX_ITEMS:
        raise Unsupported(f"the pre-tokenizers have {positions:,} characters and classes, more than {MAX_ITEMS:,}")
    asked = sum(is_probed(position) for position in classes)
    if asked > MAX_PROBED:
        raise Unsupported(f"the pre-tokenizers have {asked:,} classes of characters, more than {MAX_PROBED}")


def crossed_by_splitter(automaton: Automaton, inside: npt.NDArray[np.bool_]) -> Relation:
    """The pairs that a match, an attempt or a lookahead of a splitter can read one after the other.

    Args:
        automaton: The splitter's.
        inside: ``inside[atom, position]``: the class of the position contains the atom.
    """
    follow = np.zeros((len(automaton.positions), len(automaton.positions)), np.float32)
    follow[tuple(np.array(sorted(automaton.follow), np.intp).reshape(-1, 2).T)] = 1
    crossed: Relation = inside.astype(np.float32) @ follow @ inside.T.astype(np.float32) > 0
    return crossed


def parted_by_splitter(automaton: Automaton, inside: npt.NDArray[np.bool_], keeps: Pieces) -> Relation:
    """The pairs of which a splitter never leaves both in one piece, provided that it cannot cross them.

    Arguments as for :func:`crossed_by_splitter`.
    """
    if keeps is Pieces.MATCHES:
        # Two characters of one gap are both dropped, and nothing else can join them.
        return np.ones((len(inside), len(inside)), bool)
    matched = np.zeros(len(inside), bool)
    for position, blockers in automaton.certain.items():
        matched |= inside[:, position] & ~inside[:, sorted(blockers)].any(axis=1)
    return matched[:, None] | matched


def is_probed(position: CharacterClass) -> bool:
    """Whether what a class contains is known to nobody but the library."""
    return position.literal is None or position.ignore_case


def members(position: CharacterClass, probe: Probe) -> Runs:
    """The code points of a class."""
    if position.component:
        return probe.digits()
    if position.literal is None or position.ignore_case:
        return probe.members(position.source)
    return np.array([ord(position.literal), ord(position.literal) + 1])


_PLAIN_CLASS = re.compile(r"\(\?i:\[[^\\\[^][^\\\[]*\]\)", re.ASCII)


def refuse_folding_across_characters(automaton: Automaton, probe: Probe) -> None:
    """Makes sure that every case-insensitive position consumes exactly one character.

    Case folding can make two of one (``ß`` and ``ss``) and one of two (``st`` and U+FB06). What folds to several
    characters is outside ASCII, so ASCII positions alone are accepted, and neighbours among them are probed together.

    Raises:
        Unsupported: There is such a position, or it cannot be excluded.
    """
    folded: dict[int, str] = {}
    for i, position in enumerate(automaton.positions):
        if position.ignore_case:
            written = position.literal or position.source
            if not written.isascii() or not (position.literal or _PLAIN_CLASS.fullmatch(position.source)):
                raise Unsupported(f"case-insensitive {written!r} may match other than one character")
            letters = [position.literal] if position.literal else map(chr, _code_points(members(position, probe)))
            # One case of each is enough to ask for.
            folded[i] = "".join(sorted({letter.lower() for letter in letters if letter.isascii()}))
    after: defaultdict[str, set[str]] = defaultdict(set)
    for lefts, rights in {(folded[i], folded[j]) for i, j in automaton.follow if i in folded and j in folded}:
        for left in lefts:
            after[left].update(rights)
    neighbours = {left + right for left, rights in after.items() for right in rights}
    if len(neighbours) > MAX_FOLDED:
        raise Unsupported(f"{len(neighbours):,} case-insensitive sequences are more than can be tried")
    if neighbours and (found := _code_points(probe.lookalikes(neighbours))):
        raise Unsupported(f"a case-insensitive sequence matches the single character U+{found[0]:04X}")


def _code_points(runs: Runs) -> list[int]:
    return [c for start, stop in runs.reshape(-1, 2).tolist() for c in range(start, stop)]


def _characters(literals: list[Literal]) -> set[int]:
    """The characters that are in some pair of :func:`crossed_by_literals`; a single one without flags is in none."""
    flagged = [literal.content for literal in literals if literal.lstrip or literal.rstrip or literal.single_word]
    return set(map(ord, "".join([*flagged, *(t.content for t in literals if len(t.content) > 1)])))
