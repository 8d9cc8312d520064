"""The front end on Ray Serve: a session stays with a replica, and a replica that is killed loses no request.

Ray runs in processes of its own, and is talked to over HTTP. Without it, what the door does is tried on replicas that
are made up.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import doctest
import importlib
import importlib.util
import itertools
import os
import pathlib
import random
import secrets
import socket
import subprocess
import sys
import tempfile
import threading
import time
import warnings
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import httpx
import psutil
import pytest
from attrs import define
from starlette.requests import Request
from starlette.types import Message, Receive, Scope, Send

from examples.front_end_client import Copy
from tests import material

ROOT = pathlib.Path(__file__).parents[1]

pytestmark = pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="ray is not installed")

SESSIONS = 6
"""Conversations that go on at a time; each replica has at least two of them."""


@define
class Server:
    """The example, started with one command, and all that it answered."""

    client: httpx.Client
    process: psutil.Process
    answers: list[httpx.Response]

    def ask(self, session: str, prompt: str = "") -> httpx.Response:
        return self.client.post("/v1/tokenize", json={"prompt": prompt}, headers={"X-Session-ID": session})

    def served(self, session: str) -> list[str]:
        """The replicas that answered for a session, one after the other."""
        answers = [answer for answer in self.answers if answer.request.headers.get("X-Session-ID") == session]
        return [name for name, _ in itertools.groupby(answer.headers["X-Replica"] for answer in answers)]


@contextlib.contextmanager
def started(folder: str, port: int) -> Iterator[psutil.Process]:
    """The example in a process of its own, with all that Ray starts; nothing of it is left afterwards."""
    environment = os.environ | {"RAY_TMPDIR": folder, "RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex()}
    command = [sys.executable, str(ROOT / "examples" / "ray_front_end.py"), "--replicas", "2", "--port", str(port)]
    with open(pathlib.Path(folder, "stderr"), "w+", encoding="utf-8") as stderr:
        process = psutil.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=stderr, text=True)
        with process.stdout as printed:
            first = printed.readline()
            try:
                stderr.seek(0)
                assert "2 replicas serve toktier-mini" in first, stderr.read()
                yield process
            finally:
                family = process.children(recursive=True)
                process.terminate()
                _, left = psutil.wait_procs([process, *family], timeout=60)
                for one in left:
                    one.kill()
    assert process.returncode == 0
    assert not left, "whoever stops it has none of its processes left"


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    answers: list[httpx.Response] = []
    # Ray's sockets lie in the folder, and their names must not be long.
    with (
        tempfile.TemporaryDirectory(prefix="ray-", ignore_cleanup_errors=True) as folder,
        started(folder, port) as process,
        httpx.Client(
            base_url=f"http://127.0.0.1:{port}", timeout=120, event_hooks={"response": [answers.append]}
        ) as client,
    ):
        yield Server(client, process, answers)


def prompts(session: str) -> list[str]:
    """The transcript of a session as it is each time that the model is asked."""
    messages = [{"role": "user", "content": session}, *material.agent_sessions()[0]]
    return [material.chatml(messages[:turn]) + "<|im_start|>assistant\n" for turn in range(1, 30, 2)]


def test_a_session_is_served_by_one_replica_and_others_by_the_other(server: Server) -> None:
    names = [f"chat-{k}" for k in range(24)]
    for name in names * 2:
        server.ask(name, f"I am {name}").raise_for_status()
    assert all(len(server.served(name)) == 1 for name in names)
    assert len({server.served(name)[0] for name in names}) == 2
    # What the body names goes where the header would lead.
    for name in names[:8]:
        answer = server.client.post("/v1/tokenize", json={"prompt": f"I am {name}", "session_id": name})
        assert [answer.headers["X-Replica"]] == server.served(name)


def test_completions_are_streamed_and_refusals_are_those_of_the_front_end(server: Server) -> None:
    client = server.client
    with client.stream("POST", "/v1/completions", json={"prompt": "Hi", "stream": True}) as answer:
        lines = [line for line in answer.iter_lines() if line]
    assert answer.headers["Content-Type"].startswith("text/event-stream")
    assert len(lines) > 3
    assert lines[-1] == "data: [DONE]"
    assert client.post("/v1/tokenize", json={"prompt": 42}).status_code == 400
    assert client.get("/nothing").status_code == 404
    assert client.get("/health").json() == {"status": "ok"}


def test_metrics_are_those_of_all_replicas(server: Server) -> None:
    def counts() -> dict[str, float]:
        lines = server.client.get("/metrics").text.splitlines()
        found = [line for line in lines if line.startswith("front_end_tokenize_seconds_count")]
        return {line.split('"')[1]: float(line.split()[-1]) for line in found}

    before = counts()
    replicas = {server.ask(f"counted-{k}").headers["X-Replica"] for k in range(24)}
    after = counts()
    assert before.keys() == after.keys() == replicas
    assert sum(after.values()) == sum(before.values()) + 24


def test_a_replica_that_is_killed_loses_no_request_and_no_id(server: Server) -> None:
    """Sessions grow in several threads; a replica dies in the middle of a long request, while others come."""
    reference = material.reference("toktier-mini")
    names, victim, process = spread(server)
    turns, failures = dict.fromkeys(names, 0), list[BaseException]()
    pause, go_on = threading.Barrier(len(names) + 1, timeout=120), threading.Event()

    def converse(name: str) -> None:
        try:
            copy = Copy(server.client, name)  # it gets what changed, and whatever it asks for beyond that
            for prompt in prompts(name):
                if turns[name] == 4:
                    pause.wait()
                    assert go_on.wait(120)
                copy.update(prompt)
                assert copy.ids == reference(prompt)
                turns[name] += 1
        except BaseException as failure:
            failures.append(failure)
            pause.abort()

    threads = [threading.Thread(target=converse, args=(name,)) for name in names]
    for thread in threads:
        thread.start()
    pause.wait()
    # All are idle now. A long request for a session of the victim is stopped in the middle, and the others come.
    with under_way(server, victim, process) as (text, asked):
        go_on.set()
        wait_until(lambda: sum(turns.values()) > 5 * len(names))
        process.kill()
        answer = asked.result(120)
    for thread in threads:
        thread.join(120)

    assert not failures
    assert not any(thread.is_alive() for thread in threads)
    assert answer.json()["tokens"] == reference(text)
    assert answer.headers["X-Attempts"] == "2"
    assert answer.headers["X-Replica"] != victim
    for name in names:
        assert turns[name] == len(prompts(name))
        replicas = server.served(name)
        assert len(set(replicas)) == len(replicas), "no session goes back to where it was"
        assert replicas[-1] != victim
    assert sum(server.served(name)[0] == victim for name in names) == len(names) // 2


def spread(server: Server) -> tuple[list[str], str, psutil.Process]:
    """Names of sessions, half of which are with one replica; its name and its process."""
    found: dict[str, list[str]] = {}
    for k in range(100):
        headers = server.ask(f"agent-{k}").headers
        found.setdefault(headers["X-Replica"], []).append(f"agent-{k}")
        if len(found) == 2 and all(len(names) >= SESSIONS // 2 for names in found.values()):
            names = [name for names in found.values() for name in names[: SESSIONS // 2]]
            return names, headers["X-Replica"], psutil.Process(int(headers["X-Replica-Process"]))
    raise AssertionError(f"of 100 sessions, the replicas have {found}")


@contextlib.contextmanager
def under_way(
    server: Server, victim: str, process: psutil.Process
) -> Iterator[tuple[str, concurrent.futures.Future[httpx.Response]]]:
    """A long request, in the middle of which a replica was stopped that has nothing else to do."""

    def worked() -> float:
        times = process.cpu_times()
        return float(times.user + times.system)

    with concurrent.futures.ThreadPoolExecutor() as pool:
        for k in range(100):
            if server.ask(f"long-{k}").headers["X-Replica"] != victim:
                continue
            text, before = "".join(random.Random(k).choices("abcdefgh", k=500_000)), worked()
            asked = pool.submit(server.ask, f"long-{k}", text)
            while worked() < before + 0.04 and not asked.done():
                time.sleep(0.001)
            process.suspend()
            concurrent.futures.wait([asked], timeout=0.3)
            if not asked.done():
                yield text, asked
                return
            process.resume()  # it had been faster: the next one
    raise AssertionError("no request could be stopped in the middle")


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.001)


class Replicas:
    """In the place of the handle of Ray Serve: answers, of which the first ones are deaths."""

    def __init__(self, example: Any, deaths: int, body: list[bytes]) -> None:
        self.death, self.deaths, self.body = example.RayActorError, deaths, body
        self.sessions: list[str] = []
        self.bodies: list[bytes] = []

    def options(self, *, session_id: str, **others: object) -> Replicas:
        self.sessions.append(session_id)
        return self

    async def remote(self, scope: Scope, body: bytes) -> AsyncIterator[list[Message]]:
        self.bodies.append(body)
        if len(self.bodies) <= self.deaths:
            raise self.death
        start = {"type": "http.response.start", "status": 200, "headers": [(b"x-replica", b"made-up")]}
        parts = [{"body": part, "more_body": True} for part in self.body]
        parts[-1]["more_body"] = False
        yield [start, parts[0]]
        for part in parts[1:]:
            yield [part]


@pytest.fixture(scope="module")
def example() -> Any:
    """The module; importing Ray gives warnings that are not ours."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return importlib.import_module("examples.ray_front_end")


