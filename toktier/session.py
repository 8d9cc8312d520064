"""A growing, edited text whose ids are kept exact by re-encoding only what changed.

The state is the text, its ids, and *seams*: certified cuts, each with the number of ids to its left. To replace
characters, a session takes the nearest seams around them, encodes what now stands between the two, and puts the
ids in the place of the old ones. Because the seams are certified, that is the same as encoding everything.
"""

from __future__ import annotations

import logging
import operator
import sys
import threading
from collections.abc import Callable, Iterable, Sequence
from time import perf_counter_ns
from typing import Any, NamedTuple, NoReturn, SupportsIndex, TypeVar

import numpy as np

from toktier.difference import Hunk, hunks, single_hunk
from toktier.engines.base import UINT32, Engine, Ids, checked, contained
from toktier.errors import SessionInUse, SessionTorn, StateMismatch
from toktier.explanation import Explanation, Step, explained
from toktier.families.family import valid_text
from toktier.idarray import IdArray
from toktier.patch import Patch
from toktier.piecetable import PieceTable
from toktier.planner import LONG, parts
from toktier.router import Route
from toktier.seams import COARSE, Seam, Seams, breaks
from toktier.state import INSTEAD, State, pack, unpack
from toktier.tokenizer import Tokenizer
from toktier.untrusted import Spans, Special, Untrusted, is_text, within

ID = UINT32.itemsize
"""Bytes of an id."""

PIECES = 32
"""Pieces of a text up to which an update leaves them as they are: the next one reads each with one comparison."""

T = TypeVar("T")

logger = logging.getLogger(__name__)


class Change(NamedTuple):
    """The characters from the first position to the second become a text, of which some are untrusted."""

    start: int
    stop: int
    text: str
    untrusted: Spans = ()


