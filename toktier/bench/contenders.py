"""The libraries that encode everything again: each the way it is fastest, without anything of toktier around it."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import TypeAlias

import numpy as np
import tokenizers
from attrs import frozen

from toktier.engines.base import Ids, contained
from toktier.families.bytelevel import byte_alphabet

Encode: TypeAlias = "Callable[[str], Sequence[int] | Ids]"

REMEMBERING = {"gigatoken", "fastokens", "memo"}
"""Those that are faster on a text the second time. They are given each text once right before they are timed."""

INSTALL = "not installed: pip install {}"


@frozen
class Contender:
    """A library that has loaded a tokenizer.

    Attributes:
        name: The package.
        encode: Its fastest call that gives the ids of one text, added tokens recognised and nothing added.
    """

    name: str
    encode: Encode


def contenders(reference: tokenizers.Tokenizer) -> tuple[list[Contender], dict[str, str]]:
    """The libraries that can load a tokenizer, and why the others cannot.

    Args:
        reference: The tokenizer. It is left alone: each library gets a copy of its definition.
    """
    found, left_out = [], {}
    for name in LOADERS:
        loaded = _load(name, reference)
        if isinstance(loaded, str):
            left_out[name] = loaded
        else:
            found.append(Contender(name, loaded))
    return found, left_out


def _load(name: str, reference: tokenizers.Tokenizer) -> Encode | str:
    """A library's call, or why there is none."""
    try:
        encode = LOADERS[name](reference)
        encode("Hello")
    except ModuleNotFoundError:
        return INSTALL.format(name)
    except BaseException as error:
        if not contained(error):
            raise
        return f"cannot load the tokenizer: {error}"
    return encode


def copy_of(reference: tokenizers.Tokenizer) -> tokenizers.Tokenizer:
    """A tokenizer of its own, so that two who use it do not fill one another's caches."""
    copy = tokenizers.Tokenizer.from_str(reference.to_str())
    copy.encode_special_tokens = reference.encode_special_tokens  # is not part of the definition
    return copy


def _tokenizers(reference: tokenizers.Tokenizer) -> Encode:
    tokenizer = copy_of(reference)

    def encode(text: str) -> list[int]:
        return tokenizer.encode_batch_fast([text], add_special_tokens=False)[0].ids

    return encode


def _tiktoken(reference: tokenizers.Tokenizer) -> Encode:
    import tiktoken

    # As it is usually done: the pattern as it stands, ids for ranks, no normalizer.
    state = json.loads(reference.to_str())
    pattern, alphabet = _pattern(state), byte_alphabet()
    added = {token["content"]: token["id"] for token in state["added_tokens"]}
    tokens = {token: id for token, id in state["model"]["vocab"].items() if token not in added}
    ranks = {bytes(alphabet[character] for character in token): id for token, id in tokens.items()}
    encoding = tiktoken.Encoding("contender", pat_str=pattern, mergeable_ranks=ranks, special_tokens=added)

    def encode(text: str) -> Ids:
        return encoding.encode_to_numpy(text, allowed_special="all")

    return encode


def _pattern(state: dict[str, object]) -> str:
    pre_tokenizer, model = state["pre_tokenizer"], state["model"]
    match pre_tokenizer, model:
        case (
            {
                "pretokenizers": [
                    {"type": "Split", "pattern": {"Regex": str(pattern)}, "behavior": "Isolated", "invert": False},
                    {"type": "ByteLevel", "add_prefix_space": False, "use_regex": False},
                ]
            },
            {"type": "BPE"},
        ):
            return pattern
    raise ValueError("it is not one split pattern in front of a byte-level BPE")


def _gigatoken(reference: tokenizers.Tokenizer) -> Encode:
    import gigatoken

    encode: Encode = gigatoken.Tokenizer.from_json(reference.to_str()).backend.encode
    return encode


def _fastokens(reference: tokenizers.Tokenizer) -> Encode:
    import fastokens

    tokenizer = fastokens.Tokenizer.from_json_str(reference.to_str())

    def encode(text: str) -> Ids:
        return np.frombuffer(tokenizer.encode_batch_flat([text], add_special_tokens=False)[0], np.uint32)

    return encode


LOADERS: dict[str, Callable[[tokenizers.Tokenizer], Encode]] = {
    "tokenizers": _tokenizers,
    "tiktoken": _tiktoken,
    "gigatoken": _gigatoken,
    "fastokens": _fastokens,
}
"""How each library loads a ``tokenizer.json``."""
