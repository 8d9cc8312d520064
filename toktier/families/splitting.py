"""Condition 3: where the pre-tokenizers part two characters.

A splitter divides every piece by the matches of a pattern, or by scripts. It must not cross from the left character to
the right one, so that its matches on the two sides are those of the whole; and one of them must have the two in
different pieces for certain.
"""

from __future__ import annotations

import contextlib
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator

import numpy as np
import numpy.typing as npt
from attrs import evolve

from toktier.families.alphabet import partition
from toktier.families.automaton import Automaton, automaton_of
from toktier.families.pattern import MAX_ITEMS, Unsupported
from toktier.families.probing import Probe, Runs, code_points_of
from toktier.families.relation import Pairs, Relation
from toktier.families.stages import Normalizer, Pieces, PreTokenizer, ScriptSplitter, Splitter, Substitution
from toktier.families.syntax import CharacterClass

Divider = Splitter | ScriptSplitter
"""What makes several pieces of one."""

Pattern = Splitter | Substitution
"""What looks for matches."""

MAX_SPLITTERS = 100
"""Different pre-tokenizers that divide: up to a fiftieth of a second each. Production tokenizers have 3 at most."""

MAX_REWRITERS = 16
"""Steps of pre-tokenizers that rewrite: up to a tenth of a second each. Production tokenizers have 2 at most."""

MAX_FOLDED = 256
"""Pairs of case-insensitive characters that are tried on all of Unicode: a hundredth of a second each. Production
tokenizers have 10. Whoever has thousands has those that fold to one character, and is refused after all."""

MAX_PROBED = 64
"""Character classes of which the library is asked what they contain, which takes a fifteenth of a second each. Those of
production tokenizers are 18 at most."""


def distinct(stages: Iterable[PreTokenizer]) -> list[PreTokenizer]:
    """Each splitter once, at its first place: a second time it can cross and part nothing that it did not before.

    Raises:
        Unsupported: There are too many, or a pattern is too deep to be compared.
    """
    found: list[PreTokenizer] = []
    seen: set[PreTokenizer] = set()
    try:
        for stage in stages:
            if not isinstance(stage, Divider):
                seen.clear()  # it may make what they look for
            if stage not in seen:
                found.append(stage)
                seen.add(stage)
    except RecursionError:
        raise Unsupported("pre-tokenizer Split: groups nested too deeply") from None
    dividers = sum(isinstance(stage, Divider) for stage in found)
    if dividers > MAX_SPLITTERS:
        raise Unsupported(f"{dividers:,} different pre-tokenizers are more than {MAX_SPLITTERS}")
    if len(found) - dividers > MAX_REWRITERS:
        raise Unsupported(f"more than {MAX_REWRITERS} pre-tokenizers that rewrite what they are given")
    return found


def automata_in(stages: Iterable[Normalizer | PreTokenizer], probe: Probe) -> dict[Pattern, Automaton]:
    """The automata of all stages that look for matches.

    Raises:
        Unsupported: One of the patterns can match the empty string or more characters than it has classes, or they are
            too large.
    """
    automata: dict[Pattern, Automaton] = {}
    for stage in stages:
        if isinstance(stage, Pattern):
            with naming(stage):
                automaton = automaton_of(stage.tree)
                try:
                    automata[stage] = automaton
                except RecursionError:
                    raise Unsupported("groups nested too deeply") from None
    refuse_too_large(automata.values(), {position for a in automata.values() for position in a.positions})
    for stage, automaton in automata.items():
        with naming(stage):
            refuse_folding_across_characters(automaton, probe)
    return automata


def before_splitter(stage: Splitter, relation: Relation, automaton: Automaton, probe: Probe) -> Relation:
    """The pairs that a splitter cannot cross, and which are parted by it or are related in one piece."""
    relation, inside = relation.refined(partition([members(position, probe) for position in automaton.positions]))
    crossed = crossed_by_splitter(automaton, inside)
    return evolve(relation, pairs=~crossed & (relation.pairs | parted_by_splitter(automaton, inside, stage.keeps)))


def before_scripts(relation: Relation, probe: Probe) -> Relation:
    """The same for the splitter at changes of script.

    What it does at a character depends on the last one of a script before it. A text that begins with characters of any
    script loses them, so nothing is cut before one.
    """
    relation, inside = relation.refined(partition(probe.scripts()))
    of_any, scripts = inside[:, 0], inside[:, 1:].astype(np.float32)
    parted = (scripts @ scripts.T == 0) & ~np.logical_or.outer(of_any, of_any)
    return evolve(relation, pairs=~of_any & (relation.pairs | parted))


