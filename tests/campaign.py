"""The long differential test: ``python -m tests.campaign``, or ``make campaign``.

Every tokenizer that is there and every small definition of :mod:`tests.zoo` goes through

- *texts*: adversarial texts, each cut at all of its certified cuts at once;
- *programs*: sessions led through random operations, compared after each;
- *replays*: the agent sessions as rendered ChatML, once by appends alone, and once with a generation prompt at the end
  of each turn that the next turn replaces through ``update``;
- *corpus*: real texts cut everywhere, and how far apart the cuts lie on the agent sessions.

What is compared with is always a full encode by a reference that was loaded apart from toktier. The same seed gives the
same texts and programs on every machine. Exit status 1 when anything differs; the smallest failing input is printed.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import contextlib
import fnmatch
import functools
import multiprocessing
import os
import random
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import TimeoutError as OutOfTime

import numpy as np
import tokenizers
from attrs import evolve, frozen
from rich import box
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

import toktier
from tests import material, zoo
from tests.rooms import small_rooms
from toktier.campaign.operations import Change, Kind, Operation, Program, append, cut, encode, random_program, shown
from toktier.campaign.programs import Problem, Reference, run
from toktier.campaign.shrinking import shrink_program
from toktier.campaign.texts import fragments, random_text
from toktier.engines.base import Engine

PROMPT = "<|im_start|>assistant\n<think>\n"
"""What a front end puts behind the transcript for the model to go on from; the next turn has the answer there."""

CHUNK = 1000
"""Adversarial texts in one job. Jobs are short, so that both cores are busy to the end."""

TEXTS_PER_PROGRAM = 50
LONG_PROGRAMS = 0.1
"""The share of programs that work on tens of thousands of characters, with everything at its natural size."""

BEGINNING = 4000
"""Characters of each real text that the small definitions get: there are many of them."""

DENSE = 7.0
"""Characters: the mean distance between certified cuts that a production tokenizer must stay below."""

SHRUNK = 5
"""Failures of one job that are made smaller."""

ZOO = "zoo/"
"""Put before the names of small definitions."""

WITH = "@"
"""Put between the name of a subject and that of an engine, when it is the engine that is tested."""


@frozen
class Subject:
    """A tokenizer to be tested, and what it is compared with."""

    name: str
    tok: toktier.Tokenizer
    reference: Reference
    engine: Engine | None = None


@frozen
class Failure:
    """An input on which something differs, as small as it could be made."""

    name: str
    check: str
    smallest: str
    problem: str


@frozen
class Outcome:
    """What a job did.

    Attributes:
        name: The subject's.
        counts: What was checked, in numbers.
        failures: What differed.
        mean: The mean distance between two cuts on the agent sessions, in characters.
        largest: The distance that only one in a hundred exceeds.
    """

    name: str
    counts: Counter[str]
    failures: tuple[Failure, ...] = ()
    mean: float | None = None
    largest: float | None = None


Job = Callable[[], Outcome]
Rooms = Callable[[], contextlib.AbstractContextManager[None]]


# What is tested


def names(wanted: Sequence[str], engine: str | None = None) -> list[str]:
    """The subjects that match one of the patterns; all when there are none.

    Definitions of which two copies need not be alike are left out. With an engine, only what has cuts is a subject, and
    small definitions only for one that needs no comparison with the reference.
    """
    if engine is not None:
        served = [name for name in names(wanted) if has_cuts(name) and (engine == "memo" or not name.startswith(ZOO))]
        return [f"{name}{WITH}{engine}" for name in served if serves(name, engine)]
    small = [ZOO + name for name in (*zoo.SUPPORTED, *zoo.UNSUPPORTED) if name not in zoo.RANDOM]
    everything = [*reversed(material.available()), *small]
    found = [{n for n in everything if fnmatch.fnmatchcase(n, p) or n == ZOO + p} for p in wanted]
    if not all(found):
        raise SystemExit(f"there is no {wanted[found.index(set())]!r} among: {', '.join(everything)}")
    return [name for name in everything if name in set().union(*found)] if wanted else everything


@functools.cache
def subject(name: str) -> Subject:
    """Loads a tokenizer, once per process."""
    plain, _, engine = name.partition(WITH)
    if engine:
        it = subject(plain)
        return evolve(it, name=name, engine=it.tok.engine(engine))
    if not name.startswith(ZOO):
        return Subject(name, material.load(name), material.reference(name))
    source = zoo.build(name.removeprefix(ZOO))
    copy = tokenizers.Tokenizer.from_str(source.to_str())
    return Subject(name, material.registry().load(source), material.reference_of(copy))


def serves(name: str, engine: str) -> bool:
    """Whether an engine may serve a subject."""
    try:
        subject(name).tok.engine(engine)
    except toktier.UnknownEngine as reason:
        print(f"{name}: {reason}", file=sys.stderr)
        return False
    return True


# Jobs


def texts(name: str, seed: int, chunk: int, count: int) -> Outcome:
    """Some adversarial texts, each encoded whole and as the parts between all its certified cuts."""
    it = subject(name)
    source = random.Random(f"{seed} texts {name} {chunk}")
    pool = fragments(it.tok, source.randrange(1 << 30))
    return _cut_everywhere(it, "texts", (random_text(source, pool, 2, 24) for _ in range(count)))


def corpus(name: str) -> Outcome:
    """The real texts, encoded in both ways, and the distances between the cuts on the agent sessions."""
    it = subject(name)
    if name.startswith(ZOO) or it.engine:
        # How far apart its cuts lie says nothing: the small definitions are there to be strange.
        return _cut_everywhere(it, "real texts", (text[:BEGINNING] for text in material.corpus()))
    outcome = _cut_everywhere(it, "real texts", material.corpus())
    transcripts = map(material.chatml, material.agent_sessions())
    gaps = np.concatenate(
        [np.diff(it.tok.family.cuts(text, continuation=True), prepend=0, append=len(text)) for text in transcripts]
    )
    failures = outcome.failures
    if gaps.mean() >= DENSE:
        failures += (Failure(name, "density", "", f"cuts are {gaps.mean():.2f} characters apart"),)
    return evolve(outcome, failures=failures, mean=float(gaps.mean()), largest=float(np.percentile(gaps, 99)))


def programs(name: str, seed: int, chunk: int, count: int) -> Outcome:
    """Sessions led through random programs."""
    it = subject(name)
    source = random.Random(f"{seed} programs {name} {chunk}")
    pool = fragments(it.tok, source.randrange(1 << 30))
    counts, failures = Counter[str](), list[Failure]()

    def short(low: int, high: int) -> str:
        return random_text(source, pool, low, high)

    def long(low: int, high: int) -> str:
        real = source.choice(material.corpus())
        start = source.randrange(len(real) + 1)
        return short(low, high) + real[start : start + source.choice((0, 10, 100, 1000, 10_000))]

    for _ in range(count):
        rooms: Rooms = contextlib.nullcontext
        if source.random() < LONG_PROGRAMS:
            opening = "".join(long(0, 20) for _ in range(source.randint(1, 20)))
            program = [append(opening), *random_program(source, long, source.randint(4, 10))]
        else:
            rooms = source.choice((contextlib.nullcontext, small_rooms, small_rooms))
            program = random_program(source, short, source.randint(6, 20))
        failures += _led(it, "programs", program, rooms, len(failures))
        counts["programs"] += 1
        counts["operations"] += len(program)
    return Outcome(name, counts, tuple(failures))


def replays(name: str) -> Outcome:
    """The agent sessions turn by turn, by appends and by updates."""
    it = subject(name)
    counts, failures = Counter[str](), list[Failure]()
    sessions = material.agent_sessions()
    if name.removeprefix(ZOO) in zoo.UNSUPPORTED:
        sessions = sessions[:3]  # every turn is encoded in full twice, and there is little that could go wrong
    for messages in sessions:
        for program in replayed(messages):
            failures += _led(it, "replays", program, contextlib.nullcontext, len(failures))
            counts["turns"] += len(program)
    return Outcome(name, counts, tuple(failures))


def replayed(messages: Sequence[dict[str, str]]) -> tuple[Program, Program]:
    """A transcript turn by turn: by appends, and by updates that replace a generation prompt."""
    turns = [material.chatml([message]) for message in messages]
    appends = [append(turn) for turn in turns]
    first, *others = turns
    updates = [append(first + PROMPT)]
    for turn in others:
        replaced = Change(-len(PROMPT), 1 << 60, turn + PROMPT)
        updates.append(Operation(Kind.UPDATE, (replaced,), look=len(updates) % 5 == 0))
    return appends, updates


def _cut_everywhere(it: Subject, check: str, all_texts: Iterable[str]) -> Outcome:
    counts, failures = Counter[str](), list[Failure]()
    for text in all_texts:
        counts[check] += 1
        counts["cuts"] += len(it.tok.family.cuts(text, continuation=True))
        # What an engine has seen before must not matter.
        program = [encode(text[: len(text) // 2]), encode(text)] if it.engine else [cut(text)]
        failures += _led(it, check, program, contextlib.nullcontext, len(failures))
    return Outcome(it.name, counts, tuple(failures))


def _led(it: Subject, check: str, program: Program, rooms: Rooms, already: int) -> list[Failure]:
    def problem(program: Program) -> Problem | None:
        with rooms():
            return run(program, it.tok, it.reference, it.engine)

    if not (found := problem(program)):
        return []
    where = "" if rooms is contextlib.nullcontext else ", in small rooms"
    if already < SHRUNK:  # where a rule is missing there are hundreds: of these some are enough
        program = shrink_program(program, lambda shorter: problem(shorter) is not None)
        found = problem(program) or found
    return [Failure(it.name, check + where, shown(program), str(found))]


# The campaign


def jobs(wanted: Sequence[str], texts_each: int, seed: int, engine: str | None = None) -> list[Job]:
    """All there is to do: a first chunk for every subject, in case the campaign is cut short, then the long jobs."""
    every = names(wanted, engine)
    chunks: list[Job] = []
    for chunk, done in enumerate(range(0, texts_each, CHUNK)):
        count = min(CHUNK, texts_each - done)
        for name in every:
            if has_cuts(name):
                chunks.append(functools.partial(texts, name, seed, chunk, count))
            chunks.append(functools.partial(programs, name, seed, chunk, -(-count // TEXTS_PER_PROGRAM)))
    whole: list[Job] = [functools.partial(replays, name) for name in every]
    whole += [functools.partial(corpus, name) for name in every if has_cuts(name)]
    first = sum(map(has_cuts, every)) + len(every)
    return chunks[:first] + whole + chunks[first:]


def has_cuts(name: str) -> bool:
    """Whether a subject's definition is understood."""
    plain = name.partition(WITH)[0]
    return plain in material.available() or plain.removeprefix(ZOO) in zoo.SUPPORTED


