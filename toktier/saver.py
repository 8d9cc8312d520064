"""Sessions on their way to the disk and back: those that go, those that are idle, those that are asked for again."""

from __future__ import annotations

import contextlib
import logging
import os
import queue
import threading
import time
import weakref

from toktier.errors import EngineFailure, SessionInUse, SessionTorn
from toktier.route import demotions
from toktier.shelf import Entry, Key, Shelf

KEPT = 7 * 86400.0
"""Seconds for which a session is kept on disk."""

TIDY = 3600.0
"""Seconds between two looks at what is old."""

IDLE = 5.0
"""Seconds after its last use from which on a session is saved while it stays in memory."""

logger = logging.getLogger(__name__)


class Saver:
    """Saves the sessions of a shelf in an archive. Safe to share between threads.

    Args:
        path: The file of the archive.
        digest: The digest of the family that the sessions are of: what an engine of it gave that was demoted
            meanwhile is forgotten before anything is loaded.

    Raises:
        StateMismatch: The file is something else.
        OSError: The file cannot be opened.
    """

    def __init__(self, path: str | os.PathLike[str], digest: str) -> None:
        self._digest, self._trusted = digest, demotions.count(digest) & ~1
        """The family, and the demotions for which the archive was cleared; never one that was under way."""
        from toktier.archive import Archive

        self._archive = Archive(path)
        self._archive.expire(time.time() - KEPT)
        self._lock = threading.Lock()
        self._writing = threading.Lock()
        """Held while something is put, removed or cleared, and noted: what was forgotten and came back is not removed
        for it, and what a demoted engine gave is not put after the archive was cleared of that."""
        self._doomed: set[Key] = set()
        """What was forgotten while the archive was busy: not found any more, and removed as soon as that works."""
        self._wake: queue.SimpleQueue[bool] = queue.SimpleQueue()
        """Wakes the thread up, with whether it is to end. No event, whose lock an interrupt could leave held."""
        self._thread: threading.Thread | None = None

    def look_after(self, shelf: Shelf) -> None:
        """Saves what is idle or has to go, from now on until it is closed or the shelf is gone."""
        # A daemon: whoever wants everything saved before the process ends calls close().
        arguments = weakref.ref(shelf), weakref.ref(self), self._wake
        self._thread = threading.Thread(target=_work, args=arguments, name="toktier saver", daemon=True)
        self._thread.start()

    def wake(self) -> None:
        """Has the thread look now at what has to go."""
        if self._wake.empty():
            self._wake.put(False)

    def save(self, entry: Entry, shelf: Shelf) -> None:
        """Saves a session, if that is needed and works. The caller holds its lock."""
        if entry.session is None or not isinstance(entry.key.name, str) or shelf.is_saved(entry):
            return
        count = demotions.count(self._digest)
        try:
            data = entry.session.to_bytes()
        except (MemoryError, SessionInUse, SessionTorn, EngineFailure) as error:
            # It stays as it is, and everybody else's is saved.
            logger.warning("session %r is not saved: %r", entry.key.name, error)
            return
        used = time.time() - (time.monotonic() - entry.used)
        with self._writing:
            if count % 2 or demotions.count(self._digest) != count:
                return  # these may be ids of an engine that is trusted no more: another time
            if self._archive.put(_bytes(entry.key.salt), entry.key.name, data, used=used):
                shelf.note_saved(entry)
                with self._lock:
                    self._doomed.discard(entry.key)

    def save_all(self, shelf: Shelf, idle: float = 0.0) -> None:
        """Saves all sessions that were not used for some seconds, as far as the disk does not have them as they are."""
        self._is_cleared(shelf)
        limit = time.monotonic() - idle
        for key in shelf.unsaved(limit):
            with shelf.holding(key) as entry:
                if entry is not None:
                    with entry.lock:
                        self.save(entry, shelf)

    def load(self, key: Key, shelf: Shelf) -> bytes | None:
        """A saved session, if there is one of that name. If nothing is demoted meanwhile, its ids are trusted."""
        with self._lock:
            if key in self._doomed or not isinstance(key.name, str):
                return None
        if not self._is_cleared(shelf):
            return None
        return self._archive.get(_bytes(key.salt), key.name)

    def remove(self, key: Key) -> None:
        """Forgets a saved session."""
        if not self._archive.works:  # nothing is read from it any more, by this store
            logger.warning("session %r is forgotten here, and may still be in the file, which was given up", key.name)
            return
        with self._lock:
            self._doomed.add(key)
        self._remove_doomed()

    def keep_tidy(self) -> None:
        """Removes what is old, and what could not be removed before."""
        self._archive.expire(time.time() - KEPT)
        self._remove_doomed()

    @property
    def works(self) -> bool:
        """Whether anything can be saved: the file was not given up."""
        return self._archive.works

    def close(self, shelf: Shelf) -> None:
        """Saves everything, and closes the archive."""
        self._wake.put(True)
        if self._thread is not None:
            self._thread.join()
        try:
            self._remove_doomed()
            self.save_all(shelf)
            if self._doomed:
                logger.warning("%d sessions that were forgotten could not be removed from the file", len(self._doomed))
        finally:
            self._archive.close()

    def _is_cleared(self, shelf: Shelf) -> bool:
        """Forgets everything that is saved, if it may be of an engine that is trusted no more; whether it is gone."""
        count = demotions.count(self._digest)
        if count != self._trusted:
            with self._writing:
                shelf.note_cleared()
                # While a demotion is under way, its engine's ids may be saved again: it is cleared once more after it.
                if (self._archive.clear() or not self._archive.works) and not count % 2:
                    self._trusted = count
        return count == self._trusted

    def _remove_doomed(self) -> None:
        for key in self._doomed.copy():
            with self._writing:
                if key not in self._doomed:
                    continue
                if not self._archive.remove(_bytes(key.salt), str(key.name)):
                    return  # each of the others would wait as long
                with self._lock:
                    self._doomed.discard(key)


def _work(shelf: weakref.ref[Shelf], saver: weakref.ref[Saver], wake: queue.SimpleQueue[bool]) -> None:
    tidied = time.monotonic()
    while True:
        with contextlib.suppress(queue.Empty):
            if wake.get(timeout=IDLE / 5):
                return
        alive, at_work = shelf(), saver()
        if alive is None or at_work is None:
            return
        try:
            alive.sweep()
            at_work.save_all(alive, IDLE)
            if time.monotonic() - tidied > TIDY:
                tidied = time.monotonic()
                at_work.keep_tidy()
        except Exception:  # whatever it is, the next session is not to be lost for it
            logger.exception("saving idle sessions failed; it goes on with the next ones")
        del alive, at_work


def _bytes(salt: str) -> bytes:
    return salt.encode("utf-8", "surrogatepass")
