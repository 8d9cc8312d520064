"""What a device does with a piece, in plain Python: it has the tables of a vocabulary and nothing else."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from attrs import define, field

from toktier.gpu.hashing import NONE, Table
from toktier.gpu.vocabulary import Model, Vocabulary


def probed(table: Table, key: int, column: int, empty: int) -> Iterator[list[int]]:
    """The slots from a key's home to the first that is empty."""
    slot = (key * 0x9E3779B97F4A7C15 & 2**64 - 1) >> (64 - (len(table).bit_length() - 1))
    while (row := table[slot].tolist())[column] != empty:
        yield row
        slot = (slot + 1) % len(table)


def pair(table: Table, left: int, right: int) -> tuple[int, int] | None:
    rows = probed(table, left << 32 | right, 0, NONE)
    return next(((a, b) for *key, a, b in rows if key == [left, right]), None)


def code_point(table: Table, point: int) -> int | None:
    return next((id for key, id in probed(table, point, 0, NONE) if key == point), None)


def word(table: Table, pool: bytes, text: bytes, *, continues: bool = False) -> int | None:
    hash = 0x84222325CBF29CE4 if continues else 0xCBF29CE484222325
    for byte in text:
        hash = (hash ^ byte) * 0x100000001B3 & 2**64 - 1
    for tag, id, offset, length in probed(table, hash, 3, 0):
        size = length & 2**31 - 1
        if (tag, length >> 31) == (hash & 2**32 - 1, continues) and pool[offset : offset + size] == text:
            return id
    return None


@define(eq=False)
class Encoder:
    """Encodes pieces."""

    tables: Vocabulary
    pool: bytes = field(init=False)
    pairs: dict[tuple[int, int], tuple[int, int] | None] = field(init=False, factory=dict)

    def __attrs_post_init__(self) -> None:
        self.pool = self.tables.pool.tobytes()

    def encode(self, piece: bytes) -> list[int]:
        tables = self.tables
        if tables.model is Model.WORD_PIECES:
            return self.word_pieces(piece)
        whole = self.word(piece)
        if whole is not None or tables.model is Model.WORDS:
            return [tables.unknown if whole is None else whole]
        if tables.model is Model.BYTES:
            return self.merged(tables.byte_ids[list(piece)].tolist())
        return self.merged(self.symbols(piece.decode()))

    def word(self, text: bytes, *, continues: bool = False) -> int | None:
        if len(text) > self.tables.longest_word:
            return None
        return word(self.tables.words, self.pool, text, continues=continues)

    def word_pieces(self, piece: bytes) -> list[int]:
        ids: list[int] = []
        start = 0
        while start < len(piece):
            for end in range(len(piece), start, -1):
                if (id := self.word(piece[start:end], continues=start > 0)) is not None:
                    break
            if id is None or len(piece.decode()) > self.tables.longest_piece:
                return [self.tables.unknown]
            ids.append(id)
            start = end
        return ids

    def symbols(self, text: str) -> list[int]:
        tables, symbols, fused = self.tables, list[int](), False
        for character in text:
            id = code_point(tables.characters, ord(character))
            if id is not None:
                symbols.append(id)
            elif tables.byte_fallback:
                symbols += tables.byte_ids[list(character.encode())].tolist()
            elif tables.unknown != NONE and not fused:
                symbols.append(tables.unknown)
            fused = id is None and tables.fuse_unknown
        return symbols

    def merged(self, symbols: list[int]) -> list[int]:
        while True:
            found = [self.pair(*both) for both in pairwise(symbols)]
            ranks = [(made[0], i, made[1]) for i, made in enumerate(found) if made]
            if not ranks:
                return symbols
            _, i, id = min(ranks)
            symbols = [*symbols[:i], id, *symbols[i + 2 :]]

    def pair(self, left: int, right: int) -> tuple[int, int] | None:
        if (left, right) not in self.pairs:
            self.pairs[left, right] = pair(self.tables.merges, left, right)
        return self.pairs[left, right]
