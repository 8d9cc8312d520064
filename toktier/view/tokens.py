"""What the ids of a text stand for, and where in the text each of them stands.

Two ways lead to the places. Where the bytes of the tokens, one after the other, are the bytes of the text, the places
follow from their lengths: so it is with byte-level BPE and with tiktoken, also where a character is divided among
several tokens. Everything else, what a normalizer changes or drops, is asked of the reference library; where some of
the text's special tokens are text, of a copy that is given a mark in the place of each that counts.
"""

from __future__ import annotations

import copy
import functools
import secrets
import typing
from collections.abc import Iterable, Sequence
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import tokenizers
from attrs import frozen

from toktier.engines.base import Ids
from toktier.engines.continuing import lead_of
from toktier.engines.special import MARK, Counted
from toktier.errors import EngineFailure
from toktier.families.bytelevel import BYTE, byte_alphabet
from toktier.families.literal import Literal
from toktier.tokenizer import Tokenizer
from toktier.untrusted import Spans

Positions: TypeAlias = npt.NDArray[np.int64]

Kind: TypeAlias = typing.Literal["token", "added", "special"]


@frozen
class Meaning:
    """What an id stands for.

    Attributes:
        piece: The token as its vocabulary writes it; one that the vocabulary does not have is empty.
        data: Its bytes: for byte-level vocabularies and tiktoken those of the text it stands for, else those of the
            piece as it is written.
        kind: ``"added"`` for an added token, ``"special"`` for one that is special, too.
    """

    piece: str
    data: bytes
    kind: Kind


@frozen(eq=False)
class Places:
    """Where tokens stand in a text: token ``i`` stands for some of the characters ``text[starts[i]:stops[i]]``.

    Both ascend. Tokens that share a character overlap; what no token stands for, such as whitespace that a
    pre-tokenizer drops, lies between two of them.

    Attributes:
        starts: The first character of each, shape (tokens,).
        stops: The one behind the last of each, shape (tokens,).

    Example:
        >>> import toktier
        >>> tok = toktier.load("toktier-mini")
        >>> places = Finder(tok).places("A day", tok.encode("A day"))
        >>> [*zip(places.starts.tolist(), places.stops.tolist())]
        [(0, 1), (1, 5)]
    """

    starts: Positions
    stops: Positions


class OtherIds(Exception):
    """The library gave other ids for a part of a text than the whole has there."""


class Finder:
    """Says what ids stand for, and where.

    Args:
        tok: The tokenizer.

    Example:
        >>> import toktier
        >>> tok = toktier.load("toktier-mini")
        >>> finder, ids = Finder(tok), tok.encode("A day")
        >>> [finder.meaning(id).piece for id in ids.tolist()]
        ['A', 'Ġday']
        >>> places = finder.places("A day", ids)
        >>> places.starts.tolist(), places.stops.tolist()
        ([0, 1], [1, 5])
    """

    def __init__(self, tok: Tokenizer) -> None:
        self._tok = tok
        self._meanings: dict[int, Meaning] = {}
        self._added = {literal.id: literal for literal in tok.family.definition.literals}
        self._alphabet = byte_alphabet() if tok.family.definition.byte_level else {}
        self._library: tokenizers.Tokenizer | None = None
        self._marked: _Marked | None = None

    @property
    def has_bytes_of_the_text(self) -> bool:
        """Whether the bytes of a token are those of the text, and not of a piece that is written otherwise."""
        return bool(self._alphabet) or self._tok.reference.tokens_are_bytes

    def meaning(self, id: int) -> Meaning:
        """What an id stands for."""
        found = self._meanings.get(id)
        if found is None:
            found = self._meanings[id] = self._looked_up(id)
        return found

    def _looked_up(self, id: int) -> Meaning:
        if id in self._added:
            literal = self._added[id]
            return Meaning(literal.content, literal.content.encode(), "special" if literal.special else "added")
        piece = self._tok.reference.token(id)
        if isinstance(piece, bytes):
            return Meaning(piece.decode("utf-8", "backslashreplace"), piece, "token")
        if self._alphabet and set(piece) <= self._alphabet.keys():
            return Meaning(piece, bytes(map(self._alphabet.__getitem__, piece)), "token")
        byte = BYTE.fullmatch(piece)
        return Meaning(piece, bytes.fromhex(byte[1]) if byte else piece.encode(), "token")

    def places(self, text: str, ids: Ids, *, untrusted: Spans = (), continuation: bool = False) -> Places:
        """Where the ids of a text stand in it.

        Args:
            text: A text, or a part of one between certified cuts.
            ids: Its ids.
            untrusted: Its characters in which special tokens are text.
            continuation: Whether it continues another one, from which it was parted at a certified cut.

        Raises:
            OtherIds: The library does not give these ids for the text.
        """
        data = text.encode()
        meanings = [self.meaning(id).data for id in ids.tolist()]
        if b"".join(meanings) == data:
            return _by_bytes(data, map(len, meanings))
        if self._tok.reference.tokens_are_bytes:
            raise OtherIds
        return self._by_library(text, ids, untrusted, continuation=continuation)

    def _by_library(self, text: str, ids: Ids, untrusted: Spans, *, continuation: bool) -> Places:
        if self._library is None:
            self._library = _untrimmed(self._tok.reference.tokenizer)
        library, lead = self._library, lead_of(self._tok.family, text) if continuation else ""
        asked, edges, counted = text, np.arange(len(text) + 1), list[int]()
        if untrusted and self._tok.protection.is_forged(text, untrusted):
            if self._marked is None:
                self._marked = _Marked(library, self._added.values())
            library = self._marked.library
            asked, edges, counted = self._marked.text(text, self._tok.protection.counted(text, untrusted))
        encoding = library.encode(lead + asked, add_special_tokens=False)
        skipped = len(library.encode(lead, add_special_tokens=False).ids) if lead else 0
        found = encoding.ids[skipped:]
        if counted:
            assert self._marked is not None
            found = self._marked.ids(found, counted)
        if found != ids.tolist():
            raise OtherIds
        offsets = edges[np.maximum(np.array(encoding.offsets[skipped:], np.int64).reshape(-1, 2) - len(lead), 0)]
        # A normalizer that orders marks anew can have an offset step back.
        starts, stops = np.maximum.accumulate(offsets, axis=0).T
        if library.normalizer is not None and not text.isascii():
            stops = _with_composed(library.normalizer, text, starts, stops)
        return Places(starts, stops)


