"""What programs do instead of encoding a growing text anew: each strategy in a few lines on the reference library.

Each is written as its users would write it for speed, and holds one conversation. ``docs/comparison.md`` says who does
what. They are not the products: those have locks, budgets and hashes of many conversations around the same cut.
"""

from __future__ import annotations

import re
from array import array
from bisect import bisect_right
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import ClassVar, Protocol

import tokenizers
from attrs import define, field

BACK, AGREE = 64, 32
"""Tokens that :class:`TokensBack` encodes again, and how many of them must come out as they were."""

WINDOW, MARGIN = 1024, 96
"""Characters in which :class:`WordBoundary` looks for a cut, and from whose ends it stays away."""

SIGIL = "<|"
"""What :class:`WordBoundary` takes for the sign of a special token, and does not cut near."""


@define
class Library:
    """The reference library, which all strategies share.

    Attributes:
        tokenizer: Its tokenizer.
        characters: How many it was given.
    """

    tokenizer: tokenizers.Tokenizer
    characters: int = 0

    def __attrs_post_init__(self) -> None:
        self.tokenizer.no_truncation()
        self.tokenizer.no_padding()

    def ids(self, text: str) -> list[int]:
        return self.batch([text])[0]

    def batch(self, texts: list[str]) -> list[list[int]]:
        self.characters += sum(map(len, texts))
        return [encoding.ids for encoding in self.tokenizer.encode_batch_fast(texts, add_special_tokens=False)]

    def encoding(self, text: str) -> tokenizers.Encoding:
        """The ids with their places in the text, which take longer."""
        self.characters += len(text)
        return self.tokenizer.encode(text, add_special_tokens=False)


class Strategy(Protocol):
    """Holds what it needs of the last text, and is given the next one whole."""

    def encode(self, text: str) -> Sequence[int]:
        """The ids of a text: what it holds itself, valid until the next call."""


@define
class Everything:
    """Encodes everything again."""

    library: Library

    def encode(self, text: str) -> Sequence[int]:
        return self.library.ids(text)


@define
class ExactMatch:
    """Remembers each text with its ids."""

    library: Library
    texts: dict[str, array[int]] = field(factory=dict)

    def encode(self, text: str) -> Sequence[int]:
        ids = self.texts.get(text)
        if ids is None:
            ids = self.texts[text] = array("I", self.library.ids(text))
        return ids


