"""Saved sessions on disk: one SQLite file, safe under a killed process and between threads and processes."""

from __future__ import annotations

import contextlib
import logging
import os
import pathlib
import sqlite3
import threading
import time
import weakref
from collections.abc import Callable
from types import TracebackType
from typing import TypeVar

from toktier.errors import StateMismatch

APPLICATION = 0x746F6B74
"""What says that a file is of this library: "tokt"."""
VERSION = 1

PATIENCE = 10.0
"""Seconds to wait for another process that writes."""

LARGEST = 900_000_000
"""Bytes of a value up to which SQLite keeps it; its own limit is 10**9 for a whole row."""

logger = logging.getLogger(__name__)

T = TypeVar("T")


class Archive:
    """Bytes by salt and key. What was put is there when the call returns, whatever happens to the process.

    A power cut may take the last ones with it, and never leaves half of one. Threads and processes may share a file;
    a process that was forked goes on with a connection of its own.

    Once it is open, nothing that happens to the file is an error: whoever serves goes on without. A file that turns out
    to be damaged, or that cannot be read or written any more (the disk is full), is given up with one warning: nothing
    is found in it, and nothing is put. A call that another process keeps waiting for too long, or that puts more than
    SQLite takes, logs a warning and does nothing. Reading waits for nobody who writes.

    Args:
        path: The file; made if there is none.

    Raises:
        StateMismatch: The file is something else, damaged, or of another version.
        OSError: It cannot be opened.

    Example:
        >>> import pathlib, tempfile
        >>> with tempfile.TemporaryDirectory() as folder, Archive(pathlib.Path(folder, "sessions")) as archive:
        ...     _ = archive.put(b"", "chat-42", b"state", used=1.0)
        ...     archive.get(b"", "chat-42"), archive.get(b"another tenant", "chat-42")
        (b'state', None)
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        if path in ("", b""):
            raise ValueError("path must not be empty: it is the file that sessions are saved in")
        self._path = pathlib.Path(path).absolute()  # it may be opened again, after a change of directory
        if self._path.is_dir():
            raise IsADirectoryError(f"archive {str(self._path)!r} is a directory: give the path of a file in it")
        with contextlib.suppress(OSError):  # it has transcripts in it, which are nobody else's business
            os.close(os.open(self._path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
        self._over = False
        """Whether it is closed or given up."""
        self._writer, self._reader = _Line(), _Line()
        self._writer.connection = self._opened(to_write=True)
        with _forking:
            _archives.add(self)

    def __enter__(self) -> Archive:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def __len__(self) -> int:
        """How many there are."""
        question = "SELECT count(*) FROM states"
        return self._do(self._reader, lambda c: int(c.execute(question).fetchone()[0])) or 0

    @property
    def works(self) -> bool:
        """Whether it is neither closed nor given up."""
        return not self._over

    def put(self, salt: bytes, key: str, data: bytes, used: float) -> bool:
        """Keeps some bytes in the place of those that there were.

        Args:
            salt: What separates tenants.
            key: What they are kept under.
            data: The bytes.
            used: When they were last of use, in seconds since the epoch.

        Returns:
            Whether they are kept now.
        """
        if len(data) > LARGEST:
            logger.warning("archive %s does not take %d bytes for one key, at most %d", self._path, len(data), LARGEST)
            return False
        row = salt, _blob(key), used, data
        statement = "INSERT OR REPLACE INTO states (salt, key, used, data) VALUES (?, ?, ?, ?)"
        return self._do(self._writer, lambda c: c.execute(statement, row)) is not None

    def get(self, salt: bytes, key: str) -> bytes | None:
        """What is kept under a key, or None."""
        question = "SELECT CAST(data AS BLOB) FROM states WHERE salt = ? AND key = ?"
        row: tuple[bytes | None] | None = self._do(
            self._reader, lambda c: c.execute(question, (salt, _blob(key))).fetchone()
        )
        return None if row is None else row[0]

    def remove(self, salt: bytes, key: str) -> bool:
        """Keeps nothing under a key any more; whether that is so now."""
        statement = "DELETE FROM states WHERE salt = ? AND key = ?"
        return self._do(self._writer, lambda c: c.execute(statement, (salt, _blob(key)))) is not None

    def clear(self) -> bool:
        """Keeps nothing any more; whether that is so now."""
        return self._do(self._writer, lambda c: c.execute("DELETE FROM states")) is not None

    def expire(self, before: float) -> int:
        """Removes what was not of use since a time, in seconds since the epoch; returns how many that were."""
        statement = "DELETE FROM states WHERE used < ?"
        return self._do(self._writer, lambda c: c.execute(statement, (before,)).rowcount) or 0

    def close(self) -> None:
        """Closes the file. Nothing is found or kept afterwards."""
        self._over = True
        for line in (self._writer, self._reader):
            with line.lock:
                line.disconnect()

    def _do(self, line: _Line, action: Callable[[sqlite3.Connection], T]) -> T | None:
        with line.lock:
            if self._over:
                line.disconnect()
                return None
            try:
                if line.connection is None:  # it was not needed yet, or this process was forked, or has forked
                    line.connection = self._opened(to_write=line is self._writer)
                return action(line.connection)
            except (sqlite3.Error, StateMismatch, OSError) as error:
                if _is_locked(error) or _is_locked(error.__cause__):
                    logger.warning("archive %s is kept busy by another process: %s", self._path, error)
                    return None
                if not self._over:
                    logger.warning(
                        "archive %s is given up: %s. Sessions go on in memory and give the right ids; nothing is saved"
                        " until the store is made anew",
                        self._path,
                        error,
                    )
                self._over = True
                line.disconnect()
                return None

    def _opened(self, *, to_write: bool) -> sqlite3.Connection:
        connection: sqlite3.Connection | None = None
        try:
            # One statement is one transaction; the lock above is what several threads need.
            connection = sqlite3.connect(self._path, timeout=PATIENCE, isolation_level=None, check_same_thread=False)
            if to_write:
                self._prepare(connection)
            else:
                self._look_at(connection)
        except BaseException as error:
            if connection is not None:
                connection.close()
            # SQLite says this of a file, and of everything else that is operational that it is out of reach.
            if isinstance(error, sqlite3.OperationalError) and "unsupported file format" not in str(error):
                raise OSError(
                    f"archive {str(self._path)!r} cannot be opened ({error}): its folder must exist and be writeable,"
                    " or give another path"
                ) from error
            if isinstance(error, sqlite3.DatabaseError):
                raise StateMismatch(
                    f"{str(self._path)!r} is not a store's file, or a damaged one ({error}): give another path"
                ) from None
            raise
        return connection

    def _prepare(self, connection: sqlite3.Connection) -> None:
        # All in one transaction: another process may be making the same file.
        connection.execute("BEGIN IMMEDIATE")
        if not self._look_at(connection):
            # The bytes stand last: whoever looks for what is old must not read through them.
            connection.execute(
                "CREATE TABLE states"
                " (salt BLOB, key BLOB, used REAL NOT NULL, data BLOB NOT NULL, PRIMARY KEY (salt, key))"
            )
            connection.execute(f"PRAGMA application_id = {APPLICATION}")
            connection.execute(f"PRAGMA user_version = {VERSION}")
        connection.execute("COMMIT")
        _write_ahead(connection)
        connection.execute("PRAGMA synchronous = NORMAL")

    def _look_at(self, connection: sqlite3.Connection) -> bool:
        """Whether a database is an archive already, and not empty."""
        application, version, tables = (
            connection.execute(question).fetchone()[0]
            for question in ("PRAGMA application_id", "PRAGMA user_version", "SELECT count(*) FROM sqlite_master")
        )
        if (application, version) == (APPLICATION, VERSION):
            return True
        if application or version or tables:
            ours = application == APPLICATION
            what = f"a store's file of version {version}, not {VERSION}" if ours else "a database of something else"
            raise StateMismatch(f"{str(self._path)!r} is {what}: give another path, or delete it if a store wrote it")
        return False


class _Line:
    """A connection, and the lock for the threads that use it."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.connection: sqlite3.Connection | None = None

    def disconnect(self) -> None:
        """Closes the connection; the caller holds the lock."""
        if self.connection is not None:
            with contextlib.suppress(sqlite3.Error):
                self.connection.close()
        self.connection = None


