"""Long texts: cut near evenly spaced targets, encoded in parallel, and the ids are those of the whole."""

from __future__ import annotations

import base64
import gc
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from typing import Any
from unittest import mock

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests import material, zoo
from tests.rooms import small_rooms
from toktier import executor, planner
from toktier.campaign.texts import EVERYWHERE, fragments
from toktier.engines.base import Engine, Ids
from toktier.executor import Executor
from toktier.planner import CHUNK, parts

MINI = material.load("toktier-mini")


@pytest.fixture(scope="module")
def long_text() -> str:
    return material.transcripts(400_000)


@pytest.fixture(autouse=True)
def tiny_chunks_are_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(executor, "LEAST", 1)


@pytest.mark.parametrize("name", material.available())
def test_a_text_cut_anywhere_has_the_ids_of_the_whole(name: str) -> None:
    tok, reference = material.load(name), material.reference(name)
    texts = st.lists(st.sampled_from([*fragments(tok), *EVERYWHERE * 5]), max_size=40).map("".join)

    @given(texts, st.integers(1, 30))
    def check(text: str, size: int) -> None:
        cuts = tok.planner.cuts(text, size)
        assert all(tok.family.is_cut(text, cut, continuation=True) for cut in cuts)
        assert cuts == sorted(set(cuts))
        with small_rooms():
            assert tok.encode(text).tolist() == reference(text)
        encoded = tok.planner.encode_parts(parts(text, cuts), tok.engine("reference"), continuation=False)
        assert [id for ids in encoded for id in ids.tolist()] == reference(text)

    check()


def test_chunks_are_about_as_long_as_they_should_be(long_text: str) -> None:
    for size in (5000, CHUNK):
        lengths = [len(part) for part in parts(long_text, MINI.planner.cuts(long_text, size))]
        assert "".join(parts(long_text, MINI.planner.cuts(long_text, size))) == long_text
        assert max(lengths) < 2 * size
        assert len(lengths) >= len(long_text) // size - 1


NO_CUTS = {
    "one letter": "a" * 300_000,
    "spaces": " " * 300_000,
    "line ends": "\n" * 300_000,
    "base64": base64.b64encode(random.Random(0).randbytes(225_000)).decode(),
}


@pytest.mark.parametrize("text", NO_CUTS.values(), ids=NO_CUTS)
def test_texts_with_few_cuts_or_none_are_right(text: str) -> None:
    assert MINI.encode(text).tolist() == material.reference("toktier-mini")(text)
    assert MINI.session(text).ids.tolist() == material.reference("toktier-mini")(text)


def test_looking_for_a_cut_is_bounded() -> None:
    with mock.patch.object(type(MINI.family), "last_cut", wraps=MINI.family.last_cut) as asked:
        assert MINI.planner.cuts("a" * 1_000_000) == []
    assert asked.call_args_list
    assert all(stop - start <= planner.REACH for (_, start, stop), _ in asked.call_args_list)


def test_a_batch_of_long_texts_is_what_each_of_them_is(long_text: str) -> None:
    texts = [long_text[:5], "", long_text[:200_000], long_text[7:90_000]]
    batch = MINI.encode_batch(texts)
    assert [ids.tolist() for ids in batch] == [material.reference("toktier-mini")(text) for text in texts]


def test_a_guarded_character_sends_one_chunk_to_the_reference(long_text: str) -> None:
    from toktier.engines.admission import Evidence
    from toktier.engines.memo import MemoEngine
    from toktier.route import Route

    reference = MINI.engine("reference")
    text = long_text[:200_000] + "\u2e3b" + long_text[200_000:]
    for call_size in (0, 1 << 19):
        evidence = Evidence("planted", ((0x2E3B, 0x2E3B),), None, 0)
        engine = MemoEngine(MINI.family, reference)  # type: ignore[arg-type]
        engine.call_size = call_size  # type: ignore[attr-defined]
        route = Route(engine, reference, "", evidence)  # type: ignore[arg-type]
        assert MINI.planner.encode(text, route).tolist() == material.reference("toktier-mini")(text)
        assert route.guarded == 1
        assert route.texts > 8


def test_unsupported_tokenizers_are_encoded_whole(long_text: str) -> None:
    name, text = next(iter(zoo.UNSUPPORTED)), long_text[:150_000]
    tok, reference = material.registry().load(zoo.build(name)), zoo.build(name)
    assert tok.planner.cuts(text) == []
    assert tok.encode(text).tolist() == reference.encode(text, add_special_tokens=False).ids


# The executor


