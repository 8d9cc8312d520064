"""A campaign on one tokenizer: checks take turns until the time is up, or until something differs."""

from __future__ import annotations

import functools
import time
from collections import Counter
from collections.abc import Iterator, Sequence

from attrs import define, evolve, field, frozen

from toktier.campaign.checks import Check, checks, tally, turns
from toktier.campaign.operations import Kind, Program, cut, encode
from toktier.campaign.programs import Problem, Reference, in_words, reference_ids, run
from toktier.campaign.reproduction import Reproduction
from toktier.campaign.shrinking import shrink_program
from toktier.engines.base import Engine, Ids
from toktier.errors import UnknownEngine
from toktier.router import NAMES
from toktier.tokenizer import Tokenizer

SEEN = 1 << 23
"""Characters after which an engine is replaced by a new one: all that it has seen is kept until then, for a difference
may depend on it."""

SHRINKING = 20.0
"""Seconds for which a difference is made smaller, twice at most."""

ONLY_ONCE = "not when it was done again"
"""What a difference says of itself that was not made again, because of a past that nobody knows."""

EXPECTED = 16
"""Answers of the reference that are kept: several engines have the same text to encode, one after the other."""


@define
class Subject:
    """An engine of the campaign: it remembers what it was given since it was new.

    Attributes:
        tok: The tokenizer that it serves.
        name: Which one it is.
        engine: The engine itself.
        seen: The texts that it was given.
        characters: How many these have.
        before: How many texts went to the reference in place of the engines before this one.
    """

    tok: Tokenizer
    name: str
    engine: Engine
    seen: list[str] = field(factory=list)
    characters: int = 0
    before: int = 0

    def encode(self, text: str, *, continuation: bool = False) -> Ids:
        """The ids of a text."""
        self._remember(text)
        return self.engine.encode(text, continuation=continuation)

    def encode_batch(self, texts: Sequence[str], *, continuation: bool = False) -> list[Ids]:
        """The ids of several texts."""
        self._remember(*texts)
        return self.engine.encode_batch(texts, continuation=continuation)

    @property
    def call_size(self) -> int:
        """The engine's."""
        size: int = getattr(self.engine, "call_size", 0)
        return size

    @property
    def fallen_back(self) -> int:
        """Texts that went to the reference, for a character on which the engine differs or because it raised."""
        return self.before + sum(getattr(self.engine, count, 0) for count in ("guarded", "failed"))

    def renew(self) -> None:
        """Puts a new engine in the place of one that has seen much."""
        if self.characters > SEEN:
            self.before = self.fallen_back
            self.engine = self.tok.renewed().engine(self.name)
            self.seen, self.characters = [], 0

    def _remember(self, *texts: str) -> None:
        self.seen += texts
        self.characters += sum(map(len, texts))


class Campaign:
    """Checks everything of one tokenizer in turns.

    Args:
        tok: The tokenizer.
        files: Real texts, none of them empty.
        engines: The names of engines that serve it; see :func:`admitted`.
        seed: Of everything random.

    Attributes:
        counts: For each check and engine, what was checked, in numbers.
        difference: How to see again what differed; None if nothing did.

    Raises:
        UnknownEngine: There is no engine of a name, or it does not serve this tokenizer.

    Example:
        >>> import toktier
        >>> campaign = Campaign(toktier.load("toktier-mini"), ["Some text."], ["memo"])
        >>> steps = list(campaign.steps(0.5))
        >>> print(campaign.difference)
        None
        >>> campaign.counts["files", "memo"]["characters"] >= 20
        True
    """

    def __init__(self, tok: Tokenizer, files: Sequence[str], engines: Sequence[str], seed: int = 0) -> None:
        self._tok = tok
        self._reference: Reference = functools.lru_cache(EXPECTED)(reference_ids(tok))
        new = tok.renewed()
        self._subjects = {name: Subject(tok, name, new.engine(name)) for name in engines}
        self._checks = checks(tok, files, engines, seed)
        self.counts = {(check.name, check.engine): Counter[str]() for check in self._checks}
        self.difference: Reproduction | None = None

    @property
    def fallen_back(self) -> dict[str, int]:
        """For each engine, how many texts went to the reference in its place."""
        return {name: subject.fallen_back for name, subject in self._subjects.items()}

    def steps(self, seconds: float) -> Iterator[str]:
        """Checks, and says what comes next before each step.

        Args:
            seconds: After so many nothing new is begun, once every check has had a turn.
        """
        until, begun = time.monotonic() + seconds, set[int]()
        for check, program in turns(self._checks):
            if time.monotonic() >= until and len(begun) == len(self._checks):
                return
            begun.add(id(check))
            yield check.name if check.engine is None else f"{check.name}, {check.engine}"
            if problem := self._problem(check, program):
                made = program[: problem.number]
                self.difference = Reproduction.of(self._tok, check.engine, made, problem)  # if somebody stops it now
                yield "making the difference smaller"
                self.difference = self._smallest(check, program, problem)
                return

    def _problem(self, check: Check, program: Program) -> Problem | None:
        self.counts[check.name, check.engine].update(tally(self._tok, program))
        subject = self._subjects[check.engine] if check.engine else None
        if subject:
            subject.renew()
        return run(program, self._tok, self._reference, subject)

    def _smallest(self, check: Check, program: Program, problem: Problem) -> Reproduction:
        seen = self._subjects[check.engine].seen if check.engine else []
        return smallest(self._tok, check.engine, program[: problem.number], problem, seen)


