"""The tables with which a device makes ids of a piece, read off the model of the reference.

What the device does is what the models of the libraries come down to:

* Byte-pair encoding begins with a symbol for each character, and replaces of all neighbours that a merge names those of
  the lowest rank, the leftmost of equals, again and again. Hugging Face keeps a queue in which there may be merges that
  are out of date: it knows them by what they would make. That is a token with the text of the two symbols, so if all
  tokens have an id of their own and no symbol is empty, none is taken for one that is not.
* tiktoken merges whatever two neighbours make up a token, the lowest rank first. Every symbol is a token, ranks are ids
  and no two tokens have the same one, so that is the same with a merge for each way to divide a token into two. For
  long pieces it keeps a queue, and knows what is out of date by its rank.
* WordPiece takes the longest word that there is, from the left, and gives up if there is none.
* Unigram takes the tokens with the largest sum of scores. It adds them in a certain order, which decides when others
  are as good; and what it has for unknown is looked up again, so it may be a token after all.

Sources: R. Sennrich, B. Haddow and A. Birch, "Neural machine translation of rare words with subword units" (2016), for
byte-pair encoding; M. Schuster and K. Nakajima, "Japanese and Korean voice search" (2012), for WordPiece; T. Kudo,
"Subword regularization" (2018), for Unigram, whose best division is found as by A. Viterbi, "Error bounds for
convolutional codes" (1967).
"""

from __future__ import annotations

import enum
import json
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
from attrs import field, frozen

from toktier.engines.base import Inapplicable
from toktier.engines.ranks import merges_of, unreached
from toktier.engines.reference import ReferenceEngine
from toktier.engines.tiktoken_reference import TiktokenReference
from toktier.families.bytelevel import byte_alphabet
from toktier.families.definition import Definition
from toktier.families.formats.ranked import of_encoding
from toktier.families.merging import AFFIXES
from toktier.families.probing import DiskCache
from toktier.gpu.hashing import NONE, Table, code_point_table, pair_table, word_table

MODELS = ("BPE", "WordPiece", "WordLevel", "Unigram")
"""The models of the reference library of which there are tables."""

MAX_ID = (1 << 30) - 1
"""The largest id that the device can note beside what else there may be to note."""

MAX_SCORED, MAX_SCORED_ID = 63, (1 << 24) - 1
"""Characters of the longest token, and the largest id, of a Unigram; see ``kernels/unigram.cuh``."""

UNKNOWN_PENALTY = 10.0
"""What the score of an unknown character is below the lowest of all."""


class Model(enum.IntEnum):
    """What the device does with a piece.

    Attributes:
        BYTES: Merges, beginning with its bytes.
        CHARACTERS: Merges, beginning with its characters.
        WORD_PIECES: Takes the longest word, again and again.
        WORDS: Looks it up.
        UNIGRAM: Takes what has the best scores.
    """

    BYTES = 0
    CHARACTERS = 1
    WORD_PIECES = 2
    WORDS = 3
    UNIGRAM = 4


@frozen(eq=False)
class Vocabulary:
    """A model as tables of :mod:`toktier.gpu.hashing`. Where there is no id, it is ``NONE``.

    Attributes:
        model: What is done with a piece.
        byte_ids: The symbol of each byte, uint32, shape (256,); with ``CHARACTERS``, of the bytes of a character that
            has no symbol.
        characters: With ``CHARACTERS``, the symbol of each character that has one.
        merges: The pairs of symbols that are merged: left, right, rank, symbol that they become.
        words: The words that a piece is looked up in as a whole, and with ``WORD_PIECES`` in parts.
        pool: The bytes of the words, uint8.
        unknown: The id of the unknown token. Without, a character that has no symbol is dropped.
        fuse_unknown: Whether unknown characters side by side are one symbol.
        byte_fallback: Whether a character without a symbol becomes the symbols of its bytes; with ``UNIGRAM``, what no
            token is found for.
        longest_word: The bytes of the longest word.
        longest_piece: With ``WORD_PIECES``, the most characters that a piece may have and not be unknown; else 0.
        trie: With ``UNIGRAM``, the tokens, as :func:`trie_of` makes it.
        scores: With ``UNIGRAM``, that of an unknown character, and behind it those of all tokens by id, float64.
    """

    model: Model
    byte_ids: npt.NDArray[np.uint32] = field(repr=False)
    characters: Table = field(repr=False)
    merges: Table = field(repr=False)
    words: Table = field(repr=False)
    pool: npt.NDArray[np.uint8] = field(repr=False)
    unknown: int
    fuse_unknown: bool
    byte_fallback: bool
    longest_word: int
    longest_piece: int
    trie: Table = field(repr=False)
    scores: npt.NDArray[np.float64] = field(repr=False)


