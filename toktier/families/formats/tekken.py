"""``tekken.json``, the file of Mistral: ranks behind a thousand special tokens.

The ids of special tokens come first; the id of any other token is its rank and their number. Of the vocabulary only as
much counts as the file says that the model has. What is not named among the special tokens has a name made of its id.
Source: ``mistral_common`` 1.13, ``tokens/tokenizers/tekken.py``. It never looks for special tokens in a text, since it
puts them between texts itself; here they are found, as with every other tokenizer.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
from typing import TYPE_CHECKING, Any

from toktier.errors import InvalidDefinition

if TYPE_CHECKING:
    from toktier.families.formats.ranked import RankedBPE

UNNAMED = (
    *("<unk>", "<s>", "</s>", "[INST]", "[/INST]", "[AVAILABLE_TOOLS]", "[/AVAILABLE_TOOLS]", "[TOOL_RESULTS]"),
    *("[/TOOL_RESULTS]", "[TOOL_CALLS]", "[IMG]", "<pad>", "[IMG_BREAK]", "[IMG_END]", "[PREFIX]", "[MIDDLE]"),
    *("[SUFFIX]", "[SYSTEM_PROMPT]", "[/SYSTEM_PROMPT]", "[TOOL_CONTENT]"),
)
"""The special tokens of files that have no list of them: those up to version 7."""

FILLER = "<SPECIAL_{}>"

_BEGIN = re.compile(rb'\s*\{\s*"config"\s*:\s*\{')


def is_tekken(data: bytes) -> bool:
    """Whether a JSON file begins like a ``tekken.json``, whatever its name is.

    Example:
        >>> is_tekken(b'{"config": {"pattern": ".", "default_num_special_tokens": 1000'), is_tekken(b'{"model": {')
        (True, False)
    """
    return _BEGIN.match(data) is not None and b'"default_num_special_tokens"' in data[: 1 << 16]


def read_tekken(data: bytes, where: str) -> RankedBPE:
    """The ranks, pattern and special tokens of a ``tekken.json``.

    Args:
        data: The bytes of the file.
        where: Its name, for messages.

    Raises:
        InvalidDefinition: The file is malformed; the message names the field.

    Example:
        >>> config = {"pattern": ".", "default_vocab_size": 2, "default_num_special_tokens": 1}
        >>> file = {"config": config, "vocab": [{"rank": 0, "token_bytes": "YQ=="}]}
        >>> file |= {"special_tokens": [{"rank": 0, "token_str": "<s>"}]}
        >>> read_tekken(json.dumps(file).encode(), "tekken.json").encoding.encode("a<s>", allowed_special="all")
        [1, 0]
    """
    from toktier.families.formats.ranked import RankedBPE

    try:
        declared = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise InvalidDefinition(f"{where}: not JSON: {error}") from None
    reader = _Reader(where)
    config = reader.of(declared, "config", dict)
    special = reader.of(config, "default_num_special_tokens", int)
    size = reader.of(config, "default_vocab_size", int) - special
    vocabulary = reader.of(declared, "vocab", list)
    if special < 0 or not 0 < size <= len(vocabulary):
        raise reader.malformed("default_vocab_size", f"leaves {size} of the {len(vocabulary)} tokens in 'vocab'")
    ranks: dict[bytes, int] = {}
    for rank, entry in enumerate(vocabulary[:size]):
        token = reader.token(entry, rank)
        if token in ranks:
            raise reader.malformed(f"vocab[{rank}]", f"token {token!r} is vocab[{ranks[token] - special}] already")
        ranks[token] = rank + special
    names = reader.special_tokens(declared.get("special_tokens"), special)
    return RankedBPE(where, reader.of(config, "pattern", str), ranks, names)


class _Reader:
    """Takes fields apart, and names those that are malformed."""

    def __init__(self, where: str) -> None:
        self._where = where

    def of(self, fields: Any, name: str, kind: type[Any]) -> Any:
        value = fields.get(name) if isinstance(fields, dict) else None
        if not isinstance(value, kind):
            found = "missing" if value is None else f"{type(value).__name__}, not {kind.__name__}"
            raise self.malformed(name, f"{found}; is this a tekken.json?")
        return value

    def token(self, entry: Any, rank: int) -> bytes:
        name = f"vocab[{rank}]"
        if self.of(entry, "rank", int) != rank:
            raise self.malformed(name, f"has the rank {entry['rank']}: the vocabulary must be in order")
        try:
            return base64.b64decode(self.of(entry, "token_bytes", str), validate=True)
        except binascii.Error as error:
            shown = repr(entry["token_bytes"][:60])
            raise self.malformed(f"{name}.token_bytes", f"{shown} is not base64: {error}") from None

    def special_tokens(self, listed: Any, number: int) -> dict[str, int]:
        if listed is None:
            listed = [{"rank": rank, "token_str": name} for rank, name in enumerate(UNNAMED)]
        if not isinstance(listed, list):
            raise self.malformed("special_tokens", "not a list")
        names: dict[str, int] = {}
        for i, entry in enumerate(listed):
            name, rank = self.of(entry, "token_str", str), self.of(entry, "rank", int)
            if name in names or not 0 <= rank < number:
                why = "is listed twice" if name in names else f"is not less than default_num_special_tokens, {number}"
                raise self.malformed(f"special_tokens[{i}]", f"{name!r} with the rank {rank} {why}")
            names[name] = rank
        for rank in range(len(listed), number):
            names.setdefault(FILLER.format(rank), rank)
        return names

    def malformed(self, field: str, why: str) -> InvalidDefinition:
        return InvalidDefinition(f"{self._where}: field {field!r}: {why}")
