"""Which public families are supported, and how: the table of docs/support.md, and docs/support.json beside it.

For every definition that is on this machine: its pipeline, the size of its relation, some cuts, how far apart they lie
in real text, and the engines that serve it.
"""

from __future__ import annotations

import argparse
import functools
import json
import pathlib
import re
from collections.abc import Callable, Iterable, Sequence
from itertools import groupby

import attrs
from attrs import field, frozen
from rich.console import Console
from rich.progress import Progress

import toktier
from benchmarks import common
from benchmarks.common import number
from benchmarks.marks import renewed
from benchmarks.tables import table
from tests import material
from tests.public.families import FAMILIES, FILE, STAND_IN, Public, kinds, load
from toktier.campaign.verification import admitted
from toktier.engines.base import Inapplicable
from toktier.engines.reference import ReferenceEngine
from toktier.families.family import Family
from toktier.families.probing import DiskCache
from toktier.gpu.engine import GpuEngine
from toktier.gpu.tables import tables_of
from toktier.inspection import PICTURES

DOCUMENT = pathlib.Path(__file__).parents[1] / "docs" / "support.md"
FIGURES = DOCUMENT.with_suffix(".json")

PLACE = "support"
"""Where the table stands in the document."""

COLUMNS = ("family", "of", "pipeline", "atoms", "pairs", "cuts, such as", "apart", "engines", "on a GPU")
WORDS = [k for k, name in enumerate(COLUMNS) if name not in ("atoms", "pairs", "apart")]
"""The columns that are words."""

CANDIDATES = ("e ", ".\n", "中文", "12", "a1", "aB", "e.", "\na", ". ", " a", "(a")
"""Pairs of characters that make good examples, the best first."""

EXAMPLES = 3

STAGE = re.compile(r"(?:normalizer|pre-tokenizer|model) (\w+)|(pattern) ")
"""A stage in words, as definitions describe it: its name, or that of the only splitter of a ``tiktoken`` encoding."""


def _tuple(items: Iterable[str]) -> tuple[str, ...]:
    return tuple(items)


@frozen
class Row:
    """What is known about one definition of a family.

    Attributes:
        family: Its name.
        kind: ``file`` or ``stand-in``.
        origin: Where it comes from.
        stages: The pipeline, one line a stage.
        reason: Why it is not supported; None when it is.
        atoms: The number of character classes that the relation tells apart.
        pairs: The number of their pairs that are certified cuts.
        examples: Some pairs of characters between which every text may be cut.
        apart: Characters of the real texts for each certified cut in them; None when there are none.
        engines: The engines that serve it, fastest first, the reference last; None when they were not compared.
        gpu: ``yes`` where the kernels do what it needs, or why they do not; None when they were not asked.
    """

    family: str
    kind: str
    origin: str
    stages: tuple[str, ...] = field(converter=_tuple)
    reason: str | None
    atoms: int
    pairs: int
    examples: tuple[str, ...] = field(converter=_tuple)
    apart: float | None
    engines: tuple[str, ...] | None = field(converter=attrs.converters.optional(_tuple))
    gpu: str | None


def measured(family: Public, kind: str, tok: toktier.Tokenizer, *, texts: Iterable[str], compare: bool) -> Row:
    """A definition of a family, measured.

    Args:
        family: The family.
        kind: Which definition.
        tok: It, loaded.
        texts: Real texts.
        compare: Whether engines are compared with the reference, which takes up to half a minute each.
    """
    relation = tok.family
    cuts = characters = 0
    for text in texts if relation.supported else ():
        cuts += len(relation.cuts(text, continuation=True))
        characters += len(text)
    return Row(
        family=family.name,
        kind=kind,
        origin=str(family.origin) if kind == FILE else "trained here",
        stages=relation.definition.stages,
        reason=relation.reason,
        atoms=relation.atoms,
        pairs=relation.sync_pairs,
        examples=examples(relation),
        apart=round(characters / cuts, 2) if cuts else None,
        engines=tuple(admitted(tok)[0]) if compare else None,
        gpu=on_a_gpu(tok) if compare else None,
    )


