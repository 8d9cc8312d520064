"""A growing, edited text whose ids are kept exact by re-encoding only what changed.

The state is the text, its ids, and *seams*: certified cuts, each with the number of ids to its left. To replace
characters, a session takes the nearest seams around them, encodes what now stands between the two, and puts the
ids in the place of the old ones. Because the seams are certified, that is the same as encoding everything.
"""

from __future__ import annotations

import operator
from array import array
from bisect import bisect_left
from collections.abc import MutableSequence
from itertools import pairwise
from typing import TYPE_CHECKING, SupportsIndex, TypeVar

import numpy as np
from attrs import field, frozen

from toktier.difference import hunks
from toktier.engines.base import Engine, Ids
from toktier.families.family import valid_text
from toktier.idarray import IdArray
from toktier.piecetable import PieceTable

if TYPE_CHECKING:
    from toktier.tokenizer import Tokenizer

SPACING = 1024
"""Characters between two seams, about: an edit encodes at most twice as many beside its own."""

AnyIds = TypeVar("AnyIds", "MutableSequence[int]", Ids)


@frozen(eq=False)
class Patch:
    """What an operation changed in a session's ids.

    Attributes:
        start: The first id that changed.
        stop: The end of the old ids that were replaced, ``old[start:stop]``.
        ids: What stands there now, uint32, shape (ids,).

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

    def apply(self, ids: AnyIds) -> AnyIds:
        """Brings a copy of the ids before the operation up to date: ``ids[start:stop] = self.ids``.

        Args:
            ids: The ids before. A list is changed in place; an array cannot grow, so a new one is made.

        Returns:
            The ids after: the same list, or the new array.
        """
        if isinstance(ids, np.ndarray):
            return np.concatenate([ids[: self.start], self.ids, ids[self.stop :]])
        ids[self.start : self.stop] = self.ids.tolist()
        return ids


class Session:
    """The ids of one text that grows and changes, always equal to the reference's for the whole text.

    ``append`` and ``edit`` cost as much as the change, whatever the length of the text; ``update`` reads the text once, at the
    speed of a memory comparison. An operation that raises leaves the session as it was. What a session has handed out
    never changes. Sessions are not locked: use each from one thread at a time.

    On a tokenizer without certified cuts (``tok.family.reason`` says why) everything works, by encoding in full.

    Args:
        tok: The tokenizer.
        text: The text to begin with.
        engine: What encodes: ``"auto"``, ``"reference"``, or an object that answers to
            :class:`toktier.engines.base.Engine`.

    Raises:
        TypeError: The text is not a string.
        InvalidText: The text has a lone surrogate.
        UnknownEngine: There is no engine of that name.

    Example:
        >>> import toktier
        >>> tok = toktier.load("toktier-mini")
        >>> session = toktier.Session(tok, "The quick brown fox")
        >>> session.append(" jumps over the lazy dog.")
        Patch(start=..., stop=..., ids=<... ids>)
        >>> session.edit(4, 9, "slow")
        Patch(start=..., stop=..., ids=<... ids>)
        >>> session.text
        'The slow brown fox jumps over the lazy dog.'
        >>> session.tolist() == tok.encode(session.text).tolist()
        True
    """

    __slots__ = ("_counts", "_engine", "_family", "_ids", "_list", "_positions", "_table")

    def __init__(self, tok: Tokenizer, text: str = "", *, engine: str | Engine = "auto") -> None:
        self._family = tok.family
        self._engine = tok.engine(engine) if isinstance(engine, str) else engine
        self._table = PieceTable()
        self._ids = IdArray()
        self._list: list[int] | None = None
        # Seam k lies at character _positions[k] and has _counts[k] ids to its left. The first is the begin of the text.
        self._positions = array("q", [0])
        self._counts = array("q", [0])
        self._splice(0, 0, valid_text(text))

    def __len__(self) -> int:
        """The number of ids."""
        return len(self._ids)

    def __repr__(self) -> str:
        return f"<toktier.Session {len(self._table)} characters, {len(self._ids)} ids, engine {self._engine.name}>"

    @property
    def text(self) -> str:
        """The whole text. Put together when asked for; once it is, the session shares its memory."""
        return self._table.text()

    @property
    def ids(self) -> Ids:
        """The ids, a read-only array that never changes; uint32, shape (ids,).

        It shares the session's memory: an operation that would write where it can be seen copies first.
        """
        return self._ids.view()

    @property
    def engine(self) -> Engine:
        """What encodes for this session."""
        return self._engine

    def tolist(self) -> list[int]:
        """The ids as a new list, copied from one that is kept up to date from the first call on."""
        if self._list is None:
            self._list = self._ids.window(0, len(self._ids)).tolist()
        return self._list.copy()

    def append(self, text: str) -> Patch:
        """Adds to the end of the text.

        The engine sees ``text`` and the characters before it back to the last certified cut.

        Raises:
            TypeError: The text is not a string.
            InvalidText: The text has a lone surrogate.
        """
        end = len(self._table)
        return self._splice(end, end, valid_text(text))

    def edit(self, start: SupportsIndex, stop: SupportsIndex, text: str) -> Patch:
        """Replaces the characters from ``start`` to ``stop``.

        Args:
            start: Position of the first character to replace, ``0 <= start <= stop``.
            stop: Position after the last one, ``stop <= len(session.text)``; equal to ``start`` for an insertion.
            text: What stands there afterwards.

        Raises:
            IndexError: A position is out of range; negative ones do not count from the end.
            TypeError: The text is not a string, or a position is not an integer.
            InvalidText: The text has a lone surrogate.
        """
        text = valid_text(text)
        start, stop = operator.index(start), operator.index(stop)
        if not 0 <= start <= stop <= len(self._table):
            raise IndexError(f"edit({start}, {stop}) is out of range: 0 <= start <= stop <= {len(self._table)} characters")
        return self._splice(start, stop, text)

    def update(self, full_text: str) -> Patch:
        """Makes ``full_text`` the text, whatever changed: finds that out itself.

        For front ends that render the whole transcript on every call, and drop reasoning from old turns, shorten
        old tool results or replace the generation prompt on the way.

        Raises:
            TypeError: The text is not a string.
            InvalidText: The text has a lone surrogate.
        """
        if type(full_text) is not str:
            full_text = valid_text(full_text)
        changes = [
            (hunk.start, hunk.stop, valid_text(full_text[hunk.begin : hunk.end], before=hunk.begin))
            for hunk in hunks(self._table, full_text)
        ]
        patch = self._splice_all(changes) if len(changes) > 1 else self._splice(*(changes or [(0, 0, "")])[0])
        self._table.replace_source(full_text)
        return patch

    def fork(self) -> Session:
        """An independent session with the same state. The ids and strings are shared until one of the two changes them."""
        other = object.__new__(Session)
        other._family, other._engine = self._family, self._engine
        other._table, other._ids = self._table.copy(), self._ids.fork()
        other._list = None if self._list is None else self._list.copy()
        other._positions, other._counts = self._positions[:], self._counts[:]
        return other

    def _splice(self, start: int, stop: int, text: str) -> Patch:
        """Replaces characters: the one operation that all others are. Everything is computed before anything changes."""
        table, ids, positions, counts = self._table, self._ids, self._positions, self._counts
        length = len(table)
        shift = len(text) - (stop - start)
        before = table[start - 1] if start else ""
        after = table[stop] if stop < length else ""

        # Left of the change, the last seam that stays: one before `start`, or `start` itself if its new neighbours are a
        # pair. The ends of the text count as seams, since the ids on both sides of them are known.
        kept = bisect_left(positions, start)
        p, ids_before_p = (positions[kept - 1], counts[kept - 1]) if kept else (0, 0)
        seams: list[tuple[int, int]] = []
        if start == 0:
            kept = 1
        elif start == length or (kept < len(positions) and positions[kept] == start):
            if self._parts(before, text[:1] or after):
                p, ids_before_p = start, counts[kept] if kept < len(positions) else len(ids)
                if p < length + shift:
                    seams.append((p, ids_before_p))

        # Right of it, the first one.
        rest = bisect_left(positions, stop) if after else len(positions)
        if rest < len(positions) and positions[rest] == stop:
            rest += not self._parts(text[-1:] or before, after)
        q, ids_before_q = (positions[rest], counts[rest]) if rest < len(positions) else (length, len(ids))

        # What stands between the two now.
        window = table.slice(p, start) + text + table.slice(stop, q)
        breaks = self._breaks(window, to_end=q == length)
        encoded = self._encode(window, breaks, continuation=p > 0)
        # A single array is copied too: it is the engine's own, and what goes into a patch is the caller's.
        fresh = np.concatenate(encoded)
        head, tail = _common_ends(ids.window(ids_before_p, ids_before_q), fresh)
        replacement = fresh[head : len(fresh) - tail]
        patch = Patch(ids_before_p + head, ids_before_q - tail, replacement)

        count = ids_before_p
        for at, part in zip(breaks, encoded, strict=False):
            count += len(part)
            seams.append((p + at, count))
        ids.splice(patch.start, patch.stop, replacement)
        table.splice(start, stop, text)
        self._replace_seams(kept, rest + (not window), seams, shift, ids_before_p + len(fresh) - ids_before_q)
        if self._list is not None:
            self._list[patch.start : patch.stop] = replacement.tolist()
        return patch

    def _splice_all(self, changes: list[tuple[int, int, str]]) -> Patch:
        """Several changes, in ascending order and apart from one another, as one operation."""
        # On a fork, so that an engine that fails in the middle leaves this session alone; from right to left, so that the
        # positions of the changes to come stay what they are.
        draft, length = self.fork(), len(self)
        start = same_at_end = length
        for change in reversed(changes):
            ids_before = len(draft)
            patch = draft._splice(*change)
            start = min(start, patch.start)
            same_at_end = min(same_at_end, ids_before - patch.stop)
        for name in self.__slots__:
            setattr(self, name, getattr(draft, name))
        stop = len(self) - same_at_end
        return Patch(start, length - same_at_end, self._ids.window(start, stop).copy())

    def _replace_seams(self, kept: int, rest: int, seams: list[tuple[int, int]], shift: int, ids_shift: int) -> None:
        """Puts ``seams`` between the first ``kept`` seams and those from ``rest`` on, which move along.

        A seam between two others that are within SPACING of one another is dropped, so that there are never many.
        """
        positions, counts = self._positions, self._counts
        last = len(positions) - 1
        if seams or rest <= last:
            following = seams[0][0] if seams else positions[rest] + shift
            while kept >= 2 and following - positions[kept - 2] <= SPACING:
                kept -= 1
        preceding = seams[-1][0] if seams else positions[kept - 1]
        while rest < last and positions[rest + 1] + shift - preceding <= SPACING:
            rest += 1
        for values, k, moved in ((positions, 0, shift), (counts, 1, ids_shift)):
            if rest <= last:
                behind = np.frombuffer(values[rest:], np.int64) + moved
                del values[kept:]
                values.extend([seam[k] for seam in seams])
                values.frombytes(behind.tobytes())
            else:
                del values[kept:]
                values.extend([seam[k] for seam in seams])

    def _parts(self, left: str, right: str) -> bool:
        """Whether the text may be cut between two characters, where an absent one stands for an end of the text."""
        return not left or not right or self._family.is_pair(left, right)

    def _breaks(self, window: str, to_end: bool) -> list[int]:
        """Where to cut a window into parts that are encoded separately, and so yield the id counts of new seams.

        About every SPACING characters; and, if the window is the end of the text, once more as near to it as
        possible, which is where the next append will begin.
        """
        last_cut, length = self._family.last_cut, len(window)
        breaks: list[int] = []
        previous = 0
        for target in range(SPACING, length - SPACING // 2, SPACING):
            floor = max(previous, target - SPACING)
            if (at := last_cut(window, floor, target)) > floor:
                breaks.append(at)
                previous = at
        if to_end and (at := last_cut(window, previous, length - 1)) > previous:
            breaks.append(at)
        return breaks

    def _encode(self, window: str, breaks: list[int], continuation: bool) -> list[Ids]:
        if not breaks:
            return [self._engine.encode(window, continuation=continuation)]
        edges = [0, *breaks, len(window)]
        parts = [window[i:j] for i, j in pairwise(edges)]
        return self._engine.encode_batch(parts, continuation=continuation)


def _common_ends(old: Ids, new: Ids) -> tuple[int, int]:
    """How many ids two arrays have in common at their begin, and beyond these at their end."""
    shorter = min(len(old), len(new))
    if not shorter:
        return 0, 0
    if shorter <= 8:
        # The usual case of an append, for which array operations would take most of its time.
        head = tail = 0
        olds, news = old.tolist(), new[:shorter].tolist()
        while head < shorter and olds[head] == news[head]:
            head += 1
        while tail < shorter - head and old[-1 - tail] == new[-1 - tail]:
            tail += 1
        return head, tail
    different = np.flatnonzero(old[:shorter] != new[:shorter])
    head = int(different[0]) if len(different) else shorter
    shorter -= head
    if not shorter:
        return head, 0
    different = np.flatnonzero(old[len(old) - shorter :] != new[len(new) - shorter :])
    return head, shorter - 1 - int(different[-1]) if len(different) else shorter
