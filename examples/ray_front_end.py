"""The front end of ``examples/front_end.py`` on Ray Serve: replicas, and each session goes to the one that has it.

You learn how requests find the replica that has their session (by consistent hashing, so that nobody has to remember
where a session is), and how a replica that is killed loses no request: a *door* before the replicas gives what was not
answered to another one. That one begins from the text, so the ids are the same.

    python examples/ray_front_end.py --replicas 2 --tokenizer toktier-mini

It is called like the one it is made of. Each answer names the replica that gave it (``X-Replica``, and its process
``X-Replica-Process``), and how many were asked (``X-Attempts``); ``/metrics`` has what all of them counted.

On a cluster, from this folder: ``serve run --working-dir . ray_front_end:application tokenizer=NAME replicas=8``.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import os
import signal
import sys
import threading
from collections.abc import AsyncIterator, Iterable
from typing import TYPE_CHECKING, Any

import prometheus_client
import ray
from prometheus_client import Metric
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import Collector
from pydantic import BaseModel, Field
from ray import serve
from ray.exceptions import RayActorError
from ray.serve import Application, Deployment
from ray.serve.handle import DeploymentHandle
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.types import ASGIApp, Message

import toktier

ROUTER = "ray.serve.experimental.consistent_hash_router.ConsistentHashRouter"

ATTEMPTS = 3
"""Replicas that a request is given to: one that kills them must not be given to all that there are."""

LONGEST_BODY = 32 << 20
"""Bytes of a request, as the front end has it by default: the door refuses longer ones without reading them."""

STOPPING: dict[str, Any] = {"graceful_shutdown_timeout_s": 10.0, "graceful_shutdown_wait_loop_s": 0.2}
"""Seconds that a replica has for the requests under way when it is to stop, and after which it looks again."""

PASSED_ON = ("type", "http_version", "method", "scheme", "path", "raw_path", "query_string", "root_path", "headers")
"""What a replica is told of a request beside its body."""


class FrontEnd:
    """A replica: the front end over a store of its own."""

    def __init__(self, tokenizer: str, max_bytes: int) -> None:
        if TYPE_CHECKING:
            from examples.front_end import create_app
        else:
            from front_end import create_app  # scripts of one folder find one another by their names

        sys.setswitchinterval(0.0005)  # as the front end does: threads hand over the interpreter sooner
        tok = toktier.load(tokenizer)
        self._app = create_app(toktier.SessionStore(tok, max_bytes=max_bytes), sources=[tok])
        self._name = serve.get_replica_context().replica_id.unique_id
        about = {"X-Replica": self._name, "X-Replica-Process": str(os.getpid())}
        self._headers = [(name.lower().encode(), value.encode()) for name, value in about.items()]

    async def answer(self, scope: dict[str, Any], body: bytes) -> AsyncIterator[list[Message]]:
        """What the front end answers, as it comes: its beginning and its first part, then one part at a time."""
        part: list[Message] = []
        async for message in _messages(self._app, scope, body):
            if message["type"] == "http.response.start":
                message["headers"] = [*message["headers"], *self._headers]
            part.append(message)
            if message["type"] == "http.response.body":
                yield part
                part = []

    async def metrics(self, scope: dict[str, Any]) -> tuple[str, str]:
        """The name of this replica, and what its front end answers to ``/metrics``."""
        parts = [part async for part in self.answer(scope, b"")]
        return self._name, b"".join(message.get("body", b"") for part in parts for message in part).decode()


async def _messages(app: ASGIApp, scope: dict[str, Any], body: bytes) -> AsyncIterator[Message]:
    """What an ASGI application sends for a request whose body is here already."""
    sent: asyncio.Queue[Message | None] = asyncio.Queue()
    received = iter([{"type": "http.request", "body": body, "more_body": False}])

    async def receive() -> Message:
        for message in received:
            return message
        return await asyncio.Future()  # nothing more: whose client has gone is cancelled

    async def call() -> None:
        try:
            await app(dict(scope), receive, sent.put)
        finally:
            await sent.put(None)

    calling = asyncio.create_task(call())
    try:
        while (message := await sent.get()) is not None:
            yield message
        await calling
    finally:
        calling.cancel()


class Door:
    """Gives each request to the replica that has its session; if that dies, to the one that is next.

    Tokenizing twice does no harm, so a request is repeated until there is an answer. What a door holds is the requests
    under way, and nothing else: what dies with it are their connections.
    """

    def __init__(self, front_ends: DeploymentHandle[Any]) -> None:
        self._front_ends = front_ends

    async def __call__(self, request: Request) -> Response:
        """The answer of a replica, with the number of attempts as a header."""
        scope = {name: request.scope[name] for name in PASSED_ON}
        if request.url.path == "/metrics":
            return await self._metrics(scope)
        if (body := await _body_of(request)) is None:
            return _refusal(413, f"the body has more than {LONGEST_BODY:,} bytes")
        session = request.headers.get("x-session-id") or _session_in(body)
        # Without a session, any replica will do.
        replicas = self._front_ends.options(method_name="answer", stream=True, session_id=session)
        for attempt in range(1, ATTEMPTS + 1):
            answer: Any = replicas.remote(scope, body)
            try:
                start, first = await anext(answer)
            except RayActorError:
                continue
            if first.get("more_body"):
                response: Response = StreamingResponse(_bodies(first, answer), start["status"])
            else:
                response = Response(first["body"], start["status"])
            response.raw_headers = [*start["headers"], (b"x-attempts", str(attempt).encode())]
            return response
        return _refusal(503, f"{ATTEMPTS} replicas died with this request")

    async def _metrics(self, scope: dict[str, Any]) -> Response:
        """What all replicas have counted: one of them alone would be another one each time."""
        answers = await self._front_ends.broadcast("metrics", scope).results_async(return_exceptions=True)
        counted = dict(answer for answer in answers if not isinstance(answer, BaseException))
        registry = prometheus_client.CollectorRegistry()
        registry.register(ByReplica(counted))
        return Response(prometheus_client.generate_latest(registry), media_type=prometheus_client.CONTENT_TYPE_LATEST)


class ByReplica(Collector):
    """The metrics of several replicas, each with the label ``replica``.

    >>> [metric] = ByReplica({"a": "x 1.0", "b": "x 2.0"}).collect()
    >>> [(sample.labels, sample.value) for sample in metric.samples]
    [({'replica': 'a'}, 1.0), ({'replica': 'b'}, 2.0)]
    """

    def __init__(self, counted: dict[str, str]) -> None:
        self._counted = counted

    def collect(self) -> Iterable[Metric]:
        """One metric for each name, with the samples of all replicas."""
        merged: dict[str, Metric] = {}
        for replica, text in self._counted.items():
            for metric in text_string_to_metric_families(text):
                into = merged.setdefault(metric.name, Metric(metric.name, metric.documentation, metric.type))
                into.samples += [
                    sample._replace(labels=sample.labels | {"replica": replica}) for sample in metric.samples
                ]
        return merged.values()


async def _body_of(request: Request) -> bytes | None:
    """The body of a request; None if it is too long."""
    size, body = int(request.headers.get("content-length", 0)), bytearray()
    if size <= LONGEST_BODY:
        async for part in request.stream():
            body += part
            if len(body) > LONGEST_BODY:
                return None
        return bytes(body)
    return None


def _session_in(body: bytes) -> str:
    """The session that a body names; empty if it names none. What is wrong with a body is for the front end to say.

    >>> _session_in(b'{"prompt": "Hi", "session_id": "chat-42"}'), _session_in(b"[" * 99_999)
    ('chat-42', '')
    """
    try:
        session = json.loads(body)["session_id"]
    except (ValueError, TypeError, KeyError, RecursionError):
        return ""
    return session if isinstance(session, str) else ""


async def _bodies(first: Message, answer: AsyncIterator[list[Message]]) -> AsyncIterator[bytes]:
    yield first["body"]
    async for part in answer:
        for message in part:
            yield message["body"]


def _refusal(status: int, message: str) -> Response:
    return JSONResponse({"error": {"message": message, "type": "front_end_error", "code": status}}, status)


class Arguments(BaseModel, extra="forbid"):
    """What ``serve run`` is given as ``name=value``."""

    tokenizer: str
    replicas: int = Field(default=2, ge=1)
    max_bytes: int = Field(default=1 << 30, ge=1, description="what the sessions of one replica may hold")

    @property
    def doors(self) -> int:
        """How many doors there are before the replicas; they only read and pass on."""
        return (self.replicas + 1) // 2


def application(arguments: dict[str, Any]) -> Application:
    """What Ray Serve runs: doors, and the replicas behind them.

    Args:
        arguments: By the names of :class:`Arguments`.
    """
    asked = Arguments.model_validate(arguments)
    front_end: Deployment = serve.deployment(
        num_replicas=asked.replicas,
        # By hashing, all doors find the same replica for a session, and no table of sessions has to go round. When a
        # replica comes or goes, only the sessions that belong there move.
        request_router_config={"request_router_class": ROUTER},
        # What is refused because of this goes to another replica, which does not have the session: rather let it wait.
        max_ongoing_requests=200,
        **STOPPING,
    )(FrontEnd)
    door: Deployment = serve.deployment(
        num_replicas=asked.doors,
        max_ongoing_requests=1000,
        ray_actor_options={"num_cpus": 0},  # as Ray Serve's own proxies: no core is kept for it
        **STOPPING,
    )(Door)
    return door.bind(front_end.bind(asked.tokenizer, asked.max_bytes))


def main() -> None:
    """Starts Ray on this machine, and serves until it is told to stop."""
    parser = argparse.ArgumentParser(description="Exact tokenization of growing transcripts, by several replicas.")
    parser.add_argument("--tokenizer", default="toktier-mini", help="a tokenizer.json, a directory or a hub id")
    parser.add_argument("--replicas", type=int, default=2)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8000)
    options = parser.parse_args()
    if options.replicas < 1:
        parser.error(f"--replicas: at least 1, not {options.replicas}")
    toktier.load(options.tokenizer)  # whatever is wrong with it is said here, and not by each replica
    is_path = os.path.exists(options.tokenizer)  # replicas have a working directory of their own
    arguments = {
        "tokenizer": os.path.abspath(options.tokenizer) if is_path else options.tokenizer,
        "replicas": options.replicas,
    }
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    ray.init(
        address="local",
        num_cpus=options.replicas,  # so that all of them start, however many cores there are
        include_dashboard=False,
        object_store_memory=256 << 20,
        log_to_driver=False,
        logging_level=logging.WARNING,
    )
    quiet = {"enable_access_log": False, "log_level": "WARNING"}
    stop = threading.Event()
    try:
        serve.start(http_options={"host": options.host, "port": options.port}, logging_config=quiet)
        serve.run(application(arguments), name="toktier", logging_config=quiet)
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda *_: stop.set())
        where = f"http://{options.host}:{options.port}"
        print(f"{options.replicas} replicas serve {options.tokenizer} on {where}", flush=True)
        stop.wait()
    finally:
        serve.shutdown()  # type: ignore[no-untyped-call]
        ray.shutdown()


if __name__ == "__main__":
    main()
