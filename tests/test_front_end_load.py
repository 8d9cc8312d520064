"""What ``benchmarks.front_end`` reports is so: the load keeps its times and its order, and notices wrong answers."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
import time
from collections.abc import Iterator

import pytest
import tokenizers
import uvicorn
from fastapi import FastAPI

from benchmarks import front_end_load
from benchmarks.front_end_load import Answers, Plan, Replay, compare, digest, measure
from benchmarks.front_end_plain import PlainStore
from examples.front_end import create_app
from tests import material
from toktier import SessionStore

MINI = material.load("toktier-mini")
TOKENIZER = tokenizers.Tokenizer.from_buffer(material.definition("toktier-mini"))

PLAN = Plan(sessions=5, rate=40.0, seconds=1.0, context=500, seed=0)


@contextlib.contextmanager
def served(app: FastAPI) -> Iterator[int]:
    """A port at which an app answers, in this process."""
    listening = socket.create_server(("127.0.0.1", 0))
    server = uvicorn.Server(uvicorn.Config(app, log_level="warning"))
    thread = threading.Thread(target=server.run, args=([listening],))
    thread.start()
    try:
        while not server.started and thread.is_alive():
            time.sleep(0.01)
        yield listening.getsockname()[1]
    finally:
        server.should_exit = True
        thread.join()


def test_sessions_go_on_turn_by_turn_at_the_rate() -> None:
    plan = Plan(sessions=50, rate=100.0, seconds=20.0, context=0, seed=1)
    replay = Replay(plan)
    calls = replay.calls()
    assert calls == Replay(plan).calls()
    assert len(calls) - plan.sessions == pytest.approx(2_000, rel=0.1)
    assert [call.due for call in calls] == sorted(call.due for call in calls)
    latest = {call.session: call for call in calls[: plan.sessions]}
    assert len(latest) == plan.sessions
    for call in calls[plan.sessions :]:
        before = latest[call.session]
        follows = (before.run, before.turn + 1), (before.run + 1, 0)
        assert (call.run, call.turn) in follows
        assert (call.turn == 0) == (len(replay.ends[replay.which(call.session, before.run)]) == before.turn + 1)
        latest[call.session] = call


def test_no_two_sessions_begin_alike() -> None:
    replay = Replay(PLAN)
    begins = {call.name: replay.prompt(call)[:60] for call in replay.calls()}
    assert len(set(begins.values())) == len(begins)


def test_both_servers_are_asked_the_same_and_answer_exactly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(front_end_load, "SLICE", 0.5)
    replay = Replay(PLAN)
    calls = replay.calls()
    store = SessionStore(MINI)
    apps = {"store": create_app(store), "plain": create_app(PlainStore(MINI, TOKENIZER))}
    with contextlib.ExitStack() as stack:
        ports = {name: stack.enter_context(served(app)) for name, app in apps.items()}
        answers = asyncio.run(measure(replay, calls, ports))
        continued = store.usage().continued
    compare(replay, calls, list(answers.values()), TOKENIZER)
    for some in answers.values():
        assert some.errors == 0
        assert some.exact == len(some.digests) == len(calls)
        assert len(some.latencies) == len(some.steps) == len(calls) - PLAN.sessions
        assert all(0 < step < latency for step, latency in zip(some.steps, some.latencies, strict=True))
        assert some.seconds >= PLAN.seconds * 0.9
    assert answers["store"].digests == answers["plain"].digests
    assert continued > 0


def test_a_server_that_refuses_is_one_that_errs() -> None:
    replay = Replay(PLAN)
    calls = replay.calls()[: PLAN.sessions]
    with served(create_app(SessionStore(MINI), max_characters=10)) as port:
        answers = asyncio.run(measure(replay, calls, {"store": port}))["store"]
    assert answers.errors == len(calls)
    assert not answers.digests


def test_an_answer_with_one_other_id_is_not_exact() -> None:
    replay = Replay(PLAN)
    calls = replay.calls()[:3]
    ids = [TOKENIZER.encode(replay.prompt(call), add_special_tokens=False).ids for call in calls]
    ids[1][5] += 1
    answers = Answers(digests={k: digest(str(some).replace(" ", "").encode()) for k, some in enumerate(ids)})
    compare(replay, calls, [answers], TOKENIZER)
    assert answers.exact == 2