class _Marked:
    """The library with special tokens as text, and a mark for those that count: an added token that is not special.

    The library strips whitespace beside an added token or does not, so each way of that has a mark of its own.
    """

    def __init__(self, library: tokenizers.Tokenizer, literals: Iterable[Literal]) -> None:
        special = [literal for literal in literals if literal.special]
        # Of any length, but such that nobody can write one into a text.
        ways = {(token.lstrip, token.rstrip): MARK + secrets.token_hex(8) for token in special}
        self.library = copy.deepcopy(library)
        self.library.encode_special_tokens = True
        self.library.add_tokens(
            [
                tokenizers.AddedToken(mark, lstrip=lstrip, rstrip=rstrip, normalized=False, special=False)
                for (lstrip, rstrip), mark in ways.items()
            ]
        )
        self._marks = {token.id: ways[token.lstrip, token.rstrip] for token in special}
        self._ids = {self.library.token_to_id(mark) for mark in ways.values()}

    def text(self, text: str, counted: Sequence[Counted]) -> tuple[str, Positions, list[int]]:
        """A text with marks, what each position in it is in the text without, and the ids that the marks stand for."""
        parts, edges, at = list[str](), list[Positions](), 0
        for start, stop, id in counted:
            parts += text[at:start], self._marks[id]
            edges += np.arange(at, start), np.full(len(self._marks[id]), start)
            at = stop
        parts.append(text[at:])
        edges.append(np.arange(at, len(text) + 1))
        return "".join(parts), np.concatenate(edges), [token.id for token in counted]

    def ids(self, ids: list[int], counted: list[int]) -> list[int]:
        """Ids with those that count in the places of marks."""
        waiting = iter(counted)
        return [next(waiting) if id in self._ids else id for id in ids]


def _by_bytes(data: bytes, lengths: Iterable[int]) -> Places:
    """Places from the lengths of tokens in bytes. A token stands for each character of which it has a byte."""
    begins = (np.frombuffer(data, np.uint8) & 0xC0) != 0x80  # the bytes that are not inside a character
    edges = np.concatenate([[0], np.cumsum(np.fromiter(lengths, np.int64))])
    before = np.concatenate([[0], np.cumsum(begins)])  # characters that begin before each byte
    inside = ~np.append(begins, True)[edges[:-1]]
    return Places(before[edges[:-1]] - inside, before[edges[1:]])


def _with_composed(
    normalizer: tokenizers.normalizers.Normalizer, text: str, starts: Positions, stops: Positions
) -> Positions:
    """The ends of places with the characters behind them that a normalizer made one with the last in them.

    Where it composes, the library counts only the first: of ``e`` and a combining accent, the ``e``.
    """
    length = functools.cache(lambda part: len(normalizer.normalize_str(part)))
    stops = stops.copy()
    for token in np.flatnonzero(np.append(starts[1:], len(text)) > stops).tolist():
        stop, end = int(stops[token]), int(starts[token + 1]) if token + 1 < len(starts) else len(text)
        at = stop
        while at < end and stop and not text[at].isascii():
            if length(text[stop - 1 : at + 1]) >= length(text[stop - 1 : at]) + length(text[at]):
                break
            at += 1
        stops[np.searchsorted(stops, stop) : token + 1] = at
    return stops


def _untrimmed(library: tokenizers.Tokenizer) -> tokenizers.Tokenizer:
    """The same without a post-processor that takes the whitespace at the edge of a token out of its place."""
    if library.post_processor is None or b'"trim_offsets":true' not in library.post_processor.__getstate__():
        return library
    untrimmed = copy.deepcopy(library)
    untrimmed.encode_special_tokens = library.encode_special_tokens
    untrimmed.post_processor = None
    return untrimmed


def failure(text: str) -> EngineFailure:
    """What to raise where the places of a whole text cannot be found."""
    return EngineFailure(
        f"the reference library gave other ids when it was asked where the tokens of {len(text):,} characters stand: a"
        " model with dropout gives other ids each time"
    )
