"""A tokenizer family: the frozen result of the derivation, and what everything else receives."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
from attrs import field, frozen

from toktier.errors import InvalidText
from toktier.families.definition import Definition
from toktier.families.pattern import Unsupported
from toktier.families.probing import Probe
from toktier.families.synchronizing import synchronize

Table: TypeAlias = npt.NDArray[np.uint8] | npt.NDArray[np.uint16]
"""The atom of every code point, in the narrowest type that holds them all; shape (0x110000,)."""


RANKED = ((0x61, 0x7B), (0x21, 0x61), (0x7B, 0x7F), (0xA0, 0xD800), (0xE000, 0x110000), (0, 0x21), (0x7F, 0xA0))
"""All characters: letters first, and last what may be treated in a way of its own."""


@frozen(eq=False)
class Family:
    """What a tokenizer is: its identity, and where texts may be cut for it. Immutable, and knows no engine.

    A cut at ``i`` is *certified* when the ids of the text are those of ``text[:i]`` followed by those of ``text[i:]``
    because of the two characters around it alone, so that the same holds in every text that contains them.

    Made by :func:`toktier.load`. Source: ``docs/theory.md``, which has the definition and the proof.

    Attributes:
        definition: The pipeline that was read from the tokenizer's file.
        reason: Why there are no certified cuts for this tokenizer; None when it is supported.
        atoms: The number of character classes that the relation tells apart.
        prefixed: Whether the tokenizer puts a prefix before a text, so that what continues one at a cut has other ids
            than the same text by itself; see :meth:`lead`.

    Example:
        >>> import toktier
        >>> family = toktier.load("toktier-mini").family
        >>> family.is_cut("a pipeline", 1), family.is_cut("a pipeline", 6)
        (True, False)
        >>> family.cuts("Cut me, please!").tolist()
        [3, 6, 7, 14]
    """

    definition: Definition
    reason: str | None
    atoms: int
    prefixed: bool
    _table: Table = field(repr=False)
    """The atom of every code point; shape (0x110000,)."""
    _pairs: npt.NDArray[np.bool_] = field(repr=False)
    """Whether a pair of atoms is a cut, at ``left * atoms + right``; shape (atoms * atoms,)."""
    _atom: memoryview = field(repr=False)
    _is_pair: bytes = field(repr=False)
    _leads: tuple[str | None, ...] = field(repr=False)
    """For each atom a character behind which it may be cut off, if there is one; shape (atoms,)."""

    @classmethod
    def derive(cls, definition: Definition, probe: Probe) -> Family:
        """Derives the family of a definition; one that is not understood gets no cuts and a reason.

        Args:
            definition: What to derive from.
            probe: Where the reference library is asked what its character classes contain.

        Returns:
            The family. Deriving takes some tenths of a second once the probe's cache is filled.

        Example:
            >>> import toktier
            >>> from toktier.families.probing import DiskCache, Probe, default_cache_directory
            >>> family, probe = toktier.load("toktier-mini").family, Probe(DiskCache(default_cache_directory()))
            >>> Family.derive(family.definition, probe).cuts("to day").tolist() == family.cuts("to day").tolist()
            True
        """
        reason, prefixed = definition.reason, False
        table, pairs = np.zeros(0x110000, np.int32), np.zeros((1, 1), bool)
        if reason is None:
            try:
                result = synchronize(definition, probe)
                table, pairs, prefixed = result.relation.table, result.relation.pairs, result.prefixed
            except Unsupported as error:
                reason = str(error)
        narrow: Table = table.astype(np.uint8) if len(pairs) <= 256 else table.astype(np.uint16)
        flat = pairs.reshape(-1)
        for array in (narrow, flat):
            array.setflags(write=False)
        leads = _leads(table, pairs) if prefixed else ()
        return cls(definition, reason, len(pairs), prefixed, narrow, flat, narrow.data, flat.tobytes(), leads)

    @property
    def digest(self) -> str:
        """The identity of the family, however its file is written; SHA-256 of the canonical definition, hexadecimal."""
        return self.definition.digest

    @property
    def source_digest(self) -> str:
        """The SHA-256 of the bytes that the family was first read from, hexadecimal."""
        return self.definition.source_digest

    @property
    def supported(self) -> bool:
        """Whether the definition was understood. If not, everything works, by encoding in full."""
        return self.reason is None

    @property
    def table(self) -> Table:
        """The atom of every code point, read-only; uint8, or uint16 beyond 256 atoms, shape (0x110000,)."""
        return self._table

    @property
    def pairs(self) -> npt.NDArray[np.bool_]:
        """Whether two atoms are a certified cut, ``pairs[left, right]``; read-only, bool, shape (atoms, atoms)."""
        return self._pairs.reshape(self.atoms, self.atoms)

    @property
    def sync_pairs(self) -> int:
        """The number of pairs of atoms that are certified cuts."""
        return int(np.count_nonzero(self._pairs))

    def alphabet(self) -> tuple[tuple[range, ...], ...]:
        """The characters of each atom, as ascending ranges of code points, half-open; surrogates have an atom too.

        Characters of one atom are alike to :meth:`is_pair`, so one of each is enough to see the whole relation.

        Example:
            >>> import toktier
            >>> family = toktier.load("toktier-mini").family
            >>> alphabet = family.alphabet()
            >>> len(alphabet) == family.atoms
            True
            >>> [atom for atom in alphabet if ord("<") in atom[0]]
            [(range(60, 61),)]
        """
        edges = np.flatnonzero(np.diff(self._table)) + 1
        starts = [0, *edges.tolist()]
        ranges: list[list[range]] = [[] for _ in range(self.atoms)]
        for start, stop in zip(starts, [*starts[1:], len(self._table)], strict=True):
            ranges[self._atom[start]].append(range(start, stop))
        return tuple(map(tuple, ranges))

    def is_cut(self, text: str, i: int, *, continuation: bool = False) -> bool:
        """Whether a text may be cut before its character ``i``.

        Args:
            text: Any text.
            i: A position with a character on both sides, ``0 < i < len(text)``.
            continuation: Whether what is behind may be encoded without a prefix; see :meth:`cuts`.

        Raises:
            IndexError: There is no character on one of the sides.

        Example:
            >>> import toktier
            >>> family = toktier.load("toktier-mini").family
            >>> family.is_cut("to day", 2), family.is_cut("to day", 3)
            (True, False)
        """
        if not 0 < i < len(text):
            raise IndexError(f"a cut needs a character on both sides: position {i} in a text of {len(text)} characters")
        return (continuation or not self.prefixed) and self.is_pair(text[i - 1], text[i])

    def is_pair(self, left: str, right: str) -> bool:
        """Whether every text may be cut between these two characters.

        Args:
            left: A string of one character.
            right: The one behind it.

        Raises:
            TypeError: One of the two is not one character.

        Example:
            >>> import toktier
            >>> toktier.load("toktier-mini").family.is_pair("o", " ")
            True
        """
        atom = self._atom
        return bool(self._is_pair[atom[ord(left)] * self.atoms + atom[ord(right)]])

    def lead(self, text: str) -> str | None:
        """A character behind which a text may be cut off, for tokenizers that put a prefix before every text.

        The ids of a text that continues another one are those of ``lead(text) + text``, less those of ``lead(text)``;
        which character it is makes no difference.

        Args:
            text: What comes behind the cut; only its first character counts.

        Returns:
            The character; None when the text can stand behind no certified cut, or is empty, or the tokenizer puts no
            prefix before a text.

        Example:
            >>> import toktier
            >>> print(toktier.load("toktier-mini").family.lead(" world"))  # it puts no prefix before a text
            None
        """
        if not self._leads or not text:
            return None
        return self._leads[self._atom[ord(text[0])]]

    def cuts(self, text: str, *, continuation: bool = False) -> npt.NDArray[np.int64]:
        """All certified cuts of a text.

        Args:
            text: Any text.
            continuation: Also those behind which the text is to be encoded without the prefix that the tokenizer puts
                before every text (:meth:`lead`): all cuts of a tokenizer that does so, which has no others.

        Returns:
            Positions in ascending order, in characters; a new array, int64, shape (cuts,).

        Raises:
            TypeError: It is not a string.
            InvalidText: The text has a lone surrogate.

        Example:
            >>> import toktier
            >>> toktier.load("toktier-mini").family.cuts("Cut me, please!")
            array([ 3,  6,  7, 14])
        """
        atoms = self._table.take(code_points(text))
        if self.prefixed and not continuation:
            return np.zeros(0, np.int64)
        pairs = atoms[:-1].astype(np.intp)
        pairs *= self.atoms
        pairs += atoms[1:]
        return np.flatnonzero(self._pairs.take(pairs)).astype(np.int64) + 1

    def last_cut(self, text: str, start: int, stop: int) -> int:
        """The last certified cut ``i`` with ``start < i <= stop``, or ``start`` when there is none.

        Looks back from ``stop`` one character at a time: in real text that is a handful. A cut behind which the text is
        to be encoded without the tokenizer's prefix counts; see :meth:`cuts`.

        Args:
            text: Any text.
            start: The position that is given where there is no cut.
            stop: The position from which to look back; one behind the text is taken for its last.

        Example:
            >>> import toktier
            >>> family = toktier.load("toktier-mini").family
            >>> family.last_cut("Cut me, please!", 0, 12), family.last_cut("Cut me, please!", 0, 2)
            (7, 0)
        """
        stop = min(stop, len(text) - 1)
        if self.reason is not None or stop <= start:
            return start
        atom, is_pair, atoms = self._atom, self._is_pair, self.atoms
        right = atom[ord(text[stop])]
        for at in range(stop - 1, start - 1, -1):
            left = atom[ord(text[at])]
            if is_pair[left * atoms + right]:
                return at + 1
            right = left
        return start


def _leads(table: npt.NDArray[np.int32], pairs: npt.NDArray[np.bool_]) -> tuple[str | None, ...]:
    """For each atom a character that is related to it on its left: a letter of ASCII, if possible."""
    ranked = np.concatenate([np.arange(start, stop) for start, stop in RANKED])
    first = np.full(len(pairs), len(ranked))
    np.minimum.at(first, table[ranked], np.arange(len(ranked)))
    order = np.argsort(first)
    order = order[first[order] < len(ranked)]  # less the atoms that have nothing but surrogates
    points = ranked[first[order[pairs[order].argmax(axis=0)]]]
    exists = np.logical_or.reduce(pairs[order], axis=0)
    return tuple(chr(point) if it else None for point, it in zip(points.tolist(), exists.tolist(), strict=True))


def finder(points: Iterable[int]) -> Callable[[str], bool]:
    """Whether a text has one of some code points: a function that looks each character up in a table.

    Example:
        >>> has_vowel = finder(map(ord, "aeiou"))
        >>> has_vowel("rhythm"), has_vowel("rhyme")
        (False, True)
    """
    # Not a regular expression: those try one range after the other for every character beyond U+FFFF.
    chosen = np.zeros(0x110000, bool)
    chosen[np.fromiter(points, np.intp)] = True
    return lambda text: bool(chosen.take(code_points(text)).any())


def code_points(text: str) -> npt.NDArray[np.uint8 | np.uint32]:
    """The code points of a text, one element a character.

    Raises:
        TypeError: It is not a string.
        InvalidText: It has a lone surrogate.
    """
    text = valid_text(text)
    if text.isascii():
        return np.frombuffer(text.encode("ascii"), np.uint8)
    return np.frombuffer(text.encode("utf-32-le"), np.uint32)


def valid_text(text: str, *, before: int = 0) -> str:
    """The text itself, when it can be encoded; a plain ``str`` where a subclass was given, whose methods could differ.

    Args:
        text: The text, or the part of it that was not checked yet.
        before: The number of characters that stand before ``text``; the position of an error counts them.

    Raises:
        TypeError: It is not a string.
        InvalidText: It has a lone surrogate.
    """
    if not isinstance(text, str):
        raise TypeError(f"text must be str, not {type(text).__name__}")
    if type(text) is not str:
        text = str.__str__(text)
    if not text.isascii():
        try:
            text.encode("utf-8")
        except UnicodeEncodeError as error:
            raise InvalidText(text[error.start], before + error.start) from None
    return text
