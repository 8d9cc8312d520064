"""A precompiled character map, as SentencePiece writes it for the normalizer ``Precompiled``.

Four bytes with the length of a trie, the trie, and the replacements, each ended by a zero byte. The trie is a double
array (Darts): one 32-bit unit a node, in which a node's children lie where the exclusive or of its offset and their
bytes points to. The published maps have some 9,000 entries; this one has those of a few blocks, and is made of
``unicodedata``: what is tested is how a map is applied, and not what is in it.
"""

from __future__ import annotations

import struct
import unicodedata
from collections.abc import Iterator, Mapping

Trie = dict[int, "Trie | int"]
"""Children by byte; under 0 the value of what ends here."""

BLOCKS = (
    range(0x00A0, 0x0180),  # Latin letters, some of which are a letter with a mark
    range(0x0340, 0x0345),
    range(0x0958, 0x0960),
    range(0x2000, 0x2070),
    range(0x2100, 0x2190),
    range(0x3000, 0x3001),
    range(0x3300, 0x3358),  # one character that becomes several
    range(0xFB00, 0xFB07),
    range(0xFF01, 0xFF66),
)

SPACES = "\t\n\v\f\r\u0085\u200b\ufeff"
"""What ``nmt_nfkc`` takes for a space, besides what NFKC does."""

DELETED = [*map(chr, range(1, 9)), *map(chr, range(0x0E, 0x20)), "\x7f", "\u200c", "\u200d", "\u200e", "\u200f"]


def entries() -> dict[str, str]:
    """What becomes of what."""
    compatible = {chr(c): unicodedata.normalize("NFKC", chr(c)) for block in BLOCKS for c in block}
    decomposed = {unicodedata.normalize("NFD", one): one for one in compatible if unicodedata.combining(one) == 0}
    composed = {pair: unicodedata.normalize("NFC", one) for pair, one in decomposed.items() if len(pair) > 1}
    found = compatible | composed | dict.fromkeys(SPACES, " ") | dict.fromkeys(DELETED, "")
    return {before: after for before, after in found.items() if before != after}


def charsmap(changes: Mapping[str, str]) -> bytes:
    """The map in the form that the library reads."""
    replacements, trie = bytearray(), Trie()
    for before, after in sorted(changes.items()):
        node = trie
        for byte in before.encode():
            child = node.setdefault(byte, Trie())
            assert not isinstance(child, int)
            node = child
        node[0] = len(replacements)
        replacements += after.encode() + b"\0"
    units = list(_double_array(trie))
    return struct.pack(f"<I{len(units)}I", 4 * len(units), *units) + bytes(replacements)


def _double_array(trie: Trie) -> Iterator[int]:
    """The units of a trie, the root's first."""
    units, taken, bases = {0: 0}, {0}, set[int]()
    waiting = [(0, trie)]
    for at, node in waiting:
        # One of its own, also where the children of two would fit: they would be children of both.
        free = (base for base in range(1, 1 << 20) if base not in bases)
        base = next(base for base in free if all(base ^ byte not in taken for byte in node))
        bases.add(base)
        units[at] |= (at ^ base) << 10 | (0 in node) << 8
        for byte, child in node.items():
            taken.add(base ^ byte)
            if isinstance(child, int):
                units[base ^ byte] = child | 1 << 31
            else:
                units[base ^ byte] = byte
                waiting.append((base ^ byte, child))
    yield from (units.get(at, 0) for at in range(-(-max(units) // 256) * 256 + 256))