class Session:
    """The ids of one text that grows and changes, always equal to the reference's for the whole text.

    ``append`` and ``edit`` cost as much as the change, whatever the length of the text; ``update`` reads the text once,
    at the speed of a memory comparison. An operation that raises leaves the session as it was. What a signal handler
    raises may also come right after the change; in the middle of it, as when memory runs out there, the session
    gives no ids any more rather than wrong ones (:class:`toktier.errors.SessionTorn`). What a session has handed out
    never changes. A session is for one thread at a time: a call that finds another thread at work in it raises.

    On a tokenizer without certified cuts (``tok.family.reason`` says why) everything works, by encoding in full.

    Args:
        tok: The tokenizer.
        text: The text to begin with.
        engine: What encodes, for as long as the session lives: the name of an engine (see :meth:`Tokenizer.engine`), or
            an object that answers to :class:`toktier.engines.base.Engine`.

    Raises:
        TypeError: An argument is of another type.
        InvalidText: The text has a lone surrogate.
        UnknownEngine: There is no engine of that name, or it does not serve this tokenizer.
        ValueError: The engine is another tokenizer's.

    Example:
        >>> import toktier
        >>> tok = toktier.load("toktier-mini")
        >>> session = toktier.Session(tok, "The quick brown fox")
        >>> session.append(" jumps over the lazy dog.")
        Patch(start=..., stop=..., ids=<... ids>, before=...)
        >>> session.edit(4, 9, "slow")
        Patch(start=..., stop=..., ids=<... ids>, before=...)
        >>> session.text
        'The slow brown fox jumps over the lazy dog.'
        >>> session.tolist() == tok.encode(session.text).tolist()
        True
    """

    __slots__ = (
        "_busy",
        "_engine",
        "_epoch",
        "_family",
        "_ids",
        "_last",
        "_list",
        "_meter",
        "_planner",
        "_route",
        "_seams",
        "_table",
        "_tok",
        "_untrusted",
        "_windows",
    )

    def __init__(self, tok: Tokenizer, text: str = "", *, engine: str | Engine = "auto") -> None:
        if not isinstance(tok, Tokenizer):
            raise TypeError(f"tok must be a toktier.Tokenizer, not a {type(tok)}: toktier.load() makes one")
        if not isinstance(engine, (str, Engine)):
            raise TypeError(f"engine must be a name or a toktier.engines.base.Engine, not {engine!r}")
        if getattr(engine, "digest", None) not in {None, tok.family.digest}:
            raise ValueError(f"engine {engine!r} is another tokenizer's, and gives other ids than {tok!r}")
        self._tok, self._family, self._planner, self._meter = tok, tok.family, tok.planner, tok.meter
        self._engine = tok.engine(engine) if isinstance(engine, str) else engine
        self._route = self._engine if isinstance(self._engine, Route) else None
        self._epoch = 0 if self._route is None else self._route.epoch
        self._busy = threading.Lock()
        self._table = PieceTable()
        self._ids = IdArray()
        self._list: list[int] | None = None
        self._seams = Seams()
        self._untrusted = Untrusted()
        self._windows: list[tuple[int, int]] = []
        """What was encoded for the operation in progress: first character and length of each stretch."""
        self._last: tuple[str, list[tuple[int, int]], int, int, int, int] | None = None
        """What :class:`Step` is made of, if anybody asks."""
        if text := valid_text(text):
            began = perf_counter_ns()
            self._done("full" if len(text) < LONG else "planned", self._append(text), 0, began)

    def __len__(self) -> int:
        """The number of ids."""
        return self._looked_up(lambda: len(self._ids))

    def __bool__(self) -> bool:
        """True, also of a session without any ids: it is a session."""
        return True

    def __repr__(self) -> str:
        if self._is_torn:
            return "<toktier.Session that was interrupted while it changed>"
        return f"<toktier.Session {len(self._table)} characters, {len(self._ids)} ids, engine {self._engine.name}>"

    @property
    def text(self) -> str:
        """The whole text. Put together when asked for; once it is, the session shares its memory."""
        self._enter()
        try:
            return self._table.text()
        finally:
            self._busy.release()

    @property
    def untrusted(self) -> Spans:
        """The untrusted characters of the text, as spans ``(start, stop)`` in ascending order."""
        return self._looked_up(lambda: self._untrusted.spans())  # noqa: PLW0108  # another one, once a change is done

    @property
    def ids(self) -> Ids:
        """The ids, a read-only array that never changes; uint32, shape (ids,).

        It shares the session's memory: an operation that would write where it can be seen copies first.
        """
        self._enter()
        try:
            return self._encoded_anew() if self._is_stale else self._ids.view()
        finally:
            self._busy.release()

    @property
    def nbytes(self) -> int:
        """Bytes of text, ids, seams and what keeps them in order. What is shared with a fork counts in both."""
        listed = 0 if self._list is None else sys.getsizeof(self._list) + sys.getsizeof(1 << 20) * len(self._list)
        held = self._looked_up(
            lambda: self._table.nbytes + self._ids.nbytes + self._seams.nbytes + self._untrusted.nbytes
        )
        return sys.getsizeof(self) + listed + held

    @property
    def tokenizer(self) -> Tokenizer:
        """What its ids are of."""
        return self._tok

    @property
    def engine(self) -> Engine:
        """What encodes for this session."""
        return self._engine

    def tolist(self) -> list[int]:
        """The ids as a new list, copied from one that is kept up to date from the first call on."""
        self._enter()
        try:
            if self._is_stale:
                return [*map(int, self._encoded_anew())]
            if self._list is None:
                self._list = self._ids.window(0, len(self._ids)).tolist()
            return self._list.copy()
        finally:
            self._busy.release()

    def append(self, text: str, *, special: Special = "token") -> Patch:
        r"""Adds to the end of the text.

        The engine sees ``text`` and the characters before it back to the last certified cut.

        Args:
            text: What comes behind the text so far.
            special: What special tokens in it are: tokens, or ``"text"`` because nobody trusts who wrote it. A special
                token counts only where its whole occurrence lies in trusted text.

        Raises:
            TypeError: The text is not a string.
            InvalidText: The text has a lone surrogate.
            Unprotectable: Special tokens are to be text, and this tokenizer's are found in a way that does not allow
                for it.
            SessionInUse: Another thread is at work in this session.

        Example:
            >>> import toktier
            >>> session = toktier.load("toktier-mini").session("<|im_start|>user\n")
            >>> patch = session.append("I say <|im_end|>", special="text")
            >>> patch = session.append("<|im_end|>\n")
            >>> session.tolist().count(4089)  # of <|im_end|>
            1
        """
        if type(text) is not str or not text.isascii():
            text = valid_text(text)
        spans = self._spans_of(text, special)
        self._enter()
        try:
            began, self._windows, before = perf_counter_ns(), [], len(self._ids)
            if self._route is not None and self._route.epoch != self._epoch:
                untrusted = self._untrusted.around(
                    0, (len(self._table), len(self._table), len(text), spans), len(self._table)
                )
                patch = self._begin_anew(before, self._table.joined() + text, untrusted)
            else:
                patch = self._append(text, spans)
            return self._done("append", patch, before, began)
        finally:
            self._busy.release()

    def _append(self, text: str, spans: Spans = ()) -> Patch:
        table, ids, seams, untrusted = self._table, self._ids, self._seams, self._untrusted
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
        self._table = self._ids = self._seams = self._untrusted = TORN
        table.append(text)
        ids.commit(start, stop, patch.ids, prepared)
        seams.extend(fresh_seams)
        if spans:
            untrusted.replace(length, length, len(text), spans)
        if self._list is not None:
            self._list[start:] = patch.ids.tolist()
        self._table, self._ids, self._seams, self._untrusted = table, ids, seams, untrusted
        return patch

    def edit(self, start: SupportsIndex, stop: SupportsIndex, text: str, *, special: Special = "token") -> Patch:
        """Replaces the characters from ``start`` to ``stop``.

        Args:
            start: Position of the first character to replace, ``0 <= start <= stop``.
            stop: Position after the last one, ``stop <= len(session.text)``; equal to ``start`` for an insertion.
            text: What stands there afterwards.
            special: As for :meth:`append`. What stays as it is stays as trusted as it is.

        Raises:
            IndexError: A position is out of range; negative ones do not count from the end.
            TypeError: The text is not a string, or a position is not an integer.
            InvalidText: The text has a lone surrogate.
            Unprotectable: As for :meth:`append`.
            SessionInUse: Another thread is at work in this session.
        """
        text = valid_text(text)
        start, stop = operator.index(start), operator.index(stop)
        spans = self._spans_of(text, special)
        self._enter()
        try:
            began, self._windows, before = perf_counter_ns(), [], len(self._ids)
            if not 0 <= start <= stop <= len(self._table):
                raise IndexError(
                    f"edit({start}, {stop}) is out of range: 0 <= start <= stop <= {len(self._table)} characters"
                )
            if self._is_stale:
                old = self._table.joined()
                untrusted = self._untrusted.around(0, (start, stop, len(text), spans), len(old))
                patch = self._begin_anew(before, old[:start] + text + old[stop:], untrusted)
            else:
                patch = self._splice(start, stop, text, spans)
            return self._done("edit", patch, before, began)
        finally:
            self._busy.release()

    def update(self, full_text: str, *, untrusted: Iterable[Sequence[int]] = ()) -> Patch:
        """Makes ``full_text`` the text, whatever changed: finds that out itself.

        For front ends that render the whole transcript on every call, and drop reasoning from old turns, shorten
        old tool results or replace the generation prompt on the way. What is encoded is what changed, in however many
        places; the patch is one all the same, from the first of them to the last.

        Args:
            full_text: The whole text.
            untrusted: Spans ``(start, stop)`` of its characters that may be no part of a special token; all others are
                trusted, whatever they were before.

        Raises:
            TypeError: The text is not a string, or the spans are none.
            IndexError: A span does not lie in the text.
            InvalidText: The text has a lone surrogate.
            Unprotectable: As for :meth:`append`.
            SessionInUse: Another thread is at work in this session.
        """
        if type(full_text) is not str:
            full_text = valid_text(full_text)
        spans = self._tok.untrusted_spans(untrusted, len(full_text))
        self._enter()
        try:
            began = perf_counter_ns()
            return self._change(self._changes(full_text, spans), full_text, spans, began)
        finally:
            self._busy.release()

    def _spans_of(self, text: str, special: Special) -> Spans:
        if special == "token" or not is_text(special):
            return ()
        return self._tok.untrusted_spans([(0, len(text))], len(text))

    def _changes(self, full_text: str, spans: Spans) -> list[Change]:
        """What makes a text of this one, as edits in ascending order; they are valid."""
        found: list[Hunk] = []
        for hunk in self._differing(hunks(self._table, full_text), full_text, spans):
            # Without a seam between two of them they would be encoded together, twice.
            if found and self._seams.find(found[-1].stop + 1) == self._seams.find(hunk.start):
                hunk = Hunk(found[-1].start, hunk.stop, found.pop().begin, hunk.end)  # noqa: PLW2901
            found.append(hunk)
        return [self._change_of(hunk, full_text, spans) for hunk in found]

    def _differing(self, found: list[Hunk], full_text: str, spans: Spans) -> list[Hunk]:
        """The hunks of a text, with what is the same and is trusted in another way."""
        if not spans and not self._untrusted:
            return found
        return self._untrusted.differing(spans, found, len(self._table), len(full_text))

    @staticmethod
    def _change_of(hunk: Hunk, full_text: str, spans: Spans) -> Change:
        text = valid_text(full_text[hunk.begin : hunk.end], before=hunk.begin)
        return Change(hunk.start, hunk.stop, text, within(spans, hunk.begin, hunk.end) if spans else ())

    def _small_changes(self, full_text: str, spans: Spans, most: int) -> list[Change] | None:
        """The same, if there is at most one change and few characters would be encoded for it; None if that is more."""
        if self._is_stale:
            return None
        single = single_hunk(self._table, full_text)
        found = self._differing([] if single is None else [single], full_text, spans)
        if not found:
            return []
        hunk = found[0]
        if len(found) > 1:
            return None
        positions = self._seams
        left = positions[max(positions.find(hunk.start) - 1, 0)][0]
        behind = positions.find(hunk.stop + 1)
        right = positions[behind][0] if behind < len(positions) else len(self._table)
        if hunk.end - hunk.begin + right - left > most:
            return None
        return [self._change_of(hunk, full_text, spans)]

    def _change(self, changes: list[Change], full_text: str, spans: Spans, began: int) -> Patch:
        """Makes changes, which give a text with untrusted spans, as an update that began at a time in nanoseconds."""
        self._windows, before = [], len(self._ids)
        if self._is_stale:
            patch = self._begin_anew(before, full_text, spans)
        elif len(changes) > 1:
            patch = self._splice_all(changes)
        else:
            patch = self._splice(*changes[0]) if changes else self._splice(0, 0, "")
        if self._table.pieces > PIECES:
            self._table.replace_source(full_text)
        return self._done("update", patch, before, began)

    def explain(self) -> Explanation:
        """What the last operation did and why: a dictionary of facts, and one line for people as its ``str()``.

        Example:
            >>> import toktier
            >>> session = toktier.load("toktier-mini").session("The quick brown fox", engine="memo")
            >>> patch = session.append(" jumps over")
            >>> print(session.explain())
            append: 11 of 30 characters encoded, from the certified cut at 19 on by memo; 4 ids replace 0; ... ms
            >>> session.explain()["reused"]
            19
        """
        return self._looked_up(self._explanation)

    def _explanation(self) -> Explanation:
        if self._last is None:
            return Explanation(call="none", why="nothing was called yet")
        step = Step(*self._last)
        windows = step.windows
        fallback = None if self._family.reason is None else f"no certified cuts: {self._family.reason}"
        if self._route is not None and len(windows) == 1 and fallback is None:
            start, size = windows[0]
            stop = min(start + size, len(self._table))
            window, spans = self._table.slice(start, stop), self._untrusted.within(start, stop)
            if spans and self._tok.protection.is_forged(window, spans):
                fallback = "the reference in its place, around special tokens in untrusted text"
            else:
                fallback = self._route.fallback(window)
        return explained(step, len(self._table), self._engine.name, fallback)

    def to_bytes(self) -> bytes:
        """The state of this session, to be kept or sent: some 8 bytes an id for English text.

        Example:
            >>> import toktier
            >>> tok = toktier.load("toktier-mini")
            >>> data = toktier.Session(tok, "to be continued").to_bytes()
            >>> toktier.Session.from_bytes(tok, data).text
            'to be continued'
        """
        self._enter()
        try:
            packed = self
            if self._is_stale:
                # The patch that replaces all ids is for the next operation to return: this session stays as it is.
                packed = self._forked()
                packed._begin_anew(0, self._table.joined(), self._untrusted.spans())
            ids, seams = packed._ids.window(0, len(packed._ids)), packed._seams.arrays()
            state = State(packed._table.joined(), ids, *seams, packed._untrusted.array())
            return pack(state, self._family.digest)
        finally:
            self._busy.release()

    @classmethod
    def from_bytes(
        cls, tok: Tokenizer, data: bytes | bytearray | memoryview, *, engine: str | Engine = "auto"
    ) -> Session:
        """A session in the state that :meth:`to_bytes` gave.

        Args:
            tok: The tokenizer; it may have been loaded from another file, or in another process.
            data: The state.
            engine: As for a new session.

        Raises:
            StateMismatch: The state is damaged, of another tokenizer or of another version; the message says which.
            UnknownEngine: There is no engine of that name, or it does not serve this tokenizer.
        """
        session = cls(tok, engine=engine)
        state = unpack(data, tok.family.digest)
        session._table.replace_source(state.text)
        session._ids.splice(0, 0, state.ids)
        session._seams = Seams.of(state.positions, state.counts)
        session._untrusted = Untrusted.of(state.untrusted)
        # Of another version of this library, which knew another relation, they need not be certified.
        for position in state.positions[1:].tolist():
            if position < len(state.text) and not tok.family.is_cut(state.text, position, continuation=True):
                raise StateMismatch(f"the seam of the state at {position} is no certified cut; {INSTEAD}")
        return session

    def fork(self) -> Session:
        """An independent session with the same state; ids and strings are shared until one of the two changes them."""
        self._enter()
        try:
            return self._forked()
        finally:
            self._busy.release()

    def _forked(self) -> Session:
        other = object.__new__(Session)
        other._tok, other._family, other._planner = self._tok, self._family, self._planner
        other._engine, other._untrusted = self._engine, self._untrusted.copy()
        other._meter, other._route, other._epoch = self._meter, self._route, self._epoch
        other._busy, other._windows, other._last = threading.Lock(), [], self._last
        other._table, other._ids, other._seams = self._table.copy(), self._ids.fork(), self._seams.copy()
        other._list = None if self._list is None else self._list.copy()
        return other

    def __copy__(self) -> Session:
        return self.fork()

    def __deepcopy__(self, memo: object) -> Session:
        return self.fork()

    def _splice(self, start: int, stop: int, text: str, spans: Spans = ()) -> Patch:
        """Replaces characters. As in an append, everything is computed before anything changes."""
        table, ids, seams, untrusted = self._table, self._ids, self._seams, self._untrusted
        length, last = len(table), len(seams)
        if start == length or (start == stop and not text):
            return self._append(text, spans)
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
        self._table = self._ids = self._seams = self._untrusted = TORN
        table.splice(start, stop, text)
        ids.commit(patch.start, patch.stop, patch.ids, prepared)
        # When nothing is left between the two seams, they are one.
        seams.replace(kept, rest + (not window), fresh_seams, shift, ids_shift)
        untrusted.replace(*change)
        if self._list is not None:
            self._list[patch.start : patch.stop] = patch.ids.tolist()
        self._table, self._ids, self._seams, self._untrusted = table, ids, seams, untrusted
        return patch

    def _may_stand_behind(self, before: str, after: str, seam: int) -> bool:
        """Whether the ids behind a seam stay what they are when other text, or none, comes to stand before it."""
        if self._family.prefixed and (before == "") != (seam == 0):
            return False  # one of the two is the begin of a text, and has a prefix
        return not before or self._family.is_pair(before, after)

    def _splice_all(self, changes: list[Change]) -> Patch:
        """Several changes, in ascending order and apart from one another, as one operation."""
        # On a fork, so that an engine that fails in the middle leaves this session alone; from right to left, so that
        # the positions of the changes to come stay what they are.
        draft, length = self._forked(), len(self._ids)
        start = same_at_end = length
        for change in reversed(changes):
            ids_before = len(draft._ids)
            patch = draft._splice(*change)
            start = min(start, patch.start)
            same_at_end = min(same_at_end, ids_before - patch.stop)
        fresh = draft._ids.window(start, len(draft._ids) - same_at_end).tobytes()
        self._replace_by(draft)
        return Patch(start, length - same_at_end, np.frombuffer(fresh, UINT32), length)

    def _begin_anew(self, before: int, text: str, spans: Spans) -> Patch:
        """Makes something the text and encodes all of it, since an engine that was trusted before is trusted no more.

        Args:
            before: How many ids there were before the operation, all of which the patch replaces.
            text: The text.
            spans: Its untrusted characters.
        """
        assert self._route is not None
        draft, epoch = self._forked(), self._route.epoch
        draft._table, draft._ids, draft._seams, draft._list = PieceTable(), IdArray(), Seams(), None
        draft._untrusted = Untrusted()
        draft._append(text, spans)
        self._replace_by(draft)
        self._epoch = epoch
        return Patch(0, before, np.frombuffer(self._ids.window(0, len(self._ids)).tobytes(), UINT32), before)

    def _encoded_anew(self) -> Ids:
        """The ids for whoever reads them before the next operation, which is the one that says what changed."""
        text, spans = self._table.joined(), self._untrusted.spans()
        if spans:
            ids = self._tok.protection.encode(text, spans, self._engine)
        else:
            ids = checked(self._engine, self._planner.encode(text, self._engine))
        return np.frombuffer(ids.tobytes(), UINT32)  # nobody can write to it, whatever the engine does with its own

    def _replace_by(self, draft: Session) -> None:
        listed = draft._list
        self._table = self._ids = self._seams = self._untrusted = TORN
        self._list = listed
        self._windows += draft._windows
        self._table, self._ids, self._seams = draft._table, draft._ids, draft._seams
        self._untrusted = draft._untrusted

    def _looked_up(self, look: Callable[[], T]) -> T:
        """What can be looked at without waiting, unless another thread is in the middle of a change."""
        try:
            return look()
        except SessionTorn:
            self._enter()
            try:
                return look()  # it was that thread's change, which is done
            finally:
                self._busy.release()

    def _enter(self) -> None:
        if not self._busy.acquire(blocking=False):
            raise SessionInUse(IN_USE)

    def _done(self, call: str, patch: Patch, before: int, began: int) -> Patch:
        """Ends an operation: looks whether the engine is trusted still, and takes note."""
        if self._route is not None and self._route.epoch != self._epoch:
            try:
                patch = self._begin_anew(before, self._table.joined(), self._untrusted.spans())
            except BaseException as error:
                if not contained(error):
                    raise
                # The change is made, and cannot be taken back. The session stays stale: whoever reads its ids has them
                # encoded anew, and the next operation's patch replaces all of these.
                logger.warning(
                    "a session could not be encoded anew, which is tried again with its next call: %r", error
                )
        took = perf_counter_ns() - began
        windows, self._windows = self._windows, []
        self._last = call, windows, patch.start, patch.stop, len(patch.ids), took
        encoded = windows[0][1] if len(windows) == 1 else sum([size for _, size in windows])
        length, meter = len(self._table), self._meter
        meter.count(call, self._engine.name, length, encoded, took)
        watcher = meter.watcher
        if watcher is not None and watcher.is_due(length):
            text, spans = self._table.copy().joined, self._untrusted.spans()
            watcher.offer(call, self._engine, length, text, self._ids.view(), untrusted=spans)
        return patch

    @property
    def _is_stale(self) -> bool:
        """Whether its ids are of an engine that is trusted no more."""
        return self._route is not None and self._route.epoch != self._epoch

    @property
    def _is_left_behind(self) -> bool:
        """Whether a call was interrupted in it: asked by who knows that nobody is at work in it now."""
        return self._is_torn or self._busy.locked()

    @property
    def _is_torn(self) -> bool:
        return self._table is TORN

    def _encode(
        self, window: str, left: Seam, fresh_seams: list[Seam], untrusted: Spans, *, to_end: bool, coarse: bool
    ) -> bytes:
        """The ids of a window of the text that begins at a seam; the seams inside it are added to a list.

        Returns:
            The ids as the bytes of an array of uint32: a copy, since the engine may go on using its arrays, and one
            that nobody can write to.
        """
        engine, (before, count) = self._engine, left
        self._windows.append((before, len(window)))
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


IN_USE = "another thread is at work in this session: give each thread its fork(), or share a toktier.SessionStore"


class _Torn:
    """What is left of a session that was interrupted while it was changing."""

    def __getattr__(self, name: str) -> NoReturn:
        if name.startswith("__"):
            raise AttributeError(name)  # asked by whoever looks at any object
        raise SessionTorn(
            "an exception from outside met this session while it was changing: begin a new one, with the text you hold"
        )

    def __len__(self) -> int:
        return int(self.length)


TORN: Any = _Torn()
"""In the place of text, ids and seams while they change; whoever meets it meets a session that was interrupted."""


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
