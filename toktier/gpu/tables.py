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
from toktier.families.pattern import Unsupported
from toktier.families.probing import CODE_POINTS, Probe, boundaries
from toktier.families.splitting import members
from toktier.families.stages import Pieces, Prefix, Splitter
from toktier.families.syntax import CharacterClass
from toktier.gpu.matcher import matcher_of
from toktier.gpu.rewriting import Rewriting, rewriting_of
from toktier.gpu.vocabulary import Model, Vocabulary, refuse_large, trie_of, vocabulary_of

PAGE = 128
"""Code points of a page: of a million, most are in pages that are alike."""

ODD, BEGINS, PAIRED = 32, 64, 128
PREFIX_UNLESS_THERE, PREFIX_DOCUMENTS = 1, 2
PREFIXES = len(Pieces)
DEFERRED = 1 << 31
"""Numbers that the kernels have too, where they are explained."""

LONGEST_IMAGE = 1 << 10
"""Bytes that may come of a character: those of a thousand tiles are counted in 32 bits."""

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
    refuse_large(literal.id for literal in definition.literals)
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
        **_piece_prefix(rewriting.splitters, vocabulary, reference),
        **_model(vocabulary),
    }
    if not normalized:
        tables["normalized_literal_bits"] = 0
    return tables


def _kinds(family: Family, rewriting: Rewriting, literals: Sequence[Literal]) -> Tables:
    """Atoms, told apart further by whether a character is odd or paired, and whether an added token begins with it."""
    begins = np.zeros(CODE_POINTS, np.int64)
    begins[[ord(literal.content[0]) for literal in literals]] = 1
    told_apart = family.table.astype(np.int64) * 8 + rewriting.paired * 4 + rewriting.odd * 2 + begins
    exists = np.zeros(told_apart.max() + 1, bool)
    exists[told_apart] = True
    kinds, numbers = np.flatnonzero(exists), (np.cumsum(exists) - 1)[told_apart]
    atoms = kinds // 8
    cuts = family.pairs[np.ix_(atoms, atoms)].reshape(-1)
    words = np.packbits(np.pad(cuts, (0, -len(cuts) % 32)), bitorder="little").view(np.uint32)
    pages, values = _paged(numbers.astype(np.uint16))
    return {
        "kind_pages": pages,
        "kinds": values,
        "kind_flags": ((kinds >> 2 & 1) * PAIRED + (kinds >> 1 & 1) * ODD + (kinds & 1) * BEGINS).astype(np.uint8),
        "kind_count": len(kinds),
        "cuts": words,
    }


def _literals(table: str, bits: str, literals: Sequence[Literal]) -> Tables:
    """Added tokens as a trie."""
    made = trie_of(
        {
            literal.content: DEFERRED if literal.lstrip or literal.rstrip or literal.single_word else literal.id
            for literal in literals
        }
    )
    return {table: made, bits: _bits(made)}


def _images(rewriting: Rewriting) -> Tables:
    """What characters are rewritten to, each image once."""
    numbers: dict[str, int] = {}
    of_character = np.zeros(CODE_POINTS, np.uint32)
    for code_point, image in rewriting.images.items():
        of_character[code_point] = numbers.setdefault(image, len(numbers) + 1)
    images = [image.encode() for image in numbers]
    if any(len(image) > LONGEST_IMAGE for image in images):
        raise Inapplicable(f"a character is rewritten to more than {LONGEST_IMAGE:,} bytes")
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


def _classes(stages: Sequence[Splitter | Prefix], literals: Iterable[Literal], probe: Probe) -> Tables:
    """The automata of the split patterns, on the coarsest classes of characters that serve them all."""
    splitters = [stage for stage in stages if isinstance(stage, Splitter)]
    positions = list(dict.fromkeys(p for splitter in splitters for p in automaton_of(splitter.tree).positions))
    begins = np.zeros(CODE_POINTS, bool)
    begins[[ord(literal.content[0]) for literal in literals]] = True
    alphabet = partition([boundaries(begins), *(members(position, probe) for position in positions)])
    inside = {position: alphabet.properties[:, i] for i, position in enumerate(positions, 1)}
    automata = [_transitions(stage, inside) for stage in stages]
    pages, values = _paged(alphabet.table.astype(np.uint16))
    starts = np.cumsum([0, *map(len, automata)])
    keeps = [list(Pieces).index(stage.keeps) if isinstance(stage, Splitter) else PREFIXES for stage in stages]
    return {
        "class_pages": pages,
        "classes": values,
        "class_flags": (alphabet.properties[:, 0] * BEGINS).astype(np.uint8),
        "class_count": alphabet.size,
        "transitions": np.concatenate([np.zeros(0, np.uint16), *automata]),
        "splitters": np.array([*zip(starts.tolist(), keeps, strict=False)], np.uint32).reshape(-1, 2),
        "splitter_count": len(stages),
    }


def _transitions(
    stage: Splitter | Prefix, inside: Mapping[CharacterClass, npt.NDArray[np.bool_]]
) -> npt.NDArray[np.uint16]:
    """The automaton of a splitter; a prefix has none."""
    if isinstance(stage, Prefix):
        return np.zeros(0, np.uint16)
    try:
        return matcher_of(stage.tree, inside).transitions.ravel()
    except Unsupported as error:
        raise Inapplicable(f"pre-tokenizer {stage.name}: {error}") from None


def _piece_prefix(stages: Sequence[Splitter | Prefix], vocabulary: Vocabulary, reference: ReferenceEngine) -> Tables:
    """The prefix of pieces, which must be a token by itself: a model of words or merges would make others with it."""
    prefixes = [stage for stage in stages if isinstance(stage, Prefix)]
    if not prefixes:
        return {}
    (prefix,) = prefixes
    if vocabulary.model is not Model.UNIGRAM:
        raise Inapplicable(f"pre-tokenizer {prefix.name} puts a prefix behind a splitter, and the model is no Unigram")
    model = reference.tokenizer.model
    id = model.token_to_id(prefix.content)
    if id is None:
        raise Inapplicable(f"pre-tokenizer {prefix.name}: prefix {prefix.content!r} is no token")
    if str(model.id_to_token(vocabulary.unknown)).startswith(prefix.content):
        raise Inapplicable(f"pre-tokenizer {prefix.name}: the unknown token begins with prefix {prefix.content!r}")
    return {"piece_prefix": ord(prefix.content), "piece_prefix_id": id}


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
        "trie": vocabulary.trie,
        "trie_bits": _bits(vocabulary.trie),
        "scores": vocabulary.scores,
    }


def _paged(values: npt.NDArray[Any]) -> tuple[npt.NDArray[np.uint16], npt.NDArray[Any]]:
    """A value of each code point as pages of which no two are alike, and the page of each ``PAGE`` code points."""
    numbers: dict[bytes, int] = {}
    pages = [numbers.setdefault(row.tobytes(), len(numbers)) for row in values.reshape(-1, PAGE)]
    return np.array(pages, np.uint16), np.frombuffer(b"".join(numbers), values.dtype)


def _bits(table: npt.NDArray[np.uint32]) -> int:
    return len(table).bit_length() - 1


def _bytes(content: bytes) -> npt.NDArray[np.uint8]:
    return np.frombuffer(content, np.uint8)
