"""Many sessions in bounded memory: by name, or found by the prefix that they share with a text.

What is stored only ever saves work. A session that went, that is resumed from an old state, or that turns out to have
another text gives the right ids all the same, because every call brings its session to the text that it was given.
"""

from __future__ import annotations

import asyncio
import functools
import itertools
import os
import threading
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType
from typing import Any, overload

import numpy as np
from attrs import evolve

from toktier.engines.base import Engine, Ids
from toktier.errors import StateMismatch
from toktier.families.family import valid_text
from toktier.prefixes import SHORTEST
from toktier.saver import Saver
from toktier.session import Change, Patch, Session
from toktier.shelf import Entry, Key, Shelf, Usage
from toktier.tokenizer import Tokenizer

SHORT_SHARE = 16
"""What part of its bytes a store may use for texts that are too short to be looked for by their prefixes."""

NEAR = 8192
"""Characters: a text without a name takes the place of a stored one if no more of that are lost."""

INLINE = 16384
"""Characters of a change up to which a call does not leave the event loop."""

WAITING = 32
"""Calls of :meth:`SessionStore.encode_async` that other threads work on at a time."""


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
        ValueError: A limit is not positive.
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
        if not (max_bytes > 0 and ttl > 0):
            raise ValueError(f"max_bytes and ttl must be positive, not {max_bytes} and {ttl}")
        Session(tok, engine=engine)  # says what is wrong with these two
        self._tok, self._engine, self._max_bytes = tok, engine, max_bytes
        self._saver = None if path is None else Saver(path)
        # What is too short for the shelf has a place of its own, out of the same budget.
        self._shelf = Shelf(max_bytes - max_bytes // SHORT_SHARE, ttl, self._save)
        self._short: OrderedDict[tuple[str, str], bytes] = OrderedDict()
        """The ids of short texts, by salt and text."""
        self._short_bytes = 0
        self._lock = threading.Lock()
        self._numbers = itertools.count()
        self._threads: ThreadPoolExecutor | None = None
        if self._saver is not None:
            self._saver.look_after(self._shelf)

    def __len__(self) -> int:
        """The number of sessions in memory."""
        return len(self._shelf)

    def __repr__(self) -> str:
        usage = self.usage()
        return f"<toktier.SessionStore {usage.sessions:,} sessions, {usage.nbytes:,} of {self._max_bytes:,} bytes>"

    @overload
    def encode(self, text: str, *, session: str | None = None, salt: str = "") -> Ids: ...

    @overload
    def encode(self, text: str, *, session: str, salt: str = "", patch: bool) -> tuple[Ids, Patch]: ...

    def encode(
        self, text: str, *, session: str | None = None, salt: str = "", patch: bool = False
    ) -> Ids | tuple[Ids, Patch]:
        """The ids of a text, by way of the session that has most of it already.

        Args:
            text: The whole text, such as the transcript so far.
            session: The name of the session that it continues. Without one, the stored text that has the longest
                prefix in common with it is looked for.
            salt: Separates tenants: what was stored under one salt is never found through another.
            patch: Whether to return the patch as well, which says what changed since the last call for this session.

        Returns:
            The ids, read-only; uint32, shape (ids,). They never change. With ``patch``, also the patch. One that begins
            the session anew, because the store has no state of it or an older one, has all ids, and
            ``start == stop == 0``: it replaces whatever copy of the ids there is.

        Raises:
            TypeError: An argument is of another type, or a patch is asked for without a session.
            InvalidText: The text has a lone surrogate; nothing has changed.
        """
        text = _checked(text, session, salt, patch=patch)
        if session is None:
            return self._by_content(text, salt)
        with self._shelf.using(Key(salt, session)) as entry, entry.lock:
            done = self._bring(entry, text)
        return done if patch else done[0]

    @overload
    async def encode_async(self, text: str, *, session: str | None = None, salt: str = "") -> Ids: ...

    @overload
    async def encode_async(self, text: str, *, session: str, salt: str = "", patch: bool) -> tuple[Ids, Patch]: ...

    async def encode_async(
        self, text: str, *, session: str | None = None, salt: str = "", patch: bool = False
    ) -> Ids | tuple[Ids, Patch]:
        """The same as :meth:`encode`, for an event loop.

        What changes no more than some thousand characters of a session in memory is done at once: another thread would
        take longer to be woken. Everything else is done by another thread, and awaited.
        """
        text = _checked(text, session, salt, patch=patch)
        if session is not None and (done := self._at_once(Key(salt, session), text)) is not None:
            return done if patch else done[0]
        with self._lock:
            self._threads = self._threads or ThreadPoolExecutor(WAITING, "toktier store")
        options: dict[str, Any] = {"session": session, "salt": salt, "patch": patch}
        call: Callable[[], Ids | tuple[Ids, Patch]] = functools.partial(self.encode, text, **options)
        return await asyncio.get_running_loop().run_in_executor(self._threads, call)

    def forget(self, session: str, *, salt: str = "") -> None:
        """Drops a session, in memory and on disk, if there is one."""
        key = Key(salt, session)
        with self._shelf.using(key) as entry, entry.lock:
            self._shelf.clear(entry)
            if self._saver is not None:
                self._saver.remove(key)

    def usage(self) -> Usage:
        """What the store holds, and what its calls met so far."""
        usage = self._shelf.usage()
        return evolve(usage, nbytes=usage.nbytes + self._short_bytes)

    def flush(self) -> None:
        """Saves all named sessions, as far as the disk does not have them as they are."""
        if self._saver is not None:
            self._saver.save_all(self._shelf)

    def close(self) -> None:
        """Saves what is to be saved, and closes the file. The store must not be used any more."""
        if self._saver is not None:
            self._saver.close(self._shelf)
        if self._threads is not None:
            self._threads.shutdown()

    def __enter__(self) -> SessionStore:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def _at_once(self, key: Key, text: str) -> tuple[Ids, Patch] | None:
        """What :meth:`encode` returns, if that is a matter of microseconds."""
        with self._shelf.using(key) as entry:
            if not entry.lock.acquire(blocking=False):
                return None
            try:
                session = entry.session
                # The length alone shows most of what is too much, before any comparison.
                if session is None or abs(len(text) - len(session._table)) > INLINE:
                    return None
                changes = session._changes(text)
                if sum(stop - start + len(new) for start, stop, new in changes) > INLINE:
                    return None
                return self._change(entry, session, changes, text)
            finally:
                entry.lock.release()

    def _bring(self, entry: Entry, text: str) -> tuple[Ids, Patch]:
        """Brings a session to a text. The caller holds its lock."""
        if entry.session is not None:
            return self._change(entry, entry.session, entry.session._changes(text), text)
        session, how = self._resumed(entry.key), "resumed"
        if session is None:
            session, how = self._forked(text, entry.key.salt), "shared"
        if session is None:
            session, how = Session(self._tok, text, engine=self._engine), "started"
        else:
            session.update(text)
        entry.session = session
        self._shelf.settle(entry, 0, text)
        self._shelf.count(how)
        return session.ids, Patch(0, 0, session.ids)

    def _change(self, entry: Entry, session: Session, changes: list[Change], text: str) -> tuple[Ids, Patch]:
        """Makes changes to a session. The caller holds its lock."""
        patch = session._change(changes, text)
        self._shelf.settle(entry, changes[0][0] if changes else len(text), text)
        self._shelf.count("continued")
        return session.ids, patch

    def _by_content(self, text: str, salt: str) -> Ids:
        """The ids of a text that belongs to no session known by name."""
        if len(text) < SHORTEST:
            return self._repeated(valid_text(text), salt)
        with self._shelf.donor(text, salt) as found:
            if found is not None and isinstance(found[0].key.name, int):
                donor, common = found
                with self._shelf.using(donor.key) as entry, entry.lock:
                    # What is lost is an end that nobody continued, or that is soon encoded again.
                    if entry.session is not None and len(entry.session._table) - common <= NEAR:
                        return self._bring(entry, text)[0]
        with self._shelf.using(Key(salt, next(self._numbers))) as entry, entry.lock:
            return self._bring(entry, text)[0]

    def _repeated(self, text: str, salt: str) -> Ids:
        """The ids of a short text, from the table of those."""
        key = salt, text
        with self._lock:
            known = self._short.get(key)
            if known is not None:
                self._short.move_to_end(key)
        self._shelf.count("started" if known is None else "repeated")
        if known is None:
            engine = self._tok.engine(self._engine) if isinstance(self._engine, str) else self._engine
            known = engine.encode(text).tobytes()
            with self._lock:
                self._short_bytes += _short_size(text, known) * (key not in self._short)
                self._short[key] = known
                while self._short_bytes > self._max_bytes // SHORT_SHARE:
                    (_, oldest), ids = self._short.popitem(last=False)
                    self._short_bytes -= _short_size(oldest, ids)
        return np.frombuffer(known, np.uint32)

    def _forked(self, text: str, salt: str) -> Session | None:
        """A session like the stored one that has the longest prefix in common with a text, if there is any."""
        with self._shelf.donor(text, salt) as found:
            if found is None:
                return None
            with found[0].lock:
                return None if found[0].session is None else found[0].session.fork()

    def _resumed(self, key: Key) -> Session | None:
        """A session from the disk, if that has one."""
        data = None if self._saver is None else self._saver.load(key)
        if data is None:
            return None
        try:
            return Session.from_bytes(self._tok, data, engine=self._engine)
        except StateMismatch:  # of another tokenizer, or of another version of this library
            return None

    def _save(self, entry: Entry) -> None:
        """Saves a session that goes."""
        if self._saver is not None:
            with entry.lock:
                self._saver.save(entry)


def _checked(text: str, session: object, salt: object, *, patch: bool) -> str:
    if session is not None and not isinstance(session, str):
        raise TypeError(f"session must be a str, not {type(session).__name__}")
    if not isinstance(salt, str):
        raise TypeError(f"salt must be a str, not {type(salt).__name__}")
    if patch and session is None:
        raise TypeError("a patch says what changed in a session: name one")
    # Whether it is valid is seen where it is new: reading all of it would be half of the time.
    return text if type(text) is str else valid_text(text)


def _short_size(text: str, ids: bytes) -> int:
    return 400 + 2 * len(text) + len(ids)
