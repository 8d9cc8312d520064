"""The files of figures in ``benchmarks/results``, and how one figure is found in them."""

from __future__ import annotations

import json
import pathlib
from collections.abc import Iterator
from typing import Any

from attrs import frozen

from benchmarks.common import Figure

ROOT = pathlib.Path(__file__).parents[1]
FOLDER = ROOT / "benchmarks" / "results"


class NoFigures(Exception):
    """Figures that a plot or a table needs are not there."""


def file_of(name: str) -> pathlib.Path:
    """The file of a measurement."""
    return FOLDER / f"{name}.json"


@frozen
class Results:
    """What one command has measured.

    Attributes:
        name: Of the measurement.
        content: Its file.
    """

    name: str
    content: dict[str, Any]

    def __getitem__(self, key: str) -> Any:
        """A part of the file.

        Raises:
            NoFigures: It has no such part.
        """
        try:
            return self.content[key]
        except KeyError:
            raise self.without(key) from None

    def figures(self) -> Iterator[Figure]:
        """Its figures."""
        for row in self["figures"]:
            yield Figure(**{key: value for key, value in row.items() if key != "ratio"})

    def figure(self, what: str, at: str | None = None) -> Figure:
        """A figure by what it is about, and at which size if there are several.

        Raises:
            NoFigures: There is none.
        """
        found = next((it for it in self.figures() if it.what == what and at in (None, it.at)), None)
        if found is None:
            raise self.without(f"{what}, {at}" if at else what)
        return found

    def without(self, what: str) -> NoFigures:
        """The error that something is missing."""
        return NoFigures(f"{file_of(self.name).name} has no {what!r}: python -m benchmarks.all --only {self.name}")


def load(name: str) -> Results:
    """The figures of a measurement.

    Raises:
        NoFigures: It was not measured.
    """
    file = file_of(name)
    if not file.is_file():
        raise NoFigures(f"{file.name} is not there: python -m benchmarks.all --only {name}")
    return Results(name, json.loads(file.read_text(encoding="utf-8")))
