"""The reference: Hugging Face ``tokenizers``, which is right by definition.

Where tiktoken defines a tokenizer it is :mod:`toktier.engines.tiktoken_reference`, and answers to the same: nobody has
to know which of the two it is.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import tokenizers

from toktier.engines.base import Ids, failure
from toktier.engines.continuing import encode_continuing
from toktier.engines.special import Aliases, SpecialAsText, refuse_what_the_model_gives
from toktier.families.definition import Definition
from toktier.families.family import Family, valid_text
from toktier.families.probing import DiskCache, Probe

PARALLEL = 1 << 15
"""Characters from which on the library's threads are worth being woken: on a busy machine that takes milliseconds."""


class ReferenceEngine:
    """Encodes with the tokenizer's own definition, without special tokens, truncation and padding.

    Args:
        tokenizer: The library's tokenizer. It becomes the engine's own: its truncation and padding are switched off.
        family: What it serves, if that is known; needed for texts that continue others.

    Example:
        >>> import tokenizers, toktier.families.mini
        >>> engine = ReferenceEngine(tokenizers.Tokenizer.from_file(str(toktier.families.mini.path())))
        >>> engine.encode("Hello").tolist() == engine.tokenizer.encode("Hello", add_special_tokens=False).ids
        True
    """

    name = "reference"
    reason = "admitted: it is the definition of correct"
    is_fast = False
    """Whether it takes less time than an engine that remembers what it gave."""
    finds_longest = True
    """Whether it finds the longest of the special tokens that begin at a place."""
    tokens_are_bytes = False
    """Whether tokens are bytes of the text, whatever that is, and nothing else says where they stand in it."""

    def __init__(self, tokenizer: tokenizers.Tokenizer, family: Family | None = None) -> None:
        tokenizer.no_truncation()
        tokenizer.no_padding()
        self.tokenizer = tokenizer
        self._family = family
        self.digest = None if family is None else family.digest

    def __repr__(self) -> str:
        return f"<toktier engine {self.name}: {self.reason}>"

    def probe(self, cache: DiskCache) -> Probe:
        """Where the library is asked what its classes of characters contain."""
        return Probe(cache)

    @property
    def special_is_text(self) -> bool:
        """Whether special tokens are text in any text, since the tokenizer was loaded with that setting."""
        return bool(self.tokenizer.encode_special_tokens)

    def special_as_text(self, definition: Definition, cache: DiskCache) -> SpecialAsText:
        """What encodes a text in which some special tokens are text.

        Args:
            definition: What this engine was made from.
            cache: Keeps what the library was asked.

        Raises:
            Unprotectable: Special tokens are found in a way that does not allow for it.
        """
        aliases = Aliases(self.tokenizer, definition)
        refuse_what_the_model_gives(self.tokenizer, definition, self.probe(cache))
        return aliases

    def encode(self, text: str, *, continuation: bool = False) -> Ids:
        """The ids of a text, uint32, shape (tokens,)."""
        return self._batch([text])[0] if not continuation else self.encode_batch([text], continuation=True)[0]

    def encode_batch(self, texts: Sequence[str], *, continuation: bool = False) -> list[Ids]:
        """The ids of several texts, on all cores if they are long."""
        if continuation and self._family is not None:
            return encode_continuing(self._family, self, texts, [True] * len(texts), self.encode_batch)
        if sum(map(len, texts)) < PARALLEL:
            return [self._batch([text])[0] for text in texts]
        return self._batch(list(texts))

    def listed(self, text: str) -> list[int]:
        """The ids of a text by the library's fastest call for one, with nothing done to what it gives.

        Example:
            >>> import toktier
            >>> toktier.load("toktier-mini").engine("reference").listed("Hello")
            [39, 523, 323]
        """
        # The plain call, which also computes offsets, takes up to twice as long.
        ids: list[int] = self.tokenizer.encode_batch_fast([text], add_special_tokens=False)[0].ids
        return ids

    def stream(self) -> Callable[[int], str | None]:
        """A function that takes ids one by one, and gives the text that is complete then, or None while none is.

        Example:
            >>> import toktier
            >>> tok = toktier.load("toktier-mini")
            >>> list(map(tok.engine("reference").stream(), tok.encode("h中").tolist()))
            ['h', None, None, '中']
        """
        decoder = tokenizers.decoders.DecodeStream(skip_special_tokens=False)
        return lambda id: decoder.step(self.tokenizer, id)

    def token(self, id: int) -> str | bytes:
        """What an id stands for in the vocabulary: the piece as the model writes it, or its bytes; empty for none.

        Example:
            >>> import toktier
            >>> reference = toktier.load("toktier-mini").reference
            >>> reference.token(39), reference.token(10**6)
            ('H', '')
        """
        return self.tokenizer.id_to_token(id) or ""

    def saved(self) -> str:
        """What the library was made from, as a text of one line that another process can make it from.

        All but ``encode_special_tokens``, which the library does not save: :attr:`special_is_text` has that.
        """
        return self.tokenizer.to_str()

    def encode_with_special_tokens(self, text: str) -> Ids:
        """The ids of a text with what the tokenizer's own post-processor adds, uint32, shape (tokens,)."""
        return self._batch([text], add_special_tokens=True)[0]

    @property
    def post_processor(self) -> tokenizers.processors.PostProcessor | None:
        """What adds special tokens around a text."""
        processor: tokenizers.processors.PostProcessor | None = self.tokenizer.post_processor
        return processor

    def _batch(self, texts: list[str], *, add_special_tokens: bool = False) -> list[Ids]:
        # The batch call leaves out the offsets, which would be a fifth of the time.
        try:
            encodings = self.tokenizer.encode_batch_fast(texts, add_special_tokens=add_special_tokens)
        except BaseException as error:
            for text in texts:
                valid_text(text)
            raise failure("the library", error, sum(map(len, texts))) from None
        return [np.array(encoding.ids, np.uint32) for encoding in encodings]
