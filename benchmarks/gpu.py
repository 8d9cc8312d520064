"""The GPU engine on a machine that has one: exactness first, then the time of one request, and of a batch.

Without a device it says so, and measures nothing. With ``--json``, the name of the device and what was compared are
written beside the figures.
"""

from __future__ import annotations

import functools
import statistics
import sys
import time
from collections.abc import Callable

import numpy as np

import toktier
from benchmarks.common import Figure, arguments, beside, in_turns, show, timed, transcript
from tests import material
from tests.gpu.comparing import Comparison, adversarial, thorough
from toktier.engines.base import Inapplicable
from toktier.engines.reference import ReferenceEngine
from toktier.families.probing import DiskCache
from toktier.gpu.engine import GpuEngine, default_device
from toktier.gpu.offload import Offload

REQUEST = 1_000_000
"""Characters of one request."""

BATCH = 64
"""Requests of a million characters in a batch."""

REQUEST_LIMIT = 0.8
"""Milliseconds that a request may take, on a card of the H100 or H200 class."""

BATCH_LIMIT = 5.0
"""Gigabytes of text a second that a batch must reach there."""

TEXTS = 20_000
"""Adversarial texts that are compared with the reference."""

REPEATS = 50


def main() -> int:
    parser = arguments(__doc__)
    parser.add_argument("--tokenizer", default="toktier-mini", choices=material.available())
    options = parser.parse_args()
    try:
        device = default_device()
    except Inapplicable as reason:
        sys.exit(f"nothing was measured: {reason}")
    tok = material.load(options.tokenizer)
    reference = tok.engine("reference")
    assert isinstance(reference, ReferenceEngine)
    gpu = GpuEngine(tok.family, reference, reference.probe(DiskCache()), device=device)
    comparison = Comparison()
    for texts in (adversarial(tok, TEXTS, 0), thorough(tok, 0), material.corpus()):
        comparison.run(gpu, tok, texts)
    print(f"{comparison.texts:,} texts, {comparison.characters:,} characters: {len(comparison.wrong)} differences")
    compared = {"texts": comparison.texts, "characters": comparison.characters, "wrong": comparison.wrong}
    figures = [*one_request(tok, gpu), *one_batch(gpu), threshold(gpu)]
    show(f"{options.tokenizer}, {device.name}", figures, options.json, device=device.name, compared=compared)
    return 1 if comparison.wrong else 0


def one_request(tok: toktier.Tokenizer, gpu: GpuEngine) -> list[Figure]:
    """The time from a text on the host to its ids, wherever these are to be; beside the engines of the processor."""
    # Texts that differ, so that nothing is in a cache because it was there a moment ago.
    whole = transcript(REQUEST + 1000 * REPEATS)
    texts = iter([whole[1000 * i : 1000 * i + REQUEST] for i in range(REPEATS)] * 8)
    calls: dict[str, Callable[[], object]] = {
        "NumPy array": lambda: gpu.encode(next(texts)),
        "CuPy array": lambda: gpu.encode_on_device([next(texts)]),
        "list": lambda: gpu.encode(next(texts)).tolist(),
    }
    for call in calls.values():
        call()
    seconds = in_turns(calls, REPEATS)
    limits = {"NumPy array": REQUEST_LIMIT}
    figures = [
        timed(f"a million characters to a {what}", "one request", seconds[what], limit=limits.get(what))
        for what in calls
    ]
    for name in ("gigatoken", "memo"):
        try:
            engine = tok.engine(name)
        except toktier.UnknownEngine:
            continue
        seconds = in_turns({"gpu": calls["NumPy array"], name: functools.partial(engine.encode, whole[:REQUEST])}, 6)
        # The first of them is with a text that it has never seen.
        figures.append(beside(timed(f"the same with {name}", "one request", seconds[name][1:]), "gpu", seconds["gpu"]))
    return figures


def one_batch(gpu: GpuEngine) -> list[Figure]:
    """How many bytes of text a second a batch is encoded at."""
    texts = [transcript(BATCH * 1000 + REQUEST)[1000 * i : 1000 * i + REQUEST] for i in range(BATCH)]
    size = sum(len(text.encode()) for text in texts)
    rates = []
    for _ in range(10):
        began = time.perf_counter()
        encoded = gpu.encode_batch(texts)
        rates.append(size / (time.perf_counter() - began) / 1e9)
        assert sum(map(len, encoded)) > 0
        del encoded
    what = f"gigabytes a second, of at least {BATCH_LIMIT:g}"
    return [Figure(what, f"a batch of {size / 1e6:.0f} MB", statistics.median(rates), p90=float(np.max(rates)))]


def threshold(gpu: GpuEngine) -> Figure:
    """From how many characters on a text goes to the device."""
    return Figure("sent to the device from", "one text", Offload(gpu, gpu.host).threshold, "characters")


if __name__ == "__main__":
    sys.exit(main())
