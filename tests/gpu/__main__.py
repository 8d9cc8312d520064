"""``python -m tests.gpu``: the kernels, compiled as C++, beside the reference; for longer than a test may take."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator

from rich import box
from rich.console import Console
from rich.table import Table

import toktier
from tests import material, zoo
from tests.gpu import comparing, host
from tests.gpu.comparing import Comparison, adversarial, engine_of, small_kernels, thorough
from tests.public.families import FAMILIES, kinds, load
from toktier.engines.base import Inapplicable

SMALL_SHARE = 10
"""Of so many adversarial texts, one more goes through the kernels with small limits."""


def definitions(only: list[str]) -> Iterator[tuple[str, bool, toktier.Tokenizer]]:
    """Names and tokenizers, and whether the whole corpus is worth its time: public families, then small definitions."""
    for family in FAMILIES:
        for kind in kinds(family):
            name = f"{family.name}, {kind}"
            if not only or any(part in name for part in only):
                yield name, True, load(family.name, kind)
    for small in zoo.SUPPORTED:
        name = f"zoo: {small}"
        if not only or any(part in name for part in only):
            yield name, False, toktier.load(zoo.build(small))


def compared(tok: toktier.Tokenizer, count: int, seed: int, *, corpus: bool) -> Comparison:
    """Everything that one tokenizer is compared on."""
    comparison = Comparison()
    engine = engine_of(tok, comparing.device(seed))
    comparison.run(engine, tok, adversarial(tok, count, seed))
    comparison.run(engine, tok, thorough(tok, seed))
    if corpus:
        comparison.run(engine, tok, material.corpus())
    with small_kernels():
        small = engine_of(tok, comparing.small_device(seed + 1))
        comparison.run(small, tok, adversarial(tok, count // SMALL_SHARE, seed + 1))
        comparison.run(small, tok, thorough(tok, seed + 1))
    return comparison


def main() -> int:
    """Compares, and prints a table; 1 if anything differs."""
    parser = argparse.ArgumentParser(prog="python -m tests.gpu", description=(__doc__ or "").strip())
    parser.add_argument("--texts", type=int, default=20_000, help="adversarial texts for each (%(default)s)")
    parser.add_argument(
        "--seed", type=int, default=0, help="another one gives other texts, and other orders of threads"
    )
    parser.add_argument("--only", nargs="*", default=[], metavar="NAME", help="definitions whose name has one of these")
    options = parser.parse_args()
    if not host.available():
        sys.exit("a C++ compiler is needed: g++, or what $CXX names")
    table = Table("definition", box=box.SIMPLE, pad_edge=False, title="Kernels on the processor, and the reference")
    for column in ("texts", "characters", "seconds", "differences"):
        table.add_column(column, justify="right")
    wrong, total = [], Comparison()
    for name, corpus, tok in definitions(options.only):
        began = time.perf_counter()
        try:
            found = compared(tok, options.texts, options.seed, corpus=corpus)
        except Inapplicable as reason:
            table.add_row(f"{name}: {reason}", style="dim")
            continue
        wrong += [f"{name}: {text[:200]!r}" for text in found.wrong]
        total.texts += found.texts
        total.characters += found.characters
        seconds = time.perf_counter() - began
        table.add_row(name, f"{found.texts:,}", f"{found.characters:,}", f"{seconds:.0f}", f"{len(found.wrong):,}")
    table.add_section()
    table.add_row("all", f"{total.texts:,}", f"{total.characters:,}", "", f"{len(wrong):,}")
    console = Console()
    console.print(table)
    for text in wrong:
        console.print(text, style="red", markup=False, soft_wrap=True)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