class Slow:
    """An engine whose calls last until they are let go, and which notes what it was given."""

    name = "slow"

    def __init__(self, call_size: int = 0) -> None:
        self.call_size = call_size
        self.given: list[str] = []
        self.go = threading.Semaphore(0)
        self.begun = threading.Semaphore(0)
        self.running = self.most = 0
        self._lock = threading.Lock()

    def encode(self, text: str, *, continuation: bool = False) -> Ids:
        return self.encode_batch([text])[0]

    def encode_batch(self, texts: Sequence[str], *, continuation: bool = False) -> list[Ids]:
        with self._lock:
            self.given += texts
            self.running += 1
            self.most = max(self.most, self.running)
        self.begun.release()
        assert self.go.acquire(timeout=30)
        with self._lock:
            self.running -= 1
        return [np.array([len(text)], np.uint32) for text in texts]


def started(work: Executor, engine: Engine, chunks: list[str], results: list[object]) -> threading.Thread:
    """A thread that has chunks encoded."""

    def call() -> None:
        try:
            results.append([int(ids[0]) for ids in work.encode(engine, chunks)])
        except Exception as error:
            results.append(error)

    thread = threading.Thread(target=call)
    thread.start()
    return thread


def waiting(work: Executor, count: int) -> None:
    deadline = time.monotonic() + 10
    while len(work._waiting) != count:
        assert time.monotonic() < deadline
        time.sleep(0.001)


def test_the_text_with_least_left_is_served_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(executor, "AGEING", 0)
    work, engine, results = Executor(1), Slow(), list[object]()
    threads = [started(work, engine, ["first", "first"], results)]
    assert engine.begun.acquire(timeout=10)
    for number, chunks in enumerate((["long"] * 5, ["new"]), 2):
        threads.append(started(work, engine, chunks, results))
        waiting(work, number)
    for _ in range(8):
        engine.go.release()
    for thread in threads:
        thread.join(10)
    assert engine.given == ["first", "new", "first", "long", "long", "long", "long", "long"]
    assert sorted(map(str, results)) == ["[3]", "[4, 4, 4, 4, 4]", "[5, 5]"]


def test_a_text_that_has_waited_passes_shorter_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(executor, "AGEING", 1_000_000_000)
    work, engine, results = Executor(1), Slow(), list[object]()
    threads = [started(work, engine, ["first"], results)]
    assert engine.begun.acquire(timeout=10)
    for number, chunks in enumerate((["long"] * 5, ["short"]), 1):
        threads.append(started(work, engine, chunks, results))
        waiting(work, number)
        time.sleep(0.01)
    for _ in range(7):
        engine.go.release()
    for thread in threads:
        thread.join(10)
    assert engine.given == ["first", "long", "long", "long", "long", "long", "short"]


@pytest.mark.parametrize(("texts", "most"), [(1, 3), (2, 2), (4, 2)])
def test_one_text_has_all_cores_and_several_leave_one(texts: int, most: int) -> None:
    work, engine, results = Executor(3), Slow(), list[object]()
    blocker = Slow()
    first = started(work, blocker, ["x"] * 3, results)  # so that all of the others wait before any is begun
    for _ in range(3):
        assert blocker.begun.acquire(timeout=10)
    threads = [first]
    for number in range(1, texts + 1):
        threads.append(started(work, engine, [f"text {number}"] * 6, results))
        waiting(work, number)
    for _ in range(3):
        blocker.go.release()
    for _ in range(most):
        assert engine.begun.acquire(timeout=10)
    time.sleep(0.02)
    assert engine.most == most
    for _ in range(6 * texts):
        engine.go.release()
    for thread in threads:
        thread.join(10)
    assert len(results) == 1 + texts


def test_an_engine_is_given_as_many_chunks_as_are_worth_a_call() -> None:
    engine = Slow(call_size=10)
    for _ in range(3):
        engine.go.release()
    chunks = ["one", "two", "three", "four", "five", "six", "seven"]
    encoded = Executor(1).encode(engine, chunks)
    assert [int(ids[0]) for ids in encoded] == list(map(len, chunks))
    assert engine.begun._value == 3


def test_many_short_texts_go_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(executor, "LEAST", 1 << 14)
    engine = Slow()
    for _ in range(4):
        engine.go.release()
    texts = ["sixteen letters."] * 4000
    assert [int(ids[0]) for ids in Executor(1).encode(engine, texts)] == [16] * 4000
    assert engine.begun._value == 4


class Failing:
    name = "failing"

    def encode(self, text: str, *, continuation: bool = False) -> Ids:
        if text == "bad":
            raise OSError("as planned")
        return np.array([len(text)], np.uint32)

    def encode_batch(self, texts: Sequence[str], *, continuation: bool = False) -> list[Ids]:
        return [self.encode(text) for text in texts]


def test_what_an_engine_raises_is_raised_where_it_was_asked_and_nowhere_else() -> None:
    work = Executor(2)
    for _ in range(20):
        with pytest.raises(OSError, match="as planned"):
            work.encode(Failing(), ["good"] * 3 + ["bad"] + ["good"] * 30)
        assert work._waiting == []  # nobody waits for the rest of it
        assert [int(ids[0]) for ids in work.encode(Failing(), ["good"] * 9)] == [4] * 9


