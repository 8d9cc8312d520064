"""From what one machine measures to what a load needs: memory, cores, replicas, and the time after one was lost.

What a session holds, a turn and a start take is measured here, by engine; what a whole call takes of a core, with HTTP
and JSON, in the server of ``examples/front_end.py``. The formulae are those of ``docs/operating.md``.

    python -m benchmarks.capacity --tokenizer qwen3 --calls 200 --sessions 5000 --characters 200000 --lost 1
"""

from __future__ import annotations

import argparse
import gc
import http.client
import json
import math
import pathlib
import statistics
import time

import psutil
from attrs import frozen

import toktier
from benchmarks.common import Figure, anew, arguments, show, timed, transcript
from benchmarks.front_end import COMMANDS, server, used
from tests import material
from toktier import Session, SessionStore, Tokenizer
from toktier.bench.measuring import engine_of
from toktier.executor import usable_cores
from toktier.router import PROCESSOR
from toktier.store import SHORT_SHARE

TURN = 1_400
"""Characters that a turn of a coding agent adds, about."""

SIZES = (10_000, 1_000_000)
"""Characters of a transcript, beside those of the load."""

HELD = 20_000_000
"""Characters of the sessions whose memory is measured."""

BUSY = 0.5
"""The share of a core that calls may take of a replica day by day: beyond it they wait for one another."""


@frozen
class Load:
    """What is to be served.

    Attributes:
        calls: Calls a second, of all sessions together.
        characters: Of a transcript, on average.
        sessions: That are active within the time for which a store keeps them.
        lost: Replicas that may be gone at a time.
    """

    calls: float
    characters: int
    sessions: int
    lost: int


@frozen
class Costs:
    """What was measured on one machine, for transcripts of the load's length.

    Attributes:
        session_bytes: Bytes that a store counts for a session, whatever its length.
        character_bytes: And for each character of its transcript.
        resident: Bytes of memory for each byte that a store counts.
        process_bytes: Bytes of memory of a replica without sessions.
        call_seconds: Of a core, for a call that adds a turn, with all that the server does for it.
        start_seconds: Of a core, for the first call of a session that the replica does not know.
    """

    session_bytes: float
    character_bytes: float
    resident: float
    process_bytes: float
    call_seconds: float
    start_seconds: float


@frozen
class Need:
    """What that comes to.

    Attributes:
        replicas: Processes, each with about one core.
        max_bytes: The budget of the store of each.
        memory: Bytes that each takes.
        busy: The share of a core that calls take of each, while all are there.
        started: Sessions that begin from their text when some are lost.
        work: Seconds of a core for that.
        strained: The share of a core that calls take of those that are left, until these sessions are back.
        seconds: Until most of them are: the mean time between two calls of a session.
    """

    replicas: int
    max_bytes: int
    memory: float
    busy: float
    started: float
    work: float
    strained: float
    seconds: float


def need(load: Load, costs: Costs) -> Need:
    """The fewest replicas that serve a load also when some of them are lost."""
    replicas = load.lost + 1
    while True:
        left = replicas - load.lost
        starts = load.calls * load.lost / replicas
        strained = (load.calls * costs.call_seconds + starts * costs.start_seconds) / left
        if load.calls * costs.call_seconds / left <= BUSY and strained <= 1:
            break
        replicas += 1
    # Those that are left hold all sessions; a part of their budget is for short texts.
    held = load.sessions / left * (costs.session_bytes + costs.character_bytes * load.characters)
    started = load.sessions * load.lost / replicas
    max_bytes = math.ceil(held * SHORT_SHARE / (SHORT_SHARE - 1))
    return Need(
        replicas=replicas,
        max_bytes=max_bytes,
        memory=costs.process_bytes + costs.resident * max_bytes,
        busy=load.calls * costs.call_seconds / replicas,
        started=started,
        work=started * costs.start_seconds,
        strained=strained,
        seconds=load.sessions / load.calls,
    )


def chats(characters: int, count: int) -> list[str]:
    """Different transcripts of a length."""
    text = transcript(characters + TURN * 100)
    return [f"chat {number}\n{text[TURN * (number % 100) :]}"[:characters] for number in range(count)]