@frozen
class _Trial:
    """Programs tried with engines that have seen nothing, or not much."""

    tok: Tokenizer
    reference: Reference
    engine: str | None

    def new(self) -> Engine | None:
        """A new engine."""
        return self.tok.renewed().engine(self.engine) if self.engine else None

    def __call__(self, program: Program, engine: Engine | None = None) -> Problem | None:
        """What goes wrong in a program, with a new engine unless one is given."""
        return run(program, self.tok, self.reference, engine or self.new())


def smallest(
    tok: Tokenizer, engine: str | None, program: Program, problem: Problem, seen: Sequence[str]
) -> Reproduction:
    """The smallest program that makes a difference, with an engine that has seen nothing before it.

    Args:
        tok: The tokenizer.
        engine: The name of the engine; None when none takes part.
        program: What was done.
        problem: What went wrong.
        seen: What the engine was given up to then. It becomes part of the program if it takes that to go wrong again.
    """
    return made_again(tok, engine, program, problem, seen) or not_made_again(tok, engine, program, problem)


def made_again(
    tok: Tokenizer, engine: str | None, program: Program, problem: Problem, seen: Sequence[str]
) -> Reproduction | None:
    """The same, or None if nothing goes wrong with a new engine."""
    trial = _Trial(tok, reference_ids(tok), engine)
    for candidate in (program, [*map(encode, seen), *program]):
        if trial(candidate):
            small, found = _shrunk(candidate, trial)
            return Reproduction.of(tok, engine, small, found or problem)
    return None


def not_made_again(tok: Tokenizer, engine: str | None, program: Program, problem: Problem) -> Reproduction:
    """The program as it was, which says that nothing goes wrong when it is done again."""
    again = evolve(problem, message=f"{problem.message}; {ONLY_ONCE}")
    return Reproduction.of(tok, engine, program, again)


def _shrunk(program: Program, trial: _Trial) -> tuple[Program, Problem | None]:
    # To make an engine can take seconds, so one is used for all trials first. What comes of that may go wrong only
    # because of the trials before: then there is no way around a new one each time.
    one = trial.new()
    cheap = shrink_program(program, lambda shorter: trial(shorter, one) is not None, until=_soon())
    if found := trial(cheap):
        return cheap, found
    dear = shrink_program(program, lambda shorter: trial(shorter) is not None, until=_soon())
    return dear, trial(dear)


def _soon() -> float:
    return time.monotonic() + SHRINKING


def counterexample(tok: Tokenizer, text: str, expected: Sequence[int], got: Sequence[int]) -> Reproduction:
    """A text in which a certified cut changes ids.

    Args:
        tok: The tokenizer.
        text: The text.
        expected: Its ids.
        got: The ids of its parts.
    """
    problem = Problem(1, Kind.CUT, in_words(expected, got), tuple(expected), tuple(got))
    return Reproduction.of(tok, None, [cut(text)], problem)


def admitted(tok: Tokenizer) -> tuple[list[str], dict[str, str]]:
    """The engines that serve a tokenizer, fastest first, and why the others do not.

    Engines that were never compared with the reference on this machine are compared now, ten to twenty seconds each.

    Example:
        >>> import toktier
        >>> names, reasons = admitted(toktier.load("toktier-mini"))
        >>> "memo" in names, "reference" in names
        (True, True)
    """
    reasons = {name: reason for name in NAMES if (reason := _refusal(tok, name))}
    return [name for name in NAMES if name not in reasons], reasons


def _refusal(tok: Tokenizer, name: str) -> str | None:
    try:
        tok.engine(name)
    except UnknownEngine as reason:
        return str(reason)
    return None
