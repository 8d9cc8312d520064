"""Untrusted text: a special token counts only where its whole occurrence lies in trusted text.

The rule is about occurrences. Where a special token stands in a text and one of its characters is untrusted, that
occurrence is *forged*, and none of the untrusted characters in it can be a part of any token that counts. What counts
is then found as always: the leftmost, and of several there the longest. All that is between is encoded by the
reference with special tokens as text.

A text without forged occurrences is encoded as if all of it were trusted, by any engine. Around a forged one, the
nearest certified cuts bound what the reference must encode: no added token lies across a cut.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from toktier.engines.base import Engine, Ids, checked
from toktier.engines.continuing import lead_of
from toktier.engines.literals import Finder
from toktier.engines.reference import ReferenceEngine
from toktier.engines.special import Counted, SpecialAsText
from toktier.families.family import Family
from toktier.families.probing import DiskCache
from toktier.planner import CutPlanner, parts
from toktier.untrusted import Span, Spans, within

BARRIER = "\ud800"
"""Takes the place of an untrusted character where added tokens are looked for: it is in no token."""

APART = 256
"""Characters between two forged occurrences that are worth calls of their own; fewer, and the reference encodes all."""


class Protection:
    r"""Encodes texts with untrusted parts, for one tokenizer. Safe to share between threads.

    A tokenizer makes its own when it is asked for ``tok.protection``. :meth:`toktier.Tokenizer.encode`, sessions and
    stores take ``untrusted=`` and ``special="text"``, and use it.

    Args:
        reference: What encodes where special tokens are text.
        planner: Has everything else encoded.
        cache: Keeps what the reference was asked.

    Raises:
        Unprotectable: Special tokens are found in a way that cannot be told apart by who wrote them.

    Example:
        >>> import toktier
        >>> tok = toktier.load("toktier-mini")
        >>> text = "<|im_start|>user\n<|im_end|><|im_end|>"
        >>> special = tok.encode("<|im_start|><|im_end|>").tolist()
        >>> ids = tok.protection.encode(text, ((17, 27),), tok.engine())
        >>> [id for id in ids.tolist() if id in special] == special  # the second <|im_end|> alone
        True
    """

    def __init__(self, reference: ReferenceEngine, planner: CutPlanner, cache: DiskCache) -> None:
        self._family: Family = planner.family
        self._planner = planner
        definition = self._family.definition
        special = [literal for literal in definition.literals if literal.special]
        self._special: Finder | None = None
        if special and not reference.special_is_text:
            self._as_text: SpecialAsText = reference.special_as_text(definition, cache)
            self._special = Finder(special)
            self._longest = max(len(literal.content) for literal in special)
            # The library looks for those that are not normalized first, and for the others in what is left.
            raw = [literal for literal in definition.literals if not literal.normalized]
            others = [literal for literal in definition.literals if literal.normalized]
            has_others = any(literal.special for literal in others)
            self._looks = [Finder(look) for look, counts in ((raw, bool(raw)), (others, has_others)) if counts]

    def is_forged(self, text: str, untrusted: Spans) -> bool:
        """Whether a special token stands in a text that does not lie in its trusted part as a whole.

        Args:
            text: A valid text.
            untrusted: The spans ``(start, stop)`` of its untrusted characters, half-open; ascending and apart.

        Example:
            >>> import toktier
            >>> protection = toktier.load("toktier-mini").protection
            >>> protection.is_forged("<|im_end|>", ((9, 10),)), protection.is_forged("<|im_end|>!", ((10, 11),))
            (True, False)
        """
        return next(self._occurrences(text, untrusted), None) is not None

    def forged(self, text: str, untrusted: Spans) -> Spans:
        """Where special tokens stand that do not lie in the trusted part of a text as a whole, ascending.

        Those that overlap are one place. Those that touch are two: there may be a cut between them, and later another
        text.

        Args:
            text: A valid text, or a part of one between certified cuts.
            untrusted: The spans ``(start, stop)`` of its untrusted characters, half-open; ascending and apart.
        """
        places = list[Span]()
        for begin, end in sorted(self._occurrences(text, untrusted)):
            if places and begin < places[-1][1]:
                places[-1] = places[-1][0], max(end, places[-1][1])
            else:
                places.append((begin, end))
        return tuple(places)

    def counted(self, text: str, untrusted: Spans) -> list[Counted]:
        """The special tokens of a text that count, ascending; arguments as for :meth:`forged`."""
        if self._special is None:
            return []
        return self._counted(self._barred(text, untrusted, self.forged(text, untrusted)))

    def _occurrences(self, text: str, untrusted: Spans) -> Iterator[Span]:
        """Where special tokens stand that have an untrusted character, of several that begin at a place the longest."""
        if self._special is None:
            return
        search = self._special.search
        for start, stop in untrusted:
            at, end = max(start - self._longest + 1, 0), stop + self._longest - 1
            # The longest that begins at a place is found: if it does not reach the span, none there does.
            while (found := search(text, at, end)) is not None and found.start() < stop:
                if found.end() > start:
                    yield found.span()
                at = found.start() + 1

    def encode(self, text: str, untrusted: Spans, engine: Engine, *, continuation: bool = False) -> Ids:
        """The ids of a text; uint32, shape (tokens,).

        Args:
            text: A valid text.
            untrusted: The spans ``(start, stop)`` of its untrusted characters, half-open; ascending and apart.
            engine: What encodes where there is nothing forged.
            continuation: Whether there is more text before it, from which it was parted at a certified cut.

        Raises:
            EngineFailure: The reference library cannot encode the text.

        Example:
            >>> import toktier
            >>> tok = toktier.load("toktier-mini")
            >>> [len(tok.protection.encode("<|im_end|>", spans, tok.engine())) for spans in ((), ((0, 10),))]
            [1, 7]
        """
        if not self.is_forged(text, untrusted):
            return self._ordinary(text, engine, continuation=continuation)
        forged = self.forged(text, untrusted)
        barred = self._barred(text, untrusted, forged)
        encoded, at = list[Ids](), 0
        for start, stop in self._bounded(text, forged):
            if at < start:
                encoded.append(self._ordinary(text[at:start], engine, continuation=continuation or at > 0))
            part, counted = text[start:stop], self._counted(barred[start:stop])
            encoded.append(self._with_text(part, counted, continuation=continuation or start > 0))
            at = stop
        if at < len(text):
            encoded.append(self._ordinary(text[at:], engine, continuation=continuation or at > 0))
        return np.concatenate(encoded)

    def encode_with_special_tokens(self, text: str, untrusted: Spans) -> Ids:
        """The ids of a whole text with what the tokenizer's own post-processor makes of them."""
        return self._as_text.encode(text, self.counted(text, untrusted), add_special_tokens=True)

    def encode_parts(self, texts: Sequence[str], untrusted: Spans, engine: Engine, *, continuation: bool) -> list[Ids]:
        """The ids of each of some parts that a text was cut into; see :meth:`CutPlanner.encode_parts`.

        Args:
            texts: The parts, in order.
            untrusted: The untrusted characters of all of them together.
            engine: What encodes.
            continuation: Whether there is more text before the first.
        """
        encoded, at = [], 0
        for text in texts:
            spans = within(untrusted, at, at + len(text))
            encoded.append(self.encode(text, spans, engine, continuation=continuation or at > 0))
            at += len(text)
        return encoded

    def _ordinary(self, text: str, engine: Engine, *, continuation: bool) -> Ids:
        some = parts(text, self._planner.cuts(text))
        encoded = self._planner.encode_parts(some, engine, continuation=continuation)
        for part in encoded:
            checked(engine, part)
        return np.concatenate(encoded)

    def _with_text(self, text: str, counted: list[Counted], *, continuation: bool) -> Ids:
        """The ids of a text in which special tokens are text, but for some."""
        lead = lead_of(self._family, text) if continuation else ""
        if not lead:
            return self._as_text.encode(text, counted)
        moved = [Counted(start + len(lead), stop + len(lead), id) for start, stop, id in counted]
        return self._as_text.encode(lead + text, moved)[len(self._as_text.encode(lead, [])) :]

    def _barred(self, text: str, untrusted: Spans, forged: Spans) -> str:
        """The text with a barrier in the place of each untrusted character of a forged occurrence."""
        characters = list(text)
        for start, stop in forged:
            for a, b in within(untrusted, start, stop):
                characters[start + a : start + b] = BARRIER * (b - a)
        return "".join(characters)

    def _bounded(self, text: str, forged: Spans) -> Iterator[Span]:
        """What to encode with special tokens as text: from a certified cut before what is forged to one behind it."""
        cuts = np.concatenate([[0], self._family.cuts(text, continuation=True), [len(text)]])
        starts, stops = np.array(forged, np.int64).T
        before = cuts[np.searchsorted(cuts, starts, "right") - 1].tolist()
        behind = cuts[np.searchsorted(cuts, stops, "left")].tolist()
        begin, end = before[0], behind[0]
        for start, stop in zip(before, behind, strict=True):
            if start > end + APART:
                yield begin, end
                begin = start
            end = stop
        yield begin, end

    def _counted(self, barred: str) -> list[Counted]:
        """The special tokens that count in a text with barriers, ascending."""
        assert self._special is not None
        special, stretches, found = self._special.ids, [(0, barred)], list[Counted]()
        for look in self._looks:
            left = []
            for at, stretch in stretches:
                for part, id in look.divide(stretch):
                    if id is None:
                        left.append((at, part))
                    elif part in special:
                        found.append(Counted(at, at + len(part), id))
                    at += len(part)  # noqa: PLW2901
            stretches = left
        return sorted(found)