@contextlib.contextmanager
def naming(stage: Pattern) -> Iterator[None]:
    """Names the stage in the reason of an :class:`Unsupported` that is raised inside."""
    try:
        yield
    except Unsupported as error:
        kind = "pre-tokenizer" if isinstance(stage, Splitter) else "normalizer"
        raise Unsupported(f"{kind} {stage.name}: {error}") from None


def refuse_too_large(automata: Iterable[Automaton], classes: Iterable[CharacterClass]) -> None:
    """Makes sure that all splitters together are not too large.

    Raises:
        Unsupported: They are.
    """
    positions = sum(len(automaton.positions) for automaton in automata)
    if positions > MAX_ITEMS:
        raise Unsupported(f"the patterns have {positions:,} characters and classes, more than {MAX_ITEMS:,}")
    asked = sum(is_probed(position) for position in classes)
    if asked > MAX_PROBED:
        raise Unsupported(f"the patterns have {asked:,} classes of characters, more than {MAX_PROBED}")


def crossed_by_splitter(automaton: Automaton, inside: npt.NDArray[np.bool_]) -> Pairs:
    """The pairs that a match, an attempt or a lookahead of a splitter can read one after the other.

    Args:
        automaton: The splitter's.
        inside: ``inside[atom, position]``: the class of the position contains the atom.
    """
    follow = np.zeros((len(automaton.positions), len(automaton.positions)), np.float32)
    follow[tuple(np.array(sorted(automaton.follow), np.intp).reshape(-1, 2).T)] = 1
    crossed: Pairs = inside.astype(np.float32) @ follow @ inside.T.astype(np.float32) > 0
    return crossed


def parted_by_splitter(automaton: Automaton, inside: npt.NDArray[np.bool_], keeps: Pieces) -> Pairs:
    """The pairs of which a splitter never leaves both in one piece, provided that it cannot cross them.

    Arguments as for :func:`crossed_by_splitter`.
    """
    if keeps is Pieces.MATCHES:
        # Two characters of one gap are both dropped, and nothing else can join them.
        return np.ones((len(inside), len(inside)), bool)
    matched = certainly_matched(automaton, inside)
    left: Pairs = np.repeat(matched[:, None], len(matched), axis=1)
    right = left.T
    if keeps is Pieces.AFTER_GAPS:
        return left  # a match ends the piece that it is in
    if keeps is Pieces.BEFORE_GAPS:
        return right
    if keeps is Pieces.RUNS:
        gaps: Pairs = np.repeat(~np.logical_or.reduce(inside, axis=1)[:, None], len(matched), axis=1)
        return (left & gaps.T) | (gaps & right)
    return left | right


def certainly_matched(automaton: Automaton, inside: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
    """The atoms that are inside a match wherever they stand; shape (atoms,)."""
    matched = np.zeros(len(inside), bool)
    for position, blockers in automaton.certain.items():
        matched |= inside[:, position] & ~inside[:, sorted(blockers)].any(axis=1)
    return matched


def is_probed(position: CharacterClass) -> bool:
    """Whether what a class contains is known to nobody but the library."""
    return position.literal is None or position.ignore_case


def members(position: CharacterClass, probe: Probe) -> Runs:
    """The code points of a class."""
    if position.component is not None:
        return probe.behaving(position.source, position.component)
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
            letters = [position.literal] if position.literal else map(chr, code_points_of(members(position, probe)))
            # One case of each is enough to ask for.
            folded[i] = "".join(sorted({letter.lower() for letter in letters if letter.isascii()}))
    after: defaultdict[str, set[str]] = defaultdict(set)
    for lefts, rights in {(folded[i], folded[j]) for i, j in automaton.follow if i in folded and j in folded}:
        for left in lefts:
            after[left].update(rights)
    neighbours = {left + right for left, rights in after.items() for right in rights}
    if len(neighbours) > MAX_FOLDED:
        raise Unsupported(f"{len(neighbours):,} case-insensitive sequences are more than can be tried")
    if neighbours and (found := code_points_of(probe.lookalikes(neighbours))):
        raise Unsupported(f"a case-insensitive sequence matches the single character U+{found[0]:04X}")
