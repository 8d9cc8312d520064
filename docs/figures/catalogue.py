"""All figures: their files, and what is in them."""

from __future__ import annotations

import pathlib
from collections.abc import Iterator

from docs.figures import automata, relations, texts
from docs.figures.drawing import PALETTES

FOLDER = pathlib.Path(__file__).parents[1] / "_static"
"""Where the figures lie."""

FIGURES = dict([*texts.figures(), *automata.figures(), *relations.figures()])


def drawn() -> Iterator[tuple[str, str]]:
    """The file name of each figure and its content, drawn now."""
    for name, draw in FIGURES.items():
        for palette in PALETTES:
            yield f"figure-{name}-{palette.name}.svg", draw(palette)
