"""The archive: what was put is there, under kill -9, threads, processes and forks; bad files are refused or dropped."""

from __future__ import annotations

import contextlib
import functools
import itertools
import logging
import os
import pathlib
import random
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import toktier
from toktier import archive as module
from toktier.archive import Archive
from toktier.errors import StateMismatch

KILLS = 50

# The package itself is left out: importing the engines would take most of the time.
ALONE = f"""
import os, sys, types
package = types.ModuleType("toktier")
package.__path__ = {list(toktier.__path__)!r}
sys.modules["toktier"] = package
from toktier.archive import Archive

def say(text):
    os.write(1, f"{{text}}\\n".encode())
"""


@contextlib.contextmanager
def running(program: str, *arguments: object) -> Iterator[subprocess.Popen[bytes]]:
    """Another process that has an archive; it is killed in the end, if it has not ended by itself."""
    command = [sys.executable, "-I", "-c", ALONE + program, *map(str, arguments)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        try:
            yield process
        finally:
            process.kill()


def run_well(program: str, *arguments: object) -> None:
    """Runs another process, which must end well."""
    command = [sys.executable, "-I", "-c", ALONE + program, *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr.decode()


@pytest.fixture
def path(tmp_path: pathlib.Path) -> pathlib.Path:
    return tmp_path / "sessions"


def pragma(path: pathlib.Path, name: str) -> object:
    with contextlib.closing(sqlite3.connect(path)) as connection:
        return connection.execute(f"PRAGMA {name}").fetchone()[0]


# --- What is kept


keys = st.sampled_from(["", "a", "a\0b", "ä", "\ud800"]) | st.text(max_size=3)
salts = st.sampled_from([b"", b"a", b"\0\xff"])
times = st.integers(0, 5)
operations = st.one_of(
    st.tuples(st.just("put"), salts, keys, st.binary(max_size=20), times),
    st.tuples(st.just("remove"), salts, keys),
    st.tuples(st.just("expire"), times),
    st.tuples(st.just("reopen")),
)


def test_any_operations_do_what_they_would_on_a_dict(tmp_path: pathlib.Path) -> None:
    files = itertools.count()

    @settings(max_examples=60)
    @given(st.lists(operations, max_size=20))
    def check(program: list[tuple[object, ...]]) -> None:
        file = tmp_path / str(next(files))
        model: dict[tuple[bytes, str], tuple[bytes, float]] = {}
        some = Archive(file)
        for operation in program:
            match operation:
                case ("put", bytes(salt), str(key), bytes(data), int(used)):
                    some.put(salt, key, data, used)
                    model[salt, key] = data, used
                case ("remove", bytes(salt), str(key)):
                    some.remove(salt, key)
                    model.pop((salt, key), None)
                case ("expire", int(before)):
                    old = [name for name, (_, used) in model.items() if used < before]
                    assert some.expire(before) == len(old)
                    for name in old:
                        del model[name]
                case _:
                    some.close()
                    some = Archive(file)
            assert len(some) == len(model)
        assert all(some.get(*name) == data for name, (data, _) in model.items())
        assert some.get(b"", "never put") is None
        some.close()

    check()


def test_the_same_key_under_two_salts_is_two(path: pathlib.Path) -> None:
    with Archive(path) as some:
        some.put(b"one", "key", b"1", 1.0)
        some.put(b"two", "key", b"2", 2.0)
        assert (some.get(b"one", "key"), some.get(b"two", "key"), some.get(b"", "key")) == (b"1", b"2", None)
        some.remove(b"one", "key")
        assert (some.get(b"one", "key"), some.get(b"two", "key")) == (None, b"2")


def test_what_was_used_at_the_time_itself_is_kept(path: pathlib.Path) -> None:
    with Archive(path) as some:
        for used in (1.0, 2.0, 3.0):
            some.put(b"", str(used), b"", used)
        some.put(b"", "1.0", b"used again", 4.0)
        assert some.expire(3.0) == 1
        assert [some.get(b"", key) for key in ("1.0", "2.0", "3.0")] == [b"used again", None, b""]


def test_large_values_are_kept(path: pathlib.Path) -> None:
    data = random.Random(0).randbytes(10_000_000)
    with Archive(path) as some:
        some.put(b"", "key", data, 1.0)
    with Archive(path) as some:
        assert some.get(b"", "key") == data


def test_the_file_says_what_it_is(path: pathlib.Path) -> None:
    Archive(path).close()
    assert [pragma(path, name) for name in ("application_id", "user_version", "journal_mode")] == [
        int.from_bytes(b"tokt", "big"),
        1,
        "wal",
    ]
    with Archive(path) as some:
        assert some._writer.connection is not None
        assert some._writer.connection.execute("PRAGMA synchronous").fetchone() == (1,)


def test_a_closed_archive_finds_and_keeps_nothing(path: pathlib.Path) -> None:
    with Archive(path) as some:
        some.put(b"", "key", b"data", 1.0)
    some.put(b"", "other", b"data", 1.0)
    some.close()
    assert (some.get(b"", "key"), len(some), some.expire(9.0)) == (None, 0, 0)
    with Archive(path) as some:
        assert (some.get(b"", "key"), some.get(b"", "other")) == (b"data", None)


def test_a_path_is_a_file_whatever_it_looks_like(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with Archive(":memory:") as some:
        some.put(b"", "key", b"data", 1.0)
    assert (tmp_path / ":memory:").exists()
    with Archive(tmp_path / ":memory:") as some:
        assert some.get(b"", "key") == b"data"


# --- Files that are refused


def make_foreign(path: pathlib.Path) -> None:
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE states (salt, key, used, data)")


def make_foreign_without_tables(path: pathlib.Path) -> None:
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA application_id = 5")


def make_another_version(path: pathlib.Path) -> None:
    Archive(path).close()
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA user_version = 2")


def make_text(path: pathlib.Path) -> None:
    path.write_text("These are notes, and they are longer than a header of SQLite, which is 100 bytes. " * 20)


def make_damaged(path: pathlib.Path) -> None:
    Archive(path).close()
    content = bytearray(path.read_bytes())
    content[100:200] = bytes(100)
    path.write_bytes(content)


def make_unsupported(path: pathlib.Path) -> None:
    Archive(path).close()
    content = bytearray(path.read_bytes())
    content[44:48] = b"\xff" * 4
    path.write_bytes(content)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (make_foreign, "a database of something else"),
        (make_foreign_without_tables, "a database of something else"),
        (make_another_version, "version 2, not 1"),
        (make_text, "not a store's file, or a damaged one"),
        (make_damaged, "not a store's file, or a damaged one"),
        (make_unsupported, "not a store's file, or a damaged one"),
    ],
)
def test_a_file_of_something_else_is_refused_and_stays_as_it_is(
    make: Callable[[pathlib.Path], None], message: str, path: pathlib.Path
) -> None:
    make(path)
    before = path.read_bytes()
    with pytest.raises(StateMismatch, match=message) as caught:
        Archive(path)
    assert str(path) in str(caught.value)
    assert "give another path" in str(caught.value)
    assert path.read_bytes() == before


def test_a_path_that_cannot_be_is_an_oserror(tmp_path: pathlib.Path) -> None:
    for path, message in (
        (tmp_path, "is a directory"),
        (tmp_path / "no such folder" / "sessions", r"cannot be opened .* its folder must exist"),
    ):
        with pytest.raises(OSError, match=message) as caught:
            Archive(path)
        assert str(path) in str(caught.value)
    assert not list(tmp_path.iterdir())


def test_an_empty_file_becomes_an_archive(path: pathlib.Path) -> None:
    path.touch()
    with Archive(path) as some:
        some.put(b"", "key", b"data", 1.0)
        assert some.get(b"", "key") == b"data"


# --- Files that go bad while they are in use


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    assert all(record.levelno == logging.WARNING for record in caplog.records)
    return [record.getMessage() for record in caplog.records if record.name == "toktier.archive"]


def test_a_file_found_to_be_damaged_later_is_given_up_with_one_warning(
    path: pathlib.Path, caplog: pytest.LogCaptureFixture
) -> None:
    with Archive(path) as some:
        some.put(b"", "key", b"data", 1.0)
        page = pragma(path, "page_size")
    assert isinstance(page, int)
    content = path.read_bytes()
    path.write_bytes(content[:page] + b"\xa5" * (len(content) - page))
    with Archive(path) as some:
        assert not warnings(caplog)
        assert some.get(b"", "key") is None
        some.put(b"", "key", b"data", 1.0)
        some.remove(b"", "key")
        assert (some.get(b"", "key"), some.expire(5.0), len(some)) == (None, 0, 0)
    (message,) = warnings(caplog)
    assert str(path) in message
    assert "given up" in message


def test_a_full_disk_is_no_error(path: pathlib.Path, caplog: pytest.LogCaptureFixture) -> None:
    with Archive(path) as some:
        some.put(b"", "key", b"data", 1.0)
        assert some._writer.connection is not None
        some._writer.connection.execute("PRAGMA max_page_count = 8")
        some.put(b"", "key", bytes(100_000), 1.0)
        some.put(b"", "other", bytes(100_000), 1.0)
    (message,) = warnings(caplog)
    assert "full" in message
    with Archive(path) as some:
        assert some.get(b"", "key") == b"data"


def test_another_process_that_writes_for_long_is_no_error(
    path: pathlib.Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "PATIENCE", 0.01)
    with Archive(path) as some, contextlib.closing(sqlite3.connect(path, isolation_level=None)) as other:
        some.put(b"", "key", b"1", 1.0)
        other.execute("BEGIN IMMEDIATE")
        some.put(b"", "key", b"2", 1.0)
        assert some.get(b"", "key") == b"1"
        with pytest.raises(OSError, match="database is locked"):
            Archive(path)
        other.execute("ROLLBACK")
        some.put(b"", "key", b"3", 1.0)
        assert some.get(b"", "key") == b"3"
    (message,) = warnings(caplog)
    assert "kept busy" in message


def test_what_is_too_large_for_sqlite_is_not_put(
    path: pathlib.Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "LARGEST", 10)
    with Archive(path) as some:
        some.put(b"", "key", bytes(10), 1.0)
        some.put(b"", "key", bytes(11), 1.0)
        assert some.get(b"", "key") == bytes(10)
    (message,) = warnings(caplog)
    assert "11 bytes" in message


def test_whatever_bit_is_flipped_nothing_else_is_raised(path: pathlib.Path) -> None:
    with Archive(path) as some:
        for i in range(5):
            some.put(b"salt", str(i), bytes(range(256)) * 30, i)
    content = path.read_bytes()
    draw = random.Random(0)
    places = [*range(0, 100, 3), *(draw.randrange(len(content)) for _ in range(60))]
    # The headers of the pages and of the rows, where a blob may become a number or a text.
    zeros = [i for i in range(100, len(content) - 1) if content[i] != content[i - 1] + 1]
    places += draw.sample(zeros, 60)
    file = path.with_name("flipped")
    for at in places:
        flipped = bytearray(content)
        flipped[at] ^= 1 << draw.randrange(8)
        file.write_bytes(flipped)
        try:
            some = Archive(file)
        except (StateMismatch, OSError):  # it may say that it must not be written
            continue
        with some:
            assert all(isinstance(some.get(b"salt", str(i)), (bytes, type(None))) for i in range(5))
            some.put(b"salt", "0", b"", 1.0)
            some.remove(b"salt", "1")
            assert some.expire(3.0) >= 0
            assert len(some) >= 0


@pytest.mark.parametrize("value", ["'a text'", "10000000000000", "1.5"])
def test_what_is_no_blob_is_no_error(value: str, path: pathlib.Path) -> None:
    with Archive(path) as some:
        some.put(b"", "key", b"data", 1.0)
        assert some._writer.connection is not None
        some._writer.connection.execute(f"UPDATE states SET data = {value}")
        assert isinstance(some.get(b"", "key"), bytes)


# --- Threads, processes, forks


def test_many_threads_put_and_get(path: pathlib.Path) -> None:
    start = threading.Barrier(16)
    failures: list[object] = []

    def work(some: Archive, me: int) -> None:
        start.wait()
        salt = bytes([me % 4])
        for i in range(40):
            data = b"%d:%d;" % (me, i) * 100
            some.put(salt, f"{me} {i % 3}", data, i)
            if some.get(salt, f"{me} {i % 3}") != data:
                failures.append((me, i))

    with Archive(path) as some:
        threads = [threading.Thread(target=work, args=(some, me)) for me in range(16)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not failures
        assert len(some) == 16 * 3
        assert all(some.get(bytes([me % 4]), f"{me} 0") == b"%d:39;" % me * 100 for me in range(16))


PUTS = """
archive, me = Archive(sys.argv[1]), sys.argv[2]
for i in range(200):
    archive.put(b"", f"{me} {i}", f"{me} {i};".encode() * 200, i)
    archive.put(b"", "shared", me.encode() * 30_000, i)
archive.close()
"""


def test_two_processes_share_a_file(path: pathlib.Path) -> None:
    with running(PUTS, path, "a") as one, running(PUTS, path, "b") as two, Archive(path) as some:
        while one.poll() is None or two.poll() is None:
            assert some.get(b"", "shared") in (None, b"a" * 30_000, b"b" * 30_000)
        assert (one.returncode, two.returncode) == (0, 0)
        assert len(some) == 401
        for me, i in itertools.product("ab", range(200)):
            assert some.get(b"", f"{me} {i}") == f"{me} {i};".encode() * 200


OPENS = """
say("ready")
for line in sys.stdin:
    try:
        with Archive(line.strip()) as archive:
            archive.put(b"", sys.argv[1], b"data", 1.0)
        say("opened")
    except Exception as error:
        say(repr(error))
"""


def test_processes_that_make_the_same_file_at_once_all_open_it(tmp_path: pathlib.Path) -> None:
    with contextlib.ExitStack() as stack:
        processes = [stack.enter_context(running(OPENS, me)) for me in range(4)]

        def answers() -> list[bytes]:
            return [process.stdout.readline().strip() for process in processes if process.stdout is not None]

        assert answers() == [b"ready"] * 4
        for i in range(20):
            for process in processes:
                assert process.stdin is not None
                process.stdin.write(f"{tmp_path / str(i)}\n".encode())
                process.stdin.flush()
            assert answers() == [b"opened"] * 4
            with Archive(tmp_path / str(i)) as some:
                assert len(some) == 4


def test_a_file_that_another_makes_meanwhile_is_no_other_file(
    path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    others: list[threading.Thread] = []

    class Interrupted(sqlite3.Connection):
        """Between two questions about the file, another thread opens it as well."""

        def execute(self, statement: str, *arguments: Any) -> sqlite3.Cursor:
            if "user_version" in statement and not others:
                monkeypatch.undo()
                others.append(threading.Thread(target=lambda: Archive(path).close()))
                others[0].start()
                others[0].join(0.3)
            return super().execute(statement, *arguments)

    monkeypatch.setattr(sqlite3, "connect", functools.partial(sqlite3.connect, factory=Interrupted))
    Archive(path).close()
    others[0].join()
    with Archive(path) as some:
        some.put(b"", "key", b"data", 1.0)
        assert some.get(b"", "key") == b"data"


def test_the_switch_to_wal_is_tried_again(path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    refusals = iter(range(3))

    class Refused(sqlite3.Connection):
        """SQLite as it is where two processes switch at once."""

        def execute(self, statement: str, *arguments: Any) -> sqlite3.Cursor:
            if "journal_mode" in statement and next(refusals, None) is not None:
                raise sqlite3.OperationalError("database is locked")
            return super().execute(statement, *arguments)

    monkeypatch.setattr(sqlite3, "connect", functools.partial(sqlite3.connect, factory=Refused))
    Archive(path).close()
    assert next(refusals, None) is None
    monkeypatch.undo()
    assert pragma(path, "journal_mode") == "wal"


FORKS = """
os.chdir(sys.argv[1])
archive = Archive("sessions")
os.chdir("/")
archive.put(b"", "parent", b"1", 1.0)
child_reads, parent_writes = os.pipe()
parent_reads, child_writes = os.pipe()
if os.fork() == 0:
    assert archive.get(b"", "parent") == b"1"
    os.write(child_writes, b"!")
    os.read(child_reads, 1)
    archive.put(b"", "child", b"2", 1.0)
    os._exit(0)  # as if it was killed
os.read(parent_reads, 1)
archive.put(b"", "parent", b"3", 1.0)
archive.close()
os.write(parent_writes, b"!")
assert os.wait()[1] == 0
"""

forks = pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")


@forks
def test_a_forked_process_has_a_connection_of_its_own(path: pathlib.Path) -> None:
    run_well(FORKS, path.parent)
    with Archive(path) as some:
        assert (some.get(b"", "parent"), some.get(b"", "child")) == (b"3", b"2")


FORKS_AT_WORK = """
import threading
archive, stop = Archive(sys.argv[1]), threading.Event()

def work(me):
    i = 0
    while not stop.is_set():
        i += 1
        archive.put(b"", me, b"%d" % i, 1.0)
        assert archive.get(b"", me) == b"%d" % i

threads = [threading.Thread(target=work, args=(str(me),)) for me in range(2)]
for thread in threads:
    thread.start()
for i in range(10):
    if os.fork() == 0:
        archive.put(b"", f"child {i}", b"child", 1.0)
        os._exit(0)
    assert os.wait()[1] == 0
stop.set()
for thread in threads:
    thread.join()
archive.close()
"""


@forks
def test_a_fork_while_other_threads_are_at_work_does_not_hang(path: pathlib.Path) -> None:
    run_well(FORKS_AT_WORK, path)
    with Archive(path) as some:
        assert len(some) == 12
        assert all(some.get(b"", f"child {i}") == b"child" for i in range(10))


@forks
def test_after_a_fork_a_file_that_went_bad_is_given_up(path: pathlib.Path, caplog: pytest.LogCaptureFixture) -> None:
    with Archive(path) as some:
        module._pause()
        make_text(path)
        module._resume()
        assert some.get(b"", "key") is None
        some.put(b"", "key", b"data", 1.0)
    assert len(warnings(caplog)) == 1


def test_a_fork_that_is_interrupted_while_it_waits_leaves_nothing_locked(path: pathlib.Path) -> None:
    """The system forks all the same, and calls what comes after it."""
    with Archive(path) as some, Archive(path) as other:
        with (
            mock.patch.object(module._Line, "disconnect", side_effect=InterruptedError),
            pytest.raises(InterruptedError),
        ):
            module._pause()
        module._resume()
        assert not any(line.lock.locked() for it in (some, other) for line in (it._writer, it._reader))
        assert some.put(b"", "a", b"state", used=1.0)
    with Archive(path) as some:  # which waits for forks that are under way
        assert some.get(b"", "a") == b"state"


# --- Killed processes


WRITES = """
archive, n = Archive(sys.argv[1]), int(sys.argv[2])
while True:
    n += 1
    archive.put(b"", f"key {n % 4}", f"version {n};".encode() * (1 + n * 7919 % 4000), 1.0)
    say(n)
"""


def version(n: int) -> bytes:
    return f"version {n};".encode() * (1 + n * 7919 % 4000)


def test_a_killed_process_loses_nothing_that_was_put(path: pathlib.Path) -> None:
    draw = random.Random(0)
    certain = dict.fromkeys(range(4), 0)
    """The version of each key that must be there; none of the first."""
    n, in_flight = 0, 0
    for _ in range(KILLS):
        with running(WRITES, path, n) as process:
            assert process.stdout is not None
            # When these reports are read, the writer is anywhere in what follows them.
            reports = [process.stdout.readline() for _ in range(draw.randrange(1, 60))]
            process.kill()
            reports += process.stdout.readlines()
            assert process.wait() in (-9, 1)
        for report in reports:
            assert int(report) == n + 1
            n += 1
            certain[n % 4] = n
        with Archive(path) as some:
            assert some._writer.connection is not None
            assert some._writer.connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
            for key, last in certain.items():
                data = some.get(b"", f"key {key}")
                if key == (n + 1) % 4 and data == version(n + 1):
                    certain[key] = n + 1
                    in_flight += 1
                else:
                    assert data == (version(last) if last else None)
        n = max(certain.values())
    assert n > KILLS + in_flight
