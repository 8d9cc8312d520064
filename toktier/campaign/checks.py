"""What a campaign checks, as programs that take turns, so that whatever the time limit is, all of it had its share.

- *texts*: adversarial texts, each cut at all of its certified cuts; and encoded by every engine after it has seen their
  beginnings, which must not matter.
- *files*: real texts, cut everywhere; and encoded by every engine, alone and with the planner, after a beginning.
- *file sessions*: sessions led through random operations whose texts are parts of the files.
- *sessions*: the same with adversarial texts.
"""

from __future__ import annotations

import functools
import itertools
import random
from collections.abc import Callable, Iterator, Sequence

from attrs import field, frozen

from toktier.campaign.operations import Kind, Program, append, cut, encode, plan, random_program
from toktier.campaign.texts import fragments, random_text
from toktier.engines.reference import ReferenceEngine
from toktier.tokenizer import Tokenizer

TEXTS = 200
"""Adversarial texts in one program."""

LONG_TEXTS = 2
"""How many more there are that are long enough for engines to treat them in another way."""

BEGINNING = 4096
"""Characters that a long text's beginning has at least: it takes as many for what an engine remembers to matter."""

SLICE = 1 << 20
"""Characters of a file in one program, so that a turn takes a second or so."""

WINDOW = 1 << 16
"""Characters of a file that are cut everywhere at a time."""

PARTS = (0, 10, 100, 1000, 10_000)
"""Characters of a part of a file that a session is given."""

Texts = Callable[[int, int], str]
"""Gives a random text of at least and at most so many fragments."""


@frozen
class Check:
    """One kind of check, of one engine.

    Attributes:
        name: What is checked.
        engine: The name of the engine; None when it is the relation.
        programs: What there is to do, for some without an end.
        turn: How many programs take about as long as those of another check in one turn.
    """

    name: str
    engine: str | None
    programs: Iterator[Program] = field(repr=False)
    turn: int = 1


def checks(tok: Tokenizer, files: Sequence[str], engines: Sequence[str], seed: int) -> list[Check]:
    """All there is to check. The same seed gives the same programs on every machine.

    Args:
        tok: The tokenizer.
        files: Real texts, none of them empty.
        engines: The names of engines.
        seed: Of everything random.

    Example:
        >>> import toktier
        >>> [(check.name, check.engine) for check in checks(toktier.load("toktier-mini"), ["A text."], ["memo"], 0)]
        [('texts', None), ('files', None), ('texts', 'memo'), ('files', 'memo'), ('file sessions', 'memo'),
         ('sessions', 'memo')]
    """
    found = []
    slices = _slices(files, random.Random(f"{seed} files"))
    adversarial = _adversarial(tok, seed)
    if tok.family.supported:
        found.append(Check("texts", None, _cut_texts(adversarial("texts")), turn=5))
        found.append(Check("files", None, _cut_slices(slices)))
    for name in engines:
        if name != ReferenceEngine.name:  # which is right by definition
            found.append(Check("texts", name, _encoded_texts(*adversarial(f"texts {name}"))))
            found.append(Check("files", name, _encoded_slices(slices, seed)))
        source = random.Random(f"{seed} file sessions {name}")
        found.append(Check("file sessions", name, _sessions(source, _parts_of(files, source), long=True)))
        found.append(Check("sessions", name, _sessions(*adversarial(f"sessions {name}")), turn=10))
    return found


def _adversarial(tok: Tokenizer, seed: int) -> Callable[[str], tuple[random.Random, Texts]]:
    """For the name of a check, a source of its own with adversarial texts from it."""
    pool = fragments(tok, random.Random(f"{seed} fragments").randrange(1 << 30))

    def of(check: str) -> tuple[random.Random, Texts]:
        source = random.Random(f"{seed} {check}")
        return source, functools.partial(random_text, source, pool)

    return of


def _cut_texts(adversarial: tuple[random.Random, Texts]) -> Iterator[Program]:
    _, texts = adversarial
    while True:
        yield [cut(texts(2, 24)) for _ in range(TEXTS)]


