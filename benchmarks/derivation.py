"""How long it takes to load a tokenizer, beside the reference library's own load of the same file.

Each load happens in a process of its own, which has imported everything before: once by the reference alone, once with
an empty cache directory (the reference is probed for what its character classes contain), once with a warm one. Seconds
are those of the processor: on an idle machine they are the clock's, and on a busy one they say more.
"""

from __future__ import annotations

import multiprocessing
import pathlib
import statistics
import tempfile
import time
from collections.abc import Callable

import tokenizers

import toktier
from benchmarks.common import Figure, arguments, show
from tests import material

COLD, WARM = 3.0, 0.2
"""Seconds beyond the reference's own load that a derivation may take."""


def by_reference(file: pathlib.Path, cache: pathlib.Path) -> float:
    """Seconds of the reference's own load."""
    start = time.process_time()
    tokenizers.Tokenizer.from_file(str(file))
    return time.process_time() - start


def by_toktier(file: pathlib.Path, cache: pathlib.Path) -> float:
    """Seconds of a load with the given cache directory."""
    start = time.process_time()
    toktier.Registry(cache).load(file)
    return time.process_time() - start


def in_fresh_process(load: Callable[[pathlib.Path, pathlib.Path], float], *paths: pathlib.Path) -> float:
    """The seconds that a load measures of itself in a new interpreter."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(load, paths)


def measure(name: str, folder: pathlib.Path, repeats: int) -> list[Figure]:
    """The loads of one tokenizer, in turns."""
    file = folder / f"{name}.json"
    file.write_bytes(material.definition(name))
    seconds: dict[str, list[float]] = {"reference": [], "cold": [], "warm": []}
    for repeat in range(repeats):
        cache = folder / f"{name}-{repeat}"
        seconds["reference"].append(in_fresh_process(by_reference, file, cache))
        seconds["cold"].append(in_fresh_process(by_toktier, file, cache))
        seconds["warm"].append(in_fresh_process(by_toktier, file, cache))
    reference = statistics.median(seconds["reference"])
    return [
        Figure(
            f"{name}, {how} cache, beyond the reference",
            f"median of {repeats}",
            statistics.median(seconds[how]) - reference,
            "s",
            beside="reference",
            beside_value=reference,
            limit=limit,
        )
        for how, limit in (("cold", COLD), ("warm", WARM))
    ]


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--repeats", type=int, default=5, help="processes of each kind (%(default)s)")
    parser.add_argument("--only", nargs="+", default=material.available(), metavar="NAME", help="tokenizers")
    options = parser.parse_args()
    figures: list[Figure] = []
    with tempfile.TemporaryDirectory(prefix="toktier-benchmark-") as folder:
        for name in options.only:
            figures += measure(name, pathlib.Path(folder), options.repeats)
    show("Loading a tokenizer", figures, options.json)


if __name__ == "__main__":
    main()
