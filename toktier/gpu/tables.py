"""The tables of a family, as the kernels read them: what ``kernels/tables.cuh`` declares, by name.

Everything in them follows from what was derived for the family already: the atoms and the relation, the added tokens,
the trees of the split patterns, the model. What the device cannot do exactly is :class:`Inapplicable`, or left to the
host one segment at a time.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from toktier.engines.base import Inapplicable
from toktier.engines.reference import ReferenceEngine
from toktier.families.alphabet import partition
from toktier.families.automaton import automaton_of
from toktier.families.family import Family
from toktier.families.literal import Literal, as_matched
from toktier.families.pattern import CharacterClass, Unsupported
from toktier.families.probing import CODE_POINTS, Probe, boundaries
from toktier.families.splitting import members
from toktier.families.stages import Pieces, Splitter
from toktier.gpu.hashing import NONE, pair_table
from toktier.gpu.matcher import Matcher, matcher_of
from toktier.gpu.rewriting import Rewriting, rewriting_of
from toktier.gpu.vocabulary import Vocabulary, vocabulary_of

PAGE = 128
"""Code points of a page: of a million, most are in pages that are alike."""

ODD, BEGINS = 32, 64
PREFIX_UNLESS_THERE, PREFIX_DOCUMENTS = 1, 2
DEFERRED = 1 << 31
"""Numbers that the kernels have too, where they are explained."""

Tables: TypeAlias = dict[str, npt.NDArray[Any] | int]
"""The fields of the kernels' ``Tables``."""


def tables_of(family: Family, reference: ReferenceEngine, probe: Probe) -> Tables:
    """The tables of a family.

    Args:
        family: A family with certified cuts.
        reference: Its reference, whose model is read.
        probe: Where the reference is asked what its classes of characters contain.

    Raises:
        Inapplicable: The device cannot do what the family needs.
    """
    definition = family.definition
    if definition.superseded:
        raise Inapplicable(f"added token {definition.superseded[0].content!r} was declared twice")
    vocabulary = vocabulary_of(definition, reference, probe.cache)
    rewriting = rewriting_of(definition, probe)
    raw = [literal for literal in definition.literals if not literal.normalized]
    normalized = [as_matched(each, definition.normalizer, probe) for each in definition.literals if each.normalized]
    tables: Tables = {
        **_kinds(family, rewriting, raw),
        **_literals("literals", "literal_bits", raw),
        **_literals("normalized_literals", "normalized_literal_bits", normalized),
        **_images(rewriting),
        **_classes(rewriting.splitters, normalized, probe),
        **_model(vocabulary),
    }
    if not normalized:
        tables["normalized_literal_bits"] = 0
    return tables


def _kinds(family: Family, rewriting: Rewriting, literals: Sequence[Literal]) -> Tables:
    """Atoms, told apart further by whether a character is odd, and whether an added token begins with it."""
    begins = np.zeros(CODE_POINTS, np.int64)
    begins[[ord(literal.content[0]) for literal in literals]] = 1
    told_apart = family.table.astype(np.int64) * 4 + rewriting.odd * 2 + begins
    kinds, numbers = np.unique(told_apart, return_inverse=True)
    atoms = kinds // 4
    cuts = family.pairs[np.ix_(atoms, atoms)].reshape(-1)
    words = np.packbits(np.pad(cuts, (0, -len(cuts) % 32)), bitorder="little").view(np.uint32)
    pages, values = _paged(numbers.astype(np.uint16))
    return {
        "kind_pages": pages,
        "kinds": values,
        "kind_flags": ((kinds >> 1 & 1) * ODD + (kinds & 1) * BEGINS).astype(np.uint8),
        "kind_count": len(kinds),
        "cuts": words,
    }


def _literals(table: str, bits: str, literals: Sequence[Literal]) -> Tables:
    """Added tokens as a trie: which node follows which, behind which character, and what ends there."""
    nodes: dict[tuple[int, str], int] = {}
    ends: dict[int, int] = {}
    for literal in literals:
        node = 0
        for character in literal.content:
            node = nodes.setdefault((node, character), len(nodes) + 1)
        ends[node] = DEFERRED if literal.lstrip or literal.rstrip or literal.single_word else literal.id
    rows = np.array(
        [(node, ord(character), to, ends.get(to, NONE)) for (node, character), to in nodes.items()], np.uint32
    ).reshape(-1, 4)
    made = pair_table(*rows.T)
    return {table: made, bits: _bits(made)}


