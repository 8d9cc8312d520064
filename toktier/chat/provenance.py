"""Text that knows which of its characters are untrusted, while a template takes it apart and puts it together.

The rule is that trust is never assumed. What is derived from a marked text by an operation that is written down here
keeps its marks. Whatever else a template does gives a plain ``str``, and a plain ``str`` is untrusted as a whole.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Iterable, Mapping
from itertools import repeat
from typing import Any, SupportsIndex

from toktier.untrusted import Span, Spans, within

CONVERSION = re.compile(r"%(?:\((?P<key>[^()]*)\))?(?P<how>[-#0 +]*\d*(?:\.\d*)?)[hlL]?(?P<type>[^*])", re.DOTALL)
"""A conversion of the ``%`` operator, but for those that take their width from the values."""


class MarkedText(str):
    """A text and the spans of its untrusted characters.

    Args:
        text: The text.
        untrusted: Which of its characters are untrusted; all of them when not given.

    Example:
        >>> header = MarkedText("<|im_start|>", ()) + "user" + MarkedText("<|im_end|>", ())
        >>> header, spans_of(header)
        ('<|im_start|>user<|im_end|>', ((12, 16),))
        >>> spans_of(header.split("us")[1].replace("|", ""))
        ((0, 2),)
    """

    # With an underscore: the sandbox of a template reads no such attribute.
    __slots__ = ("_untrusted",)
    _untrusted: Spans

    def __new__(cls, text: object = "", untrusted: Spans | None = None) -> MarkedText:  # noqa: D102
        marked = str.__new__(cls, text)
        marked._untrusted = _whole(len(marked)) if untrusted is None else untrusted
        return marked

    def __str__(self) -> MarkedText:
        # Whoever asks for a string gets one that still knows.
        return self

    def __add__(self, other: object) -> MarkedText:
        # What has __html__ escapes what it is added to, as it does with any string.
        if not isinstance(other, str) or hasattr(other, "__html__"):
            return NotImplemented
        return MarkedText(str.__add__(self, other), _beside(self._untrusted, spans_of(other), len(self)))

    def __radd__(self, other: object) -> MarkedText:
        if not isinstance(other, str) or hasattr(other, "__html__"):
            return NotImplemented
        return MarkedText(str.__add__(other, self), _beside(spans_of(other), self._untrusted, len(other)))

    def __mul__(self, times: SupportsIndex) -> MarkedText:
        if not hasattr(times, "__index__"):
            return NotImplemented
        return joined(repeat(self, max(operator.index(times), 0)))

    __rmul__ = __mul__

    def __mod__(self, values: Any) -> MarkedText:
        text = MarkedText(super().__mod__(values))
        if self._untrusted:
            return text
        pieces = list[str]()
        position, at = 0, 0
        for found in CONVERSION.finditer(self):
            pieces.append(self._part(at, found.start()))
            at = found.end()
            key, how, kind = found["key"], found["how"], found["type"]
            if kind == "%":
                pieces.append(self._part(at - 1, at))
                continue
            if key is not None:
                value = values[key]
            elif isinstance(values, tuple):
                value = values[position]
                position += 1
            else:
                value = values
            pieces.append(str(value) if kind == "s" and not how else f"%{how}{kind}" % (value,))
        pieces.append(self._part(at, len(self)))
        tracked = joined(pieces)
        # A format that is read otherwise here than by Python would show.
        return tracked if tracked == text else text

    def __getitem__(self, key: SupportsIndex | slice) -> MarkedText:
        text = super().__getitem__(key)
        if isinstance(key, slice):
            start, stop, step = key.indices(len(self))
            if step == 1:
                return self._part(start, max(start, stop))
            return MarkedText(text, None if self._untrusted else ())
        at = operator.index(key) % len(self)
        return self._part(at, at + 1)

    def strip(self, chars: str | None = None, /) -> MarkedText:
        """As of ``str``; so are all that follow."""
        start = len(self) - len(super().lstrip(chars))
        return self._part(start, max(start, len(super().rstrip(chars))))

    def lstrip(self, chars: str | None = None, /) -> MarkedText:  # noqa: D102
        return self._part(len(self) - len(super().lstrip(chars)), len(self))

    def rstrip(self, chars: str | None = None, /) -> MarkedText:  # noqa: D102
        return self._part(0, len(super().rstrip(chars)))

    def removeprefix(self, prefix: str, /) -> MarkedText:  # noqa: D102
        return self._part(len(self) - len(super().removeprefix(prefix)), len(self))

    def removesuffix(self, suffix: str, /) -> MarkedText:  # noqa: D102
        return self._part(0, len(super().removesuffix(suffix)))

    def split(self, sep: str | None = None, maxsplit: SupportsIndex = -1) -> list[str]:  # noqa: D102
        pieces = super().split(sep, maxsplit)
        if sep is not None:
            return self._in_order(pieces, len(sep))
        found, at = list[str](), 0
        for piece in pieces:  # each begins with the first character from here on that is no whitespace
            at = self.index(piece, at) + len(piece)
            found.append(self._part(at - len(piece), at))
        return found

    def rsplit(self, sep: str | None = None, maxsplit: SupportsIndex = -1) -> list[str]:  # noqa: D102
        pieces = super().rsplit(sep, maxsplit)
        if sep is not None:
            return self._in_order(pieces, len(sep))
        found, at = list[str](), len(self)
        for piece in reversed(pieces):  # each ends with the last character up to here that is no whitespace
            at = self.rindex(piece, 0, at)
            found.append(self._part(at, at + len(piece)))
        return found[::-1]

    def splitlines(self, keepends: bool = False) -> list[str]:  # noqa: D102
        found, at = list[str](), 0
        for line, kept in zip(super().splitlines(), super().splitlines(True), strict=True):
            found.append(self._part(at, at + len(kept if keepends else line)))
            at += len(kept)
        return found

    def partition(self, sep: str, /) -> tuple[str, str, str]:  # noqa: D102
        before, between, behind = self._in_order(super().partition(sep), 0)
        return before, between, behind

    def rpartition(self, sep: str, /) -> tuple[str, str, str]:  # noqa: D102
        before, between, behind = self._in_order(super().rpartition(sep), 0)
        return before, between, behind

    def replace(self, old: str, new: str, count: SupportsIndex = -1) -> MarkedText:  # noqa: D102
        text = super().replace(old, new, count)
        if not self._untrusted and not spans_of(new):
            return MarkedText(text, ())
        # An empty text to replace stands between all characters.
        if not old or (self._untrusted == _whole(len(self)) and spans_of(new) == _whole(len(new))):
            return MarkedText(text)
        pieces, at = list[str](), 0
        left = operator.index(count)
        while left and (found := self.find(old, at)) >= 0:
            pieces += self._part(at, found), new
            at = found + len(old)
            left -= 1
        return joined((*pieces, self._part(at, len(self)))) if pieces else self

    def join(self, pieces: Iterable[str], /) -> MarkedText:  # noqa: D102
        pieces = list(pieces)
        if not all(isinstance(piece, str) for piece in pieces):
            super().join(pieces)  # says what is wrong
        between = [piece for part in pieces for piece in (self, part)]
        return joined(between[1:])

    def upper(self) -> MarkedText:  # noqa: D102
        return self._same_places(super().upper())

    def lower(self) -> MarkedText:  # noqa: D102
        return self._same_places(super().lower())

    def title(self) -> MarkedText:  # noqa: D102
        return self._same_places(super().title())

    def capitalize(self) -> MarkedText:  # noqa: D102
        return self._same_places(super().capitalize())

    def swapcase(self) -> MarkedText:  # noqa: D102
        return self._same_places(super().swapcase())

    def _part(self, start: int, stop: int) -> MarkedText:
        if not start and stop == len(self):
            return self
        spans = self._untrusted
        return MarkedText(super().__getitem__(slice(start, stop)), within(spans, start, stop) if spans else ())

    def _in_order(self, pieces: Iterable[str], between: int) -> list[str]:
        """Pieces that stand side by side, so many characters apart."""
        found, at = list[str](), 0
        for piece in pieces:
            found.append(self._part(at, at + len(piece)))
            at += len(piece) + between
        return found

    def _same_places(self, text: str) -> MarkedText:
        """A text with a character for each one of this, if that is certain (``ß`` becomes ``SS``)."""
        return MarkedText(text, self._untrusted if not self._untrusted or self.isascii() else None)


def spans_of(text: str) -> Spans:
    """The untrusted characters of any string: of a plain one, all.

    >>> spans_of(MarkedText("abc", ((1, 2),))), spans_of("abc"), spans_of("")
    (((1, 2),), ((0, 3),), ())
    """
    return text._untrusted if type(text) is MarkedText else _whole(len(text))


def joined(pieces: Iterable[str]) -> MarkedText:
    """Strings put together, each with its marks."""
    texts, found, at = list[str](), list[Span](), 0
    for piece in pieces:
        size = len(piece)
        spans = piece._untrusted if type(piece) is MarkedText else _whole(size)
        for start, stop in spans:
            if found and found[-1][1] == at + start:
                found[-1] = (found[-1][0], at + stop)
            else:
                found.append((at + start, at + stop))
        texts.append(piece)
        at += size
    return MarkedText("".join(texts), tuple(found))


def is_trusted(value: object) -> bool:
    """Whether all that is in a value is known to be trusted. Of a number it is not known where it comes from."""
    if isinstance(value, str):
        return not spans_of(value)
    if isinstance(value, Mapping):
        return all(is_trusted(key) and is_trusted(item) for key, item in value.items())
    if isinstance(value, (list, tuple)):
        return all(map(is_trusted, value))
    return value is None or isinstance(value, bool)


def _whole(size: int) -> Spans:
    return ((0, size),) if size else ()


def _beside(left: Spans, right: Spans, at: int) -> Spans:
    """The spans of two texts, the second of which begins at a character."""
    if not right:
        return left
    moved = tuple([(start + at, stop + at) for start, stop in right])
    if left and left[-1][1] == moved[0][0]:
        return (*left[:-1], (left[-1][0], moved[0][1]), *moved[1:])
    return left + moved