def test_without_threads_it_is_done_where_it_was_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*arguments: object) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    work = Executor(2)
    assert [int(ids[0]) for ids in work.encode(Failing(), ["good"] * 9)] == [4] * 9


@pytest.mark.parametrize("when", ["before a thread is started", "after it", "before it is asked", "after it was"])
def test_an_interrupt_while_a_thread_is_asked_leaves_none_busy(when: str, monkeypatch: pytest.MonkeyPatch) -> None:
    work, start = Executor(1), threading.Thread.start

    def started(thread: threading.Thread) -> None:
        if when == "after it":
            start(thread)
        raise KeyboardInterrupt

    class Tickets:
        def put(self, ticket: Any) -> None:
            if when == "after it was":
                tickets.put(ticket)
            raise KeyboardInterrupt

    tickets = work._tickets
    with monkeypatch.context() as patch:
        if "started" in when or when == "after it":
            patch.setattr(threading.Thread, "start", started)
        else:
            work._start()
            patch.setattr(work, "_tickets", Tickets())
        with pytest.raises(KeyboardInterrupt):
            work.encode(Failing(), ["good"] * 9)
    assert (work._waiting, work._busy) == ([], 0)
    assert [int(ids[0]) for ids in work.encode(Failing(), ["good"] * 9)] == [4] * 9


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="there are no timers")
def test_signals_wherever_they_come_wedge_nothing() -> None:
    class Deadline(BaseException):
        pass

    def late(*arguments: object) -> None:
        raise Deadline

    def is_interrupted(delay: float) -> bool:
        try:
            signal.setitimer(signal.ITIMER_REAL, delay)
            work.encode(Failing(), ["good"] * 3)
            signal.setitimer(signal.ITIMER_REAL, 0)
        except Deadline:
            return True
        return False

    work = Executor(2)
    before = signal.signal(signal.SIGALRM, late)
    try:
        interrupted = sum(is_interrupted(20e-6 + number % 60 * 5e-6) for number in range(600))
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert interrupted > 20
    done = threading.Thread(target=work.encode, args=(Failing(), ["good"] * 9), daemon=True)
    done.start()
    done.join(30)
    assert not done.is_alive()


def test_a_handler_at_the_end_of_the_interpreter_may_encode_long_texts() -> None:
    program = """
import atexit, time

def at_the_end():
    time.sleep(0.2)
    print(len(tok.encode("Hello world. " * 30000)) == count, flush=True)

atexit.register(at_the_end)
import toktier
tok = toktier.load("toktier-mini")
count = len(tok.encode("Hello world. " * 30000))
"""
    done = subprocess.run([sys.executable, "-c", program], check=False, capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout) == (0, "True\n"), done.stderr


def test_threads_end_with_their_executor() -> None:
    work = Executor(2)
    before = set(threading.enumerate())
    assert len(work.encode(Failing(), ["good" * 10_000] * 9)) == 9
    mine = [thread for thread in threading.enumerate() if thread.name == "toktier chunks" and thread not in before]
    assert mine
    del work
    gc.collect()
    for thread in mine:
        thread.join(30)
        assert not thread.is_alive()


def test_a_caller_that_is_interrupted_leaves_nothing_behind() -> None:
    work, engine = Executor(1), Slow()
    with mock.patch.object(executor._Job, "wait", side_effect=KeyboardInterrupt), pytest.raises(KeyboardInterrupt):
        work.encode(engine, ["a"] * 5)
    assert work._waiting == []
    for _ in range(5):
        engine.go.release()
    assert len(work.encode(Failing(), ["good"] * 2)) == 2


@pytest.mark.skipif(sys.platform == "win32", reason="there is no fork")
def test_a_forked_process_has_threads_of_its_own(long_text: str) -> None:
    tok = MINI
    expected = tok.encode(long_text).tolist()
    child = os.fork()
    if child == 0:
        same = tok.encode(long_text).tolist() == expected
        os._exit(0 if same else 1)
    deadline = time.monotonic() + 60
    while (done := os.waitpid(child, os.WNOHANG)) == (0, 0):
        if time.monotonic() > deadline:
            os.kill(child, 9)
            os.waitpid(child, 0)
            pytest.fail("the child hangs")
        time.sleep(0.01)
    assert os.waitstatus_to_exitcode(done[1]) == 0


@pytest.mark.parametrize("threads", [8])
def test_many_threads_at_once_get_each_their_own(threads: int, long_text: str) -> None:
    texts = [long_text[i * 1000 : i * 1000 + 140_000 + i] for i in range(threads)]
    results: list[bool] = []
    reference = material.reference("toktier-mini")

    def call(text: str) -> None:
        results.append(MINI.encode(text).tolist() == reference(text))

    running = [threading.Thread(target=call, args=(text,)) for text in texts]
    for thread in running:
        thread.start()
    for thread in running:
        thread.join(60)
    assert results == [True] * threads
