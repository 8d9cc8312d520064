"""Added tokens that a ``tokenizer_config.json`` declares beyond those of the ``tokenizer.json`` beside it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from attrs import frozen
from tokenizers import AddedToken

from toktier.errors import InvalidDefinition
from toktier.families.literal import FLAGS

DECODER = "added_tokens_decoder"
NAMED_TOKENS = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token")
LISTED = ("extra_special_tokens", "additional_special_tokens")
"""The new and the old name of the list; the old one counts where the new one is empty."""


def added_tokens(config: bytes, where: str, known: Mapping[str, AddedToken]) -> list[AddedToken]:
    """The tokens to add, in the order and with the flags that the ``transformers`` loader gives them.

    That is: the entries of ``added_tokens_decoder`` by id, new ones and those with other flags than before; then the
    special tokens that have a name, and those that are listed, as far as they are new. The ids in the file play no
    part, since the library numbers what it adds. (Observed with transformers 5.24.)

    Args:
        config: The bytes of the ``tokenizer_config.json``.
        where: Its name, for messages.
        known: The added tokens that the tokenizer has already, by content.

    Raises:
        InvalidDefinition: The file or one of the tokens in it is malformed; the message names the field.

    Example:
        >>> config = b'{"added_tokens_decoder": {"9": {"content": "<new>", "special": true}}, "eos_token": "<old>"}'
        >>> known = {"<old>": AddedToken("<old>", special=True)}
        >>> [token.content for token in added_tokens(config, "tokenizer_config.json", known)]
        ['<new>']
    """
    try:
        declared = json.loads(config)
    except (ValueError, RecursionError) as error:
        raise InvalidDefinition(f"{where}: not JSON: {error}") from None
    if not isinstance(declared, dict):
        raise InvalidDefinition(f"{where}: not a JSON object")
    reader = _Reader(where)
    decoder = declared.get(DECODER)
    entries = list(known.values()) if decoder is None else reader.numbered(decoder)
    # Models may have names of their own, such as image_token. What is no token under such a key is a switch.
    own = {key: value for key, value in declared.items() if key.endswith("_token") and _declares_token(value)}
    listed: Any = next((declared[key] for key in LISTED if declared.get(key)), [])
    if isinstance(listed, dict):
        own, listed = own | listed, []
    order = dict.fromkeys(NAMED_TOKENS) | {key: None for key in own if key not in NAMED_TOKENS}
    named = [reader.token(key, token, special=True) for key in order if (token := own.get(key, declared.get(key)))]
    result = list(entries)
    taken = known.keys() | {token.content for token in entries}
    for token in [*named, *reader.listed(LISTED[0], listed)]:
        if token.content not in taken and token not in result:
            result.append(token)
    contents = {token.content for token in named}
    for token in result:
        token.special = token.special or token.content in contents
    return result


def _declares_token(value: Any) -> bool:
    return isinstance(value, str) or (_is_token(value) and value.get("__type") == "AddedToken")


def _is_token(value: Any) -> bool:
    return isinstance(value, dict) and isinstance(value.get("content"), str)


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
        key = DECODER
        if not isinstance(decoder, dict) or not all(id.isdecimal() for id in decoder):
            raise self.malformed(key, "not an object whose keys are ids")
        return [self.token(f"{key}[{id}]", decoder[id]) for id in sorted(decoder, key=int)]

    def listed(self, key: str, tokens: Any) -> list[AddedToken]:
        if isinstance(tokens, dict):
            return []  # these have names
        if not isinstance(tokens, list):
            raise self.malformed(key, "not a list of tokens")
        # A string is special because it is listed; an object says for itself what it is.
        return [
            self.token(key, token, special=True) if isinstance(token, str) else self.token(key, token)
            for token in tokens
        ]

    def token(self, key: str, token: Any, **flags: bool) -> AddedToken:
        if isinstance(token, str):
            return AddedToken(token, **flags)
        if not _is_token(token):
            raise self.malformed(key, "not a token: neither a string nor an object with a content")
        given = {flag: token[flag] for flag in FLAGS if flag in token}
        if not all(isinstance(value, bool) for value in given.values()):
            raise self.malformed(key, "a flag is neither true nor false")
        return AddedToken(token["content"], **(given | flags))

    def malformed(self, key: str, why: str) -> InvalidDefinition:
        return InvalidDefinition(f"{self.where}: field {key!r}: {why}")
