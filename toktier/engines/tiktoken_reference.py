"""The reference of tokenizers that tiktoken defines: there, tiktoken itself is right by definition.

Ids are those of ``encoding.encode(text, allowed_special="all")``. The library is one of the fast ones. Engines that
need the definition of a ``tokenizers.Tokenizer`` do not serve such a family: there is none.
"""

from __future__ import annotations

import codecs
from collections.abc import Callable, Iterable, Sequence
from typing import NoReturn, cast

import numpy as np
import tiktoken
import tokenizers
from attrs import frozen

from toktier.engines.base import Ids, Inapplicable, failure
from toktier.engines.literals import Finder
from toktier.engines.reference import ReferenceEngine
from toktier.engines.special import Counted, SpecialAsText
from toktier.errors import UnknownEngine, Unprotectable
from toktier.families.definition import Definition
from toktier.families.family import Family, valid_text
from toktier.families.formats.probe import TiktokenProbe
from toktier.families.formats.ranked import saved
from toktier.families.literal import Literal
from toktier.families.probing import DiskCache, Probe


class TiktokenReference(ReferenceEngine):
    """Encodes with a ``tiktoken.Encoding``; special tokens in a text are special tokens.

    Args:
        encoding: The library's encoding. Nobody else may change it.
        literals: Its special tokens.
        family: What it serves, if that is known.

    Example:
        >>> from toktier.families.formats.ranked import RankedBPE
        >>> ranks = {bytes((value,)): value for value in range(256)}
        >>> ranked = RankedBPE("an example", ".", ranks, {"<s>": 256})
        >>> engine = TiktokenReference(ranked.encoding, ranked.literals)
        >>> engine.encode("Hi<s>")
        array([ 72, 105, 256], dtype=uint32)
        >>> engine.tokenizer.decode([72, 105, 256], skip_special_tokens=True)
        'Hi'
    """

    reason = "admitted: it is the definition of correct (tiktoken)"
    is_fast = True
    tokens_are_bytes = True

    def __init__(self, encoding: tiktoken.Encoding, literals: Iterable[Literal], family: Family | None = None) -> None:
        self.digest = None if family is None else family.digest
        self.encoding = encoding
        self._special_tokens = Finder(literals)
        self.finds_longest = self._special_tokens.unambiguous  # where no two can begin at one place
        self.tokenizer = cast(tokenizers.Tokenizer, Standin(encoding))

    def encode(self, text: str, *, continuation: bool = False) -> Ids:
        """The ids of a text, uint32, shape (tokens,).

        Raises:
            InvalidText: The text has a lone surrogate, which the library would replace.
            EngineFailure: The library cannot encode it: a byte is no token, or a match needs more memory than it takes.
        """
        text = valid_text(text)
        try:
            special = self._special_tokens
            if not special.ids:  # without any, the other call would look for them at every place
                return np.array(self.encoding.encode_ordinary(text), np.uint32)
            # The library copies the set on every call, and those that are not there need not be in it. Where two begin
            # alike, it is for the library to say which of them it finds.
            allowed = special.found(text) if special.unambiguous else self.encoding.special_tokens_set
            ids: Ids = self.encoding.encode_to_numpy(text, allowed_special=allowed, disallowed_special=())
        except BaseException as error:
            raise failure("tiktoken", error, len(text)) from None
        return ids

    def encode_batch(self, texts: Sequence[str], *, continuation: bool = False) -> list[Ids]:
        """The ids of several texts."""
        return [self.encode(text) for text in texts]

    def listed(self, text: str) -> list[int]:
        """The ids of a text as a list: what the library gives fastest is an array."""
        ids: list[int] = self.encode(text).tolist()
        return ids

    def token(self, id: int) -> bytes:
        """The bytes that an id stands for; empty for none."""
        try:
            return self.encoding.decode_single_token_bytes(id)
        except KeyError:
            return b""

    def saved(self) -> str:
        """The ranks, the pattern and the special tokens."""
        return saved(self.encoding)

    def probe(self, cache: DiskCache) -> Probe:
        """Where the library is asked what its classes of characters contain."""
        return TiktokenProbe(cache)

    def stream(self) -> Callable[[int], str | None]:
        """A function that takes ids one by one, and gives the text that is complete then, or None while none is.

        Example:
            >>> import toktier
            >>> ranks = {bytes((value,)): value for value in range(256)}
            >>> encoding = tiktoken.Encoding("bytes", pat_str=".", mergeable_ranks=ranks, special_tokens={})
            >>> list(map(toktier.load(encoding).engine("reference").stream(), "hé".encode()))
            ['h', None, 'é']
        """
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        return lambda id: decoder.decode(self.encoding.decode_single_token_bytes(id)) or None

    @property
    def special_is_text(self) -> bool:
        """No setting makes it so."""
        return False

    def special_as_text(self, definition: Definition, cache: DiskCache) -> SpecialAsText:
        """What encodes a text in which some special tokens are text.

        Raises:
            Unprotectable: One special token begins like another, and which of them is found is the library's to say.
        """
        if not self.finds_longest:
            raise Unprotectable(
                "one of its special tokens begins like another, and tiktoken does not say which it finds"
            )
        return _Stretches(self)

    def encode_with_special_tokens(self, text: str) -> Ids:
        """The ids of a text: such a tokenizer has no post-processor that would add any."""
        return self.encode(text)

    @property
    def post_processor(self) -> None:
        """There is none."""
        return None


@frozen
class _Stretches:
    """Encodes a text in which special tokens are text, but for some: what is between those by itself."""

    engine: TiktokenReference

    def encode(self, text: str, counted: Sequence[Counted], *, add_special_tokens: bool = False) -> Ids:
        """The ids of a text; uint32, shape (tokens,). There is no post-processor."""
        encoded, at = list[int](), 0
        for start, stop, id in counted:
            encoded += [*self._ordinary(text[at:start]), id]
            at = stop
        return np.array(encoded + self._ordinary(text[at:]), np.uint32)

    def _ordinary(self, text: str) -> list[int]:
        try:
            return self.engine.encoding.encode_ordinary(text)
        except BaseException as error:
            raise failure("tiktoken", error, len(text)) from None


class NoTokenizer(Inapplicable, UnknownEngine):
    """Something needs a ``tokenizers.Tokenizer`` where there is none."""


@frozen
class Standin:
    """What such a reference has in the place of a ``tokenizers.Tokenizer``: it decodes, and is nothing else.

    Raises:
        NoTokenizer: Anything else is asked of it.
    """

    encoding: tiktoken.Encoding

    def decode(self, ids: Sequence[int], skip_special_tokens: bool = True) -> str:
        """The text of ids, with U+FFFD for bytes that are no UTF-8.

        Raises:
            KeyError: An id belongs to no token.
        """
        if skip_special_tokens:
            ids = [id for id in ids if not self.encoding.is_special_token(id)]
        return self.encoding.decode(ids)

    def __getattr__(self, name: str) -> NoReturn:
        if name.startswith("__"):
            raise AttributeError(name)
        raise NoTokenizer("the reference of this tokenizer is tiktoken: it has no tokenizers.Tokenizer")
