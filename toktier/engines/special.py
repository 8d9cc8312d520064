"""Special tokens as text: what the reference makes of a text in which only some of them count.

The library can take all special tokens of a text for text, or none. To have it take some, those that count are
replaced by an alias, a token that is added for this alone: not special, with the flags of the one it stands for, and
of characters that nothing else has. Whatever the library does around a token, it does around the alias.
"""

from __future__ import annotations

import json
import secrets
import threading
from collections.abc import Sequence
from typing import NamedTuple, Protocol

import numpy as np
import tokenizers

from toktier.engines.base import Ids
from toktier.errors import Unprotectable
from toktier.families.definition import Definition
from toktier.families.literal import Literal

MARK = "\U0010fffe"
"""A code point that is no character, and will never be one: an alias begins with it."""


class Counted(NamedTuple):
    """A special token that counts: ``text[start:stop]`` is the literal of an id."""

    start: int
    stop: int
    id: int


class SpecialAsText(Protocol):
    """Encodes a text in which special tokens are text, but for some."""

    def encode(self, text: str, counted: Sequence[Counted], *, add_special_tokens: bool = False) -> Ids:
        """The ids of a text.

        Args:
            text: A valid text.
            counted: The special tokens that count, ascending.
            add_special_tokens: Apply the tokenizer's own post-processor.
        """
        ...


class Aliases:
    """The reference library with an alias for each special token. Safe to share between threads.

    Args:
        reference: The library's tokenizer, whose model and stages are shared, and which stays as it is.
        definition: What it is.

    Raises:
        Unprotectable: A special token is found in a way that an alias cannot stand for.

    Example:
        >>> import tokenizers, toktier
        >>> tok = toktier.load("toktier-mini")
        >>> aliases = Aliases(tok.engine("reference").tokenizer, tok.family.definition)
        >>> aliases.encode("<|im_end|>", []).tolist() == tok.encode("<|im_end|>").tolist()
        False
        >>> aliases.encode("<|im_end|><|im_end|>", [Counted(10, 20, 4089)]).tolist()[-1]
        4089
    """

    def __init__(self, reference: tokenizers.Tokenizer, definition: Definition) -> None:
        check_aliases(definition)
        self._reference = reference
        self._special = [literal for literal in definition.literals if literal.special]
        self._lock = threading.Lock()
        self._make()

    def encode(self, text: str, counted: Sequence[Counted], *, add_special_tokens: bool = False) -> Ids:
        """The ids of a text; uint32, shape (tokens,)."""
        library, aliases, ids = self._latest
        while self._secret_of(aliases) in text:  # by chance, or by somebody who has read this memory
            library, aliases, ids = self._make()
        parts, at = [], 0
        for start, stop, id in counted:
            parts += [text[at:start], aliases[id]]
            at = stop
        parts.append(text[at:])
        encoded = library.encode_batch_fast(["".join(parts)], add_special_tokens=add_special_tokens)[0].ids
        return np.array([ids.get(id, id) for id in encoded], np.uint32)

    @staticmethod
    def _secret_of(aliases: dict[int, str]) -> str:
        return next(iter(aliases.values()))[: 1 + 32]

    def _make(self) -> tuple[tokenizers.Tokenizer, dict[int, str], dict[int, int]]:
        """A tokenizer with new aliases, the alias of each id, and the id of each alias."""
        reference, secret = self._reference, MARK + secrets.token_hex(16)
        library = tokenizers.Tokenizer(reference.model)
        if reference.normalizer is not None:
            library.normalizer = reference.normalizer
        if reference.pre_tokenizer is not None:
            library.pre_tokenizer = reference.pre_tokenizer
        if reference.post_processor is not None:
            library.post_processor = reference.post_processor
        library.add_tokens([token for _, token in sorted(reference.get_added_tokens_decoder().items())])
        library.encode_special_tokens = True
        width = len(str(len(self._special)))
        aliases = {token.id: f"{secret}{k:0{width}}" for k, token in enumerate(self._special)}
        library.add_tokens([_alias(token, aliases[token.id]) for token in self._special])
        ids = {library.token_to_id(alias) or 0: id for id, alias in aliases.items()}
        if any(reference.id_to_token(id) is not None for id in ids):
            raise Unprotectable("its vocabulary has gaps, and an alias of a special token would have the id of a token")
        with self._lock:
            self._latest = library, aliases, ids
        return self._latest


def check_aliases(definition: Definition) -> None:
    """Makes sure that aliases can stand for the special tokens of a definition.

    Raises:
        Unprotectable: They cannot; the message says for which token, and why.
    """
    for literal in definition.superseded:
        raise Unprotectable(f"added token {literal.content!r} was declared twice, and both forms are looked for")
    for literal in definition.literals:
        if MARK in literal.content:
            raise Unprotectable(f"added token {literal.content!r} has the code point that marks what is internal")
        if literal.special and literal.single_word:
            raise Unprotectable(f"special token {literal.content!r} depends on the characters beside it (single_word)")
        if literal.special and literal.normalized and definition.normalizer not in {None, NOTHING}:
            raise Unprotectable(
                f"special token {literal.content!r} is looked for in what the normalizer makes of a text"
            )


NOTHING = json.dumps({"type": "Sequence", "normalizers": []})
"""A normalizer that is none."""


def _alias(token: Literal, content: str) -> tokenizers.AddedToken:
    return tokenizers.AddedToken(
        content, lstrip=token.lstrip, rstrip=token.rstrip, normalized=token.normalized, single_word=False, special=False
    )
