"""A byte-level BPE as tiktoken defines one: a pattern, the rank of each token's bytes, and special tokens.

Rank files, ``tekken.json`` and ``tiktoken.Encoding`` all come down to this. What it means is what tiktoken makes of it:
special tokens are found first, the leftmost; between them, each match of the pattern is a piece, and what no match
covers is dropped; a piece that is a token is that token, and in any other the two neighbours with the lowest rank are
merged until there are none.
"""

from __future__ import annotations

import base64
import functools
import hashlib
import json
from collections.abc import Mapping
from itertools import pairwise
from typing import Any

import tiktoken
from attrs import frozen

from toktier.errors import InvalidDefinition
from toktier.families.definition import Definition
from toktier.families.formats.fancy import FancyRegex
from toktier.families.literal import Literal
from toktier.families.pattern import Unsupported, parse
from toktier.families.stages import ByteLevel, Pieces, PreTokenizer, Splitter

MOST = 2**32 - 2
"""The highest id: the library needs the next one for itself."""

RANKED = '{"pat_str": '
"""What the text of a saved encoding begins with, as no ``tokenizer.json`` does."""


@frozen(eq=False, slots=False)
class RankedBPE:
    r"""What tiktoken encodes with.

    Attributes:
        where: The name of what it was read from, for messages.
        pattern: What divides a text into pieces.
        ranks: The id of each token, by its bytes; the lower, the earlier it is merged.
        special_tokens: The ids of the texts that are found before anything else.

    Raises:
        InvalidDefinition: A token or an id is malformed; the message says which.

    Example:
        >>> tiny = RankedBPE("an example", r"\w+|\W+", {b"a": 0, b"b": 1, b"ab": 2}, {"<s>": 3})
        >>> tiny.encoding.encode("ab<s>ba", allowed_special="all")
        [2, 3, 1, 0]
        >>> tiny.definition("0" * 64).stages
        ('special tokens: 1', 'pattern \\w+|\\W+', 'model BPE: 3 ranks')
    """

    where: str
    pattern: str
    ranks: Mapping[bytes, int]
    special_tokens: Mapping[str, int]

    def __attrs_post_init__(self) -> None:
        self._refuse_malformed()

    @functools.cached_property
    def encoding(self) -> tiktoken.Encoding:
        """The library's own object.

        Raises:
            InvalidDefinition: The library refuses it.
        """
        try:
            return tiktoken.Encoding(
                "toktier",
                pat_str=self.pattern,
                mergeable_ranks=dict(self.ranks),
                special_tokens=dict(self.special_tokens),
            )
        except BaseException as error:  # a panic of the library is no Exception
            if isinstance(error, (KeyboardInterrupt, SystemExit, MemoryError)):
                raise
            raise InvalidDefinition(
                f"{self.where}: tiktoken refuses it, with the pattern {self.pattern!r}: {error}"
            ) from None

    @functools.cached_property
    def digest(self) -> str:
        """SHA-256 of everything that ids depend on, hexadecimal."""
        ranks = hashlib.sha256()
        for token, rank in sorted(self.ranks.items(), key=lambda item: item[1]):
            ranks.update(rank.to_bytes(4, "little") + len(token).to_bytes(4, "little") + token)
        # Which of two begins the library prefers depends on the order in which it was given them.
        special = list(self.special_tokens.items())
        ordered = special if self.ambiguity else sorted(special)
        canonical = json.dumps(["tiktoken", self.pattern, ranks.hexdigest(), ordered])
        return hashlib.sha256(canonical.encode()).hexdigest()

    @property
    def literals(self) -> tuple[Literal, ...]:
        """The special tokens, by id."""
        return tuple(
            Literal(id, content, special=True, normalized=False, lstrip=False, rstrip=False, single_word=False)
            for content, id in sorted(self.special_tokens.items(), key=lambda item: (item[1], item[0]))
        )

    @property
    def ambiguity(self) -> tuple[str, str] | None:
        """Two special tokens of which one begins with the other, if there are any."""
        pairs = pairwise(sorted(self.special_tokens))
        return next((pair for pair in pairs if pair[1].startswith(pair[0])), None)

    def definition(self, source_digest: str) -> Definition:
        """What the derivation of cuts begins with.

        Args:
            source_digest: SHA-256 of the bytes that it was read from, hexadecimal.
        """
        reason: str | None = None
        pre_tokenizers: tuple[PreTokenizer, ...] = ()
        try:
            pre_tokenizers = Splitter("pattern", parse(self.pattern, FancyRegex), Pieces.MATCHES), ByteLevel()
        except Unsupported as error:
            reason = f"pattern: {error}"
        if self.ambiguity is not None:
            short, long = self.ambiguity
            reason = f"special token {long!r} begins with {short!r}, and which of them is found is left to chance"
        return Definition(
            literals=self.literals,
            superseded=(),
            normalizer=None,
            normalizers=(),
            pre_tokenizers=pre_tokenizers,
            byte_level=True,
            model="BPE",
            joins=None,
            undivided=None,
            stages=(
                f"special tokens: {len(self.special_tokens):,}",
                f"pattern {self.pattern}",
                f"model BPE: {len(self.ranks):,} ranks",
            ),
            reason=reason,
            digest=self.digest,
            source_digest=source_digest,
        )

    def _refuse_malformed(self) -> None:
        """Makes sure of what the library takes for granted.

        Raises:
            InvalidDefinition: The library would panic, or never come to an end.
        """
        ranks: Mapping[Any, Any] = self.ranks
        special_tokens: Mapping[Any, Any] = self.special_tokens
        if not ranks:
            raise InvalidDefinition(f"{self.where}: no token has a rank")
        of: dict[int, bytes | str] = {}
        for token, rank in ranks.items():
            if not isinstance(token, bytes) or not _is_id(rank):
                raise InvalidDefinition(f"{self.where}: token {token!r}: its rank {rank!r} is not one")
            if (other := of.setdefault(rank, token)) != token:
                raise InvalidDefinition(f"{self.where}: tokens {other!r} and {token!r}: both have the rank {rank}")
        for content, id in special_tokens.items():
            if not isinstance(content, str) or not _is_id(id):
                raise InvalidDefinition(f"{self.where}: special token {content!r}: its id {id!r} is not one")
            if not content:
                raise InvalidDefinition(f"{self.where}: special token '' is empty and would be found everywhere")
            if (taken := of.setdefault(id, content)) != content:
                raise InvalidDefinition(f"{self.where}: special token {content!r}: {taken!r} has its id {id} already")


