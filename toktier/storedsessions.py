"""Which stored session a text continues, and bringing it to the text.

Whatever is found only saves work: a session that turns out to have another text, or to be gone, costs a longer encode.
"""

from __future__ import annotations

import itertools
from contextlib import nullcontext
from time import perf_counter_ns

from toktier.encodedtext import Change
from toktier.engines.base import Engine, Ids
from toktier.errors import StateMismatch
from toktier.explanation import Account, Explanation
from toktier.patch import Patch
from toktier.route import demotions
from toktier.saver import Saver
from toktier.session import Session
from toktier.shelf import Entry, Key, Shelf, trying
from toktier.tokenizer import Tokenizer
from toktier.untrusted import Spans

NEAR = 8192
"""Characters: a text without a name takes the place of a stored one if no more of that are lost."""

INLINE = 16384
"""Characters of a change up to which a call is a matter of microseconds."""


class StoredSessions:
    """The sessions of a store, by name, by what they have in common with a text, or from the disk.

    Safe to share between threads.

    Args:
        tok: The tokenizer.
        engine: What encodes.
        max_bytes: What all of them together may hold.
        ttl: Seconds after which one that was not used goes.
        saver: Keeps those that go, if anybody does.

    Attributes:
        shelf: Those that are in memory.
        latest: The last call for the store: of which session it was, or what it did if that was of none.
    """

    def __init__(self, tok: Tokenizer, engine: str | Engine, max_bytes: int, ttl: float, saver: Saver | None) -> None:
        self._tok, self._engine, self._saver = tok, engine, saver
        self._numbers = itertools.count()
        self.shelf = Shelf(max_bytes, ttl, self._save)
        self.latest: Key | Account | None = None

    def named(self, key: Key, text: str, spans: Spans) -> tuple[Ids, Patch]:
        """The ids of a text, by way of the session of a name, and what changed since its last call."""
        with self.shelf.using(key) as entry, entry.lock:
            return self._bring(entry, text, spans, "session")

    def named_at_once(self, key: Key, text: str, spans: Spans) -> tuple[Ids, Patch] | None:
        """The same, if that is a matter of microseconds."""
        began = perf_counter_ns()
        with self.shelf.using(key, sweep=False) as entry, trying(entry.lock) as is_free:
            session = entry.session
            if not is_free or session is None or session._is_left_behind:
                return None
            # The length alone shows most of what is too much, before any comparison.
            if abs(len(text) - session._served.characters) > INLINE:
                return None
            changes = session._served.small_changes(text, spans, INLINE)
            done = None if changes is None else self._change(entry, changes, text, spans, began, kind="session")
        self.tidy()
        return done

    def like(self, text: str, salt: str, spans: Spans) -> Ids:
        """The ids of a text without a name, by way of the stored one that has the longest prefix in common with it."""
        with self.shelf.donor(text, salt) as found:
            if found is not None and isinstance(found[0].key.name, int):
                donor, common = found
                with self.shelf.using(donor.key) as entry, trying(entry.lock) as is_free:
                    # What is lost is an end that nobody continued, or that is soon encoded again.
                    if is_free and entry.session is not None and entry.session._served.characters - common <= NEAR:
                        return self._bring(entry, text, spans, "content")[0]
        with self.shelf.using(Key(salt, next(self._numbers))) as entry, entry.lock:
            return self._bring(entry, text, spans, "content")[0]

    def forget(self, key: Key) -> None:
        """Drops a session, in memory and on disk."""
        with self.shelf.using(key) as entry, entry.lock:
            self.shelf.clear(entry)
            if self._saver is not None:
                self._saver.remove(key)

    def tidy(self) -> None:
        """Has what has to go let go of; by another thread where that means saving it."""
        if self.shelf.has_surplus():
            if self._saver is None:
                self.shelf.sweep()
            else:
                self._saver.wake()

    def explanation(self, key: Key | None) -> Explanation:
        """What the last call did and why.

        Args:
            key: The session that it was for. Not given: it is the last call of all.
        """
        latest = self.latest if key is None else key
        if latest is None:
            return Explanation(call="none", met=None, why="there was no call yet")
        if not isinstance(latest, Key):
            return latest()
        with self.shelf.holding(latest) as entry, nullcontext() if entry is None else entry.lock:
            if entry is None or entry.session is None:
                return Explanation(call="none", met=None, why=f"no session {latest.name!r} with this salt is in memory")
            return entry.session.explain().found("session", entry.met)

    def _bring(self, entry: Entry, text: str, spans: Spans, kind: str) -> tuple[Ids, Patch]:
        """Brings a session to a text. The caller holds its lock."""
        began = perf_counter_ns()
        if entry.session is not None and entry.session._is_left_behind:
            self.shelf.clear(entry)
        if entry.session is not None:
            changes = entry.session._served.changes(text, spans)
            return self._change(entry, changes, text, spans, began, kind=kind)
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
            patch = session._served.change(changes, text, spans, began)
        except BaseException:
            if session._served.is_torn:
                self.shelf.clear(entry)  # the next call begins anew
            raise
        entry.met = "continued"
        self._note(entry, kind, changes[0].start if changes else len(text), text)
        # Those that the patch leads to, also if they are trusted no more in the next moment. If they are not now, the
        # patch is of no use either; the session's next one replaces all ids again.
        ids = session._served.view()
        if session._served.is_stale:
            ids = session.ids
            patch = Patch(0, 0, ids, None)
        return ids, patch

    def _note(self, entry: Entry, kind: str, unchanged: int, text: str) -> None:
        self.shelf.settle(entry, unchanged, text)
        self.shelf.count(kind, entry.met)
        self.latest = entry.key

    def _forked(self, text: str, salt: str) -> Session | None:
        """A session like the stored one that has the longest prefix in common with a text, if there is any."""
        with self.shelf.donor(text, salt) as found:
            if found is None:
                return None
            with trying(found[0].lock) as is_free:
                session = found[0].session
                return session.fork() if is_free and session is not None and not session._is_left_behind else None

    def _resumed(self, key: Key) -> Session | None:
        """A session from the disk, if that has one."""
        count = demotions.count(self._tok.family.digest)
        data = None if self._saver is None else self._saver.load(key, self.shelf)
        if data is None:
            return None
        try:
            session = Session.from_bytes(self._tok, data, engine=self._engine)
            # A new session trusts its engine as of now: whatever was demoted since before the ids were read counts.
            return session if demotions.count(self._tok.family.digest) == count else None
        except StateMismatch:  # of another tokenizer, or of another version of this library
            return None

    def _save(self, entry: Entry) -> None:
        """Saves a session that goes; the caller holds its lock."""
        if self._saver is not None:
            self._saver.save(entry, self.shelf)
