"""The double-array trie in which SentencePiece keeps a compiled map of characters: read, and written for one key.

Source of the format: ``spm_precompiled``, and Darts-clone's ``DoubleArray``. A unit is 32 bits: the label of the byte
that leads to it, whether a value is below it, and how far the units below are. Behind the trie are the images, each
with a zero byte at its end.
"""

from __future__ import annotations

import struct
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from toktier.families.pattern import Unsupported

Units: TypeAlias = npt.NDArray[np.int64]

LEAF = 1 << 8
LABEL = 1 << 31 | 0xFF
VALUE = (1 << 31) - 1

LONGEST = 5
"""Bytes of the longest key that can be found: the library looks up clusters of no more."""

MAX_KEYS = 300_000
"""Keys of a map, and beginnings of one length: time and memory grow with them."""

MAX_IMAGE = 1_000
"""Bytes of an image. NFKC's longest has 33."""


def keys_of(charsmap: bytes) -> dict[str, str]:
    """The keys of a compiled map that can be found, with their images: none begins with another one.

    Raises:
        Unsupported: It is malformed.

    Example:
        >>> keys_of(compiled("a", "A"))
        {'a': 'A'}
    """
    try:
        (size,) = struct.unpack_from("<I", charsmap)
        units = np.frombuffer(charsmap, "<u4", size // 4, 4).astype(np.int64)
        images, leaves = charsmap[4 + size :], _leaves(units)
        ends = {value: images.index(0, value, value + MAX_IMAGE) for value in set(leaves.values())}
        return {key.decode(): images[value : ends[value]].decode() for key, value in leaves.items()}
    except (ValueError, IndexError, struct.error) as error:
        raise Unsupported(f"normalizer Precompiled: its map is malformed: {error}") from None


def _leaves(units: Units) -> dict[bytes, int]:
    """The values in a trie, level by level; none below another, since the library takes the first that it meets."""
    found: dict[bytes, int] = {}
    labels = np.arange(1, 256)
    paths, bases = [b""], np.array([_offset(units[:1])[0]])
    for _ in range(LONGEST):
        below_paths: list[bytes] = []
        below = []
        for i in range(0, len(paths), 4096):
            places = bases[i : i + 4096, None] ^ labels
            inside = places < len(units)
            matched = inside & ((units[np.where(inside, places, 0)] & LABEL) == labels)
            if len(found) + len(below_paths) + np.count_nonzero(matched) > MAX_KEYS:
                raise ValueError("too many keys")
            parents, bytes_ = np.nonzero(matched)
            reached = places[matched]
            next_bases = reached ^ _offset(units[reached])
            leaves = (units[reached] & LEAF) != 0
            for parent, byte, base, leaf in zip(parents, bytes_, next_bases, leaves, strict=True):
                path = paths[i + parent] + bytes((int(byte) + 1,))
                if leaf:
                    found[path] = int(units[base] & VALUE)
                else:
                    below_paths.append(path)
            below.append(next_bases[~leaves])
        paths, bases = below_paths, np.concatenate([bases[:0], *below])
    return found


def _offset(units: Units) -> Units:
    return (units >> 10) << ((units & (1 << 9)) >> 6)


def compiled(key: str, image: str) -> bytes:
    """A map of one key, as the library reads it."""
    path = key.encode()
    units = [0] * (256 * (len(path) + 2))
    place = 0
    for depth, byte in enumerate(path, 1):
        units[place] |= (place ^ depth << 8) << 10
        place = depth << 8 ^ byte
        units[place] = byte
    units[place] |= (place ^ (len(path) + 1) << 8) << 10 | LEAF
    units[(len(path) + 1) << 8] = 1 << 31  # the image is the first
    return struct.pack(f"<I{len(units)}I", 4 * len(units), *units) + image.encode() + b"\0"
