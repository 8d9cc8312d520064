"""How long ``import toktier`` takes beyond ``import numpy, tokenizers``, and how long until a first session.

Each import happens in a process of its own, in turns. As where a package is installed, the modules were compiled
before; and what is derived of a tokenizer is in the cache. On an idle machine the seconds of the processor are those of
the clock, on a busy one they say more: the limit is for them.
"""

from __future__ import annotations

import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Mapping

from benchmarks.common import Figure, arguments, show

LIMIT = 0.15
"""Seconds that the import may take beyond what it stands on."""

PROGRAM = """
import time
start = time.perf_counter(), time.process_time()
{}
print(time.perf_counter() - start[0], time.process_time() - start[1])
"""

CONTENDERS = {
    "numpy, tokenizers": "import numpy, tokenizers",
    "toktier": "import numpy, tokenizers, toktier",
    "a first session": "import numpy, tokenizers, toktier as t; t.Session(t.load('toktier-mini'), 'A').append('b')",
}


def seconds_of(program: str, environment: Mapping[str, str]) -> tuple[float, float]:
    """What a program measures of itself in a new interpreter: seconds of the clock, and of the processor."""
    command = [sys.executable, "-W", "error", "-c", PROGRAM.format(program)]
    clock, processor = subprocess.run(
        command, check=True, capture_output=True, text=True, env=environment
    ).stdout.split()
    return float(clock), float(processor)


def measure(rounds: int, cache: pathlib.Path) -> list[Figure]:
    """All contenders, in turns."""
    environment = os.environ | {"XDG_CACHE_HOME": str(cache), "PYTHONPYCACHEPREFIX": str(cache)}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    seconds: dict[str, list[tuple[float, float]]] = {name: [] for name in CONTENDERS}
    for repeat in range(rounds + 1):
        for name, program in CONTENDERS.items():
            measured = seconds_of(program, environment)
            if repeat:  # the first round fills the caches, of files too
                seconds[name].append(measured)
    figures = []
    for which, how, limit in ((1, "processor", LIMIT * 1e3), (0, "clock", None)):
        base, imported, session = (statistics.median(s[which] for s in taken) for taken in seconds.values())
        figures += [
            Figure("numpy, tokenizers", how, base * 1e3, "ms"),
            Figure("import toktier, beyond that", how, (imported - base) * 1e3, "ms", limit=limit),
            Figure("load and first session, beyond that", how, (session - imported) * 1e3, "ms"),
        ]
    return figures


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--rounds", type=int, default=25, help="processes of each kind (%(default)s)")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="toktier-benchmark-") as folder:
        figures = measure(options.rounds, pathlib.Path(folder))
    show(f"Imports, medians of {options.rounds}", figures, options.json)


if __name__ == "__main__":
    main()
