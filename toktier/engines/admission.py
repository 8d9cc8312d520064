"""Whether an engine may serve a family: it is compared with the reference, and the evidence decides.

What is compared:

1. every code point beside letters, digits, whitespace and punctuation, and alone if it has a meaning;
2. every added token in context, and the text of every token of the vocabulary;
3. behind a normalizer, every character that can be composed, taken apart;
4. every two characters of ASCII, every three of its punctuation, and every two atoms side by side; random texts from a
   fixed seed, over the atoms and over all that has a meaning; and long runs of one character;
5. all but the first once more, after the engine has seen the beginnings of each text: what came before must not matter.

Code points on which the two differ become the *guard*: a text with one of them goes to the reference. A difference
that no code point explains refuses the engine. So does one that an ASCII character explains: nothing would be left.
"""

from __future__ import annotations

import hashlib
import logging
import platform
from collections.abc import Callable, Iterable, Iterator
from itertools import pairwise
from typing import Any, Protocol

import numpy as np
import tokenizers
from attrs import define, field, frozen

from toktier.engines.base import Engine, Ids, Unavailable, contained
from toktier.engines.reference import ReferenceEngine
from toktier.families.family import Family, finder
from toktier.families.probing import DiskCache, Probe

VERSION = 3
"""Part of the key under which evidence is kept: raised when something else is compared, and when an engine here may
give other ids than before."""

logger = logging.getLogger(__name__)

MOST = 1 << 14
"""Code points in a guard, at most."""

EXPLANATIONS = 64
"""Differences that are narrowed down, at most, to the characters that make them."""


def always() -> bool:
    """A comparison may go on."""
    return True


@frozen
class Evidence:
    """What came of a comparison.

    Attributes:
        engine: The engine's name and version.
        guard: The code points on which it differs, as ascending runs ``(first, last)``.
        refused: Why it may not serve the family; None when it may, without the code points of the guard.
        characters: How many characters were compared.
    """

    engine: str
    guard: tuple[tuple[int, int], ...]
    refused: str | None
    characters: int

    def __str__(self) -> str:
        compared = f"compared on {self.characters:,} characters"
        if self.refused is not None:
            return f"refused: {self.refused} ({self.engine})"
        if not self.guard:
            return f"admitted: {compared}, no difference ({self.engine})"
        count = sum(last - first + 1 for first, last in self.guard)
        shown = ", ".join(f"U+{first:04X}" + f"-{last:04X}" * (last > first) for first, last in self.guard[:3])
        more = ", ..." * (len(self.guard) > 3)
        differ = "code point differs and goes" if count == 1 else "code points differ and go"
        return f"admitted: {compared}; {count:,} {differ} to the reference: {shown}{more} ({self.engine})"

    def finder(self) -> Callable[[str], bool] | None:
        """Whether a text has one of the guarded code points; None if there are none."""
        return finder(c for first, last in self.guard for c in range(first, last + 1)) if self.guard else None


class Suspect(Engine, Protocol):
    """An engine that needs evidence, as its class."""

    def __init__(self, family: Family, reference: ReferenceEngine, probe: Probe) -> None: ...

    @staticmethod
    def version() -> str:
        """Of its library."""
        ...

    @staticmethod
    def check(family: Family, reference: ReferenceEngine) -> None:
        """Raises :class:`Inapplicable` for what can be told before anything is made."""
        ...


class Interrupted(Exception):
    """A comparison that must not go on."""


def compared(
    suspect: type[Suspect],
    family: Family,
    reference: ReferenceEngine,
    cache: DiskCache,
    proceed: Callable[[], bool] = always,
) -> Evidence:
    """The evidence for an engine and a family, which takes ten to twenty seconds to gather and is kept in the cache.

    Args:
        suspect: The class of the engine.
        family: What it would serve.
        reference: What is right.
        cache: Keeps the evidence, and digests of what the reference gives.
        proceed: Asked again and again whether to go on.

    Raises:
        Inapplicable: The engine cannot be made for the family.
        Interrupted: There was no evidence in the cache, and gathering it must not go on.
    """

    def compute() -> dict[str, Any]:
        if not proceed():
            raise Interrupted
        logger.info("comparing engine %s with the reference: ten to twenty seconds, once per machine", suspect.name)
        probe = reference.probe(cache)
        comparison = Comparison(suspect(family, reference, probe), family, reference, probe, proceed)
        refused = comparison.run()
        return {"guard": _runs(comparison.guard), "refused": refused, "characters": comparison.characters}

    version = suspect.version()
    versions = [VERSION, _own_version(), tokenizers.__version__, platform.machine()]
    question = ["admission", *versions, suspect.name, version, family.digest]
    answer = cache.get(question, compute)
    guard = tuple((first, last) for first, last in answer["guard"])
    return Evidence(f"{suspect.name} {version}", guard, answer["refused"], answer["characters"])


class _Unexplained(Exception):
    """A difference that refuses the engine. The message is the reason."""