def of_encoding(encoding: tiktoken.Encoding) -> RankedBPE:
    """What an encoding of the library is, as it would be once pickled; what becomes of the object plays no part.

    Example:
        >>> encoding = tiktoken.Encoding("ab", pat_str=".", mergeable_ranks={b"a": 0, b"b": 1}, special_tokens={})
        >>> of_encoding(encoding).ranks
        {b'a': 0, b'b': 1}
    """
    where = f"tiktoken.Encoding {encoding.name!r}"
    return RankedBPE(where, encoding._pat_str, dict(encoding._mergeable_ranks), dict(encoding._special_tokens))


def saved(encoding: tiktoken.Encoding) -> str:
    """An encoding as a JSON object that :func:`restored` reads, such as reproductions of a difference are kept with.

    Example:
        >>> encoding = tiktoken.Encoding("ab", pat_str=".", mergeable_ranks={b"a": 0, b"b": 1}, special_tokens={})
        >>> saved(encoding)
        '{"pat_str": ".", "mergeable_ranks": [["YQ==", 0], ["Yg==", 1]], "special_tokens": {}}'
        >>> restored(saved(encoding)).encode("ab")
        [0, 1]
    """
    ranks = [[base64.b64encode(token).decode(), rank] for token, rank in encoding._mergeable_ranks.items()]
    return json.dumps(
        {"pat_str": encoding._pat_str, "mergeable_ranks": ranks, "special_tokens": encoding._special_tokens}
    )


def restored(text: str) -> tiktoken.Encoding:
    """The encoding that :func:`saved` was given."""
    state = json.loads(text)
    ranks = {base64.b64decode(token): rank for token, rank in state.pop("mergeable_ranks")}
    return tiktoken.Encoding("toktier", mergeable_ranks=ranks, **state)


def _is_id(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= MOST
