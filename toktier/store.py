"""Many sessions in bounded memory: by name, or found by the prefix that they share with a text.

What is stored only ever saves work. A session that went, that is resumed from an old state, or that turns out to have
another text gives the right ids all the same, because every call brings its session to the text that it was given.
"""

from __future__ import annotations

import functools
import os
import threading
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, overload

from attrs import evolve

from toktier.arguments import check_limits, check_names
from toktier.engines.base import Engine, Ids
from toktier.explanation import Explanation
from toktier.families.family import valid_text
from toktier.patch import Patch
from toktier.prefixes import SHORTEST
from toktier.saver import Saver
from toktier.session import Session
from toktier.shelf import Key, Usage
from toktier.shorttexts import ShortTexts
from toktier.storedsessions import StoredSessions
from toktier.tokenizer import Tokenizer
from toktier.untrusted import Spans, checked_spans

if TYPE_CHECKING:
    from toktier.keyedpool import KeyedPool

SHORT_SHARE = 16
"""What part of its bytes a store may use for texts that are too short to be looked for by their prefixes."""

FEW = 64
"""Untrusted spans with which a call does not leave the event loop."""

WAITING = 32
"""Calls of :meth:`SessionStore.encode_async` that other threads work on at a time."""


class SessionStore:
    r"""Sessions of many conversations, in a budget of bytes. Safe to share between threads.

    Calls for one session wait for one another; calls for different ones run in parallel.

    Args:
        tok: The tokenizer.
        max_bytes: What all sessions together may hold, in bytes. Beyond that, the least recently used go.
            Sessions that are in use stay meanwhile.
        ttl: Seconds after which a session that was not used goes.
        engine: What encodes; see :meth:`Tokenizer.engine`.
        path: A file for sessions that go, and for those that are idle, from which they are resumed, also by the next
            process. Not given: they are forgotten. Only named sessions are saved.

    Raises:
        TypeError: An argument is of another type.
        ValueError: A limit is not positive, the path is empty, or the engine is another tokenizer's.
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
        check_limits(max_bytes, ttl)
        Session(tok, engine=engine)  # says what is wrong with these two
        self._tok, self._max_bytes = tok, max_bytes
        self._saver = None if path is None else Saver(path, tok.family.digest)
        # What is too short for the shelf has a place of its own, out of the same budget.
        short = max_bytes // SHORT_SHARE
        self._short = ShortTexts(tok, engine, short, ttl)
        self._sessions = StoredSessions(tok, engine, max_bytes - short, ttl, self._saver)
        self._shelf = self._sessions.shelf
        self._lock = threading.Lock()
        self._threads: KeyedPool | None = None
        self._closed = False
        if self._saver is not None:
            self._saver.look_after(self._shelf)

    @property
    def tokenizer(self) -> Tokenizer:
        """What its sessions are of."""
        return self._tok

    @property
    def max_bytes(self) -> int:
        """What all sessions together may hold, in bytes."""
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
            untrusted: Spans ``(start, stop)`` of characters, half-open, that may be no part of a special token: where
                one stands there, it is text. All others are trusted.
            patch: Whether to return the patch as well, which says what changed since the last call for this session,
                including calls whose caller was cancelled.

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
            EngineFailure: The reference library cannot encode the text; nothing has changed.
            RuntimeError: The store is closed.

        Example:
            >>> import toktier
            >>> store = toktier.SessionStore(toktier.load("toktier-mini"))
            >>> copy = store.encode("Hello", session="chat-42").tolist()
            >>> ids, patch = store.encode("Hello world", session="chat-42", patch=True)
            >>> patch.apply(copy) == ids.tolist()
            True
        """
        text = self._checked(text, session, salt, patch=patch)
        spans = self._tok.untrusted_spans(untrusted, len(text))
        if session is None:
            return self._by_content(text, salt, spans)
        done = self._sessions.named(Key(salt, session), text, spans)
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

        Example:
            >>> import asyncio, toktier
            >>> store = toktier.SessionStore(toktier.load("toktier-mini"))
            >>> asyncio.run(store.encode_async("Hello world", session="chat-42")).tolist()
            [39, 523, 323, 3241, 1151]
        """
        text = self._checked(text, session, salt, patch=patch)
        spans = checked_spans(untrusted, len(text))
        if spans and not self._tok.heeds_untrusted:  # made once, which takes a while
            await self._pool().submit(functools.partial(self._tok.untrusted_spans, spans, len(text)))
        if session is None:
            if len(text) < SHORTEST and (known := self._remembered(text, salt, spans)) is not None:
                return known
            return await self._pool().submit(functools.partial(self.encode, text, salt=salt, untrusted=spans))
        key = Key(salt, session)
        if len(spans) <= FEW and (done := self._sessions.named_at_once(key, text, spans)) is not None:
            return done if patch else done[0]
        call: Callable[[], Ids | tuple[Ids, Patch]]
        call = functools.partial(self.encode, text, session=session, salt=salt, untrusted=spans, patch=patch)
        # One thread at most for one session, so that the others' calls find threads that are free.
        return await self._pool().run(key, call)

    def _pool(self) -> KeyedPool:
        """The threads for what an event loop must not wait for."""
        from toktier.keyedpool import KeyedPool  # needs asyncio, which who has no event loop has not imported

        with self._lock:
            self._threads = self._threads or KeyedPool(WAITING, "toktier store")
            return self._threads

    def forget(self, session: str, *, salt: str = "") -> None:
        """Drops a session, in memory and on disk, if there is one. What a file that was given up has is logged.

        Args:
            session: Its name.
            salt: As it was for its calls.

        Raises:
            TypeError: The name or the salt is no string.
            ValueError: The name is empty.
            RuntimeError: The store is closed.

        Example:
            >>> import toktier
            >>> store = toktier.SessionStore(toktier.load("toktier-mini"))
            >>> ids = store.encode("Hello", session="chat-42")
            >>> store.forget("chat-42")
            >>> len(store)
            0
        """
        if session is None:
            raise TypeError("session must be a str, not None: sessions without a name are not forgotten one by one")
        self._checked("", session, salt, patch=False)
        self._sessions.forget(Key(salt, session))

    def usage(self) -> Usage:
        """What the store holds, and what its calls met so far.

        Example:
            >>> import toktier
            >>> store = toktier.SessionStore(toktier.load("toktier-mini"))
            >>> ids = store.encode("Hello", session="chat-42")
            >>> store.usage().sessions, store.usage().started
            (1, 1)
        """
        self._short.expire()
        self._sessions.tidy()
        usage = self._shelf.usage()
        return evolve(usage, nbytes=usage.nbytes + self._short.nbytes)

    def lookups(self) -> dict[tuple[str, str], int]:
        """How often something was looked for, by what it was and what came of it.

        Returns:
            Counts by kind (a ``"session"`` by name, a text by its ``"content"``, a short ``"text"``) and result (the
            names of :class:`Usage`).

        Example:
            >>> import toktier
            >>> store = toktier.SessionStore(toktier.load("toktier-mini"))
            >>> encoded = [store.encode("Hello") for _ in range(3)]
            >>> store.lookups()
            {('text', 'started'): 1, ('text', 'repeated'): 2}
        """
        return {key: count for key, count in self._shelf.counts().items() if key[0]}

    def explain(self, session: str | None = None, *, salt: str = "") -> Explanation:
        """What the last call did and why; of all calls, or of those for one session.

        Args:
            session: The name of a session. Not given: it is the last call of all.
            salt: As it was for the call.

        Returns:
            A dictionary of facts; its ``str()`` is one line for people.

        Raises:
            TypeError: The name is no string.

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
        return self._sessions.explanation(None if session is None else Key(salt, session))

    def flush(self) -> None:
        """Saves all named sessions, as far as the disk does not have them as they are.

        Raises:
            OSError: Some could not be saved: the file was given up, or is kept busy by another process.
            RuntimeError: The store is closed.

        Example:
            >>> import toktier
            >>> toktier.SessionStore(toktier.load("toktier-mini")).flush()  # without a file there is nothing to do
        """
        self._check_open()
        if self._saver is not None:
            self._saver.save_all(self._shelf)
            if left := self._shelf.usage().unsaved:
                busy, lost = (
                    "they are in use, or the file is kept busy; flush again",
                    "the file was given up, as the log says",
                )
                raise OSError(f"{left} sessions are not saved: {busy if self._saver.works else lost}")

    def close(self) -> None:
        """Saves what is to be saved, and closes the file; at the end of a ``with`` block too. An encode then raises.

        Example:
            >>> import toktier
            >>> with toktier.SessionStore(toktier.load("toktier-mini")) as store:
            ...     ids = store.encode("Hello")
        """
        self._closed = True
        if self._threads is not None:
            self._threads.close()
        if self._saver is not None:
            self._saver.close(self._shelf)

    def __enter__(self) -> SessionStore:
        return self

    async def __aenter__(self) -> SessionStore:
        return self

    async def __aexit__(self, *raised: object) -> None:
        import asyncio

        await asyncio.get_running_loop().run_in_executor(None, self.close)

    def __exit__(self, *raised: object) -> None:
        self.close()

    def _by_content(self, text: str, salt: str, spans: Spans) -> Ids:
        """The ids of a text that belongs to no session known by name."""
        if len(text) < SHORTEST:
            return self._repeated(valid_text(text), salt, spans)
        return self._sessions.like(text, salt, spans)

    def _repeated(self, text: str, salt: str, spans: Spans) -> Ids:
        """The ids of a short text, from the table of those or for it."""
        self._sessions.tidy()
        if (ids := self._remembered(text, salt, spans)) is not None:
            return ids
        ids, self._sessions.latest = self._short.encode(text, salt, spans)
        self._shelf.count("text", "started")
        return ids

    def _remembered(self, text: str, salt: str, spans: Spans) -> Ids | None:
        """The ids of a short text, if they are in the table."""
        known = self._short.remembered(text, salt, spans)
        if known is None:
            return None
        self._shelf.count("text", "repeated")
        ids, self._sessions.latest = known
        return ids

    def _check_open(self) -> None:
        if self._closed:
            raise RuntimeError("the store is closed: make a new one, on the same path to go on with what was saved")

    def _checked(self, text: str, session: object, salt: object, *, patch: bool) -> str:
        self._check_open()
        check_names(session, salt)
        if patch and session is None:
            raise TypeError("a patch says what changed in a session: name one")
        # Whether it is valid is seen where it is new: reading all of it would be half of the time.
        return text if type(text) is str else valid_text(text)
