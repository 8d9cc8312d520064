"""The byte-level alphabet: a character for each byte, so that a model of characters sees the bytes of UTF-8."""

from __future__ import annotations

import functools
import re

import numpy as np
import numpy.typing as npt

from toktier.families.probing import CODE_POINTS

BYTE = re.compile("<0x([0-9A-F]{2})>")
"""How a vocabulary of pieces writes a single byte, which stands for a part of a character that it does not have."""


def byte_alphabet() -> dict[str, int]:
    """The byte that each character of the byte-level alphabet stands for.

    Source: ``bytes_to_unicode`` of GPT-2. Printable characters of Latin-1 stand for themselves, and the other bytes, in
    order, are U+0100 and following.

    Example:
        >>> byte_alphabet()["A"], byte_alphabet()["Ġ"]
        (65, 32)
    """
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    return {chr(byte): byte for byte in printable} | {chr(256 + i): byte for i, byte in enumerate(others)}


@functools.cache
def first_and_last() -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """What each code point begins and ends with in that alphabet, as code points; both of shape (0x110000,).

    Example:
        >>> first, last = first_and_last()
        >>> chr(first[ord("é")]), chr(last[ord("é")])
        ('Ã', '©')
    """
    points = np.arange(CODE_POINTS)
    first = np.select(
        [points < 0x80, points < 0x800, points < 0x10000],
        [points, 0xC0 | points >> 6, 0xE0 | points >> 12],
        0xF0 | points >> 18,
    )
    last = np.where(points < 0x80, points, 0x80 | points & 0x3F)
    character = np.zeros(256, np.int64)
    for written, byte in byte_alphabet().items():
        character[byte] = ord(written)
    return character[first], character[last]
