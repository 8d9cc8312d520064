"""Added tokens that a ``tokenizer_config.json`` declares beyond those of the ``tokenizer.json`` beside it."""

from __future__ import annotations

import json
from collections.abc import Collection
from typing import Any

from tokenizers import AddedToken

from toktier.errors import InvalidDefinition

NAMED = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token")
LISTED = ("additional_special_tokens", "extra_special_tokens")
FLAGS = ("lstrip", "rstrip", "single_word", "normalized", "special")


def added_tokens(config: bytes, where: str, known: Collection[str]) -> list[AddedToken]:
    """The tokens to add, in the order and with the flags that the ``transformers`` loader gives them.

    That is: first the entries of ``added_tokens_decoder`` by id, then the named special tokens, then the listed ones.
    The ids in the file play no part, since the library numbers what it adds.

    Args:
        config: The bytes of the ``tokenizer_config.json``.
        where: Its name, for messages.
        known: The added tokens that the tokenizer has already; they stay as they are.

    Raises:
        InvalidDefinition: The file or one of the tokens in it is malformed.

    Example:
        >>> config = b'{"added_tokens_decoder": {"9": {"content": "<new>", "special": true}}, "eos_token": "<old>"}'
        >>> [token.content for token in added_tokens(config, "tokenizer_config.json", {"<old>"})]
        ['<new>']
    """
    try:
        declared = json.loads(config)
    except ValueError as error:
        raise InvalidDefinition(f"{where}: not JSON: {error}") from None
    if not isinstance(declared, dict):
        raise InvalidDefinition(f"{where}: not a JSON object")
    decoder = declared.get("added_tokens_decoder") or {}
    named = [declared[key] for key in NAMED if declared.get(key)]
    listed = [token for key in LISTED for token in _values(declared.get(key) or ())]
    try:
        by_id = [_token(decoder[id], {}) for id in sorted(decoder, key=int)]
        special = [_token(token, {"special": True}) for token in [*named, *listed]]
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise InvalidDefinition(f"{where}: an added token is malformed: {error!r}") from None
    contents = {token.content for token in special}
    result: dict[str, AddedToken] = {}
    for token in [*by_id, *special]:
        if token.content not in known:
            token.special = token.special or token.content in contents
            result.setdefault(token.content, token)
    return list(result.values())


def _values(tokens: Any) -> list[Any]:
    return list(tokens.values()) if isinstance(tokens, dict) else list(tokens)


def _token(token: Any, defaults: dict[str, bool]) -> AddedToken:
    if isinstance(token, str):
        return AddedToken(token, **defaults)
    flags = {flag: bool(token[flag]) for flag in FLAGS if flag in token}
    return AddedToken(token["content"], **(flags | defaults))
