"""SentencePiece's compiled map of characters, as the library applies it.

The library goes through the grapheme clusters of a text. In the place of one of fewer than six bytes it puts the image
of the shortest key that the cluster begins with, *and drops the rest of the cluster*; without such a key, and in longer
clusters, each character is looked up by itself. So a cut commutes with it where a cluster is certain to end.

Of the rules for clusters (Unicode Standard Annex #29) this needs one that will not change: before an ASCII character a
cluster ends, but for a line feed behind a carriage return, and for what stands behind a character that prepends itself
to everything. Which characters those are, and which are appended to everything, is asked of the library.
"""

from __future__ import annotations

import base64
import json
from collections import defaultdict

from toktier.families.pattern import Unsupported
from toktier.families.probing import Probe
from toktier.families.trie import keys_of

Images = dict[int, frozenset[int]]


def deletes(component: str) -> bool:
    """Whether some characters are nothing in the map of a ``Precompiled`` normalizer, which is given as JSON."""
    return "" in _images(component).values()


def images_of(component: str) -> dict[int, str]:
    """What becomes of each character by itself in the map of a ``Precompiled`` normalizer, which is given as JSON."""
    return {ord(key): image for key, image in _images(component).items() if len(key) == 1}


def rewritten_by_charsmap(component: str, probe: Probe) -> tuple[Images, Images]:
    """What a text can end with that ended with a character, and begin with that began with one of ASCII, where new.

    Args:
        component: A ``Precompiled`` normalizer as JSON.
        probe: Where the library is asked about clusters.

    Raises:
        Unsupported: The map is malformed, or has a key that begins with a character that prepends itself.
    """
    images = _images(component)
    appended, prepended = probe.clusters()
    beginning: defaultdict[str, list[str]] = defaultdict(list)
    for key, image in images.items():
        if ord(key[0]) in prepended:
            raise Unsupported(f"normalizer Precompiled: a key begins with U+{ord(key[0]):04X}, which prepends itself")
        beginning[key[0]].append(image)

    ends = {c: frozenset(map(ord, image[-1:])) for c, image in images_of(component).items()}
    ends |= dict.fromkeys([*appended, *prepended], frozenset())
    # What is left of a line feed is not always what it becomes alone.
    line_ends = [images.get("\n", "\n"), images.get("\r", images.get("\r\n", images.get("\n", "\n")))]
    ends[ord("\n")] = frozenset(map(ord, "".join(end[-1:] for end in line_ends))) if all(line_ends) else frozenset()

    starts: Images = {ord("\n"): frozenset()}
    for first, some in beginning.items():
        if first.isascii() and first != "\n":
            possible = [images[first]] if first in images else [first, *some]
            starts[ord(first)] = frozenset(ord(image[0]) for image in possible) if all(possible) else frozenset()
    return ends, starts


def _images(component: str) -> dict[str, str]:
    return keys_of(base64.b64decode(json.loads(component)["precompiled_charsmap"]))
