"""toktier beside what else saves encoding a growing transcript anew: wrong ids, time of a turn, state."""

from __future__ import annotations

import functools
import gc
import itertools
import statistics
import time
import tracemalloc
from collections.abc import Callable, Iterator, Sequence

import attrs
import numpy as np
import tokenizers
from attrs import define, field, frozen

import toktier
from benchmarks import comparison_page
from benchmarks.common import anew, arguments, save
from benchmarks.comparison_page import Comparison, State, Time, Wrong, main_of
from benchmarks.conversations import FORMATS, Chat, long_turns, ways
from benchmarks.strategies import STRATEGIES, Library
from tests import material
from toktier import Session, SessionStore, Tokenizer
from toktier.bench.contenders import LOADERS, Encode
from toktier.bench.contenders import contenders as installed
from toktier.bench.measuring import engine_of
from toktier.engines.base import Ids
from toktier.router import PROCESSOR

TURN = 1_400
"""Characters that a turn adds, at least: whole messages."""

CONTEXTS = {"100 K": 100_000, "1 M": 1_000_000}

ROUNDS, QUICK_ROUNDS = 5, 3
"""How often everybody has a turn of each kind."""

SLOW, SELDOM = 0.2, 4
"""A contender that takes more seconds than this for a turn takes part in every fourth round."""

STATE_CONTEXT, STATE_TURNS = 50_000, 10
"""Characters of the transcript whose state is added up, and how many turns it gets."""

Turn = Callable[[str, "str | None"], "Sequence[int] | Ids"]
"""Is called on each turn, with the whole text and with what it adds to the last one: None where that is no prefix."""


@frozen(eq=False)
class Contender:
    """Something that gives the ids of each turn of a conversation.

    Attributes:
        name: As the tables have it.
        start: Begins a conversation.
        library: What it encodes with, if that counts characters.
        in_full: Whether it encodes everything on every turn.
        appends_only: Whether it is given what is new, and nothing else.
    """

    name: str
    start: Callable[[], Turn]
    library: Library | None = None
    in_full: bool = False
    appends_only: bool = False


@define
class Remembering(Library):
    """Encodes each text once for all strategies: where only the ids matter."""

    remembered: Callable[[str], tokenizers.Encoding] = field(init=False)

    def __attrs_post_init__(self) -> None:
        Library.__attrs_post_init__(self)
        encode = functools.partial(self.tokenizer.encode, add_special_tokens=False)
        self.remembered = functools.lru_cache(256)(encode)

    def batch(self, texts: list[str]) -> list[list[int]]:
        return [self.encoding(text).ids for text in texts]

    def encoding(self, text: str) -> tokenizers.Encoding:
        self.characters += len(text)
        return self.remembered(text)


def strategies(library: Library) -> Iterator[Contender]:
    """What programs do, on the reference library."""

    def start(name: str) -> Turn:
        strategy = STRATEGIES[name](library)
        return lambda text, new: strategy.encode(text)

    for name in STRATEGIES:
        yield Contender(name, functools.partial(start, name), library)


def packages(tokenizer: tokenizers.Tokenizer) -> tuple[list[Contender], dict[str, str]]:
    """Libraries that encode everything again, and are fast; the reference itself is among the strategies.

    With them those that cannot take part, and why.
    """

    def start(encode: Encode) -> Turn:
        return lambda text, new: encode(text)

    found, left_out = installed(tokenizer)
    taking_part = [
        Contender(f"{one.name}, everything again", functools.partial(start, one.encode), in_full=True)
        for one in found
        if one.name != "tokenizers"
    ]
    return taking_part, left_out


def of_toktier(tok: Tokenizer, engine: str, label: str) -> Iterator[Contender]:
    """Sessions and a store, with one engine."""
    store, numbers = SessionStore(tok, engine=engine), itertools.count()

    def appending() -> Turn:
        session = Session(tok, engine=engine)

        def turn(_: str, new: str | None) -> Ids:
            assert new is not None, "an append is given what is new"
            session.append(new)
            return session.ids

        return turn

    def updating() -> Turn:
        session = Session(tok, engine=engine)

        def turn(text: str, _: str | None) -> Ids:
            session.update(text)
            return session.ids

        return turn

    def storing() -> Turn:
        name = str(next(numbers))
        return lambda text, new: store.encode(text, session=name)

    yield Contender(f"toktier append, {label}", appending, appends_only=True)
    yield Contender(f"toktier update, {label}", updating)
    yield Contender(f"toktier store, {label}", storing)


