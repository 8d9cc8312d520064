"""What the ids of a text stand for, and where in the text each of them stands.

Two ways lead to the places. Where the bytes of the tokens, one after the other, are the bytes of the text, the places
follow from their lengths: so it is with byte-level BPE and with tiktoken, also where a character is divided among
several tokens. Everything else, what a normalizer changes or drops, is asked of the reference library.
"""

from __future__ import annotations

import copy
import functools
from collections.abc import Iterable
from typing import Literal, TypeAlias

import numpy as np
import numpy.typing as npt
import tokenizers
from attrs import frozen

from toktier.engines.base import Ids
from toktier.engines.continuing import lead_of
from toktier.engines.tiktoken_reference import TiktokenReference
from toktier.errors import EngineFailure
from toktier.families.bytelevel import BYTE, byte_alphabet
from toktier.replay import reference_of
from toktier.tokenizer import Tokenizer

Positions: TypeAlias = npt.NDArray[np.int64]

Kind: TypeAlias = Literal["token", "added", "special"]


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
        engine = self._tok.engine("reference")
        if isinstance(engine, TiktokenReference):
            data = engine.encoding.decode_single_token_bytes(id)
            return Meaning(data.decode("utf-8", "backslashreplace"), data, "token")
        piece = reference_of(self._tok).id_to_token(id) or ""
        if self._alphabet and set(piece) <= self._alphabet.keys():
            return Meaning(piece, bytes(map(self._alphabet.__getitem__, piece)), "token")
        byte = BYTE.fullmatch(piece)
        return Meaning(piece, bytes.fromhex(byte[1]) if byte else piece.encode(), "token")

    def places(self, text: str, ids: Ids, *, continuation: bool = False) -> Places:
        """Where the ids of a text stand in it.

        Args:
            text: A text, or a part of one between certified cuts.
            ids: Its ids.
            continuation: Whether it continues another one, from which it was parted at a certified cut.

        Raises:
            OtherIds: The library does not give these ids for the text.
        """
        data = text.encode()
        meanings = [self.meaning(id).data for id in ids.tolist()]
        if b"".join(meanings) == data:
            return _by_bytes(data, map(len, meanings))
        if isinstance(self._tok.engine("reference"), TiktokenReference):
            raise OtherIds
        return self._by_library(text, ids, continuation=continuation)

    def _by_library(self, text: str, ids: Ids, *, continuation: bool) -> Places:
        if self._library is None:
            self._library = _untrimmed(reference_of(self._tok))
        lead = lead_of(self._tok.family, text) if continuation else ""
        encoding = self._library.encode(lead + text, add_special_tokens=False)
        skipped = len(self._library.encode(lead, add_special_tokens=False).ids) if lead else 0
        if encoding.ids[skipped:] != ids.tolist():
            raise OtherIds
        offsets = np.array(encoding.offsets[skipped:], np.int64).reshape(-1, 2) - len(lead)
        # A normalizer that orders marks anew can have an offset step back.
        starts, stops = np.maximum.accumulate(np.maximum(offsets, 0), axis=0).T
        if self._library.normalizer is not None and not text.isascii():
            stops = _with_composed(self._library.normalizer, text, starts, stops)
        return Places(starts, stops)


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
