"""What a process holds while ever-new text goes through an engine: it must level off.

The text is random words, which no cache has met before: the worst that can come. It goes into sessions of up to a
million characters, one after the other, in pieces of a turn's size and in large ones.
"""

from __future__ import annotations

import random
import statistics
import string
import threading
import time

import psutil

import toktier
from benchmarks.common import Figure, arguments, show
from tests import material

PIECES = (1_400, 1_400, 1_400, 10_000, 100_000)
LONGEST = 1_000_000
"""Characters of a session; then comes another one."""

STEPS = 64
"""How often the memory is looked at."""

LETTERS = bytes((string.ascii_lowercase + " ").encode()[byte * 27 // 256] for byte in range(256))


def new_text(source: random.Random, characters: int) -> str:
    return source.randbytes(characters).translate(LETTERS).decode()


def resident(tok: toktier.Tokenizer, engine: str, characters: int) -> list[float]:
    """Megabytes, at equal distances."""
    source, process = random.Random(0), psutil.Process()
    session, done = tok.session(engine=engine), 0
    seen: list[float] = []
    while done < characters:
        for size in PIECES:
            session.append(new_text(source, size))
            done += size
            if done * STEPS >= characters * (len(seen) + 1):
                seen.append(process.memory_info().rss / 1e6)
        if len(session.text) > LONGEST:
            session = tok.session(engine=engine)
    return seen


class Heart:
    """A thread that wakes up again and again, and notes for how long it could not."""

    def __init__(self) -> None:
        self.longest = 0.0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._beat)

    def __enter__(self) -> Heart:
        self._thread.start()
        return self

    def __exit__(self, *raised: object) -> None:
        self._stop.set()
        self._thread.join()

    def _beat(self) -> None:
        before = time.perf_counter()
        while not self._stop.wait(0.01):
            now = time.perf_counter()
            self.longest, before = max(self.longest, now - before), now


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--tokenizer", default="toktier-mini", choices=material.available())
    parser.add_argument("--engine", default="gigatoken")
    parser.add_argument("--characters", type=float, default=1e9, help="how much text (%(default)g)")
    options = parser.parse_args()
    tok = toktier.load(material.file(options.tokenizer))
    tok.engine(options.engine)
    began = time.perf_counter()
    tok.engine(options.engine).encode(new_text(random.Random(1), LONGEST))  # what is made for the first long text
    with Heart() as heart:
        seen = resident(tok, options.engine, int(options.characters))
    what = f"{options.characters / 1e6:,.0f} MB of new text through {options.engine}"
    half = len(seen) // 2
    figures = [
        *(Figure("resident", f"after {k * 100 // 8} %", seen[k * len(seen) // 8 - 1], "MB") for k in range(1, 9)),
        Figure("most in the second half, beside the first", "", max(seen[half:]) / max(seen[:half]), limit=1.1),
        Figure("median of the last quarter, beside the second", "", _quarter(seen, 3) / _quarter(seen, 1), limit=1.1),
        Figure("longest time for which another thread stood still", "", 1e3 * heart.longest, "ms"),
        Figure("time", "", time.perf_counter() - began, "s"),
    ]
    passed = {"characters": int(options.characters), "resident": seen}
    show(f"{what}, {options.tokenizer}", figures, options.json, **passed)


def _quarter(seen: list[float], which: int) -> float:
    quarter = len(seen) // 4
    return statistics.median(seen[which * quarter : (which + 1) * quarter])


if __name__ == "__main__":
    main()
