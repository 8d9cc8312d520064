"""The sessions of a store: which there are, what they hold, which share a prefix with a text, and which have to go."""

from __future__ import annotations

import sys
import threading
import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import islice
from operator import attrgetter
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
        used: When its last call ended, or began if that has not ended; in seconds of the monotonic clock.
        size: Bytes that it is taken to hold.
        length: Characters of its text, as of when it was last settled.
        digests: The prefixes it is listed under.
        met: How its last call found it: ``"continued"`` and so on, as :class:`Usage` has it.
    """

    key: Key
    lock: threading.Lock = field(factory=threading.Lock)
    session: Session | None = None
    users: int = 0
    used: float = 0.0
    size: int = 0
    length: int = 0
    digests: list[bytes] = field(factory=list)
    met: str = ""


@frozen
class Usage:
    """What a store holds, and what its calls met so far.

    Made by :meth:`toktier.SessionStore.usage`. The first three are as of now, the others count from when the store was
    made.

    Attributes:
        sessions: Sessions in memory.
        nbytes: Bytes that they are taken to hold, short texts included.
        unsaved: Named sessions that the disk does not have as they are; all of them, for a store without a file.
        continued: Calls that found their session in memory, whatever its text was.
        shared: Calls that began with a stored text that has a prefix in common.
        repeated: Calls with a short text that was stored as it is.
        resumed: Calls that found their session on disk.
        started: Calls that found nothing.
        evicted: Sessions that went to make room.
        expired: Sessions that went because they were not used.

    Example:
        >>> import toktier
        >>> store = toktier.SessionStore(toktier.load("toktier-mini"))
        >>> encoded = [store.encode(text, session="chat-42") for text in ("Hello", "Hello world")]
        >>> usage = store.usage()
        >>> usage.sessions, usage.started, usage.continued, usage.unsaved
        (1, 1, 1, 1)
    """

    sessions: int = 0
    nbytes: int = 0
    unsaved: int = 0
    continued: int = 0
    shared: int = 0
    repeated: int = 0
    resumed: int = 0
    started: int = 0
    evicted: int = 0
    expired: int = 0


@contextmanager
def trying(lock: threading.Lock) -> Iterator[bool]:
    """Holds a lock if it is free now, and says whether it was."""
    took: list[bool] = []
    try:
        # One call, so that no signal handler comes between the lock and the note that it is taken.
        took.extend(map(lock.acquire, (False,)))
        yield took[0]
    finally:
        if True in took:
            lock.release()


class Shelf:
    """Entries by key, in the order in which they were used. Safe to share between threads.

    No lock of the shelf is held while anything is encoded, compared or saved.

    Args:
        max_bytes: What all entries together may hold. Beyond that, those that were not used for longest go.
        ttl: Seconds after which an entry that was not used goes.
        farewell: Called with each entry that is to go, whose lock is held; it is there for all meanwhile.
    """

    def __init__(self, max_bytes: int, ttl: float, farewell: Callable[[Entry], None]) -> None:
        self._max_bytes, self._ttl, self._farewell = max_bytes, ttl, farewell
        self._lock = threading.Lock()
        self._entries: OrderedDict[Key, Entry] = OrderedDict()
        self._index: PrefixIndex[Key] = PrefixIndex()
        self._unsaved: dict[Key, None] = {}
        self._bytes = self._going = 0
        """What all entries hold, and what those of them do that are on their way out."""
        self._counts: Counter[tuple[str, str]] = Counter()

    def __len__(self) -> int:
        """The number of entries."""
        return len(self._entries)

    def usage(self) -> Usage:
        """What there is, and what was met so far."""
        totals: Counter[str] = Counter()
        for (_, what), count in self.counts().items():
            totals[what] += count
        with self._lock:
            return Usage(sessions=len(self._entries), nbytes=self._bytes, unsaved=len(self._unsaved), **totals)

    def counts(self) -> dict[tuple[str, str], int]:
        """How often something was met, by what was looked for and what came of it."""
        with self._lock:
            return dict(self._counts)

    def count(self, kind: str, what: str) -> None:
        """Counts something.

        Args:
            kind: What was looked for: a ``"session"`` by name, a text by its ``"content"``, a short ``"text"``.
            what: What came of it: a field of :class:`Usage`.
        """
        with self._lock:
            self._counts[kind, what] += 1

    @contextmanager
    def using(self, key: Key, *, sweep: bool = True) -> Iterator[Entry]:
        """The entry of a key, a new one if there is none. It stays for as long as it is used.

        One that has no session when it is left goes at once.

        Args:
            key: The key.
            sweep: Whether what has to go then goes here and now, which may take as long as the disk does.
        """
        held: Entry | None = None
        try:
            with self._lock:
                entry = self._entries.get(key)
                if entry is None:
                    entry = self._entries[key] = Entry(key)
                entry.users, held = entry.users + 1, entry
                self._use(entry)
            yield entry
        finally:
            if held is not None:
                with self._lock:
                    held.users -= 1  # first: whatever comes in between, it can go
                    self._use(held)
                    self._drop_if_empty(held)
                if sweep:
                    self.sweep()

    @contextmanager
    def holding(self, key: Key) -> Iterator[Entry | None]:
        """The entry of a key, if there is one; it stays meanwhile, and is not used by that."""
        held: Entry | None = None
        try:
            with self._lock:
                entry = self._entries.get(key)
                if entry is not None:
                    entry.users, held = entry.users + 1, entry
            yield entry
        finally:
            if held is not None:
                with self._lock:
                    held.users -= 1
                    self._drop_if_empty(held)

    def unsaved(self, limit: float) -> list[Key]:
        """The keys of named sessions that the disk does not have as they are, and that were not used since a time."""
        with self._lock:
            return [key for key in self._unsaved if self._entries[key].used <= limit]

    def is_saved(self, entry: Entry) -> bool:
        """Whether there is nothing to save of an entry. The caller holds its lock."""
        with self._lock:
            return entry.key not in self._unsaved

    def note_saved(self, entry: Entry) -> None:
        """Takes note that the disk has a session as it is. The caller holds its lock."""
        with self._lock:
            self._unsaved.pop(entry.key, None)

    def note_cleared(self) -> None:
        """Takes note that the disk has nothing any more."""
        with self._lock:
            named = (
                key for key, entry in self._entries.items() if isinstance(key.name, str) and entry.session is not None
            )
            self._unsaved.update(dict.fromkeys(named))

    def settle(self, entry: Entry, unchanged: int, text: str) -> None:
        """Takes note of what a session holds now. The caller holds its lock.

        Args:
            entry: Whose session it is.
            unchanged: Characters at the beginning of its text that are as before.
            text: All of it.
        """
        digests = entry.digests
        listed = SHORTEST << len(digests) >> 1 if digests else 0
        if unchanged < listed or not listed <= len(text) < max(2 * listed, SHORTEST):
            digests = self._index.digests(text, entry.key.salt)
        size, length = _size(entry), len(text)
        with self._lock:
            if digests is not entry.digests:
                # In this order, an interruption leaves at worst what is never found, and nothing that stays for ever.
                self._index.remove(entry.key, entry.digests)
                entry.digests = digests
                self._index.add(entry.key, digests)
            self._bytes += size - entry.size
            entry.size, entry.length = size, length
            if isinstance(entry.key.name, str):
                self._unsaved[entry.key] = None

    def clear(self, entry: Entry) -> None:
        """Takes the session of an entry away. The caller holds its lock."""
        with self._lock:
            self._unlist(entry)
            entry.session = None

    @contextmanager
    def donor(self, text: str, salt: str) -> Iterator[tuple[Entry, int] | None]:
        """The entry whose text has the longest prefix in common with a text, and the length of that.

        One whose session is in use is passed over: nobody waits for somebody else's call. What is found is not locked,
        so it may have another text by the time it is.
        """
        digests = self._index.digests(text, salt)
        held: list[Entry] = []
        try:
            with self._lock:
                for key in islice(self._index.candidates(digests), COMPARED):
                    entry = self._entries.get(key)
                    if entry is not None:  # an interruption may have left its name
                        entry.users += 1
                        held.append(entry)
            yield self._most_common(held, text)
        finally:
            try:
                self._leave(held)
            finally:
                if held:  # a signal handler has raised meanwhile
                    self._leave(held)

    def has_surplus(self) -> bool:
        """Whether something has to go."""
        with self._lock:
            return self._surplus() is not None

    def sweep(self) -> None:
        """Lets go of what has to go."""
        while True:
            going: Entry | None = None
            took = False
            try:
                with self._lock:
                    entry = self._surplus()
                    if entry is None:
                        return
                    used, size, limit = entry.used, entry.size, time.monotonic() - self._ttl
                    entry.users, self._going, going = entry.users + 1, self._going + size, entry
                # Nobody waits for a lock here, which may be one that a signal left locked for ever.
                with trying(entry.lock) as took:
                    if took:
                        self._farewell(entry)
            finally:
                if going is not None:
                    with self._lock:
                        self._going -= size
                        going.users -= 1
                        is_left = not going.users and going.used == used  # nobody came back to it meanwhile
                        if is_left and (took or going.lock.locked()):
                            self._counts["", "expired" if used < limit else "evicted"] += 1
                            self._unlist(going)
                            going.session = None
                        self._drop_if_empty(going)

    def _use(self, entry: Entry) -> None:
        entry.used = time.monotonic()
        self._entries.move_to_end(entry.key)

    def _leave(self, held: list[Entry]) -> None:
        """Uses entries no more, and takes them off the list, one by one."""
        with self._lock:
            while held:
                entry = held[-1]
                entry.users -= 1
                del held[-1]  # and no call between the two, which is where signals come
                self._drop_if_empty(entry)

    def _drop_if_empty(self, entry: Entry) -> None:
        if not entry.users and entry.session is None:
            self._entries.pop(entry.key, None)

    def _surplus(self) -> Entry | None:
        """What has to go next: what is too large by itself, too old, or not used for longest where it is too much."""
        limit = time.monotonic() - self._ttl
        is_full = self._bytes - self._going > self._max_bytes
        latest = next(reversed(self._entries.values()), None)
        if is_full and latest is not None and latest.size > self._max_bytes and not latest.users:
            return latest
        for entry in self._entries.values():
            if not is_full and entry.used >= limit:
                return None
            if not entry.users:
                return entry
        return None

    def _unlist(self, entry: Entry) -> None:
        self._index.remove(entry.key, entry.digests)
        self._unsaved.pop(entry.key, None)
        self._bytes -= entry.size
        entry.digests, entry.size, entry.length = [], 0, 0

    def _most_common(self, entries: list[Entry], text: str) -> tuple[Entry, int] | None:
        """Of some entries, the one that has the longest prefix in common with a text, if that is worth anything."""
        best: Entry | None = None
        most = SHORTEST - 1
        # From long to short: what is no longer than the best that was found cannot be better.
        for entry in sorted(entries, key=attrgetter("length"), reverse=True):
            if entry.length <= most:
                continue
            with trying(entry.lock) as is_free:
                if is_free and entry.session is not None and not entry.session._is_left_behind:
                    common = entry.session._served.common_prefix(text)
                    if common > most:
                        best, most = entry, common
                    size = _size(entry)  # a comparison may have made strings of their own of parts of others
                    with self._lock:
                        self._bytes += size - entry.size
                        entry.size = size
        return None if best is None else (best, most)


def _size(entry: Entry) -> int:
    assert entry.session is not None
    return OVERHEAD + sys.getsizeof(entry.key.name) + sys.getsizeof(entry.key.salt) + entry.session.nbytes
