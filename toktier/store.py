"""Many sessions in bounded memory: by name, or found by the prefix that they share with a text.

What is stored only ever saves work. A session that went, that is resumed from an old state, or that turns out to have
another text gives the right ids all the same, because every call brings its session to the text that it was given.
"""

from __future__ import annotations

import asyncio
import functools
import itertools
import os
import sys
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from time import perf_counter_ns
from types import TracebackType
from typing import Any, cast, overload

import numpy as np
from attrs import define, evolve, field

from toktier.engines.base import Engine, Ids, checked
from toktier.errors import StateMismatch
from toktier.explanation import Explanation
from toktier.families.family import valid_text
from toktier.patch import Patch
from toktier.prefixes import SHORTEST
from toktier.router import demotions
from toktier.saver import Saver
from toktier.session import Change, Session
from toktier.shelf import Entry, Key, Shelf, Usage, trying
from toktier.tokenizer import Tokenizer
from toktier.untrusted import Spans, checked_spans

SHORT_SHARE = 16
"""What part of its bytes a store may use for texts that are too short to be looked for by their prefixes."""

NEAR = 8192
"""Characters: a text without a name takes the place of a stored one if no more of that are lost."""

INLINE = 16384
"""Characters of a change up to which a call does not leave the event loop."""

FEW = 64
"""Untrusted spans with which a call does not leave the event loop."""

WAITING = 32
"""Calls of :meth:`SessionStore.encode_async` that other threads work on at a time."""


@define
class _Turn:
    """The calls of an event loop for one session: one has its turn, and the others wait."""

    lock: asyncio.Lock = field(factory=asyncio.Lock)
    calls: int = 0


