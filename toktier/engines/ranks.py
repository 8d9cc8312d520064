"""Byte-level BPE as tiktoken writes it: the bytes of each token, and one rank that orders the merges.

Sources: R. Sennrich, B. Haddow and A. Birch, "Neural machine translation of rare words with subword units" (2016), for
byte-pair encoding; A. Radford and others, "Language models are unsupervised multitask learners" (2019), for bytes in
the place of characters. What follows is proved here.

Hugging Face merges the *pairs* of a list; tiktoken merges whatever two neighbours make up a *token*, lowest rank first.
The two agree when every token is reached by its own pair. Let ``t`` be a token, and look at a moment at which two
neighbours ``a b`` with ``ab = t`` stand in some text. No merge has crossed the ends of that ``t`` so far, so all merges
inside it are those that its characters by themselves would have undergone. So ``a b`` is the last state but one of
encoding ``t`` alone, there is only one such pair, and the list has it if, and only if, the list encodes ``t`` as ``t``.
A token that the list does not reach is no result of any merge, and is dropped; unless the definition
says ``ignore_merges``: then a piece that is a token is that token, which is what tiktoken does too, and it is kept with
the highest ranks, provided that no two tokens make it up in the end.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from itertools import pairwise
from typing import Any

import numpy as np
import tokenizers
from attrs import field, frozen

from toktier.engines.base import Ids, Inapplicable
from toktier.families.bytelevel import byte_alphabet
from toktier.families.merging import AFFIXES
from toktier.families.probing import DiskCache

VERSION = 1
"""Part of the key under which it is kept which tokens no merge reaches: raised when that is found in another way."""


@frozen(eq=False)
class Ranks:
    """The vocabulary of a byte-level BPE.

    Attributes:
        ranks: The rank of each token, by its bytes. Single bytes come first, then the results of merges in order.
        ids: The id of each rank, uint32, shape (ranks,).
    """

    ranks: dict[bytes, int] = field(repr=lambda ranks: f"<{len(ranks)} ranks>")
    ids: Ids = field(repr=False)


def ranks_of(reference: tokenizers.Tokenizer, digest: str, cache: DiskCache) -> Ranks:
    """The ranks of a reference tokenizer's model.

    Args:
        reference: The library's tokenizer; its model sees bytes.
        digest: The family's identity.
        cache: Keeps which tokens no merge reaches, which takes a second to find out.

    Raises:
        Inapplicable: The model is none that ranks describe.
    """
    state = json.loads(reference.model.__getstate__())
    if any(state.get(affix) for affix in AFFIXES):
        raise Inapplicable("the model marks tokens inside or at the end of a word")
    vocabulary: dict[str, int] = state["vocab"]
    alphabet = byte_alphabet()
    if missing := alphabet.keys() - vocabulary.keys():
        raise Inapplicable(f"byte 0x{alphabet[min(missing)]:02X} is no token")
    merges = merges_of(state)
    results = ["".join(merge) for merge in merges]
    merged = dict.fromkeys(results)
    if len(merged) != sum(a != b for a, b in pairwise(["", *results])):
        raise Inapplicable("merges that make the same token lie apart")
    missed = unreached(vocabulary, merges, digest, cache)
    order = [*sorted(alphabet, key=alphabet.__getitem__), *(token for token in merged if token not in missed)]
    if state["ignore_merges"]:
        kept = [token for token in missed if alphabet.keys() >= set(token)]
        for token in kept:
            if missed[token] == 2:
                raise Inapplicable(f"token {token!r} is made up of two tokens, but no merge makes it")
        order += kept
    ranks = {bytes(alphabet[character] for character in token): rank for rank, token in enumerate(order)}
    return Ranks(ranks, np.array([vocabulary[token] for token in order], np.uint32))


def merges_of(state: Mapping[str, Any]) -> list[tuple[str, str]]:
    """The merges of a model in their order, whichever way the library writes them.

    Args:
        state: The model as the library writes it.

    Example:
        >>> merges_of({"merges": ["a b", ["ab", " "]]})
        [('a', 'b'), ('ab', ' ')]
    """
    pairs = (merge.split(" ") if isinstance(merge, str) else merge for merge in state["merges"])
    return [(left, right) for left, right in pairs]


def unreached(
    vocabulary: dict[str, int], merges: list[tuple[str, str]], digest: str, cache: DiskCache
) -> dict[str, int]:
    """The tokens that the merges do not make of their own characters, with how many they make instead.

    Args:
        vocabulary: The ids of all tokens.
        merges: The pairs in their order.
        digest: The family's identity.
        cache: Keeps the answer.
    """

    def found() -> dict[str, int]:
        model = tokenizers.models.BPE(vocab=vocabulary, merges=merges)
        tokens = list(vocabulary)
        encodings = tokenizers.Tokenizer(model).encode_batch_fast(tokens)
        return {
            token: len(encoding.ids)
            for token, encoding in zip(tokens, encodings, strict=True)
            if encoding.ids != [vocabulary[token]]
        }

    answer: dict[str, int] = cache.get(["unreached", VERSION, tokenizers.__version__, digest], found)
    return answer
