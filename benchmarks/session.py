"""What a session costs: its own time beside the engine's, its memory, and both beside encoding everything again.

Times outside the engine are taken by wrapping it: what an append takes, less what its calls of the engine take.
"""

from __future__ import annotations

import functools
import gc
import random
import statistics
import sys
import time
import tracemalloc
from collections.abc import Callable, Sequence

from attrs import define

import toktier
from benchmarks.common import Figure, arguments, beside, in_turns, show, timed, transcript
from tests import material
from toktier import Session, Tokenizer
from toktier.engines.base import Engine, Ids
from toktier.piecetable import PieceTable

APPEND = 1400
"""Characters of one append: what a turn of a coding agent adds, about."""

ENGINE = "reference"
"""What encodes, unless told otherwise: the others keep memory of their own. ``benchmarks/engines.py`` is about them."""

SIZES = (100_000, 1_000_000, 4_000_000)
MILLION = SIZES[1]
PROMPT = "<|im_start|>assistant\n<think>\n"


@define
class Stopwatch:
    """An engine that counts what it is given, and how long it takes."""

    engine: Engine
    name: str = "stopwatch"
    seconds: float = 0.0
    characters: int = 0

    def encode(self, text: str, *, continuation: bool = False) -> Ids:
        start = time.perf_counter()
        ids = self.engine.encode(text, continuation=continuation)
        self.seconds += time.perf_counter() - start
        self.characters += len(text)
        return ids

    def encode_batch(self, texts: Sequence[str], *, continuation: bool = False) -> list[Ids]:
        start = time.perf_counter()
        ids = self.engine.encode_batch(texts, continuation=continuation)
        self.seconds += time.perf_counter() - start
        self.characters += sum(map(len, texts))
        return ids


def appends(tok: Tokenizer, rounds: int, engine: str = ENGINE, each: int = 40) -> list[Figure]:
    """Real text appended to contexts of all sizes, in turns."""
    text = transcript(max(SIZES) + each * APPEND)
    own: dict[int, list[float]] = {size: [] for size in SIZES}
    engines: dict[int, list[float]] = {size: [] for size in SIZES}
    beyond = 0
    for _ in range(rounds):
        watches = {size: Stopwatch(tok.engine(engine)) for size in SIZES}
        sessions = {size: Session(tok, text[:size], engine=watch) for size, watch in watches.items()}
        gc.collect()
        for at in range(0, each * APPEND, APPEND):
            for size, session in sessions.items():
                watch = watches[size]
                watch.seconds, watch.characters = 0.0, 0
                addition = text[size + at : size + at + APPEND]
                start = time.perf_counter()
                session.append(addition)
                seconds = time.perf_counter() - start
                own[size].append(seconds - watch.seconds)
                engines[size].append(watch.seconds)
                beyond = max(beyond, watch.characters - APPEND)
    what = f"append {APPEND:,} characters, outside the engine"
    figures = [
        beside(timed(what, _size(size), own[size], unit="us", limit=25), "the engine's", engines[size])
        for size in SIZES
    ]
    growth = statistics.median(own[max(SIZES)]) / statistics.median(own[min(SIZES)])
    figures.append(Figure("the same, largest beside smallest context", "", growth, limit=1.3))
    figures.append(Figure("most the engine saw beyond what was appended", "", beyond, "characters"))
    return figures


def memory(tok: Tokenizer) -> list[Figure]:
    """Bytes that a session of a million characters holds beyond its text, per id: added up, and by tracemalloc."""
    text, unit = transcript(MILLION), "bytes per id"
    Session(tok, text[:APPEND], engine=ENGINE)  # whatever is made once is made now
    figures = []
    for how, step in (("given at once", MILLION), ("appended in pieces", APPEND)):
        gc.collect()
        tracemalloc.start()
        session = Session(tok, engine=ENGINE)
        for at in range(0, MILLION, step):
            session.append(text[at : at + step])
        gc.collect()
        grown = tracemalloc.get_traced_memory()[0]
        tracemalloc.stop()
        # A text given at once stays the caller's own string; one that was appended is the session's.
        grown -= sum(sys.getsizeof(s) - sys.getsizeof("") for s in _text(session)._sources if s is not text)
        what = f"state beyond a text {how}"
        figures.append(Figure(what, _size(MILLION), own_size(session) / len(session), unit, limit=5))
        figures.append(Figure(f"{what}, traced", _size(MILLION), grown / len(session), unit, limit=5))
    return figures


