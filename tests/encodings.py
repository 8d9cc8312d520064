"""Encodings of tiktoken for tests, with the vocabulary of the bundled tokenizer, and what its patterns match."""

from __future__ import annotations

import base64
import functools
import json
from collections.abc import Mapping
from itertools import pairwise
from typing import Any

import tiktoken

from toktier.families import mini
from toktier.families.bytelevel import byte_alphabet
from toktier.families.family import Family

BYTES = {bytes((value,)): value for value in range(256)}

SPECIAL = {"<|endoftext|>": 5000, "<|im_start|>": 5001, "<|im_end|>": 5003}


def ranks() -> dict[bytes, int]:
    """The tokens of ``toktier-mini``, with its ids for ranks: a dictionary of the caller's own."""
    return dict(_ranks())


@functools.cache
def _ranks() -> dict[bytes, int]:
    alphabet = byte_alphabet()
    vocabulary = json.loads(mini.path().read_bytes())["model"]["vocab"]
    return {bytes(map(alphabet.__getitem__, token)): id for token, id in vocabulary.items()}


def encoding(pattern: str, special: Mapping[str, int] = SPECIAL) -> tiktoken.Encoding:
    """A real vocabulary behind a pattern."""
    return tiktoken.Encoding("test", pat_str=pattern, mergeable_ranks=ranks(), special_tokens=dict(special))


def ids(encoding: tiktoken.Encoding, text: str) -> list[int]:
    """What everything here is compared with."""
    return encoding.encode(text, allowed_special="all")


def cut_ids(encoding: tiktoken.Encoding, family: Family, text: str) -> list[int]:
    """The ids of the parts of a text, cut at all its certified cuts."""
    edges = [0, *family.cuts(text).tolist(), len(text)]
    return [id for start, stop in pairwise(edges) for id in ids(encoding, text[start:stop])]


def matches(pattern: str, text: str) -> list[str]:
    """The matches of a pattern, by the library: with every part of a text for a token, each piece is one id."""
    parts = {text[i:j].encode() for i in range(len(text)) for j in range(i + 1, len(text) + 1)}
    tokens = [*BYTES, *sorted(parts - BYTES.keys())]
    ids = {token: id for id, token in enumerate(tokens)}
    revealing = tiktoken.Encoding("revealing", pat_str=pattern, mergeable_ranks=ids, special_tokens={})
    return [tokens[id].decode() for id in revealing.encode_ordinary(text)]


def rank_file(ranks: Mapping[bytes, int]) -> bytes:
    """Ranks as a file has them."""
    return b"".join(base64.b64encode(token) + b" %d\n" % rank for token, rank in ranks.items())


def tekken(pattern: str = r"\w+|\W", special: int = 30, **changed: Any) -> dict[str, Any]:
    """A small ``tekken.json``, with some fields changed."""
    tokens = [*BYTES, *sorted(token for token in ranks() if len(token) > 1)]
    vocabulary = [
        {"rank": rank, "token_bytes": base64.b64encode(token).decode(), "token_str": None}
        for rank, token in enumerate(tokens)
    ]
    config = {
        "pattern": pattern,
        "num_vocab_tokens": len(tokens),
        "default_num_special_tokens": special,
        "version": "v3",
    }
    return {"config": config | {"default_vocab_size": special + 2_000}, "vocab": vocabulary} | changed
