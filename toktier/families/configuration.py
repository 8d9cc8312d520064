"""Added tokens that a ``tokenizer_config.json`` declares beyond those of the ``tokenizer.json`` beside it."""

from __future__ import annotations

import json
from collections.abc import Collection
from typing import Any

from attrs import frozen
from tokenizers import AddedToken

from toktier.errors import InvalidDefinition
from toktier.families.definition import FLAGS

NAMED = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token")
LISTED = ("additional_special_tokens", "extra_special_tokens")


def added_tokens(config: bytes, where: str, known: Collection[str]) -> list[AddedToken]:
    """The tokens to add, in the order and with the flags that the ``transformers`` loader gives them.

    That is: first the entries of ``added_tokens_decoder`` by id, then the named special tokens, then the listed ones.
    The ids in the file play no part, since the library numbers what it adds.

    Args:
        config: The bytes of the ``tokenizer_config.json``.
        where: Its name, for messages.
        known: The added tokens that the tokenizer has already. They stay as they are: other flags in the
            configuration do not count.

    Raises:
        InvalidDefinition: The file or one of the tokens in it is malformed.

    Example:
        >>> config = b'{"added_tokens_decoder": {"9": {"content": "<new>", "special": true}}, "eos_token": "<old>"}'
        >>> [token.content for token in added_tokens(config, "tokenizer_config.json", {"<old>"})]
        ['<new>']
    """
    try:
        declared = json.loads(config)
    except (ValueError, RecursionError) as error:
        raise InvalidDefinition(f"{where}: not JSON: {error}") from None
    if not isinstance(declared, dict):
        raise InvalidDefinition(f"{where}: not a JSON object")
    reader = _Reader(where)
    by_id = reader.numbered(declared.get("added_tokens_decoder") or {})
    special = [reader.token(key, declared[key], special=True) for key in NAMED if declared.get(key)]
    special += [token for key in LISTED for token in reader.listed(key, declared.get(key) or [])]
    contents = {token.content for token in special}
    result: dict[str, AddedToken] = {}
    for token in [*by_id, *special]:
        if token.content not in known:
            token.special = token.special or token.content in contents
            result.setdefault(token.content, token)
    return list(result.values())


def special_tokens_are_text(config: bytes) -> bool:
    """Whether the configuration says that special tokens in a text are to be encoded like any other text.

    Example:
        >>> special_tokens_are_text(b'{"split_special_tokens": true}'), special_tokens_are_text(b"{}")
        (True, False)
    """
    return json.loads(config).get("split_special_tokens") is True


@frozen
class _Reader:
    """Makes tokens of what a file declares, and names the key where that is malformed."""

    where: str

    def numbered(self, decoder: Any) -> list[AddedToken]:
        key = "added_tokens_decoder"
        if not isinstance(decoder, dict) or not all(id.isdecimal() for id in decoder):
            raise self.malformed(key, "not an object whose keys are ids")
        return [self.token(f"{key}[{id}]", decoder[id]) for id in sorted(decoder, key=int)]

    def listed(self, key: str, tokens: Any) -> list[AddedToken]:
        if not isinstance(tokens, (list, dict)):
            raise self.malformed(key, "not a list of tokens")
        return [
            self.token(key, token, special=True) for token in (tokens.values() if isinstance(tokens, dict) else tokens)
        ]

    def token(self, key: str, token: Any, **flags: bool) -> AddedToken:
        if isinstance(token, str):
            return AddedToken(token, **flags)
        if not isinstance(token, dict) or not isinstance(token.get("content"), str):
            raise self.malformed(key, "not a token: neither a string nor an object with a content")
        given = {flag: token[flag] for flag in FLAGS if flag in token}
        if not all(isinstance(value, bool) for value in given.values()):
            raise self.malformed(key, "a flag is neither true nor false")
        return AddedToken(token["content"], **(given | flags))

    def malformed(self, key: str, why: str) -> InvalidDefinition:
        return InvalidDefinition(f"{self.where}: field {key!r}: {why}")
