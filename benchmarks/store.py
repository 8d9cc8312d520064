"""What long texts and a store of sessions cost: on all cores, beside a comparison, beside one another, in memory."""

from __future__ import annotations

import functools
import gc
import random
import statistics
import threading
import time
from collections.abc import Callable

import numpy as np
import psutil

import toktier
from benchmarks.common import Figure, arguments, beside, show, timed, transcript
from tests import material
from toktier import SessionStore, Tokenizer
from toktier.bench.contenders import contenders
from toktier.bench.measuring import engine_of
from toktier.bench.report import LIBRARY_OF
from toktier.engines.base import Engine, Ids
from toktier.executor import Executor
from toktier.planner import CutPlanner

APPEND = 1_400
MILLION = 1_000_000
GAP = 0.01
"""Seconds between two turns of the sessions that are watched."""


def planning(tok: Tokenizer, repeats: int) -> list[Figure]:
    """Texts of four million characters, encoded on one thread and on all cores, in turns."""
    text, figures = transcript(4 * MILLION), []
    one, all_cores = CutPlanner(tok.family, Executor(1)), tok.planner
    for name in ("gigatoken", "tiktoken", "memo", "reference"):
        engine = engine_of(tok, name)
        if isinstance(engine, str):
            continue
        calls: dict[str, Callable[[], object]] = {
            "one": functools.partial(one.encode, text, engine),
            "all": functools.partial(all_cores.encode, text, engine),
            "start": functools.partial(toktier.Session, tok, text, engine=engine),
        }
        seconds: dict[str, list[float]] = {call: [] for call in calls}
        for number in range(repeats + 2):
            for what, call in calls.items():
                start = time.perf_counter()
                result = call()
                if number > 1:  # libraries that remember have seen it all
                    seconds[what].append(time.perf_counter() - start)
                del result
        cores = timed(f"{name}, all cores", "4 M", seconds["all"])
        begun = timed(f"{name}, start of a session", "4 M", seconds["start"])
        figures += [beside(cores, "one thread", seconds["one"]), beside(begun, "all cores", seconds["all"])]
    return figures


def turns(tok: Tokenizer, engine: str, rounds: int) -> list[Figure]:
    """A transcript of a million characters that comes back a turn longer, again and again."""
    text = transcript(MILLION + (rounds + 1) * APPEND)
    library = LIBRARY_OF[engine]
    encode = {found.name: found.encode for found in contenders(tok.reference.tokenizer)[0]}[library]
    keyed, keyless = SessionStore(tok, engine=engine), SessionStore(tok, engine=engine)
    session = toktier.Session(tok, text[:MILLION], engine=engine)
    before = text[:MILLION]
    for store, key in ((keyed, "name"), (keyless, None)):
        store.encode(before, session=key)
    seconds: dict[str, list[float]] = {}

    def take(what: str, call: Callable[[], object]) -> None:
        start = time.perf_counter()
        result = call()
        seconds.setdefault(what, []).append(time.perf_counter() - start)
        del result  # as a request does that was answered

    def find(new: str) -> None:
        with keyless._shelf.donor(new, "") as found:
            assert found is not None

    for number in range(1, rounds + 1):
        end = MILLION + number * APPEND
        texts = [text[:end] for _ in range(4)]  # each its own string, as each request has
        take("startswith", lambda: texts[0].startswith(before))  # noqa: B023
        take("append", lambda: session.append(text[end - APPEND : end]))  # noqa: B023
        take("keyed", lambda: keyed.encode(texts[1], session="name"))  # noqa: B023
        take("find", lambda: find(texts[2]))  # noqa: B023
        take("keyless", lambda: keyless.encode(texts[2]))  # noqa: B023
        if number % 10 == 1:
            encode(texts[3])  # the library may remember what it has met
            take("full", lambda: encode(texts[3]))  # noqa: B023
        before = texts[0]
    assert np.array_equal(keyed.encode(before, session="name"), tok.engine("reference").encode(before))
    assert np.array_equal(keyless.encode(before), keyed.encode(before, session="name"))
    median = {what: statistics.median(some) for what, some in seconds.items()}
    compared = median["startswith"]
    return [
        timed("startswith", "1 M", seconds["startswith"], unit="us"),
        timed("append to a session", "1 M", seconds["append"], unit="us"),
        timed("store, by name", "1 M", seconds["keyed"], unit="us", limit=1e6 * (3 * compared + median["append"])),
        timed("store, by content", "1 M", seconds["keyless"], unit="us"),
        Figure("finding a prefix by content, to startswith", "1 M", median["find"] / compared, limit=4),
        Figure(f"{library} in full, to the store by name", "1 M", median["full"] / median["keyed"]),
    ]


class InOrder:
    """A front end without any of this: long texts are encoded whole, in the order in which they arrive."""

    def __init__(self, engine: Engine) -> None:
        self._engine, self._lock = engine, threading.Lock()

    def encode(self, text: str) -> Ids:
        with self._lock:
            return self._engine.encode(text)


