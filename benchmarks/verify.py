"""What watching costs: appends to a context of a million characters, with a shadow verifier at 5 % and without one.

In turns and on the same text; and the counting by itself, which is on always.
"""

from __future__ import annotations

import gc
import time

import numpy as np

import toktier
from benchmarks.common import Figure, arguments, show, transcript
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
    parser = arguments(__doc__)
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
    what = f"append {FRESH:,} characters, a verifier looks at 5 %"
    figures = []
    for share, name in ((50, "median"), (95, "P95"), (99, "P99")):
        alone, beside = (float(np.percentile(times[how], share)) * 1e6 for how in (False, True))
        figures.append(Figure(what, f"1 M, {name}", beside, "us", beside="without one", beside_value=alone))
    figures += [
        Figure("answers compared", f"of {len(times[True]):,} appends", checked),
        Figure("answers that were due and not compared", f"of {len(times[True]):,} appends", dropped),
        Figure("counting a call", "", min(counting() for _ in range(5)) * 1e9, "ns"),
    ]
    show(f"{options.tokenizer}, {options.engine}", figures, options.json)


if __name__ == "__main__":
    main()
