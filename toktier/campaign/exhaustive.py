"""A bounded proof by enumeration: every short string of a tokenizer's atoms, cut at every place, by the reference.

To the relation, characters of one atom are alike; so one *representative* of each stands for all, and there are only
finitely many strings of at most L of them. Each is encoded by the reference library, and so are its two parts for each
place where it can be cut. No id may change at a certified cut. Among these strings that is no sample but a proof, and
apart from the atoms it rests on nothing that the relation was derived by: no pattern is read, no normalizer modelled.

It also shows what the relation leaves on the table: pairs outside it at which no id ever changed. Many of these are
rightly outside: to see why takes longer strings, or members of the atoms for which the model has other merges.

It says nothing of longer strings, nor of other members of an atom should the reference, against the derivation, tell
them apart.

The command: ``toktier verify TOKENIZER --exhaustive 4``
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence

import numpy as np
import numpy.typing as npt
from attrs import define, field, frozen

from toktier.engines.base import Engine, Ids
from toktier.engines.continuing import encode_continuing
from toktier.families.family import Family
from toktier.families.probing import SURROGATES
from toktier.tokenizer import Tokenizer

BATCH = 1 << 15
"""Strings that are encoded at a time: enough to keep the library's threads busy, for some 30 MB of its objects."""

FEW = 20
"""Atoms up to which strings of one more character are enumerated: 3.4 million of them at most."""

KEPT = 100
"""Failures that are kept: one wrong pair can make millions."""

Numbers = npt.NDArray[np.int64]
"""Strings by their numbers, or places in an array of ids; int64."""

Flags = npt.NDArray[np.bool_]
"""Something that is true or false of each of some strings."""

Pairs = npt.NDArray[np.bool_]
"""``pairs[left, right]``, by the numbers of representatives; shape (representatives, representatives)."""


@frozen
class Failure:
    """A certified cut that changes ids: a counterexample to the relation.

    Attributes:
        text: The string.
        cut: Where it was cut: between ``text[cut - 1]`` and ``text[cut]``.
        expected: The ids of the string.
        got: The ids of ``text[:cut]``, then those of ``text[cut:]``.
    """

    text: str
    cut: int
    expected: tuple[int, ...]
    got: tuple[int, ...]


@frozen
class Enumeration:
    """What an enumeration found.

    Attributes:
        length: The most characters of a string.
        representatives: One character of each atom that has one.
        strings: How many strings were encoded.
        cuts: At how many places they were cut, all strings together.
        certified: How many of those places are certified cuts.
        failures: Certified cuts that change ids: the shortest strings first, and no more than 100.
        failed: How many of those there are in all.
        left: The pairs of representatives that are outside the relation although no cut between them changed an id.
    """

    length: int
    representatives: str
    strings: int
    cuts: int
    certified: int
    failures: tuple[Failure, ...]
    failed: int
    left: tuple[tuple[str, str], ...]


def representatives(family: Family) -> str:
    """The first character of each atom, without those that have nothing but surrogates, which are in no text.

    Any member would do, since the relation knows nothing that tells them apart. The first is the same on every machine.

    Example:
        >>> import toktier
        >>> family = toktier.load("toktier-mini").family
        >>> "<" in representatives(family), len(representatives(family)) == family.atoms - 1
        (True, True)
    """
    atoms = (itertools.chain.from_iterable(ranges) for ranges in family.alphabet())
    firsts = (next((point for point in points if point not in SURROGATES), None) for points in atoms)
    return "".join(chr(first) for first in firsts if first is not None)


def longest(tok: Tokenizer) -> int:
    """How long strings can be so that all of them take minutes at most: 5 characters up to 20 atoms, else 4.

    Example:
        >>> import toktier
        >>> longest(toktier.load("toktier-mini"))
        4
    """
    return 5 if len(representatives(tok.family)) <= FEW else 4


