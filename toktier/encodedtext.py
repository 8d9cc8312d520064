"""A text with its ids, kept exact by encoding again only what stands between certified cuts around a change.

Beside text and ids there are *seams*: certified cuts, each with the number of ids to its left. To replace characters,
the nearest seams around them are taken, what now stands between the two is encoded, and its ids come in the place of
the old ones. Because the seams are certified, that is the same as encoding everything.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any, NamedTuple, NoReturn

import numpy as np

from toktier.engines.base import UINT32, Engine, checked
from toktier.errors import SessionTorn, StateMismatch
from toktier.idarray import IdArray
from toktier.patch import Patch
from toktier.piecetable import PieceTable
from toktier.planner import parts
from toktier.seams import COARSE, Seam, Seams, breaks
from toktier.state import INSTEAD, State
from toktier.tokenizer import Tokenizer
from toktier.untrusted import Spans, Untrusted

ID = UINT32.itemsize
"""Bytes of an id."""


class Change(NamedTuple):
    """The characters from the first position to the second become a text, of which some are untrusted."""

    start: int
    stop: int
    text: str
    untrusted: Spans = ()


class EncodedText:
    """A text, its ids and its seams.

    A change computes everything before it changes anything, so that one which raises leaves all as it was. What an
    exception from outside interrupts between the two is torn: it gives nothing any more, rather than half of a change.

    Texts and positions are valid here: whoever calls has seen to that.

    Args:
        tok: The tokenizer.
        engine: What encodes.

    Attributes:
        table: The text.
        ids: Its ids.
        seams: Certified cuts of it.
        untrusted: Which of its characters are no part of a special token.
        listed: The ids as a list, from when somebody has asked for it.
        windows: What was encoded since the list was emptied: first character and length of each stretch.

    Example:
        >>> import toktier
        >>> tok = toktier.load("toktier-mini")
        >>> encoded = EncodedText(tok, tok.engine("memo"))
        >>> encoded.append("The quick brown fox"), encoded.replace(4, 9, "slow")
        (Patch(start=0, stop=0, ...), Patch(start=..., stop=..., ...))
        >>> encoded.table.text()
        'The slow brown fox'
    """

    __slots__ = ("_engine", "_family", "_planner", "_tok", "ids", "listed", "seams", "table", "untrusted", "windows")

    table: PieceTable
    ids: IdArray
    seams: Seams
    untrusted: Untrusted
    listed: list[int] | None
    windows: list[tuple[int, int]]

    def __init__(self, tok: Tokenizer, engine: Engine) -> None:
        self._tok, self._family, self._planner, self._engine = tok, tok.family, tok.planner, engine
        self.table, self.ids, self.seams, self.untrusted = PieceTable(), IdArray(), Seams(), Untrusted()
        self.listed = None
        self.windows = []

    @classmethod
    def of(cls, tok: Tokenizer, engine: Engine, state: State) -> EncodedText:
        """What :meth:`state` gave, as it was.

        Raises:
            StateMismatch: A seam of it is no certified cut.
        """
        # Of another version of this library, which knew another relation, they need not be.
        for position in state.positions[1:].tolist():
            if position < len(state.text) and not tok.family.is_cut(state.text, position, continuation=True):
                raise StateMismatch(f"the seam of the state at {position} is no certified cut; {INSTEAD}")
        encoded = cls(tok, engine)
        encoded.table.replace_source(state.text)
        encoded.ids.splice(0, 0, state.ids)
        encoded.seams = Seams.of(state.positions, state.counts)
        encoded.untrusted = Untrusted.of(state.untrusted)
        return encoded

    def state(self) -> State:
        """All there is to keep."""
        ids = self.ids.window(0, len(self.ids))
        return State(self.table.joined(), ids, *self.seams.arrays(), self.untrusted.array())

    def fork(self) -> EncodedText:
        """An independent one of the same state; ids and strings are shared until one of the two changes them."""
        other = object.__new__(EncodedText)
        other._tok, other._family, other._planner, other._engine = self._tok, self._family, self._planner, self._engine
        other.table, other.ids, other.seams = self.table.copy(), self.ids.fork(), self.seams.copy()
        other.untrusted = self.untrusted.copy()
        other.listed = None if self.listed is None else self.listed.copy()
        other.windows = []
        return other

    def anew(self, text: str, spans: Spans) -> EncodedText:
        """Another text, all of which the same engine encodes as part of what is going on here."""
        fresh = EncodedText(self._tok, self._engine)
        fresh.windows = self.windows.copy()
        fresh.append(text, spans)
        return fresh

    @property
    def is_torn(self) -> bool:
        """Whether a change was interrupted, or is under way."""
        return self.table is TORN

    @property
    def nbytes(self) -> int:
        """Bytes of all this. What is shared with a fork counts in both."""
        listed = 0 if self.listed is None else sys.getsizeof(self.listed) + sys.getsizeof(1 << 20) * len(self.listed)
        held = self.table.nbytes + self.ids.nbytes + self.seams.nbytes + self.untrusted.nbytes
        return sys.getsizeof(self) + listed + held

    def append(self, text: str, spans: Spans = ()) -> Patch:
        """Adds to the end of the text.

        Args:
            text: What comes there.
            spans: Its untrusted characters.
        """
        table, ids, seams, untrusted = self.table, self.ids, self.seams, self.untrusted
        length, stop = len(table), len(ids)
        if not text:
            return Patch(stop, stop, np.frombuffer(b"", UINT32), stop)

        # What stands behind the last seam is encoded again, together with the text. The old end is a seam itself if
        # the characters that meet there now are a pair: the ids left of it are known.
        left = seams.last()
        window = table.slice(left[0], length)
        fresh_seams: list[Seam] = []
        if window and self._family.is_pair(window[-1], text[0]):
            window, left = text, (length, stop)
            fresh_seams.append(left)
        else:
            window += text
        around = untrusted.around(left[0], (length, length, len(text), spans), length) if untrusted or spans else ()
        fresh = self._encode(window, left, fresh_seams, around, to_end=True, coarse=True)
        same = _common_begin(ids.window(left[1], stop).tobytes(), fresh)
        start = left[1] + same // ID
        patch = Patch(start, stop, np.frombuffer(fresh, UINT32, -1, same), stop)

        prepared = ids.prepare(start, stop, patch.ids)
        # Whatever comes in between now, half a change is not seen.
        self.table = self.ids = self.seams = self.untrusted = TORN
        table.append(text)
        ids.commit(start, stop, patch.ids, prepared)
        seams.extend(fresh_seams)
        if spans:
            untrusted.replace(length, length, len(text), spans)
        if self.listed is not None:
            self.listed[start:] = patch.ids.tolist()
        self.table, self.ids, self.seams, self.untrusted = table, ids, seams, untrusted
        return patch

    def replace(self, start: int, stop: int, text: str, spans: Spans = ()) -> Patch:
        """Puts a text in the place of the characters from ``start`` to ``stop``.

        Args:
            start: Position of the first of them.
            stop: Position after the last one.
            text: What stands there afterwards.
            spans: Its untrusted characters.
        """
        table, ids, seams, untrusted = self.table, self.ids, self.seams, self.untrusted
        length, last = len(table), len(seams)
        if start == length or (start == stop and not text):
            return self.append(text, spans)
        shift = len(text) - (stop - start)
        before = table[start - 1] if start else ""
        after = table[stop] if stop < length else ""

        # The last seam left of the change, or one at its very start if the characters that meet there now are a pair.
        kept = seams.find(start)
        if start == 0:
            kept, left = 1, (0, 0)
        elif seams.is_at(kept, start) and (text or after) and self._family.is_pair(before, text[:1] or after):
            left = seams[kept]
            kept += 1
        else:
            left = seams[kept - 1]

        # The first seam right of it, in the same way; the end of the text when there is none.
        rest = seams.find(stop) if after else last
        if seams.is_at(rest, stop) and not self._may_stand_behind(text[-1:] or before, after, stop):
            rest += 1
        right = seams[rest] if rest < last else (length, len(ids))

        # What stands between the two now, encoded.
        window = table.slice(left[0], start) + text + table.slice(stop, right[0])
        fresh_seams: list[Seam] = []
        change = start, stop, len(text), spans
        around = untrusted.around(left[0], change, right[0]) if untrusted or spans else ()
        encoded = self._encode(window, left, fresh_seams, around, to_end=right[0] == length, coarse=len(text) > COARSE)
        old, fresh = ids.window(left[1], right[1]), np.frombuffer(encoded, UINT32)
        head = _common_begin(old.tobytes(), encoded) // ID
        tail = _common_begin(old[head:][::-1].tobytes(), fresh[head:][::-1].tobytes()) // ID
        patch = Patch(left[1] + head, right[1] - tail, fresh[head : len(fresh) - tail], len(ids))
        ids_shift = len(fresh) - len(old)

        del old  # a look at the ids, which do not move while anybody has one
        prepared = ids.prepare(patch.start, patch.stop, patch.ids)
        self.table = self.ids = self.seams = self.untrusted = TORN
        table.splice(start, stop, text)
        ids.commit(patch.start, patch.stop, patch.ids, prepared)
        # When nothing is left between the two seams, they are one.
        seams.replace(kept, rest + (not window), fresh_seams, shift, ids_shift)
        untrusted.replace(*change)
        if self.listed is not None:
            self.listed[patch.start : patch.stop] = patch.ids.tolist()
        self.table, self.ids, self.seams, self.untrusted = table, ids, seams, untrusted
        return patch

    def _may_stand_behind(self, before: str, after: str, seam: int) -> bool:
        """Whether the ids behind a seam stay what they are when other text, or none, comes to stand before it."""
        if self._family.prefixed and (before == "") != (seam == 0):
            return False  # one of the two is the beginning of a text, and has a prefix
        return not before or self._family.is_pair(before, after)

    def replaced(self, changes: Sequence[Change]) -> tuple[EncodedText, Patch]:
        """Several changes as one: what becomes of this, which stays as it is, and the patch from the first to the last.

        Args:
            changes: In ascending order, and apart from one another.
        """
        # From right to left, so that the positions of the changes to come stay what they are.
        draft, length = self.fork(), len(self.ids)
        start = same_at_end = length
        shift = sum(len(change.text) - (change.stop - change.start) for change in changes)
        windows: list[tuple[int, int]] = []
        for change in reversed(changes):
            ids_before, draft.windows = len(draft.ids), []
            patch = draft.replace(*change)
            start = min(start, patch.start)
            same_at_end = min(same_at_end, ids_before - patch.stop)
            shift -= len(change.text) - (change.stop - change.start)  # of the changes to come, which stand before it
            windows += [(first + shift, size) for first, size in draft.windows]
        draft.windows = windows
        fresh = draft.ids.window(start, len(draft.ids) - same_at_end).tobytes()
        return draft, Patch(start, length - same_at_end, np.frombuffer(fresh, UINT32), length)

    def _encode(
        self, window: str, left: Seam, fresh_seams: list[Seam], untrusted: Spans, *, to_end: bool, coarse: bool
    ) -> bytes:
        """The ids of a window of the text that begins at a seam; the seams inside it are added to a list.

        Returns:
            The ids as the bytes of an array of uint32: a copy, since the engine may go on using its arrays, and one
            that nobody can write to.
        """
        engine, (before, count) = self._engine, left
        self.windows.append((before, len(window)))
        cuts = breaks(self._planner, window, to_end=to_end, coarse=coarse)
        texts = parts(window, cuts)
        encoded: Any  # by an engine that may be anybody's
        if untrusted and self._tok.protection.is_forged(window, untrusted):
            encoded = self._tok.protection.encode_parts(texts, untrusted, engine, continuation=before > 0)
        else:
            encoded = self._planner.encode_parts(texts, engine, continuation=before > 0)
        if len(encoded) != len(texts):
            raise TypeError(f"engine {engine.name!r} gave {len(encoded)} results for {len(texts)} texts")
        for k, part in enumerate(encoded):
            checked(engine, part)
            if k < len(cuts):
                count += len(part)
                fresh_seams.append((before + cuts[k], count))
        try:
            return b"".join(encoded)
        except TypeError:  # elements that do not lie side by side
            return np.concatenate(encoded).tobytes()


class _Torn:
    """What is left of a text whose change was interrupted."""

    def __getattr__(self, name: str) -> NoReturn:
        if name.startswith("__"):
            raise AttributeError(name)  # asked by whoever looks at any object
        raise SessionTorn(
            "an exception from outside met this session while it was changing: begin a new one, with the text you hold"
        )

    def __len__(self) -> int:
        return int(self.length)


TORN: Any = _Torn()
"""In the place of text, ids and seams while they change; whoever meets it meets a change that was interrupted."""


def _common_begin(old: bytes, new: bytes) -> int:
    """How many bytes of whole ids two arrays have in common at their begin."""
    if new.startswith(old):
        return len(old)
    shorter = min(len(old), len(new))
    if shorter <= 8 * ID:
        # The usual case of an append, for which array operations would take most of its time.
        same = 0
        while old[same : same + ID] == new[same : same + ID] != b"":
            same += ID
        return same
    different = np.flatnonzero(np.frombuffer(old[:shorter], UINT32) != np.frombuffer(new[:shorter], UINT32))
    return ID * int(different[0]) if len(different) else shorter