def fastest(tok: Tokenizer) -> str:
    """The fastest engine that serves a tokenizer. The first time, engines are compared with the reference."""
    return next(name for name in PROCESSOR if not isinstance(engine_of(tok, name), str))


@frozen(eq=False)
class Subject:
    """A tokenizer, loaded by everybody.

    Attributes:
        name: Its name.
        chat: Its chat format.
        tokenizer: The reference library's, for the strategies.
        fast: The fastest engine.
        others: The contenders that are not strategies.
        left_out: The packages that cannot take part, and why.
    """

    name: str
    chat: Chat
    tokenizer: tokenizers.Tokenizer
    fast: str
    others: list[Contender]
    left_out: dict[str, str]

    @classmethod
    def load(cls, name: str) -> Subject:
        """Loads a tokenizer of :func:`tests.material.available`."""
        tokenizer = tokenizers.Tokenizer.from_buffer(material.definition(name))
        # Not the tests' registry: engines were perhaps compared on this machine before.
        tok = toktier.load(material.file(name))
        fast = fastest(tok)
        own = *of_toktier(tok, "reference", "reference"), *of_toktier(tok, fast, "fastest engine")
        libraries, left_out = packages(tokenizer)
        return cls(name, FORMATS[name], tokenizer, fast, [*libraries, *own], left_out)

    def contenders(self, library: Library) -> list[Contender]:
        """All of them, the strategies on a library."""
        return [*strategies(library), *self.others]


def wrong(subject: Subject, *, share: int) -> Iterator[Wrong]:
    """How many turns each contender gives other ids for than a full encode by the reference.

    Args:
        subject: The tokenizer.
        share: Every which session and text is taken.
    """
    library = Remembering(subject.tokenizer)
    everybody = subject.contenders(library)
    for way, conversations in ways(subject.chat, share).items():
        growing = all(b.startswith(a) for texts in conversations for a, b in itertools.pairwise(texts))
        taking_part = [contender for contender in everybody if growing or not contender.appends_only]
        turns, counts, full = 0, dict.fromkeys(taking_part, 0), dict.fromkeys(taking_part, 0)
        for texts in conversations:
            started = {contender: contender.start() for contender in taking_part}
            for before, text in itertools.pairwise(["", *texts]):
                expected, new = np.array(library.remembered(text).ids, np.uint32), text[len(before) :]
                turns += 1
                for contender, turn in started.items():
                    library.characters = 0
                    given = np.array(turn(text, new if text.startswith(before) else None), np.uint32)
                    counts[contender] += not np.array_equal(given, expected)
                    full[contender] += contender.in_full or library.characters >= len(text)
        for contender in taking_part:
            yield Wrong(subject.name, way, contender.name, turns, counts[contender], full[contender])


def times(subject: Subject, contexts: dict[str, int], rounds: int) -> Iterator[Time]:
    """The median time of a turn, all contenders in turns: of an append, of the same text again, and of a new prompt.

    Args:
        subject: The tokenizer.
        contexts: How long the transcripts are.
        rounds: How often everybody has a turn.
    """
    for at, size in contexts.items():
        library, prompt = Library(subject.tokenizer), subject.chat.prompt
        everybody = subject.contenders(library)
        warm = [contender.start() for contender in everybody]
        text, turns = long_turns(subject.chat, size, TURN, 2 * rounds)
        started = {contender: contender.start() for contender in everybody}
        for turn in started.values():
            turn(text, text)
        seconds: dict[tuple[Contender, str], list[float]] = {}

        def timed(contender: Contender, what: str, full: str, new: str | None) -> None:
            own = anew(full)
            start = time.perf_counter()
            result = started[contender](own, new)  # noqa: B023
            seconds.setdefault((contender, what), []).append(time.perf_counter() - start)  # noqa: B023
            del result

        def due(contender: Contender, what: str, number: int) -> bool:
            return number % SELDOM == 0 or min(seconds[contender, what]) < SLOW  # noqa: B023

        gc.disable()
        for number, new in enumerate(turns[:rounds]):
            gc.collect()
            text += new
            for turn in warm:  # libraries remember words, and here everybody is to know them
                turn(new, new)
            for contender in _rotated(everybody, number):
                if contender.appends_only:
                    timed(contender, "append", text, new)
                    continue
                if due(contender, "append", number):
                    timed(contender, "append", text, new)
                if due(contender, "again", number):
                    timed(contender, "again", text, "")
        for number, new in enumerate(turns[rounds:]):
            gc.collect()
            for turn in warm:
                turn(new, new)
            for contender in _rotated(everybody, number):
                if not contender.appends_only and due(contender, "prompt", number):
                    started[contender](text + prompt, prompt)
                    timed(contender, "prompt", text + new, None)
            text += new
        gc.enable()
        _verify(library.ids(text), {who: turn for who, turn in started.items() if not who.appends_only}, text)
        for (contender, what), some in seconds.items():
            yield Time(subject.name, contender.name, at, what, round(1e3 * statistics.median(some), 4))