def campaign(todo: Sequence[Job], seconds: float, console: Console) -> list[Outcome]:
    """Does the jobs on two processes, and after some seconds begins no more of them. The order is that of the jobs."""
    columns = (
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("jobs, {task.fields[differences]} differences,"),
        TimeElapsedColumn(),
        TextColumn("{task.description}"),
    )
    # Started anew and not forked, which a library that runs threads does not survive.
    pool = concurrent.futures.ProcessPoolExecutor(2, multiprocessing.get_context("spawn"))
    futures = [pool.submit(job) for job in todo]
    try:
        with Progress(*columns, console=console, transient=True) as progress, contextlib.suppress(OutOfTime):
            task = progress.add_task("", total=len(todo), differences=0)
            differences = 0
            for future in concurrent.futures.as_completed(futures, timeout=seconds or None):
                differences += len(future.result().failures)
                progress.update(task, advance=1, differences=differences, description=future.result().name)
    finally:
        pool.shutdown(cancel_futures=True)
    return [future.result() for future in futures if not future.cancelled()]


def report(outcomes: Sequence[Outcome], console: Console) -> bool:
    """Prints what was checked, and what differed; whether nothing did."""
    failures = [failure for outcome in outcomes for failure in outcome.failures]
    failed = {failure.name for failure in failures}
    rows: dict[str, list[Outcome]] = {}
    for outcome in outcomes:
        row = outcome.name
        if row.startswith(ZOO) and row not in failed:
            row = "small definitions" if has_cuts(row) else "not understood"
        rows.setdefault(row, []).append(outcome)
    checked = ("texts", "real texts", "cuts", "programs", "operations", "turns")
    table = Table("", title="Compared with a full encode by the reference", box=box.SIMPLE, pad_edge=False)
    for column in (*checked, "apart", "99 %", "differences"):
        table.add_column(column, justify="right")
    total = Counter[str]()
    for row, parts in rows.items():
        counts = sum((part.counts for part in parts), Counter(differences=sum(len(part.failures) for part in parts)))
        total += counts
        apart = next(((f"{p.mean:.2f}", f"{p.largest:.0f}") for p in parts if p.mean and p.largest), ("", ""))
        several = len({part.name for part in parts})
        label = row if several == 1 else f"{several} {row}"
        table.add_row(label, *_numbers(counts, *checked), *apart, *_numbers(counts, "differences"))
    table.add_section()
    table.add_row("all", *_numbers(total, *checked), "", "", *_numbers(total, "differences"))
    console.print(table)
    console.print("apart: characters between certified cuts in the agent sessions, mean and 99th percentile")
    shortest: dict[tuple[str, str], Failure] = {}
    for failure in sorted(failures, key=lambda failure: len(failure.smallest)):
        shortest.setdefault((failure.name, failure.check), failure)
    for failure in shortest.values():
        console.print(f"{failure.name}, {failure.check}: {failure.problem}", style="red", markup=False)
        console.print(failure.smallest, markup=False, highlight=False, soft_wrap=True)
    return not failures