def own_size(session: Session) -> int:
    """Bytes of all the parts of a session but the characters of its text."""
    text = _text(session)
    return session.nbytes - text.nbytes + text.nbytes_overhead()


def _text(session: Session) -> PieceTable:
    return session._served.held.table


def beside_everything(tok: Tokenizer, repeats: int) -> list[Figure]:
    """What can be done to a session of a million characters, beside encoding them all again."""
    text, words, source = transcript(MILLION), transcript(2 * MILLION)[MILLION:], random.Random(0)
    places = range(0, MILLION, MILLION // 20)
    shortened = "".join(text[i : i + places.step - 500] for i in places)
    session, whole = Session(tok, text, engine=ENGINE), Session(tok, text, engine=ENGINE)

    def edit(removed: int, added: int) -> None:
        place = MILLION // 2 + source.randrange(-1000, 1000)
        session.edit(place, place + removed, words[place : place + added])

    full = in_turns({"": functools.partial(tok.engine(ENGINE).encode, text)}, repeats)[""]
    start = in_turns({"": functools.partial(Session, tok, text, engine=ENGINE)}, repeats)[""]
    taken = in_turns(
        {
            "replace 10 characters in the middle": lambda: edit(10, 10),
            "insert 1,400 in the middle": lambda: edit(0, APPEND),
            "delete 1,400 in the middle": lambda: edit(APPEND, 0),
            "update: 500 characters gone in each of 20 places": lambda: whole.fork().update(shortened),
        },
        10 * repeats,
    )
    taken = {"start a session": start} | taken
    return [beside(timed(what, _size(MILLION), seconds), "full encode", full) for what, seconds in taken.items()]


def lists(tok: Tokenizer, repeats: int) -> list[Figure]:
    """A list of all ids after each append, from the session and from its array."""
    session, words = Session(tok, transcript(MILLION), engine=ENGINE), transcript(2 * MILLION)[MILLION:]
    session.tolist()
    kept, boxed = [], []
    for k in range(repeats):
        session.append(words[k * APPEND : (k + 1) * APPEND])
        kept.append(_seconds(session.tolist))
        boxed.append(_seconds(session.ids.tolist))
    return [beside(timed("tolist() after an append", _size(MILLION), kept), "ids.tolist()", boxed)]


def updates(tok: Tokenizer, repeats: int) -> list[Figure]:
    """The whole text given again, an answer where the generation prompt was: beside one comparison of the two texts."""
    text = transcript(MILLION + (repeats + 1) * APPEND)
    watch = Stopwatch(tok.engine(ENGINE))
    session = Session(tok, text[:MILLION] + PROMPT, engine=watch)
    taken, own, compared, full = [], [], [], []
    for k in range(repeats):
        old, new = text[: MILLION + k * APPEND], text[: MILLION + (k + 1) * APPEND] + PROMPT
        watch.seconds = 0.0
        taken.append(_seconds(functools.partial(session.update, new)))
        own.append(taken[-1] - watch.seconds)
        compared.append(_seconds(functools.partial(new.startswith, old)))
        if not k % 10:
            full.append(_seconds(functools.partial(tok.engine(ENGINE).encode, new)))
    what, at = "update: an answer for the prompt", _size(MILLION)
    return [
        beside(timed(f"{what}, outside the engine", at, own), "new.startswith(old)", compared),
        beside(timed(what, at, taken), "full encode", full),
    ]


def _seconds(call: Callable[[], object]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def _size(characters: int) -> str:
    return f"{characters // 1000:,} K"


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--tokenizer", default="toktier-mini", choices=material.available())
    parser.add_argument("--engine", help=f"measure the appends alone, with this engine ({ENGINE} and everything)")
    parser.add_argument("--rounds", type=int, default=5, help="sessions of each size; 40 appends to each (%(default)s)")
    options = parser.parse_args()
    tok = toktier.load(material.file(options.tokenizer))
    if options.engine:
        figures = appends(tok, options.rounds, options.engine)
        show(f"Session on {options.tokenizer}, {options.engine}", figures, options.json)
        return
    figures = appends(tok, options.rounds) + memory(tok) + updates(tok, 50) + beside_everything(tok, 5) + lists(tok, 20)
    show(f"Session on {options.tokenizer}", figures, options.json)


if __name__ == "__main__":
    main()
