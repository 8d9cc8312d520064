"""Draws the plots and writes the tables of the pages, from the files in ``benchmarks/results`` and nothing else.

Where figures are missing, what shows them stays as it is, all else is renewed, and the exit status is 1.
"""

from __future__ import annotations

import argparse
import functools
import pathlib
import sys
from collections.abc import Callable, Iterator, Mapping
from typing import TypeVar

from benchmarks import comparison_page, drawing, marks, pictures, tables
from benchmarks.drawing import Plot
from benchmarks.marks import BadMarks
from benchmarks.results import ROOT, NoFigures

Made = TypeVar("Made")

PICTURES: Mapping[str, Callable[[], Plot]] = {**pictures.PICTURES, "comparison": comparison_page.picture}
"""Every plot, by the name of its files."""

BLOCKS: Mapping[str, Callable[[], str]] = {**tables.BLOCKS, **comparison_page.BLOCKS}
"""Every table, by its name in the marks of a page."""

PAGES: Mapping[str, tuple[str, ...]] = {
    "README.md": ("engines", "figures"),
    "docs/benchmarks.md": tuple(name for name in tables.BLOCKS if name != "view"),
    "docs/comparison.md": tuple(comparison_page.BLOCKS),
    "docs/transformers.md": ("wrap",),
    "docs/view.md": ("view",),
}
"""The pages, and the tables of each."""


def files(name: str) -> dict[str, pathlib.Path]:
    """Where a plot is drawn, by theme."""
    return {theme: ROOT / "docs" / "_static" / f"benchmark-{name}-{theme}.svg" for theme in drawing.THEMES}


def stale() -> Iterator[str]:
    """What is not as the figures are: plots by the digest of what they were drawn from, pages by their tables.

    Raises:
        NoFigures: Something was not measured.
        BadMarks: A page has not the places that it should have.
    """
    for name, picture in PICTURES.items():
        digest = drawing.digest(picture())
        for file in files(name).values():
            if not file.is_file() or drawing.drawn_from(file.read_text(encoding="utf-8")) != digest:
                yield file.name
    for page, names in PAGES.items():
        text = (ROOT / page).read_text(encoding="utf-8")
        if marks.renewed(text, {name: BLOCKS[name]() for name in names}, page) != text:
            yield page


def renewed() -> list[str]:
    """Draws and writes everything that there are figures for, and gives what is in the way of the rest."""
    problems: list[str] = []
    for name, picture in PICTURES.items():
        plot = _or_problem(picture, problems)
        if plot is not None:
            drawing.write(plot, files(name))
    parts = {name: _or_problem(block, problems) for name, block in BLOCKS.items()}
    for page, names in PAGES.items():
        file = ROOT / page
        text = file.read_text(encoding="utf-8")
        new = _or_problem(functools.partial(marks.renewed, text, {name: parts[name] for name in names}, page), problems)
        if new is not None and new != text:
            file.write_text(new, encoding="utf-8")
    return list(dict.fromkeys(problems))


def _or_problem(make: Callable[[], Made], problems: list[str]) -> Made | None:
    """What is made, or nothing: then one problem more."""
    try:
        return make()
    except (NoFigures, BadMarks) as error:
        problems.append(str(error))
        return None


def main() -> None:
    argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0]).parse_args()
    if problems := renewed():
        sys.exit("\n".join(problems))


if __name__ == "__main__":
    main()
