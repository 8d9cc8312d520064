"""What changed in a list of ids, to be applied to any copy of it."""

from __future__ import annotations

from collections.abc import MutableSequence
from typing import TypeVar

import numpy as np
from attrs import field, frozen

from toktier.engines.base import Ids

AnyIds = TypeVar("AnyIds", "MutableSequence[int]", Ids)


@frozen(eq=False)
class Patch:
    """What an operation changed in a session's ids: ``old[start:stop]`` became ``ids``.

    Made by the operations of a :class:`Session` and by stores. Positions are ids, not characters. It can be pickled.

    Attributes:
        start: The position of the first id that changed; what a KV cache has of the ids before it stays valid.
        stop: The position behind the last old id that was replaced.
        ids: What stands there now, read-only; uint32, shape (ids,).
        before: How many ids there were: a copy that has more or fewer misses a patch. None if it is not known what
            there was: then ``ids`` is all there is now.

    Example:
        >>> import toktier
        >>> session = toktier.load("toktier-mini").session("Once upon a ti")
        >>> copy = session.tolist()
        >>> patch = session.append("me")
        >>> patch.apply(copy) == session.tolist()
        True
    """

    start: int
    stop: int
    ids: Ids = field(repr=lambda ids: f"<{len(ids)} ids>")
    before: int | None

    def apply(self, ids: AnyIds) -> AnyIds:
        """Brings a copy of the ids before the operation up to date: ``ids[start:stop] = self.ids``.

        A patch whose ``before`` is None replaces the copy, whatever it holds.

        Args:
            ids: The ids before. A list is changed in place; an array cannot grow, so a new one is made.

        Returns:
            The ids after, in the same list or a new array.

        Raises:
            ValueError: There are more or fewer ids than there were: an earlier patch is missing, or came twice.
            TypeError: The copy is neither a list nor an array.

        Example:
            >>> import toktier
            >>> session = toktier.load("toktier-mini").session("One, two")
            >>> copy = session.ids
            >>> patch = session.append("fold")
            >>> patch.apply(copy).tolist() == session.tolist()
            True
            >>> patch.apply(session.tolist())
            Traceback (most recent call last):
                ...
            ValueError: the patch is for 4 ids, not 5: an earlier one is missing, or came twice; ...
        """
        if not isinstance(ids, (MutableSequence, np.ndarray)):
            raise TypeError(f"ids must be a list or an array of them, not {type(ids).__name__}")
        if self.before is not None and self.before != len(ids):
            raise ValueError(
                f"the patch is for {self.before} ids, not {len(ids)}: an earlier one is missing, or came twice; begin"
                " again with all ids of the session"
            )
        start, stop = (self.start, self.stop) if self.before is not None else (0, len(ids))
        if isinstance(ids, np.ndarray):
            return np.concatenate([ids[:start], self.ids, ids[stop:]])
        ids[start:stop] = self.ids.tolist()
        return ids