def memory(tok: Tokenizer, characters: int, held: int = HELD) -> tuple[float, float, float]:
    """Bytes of a session, of a character, and of memory for each byte that is counted."""
    texts, store = chats(characters, max(8, held // characters)), SessionStore(tok, max_bytes=1 << 40)
    store.encode("", session="empty")
    store.encode(texts[0], session="0")
    gc.collect()
    process, alone = psutil.Process(), SessionStore(tok)
    resident, nbytes = process.memory_info().rss, store.usage().nbytes
    for number, text in enumerate(texts[1:], 1):
        store.encode(anew(text), session=str(number))  # which keeps it
    counted = store.usage().nbytes - nbytes
    ratio = (process.memory_info().rss - resident) / counted
    alone.encode("", session="empty")
    fixed = alone.usage().nbytes
    return fixed, (counted / (len(texts) - 1) - fixed) / characters, ratio


def turns(tok: Tokenizer, names: list[str], characters: int, rounds: int) -> dict[str, list[float]]:
    """Seconds of a turn on a transcript through a store, by engine, in turns with one another."""
    text = transcript(characters + (rounds + 1) * TURN)
    stores = {name: SessionStore(tok, engine=name) for name in names}
    seconds: dict[str, list[float]] = {name: [] for name in names}
    for number in range(rounds + 1):
        for name, store in stores.items():
            full = text[: characters + number * TURN]
            began = time.perf_counter()
            ids = store.encode(full, session="chat")
            if number:  # the first one is a start
                seconds[name].append(time.perf_counter() - began)
            del ids
    return seconds


def starts(tok: Tokenizer, names: list[str], characters: int, rounds: int) -> dict[str, list[tuple[float, float]]]:
    """Seconds, and seconds of a core, of a session that begins with a whole transcript, by engine, in turns."""
    seconds: dict[str, list[tuple[float, float]]] = {name: [] for name in names}
    for number, text in enumerate(chats(characters, rounds + 1)):
        for name in names:
            began, worked = time.perf_counter(), time.process_time()
            Session(tok, text, engine=name)
            if number:  # the first one builds tables
                seconds[name].append((time.perf_counter() - began, time.process_time() - worked))
    return seconds


@frozen
class Served:
    """What a front end took.

    Attributes:
        ready: Seconds from its start to its first answer.
        process_bytes: Bytes of memory, with one session.
        call_seconds: Of a core, for a call that adds a turn.
        start_seconds: Of a core, for the first call of a session.
    """

    ready: float
    process_bytes: float
    call_seconds: float
    start_seconds: float


def served(file: pathlib.Path, characters: int, rounds: int) -> Served:
    """Calls the front end for some sessions, twice for each."""
    texts, launched = chats(characters + TURN, rounds + 1), time.perf_counter()
    with server(COMMANDS["toktier"], file) as (port, process):
        connection = http.client.HTTPConnection("127.0.0.1", port)

        def ask(number: int, text: str) -> None:
            body = json.dumps({"prompt": text, "session_id": str(number), "patch": True})
            connection.request("POST", "/v1/tokenize", body, {"Content-Type": "application/json"})
            response = connection.getresponse()
            answer = response.read()
            if response.status != 200:
                raise RuntimeError(f"the front end answered with status {response.status}: {answer[:200]!r}")

        ask(0, texts[0])  # builds tables
        ready, process_bytes = time.perf_counter() - launched, process.memory_info().rss
        worked = [used(process)]
        for end in (-TURN, None):
            for number, text in enumerate(texts[1:], 1):
                ask(number, text[:end])
            worked.append(used(process))
        connection.close()
    return Served(ready, process_bytes, (worked[2] - worked[1]) / rounds, (worked[1] - worked[0]) / rounds)


def measured(name: str, characters: int, rounds: int) -> tuple[Costs, list[Figure]]:
    """What a load of such transcripts costs, and all that was measured on the way."""
    file = material.file(name)
    # Which engine serves is not left to chance: the server finds what was compared here.
    tok = toktier.load(file)
    tok.report(compare=True)
    names = [each for each in PROCESSOR if not isinstance(engine_of(tok, each), str)]
    session_bytes, character_bytes, resident = memory(tok, characters)
    at = f"{characters:,} characters"
    figures = [
        Figure("a session, whatever its length", at, session_bytes, "bytes"),
        Figure("a character of its transcript", at, character_bytes, "bytes"),
        Figure("memory of the process, to what the store counts", at, resident),
    ]
    for size in sorted({characters, *SIZES}):
        taken = turns(tok, names, size, rounds)
        figures += [timed(f"turn, {each}", f"{size:,} characters", taken[each], unit="us") for each in names]
    for size in sorted({characters, *SIZES}):
        begun = starts(tok, names, size, max(3, rounds // 4))
        for each in names:
            whole = timed(f"start, {each}", f"{size:,} characters", [seconds for seconds, _ in begun[each]])
            worked = 1e3 * statistics.median(core for _, core in begun[each])
            figures += [whole, Figure(f"start, {each}, of all cores", f"{size:,} characters", worked, "ms")]
    front_end = served(file, characters, max(rounds, min(10 * rounds, HELD // characters)))
    engine = tok.engine().name
    figures += [
        Figure(f"front end, {engine}: from its start to an answer", at, front_end.ready, "s"),
        Figure(f"front end, {engine}: memory", "with one session", front_end.process_bytes / 1e6, "MB"),
        Figure(f"front end, {engine}: a call, of a core", at, 1e3 * front_end.call_seconds, "ms"),
        Figure(f"front end, {engine}: a first call, of a core", at, 1e3 * front_end.start_seconds, "ms"),
    ]
    costs = Costs(
        session_bytes=session_bytes,
        character_bytes=character_bytes,
        resident=resident,
        process_bytes=front_end.process_bytes,
        call_seconds=front_end.call_seconds,
        start_seconds=front_end.start_seconds,
    )
    return costs, figures


def described(load: Load, found: Need) -> list[Figure]:
    """What is needed, as rows."""
    gone = f"when {load.lost} of {found.replicas} are lost"
    return [
        Figure("replicas, each about a core", f"of these {load.lost} may be lost", found.replicas),
        Figure("max_bytes of each", "", found.max_bytes / 1e6, "MB"),
        Figure("memory of each", "", found.memory / 1e6, "MB"),
        Figure("busy, of a core", "all are there", found.busy, limit=BUSY),
        Figure("busy, of a core, until sessions are back", gone, found.strained, limit=1),
        Figure("sessions that begin from their text", gone, found.started),
        Figure("cores' time for that", gone, found.work, "s"),
        Figure("until most of them are back", gone, found.seconds, "s"),
    ]


def load_of(options: argparse.Namespace) -> Load:
    """The load that the command line describes; SystemExit if it is none."""
    load = Load(options.calls, options.characters, options.sessions, options.lost)
    if not (load.calls > 0 and load.characters >= SIZES[0] and load.sessions > 0 and load.lost >= 0):
        raise SystemExit(f"give calls and sessions, {SIZES[0]:,} characters or more, and 0 or more replicas to be lost")
    return load


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--tokenizer", default="toktier-mini", choices=material.available())
    parser.add_argument("--calls", type=float, default=100.0, help="a second, of all sessions together (%(default)g)")
    parser.add_argument("--sessions", type=int, default=2_000, help="active at a time (%(default)s)")
    parser.add_argument("--characters", type=int, default=100_000, help="of a transcript, on average (%(default)s)")
    parser.add_argument("--lost", type=int, default=1, help="replicas that may be gone at a time (%(default)s)")
    options = parser.parse_args()
    load = load_of(options)
    costs, figures = measured(options.tokenizer, load.characters, rounds=20)
    figures += described(load, need(load, costs))
    title = f"{options.tokenizer}: {load.calls:g} calls a second, {load.sessions:,} sessions of {load.characters:,}"
    show(f"{title} characters; {usable_cores()} cores here", figures, options.json)


if __name__ == "__main__":
    main()
