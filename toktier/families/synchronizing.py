"""The synchronizing relation: the pairs of neighbouring characters between which every text may be cut.

A position with ``a`` on its left and ``b`` on its right is a certified cut when ``tok(X a b Y) == tok(X a) + tok(b Y)``
for all ``X`` and ``Y``; where the definition puts a prefix before a text, the right side is to be encoded without. Four
conditions make it so, each derived from the definition alone:

1. **No literal crosses** (:func:`crossed_by_literals`): no occurrence of an added token, with what its flags let it
   absorb or look at, has ``a`` and ``b`` inside.
2. **Every rewriting commutes** (:func:`before_rewriting`), and whatever it can put in the places of ``a`` and ``b``
   satisfies the rest.
3. **The splitters part them**: one of them has them in two pieces for certain (:func:`parted_by_splitter`), and neither
   it nor any before it can cross from ``a`` to ``b`` (:func:`crossed_by_splitter`).
4. Or, where none does, **the model joins them never** (:func:`toktier.families.merging.parted_by_model`).

``docs/theory.md`` has the proof.
"""

from __future__ import annotations

import itertools
import operator
from collections.abc import Iterable, Mapping

import numpy as np
from attrs import frozen

from toktier.families.alphabet import partition
from toktier.families.automaton import Automaton
from toktier.families.bytelevel import first_and_last
from toktier.families.charsmap import deletes
from toktier.families.definition import Definition
from toktier.families.literal import as_matched, beside_literals, refuse_equal_contents
from toktier.families.merging import parted_by_model
from toktier.families.normalization import rewriting
from toktier.families.pattern import Unsupported
from toktier.families.probing import CODE_POINTS, Probe, code_points_of
from toktier.families.relation import Fates, Relation
from toktier.families.splitting import (
    Divider,
    Pattern,
    automata_in,
    before_scripts,
    before_splitter,
    certainly_matched,
    crossed_by_splitter,
    distinct,
    members,
)
from toktier.families.stages import (
    ByteLevel,
    CharacterMap,
    Charsmap,
    Form,
    Normalizer,
    Prefix,
    PreTokenizer,
    ScriptSplitter,
    Splitter,
    Substitution,
    Trim,
)


@frozen(eq=False)
class Synchronization:
    """What was derived from a definition.

    Attributes:
        relation: The pairs of characters between which every text may be cut.
        prefixed: Whether the definition puts a prefix before a text, so that what continues one is encoded without.
    """

    relation: Relation
    prefixed: bool


def synchronize(definition: Definition, probe: Probe) -> Synchronization:
    """Derives the relation of a definition that is understood.

    Raises:
        Unsupported: A pattern or an added token turns out to be outside what the proof covers, or the definition is so
            large that it would take long, or no two characters are parted.
    """
    refuse_unknown_begin(definition)
    pre_tokenizers = distinct(definition.pre_tokenizers)
    automata = automata_in([*definition.normalizers, *pre_tokenizers], probe)
    literals = definition.literals + definition.superseded
    raw = [literal for literal in literals if not literal.normalized]
    normalized = [as_matched(literal, definition.normalizer, probe) for literal in literals if literal.normalized]
    refuse_equal_contents(normalized)
    strips = any(literal.lstrip or literal.rstrip for literal in literals)
    whitespace = code_points_of(probe.whitespace()) if strips else []

    relation = Relation.uniform(False) if definition.joins is None else parted_by_model(definition.joins)
    divided = any_before(isinstance(stage, Divider) for stage in pre_tokenizers)
    inner: list[Prefix] = []
    for stage, pieces in reversed([*zip(pre_tokenizers, divided, strict=True)]):
        if isinstance(stage, Prefix) and stage.everywhere and pieces:
            # Every piece that there is by now has it, wherever it comes from. What is one piece has it once.
            relation = Relation.uniform(False)
        elif isinstance(stage, Prefix):
            inner.append(stage)
        relation = before(stage, relation, automata, probe)
    relation = beside_literals(normalized, relation, whitespace, prefixed=any(stage.everywhere for stage in inner))
    for normalizer in reversed(definition.normalizers):
        relation = before(normalizer, relation, automata, probe)
    prefixes = inner + [stage for stage in definition.normalizers if isinstance(stage, Prefix)]
    relation = beside_literals(raw, relation, whitespace, prefixed=any(stage.everywhere for stage in prefixes))
    if not relation.pairs.any():
        raise Unsupported(definition.undivided or "no two characters are always parted")
    return Synchronization(relation, bool(prefixes))


