"""The reference library's own tokenizer for the bytes of a ``tokenizer.json``, or an error that names the field."""

from __future__ import annotations

import itertools
import json
import re
from typing import Any

import tokenizers

from toktier.errors import InvalidDefinition

PREFIX = "continuing_subword_prefix"

_PREFIXED = re.compile(
    # However its letters are escaped; none of them has another escape than this.
    b'"' + b"".join(b"(?:%c|\\\\u%04x)" % (letter, letter) for letter in PREFIX.encode()) + b'"'
    # Null and nothing are what nearly all files say, and are not worth reading them twice.
    rb'\s*:\s*(?!\s|null|"")',
    re.IGNORECASE,
)


def load_reference(source: bytes, where: str) -> tokenizers.Tokenizer:
    """The reference library's own tokenizer for the bytes of a ``tokenizer.json``.

    Args:
        source: The file's bytes.
        where: Its name, for messages.

    Raises:
        InvalidDefinition: The bytes are not a tokenizer file, or the library refuses it; the message names the field.
    """
    if _PREFIXED.search(source):
        _refuse_divided_characters(source, where)
    made = _attempt(source)
    if isinstance(made, str):
        raise InvalidDefinition(f"{where}: {_diagnosis(source, made)}")
    return made


def _refuse_divided_characters(source: bytes, where: str) -> None:
    """Makes sure that no merge has a right side that begins, behind the model's prefix, in the middle of a character.

    The library takes as many bytes off as the prefix has, and ends the process when it cannot print what is left.

    Raises:
        InvalidDefinition: There is such a merge, or the file is not JSON.
    """

    def checked(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        # Of what is written twice, either may be the one that the library takes.
        prefixes = [value for name, value in pairs if name == PREFIX and isinstance(value, str)]
        merges = [value for name, value in pairs if name == "merges" and isinstance(value, list)]
        fields = dict(pairs)
        if fields.get("type", "BPE") == "BPE":
            for prefix, right in itertools.product(prefixes, itertools.chain(*map(_right_sides, merges))):
                if _divides(right, len(_utf8(prefix))):
                    raise InvalidDefinition(
                        f"{where}: field 'model': {PREFIX} {prefix!r} has as many bytes as there are before the middle"
                        f" of a character of {right!r}, which is merged"
                    )
        return fields

    try:
        json.loads(source.decode("utf-8"), object_pairs_hook=checked)
    except InvalidDefinition:
        raise
    except (ValueError, RecursionError) as broken:
        raise InvalidDefinition(f"{where}: not JSON: {broken}") from None


def _right_sides(merges: list[Any]) -> list[str]:
    """The right sides of those merges that have one; the library refuses the others."""
    pairs = [merge.split(" ") if isinstance(merge, str) else merge for merge in merges]
    return [pair[1] for pair in pairs if isinstance(pair, list) and len(pair) == 2 and isinstance(pair[1], str)]


def _divides(text: str, size: int) -> bool:
    """Whether the first bytes of a text, so many, end inside a character."""
    following = _utf8(text)[size : size + 1]
    return bool(following) and following[0] & 0xC0 == 0x80


def _utf8(text: str) -> bytes:
    """A text of a file, which may have lone surrogates: the library refuses those after this."""
    return text.encode("utf-8", "surrogatepass")


def _attempt(source: bytes) -> tokenizers.Tokenizer | str:
    """The library's tokenizer, or why it makes none."""
    try:
        return tokenizers.Tokenizer.from_buffer(source)
    except BaseException as error:  # a panic of the library is no Exception
        if isinstance(error, (KeyboardInterrupt, SystemExit, MemoryError)):
            raise
        return str(error) or type(error).__name__


def _diagnosis(source: bytes, refusal: str) -> str:
    """Which field the library does not accept: the first that it refuses beside a model of nothing."""
    if not source.strip():
        return "not JSON: the file is empty"
    try:
        definition = json.loads(source.decode("utf-8"))
    except (ValueError, RecursionError) as broken:
        return f"not JSON: {broken}"
    if not isinstance(definition, dict) or not isinstance(definition.get("model"), dict):
        return "field 'model': missing; is this a tokenizer.json?"
    # With a model of nothing in the place of a large one, trying is cheap.
    model = {"model": {"type": "BPE", "vocab": {}, "merges": []}}
    for name, value in definition.items():
        if name != "model":
            made = _attempt(json.dumps(model | {name: value}).encode())
            if isinstance(made, str):
                return f"field {name!r}: {made}"
    return f"field 'model': {refusal}"