def _encoded_texts(source: random.Random, texts: Texts) -> Iterator[Program]:
    while True:
        some = [texts(2, 24) for _ in range(TEXTS // 2)]
        program = [encode(part) for text in some for part in (text[: source.randrange(len(text) + 1)], text)]
        for _ in range(LONG_TEXTS):
            long = _long(source, texts)
            program += [encode(long[: source.randrange(BEGINNING, len(long))]), encode(long)]
        yield program


def _long(source: random.Random, texts: Texts) -> str:
    """A text that has room for a long beginning."""
    length, parts, total = source.randrange(BEGINNING + 1, 4 * BEGINNING), list[str](), 0
    while total < length:
        parts.append(texts(2, 24) + " ")
        total += len(parts[-1])
    return "".join(parts)


def _slices(files: Sequence[str], source: random.Random) -> list[tuple[str, int, int]]:
    """Where to look for what, in random order: of much text, a time limit leaves room for a sample."""
    found = [(text, start, start + SLICE) for text in files for start in range(0, len(text), SLICE)]
    source.shuffle(found)
    text, start, stop = found[0]
    if len(text) - start <= WINDOW:
        return found
    # Every check has a first turn, however short the time is: that is a short one.
    return [(text, start, start + WINDOW), (text, start + WINDOW, stop), *found[1:]]


def _cut_slices(slices: Sequence[tuple[str, int, int]]) -> Iterator[Program]:
    for text, start, stop in slices:
        yield [cut(text[i : min(i + WINDOW, stop)]) for i in range(start, min(stop, len(text)), WINDOW)]


def _encoded_slices(slices: Sequence[tuple[str, int, int]], seed: int) -> Iterator[Program]:
    # The same for every engine, so that the reference has to encode it once.
    source = random.Random(f"{seed} beginnings")
    for text, start, stop in slices:
        some = text[start:stop]
        yield [encode(some[: source.randrange(len(some))]), encode(some), plan(some)]


def _parts_of(files: Sequence[str], source: random.Random) -> Texts:
    def part(low: int, high: int) -> str:
        text = source.choice(files)
        start = source.randrange(len(text))
        return text[start : start + source.choice(PARTS)]

    return part


def _sessions(source: random.Random, texts: Texts, *, long: bool = False) -> Iterator[Program]:
    while True:
        if long:
            opening = "".join(texts(0, 20) for _ in range(source.randint(1, 10)))
            yield [append(opening), *random_program(source, texts, source.randint(4, 10))]
        else:
            yield random_program(source, texts, source.randint(6, 20))


def turns(all_checks: Sequence[Check]) -> Iterator[tuple[Check, Program]]:
    """The programs of all checks: a turn of each, again and again, for as long as there is anything to do.

    Example:
        >>> few = [
        ...     Check("one", None, iter([[append("a")], [append("b")]])),
        ...     Check("other", None, iter([[append("c")]])),
        ... ]
        >>> [check.name for check, _ in turns(few)]
        ['one', 'other', 'one']
    """
    waiting = list(all_checks)
    while waiting:
        for check in list(waiting):
            some = list(itertools.islice(check.programs, check.turn))
            if not some:
                waiting.remove(check)
            yield from ((check, program) for program in some)


def tally(tok: Tokenizer, program: Program) -> dict[str, int]:
    """What is checked by a program, in numbers.

    Example:
        >>> import toktier
        >>> tally(toktier.load("toktier-mini"), [cut("Cut me, please!"), append("And me.")])
        {'texts': 1, 'characters': 22, 'cuts': 4, 'programs': 1, 'operations': 1}
    """
    alone = [operation for operation in program if operation.kind in (Kind.ENCODE, Kind.PLAN, Kind.CUT)]
    divided = (operation.changes[0].new for operation in alone if operation.kind is Kind.CUT)
    return {
        "texts": len(alone),
        "characters": sum(len(change.new) for operation in program for change in operation.changes),
        "cuts": sum(len(tok.family.cuts(text, continuation=True)) for text in divided),
        "programs": int(len(program) > len(alone)),
        "operations": len(program) - len(alone),
    }