class SessionStore:
    r"""Sessions of many conversations, in a budget of bytes. Safe to share between threads.

    Calls for one session wait for one another; calls for different ones run in parallel.

    Args:
        tok: The tokenizer.
        max_bytes: What all sessions together may hold. Beyond that, those that were not used for longest go. Sessions
            that are in use stay meanwhile.
        ttl: Seconds after which a session that was not used goes.
        engine: What encodes; see :meth:`Tokenizer.engine`.
        path: A file for sessions that go, and for those that are idle, from which they are resumed, also by the next
            process. Not given: they are forgotten. Only named sessions are saved.

    Raises:
        TypeError: An argument is of another type.
        ValueError: A limit is not positive, or the engine is another tokenizer's.
        UnknownEngine: There is no engine of that name, or it does not serve this tokenizer.
        StateMismatch: The file is something else.
        OSError: The file cannot be opened.

    Example:
        >>> import toktier
        >>> tok = toktier.load("toktier-mini")
        >>> store = toktier.SessionStore(tok, max_bytes=1 << 28)
        >>> ids = store.encode("<|im_start|>user\nHello", session="chat-42")
        >>> ids = store.encode("<|im_start|>user\nHello there<|im_end|>\n", session="chat-42")
        >>> ids.tolist() == tok.encode("<|im_start|>user\nHello there<|im_end|>\n").tolist()
        True
        >>> store.usage().continued
        1
    """

    def __init__(
        self,
        tok: Tokenizer,
        *,
        max_bytes: int = 1 << 30,
        ttl: float = 3600.0,
        engine: str | Engine = "auto",
        path: str | os.PathLike[str] | None = None,
    ) -> None:
        for name, limit, kinds in (("max_bytes", max_bytes, int), ("ttl", ttl, (int, float))):
            if not isinstance(limit, kinds) or isinstance(limit, bool):
                what = "an int" if kinds is int else "a number of seconds"
                raise TypeError(f"{name} must be {what}, not {limit!r}")
            if not limit > 0:
                raise ValueError(f"{name} must be positive, not {limit}")
        Session(tok, engine=engine)  # says what is wrong with these two
        self._tok, self._engine, self._max_bytes, self._ttl = tok, engine, max_bytes, ttl
        self._saver = None if path is None else Saver(path, tok.family.digest)
        # What is too short for the shelf has a place of its own, out of the same budget.
        self._shelf = Shelf(max_bytes - max_bytes // SHORT_SHARE, ttl, self._save)
        self._short: OrderedDict[tuple[str, str, Spans], tuple[bytes, float]] = OrderedDict()
        """The ids of short texts, by salt, text and what of it is untrusted, and when they were last asked for."""
        self._short_bytes, self._trusted = 0, self._demotions()
        self._lock = threading.Lock()
        self._numbers = itertools.count()
        self._threads: ThreadPoolExecutor | None = None
        self._turns: dict[asyncio.AbstractEventLoop, dict[Key, _Turn]] = {}
        """By event loop and session: whose turn it is. Calls for one session wait here, and not in the threads."""
        self._latest: Key | Explanation | None = None
        """The last call: of which session it was, or what it did."""
        self._closed = False
        if self._saver is not None:
            self._saver.look_after(self._shelf)

    @property
    def tokenizer(self) -> Tokenizer:
        """What its sessions are of."""
        return self._tok

    @property
    def max_bytes(self) -> int:
        """What all sessions together may hold."""
        return self._max_bytes

    def __len__(self) -> int:
        """The number of sessions in memory."""
        return len(self._shelf)

    def __bool__(self) -> bool:
        """True, also of a store that has no session yet: it is a store."""
        return True

    def __repr__(self) -> str:
        usage = self.usage()
        return f"<toktier.SessionStore {usage.sessions:,} sessions, {usage.nbytes:,} of {self._max_bytes:,} bytes>"

    @overload
    def encode(
        self, text: str, *, session: str | None = None, salt: str = "", untrusted: Iterable[Sequence[int]] = ()
    ) -> Ids: ...

    @overload
    def encode(
        self, text: str, *, session: str, salt: str = "", untrusted: Iterable[Sequence[int]] = (), patch: bool
    ) -> tuple[Ids, Patch]: ...

    def encode(
        self,
        text: str,
        *,
        session: str | None = None,
        salt: str = "",
        untrusted: Iterable[Sequence[int]] = (),
        patch: bool = False,
    ) -> Ids | tuple[Ids, Patch]:
        """The ids of a text, by way of the session that has most of it already.

        Args:
            text: The whole text, such as the transcript so far.
            session: The name of the session that it continues. Without one, the stored text that has the longest
                prefix in common with it is looked for.
            salt: Separates tenants: what was stored under one salt is never found through another.
            untrusted: Spans ``(start, stop)`` of characters that may be no part of a special token: where one stands
                there, it is text. All others are trusted.
            patch: Whether to return the patch as well, which says what changed since the last call for this session,
                also if nobody waited for what that returned.

        Returns:
            The ids, read-only; uint32, shape (ids,). They never change. With ``patch``, also the patch. Where the store
            has no state of the session in memory, or its engine was demoted at the last moment, its ``before`` is None:
            it has all ids, and replaces whatever copy of them there is.

        Raises:
            TypeError: An argument is of another type, or a patch is asked for without a session.
            ValueError: The name of the session is empty.
            IndexError: An untrusted span does not lie in the text.
            Unprotectable: There are untrusted characters, and special tokens of this tokenizer are found in a way that
                cannot heed them.
            InvalidText: The text has a lone surrogate; nothing has changed.
            RuntimeError: The store is closed.
        """
        text = self._checked(text, session, salt, patch=patch)
        spans = self._tok.untrusted_spans(untrusted, len(text))
        if session is None:
            return self._by_content(text, salt, spans)
        with self._shelf.using(Key(salt, session)) as entry, entry.lock:
            done = self._bring(entry, text, spans, "session")
        return done if patch else done[0]

    @overload
    async def encode_async(
        self, text: str, *, session: str | None = None, salt: str = "", untrusted: Iterable[Sequence[int]] = ()
    ) -> Ids: ...

    @overload
    async def encode_async(
        self, text: str, *, session: str, salt: str = "", untrusted: Iterable[Sequence[int]] = (), patch: bool
    ) -> tuple[Ids, Patch]: ...

    async def encode_async(
        self,
        text: str,
        *,
        session: str | None = None,
        salt: str = "",
        untrusted: Iterable[Sequence[int]] = (),
        patch: bool = False,
    ) -> Ids | tuple[Ids, Patch]:
        """The same as :meth:`encode`, for an event loop.

        What changes no more than some thousand characters of a session in memory is done at once: another thread would
        take longer to be woken. Everything else is done by another thread, and awaited.
        """
        text = self._checked(text, session, salt, patch=patch)
        spans = checked_spans(untrusted, len(text))
        if spans and not self._tok.heeds_untrusted:  # what does has to be made once, which takes a while
            await self._elsewhere(functools.partial(self._tok.untrusted_spans, spans, len(text)))
        if session is None:
            if len(text) < SHORTEST and (known := self._remembered(text, salt, spans)) is not None:
                return known
            return cast(Ids, await self._elsewhere(functools.partial(self.encode, text, salt=salt, untrusted=spans)))
        key = Key(salt, session)
        if len(spans) <= FEW and (done := self._at_once(key, text, spans)) is not None:
            return done if patch else done[0]
        call: Callable[[], Ids | tuple[Ids, Patch]]
        call = functools.partial(self.encode, text, session=session, salt=salt, untrusted=spans, patch=patch)
        # One thread at most for one session, so that the others' calls find threads that are free.
        loop = asyncio.get_running_loop()
        if loop not in self._turns:
            # Turns of loops that were closed in the middle never end. Keys are no weak ones: a turn refers to its loop.
            for other in list(self._turns):
                if other.is_closed():
                    self._turns.pop(other, None)
        which = loop, key
        turn = self._turns.setdefault(loop, {}).setdefault(key, _Turn())
        turn.calls += 1
        try:
            await turn.lock.acquire()
        except BaseException:
            self._leave_turn(which, turn)
            raise
        try:
            working = self._elsewhere(call)
        except BaseException:
            self._end_turn(which, turn)
            raise
        # A call that is cancelled is done all the same: until then, nobody else's turn has come.
        working.add_done_callback(functools.partial(self._end_turn, which, turn))
        return cast("Ids | tuple[Ids, Patch]", await asyncio.shield(working))

    def _end_turn(
        self, which: tuple[asyncio.AbstractEventLoop, Key], turn: _Turn, done: asyncio.Future[Any] | None = None
    ) -> None:
        turn.lock.release()
        self._leave_turn(which, turn)

    def _leave_turn(self, which: tuple[asyncio.AbstractEventLoop, Key], turn: _Turn) -> None:
        turn.calls -= 1
        loop, key = which
        if not turn.calls and (turns := self._turns.get(loop)) is not None:
            turns.pop(key, None)
            if not turns:
                self._turns.pop(loop, None)

    def _elsewhere(self, call: Callable[[], Any]) -> asyncio.Future[Any]:
        """What another thread returns for a call."""
        with self._lock:
            self._threads = self._threads or ThreadPoolExecutor(WAITING, "toktier store")
        return asyncio.get_running_loop().run_in_executor(self._threads, call)

    def forget(self, session: str, *, salt: str = "") -> None:
        """Drops a session, in memory and on disk, if there is one.

        Raises:
            TypeError: The name or the salt is no string.
        """
        if session is None:
            raise TypeError("session must be a str, not None: sessions without a name are not forgotten one by one")
        self._checked("", session, salt, patch=False)
        key = Key(salt, session)
        with self._shelf.using(key) as entry, entry.lock:
            self._shelf.clear(entry)
            if self._saver is not None:
                self._saver.remove(key)

    def usage(self) -> Usage:
        """What the store holds, and what its calls met so far."""
        self._expire_short()
        self._tidy()
        usage = self._shelf.usage()
        return evolve(usage, nbytes=usage.nbytes + self._short_bytes)

    def lookups(self) -> dict[tuple[str, str], int]:
        """How often something was looked for, by what it was and what came of it.

        Returns:
            Counts by kind (a ``"session"`` by name, a text by its ``"content"``, a short ``"text"``) and result (the
            names of :class:`Usage`).
        """
        return {key: count for key, count in self._shelf.counts().items() if key[0]}

    def explain(self, session: str | None = None, *, salt: str = "") -> Explanation:
        """What the last call did and why; of all calls, or of those for one session.

        Args:
            session: The name of a session.
            salt: As it was for the call.

        Returns:
            A dictionary of facts; its ``str()`` is one line for people.

        Example:
            >>> import toktier
            >>> store = toktier.SessionStore(toktier.load("toktier-mini"), engine="memo")
            >>> ids = store.encode("A transcript", session="chat-42")
            >>> ids = store.encode("A transcript that grows", session="chat-42")
            >>> print(store.explain())
            update: session continued; 11 of 23 characters encoded, from the certified cut at 12 on by memo; ... ms
        """
        if session is not None and not isinstance(session, str):
            raise TypeError(f"session must be a str, not {type(session).__name__}")
        key = self._latest if session is None else Key(salt, session)
        if isinstance(key, Explanation):
            return key
        if key is not None:
            with self._shelf.holding(key) as entry:
                if entry is not None:
                    with entry.lock:
                        if entry.session is not None:
                            explanation = entry.session.explain()
                            why = f"session {entry.met}; {explanation['why']}"
                            return Explanation(explanation | {"met": entry.met, "why": why})
        why = "there was no call yet" if key is None else f"there is no session {key.name!r} in memory"
        return Explanation(call="none", met=None, why=why)

    def flush(self) -> None:
        """Saves all named sessions, as far as the disk does not have them as they are.

        Raises:
            OSError: Some could not be saved: the file was given up, or is kept busy by another process.
        """
        if self._saver is not None:
            self._saver.save_all(self._shelf)
            left = self._shelf.usage().unsaved
            if left and not self._saver.works:
                raise OSError(f"{left} sessions are not saved: the file was given up, and the log says why")
            if left:
                raise OSError(f"{left} sessions are not saved: they are in use, or the file is kept busy; flush again")

    def close(self) -> None:
        """Saves what is to be saved, and closes the file. Every call for the store raises from then on."""
        self._closed = True
        if self._threads is not None:
            self._threads.shutdown()
        if self._saver is not None:
            self._saver.close(self._shelf)

    def __enter__(self) -> SessionStore:
        return self

    async def __aenter__(self) -> SessionStore:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await asyncio.get_running_loop().run_in_executor(None, self.close)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def _at_once(self, key: Key, text: str, spans: Spans) -> tuple[Ids, Patch] | None:
        """What :meth:`encode` returns, if that is a matter of microseconds."""
        began = perf_counter_ns()
        with self._shelf.using(key, sweep=False) as entry, trying(entry.lock) as is_free:
            session = entry.session
            if not is_free or session is None or session._is_left_behind:
                return None
            # The length alone shows most of what is too much, before any comparison.
            if abs(len(text) - len(session._table)) > INLINE:
                return None
            changes = session._small_changes(text, spans, INLINE)
            done = None if changes is None else self._change(entry, changes, text, spans, began, kind="session")
        self._tidy()
        return done

    def _tidy(self) -> None:
        """Has what has to go let go of; by another thread where that means saving it."""
        if self._shelf.has_surplus():
            if self._saver is None:
                self._shelf.sweep()
            else:
                self._saver.wake()

    def _bring(self, entry: Entry, text: str, spans: Spans, kind: str) -> tuple[Ids, Patch]:
        """Brings a session to a text. The caller holds its lock."""
        began = perf_counter_ns()
        if entry.session is not None and entry.session._is_left_behind:
            self._shelf.clear(entry)
        if entry.session is not None:
            return self._change(entry, entry.session._changes(text, spans), text, spans, began, kind=kind)
        session, met = self._resumed(entry.key), "resumed"
        if session is None:
            session, met = self._forked(text, entry.key.salt), "shared"
        if session is None:
            session, met = Session(self._tok, "" if spans else text, engine=self._engine), "started"
        if spans or met != "started":
            session.update(text, untrusted=spans)
        entry.session, entry.met = session, met
        self._note(entry, kind, 0, text)
        ids = session.ids
        return ids, Patch(0, 0, ids, None)

    def _change(
        self, entry: Entry, changes: list[Change], text: str, spans: Spans, began: int, *, kind: str
    ) -> tuple[Ids, Patch]:
        """Makes changes to a session. The caller holds its lock."""
        session = entry.session
        assert session is not None
        try:
            patch = session._change(changes, text, spans, began)
        except BaseException:
            if session._is_torn:
                self._shelf.clear(entry)  # the next call begins anew
            raise
        entry.met = "continued"
        self._note(entry, kind, changes[0].start if changes else len(text), text)
        # Those that the patch leads to, also if they are trusted no more in the next moment. If they are not now, the
        # patch is of no use either; the session's next one replaces all ids again.
        ids = session._ids.view()
        if session._is_stale:
            ids = session.ids
            patch = Patch(0, 0, ids, None)
        return ids, patch

    def _note(self, entry: Entry, kind: str, unchanged: int, text: str) -> None:
        self._shelf.settle(entry, unchanged, text)
        self._shelf.count(kind, entry.met)
        self._latest = entry.key

    def _by_content(self, text: str, salt: str, spans: Spans) -> Ids:
        """The ids of a text that belongs to no session known by name."""
        if len(text) < SHORTEST:
            return self._repeated(valid_text(text), salt, spans)
        with self._shelf.donor(text, salt) as found:
            if found is not None and isinstance(found[0].key.name, int):
                donor, common = found
                with self._shelf.using(donor.key) as entry, trying(entry.lock) as is_free:
                    # What is lost is an end that nobody continued, or that is soon encoded again.
                    if is_free and entry.session is not None and len(entry.session._table) - common <= NEAR:
                        return self._bring(entry, text, spans, "content")[0]
        with self._shelf.using(Key(salt, next(self._numbers))) as entry, entry.lock:
            return self._bring(entry, text, spans, "content")[0]

    def _repeated(self, text: str, salt: str, spans: Spans) -> Ids:
        """The ids of a short text, from the table of those or for it."""
        self._tidy()
        if (ids := self._remembered(text, salt, spans)) is not None:
            return ids
        engine = self._tok.engine(self._engine) if isinstance(self._engine, str) else self._engine
        began, trusted = perf_counter_ns(), self._demotions()
        if spans:
            known = self._tok.protection.encode(text, spans, engine).tobytes()
        else:
            known = checked(engine, engine.encode(text)).tobytes()
        if self._demotions() != trusted:  # meanwhile: the engine is another one now
            return self._repeated(text, salt, spans)
        ids = np.frombuffer(known, np.uint32)
        took = perf_counter_ns() - began
        self._tok.meter.count("full", engine.name, len(text), len(text), took)
        watcher = self._tok.meter.watcher
        if watcher is not None and watcher.is_due(len(text)):
            watcher.offer("full", engine, len(text), text.__str__, ids, untrusted=spans)
        self._shelf.count("text", "started")
        why = f"text started; all of {len(text):,} characters encoded by {engine.name}; {took / 1e6:,.3f} ms"
        self._latest = Explanation(call="full", met="started", characters=len(text), encoded=len(text), why=why)
        with self._lock:
            if (salt, text, spans) not in self._short and trusted == self._trusted:
                self._short[salt, text, spans] = known, time.monotonic()
                self._short_bytes += _short_size(salt, text, spans, known)
            while self._short_bytes > self._max_bytes // SHORT_SHARE:
                self._drop_oldest()
        return ids

    def _remembered(self, text: str, salt: str, spans: Spans) -> Ids | None:
        """The ids of a short text, if they are in the table."""
        self._look_for_demotions()
        self._expire_short()
        with self._lock:
            known = self._short.get((salt, text, spans))
            if known is None:
                return None
            self._short[salt, text, spans] = known[0], time.monotonic()
            self._short.move_to_end((salt, text, spans))
        self._shelf.count("text", "repeated")
        why = f"text repeated; none of {len(text):,} characters encoded"
        self._latest = Explanation(call="full", met="repeated", characters=len(text), encoded=0, why=why)
        return np.frombuffer(known[0], np.uint32)

    def _look_for_demotions(self) -> None:
        """Forgets short texts that may be of an engine that was demoted meanwhile.

        Sessions see to that themselves, and the saver to what is on disk: for a short text nobody waits for that.
        """
        count = self._demotions()
        if count != self._trusted:
            with self._lock:
                self._short.clear()
                self._short_bytes, self._trusted = 0, count

    def _demotions(self) -> int:
        return demotions.count(self._tok.family.digest)

    def _expire_short(self) -> None:
        limit = time.monotonic() - self._ttl
        with self._lock:
            while self._short and next(iter(self._short.values()))[1] < limit:
                self._drop_oldest()

    def _drop_oldest(self) -> None:
        (salt, text, spans), (ids, _) = self._short.popitem(last=False)
        self._short_bytes -= _short_size(salt, text, spans, ids)

    def _forked(self, text: str, salt: str) -> Session | None:
        """A session like the stored one that has the longest prefix in common with a text, if there is any."""
        with self._shelf.donor(text, salt) as found:
            if found is None:
                return None
            with trying(found[0].lock) as is_free:
                session = found[0].session
                return session.fork() if is_free and session is not None and not session._is_left_behind else None

    def _resumed(self, key: Key) -> Session | None:
        """A session from the disk, if that has one."""
        count = self._demotions()
        data = None if self._saver is None else self._saver.load(key, self._shelf)
        if data is None:
            return None
        try:
            session = Session.from_bytes(self._tok, data, engine=self._engine)
            # A new session trusts its engine as of now: whatever was demoted since before the ids were read counts.
            return session if self._demotions() == count else None
        except StateMismatch:  # of another tokenizer, or of another version of this library
            return None

    def _save(self, entry: Entry) -> None:
        """Saves a session that goes; the caller holds its lock."""
        if self._saver is not None:
            self._saver.save(entry, self._shelf)

    def _checked(self, text: str, session: object, salt: object, *, patch: bool) -> str:
        if self._closed:
            raise RuntimeError("the store is closed: make a new one, on the same path to go on with what was saved")
        if session is not None and not isinstance(session, str):
            raise TypeError(f"session must be a str, not {type(session).__name__}")
        if session == "":
            raise ValueError("the name of a session must not be empty; without one, leave session out")
        if not isinstance(salt, str):
            raise TypeError(f"salt must be a str, not {type(salt).__name__}")
        if patch and session is None:
            raise TypeError("a patch says what changed in a session: name one")
        # Whether it is valid is seen where it is new: reading all of it would be half of the time.
        return text if type(text) is str else valid_text(text)


def _short_size(salt: str, text: str, spans: Spans, ids: bytes) -> int:
    return 400 + sys.getsizeof(salt) + sys.getsizeof(text) + 120 * len(spans) + len(ids)
