"""The places of a page that a program writes: from ``<!-- figures: NAME -->`` to ``<!-- end of figures -->``.

What stands between is replaced, so a mark that is missing or that stands in another's place is an error before anything
is written: else the prose behind it would go.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from attrs import frozen

MARK = re.compile(r"<!-- (?:figures: (?P<name>[^>]*?)|end of figures) -->")


class BadMarks(Exception):
    """The marks of a page are not as they should be."""


@frozen
class Place:
    """A place.

    Attributes:
        name: What belongs there.
        start: Where it starts in the page, behind its mark.
        stop: Where it stops, in front of its end.
    """

    name: str
    start: int
    stop: int


def places(text: str, page: str) -> list[Place]:
    """The places of a page, in order.

    Args:
        text: The page.
        page: Its name, for errors.

    Raises:
        BadMarks: A place has no end, an end has no place, or one place begins in another.

    Example:
        >>> places("<!-- figures: speed --> 12 µs <!-- end of figures -->", "page.md")
        [Place(name='speed', start=23, stop=30)]
    """
    found: list[Place] = []
    begun: re.Match[str] | None = None
    for mark in MARK.finditer(text):
        where = f"{page}, line {text.count(chr(10), 0, mark.start()) + 1}"
        if mark["name"] is not None:
            if begun is not None:
                raise BadMarks(f"{where}: figures {mark['name']!r} begin before {begun['name']!r} have their end")
            begun = mark
        elif begun is None:
            raise BadMarks(f"{where}: an end of figures, and none have begun")
        else:
            found.append(Place(begun["name"], begun.end(), mark.start()))
            begun = None
    if begun is not None:
        raise BadMarks(f"{page}: figures {begun['name']!r} have no end")
    return found


def renewed(text: str, parts: Mapping[str, str | None], page: str) -> str:
    """A page with its parts written anew.

    Args:
        text: The page.
        parts: All that belongs on it, by name. None leaves a place as it is.
        page: Its name, for errors.

    Raises:
        BadMarks: A part has no place or several, a place has no part, or see :func:`places`.
    """
    found = places(text, page)
    names = [place.name for place in found]
    for name in names:
        if name not in parts:
            raise BadMarks(f"{page} has a place for figures {name!r}; what belongs there: {', '.join(parts)}")
    for name in parts:
        if (count := names.count(name)) != 1:
            many = f"{count} places" if count else "no place"
            raise BadMarks(
                f"{page} has {many} for figures {name!r}: it needs one <!-- figures: {name} --> with its end"
            )
    for place in reversed(found):
        if (part := parts[place.name]) is not None:
            text = f"{text[: place.start]}\n\n{part}\n\n{text[place.stop :]}"
    return text