def enumerate_strings(
    tok: Tokenizer, length: int | None = None, *, proceed: Callable[[float], None] = lambda share: None
) -> Enumeration:
    """Cuts every string of up to ``length`` representatives at every place, and compares all ids.

    Args:
        tok: A tokenizer with certified cuts; only its relation and its reference take part.
        length: The most characters of a string, 2 or more. Not given: :func:`longest`.
        proceed: Called now and then with the share of all strings that is done. What it raises ends the enumeration.

    Raises:
        ValueError: The tokenizer has no certified cuts, or the strings are too short to be cut.
        EngineFailure: The reference cannot encode one of the strings.

    Example:
        >>> import toktier
        >>> found = enumerate_strings(toktier.load("toktier-mini"), 2)
        >>> found.strings == len(found.representatives) + len(found.representatives) ** 2
        True
        >>> found.failures
        ()
    """
    if not tok.family.supported:
        raise ValueError(
            f"{tok.family.reason}: the tokenizer has no certified cuts, so there is nothing to enumerate; "
            "compare sessions with the reference instead"
        )
    length = longest(tok) if length is None else length
    if length < 2:
        raise ValueError(f"length is {length}: a string can be cut from 2 characters on, so give 2 or more")

    reference = tok.engine("reference")
    tally = Tally.of(tok.family)
    number = len(tally.characters)
    total = sum(number**size for size in range(1, length + 1))
    heads = tails = Encoded.of(())
    for size in range(1, length + 1):
        new_heads, new_tails = [heads], [tails]
        texts = map("".join, itertools.product(tally.characters, repeat=size))
        first = 0
        while some := list(itertools.islice(texts, BATCH)):
            whole = Encoded.of(reference.encode_batch(some))
            tally.add(some, Numbered(size, first, number), whole, heads, tails)
            if size < length:  # a part of a longer one
                new_heads.append(whole)
                new_tails.append(_continuing(tok.family, reference, some) if tok.family.prefixed else whole)
            first += len(some)
            proceed(tally.strings / total)
        heads, tails = Encoded.joined(new_heads), Encoded.joined(new_tails)
    return tally.result(length)


def _continuing(family: Family, reference: Engine, texts: Sequence[str]) -> Encoded:
    """The ids of texts that continue others; of those that nothing can be cut off before, the ids by themselves."""
    possible = [family.lead(text) is not None for text in texts]
    return Encoded.of(encode_continuing(family, reference, texts, possible, reference.encode_batch))


@frozen(eq=False)
class Encoded:
    """The ids of many strings, one after the other in one array.

    Attributes:
        ids: Of all strings; shape (ids,).
        offsets: Where the ids of each string begin, and at last where those of the last end; shape (strings + 1,).
    """

    ids: Ids
    offsets: Numbers

    @classmethod
    def of(cls, encoded: Sequence[Ids]) -> Encoded:
        """From the ids of each string."""
        lengths = np.fromiter(map(len, encoded), np.int64, len(encoded))
        ids = np.concatenate(encoded) if encoded else np.empty(0, np.uint32)
        return cls(ids, np.concatenate([[0], np.cumsum(lengths)]))

    @classmethod
    def joined(cls, parts: Sequence[Encoded]) -> Encoded:
        """The strings of each part, one part after the other."""
        lengths = np.concatenate([np.diff(part.offsets) for part in parts])
        return cls(np.concatenate([part.ids for part in parts]), np.concatenate([[0], np.cumsum(lengths)]))

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, number: int) -> tuple[int, ...]:
        """The ids of one string."""
        return tuple(self.ids[self.offsets[number] : self.offsets[number + 1]].tolist())

    def lengths(self, numbers: Numbers) -> Numbers:
        """How many ids some strings have."""
        return self.offsets[numbers + 1] - self.offsets[numbers]


def changed(whole: Encoded, known: tuple[Encoded, Encoded], heads: Numbers, tails: Numbers) -> Flags:
    """Whether the ids of each string differ from those of its head followed by those of its tail: compares every id.

    Args:
        whole: The strings.
        known: Strings among which are their heads, and strings among which are their tails.
        heads: The number of each string's head; shape (strings,).
        tails: The same of its tail.

    Returns:
        Shape (strings,).

    Example:
        >>> def encoded(*ids):
        ...     return Encoded.of([np.array(each, np.uint32) for each in ids])
        >>> parts = encoded([7], [8, 9])
        >>> strings, zeros = encoded([7, 8, 9], [7, 8, 8], [7, 8]), np.array([0, 0, 0])
        >>> changed(strings, (parts, parts), zeros, zeros + 1).tolist()
        [False, True, True]
    """
    before, behind = known
    lengths, from_head = np.diff(whole.offsets), before.lengths(heads)
    differs: Flags = lengths != from_head + behind.lengths(tails)
    # For every id: the string it belongs to, which one it is there, and the one to compare it with.
    string = np.repeat(np.arange(len(whole)), lengths)
    comparable = np.flatnonzero(~differs[string])
    string = string[comparable]
    nth = comparable - whole.offsets[string]
    beyond = nth - from_head[string]
    ids = np.concatenate([before.ids, behind.ids])
    in_tail = len(before.ids) + behind.offsets[tails[string]] + beyond
    place = np.where(beyond < 0, before.offsets[heads[string]] + nth, in_tail)
    differs[string[whole.ids[comparable] != ids[place]]] = True
    return differs