def beside_long_texts(tok: Tokenizer, engine: str, seconds: float) -> list[Figure]:
    """Appends to contexts of a million characters, while four texts of a million arrive every two seconds.

    Beside appends without them, and with front ends that encode every text whole, one after the other.
    """
    text, tok = transcript(6 * MILLION), tok.renewed()  # engines that are not due to be renewed meanwhile
    results = {}
    for what in ("alone", "beside long texts", "in order of arrival"):
        store = SessionStore(tok, engine=engine, max_bytes=1 << 28)
        whole = InOrder(tok.engine(engine))
        sessions = dict.fromkeys(range(4), 0)
        for name in sessions:
            store.encode(text[name : MILLION + name], session=str(name))
        until, latencies = time.perf_counter() + seconds, []
        stop = threading.Event()

        def long_texts(what: str = what, store: SessionStore = store, whole: InOrder = whole) -> None:
            source = random.Random(0)
            while not stop.wait(2.0):  # noqa: B023
                for _ in range(4):
                    begin = source.randrange(5 * MILLION)
                    full = "x" + text[begin : begin + MILLION]
                    call = whole.encode if what == "in order of arrival" else store.encode
                    threading.Thread(target=call, args=(full,), daemon=True).start()

        arrivals = threading.Thread(target=long_texts)
        if what != "alone":
            arrivals.start()
        source = random.Random(1)
        due = time.perf_counter()
        while due < until:
            name = source.choice(list(sessions))
            sessions[name] = (sessions[name] + APPEND) % (MILLION // 2)
            full = text[name : MILLION + name + sessions[name]]
            time.sleep(max(0.0, due - time.perf_counter()))
            if what == "in order of arrival":
                with whole._lock:
                    store.encode(full, session=str(name))
            else:
                store.encode(full, session=str(name))
            latencies.append(time.perf_counter() - due)  # whoever has to wait makes all that come after it wait
            due += GAP
        stop.set()
        if what != "alone":
            arrivals.join()
        results[what] = latencies
    p99 = {what: float(np.quantile(some, 0.99)) for what, some in results.items()}
    figures = [Figure(f"P99 of a turn, {what}", "1 M", 1e3 * value, "ms") for what, value in p99.items()]
    allowed = max(3 * p99["alone"], p99["alone"] + 2e-3)
    return [
        *figures,
        Figure(
            "P99 of a turn beside long texts, to what is allowed", "1 M", p99["beside long texts"] / allowed, limit=1
        ),
        Figure(
            "P99 of a turn beside long texts, to that in order of arrival",
            "1 M",
            p99["beside long texts"] / p99["in order of arrival"],
            limit=0.1,
        ),
    ]


def memory(tok: Tokenizer, engine: str, sessions: int, budget: int) -> list[Figure]:
    """Sessions of 100,000 characters, many more than there is room for, in a budget."""
    text, source = transcript(2 * MILLION), random.Random(0)
    tok.engine(engine).encode(text)
    store = SessionStore(tok, engine=engine, max_bytes=budget)
    process, reference = psutil.Process(), tok.engine("reference")
    gc.collect()
    most = before = process.memory_info().rss
    checked = wrong = 0
    begins = []
    for number in range(sessions):
        begins.append(source.randrange(MILLION))
        name = number if source.random() < 0.7 else source.randrange(number + 1)
        full = f"{name} " + text[begins[name] : begins[name] + 100_000]
        ids = store.encode(full, session=str(name))
        if source.random() < 0.01:
            checked += 1
            wrong += not np.array_equal(ids, reference.encode(full))
        most = max(most, process.memory_info().rss) if number % 100 == 0 else most
    usage = store.usage()
    return [
        Figure(
            "growth of resident memory, to the budget", f"{sessions:,} sessions", (most - before) / budget, limit=1.15
        ),
        Figure("what the store says it holds, to the budget", "", usage.nbytes / budget, limit=1),
        Figure("sessions that were evicted", "", usage.evicted),
        Figure("answers compared with the reference", "", checked),
        Figure("of these wrong", "", wrong, limit=0),
    ]


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--tokenizer", default="toktier-mini", choices=material.available())
    parser.add_argument("--engine", default="gigatoken")
    parser.add_argument("--quick", action="store_true", help="a first look")
    parser.add_argument("--only", choices=["planner", "turns", "long texts", "memory"], help="one part alone")
    options = parser.parse_args()
    tok = toktier.load(material.file(options.tokenizer))
    quick = options.quick
    parts: dict[str, Callable[[], list[Figure]]] = {
        "planner": lambda: planning(tok, 2 if quick else 7),
        "turns": lambda: turns(tok, options.engine, 60 if quick else 300),
        "long texts": lambda: beside_long_texts(tok, options.engine, 6 if quick else 30),
        "memory": lambda: memory(tok, options.engine, 1000 if quick else 10_000, 1 << 27 if quick else 1 << 30),
    }
    wanted = [options.only] if options.only else parts
    figures = [it for part in wanted for it in parts[part]()]
    show(f"{options.tokenizer}, {options.engine}", figures, options.json, tokenizer=options.tokenizer)


if __name__ == "__main__":
    main()
