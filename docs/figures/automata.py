"""The figure of an automaton: what a pattern reads after what, for a pair it cannot cross and one it can."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from docs.figures.drawing import Drawing, Palette
from toktier.families.automaton import Automaton, automaton_of
from toktier.families.pattern import parse
from toktier.families.probing import Probe
from toktier.families.splitting import members
from toktier.inspection import visible

PATTERN = r" ?\p{L}+|\s+(?!\S)"
"""The example of docs/theory.md."""

PAIRS = ("e ", " e")
"""One that the pattern cannot cross, and one that it can."""

RADIUS, APART = 25, 112


def automaton(palette: Palette) -> str:
    """The automaton of the example pattern, once for each pair."""
    shown = automaton_of(parse(PATTERN))
    drawing = Drawing((470, 358), f"The automaton of {PATTERN}, and two pairs of characters", palette)
    drawing.text(12, 24, "Pattern", bold=True)
    drawing.text(76, 24, PATTERN.replace(" ", "␣"), mono=True)
    for number, pair in enumerate(PAIRS):
        panel(drawing, 50 + number * 164, shown, pair)
    return drawing.svg()


def panel(drawing: Drawing, top: float, shown: Automaton, pair: str) -> None:
    """Draws an automaton, with the nodes that read the characters of a pair and the arrows between them marked."""
    palette, y = drawing.palette, top + 88
    left, right = (set(reading(shown, character)) for character in pair)
    crossing = [(i, j) for i, j in sorted(shown.follow) if i in left and j in right]
    one, other = map(visible, pair)
    found = f"{len(crossing)} arrows lead" if crossing else "no arrow leads"
    word = "can be crossed" if crossing else "is uncrossable"
    drawing.text(12, top + 14, f"{one}{other} {word}:", bold=True)
    drawing.text(164, top + 14, f"{found} from “reads {one}” to “reads {other}”", color=palette.muted, size=12)
    for i, j in sorted(shown.follow, key=lambda edge: edge in crossing):
        arrow(drawing, place(i), place(j), y, palette.wrong.edge if (i, j) in crossing else palette.muted)
    for i, position in enumerate(shown.positions):
        tone = palette.encoded if i in left else palette.wrong if i in right else palette.kept
        label = visible(position.literal or position.source)
        drawing.circle(place(i), y, RADIUS, tone, dashed=i in right)
        drawing.text(place(i), y + 5, label, color=tone.text, anchor="middle", mono=True)
        reads = one if i in left else other if i in right else "neither"
        drawing.text(place(i), y + RADIUS + 18, f"reads {reads}", color=palette.muted, size=12, anchor="middle")


def place(position: int) -> float:
    """The middle of a node."""
    return 66 + APART * position


def arrow(drawing: Drawing, start: float, stop: float, y: float, color: str) -> None:
    """Draws an arrow from a node to itself, or to another one to the right of it."""
    if start == stop:
        high = y - RADIUS
        drawing.path(
            f"M {start - 9},{high + 1} C {start - 30},{high - 42} {start + 30},{high - 42} {start + 10},{high}",
            color,
            width=2,
            arrow=True,
        )
    else:
        drawing.path(f"M {start + RADIUS},{y} L {stop - RADIUS - 2},{y}", color, width=2, arrow=True)


def reading(shown: Automaton, character: str) -> list[int]:
    """The positions of an automaton whose class contains a character."""
    probe = Probe()
    classes = [members(position, probe) for position in shown.positions]
    return [i for i, runs in enumerate(classes) if np.searchsorted(runs, ord(character), side="right") % 2]


def can_cross(shown: Automaton, left: str, right: str) -> bool:
    """Whether some path reads one character right after another."""
    return any((i, j) in shown.follow for i in reading(shown, left) for j in reading(shown, right))


def figures() -> Iterator[tuple[str, Callable[[Palette], str]]]:
    """The names of these figures, and what draws them."""
    yield "automaton", automaton
