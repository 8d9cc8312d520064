"""Sessions on their way to the disk and back: those that go, those that are idle, those that are asked for again."""

from __future__ import annotations

import os
import threading
import time
import weakref

from toktier.archive import Archive
from toktier.shelf import Entry, Key, Shelf

KEPT = 7 * 86400.0
"""Seconds for which a session is kept on disk."""

IDLE = 5.0
"""Seconds after its last use from which on a session is saved while it stays in memory."""


class Saver:
    """Saves the sessions of a shelf in an archive. Safe to share between threads.

    Args:
        path: The file of the archive.

    Raises:
        StateMismatch: The file is something else.
        OSError: The file cannot be opened.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._archive = Archive(path)
        self._archive.expire(time.time() - KEPT)
        self._closing = threading.Event()
        self._thread: threading.Thread | None = None

    def look_after(self, shelf: Shelf) -> None:
        """Saves what is idle, from now on until it is closed or the shelf is gone."""
        # A daemon: whoever wants everything saved before the process ends calls close().
        arguments = weakref.ref(shelf), weakref.ref(self), self._closing
        self._thread = threading.Thread(target=_save_idle, args=arguments, name="toktier saver", daemon=True)
        self._thread.start()

    def save(self, entry: Entry) -> None:
        """Saves a session. The caller holds its lock."""
        if entry.session is not None and isinstance(entry.key.name, str) and not entry.saved:
            age = time.monotonic() - entry.used
            self._archive.put(_bytes(entry.key.salt), entry.key.name, entry.session.to_bytes(), used=time.time() - age)
            entry.saved = True

    def save_all(self, shelf: Shelf, idle: float = 0.0) -> None:
        """Saves all sessions that were not used for some seconds, as far as the disk does not have them as they are."""
        limit = time.monotonic() - idle
        for key in shelf.unsaved(limit):
            with shelf.holding(key) as entry:
                if entry is not None:
                    with entry.lock:
                        self.save(entry)

    def load(self, key: Key) -> bytes | None:
        """A saved session, if there is one of that name."""
        return self._archive.get(_bytes(key.salt), key.name) if isinstance(key.name, str) else None

    def remove(self, key: Key) -> None:
        """Forgets a saved session."""
        if isinstance(key.name, str):
            self._archive.remove(_bytes(key.salt), key.name)

    def close(self, shelf: Shelf) -> None:
        """Saves everything, and closes the archive."""
        self._closing.set()
        if self._thread is not None:
            self._thread.join()
        self.save_all(shelf)
        self._archive.close()


def _save_idle(shelf: weakref.ref[Shelf], saver: weakref.ref[Saver], closing: threading.Event) -> None:
    while not closing.wait(IDLE / 5):
        alive, at_work = shelf(), saver()
        if alive is None or at_work is None:
            return
        alive.sweep()
        at_work.save_all(alive, IDLE)
        del alive, at_work


def _bytes(salt: str) -> bytes:
    return salt.encode("utf-8", "surrogatepass")