def _write_ahead(connection: sqlite3.Connection) -> None:
    """Switches to WAL, which happens once to a file.

    Where two do it at once, SQLite refuses one of them without waiting, lest both wait for one another.
    """
    deadline = time.monotonic() + PATIENCE
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL")
            return
        except sqlite3.OperationalError as error:
            if not _is_locked(error) or time.monotonic() > deadline:
                raise
        time.sleep(0.01)


def _is_locked(error: BaseException | None) -> bool:
    return isinstance(error, sqlite3.OperationalError) and "locked" in str(error)


def _blob(key: str) -> bytes:
    return key.encode("utf-8", "surrogatepass")  # SQLite's own text ends at a NUL


_forking = threading.Lock()
_archives: weakref.WeakSet[Archive] = weakref.WeakSet()
_paused: list[_Line] = []
"""The connections that are locked, so that a wait that is interrupted leaves none of them so."""


def _pause() -> None:
    """Before a fork: waits for every archive's call, and closes its connection.

    A child must neither use nor close a connection of its parent. SQLite also remembers the locks of its process, so
    that even a new one in the child would rest on locks that only the parent has.
    """
    _forking.acquire()
    for archive in list(_archives):
        for line in (archive._writer, archive._reader):
            line.lock.acquire()
            _paused.append(line)
            line.disconnect()


def _resume() -> None:
    """After a fork, on both sides; each connects when it is called again."""
    while _paused:
        _paused.pop().lock.release()
    _forking.release()


if hasattr(os, "register_at_fork"):  # not on Windows, which does not fork
    os.register_at_fork(before=_pause, after_in_parent=_resume, after_in_child=_resume)
