"""What byte-pair encoding can join: where it never joins two characters, a piece may be divided between them.

The model begins with one symbol for each character and then replaces two neighbours by one, again and again. Each pair
of neighbours inside a symbol was joined by one merge ``(left, right)``, as the last character of ``left`` and the first
of ``right``. So if no merge joins ``a`` and ``b`` in this way, then no symbol ever holds both, and the merges on the
two sides see nothing of each other.

Sources: R. Sennrich, B. Haddow and A. Birch, "Neural machine translation of rare words with subword units" (2016), for
the encoding; condition 4 of ``docs/theory.md`` for what follows from it.
"""

from __future__ import annotations

import json
from collections import defaultdict
from typing import Any

import numpy as np
import tokenizers
from attrs import field, frozen

from toktier.families.alphabet import partition
from toktier.families.probing import CODE_POINTS, DiskCache, boundaries
from toktier.families.relation import Relation

VERSION = 2
"""Part of the key under which the joins of a vocabulary are kept: raised when they are found in another way."""

MAX_CLASSES = 500
"""Kinds of characters that are told apart by what they are joined with. Llama 2 has 217."""

MAX_JOINS = 200_000
"""Pairs of characters that are joined. Gemma 3 has 33,695."""

AFFIXES = ("continuing_subword_prefix", "end_of_word_suffix")


@frozen
class Joins:
    """The neighbours that a byte-pair encoding can make one symbol of.

    Attributes:
        pairs: The last character of the left and the first of the right symbol of each merge.
        known: The characters that are symbols.
        unknown_join: Whether a character that is no symbol may end up in one with a neighbour, whatever that is.
        unknown_fuse: Whether two of them side by side become one symbol.
    """

    pairs: tuple[tuple[str, str], ...] = field(repr=False)
    known: str = field(repr=False)
    unknown_join: bool
    unknown_fuse: bool


def joins_of(model: tokenizers.models.BPE, digest: str, cache: DiskCache) -> Joins | str:
    """What a model can join; or why it cannot be said.

    Args:
        model: The reference's model.
        digest: The identity of its vocabulary and options.
        cache: Keeps the answer, which takes a second to find for a large vocabulary.
    """
    answer = cache.get(["joins", VERSION, tokenizers.__version__, digest], lambda: _joins(model))
    if isinstance(answer, str):
        return answer
    return Joins(tuple(map(tuple, answer["pairs"])), answer["known"], answer["unknown_join"], answer["unknown_fuse"])


def _joins(model: tokenizers.models.BPE) -> dict[str, Any] | str:
    state = json.loads(model.__getstate__())
    vocabulary: dict[str, int] = state["vocab"]
    if any(state[affix] for affix in AFFIXES):
        return "it marks tokens inside or at the end of a word"
    if state["ignore_merges"]:
        # A piece that is a token is that token, also when its merges would make others of it.
        return "with ignore_merges a piece may be encoded otherwise than as a part of a longer one"
    # The library writes tokens by id: of two that have the same one, it leaves one out, and writes its merges wrong.
    if len(vocabulary) < tokenizers.Tokenizer(model).get_vocab_size(with_added_tokens=False):
        return "two of its tokens have one id"
    merges = [tuple(merge.split(" ")) if isinstance(merge, str) else tuple(merge) for merge in state["merges"]]
    if not all(left and right for left, right in merges):
        return "one of its tokens is empty"
    bytes_ = [f"<0x{byte:02X}>" for byte in range(256)]
    unknown = [state["unk_token"]] if state["unk_token"] is not None else []
    if state["byte_fallback"]:
        if missing := [token for token in bytes_ if token not in vocabulary]:
            return f"byte_fallback lacks the token {missing[0]}"
        unknown += bytes_
    stand_ins = tuple(unknown)
    pairs = {(left[-1], right[0]) for left, right in merges}
    if len(pairs) > MAX_JOINS:
        return f"it joins {len(pairs):,} pairs of characters, which are more than {MAX_JOINS:,}"
    return {
        "pairs": sorted(pairs),
        "known": "".join(sorted(token for token in vocabulary if len(token) == 1)),
        # Without a token for them, what is beside them comes together. And a merge may be of what stands for them.
        "unknown_join": not unknown
        or any(left.endswith(stand_ins) or right.startswith(stand_ins) for left, right in merges),
        "unknown_fuse": bool(state["fuse_unk"]) and not state["byte_fallback"],
    }


def parted_by_model(joins: Joins) -> Relation:
    """The pairs of neighbouring characters that the model never joins.

    Example:
        >>> joins = Joins((("a", "b"),), "ab", unknown_join=False, unknown_fuse=True)
        >>> relation = parted_by_model(joins)
        >>> a, b, unknown = relation.table[[ord("a"), ord("b"), ord("?")]]
        >>> relation.pairs[[a, b, unknown, a], [b, a, unknown, unknown]].tolist()
        [False, True, False, True]
    """
    behind: defaultdict[str, set[str]] = defaultdict(set)
    before: defaultdict[str, set[str]] = defaultdict(set)
    for left, right in joins.pairs:
        behind[left].add(right)
        before[right].add(left)
    kinds: defaultdict[tuple[frozenset[str], frozenset[str]], list[str]] = defaultdict(list)
    for character in sorted(behind.keys() | before.keys()):
        kinds[frozenset(behind.get(character, ())), frozenset(before.get(character, ()))].append(character)
    # Those that are joined with least are mostly of scripts with many characters: together, they are one kind.
    ranked = sorted(kinds, key=lambda kind: len(kind[0]) + len(kind[1]), reverse=True)
    members = [kinds[kind] for kind in ranked[:MAX_CLASSES]]
    if rest := [character for kind in ranked[MAX_CLASSES:] for character in kinds[kind]]:
        members.append(rest)
    number = {character: i for i, some in enumerate(members) for character in some}
    joined = np.zeros((len(members) + 1, len(members) + 1), bool)
    for left, right in joins.pairs:
        joined[number[left], number[right]] = True
    # The last kind is that of characters which are joined with none.
    table = np.full(CODE_POINTS, len(members), np.int32)
    table[[ord(character) for character in number]] = list(number.values())
    relation = Relation(table, ~joined)

    known = np.zeros(CODE_POINTS, bool)
    known[[ord(character) for character in joins.known]] = True
    relation, inside = relation.refined(partition([boundaries(known)]))
    lost = ~inside[:, 0]
    if joins.unknown_join:
        relation = relation.without(lost[:, None] | lost)
    elif joins.unknown_fuse:
        relation = relation.without(lost[:, None] & lost)
    return relation