def vocabulary_of(definition: Definition, reference: ReferenceEngine, cache: DiskCache) -> Vocabulary:
    """The tables of a family's model.

    Args:
        definition: What the family is.
        reference: Has its model.
        cache: Keeps which tokens no merge reaches, which takes a second to find out.

    Raises:
        Inapplicable: The model is none that these tables describe.

    Example:
        >>> import toktier
        >>> tok = toktier.load("toktier-mini")
        >>> vocabulary = vocabulary_of(tok.family.definition, tok.engine("reference"), DiskCache(None))
        >>> vocabulary.model, int(vocabulary.byte_ids[ord("H")]), vocabulary.longest_word
        (<Model.BYTES: 0>, 39, 40)
    """
    if isinstance(reference, TiktokenReference):
        ranks = of_encoding(reference.encoding).ranks
        refuse_large(ranks.values())
        return _ranked(ranks)
    if definition.model not in MODELS:
        raise Inapplicable(f"the model is a {definition.model}")
    make = {"BPE": _byte_pairs, "WordPiece": _word_pieces, "WordLevel": _words, "Unigram": _scored}[definition.model]
    tokenizer = reference.tokenizer
    state = json.loads(tokenizer.model.__getstate__())
    # The library writes the tokens by id: of two that have the same one, it leaves one out.
    if len(state["vocab"]) != tokenizer.get_vocab_size(with_added_tokens=False):
        raise Inapplicable("two tokens of the model have one id")
    if definition.model != "Unigram":  # whose ids are its places in a list
        refuse_large(state["vocab"].values())
    return make(state, definition, cache)


def refuse_large(ids: Iterable[int]) -> None:
    """Raises :class:`Inapplicable` where one of some ids is larger than ``MAX_ID``."""
    if (largest := max(ids, default=0)) > MAX_ID:
        raise Inapplicable(f"id {largest:,} is larger than {MAX_ID:,}")


def _ranked(ranks: Mapping[bytes, int]) -> Vocabulary:
    """The tables of what tiktoken encodes with."""
    merges = []
    for token, id in ranks.items():
        for i in range(1, len(token)):
            left, right = ranks.get(token[:i]), ranks.get(token[i:])
            if left is not None and right is not None:
                merges.append((left, right, id, id))
    return _vocabulary(
        Model.BYTES,
        byte_ids=_byte_ids({token[0]: id for token, id in ranks.items() if len(token) == 1}),
        merges=merges,
        words=ranks,
    )


def _byte_pairs(state: Mapping[str, Any], definition: Definition, cache: DiskCache) -> Vocabulary:
    """The tables of the library's byte-pair encoding."""
    if any(state.get(affix) for affix in AFFIXES):
        raise Inapplicable("the model marks tokens inside or at the end of a word")
    if state["dropout"]:
        raise Inapplicable("the model leaves out merges at random")
    vocabulary: dict[str, int] = state["vocab"]
    merges = merges_of(state)
    if not all(left and right for left, right in merges):
        raise Inapplicable("one of the tokens that are merged is empty")
    divided = {} if state["ignore_merges"] else unreached(vocabulary, merges, definition.digest, cache)
    # What has a character of which the model sees none cannot come up.
    written = _of_alphabet(vocabulary) if definition.byte_level else {token: token.encode() for token in vocabulary}
    rows = [
        (vocabulary[left], vocabulary[right], rank, vocabulary[left + right])
        for rank, (left, right) in enumerate(merges)
        if left in written and right in written
    ]
    words = {written[token]: vocabulary[token] for token in written if token not in divided}
    if definition.byte_level:
        byte_ids = _byte_ids({written[token][0]: vocabulary[token] for token in written if len(token) == 1})
        return _vocabulary(Model.BYTES, byte_ids=byte_ids, merges=rows, words=words)
    fallback: dict[int, int] | None = None
    if state["byte_fallback"]:
        tokens = {byte: f"<0x{byte:02X}>" for byte in range(256)}
        fallback = {byte: vocabulary[token] for byte, token in tokens.items() if token in vocabulary}
    unknown = state["unk_token"]
    if fallback is None and unknown is not None and unknown not in vocabulary:
        raise Inapplicable(f"the unknown token {unknown!r} is no token of the model")
    return _vocabulary(
        Model.CHARACTERS,
        byte_ids=None if fallback is None else _byte_ids(fallback),
        characters={ord(token): id for token, id in vocabulary.items() if len(token) == 1},
        merges=rows,
        words=words,
        unknown=vocabulary.get(unknown, NONE),
        fuse_unknown=state["fuse_unk"],
        byte_fallback=fallback is not None,
    )


def _word_pieces(state: Mapping[str, Any], definition: Definition, cache: DiskCache) -> Vocabulary:
    """The tables of the library's WordPiece."""
    unknown = _unknown_word(state, definition)
    vocabulary, prefix = state["vocab"], state["continuing_subword_prefix"]
    return _vocabulary(
        Model.WORD_PIECES,
        # At the beginning of a piece, a token with the prefix is a word that begins with the prefix.
        words={token.encode(): id for token, id in vocabulary.items()},
        continuing={token[len(prefix) :].encode(): id for token, id in vocabulary.items() if token.startswith(prefix)},
        unknown=unknown,
        longest_piece=min(state["max_input_chars_per_word"], NONE),
    )