@frozen
class Numbered:
    """Some strings of one length that follow one another in the order in which all are numbered.

    Shorter ones come first, then the order is alphabetical. So among those of its length a string is a number whose
    digits are its characters, and to cut it is to divide that number by a power of the base.

    Attributes:
        size: The number of characters of each.
        first: How many strings of the same length there are before the first.
        base: How many characters there are to choose from.
    """

    size: int
    first: int
    base: int

    def halves(self, count: int, cut: int) -> tuple[Numbers, Numbers]:
        """The heads and the tails of the first ``count`` strings, each by the number that it has among its length.

        >>> Numbered(3, 0, 2).halves(8, 1)
        (array([0, 0, 0, 0, 1, 1, 1, 1]), array([0, 1, 2, 3, 0, 1, 2, 3]))
        """
        return np.divmod(self.first + np.arange(count), self.base ** (self.size - cut))

    def shorter(self, size: int) -> int:
        """How many strings are shorter than ``size``: what turns a number among a length into one among all.

        >>> Numbered(3, 0, 2).shorter(3)
        6
        """
        return sum(self.base**each for each in range(1, size))


@define(eq=False)
class Tally:
    """What is known so far.

    Attributes:
        characters: The representatives.
        relation: The pairs that are certified.
        changing: The pairs between which a cut has changed ids.
    """

    characters: str
    relation: Pairs
    changing: Pairs
    strings: int = 0
    cuts: int = 0
    certified: int = 0
    failed: int = 0
    failures: list[Failure] = field(factory=list)

    @classmethod
    def of(cls, family: Family) -> Tally:
        """One for a family, with nothing in it."""
        characters = representatives(family)
        relation = np.array([[family.is_pair(left, right) for right in characters] for left in characters], bool)
        return cls(characters, relation, np.zeros_like(relation))

    def add(
        self, texts: Sequence[str], numbered: Numbered, whole: Encoded, known_heads: Encoded, known_tails: Encoded
    ) -> None:
        """Takes in some strings of one length.

        Args:
            texts: The strings.
            numbered: The same by their numbers.
            whole: Their ids.
            known_heads: Those of all shorter ones, in the order of the numbers.
            known_tails: The same where they continue another text.
        """
        self.strings += len(texts)
        found = []
        for cut in range(1, numbered.size):
            heads, tails = numbered.halves(len(texts), cut)
            left = heads % numbered.base
            right = tails // numbered.base ** (numbered.size - cut - 1)
            heads += numbered.shorter(cut)
            tails += numbered.shorter(numbered.size - cut)
            wrong = changed(whole, (known_heads, known_tails), heads, tails)
            certified = self.relation[left, right]
            self.cuts += len(texts)
            self.certified += int(np.count_nonzero(certified))
            self.changing[left[wrong], right[wrong]] = True
            failing = np.flatnonzero(wrong & certified)
            self.failed += len(failing)
            found += [(i, cut, known_heads[heads[i]] + known_tails[tails[i]]) for i in failing[: self._room].tolist()]
        self._keep(Failure(texts[i], cut, whole[i], got) for i, cut, got in sorted(found))

    @property
    def _room(self) -> int:
        return KEPT - len(self.failures)

    def _keep(self, failures: Iterable[Failure]) -> None:
        self.failures += itertools.islice(failures, self._room)

    def result(self, length: int) -> Enumeration:
        """All of it, when every string up to a length was added."""
        lefts, rights = np.nonzero(~self.relation & ~self.changing)
        left = [(self.characters[i], self.characters[j]) for i, j in zip(lefts, rights, strict=True)]
        return Enumeration(
            length=length,
            representatives=self.characters,
            strings=self.strings,
            cuts=self.cuts,
            certified=self.certified,
            failures=tuple(self.failures),
            failed=self.failed,
            left=tuple(left),
        )