def through_the_door(example: Any, replicas: Replicas, **request: Any) -> httpx.Response:
    door = example.Door(replicas)

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await (await door(Request(scope, receive)))(scope, receive, send)

    async def send() -> httpx.Response:
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://door") as client:
            return await client.post("/v1/tokenize", **request)

    return asyncio.run(send())


@pytest.mark.parametrize("deaths", [0, 1, 2])
def test_a_request_is_repeated_until_there_is_an_answer(example: Any, deaths: int) -> None:
    replicas = Replicas(example, deaths, [b"ids"])
    answer = through_the_door(example, replicas, content=b"a prompt")
    assert (answer.status_code, answer.content) == (200, b"ids")
    assert answer.headers["X-Attempts"] == str(deaths + 1)
    assert answer.headers["X-Replica"] == "made-up"
    assert replicas.bodies == [b"a prompt"] * (deaths + 1)


def test_a_request_that_kills_every_replica_is_not_given_to_all_of_them(example: Any) -> None:
    replicas = Replicas(example, 99, [b"ids"])
    answer = through_the_door(example, replicas, content=b"a prompt")
    assert answer.status_code == 503
    assert answer.json()["error"]["code"] == 503
    assert len(replicas.bodies) == 3


def test_an_answer_in_parts_is_passed_on_whole(example: Any) -> None:
    answer = through_the_door(example, Replicas(example, 1, [b"one ", b"two ", b"three"]), content=b"")
    assert answer.content == b"one two three"


