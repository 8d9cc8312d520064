"""Plain SVG: shapes and text in the colours of a palette, the same bytes for the same calls."""

from __future__ import annotations

from collections.abc import Sequence
from xml.sax.saxutils import escape, quoteattr

from attrs import frozen

SANS = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Noto Sans', sans-serif"
MONO = "ui-monospace, 'SF Mono', Menlo, Consolas, 'DejaVu Sans Mono', monospace"

MONO_WIDTH = 0.61
"""The width of a character in the widest of those fonts, in parts of the size."""

SANS_WIDTH = 0.56
"""The same for an average text; generous."""


@frozen
class Tone:
    """How a box looks: its inside, its edge and the text in it."""

    fill: str
    edge: str
    text: str


@frozen
class Palette:
    """The colours of all figures for one kind of page.

    Attributes:
        name: ``light`` or ``dark``; part of the file's name.
        page: What is behind a figure, which is transparent itself.
        text: Of headings and labels.
        muted: Of what explains.
        cut: Of a certified cut, line and label.
        kept: Ids that stay.
        encoded: Ids that come from the engine now.
        wrong: Ids that are not those of the whole text, or not any more.
    """

    name: str
    page: str
    text: str
    muted: str
    cut: str
    kept: Tone
    encoded: Tone
    wrong: Tone


LIGHT = Palette(
    name="light",
    page="#ffffff",
    text="#1f2328",
    muted="#57606a",
    cut="#9a4a00",
    kept=Tone("#eef0f2", "#8c959f", "#424a53"),
    encoded=Tone("#d9f3df", "#2da44e", "#0f5323"),
    wrong=Tone("#ffe1dc", "#cf3a32", "#8f1018"),
)
DARK = Palette(
    name="dark",
    page="#131416",
    text="#e6e8ea",
    muted="#a3acb5",
    cut="#f0a050",
    kept=Tone("#24282d", "#6b747d", "#c3cad1"),
    encoded=Tone("#123420", "#3fb960", "#8ce8aa"),
    wrong=Tone("#47161a", "#e5605a", "#ffb1a9"),
)
PALETTES = (LIGHT, DARK)


class Drawing:
    """A picture in the making; lengths are in pixels, the origin is above on the left.

    Args:
        size: Width and height.
        title: What is to be seen, for those who cannot see it.
        palette: The colours.
    """

    def __init__(self, size: tuple[int, int], title: str, palette: Palette) -> None:
        self.width, self.height = size
        self.palette = palette
        self._title = title
        self._elements: list[str] = []

    def text(
        self,
        x: float,
        y: float,
        content: str,
        *,
        color: str | None = None,
        size: float = 14,
        anchor: str = "start",
        mono: bool = False,
        bold: bool = False,
    ) -> None:
        """One line of text, with its baseline at ``y``.

        Raises:
            ValueError: There is no room for it.
        """
        width = size * len(content) * (MONO_WIDTH if mono else SANS_WIDTH)
        left = x - width * {"start": 0.0, "middle": 0.5, "end": 1.0}[anchor]
        if left < 0 or left + width > self.width or not size <= y <= self.height:
            raise ValueError(f"there is no room for {content!r} at {x:g}, {y:g}")
        classes = "mono" if mono else "sans"
        weight = ' font-weight="600"' if bold else ""
        color = color or self.palette.text
        self._add(
            f'<text class="{classes}" x="{x:g}" y="{y:g}" font-size="{size:g}" text-anchor="{anchor}" '
            f'fill="{color}"{weight}>{escape(content)}</text>'
        )

    def characters(self, x: float, y: float, content: str, step: float, *, color: str, size: float) -> None:
        """Characters each in the middle of a cell ``step`` wide, so that they stand below one another in any font."""
        for i, character in enumerate(content):
            self.text(x + (i + 0.5) * step, y, character, color=color, size=size, anchor="middle", mono=True)

    def box(
        self, x: float, y: float, width: float, height: float, tone: Tone, *, dashed: bool = False, radius: float = 4
    ) -> None:
        """A rectangle with round corners."""
        dash = ' stroke-dasharray="4 2.5"' if dashed else ""
        self._add(
            f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="{radius:g}" fill="{tone.fill}" '
            f'stroke="{tone.edge}" stroke-width="1.25"{dash}/>'
        )

    def circle(self, x: float, y: float, radius: float, tone: Tone, *, dashed: bool = False) -> None:
        """A circle around its middle."""
        dash = ' stroke-dasharray="4 2.5"' if dashed else ""
        self._add(
            f'<circle cx="{x:g}" cy="{y:g}" r="{radius:g}" fill="{tone.fill}" stroke="{tone.edge}" '
            f'stroke-width="1.5"{dash}/>'
        )

    def path(self, steps: str, color: str, *, width: float = 1.5, dashed: bool = False, arrow: bool = False) -> None:
        """A line along a path in the language of SVG, with the head of an arrow if need be."""
        dash = ' stroke-dasharray="4 3"' if dashed else ""
        self._add(f'<path d="{steps}" fill="none" stroke="{color}" stroke-width="{width:g}"{dash}/>')
        if arrow:
            self._add(_head([float(each) for each in steps.replace(",", " ").split() if each[0] not in "MLCQ"], color))

    def svg(self) -> str:
        """The picture as a file."""
        head = (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {self.width} {self.height}" width="{self.width}" '
            f'height="{self.height}" role="img" aria-label={quoteattr(self._title)}>'
        )
        style = f"<style>.sans {{ font-family: {SANS} }} .mono {{ font-family: {MONO} }}</style>"
        return "\n".join([head, f"<title>{escape(self._title)}</title>", style, *self._elements, "</svg>", ""])

    def _add(self, element: str) -> None:
        self._elements.append(element)


def _head(numbers: Sequence[float], color: str) -> str:
    """The head of an arrow at the end of a path whose last four numbers are its last two points."""
    from_x, from_y, x, y = numbers[-4:]
    length = ((x - from_x) ** 2 + (y - from_y) ** 2) ** 0.5
    along, across = ((x - from_x) / length, (y - from_y) / length), ((from_y - y) / length, (x - from_x) / length)
    corners = [(x, y)] + [
        (x - 9 * along[0] + side * across[0], y - 9 * along[1] + side * across[1]) for side in (-4.0, 4.0)
    ]
    return f'<polygon points="{" ".join(f"{a:.1f},{b:.1f}" for a, b in corners)}" fill="{color}"/>'