def _numbers(counts: Counter[str], *columns: str) -> list[str]:
    return [f"{counts[column]:,}" for column in columns]


def main() -> int:
    """Reads the command line, and runs."""
    parser = argparse.ArgumentParser(prog="python -m tests.campaign", description=__doc__.split("\n\n")[0])
    parser.add_argument("--texts", type=int, default=20_000, help="adversarial texts for each definition (%(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="another one gives other texts and programs")
    parser.add_argument("--only", nargs="+", default=[], metavar="NAME", help="names or patterns: qwen3 'zoo/NF*'")
    parser.add_argument("--engine", metavar="NAME", help="test an engine, on all that it serves, and not the relation")
    parser.add_argument("--seconds", type=float, default=0, help="begin nothing new after that long (no limit)")
    arguments = parser.parse_args()
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")  # both cores are busy already
    console = Console() if sys.stdout.isatty() else Console(width=120)
    todo = jobs(arguments.only, arguments.texts, arguments.seed, arguments.engine)
    began = time.monotonic()
    passed = report(campaign(todo, arguments.seconds, console), console)
    console.print(f"seed {arguments.seed}, {time.monotonic() - began:.0f} s, tokenizers {tokenizers.__version__}")
    return 0 if passed else 1


if __name__ == "__main__":
    sys.exit(main())
