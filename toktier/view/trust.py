"""Where special tokens stand in a text of which somebody untrusted wrote a part: those that count, and forged ones."""

from __future__ import annotations

from toktier.engines.literals import Finder
from toktier.engines.special import Counted
from toktier.protection import BARRIER
from toktier.tokenizer import Tokenizer
from toktier.untrusted import Span, Spans, within


class Specials:
    """The special tokens of a tokenizer.

    Args:
        tok: The tokenizer.

    Example:
        >>> import toktier
        >>> specials = Specials(toktier.load("toktier-mini"))
        >>> text, untrusted = "<|im_end|><|im_end|>", ((0, 3),)
        >>> specials.forged(text, untrusted)
        ((0, 10),)
        >>> specials.counted(text, untrusted)
        [Counted(start=10, stop=20, id=4089)]
    """

    def __init__(self, tok: Tokenizer) -> None:
        self._tok = tok
        special = [literal for literal in tok.family.definition.literals if literal.special]
        self._finder = Finder(special)
        self._longest = max((len(literal.content) for literal in special), default=0)

    def forged(self, text: str, untrusted: Spans) -> Spans:
        """Where special tokens stand that have an untrusted character. Those that overlap are one place.

        Those that touch are two: there may be a cut between them, and later another text.

        Args:
            text: A text, or a part of one between certified cuts.
            untrusted: Its untrusted characters.

        Raises:
            Unprotectable: Special tokens of this tokenizer cannot be told apart by who wrote them.
        """
        if not untrusted or not self._tok.protection.is_forged(text, untrusted):
            return ()
        found = list[Span]()
        for start, stop in untrusted:
            at, end = max(start - self._longest + 1, 0), stop + self._longest - 1
            while (occurrence := self._finder.search(text, at, end)) is not None and occurrence.start() < stop:
                if occurrence.end() > start:
                    found.append(occurrence.span())
                at = occurrence.start() + 1
        places = list[Span]()
        for begin, end in sorted(found):
            if places and begin < places[-1][1]:
                places[-1] = places[-1][0], max(end, places[-1][1])
            else:
                places.append((begin, end))
        return tuple(places)

    def counted(self, text: str, untrusted: Spans) -> list[Counted]:
        """The special tokens that count, ascending; arguments and errors as for :meth:`forged`."""
        characters = list(text)
        for start, stop in self.forged(text, untrusted):
            for a, b in within(untrusted, start, stop):
                characters[start + a : start + b] = BARRIER * (b - a)
        found, at = list[Counted](), 0
        for part, id in self._finder.divide("".join(characters)):
            if id is not None:
                found.append(Counted(at, at + len(part), id))
            at += len(part)
        return found
