"""What watching costs: ``python -m benchmarks.verify --tokenizer qwen3``.

Appends of 1,400 characters to a context of a million, with a verifier at 5 % and without one, in turns and on the same
text; and the counting by itself, which is on always. Times are medians.
"""

from __future__ import annotations

import argparse
import gc
import statistics
import time

import toktier
from benchmarks.common import transcript
from tests import material
from toktier.meter import Meter
from toktier.verify import ShadowVerifier

FRESH = 1_400
ROUNDS, APPENDS = 20, 100
COUNTED = 200_000


def appended(session: toktier.Session, text: str) -> list[float]:
    """Seconds of each append of a round."""
    times = []
    for at in range(0, len(text), FRESH):
        start = time.perf_counter()
        session.append(text[at : at + FRESH])
        times.append(time.perf_counter() - start)
    return times


def counting() -> float:
    """Seconds of one count, less those of the loop around it."""
    meter = Meter()
    started = time.perf_counter()
    for _ in range(COUNTED):
        meter.count("append", "gigatoken", 1_000_000, FRESH, 20_000)
    middle = time.perf_counter()
    for _ in range(COUNTED):
        pass
    return (2 * middle - started - time.perf_counter()) / COUNTED


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tokenizer", default="toktier-mini", choices=material.available())
    parser.add_argument("--engine", default="gigatoken")
    options = parser.parse_args()
    text = transcript(1_000_000 + ROUNDS * APPENDS * FRESH)
    tok = toktier.load(material.file(options.tokenizer))
    engine = tok.engine(options.engine)
    engine.encode(text)
    begin = tok.session(text[:1_000_000], engine=engine)
    times: dict[bool, list[float]] = {False: [], True: []}
    checked = dropped = 0
    gc.disable()
    for number in range(ROUNDS):
        start = 1_000_000 + number * APPENDS * FRESH
        for watched in (False, True) if number % 2 else (True, False):
            session = begin.fork()
            session.append("\n")
            part = text[start : start + APPENDS * FRESH]
            if watched:
                with ShadowVerifier(tok, sample=0.05, seed=number, quarantine=None) as verifier:
                    times[True] += appended(session, part)
                    verifier.drain()
                    assert not verifier.checks().mismatched
                    checked, dropped = checked + verifier.checks().checked, dropped + verifier.checks().dropped
            else:
                times[False] += appended(session, part)
        gc.collect()
    for watched, what in ((False, "without a verifier"), (True, "with one, at 5 %")):
        ordered = sorted(times[watched])
        p95, p99 = (ordered[len(ordered) * share // 100] for share in (95, 99))
        print(
            f"{what:<20} median {statistics.median(ordered) * 1e6:6.1f} us, P95 {p95 * 1e6:7.1f}, P99 {p99 * 1e6:7.1f}"
        )
    ratio = statistics.median(times[True]) / statistics.median(times[False])
    print(f"ratio of medians {ratio:.3f}; {checked} answers compared, {dropped} dropped, of {len(times[True])} appends")
    print(f"counting a call: {min(counting() for _ in range(5)) * 1e9:.0f} ns")


if __name__ == "__main__":
    main()
