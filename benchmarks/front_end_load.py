"""The load of ``benchmarks.front_end``: agent sessions that are replayed against servers, from a process of its own.

Everything that takes time is done while nothing is measured: requests are put together before a slice begins, and
answers are compared with the reference's when all slices are over. In between a request costs this process a write, a
read and a digest.
"""

from __future__ import annotations

import asyncio
import hashlib
import heapq
import json
import pathlib
import random
import time
from collections.abc import Mapping, Sequence
from itertools import accumulate, chain, pairwise
from multiprocessing.connection import Connection

import tokenizers
from attrs import define, field, frozen

from benchmarks.common import transcript
from tests import material
from toktier.replay import PROMPT

SLICE = 5.0
"""Seconds for which one server is asked, before it is the turn of the next one."""

CHECKED_AT_ONCE = 64
"""Texts that the reference is given at a time, when answers are compared."""


@frozen
class Plan:
    """What is replayed.

    Attributes:
        sessions: How many at a time.
        rate: Calls a second, of all sessions together.
        seconds: How long, for each server.
        context: Characters that every session has read before its transcript begins.
        seed: Other sessions come from another one.
    """

    sessions: int
    rate: float
    seconds: float
    context: int
    seed: int


@frozen
class Call:
    """One call of one session.

    Attributes:
        due: Seconds from the beginning at which it is to be sent; negative before the measurement.
        session: The number of the session.
        run: How many transcripts that has finished before.
        turn: How many calls it has made for this one.
    """

    due: float
    session: int
    run: int
    turn: int

    @property
    def name(self) -> str:
        """What the server is told that the session is called."""
        return f"agent-{self.session}-{self.run}"


@define
class Answers:
    """What a server answered.

    Attributes:
        latencies: Seconds from when each call was due to its whole answer, of those that were measured.
        steps: Seconds that the server says its tokenize step took.
        late: Seconds from when a call was due to when it was sent, unless the call before was not answered yet.
        digests: Of the ids of each answer, by the number of the call.
        errors: Calls that were not answered with status 200.
        seconds: From the beginning of each slice to its last answer, together.
        load_seconds: Of a core that the load took meanwhile.
        exact: Answers that have the reference's ids, before the measurement and in it.
    """

    latencies: list[float] = field(factory=list)
    steps: list[float] = field(factory=list)
    late: list[float] = field(factory=list)
    digests: dict[int, bytes] = field(factory=dict)
    errors: int = 0
    seconds: float = 0.0
    load_seconds: float = 0.0
    exact: int = 0


