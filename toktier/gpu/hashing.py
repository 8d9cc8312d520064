"""Hash tables that the kernels look things up in: open addressing, linear probing, at most half full.

A key's home is the upper bits of its product with an odd constant. The search for it goes from there to the next slot
and the next, from the last to the first, and ends where the key is or at an empty slot.

Sources: D. E. Knuth, "The art of computer programming", volume 3, section 6.4, for linear probing and multiplicative
hashing; G. Fowler, L. C. Noll and K.-P. Vo, FNV-1a, for the hashes of words.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import chain
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

Table: TypeAlias = npt.NDArray[np.uint32]
"""The slots of a table, uint32, shape (slots, words of a slot)."""

NONE = 0xFFFFFFFF
"""What is no id, no code point and no symbol, and begins an empty slot."""

MULTIPLIER = 0x9E3779B97F4A7C15
"""The odd constant of multiplicative hashing: 2^64 over the golden ratio."""

PRIME = 0x100000001B3
"""The prime of FNV-1a with 64 bits."""

BEGIN = 0xCBF29CE484222325
"""Where the hash of a word at the beginning of a piece begins."""

CONTINUING = 0x84222325CBF29CE4
"""Where the hash of a word that continues a piece begins."""

CONTINUES = 1 << 31
"""Set in the length of a word that continues a piece."""


def pair_table(left: npt.ArrayLike, right: npt.ArrayLike, a: npt.ArrayLike, b: npt.ArrayLike) -> Table:
    """The table of pairs with two values each, uint32, shape (slots, 4).

    Args:
        left: The first of each pair; never ``NONE``.
        right: The second of each pair. No pair is there twice.
        a: The first value of each.
        b: The second value of each.

    Example:
        >>> table = pair_table([1, 2], [7, 7], [10, 20], [30, 40])
        >>> table.shape, sorted(table[table[:, 0] != NONE].tolist())
        ((4, 4), [[1, 7, 10, 30], [2, 7, 20, 40]])
    """
    rows = np.stack([np.asarray(column, np.uint32) for column in (left, right, a, b)], axis=1)
    return _placed(rows[:, 0].astype(np.uint64) << np.uint64(32) | rows[:, 1], rows, NONE)


def code_point_table(points: npt.ArrayLike, ids: npt.ArrayLike) -> Table:
    """The table of code points with an id each, uint32, shape (slots, 2).

    Args:
        points: The code points, none of them twice.
        ids: The id of each.
    """
    rows = np.stack([np.asarray(column, np.uint32) for column in (points, ids)], axis=1)
    return _placed(rows[:, 0].astype(np.uint64), rows, NONE)


def word_table(words: Mapping[bytes, int], continuing: Mapping[bytes, int]) -> tuple[Table, npt.NDArray[np.uint8]]:
    """The table of words with an id each, uint32, shape (slots, 4), and the pool of their bytes.

    Args:
        words: The ids of words at the beginning of a piece, by their bytes. None is empty.
        continuing: The same for words that continue a piece.

    Example:
        >>> table, pool = word_table({b"ab": 1}, {b"b": 2})
        >>> pool.tobytes(), sorted(table[table[:, 3] != 0, 1:].tolist())
        (b'abb', [[1, 0, 2], [2, 2, 2147483649]])
    """
    count = len(words) + len(continuing)
    lengths = np.fromiter(map(len, chain(words, continuing)), np.int64, count)
    pool = np.frombuffer(b"".join(chain(words, continuing)), np.uint8)
    offsets = np.cumsum(lengths) - lengths
    continues = np.arange(count) >= len(words)
    hashes = _hashes(pool, offsets, lengths, np.where(continues, np.uint64(CONTINUING), np.uint64(BEGIN)))
    rows = np.stack(
        [
            (hashes & np.uint64(NONE)).astype(np.uint32),
            _uint32(chain(words.values(), continuing.values()), count),
            offsets.astype(np.uint32),
            lengths.astype(np.uint32) | continues * np.uint32(CONTINUES),
        ],
        axis=1,
    )
    return _placed(hashes, rows, 0), pool


def _uint32(values: Iterable[int], count: int) -> npt.NDArray[np.uint32]:
    return np.fromiter(values, np.uint32, count)


def _hashes(
    pool: npt.NDArray[np.uint8], offsets: npt.NDArray[Any], lengths: npt.NDArray[Any], seeds: npt.NDArray[np.uint64]
) -> npt.NDArray[np.uint64]:
    """FNV-1a of words, uint64: of all that are long enough at once, byte by byte."""
    order = np.argsort(-lengths, kind="stable")
    hashes, starts, longest_first = seeds[order], offsets[order], lengths[order]
    for i in range(longest_first[0] if len(order) else 0):
        active = int(np.searchsorted(-longest_first, -i))
        hashes[:active] = (hashes[:active] ^ pool[starts[:active] + i]) * np.uint64(PRIME)
    result = np.empty_like(hashes)
    result[order] = hashes
    return result


def _placed(keys: npt.NDArray[np.uint64], rows: Table, empty: int) -> Table:
    """A table with every row at the first slot, from its key's home on, that no other has.

    All rows that have no place yet try the next slot at once. So each passes only slots that are taken, as it would if
    they came one by one.
    """
    bits = max(1, (2 * len(rows) - 1).bit_length())
    owners = np.full(1 << bits, -1, np.int64)
    slots = (keys * np.uint64(MULTIPLIER) >> np.uint64(64 - bits)).astype(np.int64)
    waiting = np.arange(len(rows))
    while len(waiting):
        free = owners[slots] < 0
        owners[slots[free]] = waiting[free]
        placed = owners[slots] == waiting
        waiting, slots = waiting[~placed], (slots[~placed] + 1) & (len(owners) - 1)
    table = np.full((len(owners), rows.shape[1]), empty, np.uint32)
    table[owners >= 0] = rows[owners[owners >= 0]]
    return table