@pytest.mark.parametrize(
    ("request_of", "session"),
    [
        ({"json": {"session_id": "a"}}, "a"),
        ({"json": {"session_id": "a"}, "headers": {"X-Session-ID": "b"}}, "b"),
        ({"json": {"session_id": 3}}, ""),
        ({"json": ["session_id"]}, ""),
        ({"content": b"{"}, ""),
        ({"content": b"\xff"}, ""),
    ],
)
def test_a_session_is_what_the_header_or_the_body_names(example: Any, request_of: Any, session: str) -> None:
    replicas = Replicas(example, 0, [b"ids"])
    assert through_the_door(example, replicas, **request_of).status_code == 200
    assert replicas.sessions == [session]


@pytest.mark.parametrize(("headers", "read"), [({"Content-Length": "11"}, 0), ({"Transfer-Encoding": "chunked"}, 11)])
def test_a_body_that_is_too_long_is_not_passed_on(
    example: Any, monkeypatch: pytest.MonkeyPatch, headers: dict[str, str], read: int
) -> None:
    sent = 0

    async def parts() -> AsyncIterator[bytes]:
        nonlocal sent
        while True:
            sent += 1
            yield bytes(1)

    monkeypatch.setattr(example, "LONGEST_BODY", 10)
    replicas = Replicas(example, 0, [b"ids"])
    assert through_the_door(example, replicas, content=parts(), headers=headers).status_code == 413
    assert (sent, replicas.bodies) == (read, [])
    assert through_the_door(example, replicas, content=bytes(10)).status_code == 200


def test_the_docstrings_show_what_is_so(example: Any) -> None:
    assert doctest.testmod(example).failed == 0


def test_arguments_of_serve_run_are_checked(example: Any) -> None:
    assert example.application({"tokenizer": "toktier-mini", "replicas": "3"})
    for wrong, what in (
        ({}, "tokenizer"),
        ({"tokenizer": "x", "replicas": "0"}, "replicas"),
        ({"tokenizer": "x", "replica": "3"}, "replica\n"),
    ):
        with pytest.raises(ValueError, match=what):
            example.application(wrong)
