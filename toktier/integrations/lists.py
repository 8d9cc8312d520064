"""Ids as lists of ``int``, which is what callers of other libraries want, and takes longer to make than the ids."""

from __future__ import annotations

import threading

from toktier.engines.base import Ids

SHORTEST = 4096
"""Ids of which a list is made anew in less time than it takes to look for an old one."""

BYTES = 40
"""What one id takes here: in an array, in a list, and as an object."""


class Lists:
    """Makes lists, and goes on from those that it made before. Safe to share between threads.

    Args:
        max_bytes: What it may hold. Beyond that, the lists go that were not asked for for longest.

    Example:
        >>> import numpy as np
        >>> lists = Lists(1 << 24)
        >>> transcript = np.arange(10_000, dtype=np.uint32)
        >>> lists.of(transcript) == lists.of(transcript) == transcript.tolist()
        True
        >>> len(lists)
        1
    """

    def __init__(self, max_bytes: int) -> None:
        self._most = max_bytes // BYTES
        self._lock = threading.Lock()
        self._held: list[tuple[Ids, list[int]]] = []
        """Arrays and what they are as lists, the latest last. Nobody else has them."""

    def __len__(self) -> int:
        """The number of lists that it holds."""
        return len(self._held)

    def of(self, ids: Ids) -> list[int]:
        """The ids as a new list.

        Args:
            ids: uint32, shape (ids,).
        """
        if not SHORTEST <= len(ids) <= self._most:
            listed: list[int] = ids.tolist()
            return listed
        with self._lock:
            for number in reversed(range(len(self._held))):
                common = _in_common(self._held[number][0], ids)
                if common:
                    listed = self._held.pop(number)[1]
                    listed[common:] = ids[common:].tolist()
                    break
            else:
                listed = ids.tolist()
            self._held.append((ids.copy(), listed))
            while sum(len(held) for held, _ in self._held) > self._most:
                del self._held[0]
            return listed.copy()


def _in_common(old: Ids, new: Ids) -> int:
    """How many ids two arrays have in common at their begin; 0 if they do not seem to be two turns of one session."""
    shorter, longer = sorted((len(old), len(new)))
    middle = shorter // 2
    if 4 * shorter < 3 * longer or old[middle] != new[middle]:
        return 0
    different = old[:shorter] != new[:shorter]
    common = int(different.argmax()) if different.any() else shorter
    return common if 4 * common >= 3 * longer else 0
