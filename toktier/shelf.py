"""The sessions of a store: which there are, what they hold, which share a prefix with a text, and which have to go."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import islice
from typing import NamedTuple

from attrs import define, field, frozen

from toktier.prefixes import SHORTEST, PrefixIndex
from toktier.session import Session

OVERHEAD = 2048
"""Bytes of an entry beside its session: key, locks, digests."""

COMPARED = 16
"""Stored texts that are compared with a new one, at most."""


class Key(NamedTuple):
    """What a session is stored under: a name in the realm of a salt, or a number if it was given none."""

    salt: str
    name: str | int


@define(eq=False)
class Entry:
    """A stored session.

    Attributes:
        key: What it is stored under.
        lock: Held by whoever uses the session.
        session: The session; None until the first call is done.
        users: Calls that use it or wait for it. Until there are none, it stays.
        used: When it was last used, in seconds of the monotonic clock.
        size: Bytes that it is taken to hold.
        digests: The prefixes it is listed under.
        saved: Whether the disk has it as it is.
    """

    key: Key
    lock: threading.Lock = field(factory=threading.Lock)
    session: Session | None = None
    users: int = 0
    used: float = 0.0
    size: int = 0
    digests: list[bytes] = field(factory=list)
    saved: bool = False


@frozen
class Usage:
    """What a store holds, and what its calls met so far.

    Attributes:
        sessions: Sessions in memory.
        nbytes: Bytes that they are taken to hold, short texts included.
        continued: Calls that found their session in memory.
        shared: Calls that began with a stored text that has a prefix in common.
        repeated: Calls with a short text that was stored as it is.
        resumed: Calls that found their session on disk.
        started: Calls that found nothing.
        evicted: Sessions that went to make room.
        expired: Sessions that went because they were not used.
    """

    sessions: int = 0
    nbytes: int = 0
    continued: int = 0
    shared: int = 0
    repeated: int = 0
    resumed: int = 0
    started: int = 0
    evicted: int = 0
    expired: int = 0


class Shelf:
    """Entries by key, in the order in which they were used. Safe to share between threads.

    No lock of the shelf is held while anything is encoded, compared or saved.

    Args:
        max_bytes: What all entries together may hold. Beyond that, those that were not used for longest go.
        ttl: Seconds after which an entry that was not used goes.
        farewell: Called with each entry that goes.
    """

    def __init__(self, max_bytes: int, ttl: float, farewell: Callable[[Entry], None]) -> None:
        self._max_bytes, self._ttl, self._farewell = max_bytes, ttl, farewell
        self._lock = threading.Lock()
        self._entries: OrderedDict[Key, Entry] = OrderedDict()
        self._index: PrefixIndex[Key] = PrefixIndex()
        self._bytes = 0
        self._counts: dict[str, int] = {}

    def __len__(self) -> int:
        """The number of entries."""
        return len(self._entries)

    def usage(self) -> Usage:
        """What there is, and what was met so far."""
        with self._lock:
            return Usage(sessions=len(self._entries), nbytes=self._bytes, **self._counts)

    def count(self, what: str) -> None:
        """Counts something that :class:`Usage` has a field for."""
        with self._lock:
            self._counts[what] = self._counts.get(what, 0) + 1

    @contextmanager
    def using(self, key: Key) -> Iterator[Entry]:
        """The entry of a key, a new one if there is none. It stays for as long as it is used.

        One that has no session when it is left goes at once.
        """
        with self._lock:
            entry = self._entries.get(key)
            if entry is None:
                entry = self._entries[key] = Entry(key)
            else:
                self._entries.move_to_end(key)
            entry.users += 1
            entry.used = time.monotonic()
        try:
            yield entry
        finally:
            self._leave(entry)

    @contextmanager
    def holding(self, key: Key) -> Iterator[Entry | None]:
        """The entry of a key, if there is one; it stays meanwhile, and is not used by that."""
        with self._lock:
            entry = self._entries.get(key)
            if entry is not None:
                entry.users += 1
        try:
            yield entry
        finally:
            if entry is not None:
                self._leave(entry)

    def unsaved(self, limit: float) -> list[Key]:
        """The keys of named sessions that the disk does not have as they are, and that were not used since a time."""
        with self._lock:
            entries = [entry for entry in self._entries.values() if not entry.saved and entry.used <= limit]
        return [entry.key for entry in entries if isinstance(entry.key.name, str)]

    def settle(self, entry: Entry, unchanged: int, text: str) -> None:
        """Takes note of what a session holds now. The caller holds its lock.

        Args:
            entry: Whose session it is.
            unchanged: Characters at the begin of its text that are as before.
            text: All of it.
        """
        assert entry.session is not None
        size = OVERHEAD + entry.session.nbytes
        digests = entry.digests
        listed = SHORTEST << len(digests) >> 1 if digests else 0
        if unchanged < listed or not listed <= len(text) < max(2 * listed, SHORTEST):
            digests = self._index.digests(text, entry.key.salt)
        with self._lock:
            if digests is not entry.digests:
                self._index.remove(entry.key, entry.digests)
                self._index.add(entry.key, digests)
                entry.digests = digests
            self._bytes += size - entry.size
            entry.size, entry.saved = size, False

    def clear(self, entry: Entry) -> None:
        """Takes the session of an entry away. The caller holds its lock."""
        with self._lock:
            self._unlist(entry)
            entry.session = None

    @contextmanager
    def donor(self, text: str, salt: str) -> Iterator[tuple[Entry, int] | None]:
        """The entry whose text has the longest prefix in common with a text, and the length of that.

        It is not locked, so it may have another text by the time it is.
        """
        digests = self._index.digests(text, salt)
        with self._lock:
            found = [self._entries[key] for key in islice(self._index.candidates(digests), COMPARED)]
            for entry in found:
                entry.users += 1
        try:
            yield _most_common(found, text)
        finally:
            for entry in found:
                self._leave(entry)

    def sweep(self) -> None:
        """Lets go of what has to go."""
        with self._lock:
            gone = self._surplus()
        for entry in gone:
            self._farewell(entry)

    def _leave(self, entry: Entry) -> None:
        with self._lock:
            entry.users -= 1
            if not entry.users and entry.session is None:
                del self._entries[entry.key]
            gone = self._surplus()
        for other in gone:
            self._farewell(other)

    def _surplus(self) -> list[Entry]:
        """Takes entries out that are too old or too many."""
        oldest = next(iter(self._entries.values()), None)
        limit = time.monotonic() - self._ttl
        if self._bytes <= self._max_bytes and (oldest is None or oldest.used >= limit):
            return []
        gone = []
        for entry in self._entries.values():
            expired = entry.used < limit
            if not expired and self._bytes <= self._max_bytes:
                break
            if not entry.users:
                what = "expired" if expired else "evicted"
                self._counts[what] = self._counts.get(what, 0) + 1
                self._unlist(entry)
                gone.append(entry)
        for entry in gone:
            del self._entries[entry.key]
        return gone

    def _unlist(self, entry: Entry) -> None:
        self._index.remove(entry.key, entry.digests)
        self._bytes -= entry.size
        entry.digests, entry.size = [], 0


def _most_common(entries: list[Entry], text: str) -> tuple[Entry, int] | None:
    """Of some entries, the one whose text has the longest prefix in common with a text, if that is worth anything."""
    best: Entry | None = None
    most = SHORTEST - 1
    # From long to short: what is no longer than the best that was found cannot be better.
    for entry in sorted(entries, key=_length, reverse=True):
        with entry.lock:
            if entry.session is not None and len(entry.session._table) > most:
                common = entry.session._table.common_prefix(text)
                if common > most:
                    best, most = entry, common
    return None if best is None else (best, most)


def _length(entry: Entry) -> int:
    session = entry.session
    return 0 if session is None else len(session._table)