def refuse_unknown_begin(definition: Definition) -> None:
    """Makes sure that what is put before the beginning of a text alone is put there.

    The library goes by where a piece was in the original text. ``Precompiled`` does not count what it deletes at the
    begin, so that what an earlier normalizer has put there lets others take its place.

    Raises:
        Unsupported: It may be put before other pieces too.
    """
    first = [stage for stage in definition.pre_tokenizers if isinstance(stage, Prefix) and not stage.everywhere]
    later = [stage for stage in definition.normalizers[1:] if isinstance(stage, Charsmap) and deletes(stage.component)]
    if first and later:
        raise Unsupported(
            f"pre-tokenizer {first[0].name}: where the text begins is not known behind a normalizer Precompiled that "
            "deletes characters after another normalizer"
        )


def any_before(flags: Iterable[bool]) -> list[bool]:
    """For each flag whether one before it is set.

    >>> any_before([False, True, False])
    [False, False, True]
    """
    return list(itertools.accumulate(flags, operator.or_, initial=False))[:-1]


def before(
    stage: Normalizer | PreTokenizer, relation: Relation, automata: Mapping[Pattern, Automaton], probe: Probe
) -> Relation:
    """The pairs that a stage may be given in two parts, from those for which what is behind it may."""
    if isinstance(stage, Prefix):
        return relation
    if isinstance(stage, Splitter):
        return before_splitter(stage, relation, automata[stage], probe)
    if isinstance(stage, Substitution):
        return before_substitution(stage, relation, automata[stage], probe)
    if isinstance(stage, ScriptSplitter):
        return before_scripts(relation, probe)
    return before_rewriting(stage, relation, probe)


def before_rewriting(
    stage: CharacterMap | Form | Trim | Charsmap | ByteLevel, relation: Relation, probe: Probe
) -> Relation:
    """The pairs where a rewriting commutes, and of which all that may come of them is related."""
    if isinstance(stage, ByteLevel):
        first, last = first_and_last()
        fates = [frozenset((atom,)) for atom in range(relation.size)]
        return relation.before(Fates(relation.table[last], fates), Fates(relation.table[first], fates))
    rewritten = rewriting(stage, probe)
    beyond = np.array([rewritten.unknown_from, CODE_POINTS])
    ends = Fates.of(rewritten.ends, relation, rewritten.lost)
    return relation.before(ends, Fates.of(rewritten.starts, relation, np.concatenate([beyond, rewritten.lost])))


def before_substitution(stage: Substitution, relation: Relation, automaton: Automaton, probe: Probe) -> Relation:
    """The pairs that no match can cross, and of which all that may come of them is related.

    A character in no class of the pattern stays as it is. Where it ends or begins a match, it is the content's end or
    begin that is there; where it always does, nothing else is.
    """
    images = [relation.table[ord(character)] for character in (stage.content[:1] + stage.content[-1:])]
    original, inside = relation.refined(partition([members(position, probe) for position in automaton.positions]))
    old = np.zeros(original.size, np.int64)
    old[original.table] = relation.table
    touched, always = np.logical_or.reduce(inside, axis=1), certainly_matched(automaton, inside)

    def fates(image: list[int]) -> Fates:
        numbers: dict[frozenset[int], int] = {}
        of_atom = np.zeros(original.size, np.int32)
        for atom in range(original.size):
            fate = {int(old[atom])} if not always[atom] else set[int]()
            if touched[atom]:
                # Without a content, what was before the match comes to stand there.
                fate = fate | set(image) if image else set()
            of_atom[atom] = numbers.setdefault(frozenset(fate), len(numbers))
        return Fates(of_atom[original.table], list(numbers))

    rewritten = relation.before(fates(images[-1:]), fates(images[:1]))
    result, inside = rewritten.refined(partition([members(position, probe) for position in automaton.positions]))
    return result.without(crossed_by_splitter(automaton, inside))