def _images(rewriting: Rewriting) -> Tables:
    """What characters are rewritten to, each image once."""
    numbers: dict[str, int] = {}
    of_character = np.zeros(CODE_POINTS, np.uint32)
    for code_point, image in rewriting.images.items():
        of_character[code_point] = numbers.setdefault(image, len(numbers) + 1)
    images = [image.encode() for image in numbers]
    pages, values = _paged(of_character)
    prefix = rewriting.prefix
    rules = 0
    if prefix is not None:
        rules = PREFIX_UNLESS_THERE * prefix.unless_there + PREFIX_DOCUMENTS * (not prefix.everywhere)
    return {
        "image_pages": pages,
        "image_numbers": values,
        "image_ends": np.cumsum([0, *map(len, images)]).astype(np.uint32),
        "images": _bytes(b"".join(images)),
        "prefix": _bytes(prefix.content.encode() if prefix else b""),
        "prefix_size": len(prefix.content.encode()) if prefix else 0,
        "prefix_rules": rules,
    }


def _classes(splitters: Sequence[Splitter], literals: Iterable[Literal], probe: Probe) -> Tables:
    """The automata of the split patterns, on the coarsest classes of characters that serve them all."""
    positions = list(dict.fromkeys(p for splitter in splitters for p in automaton_of(splitter.tree).positions))
    begins = np.zeros(CODE_POINTS, bool)
    begins[[ord(literal.content[0]) for literal in literals]] = True
    alphabet = partition([boundaries(begins), *(members(position, probe) for position in positions)])
    inside = {position: alphabet.properties[:, i] for i, position in enumerate(positions, 1)}
    matchers = [_matcher(splitter, inside) for splitter in splitters]
    pages, values = _paged(alphabet.table.astype(np.uint16))
    starts = np.cumsum([0, *(matcher.transitions.size for matcher in matchers)])
    keeps = [list(Pieces).index(splitter.keeps) for splitter in splitters]
    return {
        "class_pages": pages,
        "classes": values,
        "class_flags": (alphabet.properties[:, 0] * BEGINS).astype(np.uint8),
        "class_count": alphabet.size,
        "transitions": np.concatenate([np.zeros(0, np.uint16), *(matcher.transitions.ravel() for matcher in matchers)]),
        "splitters": np.array([*zip(starts.tolist(), keeps, strict=False)], np.uint32).reshape(-1, 2),
        "splitter_count": len(splitters),
    }


def _matcher(splitter: Splitter, inside: Mapping[CharacterClass, npt.NDArray[np.bool_]]) -> Matcher:
    try:
        return matcher_of(splitter.tree, inside)
    except Unsupported as error:
        raise Inapplicable(f"pre-tokenizer {splitter.name}: {error}") from None


def _model(vocabulary: Vocabulary) -> Tables:
    return {
        "model": int(vocabulary.model),
        "byte_ids": vocabulary.byte_ids,
        "characters": vocabulary.characters,
        "character_bits": _bits(vocabulary.characters),
        "merges": vocabulary.merges,
        "merge_bits": _bits(vocabulary.merges),
        "words": vocabulary.words,
        "word_bits": _bits(vocabulary.words),
        "pool": vocabulary.pool,
        "unknown": vocabulary.unknown,
        "fuse_unknown": int(vocabulary.fuse_unknown),
        "byte_fallback": int(vocabulary.byte_fallback),
        "longest_word": vocabulary.longest_word,
        "longest_piece": vocabulary.longest_piece,
    }


def _paged(values: npt.NDArray[Any]) -> tuple[npt.NDArray[np.uint16], npt.NDArray[Any]]:
    """A value of each code point as pages of which no two are alike, and the page of each ``PAGE`` code points."""
    rows = values.reshape(-1, PAGE)
    pages, numbers = np.unique(rows, axis=0, return_inverse=True)
    return numbers.reshape(-1).astype(np.uint16), np.ascontiguousarray(pages).reshape(-1)


def _bits(table: npt.NDArray[np.uint32]) -> int:
    return len(table).bit_length() - 1


def _bytes(content: bytes) -> npt.NDArray[np.uint8]:
    return np.frombuffer(content, np.uint8)
