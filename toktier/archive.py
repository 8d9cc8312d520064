"""Saved sessions on disk: one SQLite file, safe under a killed process and between threads and processes."""

from __future__ import annotations

import contextlib
import logging
import os
import pathlib
import sqlite3
import threading
from collections.abc import Callable
from types import TracebackType
from typing import TypeVar

from toktier.errors import StateMismatch

APPLICATION = 0x746F6B74
"""What says that a file is of this library: "tokt"."""
VERSION = 1

PATIENCE = 10.0
"""Seconds to wait for another process that writes."""

logger = logging.getLogger(__name__)

T = TypeVar("T")


class Archive:
    """Bytes by salt and key. What was put is there when the call returns, whatever happens to the process.

    (A power cut may take the last ones with it, and never leaves half of one.) A file that is found to be damaged while
    it is in use is given up with a warning: nothing is found in it any more, and nothing is put.

    Args:
        path: The file; made if there is none.

    Raises:
        StateMismatch: The file is something else, damaged, or of another version.
        OSError: It cannot be opened.

    Example:
        >>> import pathlib, tempfile
        >>> with tempfile.TemporaryDirectory() as folder, Archive(pathlib.Path(folder, "sessions")) as archive:
        ...     archive.put(b"", "chat-42", b"state", used=1.0)
        ...     archive.get(b"", "chat-42"), archive.get(b"another tenant", "chat-42")
        (b'state', None)
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._path = pathlib.Path(path)
        self._lock = threading.Lock()
        self._process = os.getpid()
        self._connection: sqlite3.Connection | None = self._opened()

    def __enter__(self) -> Archive:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def __len__(self) -> int:
        """How many there are."""
        return self._do(lambda c: int(c.execute("SELECT count(*) FROM states").fetchone()[0])) or 0

    def put(self, salt: bytes, key: str, data: bytes, *, used: float) -> None:
        """Keeps some bytes in the place of those that there were.

        Args:
            salt: What separates tenants.
            key: What they are kept under.
            data: The bytes.
            used: When they were last of use, in seconds since the epoch.
        """
        row = salt, _blob(key), data, used
        self._do(lambda c: c.execute("INSERT OR REPLACE INTO states VALUES (?, ?, ?, ?)", row))

    def get(self, salt: bytes, key: str) -> bytes | None:
        """What is kept under a key, or None."""
        question = "SELECT data FROM states WHERE salt = ? AND key = ?"
        row = self._do(lambda c: c.execute(question, (salt, _blob(key))).fetchone())
        return None if row is None else bytes(row[0])

    def remove(self, salt: bytes, key: str) -> None:
        """Keeps nothing under a key any more."""
        self._do(lambda c: c.execute("DELETE FROM states WHERE salt = ? AND key = ?", (salt, _blob(key))))

    def expire(self, before: float) -> int:
        """Removes what was not of use since a time, in seconds since the epoch; returns how many that were."""
        return self._do(lambda c: c.execute("DELETE FROM states WHERE used < ?", (before,)).rowcount) or 0

    def close(self) -> None:
        """Closes the file. Nothing is found or kept afterwards."""
        with self._lock:
            if self._connection is not None and self._process == os.getpid():
                self._connection.close()
            self._connection = None

    def _do(self, action: Callable[[sqlite3.Connection], T]) -> T | None:
        with self._lock:
            if self._connection is None:
                return None
            try:
                if self._process != os.getpid():
                    # A connection must not be carried across a fork; not even closed by the child.
                    self._process, self._connection = os.getpid(), self._opened()
                return action(self._connection)
            except (sqlite3.DatabaseError, StateMismatch, OSError) as error:
                if isinstance(error, sqlite3.OperationalError) and "locked" in str(error):
                    logger.warning("archive %s is kept busy by another process: %s", self._path, error)
                    return None
                logger.warning("archive %s is given up: %s", self._path, error)
                with contextlib.suppress(sqlite3.Error):
                    self._connection.close()
                self._connection = None
                return None

    def _opened(self) -> sqlite3.Connection:
        try:
            # One statement is one transaction; the lock above is what several threads need.
            connection = sqlite3.connect(self._path, PATIENCE, isolation_level=None, check_same_thread=False)
        except sqlite3.OperationalError as error:
            raise OSError(f"archive {str(self._path)!r} cannot be opened: {error}") from None
        try:
            self._prepare(connection)
        except sqlite3.OperationalError as error:
            connection.close()
            raise OSError(f"archive {str(self._path)!r} cannot be opened: {error}") from None
        except sqlite3.DatabaseError as error:
            connection.close()
            raise StateMismatch(
                f"archive {str(self._path)!r} is damaged, or no SQLite file ({error}): delete it, or give another path"
            ) from None
        except BaseException:
            connection.close()
            raise
        return connection

    def _prepare(self, connection: sqlite3.Connection) -> None:
        application, version, tables = (
            connection.execute(question).fetchone()[0]
            for question in ("PRAGMA application_id", "PRAGMA user_version", "SELECT count(*) FROM sqlite_master")
        )
        if (application, version) != (APPLICATION, VERSION) and (application or version or tables):
            what = f"version {version}, not {VERSION}" if application == APPLICATION else "a database of something else"
            raise StateMismatch(f"archive {str(self._path)!r} is {what}: delete it, or give another path")
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = NORMAL")
        with connection:
            connection.execute("BEGIN IMMEDIATE")
            connection.execute(
                "CREATE TABLE IF NOT EXISTS states"
                " (salt BLOB, key BLOB, data BLOB NOT NULL, used REAL NOT NULL, PRIMARY KEY (salt, key))"
            )
            connection.execute(f"PRAGMA application_id = {APPLICATION}")
            connection.execute(f"PRAGMA user_version = {VERSION}")


def _blob(key: str) -> bytes:
    return key.encode("utf-8", "surrogatepass")  # SQLite's own text ends at a NUL