class Replay:
    """The transcripts of all sessions, and the calls that they make."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.texts: list[str] = []
        self.ends: list[list[int]] = []
        """For each transcript, where it ends in each of its calls."""
        for messages in material.agent_sessions():
            parts = [material.chatml([message]) for message in messages]
            ends = list(accumulate(map(len, parts)))
            asks = [end for end, message in zip(ends, messages, strict=True) if message["role"] in ("user", "tool")]
            self.texts.append("".join(parts))
            self.ends.append(asks)
        self.read = transcript(2 * plan.context) if plan.context else ""

    def calls(self) -> list[Call]:
        """All calls, in the order in which they are due; first one of each session that is not measured."""
        source, plan = random.Random(self.plan.seed), self.plan
        gap = plan.sessions / plan.rate
        due = [(source.expovariate(1 / gap), session) for session in range(plan.sessions)]
        heapq.heapify(due)
        # In the middle of their transcripts, each at another place.
        latest = [Call(-1.0, s, 0, source.randrange(len(self.ends[self.which(s, 0)]))) for s in range(plan.sessions)]
        calls = latest.copy()
        while due[0][0] < plan.seconds:
            at, session = due[0]
            run, turn = latest[session].run, latest[session].turn + 1
            if turn == len(self.ends[self.which(session, run)]):
                run, turn = run + 1, 0
            latest[session] = Call(at, session, run, turn)
            calls.append(latest[session])
            heapq.heapreplace(due, (at + source.expovariate(1 / gap), session))
        return calls

    def which(self, session: int, run: int) -> int:
        """The transcript that a session replays."""
        return (session + 7 * run) % len(self.texts)

    def prompt(self, call: Call) -> str:
        """The whole text of a call. It begins with what no other session has, so that nothing can be shared."""
        which = self.which(call.session, call.run)
        own = f"<|im_start|>system\nYou are {self.plan.seed}-{call.name}.<|im_end|>\n"
        begin = random.Random(call.name).randrange(self.plan.context + 1)
        read = self.read[begin : begin + self.plan.context]
        return own + read + self.texts[which][: self.ends[which][call.turn]] + PROMPT

    def request(self, call: Call) -> bytes:
        """A call as it is sent."""
        body = json.dumps({"prompt": self.prompt(call)}).encode()
        return (
            f"POST /v1/tokenize HTTP/1.1\r\nHost: front-end\r\nContent-Type: application/json\r\n"
            f"X-Session-ID: {self.plan.seed}-{call.name}\r\nContent-Length: {len(body)}\r\n\r\n"
        ).encode() + body


class Client:
    """A connection of one session to one server."""

    def __init__(self, port: int) -> None:
        self.port, self.lock = port, asyncio.Lock()
        self.streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def connect(self) -> None:
        """Opens the connection, if it is not open."""
        if self.streams is None:
            self.streams = await asyncio.open_connection("127.0.0.1", self.port, limit=1 << 26)

    async def send(self, request: bytes) -> tuple[int, float, bytes]:
        """The status of the answer, the seconds of the tokenize step, and the body."""
        await self.connect()
        assert self.streams is not None
        reader, writer = self.streams
        writer.write(request)
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        headers = dict(line.lower().split(": ", 1) for line in head[1:] if line)
        body = await reader.readexactly(int(headers["content-length"]))
        took = float(headers.get("server-timing", "dur=nan").rpartition("dur=")[2]) / 1e3
        return int(head[0].split()[1]), took, body

    def close(self) -> None:
        """Closes the connection; the next request opens another one."""
        if self.streams is not None:
            self.streams[1].close()
            self.streams = None


def generate(connection: Connection, plan: Plan, ports: Mapping[str, int], file: pathlib.Path) -> None:
    """Replays sessions and compares what they were answered: what the process of the load does.

    Args:
        connection: Is sent the :class:`Answers` of each server, by its name.
        plan: What is replayed.
        ports: Of the servers on this machine.
        file: The ``tokenizer.json`` whose ids are the right ones.
    """
    replay = Replay(plan)
    calls = replay.calls()
    answers = asyncio.run(measure(replay, calls, ports))
    compare(replay, calls, list(answers.values()), tokenizers.Tokenizer.from_file(str(file)))
    connection.send(answers)


async def measure(replay: Replay, calls: Sequence[Call], ports: Mapping[str, int]) -> dict[str, Answers]:
    """Asks all servers for the same calls, in slices by turns."""
    answers = {name: Answers() for name in ports}
    clients = {name: [Client(port) for _ in range(replay.plan.sessions)] for name, port in ports.items()}
    edges = [-1.0, *(SLICE * k for k in range(round(replay.plan.seconds / SLICE) or 1)), float("inf")]
    for number, (begin, end) in enumerate(pairwise(edges)):
        requests = {k: replay.request(call) for k, call in enumerate(calls) if begin <= call.due < end}
        for name in list(ports)[:: 1 if number % 2 else -1]:  # each begins as often as the other
            await _slice(calls, requests, begin, clients[name], answers[name])
    for client in chain.from_iterable(clients.values()):
        client.close()
    return answers


async def _slice(
    calls: Sequence[Call], requests: Mapping[int, bytes], begin: float, clients: Sequence[Client], answers: Answers
) -> None:
    for client in clients:
        client.close()  # a server closes connections at which nothing came for long, such as in the other one's slice
    await asyncio.gather(*(client.connect() for client in clients))
    started, used = time.perf_counter(), time.process_time()

    async def ask(number: int, due: float) -> None:
        call = calls[number]
        client = clients[call.session]
        had_to_wait = client.lock.locked()
        async with client.lock:  # a session makes one call at a time
            sent = time.perf_counter()
            try:
                status, took, body = await client.send(requests[number])
            except (OSError, EOFError, ValueError):
                client.close()
                status, took, body = 0, 0.0, b""
            done = time.perf_counter()
        if status != 200:
            answers.errors += 1
            return
        answers.digests[number] = digest(body[body.index(b"[") : body.rindex(b"]") + 1])
        if begin >= 0:
            answers.latencies.append(done - due)
            answers.steps.append(took)
            if not had_to_wait:
                answers.late.append(sent - due)

    tasks = []
    for number in requests:
        due = started + calls[number].due - begin
        if (wait := due - time.perf_counter()) > 0:
            await asyncio.sleep(wait)
        tasks.append(asyncio.ensure_future(ask(number, due)))
    await asyncio.gather(*tasks)
    if begin >= 0:
        answers.seconds += time.perf_counter() - started
        answers.load_seconds += time.process_time() - used


def compare(replay: Replay, calls: Sequence[Call], answers: Sequence[Answers], reference: tokenizers.Tokenizer) -> None:
    """Counts the answers that have the reference's ids."""
    for first in range(0, len(calls), CHECKED_AT_ONCE):
        numbers = range(first, min(first + CHECKED_AT_ONCE, len(calls)))
        encodings = reference.encode_batch([replay.prompt(calls[k]) for k in numbers], add_special_tokens=False)
        for number, encoding in zip(numbers, encodings, strict=True):
            expected = digest(json.dumps(encoding.ids, separators=(",", ":")).encode())
            for some in answers:
                some.exact += some.digests.get(number) == expected


def digest(ids: bytes) -> bytes:
    """Of the ids of an answer, as JSON has them."""
    return hashlib.blake2b(ids, digest_size=16).digest()