@define
class Comparison:
    """One engine against the reference, on the texts of one family.

    Attributes:
        engine: The one in question. It has seen nothing yet.
        family: What it would serve.
        reference: What is right.
        probe: Says which characters have a meaning, and has the cache.
        proceed: Asked again and again whether to go on.
        guard: The code points on which the two differ.
        characters: How many were compared.
        explanations: How many differences were narrowed down.
    """

    engine: Engine
    family: Family
    reference: ReferenceEngine
    probe: Probe
    proceed: Callable[[], bool] = always
    guard: set[int] = field(factory=set, init=False)
    characters: int = field(default=0, init=False)
    explanations: int = field(default=0, init=False)

    def run(self) -> str | None:
        """Why the engine is refused, or None; :attr:`guard` is filled on the way."""
        from toktier.engines import battery

        try:
            self.code_points()
            self.texts(
                [
                    *battery.added_tokens(self.family.definition),
                    *battery.vocabulary(self.reference, self.family.definition),
                    *battery.compositions(self.family.definition, self.probe),
                    *battery.neighbours(self.family),
                    *battery.scripts(self.probe),
                    *battery.random_texts(self.family),
                ]
            )
        except _Unexplained as refusal:
            return str(refusal)
        return None

    def code_points(self) -> None:
        """Compares every code point, in texts of many."""
        from toktier.engines.battery import code_point_blocks, packed

        blocks = [*code_point_blocks(self.probe)]
        # What the reference gives is the same for all engines, and takes most of the time.
        digests = self.probe.cache.get(
            ["battery", VERSION, tokenizers.__version__, self.family.digest],
            lambda: [*self.digests(packed(*block) for block in blocks)],
        )
        for (template, characters), digest in zip(blocks, digests, strict=True):
            text = packed(template, characters)
            self.characters += len(text)
            if _digest(self.given(text)) != digest:
                self.narrow(template, characters)

    def narrow(self, template: str, characters: str) -> None:
        """Finds which of some characters differ; those of the guard are known to."""
        from toktier.engines.battery import packed

        some = self.unguarded(characters)
        whole = packed(template, some)
        if self.same(whole):
            if some == characters:
                raise _Unexplained(f"other ids for a text, but not when asked again: {whole[:40]!r}")
            return
        texts = [packed(template, character) for character in some]
        for character, text, digest in zip(some, texts, self.digests(texts), strict=True):
            if _digest(self.given(text)) != digest:
                self.guarded(character, text)
        # What is left of them may differ together, though none does by itself.
        rest = packed(template, self.unguarded(some))
        if not self.same(rest):
            self.explain(rest)

    def texts(self, texts: Iterable[str]) -> None:
        """Compares texts, less the characters of the guard: once as they come, and once after their beginnings."""
        kept = [*map(self.unguarded, texts)]
        digests = [*self.digests(kept)]
        for beginnings in (False, True):
            for text, digest in zip(kept, digests, strict=True):
                for stop in (len(text) // 3, 2 * len(text) // 3) if beginnings else ():
                    self.given(text[:stop])
                self.characters += len(text)
                if _digest(self.given(text)) != digest:
                    rest = self.unguarded(text)
                    if rest == text or not self.same(rest):
                        self.explain(rest)

    def digests(self, texts: Iterable[str]) -> Iterator[str]:
        """Of the reference's ids for texts, from as many cores as it takes."""
        from toktier.engines.battery import chunks

        for some in chunks([*texts], 256):
            if not self.proceed():
                raise Interrupted
            yield from map(_digest, self.reference.encode_batch(some))

    def explain(self, text: str) -> None:
        """Puts the characters that make a difference into the guard, until the text is free of them.

        Raises:
            _Unexplained: It is made by ASCII characters alone, or not made again.
        """
        if self.same(text):
            raise _Unexplained(f"other ids for a text, but not when asked again: {text[:40]!r}")
        while not self.same(text):
            self.explanations += 1
            if self.explanations > EXPLANATIONS:
                raise _Unexplained("too many differences")
            small = self.smallest(text)
            culprits = {character for character in small if not character.isascii()}
            if len(culprits) > 1:
                # It is the two together, and there may be any number of others like them.
                raise _Unexplained(f"other ids for {small[:40]!r}")
            self.guarded("".join(culprits), small)
            text = self.unguarded(text)

    def guarded(self, characters: str, text: str) -> None:
        """Puts characters into the guard, because of a text."""
        if not characters or characters.isascii():
            raise _Unexplained(f"other ids for {text[:40]!r}")
        self.guard |= set(map(ord, characters))
        if len(self.guard) > MOST:
            raise _Unexplained(f"more than {MOST:,} code points differ")

    def smallest(self, text: str) -> str:
        """The text with everything left out that the difference does not need."""
        size = len(text)
        while size > 1:
            size = (size + 1) // 2
            at = 0
            while at < len(text):
                shorter = text[:at] + text[at + size :]
                if self.same(shorter):
                    at += size
                else:
                    text = shorter
        return text

    def unguarded(self, text: str) -> str:
        """The text without the characters of the guard."""
        if text.isascii() or not self.guard:
            return text
        return "".join([character for character in text if ord(character) not in self.guard])

    def same(self, text: str) -> bool:
        """Whether the two give the same ids for a text."""
        ids = self.given(text)
        return ids is not None and np.array_equal(ids, self.reference.encode(text))

    def given(self, text: str) -> Ids | None:
        """The engine's ids, or None when it fails."""
        if not self.proceed():
            raise Interrupted
        try:
            return self.engine.encode(text)
        except BaseException as error:
            # Too little memory, or a device that is lost, is no property of the engine: it must not be remembered.
            if isinstance(error, MemoryError | Unavailable) or not contained(error):
                raise
            return None


def _own_version() -> str:
    from toktier import __version__  # which is there once everything else is

    return __version__


def _digest(ids: Ids | None) -> str:
    return "" if ids is None else hashlib.blake2b(ids.tobytes(), digest_size=8).hexdigest()


def _runs(code_points: set[int]) -> list[list[int]]:
    """Ascending runs, each as its first and its last member."""
    ordered = sorted(code_points)
    edges = [i for i in range(1, len(ordered)) if ordered[i] != ordered[i - 1] + 1]
    return [[ordered[i], ordered[j - 1]] for i, j in pairwise([0, *edges, len(ordered)])] if ordered else []
