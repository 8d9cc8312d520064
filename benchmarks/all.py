"""Measures everything again, one benchmark after the other, and puts the figures into ``benchmarks/results``.

Each runs in a process of its own while nothing else does. Where one fails, its figures stay those of before, the others
run all the same, and the exit status is 1. Then ``python -m benchmarks.plots`` renews the plots and the tables.
"""

from __future__ import annotations

import argparse
import pathlib
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable

from attrs import frozen

from benchmarks.common import table
from benchmarks.results import FOLDER, ROOT, file_of
from tests import material


@frozen
class Measurement:
    """One file of figures, and the command that makes it.

    Attributes:
        name: Of the file.
        module: What runs.
        arguments: Its arguments, without those below.
        tokenizer: Whether it is told which tokenizer to measure.
        page: The page of the documentation that shows it.
        when_asked: Why it runs only when it is named; nothing where it runs always.
    """

    name: str
    module: str
    arguments: tuple[str, ...] = ()
    tokenizer: bool = True
    page: str = "benchmarks.md"
    when_asked: str = ""

    def command(self, tokenizer: str, file: pathlib.Path) -> list[str]:
        """The command line."""
        told = ["--tokenizer", tokenizer] if self.tokenizer else []
        return [sys.executable, "-m", self.module, *told, *self.arguments, "--json", str(file)]


MEASUREMENTS = (
    Measurement("engines", "benchmarks.engines"),
    Measurement("session_gigatoken", "benchmarks.session", ("--engine", "gigatoken")),
    Measurement("session", "benchmarks.session"),
    Measurement("store", "benchmarks.store"),
    Measurement("front_end", "benchmarks.front_end", ("--seconds", "30", "--rate", "20", "60")),
    Measurement("wrap", "benchmarks.wrap", ("--rounds", "5")),
    Measurement("verify", "benchmarks.verify"),
    Measurement("derivation", "benchmarks.derivation", tokenizer=False),
    Measurement("density", "benchmarks.density", tokenizer=False),
    Measurement("memory", "benchmarks.memory"),
    Measurement("serve", "benchmarks.serve", ("--quick",)),
    Measurement("import_time", "benchmarks.import_time", tokenizer=False),
    Measurement("view", "benchmarks.view", page="view.md"),
    Measurement("capacity", "benchmarks.capacity", page="operating.md"),
    Measurement("comparison", "benchmarks.comparison", tokenizer=False, page="comparison.md"),
    Measurement("gpu", "benchmarks.gpu", page="gpu.md", when_asked="it needs a GPU"),
)
"""Everything whose figures are kept, those of README.md first. ``benchmarks.support`` writes its own page."""


@frozen
class Outcome:
    """What became of a measurement.

    Attributes:
        name: Which one.
        status: The exit status of its process.
        seconds: How long it took.
        missing: Whether it wrote no figures.
    """

    name: str
    status: int
    seconds: float
    missing: bool

    @property
    def problem(self) -> str:
        """What went wrong, or nothing."""
        return f"failed, exit status {self.status}" if self.status else "wrote no figures" if self.missing else ""


def measure(measurement: Measurement, tokenizer: str) -> Outcome:
    """Runs a benchmark; its figures replace those of before only if it succeeds."""
    start = time.perf_counter()
    with tempfile.TemporaryDirectory(prefix="toktier-benchmark-") as folder:
        written = pathlib.Path(folder, "figures.json")
        done = subprocess.run(measurement.command(tokenizer, written), check=False, cwd=ROOT)
        missing = not written.is_file() or not written.stat().st_size
        if not done.returncode and not missing:
            FOLDER.mkdir(exist_ok=True)
            file_of(measurement.name).write_bytes(written.read_bytes())
    return Outcome(measurement.name, done.returncode, time.perf_counter() - start, missing)


def measured(measurements: Iterable[Measurement], tokenizer: str) -> list[Outcome]:
    """All of them, one after the other."""
    outcomes = []
    for measurement in measurements:
        print(f"\n{measurement.name}: {measurement.module}", flush=True)
        outcomes.append(measure(measurement, tokenizer))
    return outcomes


def main() -> int:
    names = [measurement.name for measurement in MEASUREMENTS]
    on_request = "; ".join(f"{it.name} only when it is named: {it.when_asked}" for it in MEASUREMENTS if it.when_asked)
    production = "qwen3" in material.available()
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0], epilog=on_request)
    parser.add_argument("--only", nargs="+", choices=names, metavar="NAME", help=f"of {', '.join(names)}")
    parser.add_argument(
        "--tokenizer",
        default="qwen3" if production else "toktier-mini",
        choices=material.available(),
        help="what is measured, where it is one (%(default)s)",
    )
    options = parser.parse_args()
    wanted = [it for it in MEASUREMENTS if (it.name in options.only if options.only else not it.when_asked)]
    outcomes = measured(wanted, options.tokenizer)
    rows = [(it.name, f"{it.seconds:,.0f}", it.problem or file_of(it.name).name) for it in outcomes]
    table("Figures", ("", "seconds", ""), rows, words=(0, 2))
    return 1 if any(outcome.problem for outcome in outcomes) else 0


if __name__ == "__main__":
    sys.exit(main())
