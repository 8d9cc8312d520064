"""Rank files: a token in base64, a space and its rank on each line, as tiktoken, Llama 3, Qwen and Kimi have them."""

from __future__ import annotations

import base64
import binascii
import json
import pathlib
import re

from toktier.errors import InvalidDefinition

MAX_DIGITS = 10
"""Digits of a rank: ids are less than 2 to the power of 32."""

_LINE = re.compile(rb"[A-Za-z0-9+/]+={0,2}[ \t]+[0-9]+")


def is_rank_file(data: bytes) -> bool:
    r"""Whether the first line is that of a rank file.

    Example:
        >>> is_rank_file(b"IQ== 0\nIg== 1\n"), is_rank_file(b"\n\x0e\n\x05<unk>")
        (True, False)
    """
    return _LINE.fullmatch(data[:4096].lstrip().split(b"\n", 1)[0].strip()) is not None


def read_ranks(data: bytes, where: str) -> dict[bytes, int]:
    r"""The rank of each token.

    Args:
        data: The bytes of the file.
        where: Its name, for messages.

    Raises:
        InvalidDefinition: A line is malformed, or says something for the second time; the message names both lines.

    Example:
        >>> read_ranks(b"IQ== 0\nIg== 1\n", "x.tiktoken")
        {b'!': 0, b'"': 1}
        >>> read_ranks(b"IQ== 0\nIQ 1\n", "x.tiktoken")
        Traceback (most recent call last):
            ...
        toktier.errors.InvalidDefinition: x.tiktoken: line 2: b'IQ' is not base64: Incorrect padding
    """
    ranks: dict[bytes, int] = {}
    lines: dict[int, int] = {}
    for number, line in enumerate(data.splitlines(), 1):
        parts = line.split()
        if not parts:
            continue
        if len(parts) != 2 or not parts[1].isdigit() or len(parts[1]) > MAX_DIGITS:
            raise InvalidDefinition(f"{where}: line {number}: {line[:60]!r} is not a token in base64 and its rank")
        try:
            # Whisper's file has a place of no bytes, as "=".
            token = base64.b64decode(parts[0].rstrip(b"=") and parts[0], validate=True)
        except binascii.Error as error:
            raise InvalidDefinition(f"{where}: line {number}: {parts[0][:60]!r} is not base64: {error}") from None
        rank = int(parts[1])
        if token in ranks:
            first = lines[ranks[token]]
            raise InvalidDefinition(f"{where}: line {number}: token {token!r} has a rank already, in line {first}")
        if rank in lines:
            raise InvalidDefinition(f"{where}: line {number}: rank {rank} is taken already, in line {lines[rank]}")
        ranks[token] = rank
        lines[rank] = number
    return ranks


def special_tokens_beside(configuration: pathlib.Path) -> dict[str, int]:
    """The special tokens that a ``tokenizer_config.json`` beside a rank file numbers in its ``added_tokens_decoder``.

    Raises:
        InvalidDefinition: The file is malformed; the message names the field.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     file = pathlib.Path(folder, "tokenizer_config.json")
        ...     _ = file.write_text('{"added_tokens_decoder": {"7": {"content": "<s>"}}}')
        ...     special_tokens_beside(file)
        {'<s>': 7}
    """
    try:
        declared = json.loads(configuration.read_bytes())
        decoder = declared.get("added_tokens_decoder") or {}
        return {entry["content"]: int(id) for id, entry in decoder.items()}
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise InvalidDefinition(f"{configuration}: field 'added_tokens_decoder': malformed ({error!r})") from None
