"""memo: no other library at all. A text is divided at *all* its certified cuts, and each segment is looked up.

Segments are about five characters long, so most of them were met before. By the theorem that makes a cut certified, the
ids of a text are those of its segments, one after the other: this engine is exact for every supported family, and needs
to know nothing about patterns or Unicode.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from itertools import islice
from typing import Any

import numpy as np

from toktier.engines.base import Ids, Inapplicable
from toktier.engines.continuing import encode_continuing
from toktier.engines.reference import ReferenceEngine
from toktier.families.family import Family

CAPACITY = 1 << 17
"""Segments that are remembered: some 20 MB."""

BEGIN = "\ud800"
"""Before the first segment of a text, if it makes a difference that it is the first: a character that no text has."""

LONGEST = 48
"""Characters of the longest that is: longer ones hardly ever come again."""


class MemoEngine:
    """Looks segments up, and encodes those it does not know with the reference, all at once.

    Args:
        family: Says where texts may be cut.
        reference: Encodes what is not known.
        capacity: How many segments are remembered; the oldest are forgotten first.

    Raises:
        Inapplicable: The family has no certified cuts.

    Example:
        >>> import toktier
        >>> toktier.load("toktier-mini").engine("memo").encode("Hello world")
        array([  39,  523,  323, 3241, 1151], dtype=uint32)
    """

    name = "memo"

    def __init__(self, family: Family, reference: ReferenceEngine, *, capacity: int = CAPACITY) -> None:
        if not family.supported:
            raise Inapplicable(f"the family has no certified cuts: {family.reason}")
        self._family = family
        self._reference = reference
        self._capacity = capacity
        self._begin = BEGIN if family.prefixed else ""
        self._known: dict[str, bytes] = {}
        """The ids of each segment, as the bytes of an array of uint32."""
        self._lock = threading.Lock()

    def encode(self, text: str, *, continuation: bool = False) -> Ids:
        """The ids of a text, uint32, shape (tokens,)."""
        return self.encode_batch([text])[0]

    def encode_batch(self, texts: Sequence[str], *, continuation: bool = False) -> list[Ids]:
        """The ids of several texts."""
        divided = [*map(self._segments, texts)]
        found: list[list[Any]] = [[*map(self._known.get, segments)] for segments in divided]
        unknown = [
            segment
            for segments, known in zip(divided, found, strict=True)
            if None in known
            for segment, ids in zip(segments, known, strict=True)
            if ids is None
        ]
        if unknown:
            fresh = self._encoded(unknown)
            found = [
                [fresh[segment] if ids is None else ids for segment, ids in zip(segments, known, strict=True)]
                if None in known
                else known
                for segments, known in zip(divided, found, strict=True)
            ]
        return [np.frombuffer(bytearray().join(ids), np.uint32) for ids in found]

    def _segments(self, text: str) -> list[str]:
        """A text, divided at all its certified cuts."""
        if len(text) <= LONGEST and (whole := self._begin + text) in self._known:
            return [whole]  # what a session leaves for the next append is one segment
        ends = self._family.cuts(text, continuation=True).tolist()
        ends.append(len(text))
        start = 0
        segments = [text[start : (start := end)] for end in ends]
        segments[0] = self._begin + segments[0]
        return segments

    def _encoded(self, segments: list[str]) -> dict[str, bytes]:
        """The ids of segments, from the reference; the short ones are remembered."""
        unknown = list(dict.fromkeys(segments))
        texts = [segment.removeprefix(BEGIN) for segment in unknown]
        continuing = [not segment.startswith(BEGIN) for segment in unknown]
        encoded = encode_continuing(self._family, self._reference, texts, continuing, self._reference.encode_batch)
        fresh = {segment: ids.tobytes() for segment, ids in zip(unknown, encoded, strict=True)}
        with self._lock:
            self._known.update((segment, ids) for segment, ids in fresh.items() if len(segment) <= LONGEST)
            if len(self._known) > self._capacity:
                # All at once and half of them, so that forgetting costs next to nothing per segment.
                for segment in list(islice(self._known, len(self._known) - self._capacity // 2)):
                    del self._known[segment]
        return fresh
