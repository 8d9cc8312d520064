"""The FastAPI example under the load of many agent sessions, beside the same server with plain ``tokenizers``.

Two servers and the load are processes of their own. The load replays sessions, each with a beginning of its own,
against the servers in slices of five seconds by turns: both get the same calls at the same times. Every answer is
compared with the reference's ids, afterwards.

    python -m benchmarks.front_end --tokenizer qwen3 --seconds 60 --sessions 200 --rate 20
"""

from __future__ import annotations

import contextlib
import multiprocessing
import pathlib
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator, Sequence

import numpy as np
import psutil

import toktier
from benchmarks import common
from benchmarks.front_end_load import Answers, Plan, generate
from tests import material

PLAIN = "plain tokenizers"

COMMANDS = {
    "toktier": ["examples/front_end.py"],
    PLAIN: ["-m", "benchmarks.front_end_plain"],
}


@contextlib.contextmanager
def server(command: Sequence[str], file: pathlib.Path) -> Iterator[tuple[int, psutil.Process]]:
    """A server in a process of its own: its port, and the process."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    process = subprocess.Popen([sys.executable, *command, "--tokenizer", str(file), "--port", str(port)])
    try:
        while True:
            with contextlib.suppress(OSError), urllib.request.urlopen(f"http://127.0.0.1:{port}/health"):
                break
            if process.poll() is not None:
                raise RuntimeError(f"a server has ended, exit status {process.returncode}")
            time.sleep(0.1)
        yield port, psutil.Process(process.pid)
    finally:
        process.terminate()
        process.wait(30)


def used(process: psutil.Process) -> float:
    """Seconds of a core that a process took so far."""
    times = process.cpu_times()
    return float(times.user + times.system)


def replayed(plan: Plan, ports: dict[str, int], file: pathlib.Path) -> dict[str, Answers]:
    """What the load was answered."""
    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe()
    process = context.Process(target=generate, args=(there, plan, ports, file), daemon=True)
    process.start()
    there.close()
    try:
        answers: dict[str, Answers] = here.recv()
    except EOFError:
        process.join()
        raise RuntimeError(f"the load has ended, exit status {process.exitcode}") from None
    process.join()
    return answers


def figures(answers: Answers, core: float) -> dict[str, float]:
    """What is reported of a server."""
    calls, measured = len(answers.digests) + answers.errors, len(answers.latencies)
    found = {"calls answered": measured, "a second": measured / answers.seconds, "errors": float(answers.errors)}
    found |= {"answers compared with the reference": len(answers.digests), "of these exact": answers.exact}
    times = {"tokenize step": answers.steps, "whole call": answers.latencies, "sent late by the load": answers.late}
    for what, seconds in times.items():
        for name, share in (("P50", 0.5), ("P99", 0.99)):
            found[f"{what}, {name}, ms"] = 1e3 * float(np.quantile(seconds, share)) if seconds else float("nan")
    found["server's time of a core for a call, ms"] = 1e3 * core / calls if calls else float("nan")
    found["share of a core that the load took"] = answers.load_seconds / answers.seconds
    return found


def show(title: str, ours: dict[str, float], plain: dict[str, float]) -> None:
    """Prints the figures of both servers."""
    rows = []
    for what, value in ours.items():
        ratio = common.number(plain[what] / value) if what.endswith("ms") else ""
        rows.append((what, "", common.number(value), common.number(plain[what]), ratio))
    common.table(title, ("", "", "toktier", PLAIN, "ratio"), rows)


def main() -> int:
    """Measures, and prints one table for each rate."""
    parser = common.arguments(__doc__)
    parser.add_argument("--tokenizer", default="toktier-mini", choices=material.available())
    parser.add_argument("--sessions", type=int, default=200, help="agent sessions at a time")
    parser.add_argument("--seconds", type=float, default=60.0, help="for each server and rate")
    parser.add_argument("--rate", type=float, nargs="+", default=[20.0], help="calls a second of all sessions together")
    parser.add_argument("--context", type=int, default=0, help="characters that every session has read before")
    options = parser.parse_args()
    file = material.file(options.tokenizer)
    # Which engine serves is not left to chance: the servers find what was compared here.
    tok = toktier.load(file)
    tok.report(compare=True)
    rows: list[dict[str, object]] = []
    with contextlib.ExitStack() as stack:
        servers = {name: stack.enter_context(server(command, file)) for name, command in COMMANDS.items()}
        ports = {name: port for name, (port, _) in servers.items()}
        for number, rate in enumerate(options.rate):
            plan = Plan(options.sessions, rate, options.seconds, options.context, seed=number)
            before = {name: used(process) for name, (_, process) in servers.items()}
            answers = replayed(plan, ports, file)
            found = {
                name: figures(answers[name], used(process) - before[name]) for name, (_, process) in servers.items()
            }
            title = f"{options.tokenizer}, {tok.engine().name}: {options.sessions} sessions, {rate:g} calls a second"
            show(title, found["toktier"], found[PLAIN])
            rows += [{"rate": rate, "server": name} | values for name, values in found.items()]
    common.write(f"{options.tokenizer}, {options.sessions} sessions", rows, options.json)
    return 0 if all(row["answers compared with the reference"] == row["of these exact"] for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