def on_a_gpu(tok: toktier.Tokenizer) -> str:
    """``yes`` where the kernels do what a tokenizer needs, or why they do not."""
    reference = tok.engine("reference")
    assert isinstance(reference, ReferenceEngine)
    try:
        GpuEngine.check(tok.family, reference)
        tables_of(tok.family, reference, reference.probe(DiskCache()))
    except Inapplicable as reason:
        return f"no: {reason}"
    return "yes"


def examples(family: Family) -> tuple[str, ...]:
    """Some pairs of characters between which every text may be cut."""
    certified = [pair for pair in CANDIDATES if family.supported and family.is_pair(*pair)]
    return tuple(certified[:EXAMPLES])


def pipeline(stages: Iterable[str]) -> str:
    """The names of the stages that a text meets."""
    names = [found[1] or found[2] for stage in stages if (found := STAGE.match(stage))]
    counted = [(name, len(list(several))) for name, several in groupby(names)]
    return ", ".join(name if count == 1 else f"{count} {name}" for name, count in counted)


def document_row(row: Row) -> list[str]:
    """The cells of the document, in the order of its columns."""
    pairs = " ".join(f"`{left}\\|{right}`" for left, right in (map(pictured, pair) for pair in row.examples))
    return [
        row.family,
        row.origin if row.kind == FILE else STAND_IN,
        pipeline(row.stages),
        f"{row.atoms:,}" if row.reason is None else "",
        f"{row.pairs:,}" if row.reason is None else "",
        pairs if row.reason is None else f"none: {row.reason}",
        number(row.apart),
        "not compared" if row.engines is None else ", ".join(row.engines[:-1]) or "reference alone",
        row.gpu or "not asked",
    ]


def pictured(character: str) -> str:
    """A character that can be seen."""
    return PICTURES.get(character, character)


def document_rows(rows: Sequence[Row]) -> list[list[str]]:
    """One row a family: of its published file, where that was there, and else of what stands in for it."""
    best = {row.family: row for row in sorted(rows, key=lambda row: row.kind == FILE)}
    return [document_row(best[family]) for family in dict.fromkeys(row.family for row in rows)]


def inserted(document: str, rows: Sequence[Row]) -> str:
    """The document with its table renewed."""
    return renewed(document, {PLACE: table(COLUMNS, document_rows(rows), WORDS)}, f"docs/{DOCUMENT.name}")


def saved(file: pathlib.Path = FIGURES) -> list[Row]:
    """The rows that were written."""
    return [Row(**row) for row in json.loads(file.read_text(encoding="utf-8"))["rows"]]


def measured_all(*, compare: bool, told: Callable[[str], None]) -> list[Row]:
    """Every definition on this machine.

    Args:
        compare: See :func:`measured`. Of families whose published file is here, it is that whose engines are compared.
        told: Is told what comes next.
    """
    rows, texts = [], material.corpus()
    for family in FAMILIES:
        for kind in sorted(kinds(family)):
            told(f"{family.name}, {kind}")
            tok = load(family.name, kind, toktier.Registry.default())
            shown = kind == FILE or FILE not in kinds(family)
            rows.append(measured(family, kind, tok, texts=texts, compare=compare and shown))
    return rows


def show(rows: Sequence[Row]) -> None:
    """Prints the table."""
    cells = [[cell.replace("`", "").replace("\\|", "|") for cell in row] for row in document_rows(rows)]
    common.table("Public families", COLUMNS, cells, WORDS)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument(
        "--compare",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="compare engines with the reference, up to half a minute each the first time (%(default)s)",
    )
    parser.add_argument("--dry-run", action="store_true", help="only print the table")
    options = parser.parse_args()
    with Progress(console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("", total=sum(len(kinds(family)) for family in FAMILIES))
        told = functools.partial(progress.update, task, advance=1)
        rows = measured_all(compare=options.compare, told=lambda what: told(description=what))
    show(rows)
    if not options.dry_run:
        DOCUMENT.write_text(inserted(DOCUMENT.read_text(encoding="utf-8"), rows), encoding="utf-8")
        common.save("Public families", {"rows": [attrs.asdict(row) for row in rows]}, FIGURES)


if __name__ == "__main__":
    main()
