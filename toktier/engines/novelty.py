"""How much of the text that passes by is new, about: for engines that remember what they have met."""

from __future__ import annotations

STRIDE = 1 << 14
"""Characters for which one sample stands."""

SAMPLE = 256
"""Characters of a sample."""

KNOWN = 64
"""Characters that count as one that is new, whatever the samples say: some new text may hide between them."""


class Novelty:
    r"""Counts the characters of words that were not met before, by samples of the text.

    Libraries remember words, and real text is made of the same ones for the most part.

    Attributes:
        characters: New characters so far, about.

    Example:
        >>> novelty = Novelty()
        >>> for _ in range(3):
        ...     novelty.meet("Always the same few words. " * 5000)
        ...     print(novelty.characters)
        4084
        6132
        8180
    """

    __slots__ = ("_ahead", "_met", "characters")

    def __init__(self) -> None:
        self.characters = 0
        self._ahead = 0
        """Characters that pass before the next sample is taken."""
        self._met: set[str] = set()

    def meet(self, text: str) -> None:
        """Counts what is new in a text."""
        length = len(text)
        at = self._ahead
        while at < length:
            sample = text[at : at + SAMPLE]
            # Those at both ends are cut off; where there are no words, the sample is one.
            words = sample.split()[1:-1] or [sample]
            new = set(words) - self._met
            self._met |= new
            self.characters += STRIDE * len(new) // len(words) + STRIDE // KNOWN
            at += STRIDE
        self._ahead = at - length