def _rotated(everybody: Sequence[Contender], number: int) -> list[Contender]:
    first = number * 5 % len(everybody)
    return [*everybody[first:], *everybody[:first]]


def _verify(expected: list[int], started: dict[Contender, Turn], text: str) -> None:
    """Those of toktier are to be right here as well."""
    for contender, turn in started.items():
        if contender.name.startswith("toktier") and not np.array_equal(turn(text, None), expected):
            raise SystemExit(f"{contender.name} gave other ids than the reference")


def states(subject: Subject) -> Iterator[State]:
    """Bytes that each holds after some turns for each character of the transcript, all text it was given among them.

    What a library holds outside Python is not seen.
    """
    begin, turns = long_turns(subject.chat, STATE_CONTEXT, TURN, STATE_TURNS)
    for contender in subject.contenders(Library(subject.tokenizer)):
        contender.start()("Everything that is made once", "Everything that is made once")
        gc.collect()
        tracemalloc.start()
        turn, text = contender.start(), anew(begin)
        turn(anew(text), text)
        for new in turns:
            text += new
            turn(anew(text), anew(new))
        characters = len(text)
        del text
        gc.collect()
        held = tracemalloc.get_traced_memory()[0]
        tracemalloc.stop()
        yield State(subject.name, contender.name, round(held / characters, 2))


def measured(names: Sequence[str], *, quick: bool, told: Callable[[str], None]) -> Comparison:
    """Everything that is shown: of one tokenizer all, of the others wrong turns, and times on the longest transcript.

    Args:
        names: The tokenizers.
        quick: A first look.
        told: Is told what comes next.
    """
    comparison = Comparison({}, {}, [], [], [])
    taking_part: set[str] = set()
    longest = {at: size for at, size in CONTEXTS.items() if size == max(CONTEXTS.values())}
    for name in names:
        told(f"{name}: loading, and comparing engines if that was not done yet")
        subject = Subject.load(name)
        comparison.fastest[name] = subject.fast
        comparison.left_out.update(subject.left_out)
        taking_part |= LOADERS.keys() - subject.left_out.keys()
        for package, why in subject.left_out.items():
            told(f"{name}: without {package}, {why}")
        told(f"{name}: wrong turns")
        comparison.wrong.extend(wrong(subject, share=4 if quick else 1))
        told(f"{name}: times")
        in_full = name == main_of(names)
        comparison.times.extend(times(subject, CONTEXTS if in_full else longest, QUICK_ROUNDS if quick else ROUNDS))
        if in_full:
            told(f"{name}: state")
            comparison.states.extend(states(subject))
    left_out = {package: why for package, why in comparison.left_out.items() if package not in taking_part}
    return attrs.evolve(comparison, left_out=left_out)


def main() -> None:
    there = material.available()
    production = [name for name in material.PRODUCTION if name in there]
    parser = arguments(__doc__)
    parser.add_argument("--tokenizer", nargs="+", default=production or there, choices=there, metavar="NAME")
    parser.add_argument("--quick", action="store_true", help="a first look")
    options = parser.parse_args()
    comparison = measured(options.tokenizer, quick=options.quick, told=lambda what: print(what, flush=True))
    comparison_page.show(comparison)
    if options.json:
        save("toktier beside caches and re-tokenizers", attrs.asdict(comparison), options.json)


if __name__ == "__main__":
    main()
