r"""A recording as one page of HTML that needs nothing else: no server, no network, and nothing but its own script runs.

Texts are data in it and never markup: all of a text that could end a script, or turn the page around, is written as
``\uXXXX``. Positions are counted in UTF-16 units, as strings of JavaScript are.
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
import re
from importlib import resources
from typing import Any

import numpy as np
import numpy.typing as npt

from toktier.families.family import code_points
from toktier.view.turns import Recording, Stretch, Turn

SCRIPTS = ("data.js", "rows.js", "drawing.js", "telling.js", "page.js")
"""What the page does, in the order in which one needs the other."""


def page(recording: Recording, title: str) -> str:
    r"""The page, to be written to a file and opened in a browser.

    Args:
        recording: What it shows: the text after each operation, with its tokens, and what the operation did.
        title: What the page is called.

    Example:
        >>> import toktier
        >>> recording = toktier.view.Recording(toktier.load("toktier-mini"))
        >>> recording.append("</script><script>alert()</script>")
        >>> "alert" in page(recording, "an example"), page(recording, "an example").count("<script")
        (True, 2)
    """
    style, script = _part("page.css"), "\n".join(map(_part, SCRIPTS))
    policy = f"default-src 'none'; script-src {_source(script)}; style-src {_source(style)}; "
    policy += "base-uri 'none'; form-action 'none'; require-trusted-types-for 'script'"
    parts = {
        "policy": html.escape(policy, quote=False),
        "title": html.escape("".join(c if c.isprintable() else "\ufffd" for c in title)),
        "style": style,
        "data": inert(_data(recording)),
        "script": script,
    }
    return re.sub(r"\{\{(\w+)\}\}", lambda match: parts[match[1]], _part("page.html"))


def inert(value: Any) -> str:
    r"""JSON that is nothing but data wherever it stands in HTML, and shows nothing but itself.

    Example:
        >>> inert("</script>\u202e")
        '"\\u003c/script\\u003e\\u202e"'
    """
    written = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    # Controls, marks of direction, separators of lines, what is no character: nothing of that can be printed.
    odd = [character for character in set(written) if not character.isprintable()]
    return written.translate(MARKUP | {ord(character): json.dumps(character)[1:-1] for character in odd})


MARKUP = {ord(character): f"\\u{ord(character):04x}" for character in "<>&"}


def _part(name: str) -> str:
    return resources.files("toktier.view").joinpath(name).read_text(encoding="utf-8")


def _source(inline: str) -> str:
    """What the policy calls a script or a style that stands in the page."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(inline.encode()).digest()).decode()}'"


def _data(recording: Recording) -> dict[str, Any]:
    used = np.unique(np.concatenate([np.zeros(0, np.uint32), *_all_ids(recording.turns)]))
    meanings = map(recording.finder.meaning, used.tolist())
    text, before, turns = "", Units(""), []
    for turn in recording.turns:
        stretch = turn.stretch
        text = text[: stretch.start] + stretch.text + text[stretch.stop :]
        after = Units(text)
        turns.append(_turn(turn, before, after, used))
        before = after
    return {
        "tokenizer": _tokenizer(recording),
        "vocabulary": [
            [id, meaning.piece, meaning.data.hex(), meaning.kind]
            for id, meaning in zip(used.tolist(), meanings, strict=True)
        ],
        "turns": turns,
    }


def _all_ids(turns: list[Turn]) -> list[npt.NDArray[np.uint32]]:
    return [ids for turn in turns for ids in (turn.stretch.ids, turn.replaced)]


def _tokenizer(recording: Recording) -> dict[str, str | bool | None]:
    family = recording.tok.family
    return {
        "digest": family.digest,
        "model": family.definition.model,
        "reason": family.reason,
        "hasBytesOfTheText": recording.finder.has_bytes_of_the_text,
    }


def _turn(turn: Turn, before: Units, after: Units, used: npt.NDArray[np.uint32]) -> dict[str, Any]:
    return {
        "operation": turn.operation,
        "explanation": turn.explanation,
        "characters": turn.characters,
        "added": turn.added,
        "encodedCharacters": sum(stop - start for start, stop in turn.encoded),
        "encoded": [[after.before(start), after.before(stop)] for start, stop in turn.encoded],
        "patch": [turn.patch.start, len(turn.patch.ids)],
        "changes": [[place.begin, place.end] for place in turn.changes],
        "replaced": packed(np.searchsorted(used, turn.replaced)),
        "stretch": _stretch(turn.stretch, before, used),
    }


def _stretch(stretch: Stretch, before: Units, used: npt.NDArray[np.uint32]) -> dict[str, Any]:
    text, inside = stretch.text, Units(stretch.text)
    starts, stops = inside.all_before(stretch.places.starts), inside.all_before(stretch.places.stops)
    # What is untrusted at the edges is so beside them too: these edges are none, but for that of the whole text.
    edges = [edge for span in stretch.untrusted for edge in span if (edge or not stretch.start) and edge < len(text)]
    return {
        "start": before.before(stretch.start),
        "stop": before.before(stretch.stop),
        "text": text,
        "first": stretch.first,
        "last": stretch.last,
        "tokens": packed(np.searchsorted(used, stretch.ids)),
        # Small numbers, most of them of one byte each.
        "steps": packed(np.diff(starts, prepend=0)),
        "lengths": packed(stops - starts),
        "cuts": packed(np.diff(inside.all_before(stretch.cuts), prepend=0)),
        "edges": list(map(inside.before, edges)),
        "forged": [[inside.before(start), inside.before(stop)] for start, stop in stretch.forged],
    }


class Units:
    """Positions in a text, counted as JavaScript does: in UTF-16 units.

    Args:
        text: The text.

    Example:
        >>> Units("a👍b").all_before(np.array([0, 1, 2, 3])).tolist()
        [0, 1, 3, 4]
    """

    def __init__(self, text: str) -> None:
        self._wide = np.flatnonzero(code_points("" if text.isascii() else text) > 0xFFFF)

    def before(self, position: int) -> int:
        """The units before a character."""
        return position + int(np.searchsorted(self._wide, position))

    def all_before(self, positions: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """The units before each of some characters."""
        return positions + np.searchsorted(self._wide, positions)


def packed(values: npt.NDArray[np.integer]) -> list[str]:
    """Numbers of no sign as the bytes of the narrowest type that holds them all, little-endian, base64.

    Example:
        >>> packed(np.array([1, 2, 300])), packed(np.array([], np.int64))
        (['Uint16Array', 'AQACACwB'], ['Uint8Array', ''])
    """
    most = int(values.max(initial=0))
    bits = next(bits for bits in (8, 16, 32) if most < 1 << bits)
    return [f"Uint{bits}Array", base64.b64encode(values.astype(f"<u{bits // 8}").tobytes()).decode()]