def common(one: str, other: str) -> int:
    """How many characters two texts begin with in common."""
    low, high = 0, min(len(one), len(other))
    if one[:high] == other[:high]:
        return high
    while low < high:
        middle = (low + high + 1) // 2
        if one[low:middle] == other[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low


@define
class Prefix:
    """Keeps the ids left of a cut in what the two texts have in common, and encodes what is right of it."""

    library: Library
    text: str = ""
    ids: array[int] = field(factory=lambda: array("I"))

    def encode(self, text: str) -> Sequence[int]:
        if text != self.text:
            characters, count = self.kept(text)
            del self.ids[count:]
            self.extend(text, characters)
            self.text = text
        return self.ids

    def kept(self, text: str) -> tuple[int, int]:
        """The cut, and how many ids are left of it."""
        raise NotImplementedError

    def extend(self, text: str, start: int) -> None:
        self.ids.extend(self.library.ids(text[start:]))


@define
class Concatenation(Prefix):
    """Encodes what is new by itself, and puts its ids behind the others."""

    def kept(self, text: str) -> tuple[int, int]:
        return (len(self.text), len(self.ids)) if text.startswith(self.text) else (0, 0)


@define
class AtCuts(Prefix):
    """Remembers cuts of its own kind, as characters and ids, and goes back to the last one that is still good."""

    cuts: list[tuple[int, int]] = field(factory=list)
    behind: ClassVar[int] = 0
    """Characters right of a cut without which it is none."""

    def kept(self, text: str) -> tuple[int, int]:
        shared = common(self.text, text)
        while self.cuts and self.cuts[-1][0] + self.behind > shared:
            self.cuts.pop()
        return self.cuts[-1] if self.cuts else (0, 0)


@define
class SpecialTokens(AtCuts):
    """Cuts behind each special token."""

    pattern: re.Pattern[str] | None = field(init=False)

    def __attrs_post_init__(self) -> None:
        added = self.library.tokenizer.get_added_tokens_decoder().values()
        special = sorted((token.content for token in added if token.special), key=len, reverse=True)
        self.pattern = re.compile("|".join(map(re.escape, special))) if special else None

    def extend(self, text: str, start: int) -> None:
        ends = [match.end() for match in self.pattern.finditer(text, start)] if self.pattern else []
        bounds = [start, *ends, len(text)]
        parts = self.library.batch([text[a:b] for a, b in pairwise(bounds)])
        for end, part in zip(ends, parts, strict=False):
            self.ids.extend(part)
            self.cuts.append((end, len(self.ids)))
        self.ids.extend(parts[-1])


@define
class LineStart(AtCuts):
    """Cuts at the last line that begins with something to be seen."""

    behind: ClassVar[int] = 1

    def extend(self, text: str, start: int) -> None:
        encoding, before = self.library.encoding(text[start:]), len(self.ids)
        self.ids.extend(encoding.ids)
        end = len(text)
        while (end := text.rfind("\n", start, end)) >= 0:
            line = end + 1
            if line == len(text) or text[line].isspace():
                continue
            token = encoding.char_to_token(line - start)
            place = None if token is None else encoding.token_to_chars(token)
            if token is not None and place is not None and place[0] == line - start:
                self.cuts.append((line, before + token))
                break


@define
class OneTokenBack(Prefix):
    """Keeps all tokens that lie in what the two texts have in common, except the last one."""

    ends: array[int] = field(factory=lambda: array("I"))

    def kept(self, text: str) -> tuple[int, int]:
        count = max(bisect_right(self.ends, common(self.text, text)) - 1, 0)
        while count and self.ends[count - 1] == self.ends[count]:  # a character in several tokens
            count -= 1
        del self.ends[count:]
        return (self.ends[count - 1] if count else 0), count

    def extend(self, text: str, start: int) -> None:
        encoding = self.library.encoding(text[start:])
        self.ids.extend(encoding.ids)
        self.ends.extend(start + end for _, end in encoding.offsets)


@define
class TokensBack:
    """Encodes the last 64 tokens again with what is new, and all of it unless the first 32 come out as they were."""

    library: Library
    text: str = ""
    ids: array[int] = field(factory=lambda: array("I"))
    split: tuple[int, int] = (0, 0)

    def encode(self, text: str) -> Sequence[int]:
        if text == self.text:
            return self.ids
        start, count = self.split if text.startswith(self.text) else (0, 0)
        encoding = self.library.encoding(text[start:])
        if encoding.ids[:AGREE] != self.ids[count : count + AGREE].tolist() and count:
            start = count = 0
            encoding = self.library.encoding(text)
        del self.ids[count:]
        self.ids.extend(encoding.ids)
        self.text = text
        again = len(self.ids) - BACK - count
        if again >= 0 and (place := encoding.token_to_chars(again)) is not None:
            self.split = start + place[0], count + again
        elif not count:
            self.split = 0, 0
        return self.ids


@define
class WordBoundary:
    """Cuts where the pre-tokenizer parts the last words; encodes everything unless the tokens behind are as before."""

    library: Library
    text: str = ""
    ids: array[int] = field(factory=lambda: array("I"))
    places: list[tuple[int, int]] = field(factory=list)
    """Of the last tokens."""

    def encode(self, text: str) -> Sequence[int]:
        if text == self.text:
            return self.ids
        if not self._continued(text):
            encoding = self.library.encoding(text)
            self.ids = array("I", encoding.ids)
            self._remember(text, encoding.offsets)
        return self.ids

    def _continued(self, text: str) -> bool:
        known = len(self.text)
        if known < WINDOW + 2 * MARGIN or not text.startswith(self.text):
            return False
        seam = self._seam()
        if seam is None:
            return False
        cut, at = seam
        encoding = self.library.encoding(text[cut:])
        places = [(cut + start, cut + end) for start, end in encoding.offsets]
        first = len(self.ids) - len(self.places)
        same = sum(end <= known - MARGIN for _, end in self.places[at:])
        again = self.ids[first + at : first + at + same].tolist()
        if not same or encoding.ids[:same] != again or places[:same] != self.places[at : at + same]:
            return False
        del self.ids[first + at :]
        self.ids.extend(encoding.ids)
        self._remember(text, self.places[:at] + places)
        return True

    def _seam(self) -> tuple[int, int] | None:
        """Where to cut, and which of the places begins there."""
        tokenizer, base = self.library.tokenizer, len(self.text) - WINDOW
        window = self.text[base:]
        if tokenizer.pre_tokenizer is None:
            return None
        if tokenizer.normalizer is not None and tokenizer.normalizer.normalize_str(window) != window:
            return None
        begins = {start: at for at, (start, _) in reversed(list(enumerate(self.places)))}
        for _, (start, _) in tokenizer.pre_tokenizer.pre_tokenize_str(window):
            cut = base + start
            if not MARGIN <= start <= WINDOW - MARGIN or SIGIL in self.text[cut - MARGIN : cut + MARGIN]:
                continue
            at = begins.get(cut)
            if at and self.places[at - 1][1] == cut:
                return cut, at
        return None

    def _remember(self, text: str, places: list[tuple[int, int]]) -> None:
        self.text = text
        self.places = [place for place in places[-2 * WINDOW :] if place[1] >= len(text) - 2 * WINDOW]


STRATEGIES: dict[str, Callable[[Library], Strategy]] = {
    "everything again": Everything,
    "exact match": ExactMatch,
    "concatenation": Concatenation,
    "line starts": LineStart,
    "special tokens": SpecialTokens,
    "one token back": OneTokenBack,
    "64 tokens back, checked": TokensBack,
    "word boundary, checked": WordBoundary,
}
"""What starts each of them, by the name that the tables have."""