def _words(state: Mapping[str, Any], definition: Definition, cache: DiskCache) -> Vocabulary:
    """The tables of the library's WordLevel."""
    unknown = _unknown_word(state, definition)
    words = {token.encode(): id for token, id in state["vocab"].items()}
    return _vocabulary(Model.WORDS, words=words, unknown=unknown)


def _scored(state: Mapping[str, Any], definition: Definition, cache: DiskCache) -> Vocabulary:
    """The tables of the library's Unigram."""
    if definition.byte_level:
        raise Inapplicable("the model is a Unigram of bytes")
    if state["unk_id"] is None:
        raise Inapplicable("the model has no unknown token")
    # Of two that are alike, the library finds the last.
    ids = {token: id for id, (token, _) in enumerate(state["vocab"]) if token}
    scores = np.array([score for _, score in state["vocab"]])
    if len(scores) > MAX_SCORED_ID + 1:
        raise Inapplicable(f"the model has {len(scores):,} tokens, more than {MAX_SCORED_ID + 1:,}")
    longest = max(ids, key=len, default="")
    if len(longest) > MAX_SCORED:
        raise Inapplicable(f"token {longest!r} has {len(longest)} characters, more than {MAX_SCORED}")
    fallback = {byte: ids[f"<0x{byte:02X}>"] for byte in range(256) if f"<0x{byte:02X}>" in ids}
    return _vocabulary(
        Model.UNIGRAM,
        words={},
        byte_ids=_byte_ids(fallback) if state["byte_fallback"] else None,
        unknown=state["unk_id"],
        byte_fallback=state["byte_fallback"],
        trie=trie_of(ids),
        scores=np.append(scores.min() - UNKNOWN_PENALTY, scores),
    )


def trie_of(ids: Mapping[str, int]) -> Table:
    """Strings as a table of pairs: of a node and the code point that leads from it, the next node and the id that ends.

    Example:
        >>> table = trie_of({"ab": 7, "a": 3})
        >>> sorted(table[table[:, 0] != NONE].tolist())
        [[0, 97, 1, 3], [1, 98, 2, 7]]
    """
    nodes: dict[tuple[int, str], int] = {}
    ends: dict[int, int] = {}
    for text, id in ids.items():
        node = 0
        for character in text:
            node = nodes.setdefault((node, character), len(nodes) + 1)
        ends[node] = id
    rows = [(node, ord(character), to, ends.get(to, NONE)) for (node, character), to in nodes.items()]
    return pair_table(*np.array(rows, np.uint32).reshape(-1, 4).T)


def _unknown_word(state: Mapping[str, Any], definition: Definition) -> int:
    """The id of the unknown token of a model of words."""
    if definition.byte_level:
        raise Inapplicable(f"the model is a {definition.model} of bytes")
    token, vocabulary = state["unk_token"], state["vocab"]
    if token not in vocabulary:
        raise Inapplicable(f"the unknown token {token!r} is no token of the model")
    return int(vocabulary[token])


def _of_alphabet(tokens: Mapping[str, int]) -> dict[str, bytes]:
    """The bytes that tokens of the byte alphabet stand for; others are left out."""
    alphabet = byte_alphabet()
    return {token: bytes(map(alphabet.__getitem__, token)) for token in tokens if alphabet.keys() >= set(token)}


def _byte_ids(ids: Mapping[int, int]) -> npt.NDArray[np.uint32]:
    """The id of each byte, which all of them must have."""
    for byte in range(256):
        if byte not in ids:
            raise Inapplicable(f"byte 0x{byte:02X} is no token")
    return np.array([ids[byte] for byte in range(256)], np.uint32)


def _vocabulary(
    model: Model,
    *,
    words: Mapping[bytes, int],
    continuing: Mapping[bytes, int] | None = None,
    byte_ids: npt.NDArray[np.uint32] | None = None,
    characters: Mapping[int, int] | None = None,
    merges: list[tuple[int, int, int, int]] | None = None,
    unknown: int = NONE,
    fuse_unknown: bool = False,
    byte_fallback: bool = False,
    longest_piece: int = 0,
    trie: Table | None = None,
    scores: npt.NDArray[np.float64] | None = None,
) -> Vocabulary:
    """A vocabulary, with what a model does not have left out."""
    # No piece is empty, nor what is left of one.
    first, further = ({word: id for word, id in some.items() if word} for some in (words, continuing or {}))
    table, pool = word_table(first, further)
    characters = characters or {}
    return Vocabulary(
        model=model,
        byte_ids=np.full(256, NONE, np.uint32) if byte_ids is None else byte_ids,
        characters=code_point_table([*characters], [*characters.values()]),
        merges=pair_table(*np.array(merges or [], np.uint32).reshape(-1, 4).T),
        words=table,
        pool=pool,
        unknown=unknown,
        fuse_unknown=fuse_unknown,
        byte_fallback=byte_fallback,
        longest_word=max(map(len, (*first, *further)), default=0),
        longest_piece=longest_piece,
        trie=trie_of({}) if trie is None else trie,
        scores=np.zeros(0) if scores is None else scores,
    )
