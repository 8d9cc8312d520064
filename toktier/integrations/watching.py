"""Whether a tokenizer of the library ``tokenizers`` still is what it was.

Whoever holds one can change it, and so can whoever holds one of its components, in place; nobody is told. So it is
looked at before each answer that rests on what it was, which takes some microseconds.
"""

from __future__ import annotations

from typing import Any

import tokenizers

from toktier.engines.base import contained
from toktier.tokenizer import Tokenizer

SAMPLES = 32
"""Tokens of the vocabulary that the model is asked for on each look."""

SETTINGS = (
    "byte_fallback",
    "continuing_subword_prefix",
    "dropout",
    "end_of_word_suffix",
    "fuse_unk",
    "ignore_merges",
    "max_input_chars_per_word",
    "unk_token",
)
"""What can be set on the models of the library."""

ORDINARY = (
    "The quick brown fox's 1,234 jumps...\n\n\tdef f(x):\r\n    return x ** 2  # "
    "\u00e9\u0301 \u4e16\u754c \U0001f642 \ufb01\u00a0" + "".join(map(chr, range(32, 127)))
)
"""A text with something of everything."""


def state(component: Any) -> bytes | None:
    """What a component of a tokenizer is: equal for two that do the same.

    Returns:
        Its state as the library would save it; nothing for no component, and no characters for one that is written in
        Python, which the library does not save.

    Example:
        >>> state(tokenizers.normalizers.Lowercase())
        b'{"type":"Lowercase"}'
    """
    if component is None:
        return None
    try:
        return bytes(component.__getstate__())
    except Exception:  # there is no narrower type
        return b""


class Watch:
    """Tells whether a tokenizer of the library gives the ids that it gave when this was made.

    Normalizer, pre-tokenizer, added tokens with their flags, the settings of the model and the size of its vocabulary
    are compared whole. Of the vocabulary and the merges, which take a second to read, a sample is: a model that was put
    in the place of another one is noticed unless it has the same settings, as many tokens, and gives the same ids for
    tokens from all over the vocabulary. Truncation, padding and post-processor are not looked at.

    Args:
        backend: The tokenizer. It is not copied.

    Example:
        >>> import toktier.families.mini
        >>> backend = tokenizers.Tokenizer.from_file(str(toktier.families.mini.path()))
        >>> watch = Watch(backend)
        >>> watch.sees_no_change(backend)
        True
        >>> backend.add_tokens(["<|new|>"])
        1
        >>> watch.sees_no_change(backend)
        False
    """

    def __init__(self, backend: tokenizers.Tokenizer) -> None:
        self._backend = backend
        self._samples = _samples(backend.model, backend.get_vocab_size(with_added_tokens=False))
        self._seen = self._look()

    def sees_no_change(self, backend: tokenizers.Tokenizer) -> bool:
        """Whether that is the tokenizer, and still as it was."""
        return backend is self._backend and self._look() == self._seen

    def saw_the_same(self, other: Watch) -> bool:
        """Whether the tokenizer of another one was the same when that was made."""
        return self._seen == other._seen

    def _look(self) -> tuple[Any, ...]:
        backend = self._backend
        model: Any = backend.model
        return (
            state(backend.normalizer),
            state(backend.pre_tokenizer),
            backend.get_added_tokens_decoder(),
            type(model),
            [getattr(model, name, None) for name in SETTINGS],
            backend.get_vocab_size(with_added_tokens=False),
            [[token.id for token in model.tokenize(sample)] for sample in self._samples],
        )


def _samples(model: Any, size: int) -> list[str]:
    """Tokens of a model that are evenly spaced in its vocabulary."""
    tokens = (model.id_to_token(size * number // SAMPLES) for number in range(SAMPLES))
    return [token for token in tokens if token is not None]


def disagreement(backend: tokenizers.Tokenizer, tok: Tokenizer) -> str | None:
    """Why a tokenizer of the library does not give the ids of what toktier made of its saved form; None if it does.

    Not all of it is saved. Once a token was added again with other flags, or the normalizer was replaced, the library
    may go on looking for added tokens as it did before. So each is looked for: in several ways of writing it, by itself
    and inside of other text.

    Args:
        backend: The tokenizer; it may pad, and truncate what is long.
        tok: What toktier made of it.
    """
    normalizer = backend.normalizer
    spellings: set[str] = set()
    for literal in backend.get_added_tokens_decoder().values():
        content = literal.content
        spellings |= {content, content.lower(), content.upper(), content.swapcase(), f" {content} "}
        if normalizer is not None:
            spellings.add(normalizer.normalize_str(content))
    contexts = ("{}", "a{}b", "1 {} 2", "{0}{0}")
    texts = [ORDINARY, *(context.format(spelling) for spelling in sorted(spellings) for context in contexts)]
    try:
        encodings = backend.encode_batch(texts, add_special_tokens=False)
        expected = tok.reference.encode_batch(texts)
    except BaseException as error:
        if not contained(error):
            raise
        return f"its saved form cannot be compared with it: {error}"
    if all(_own(encoding) == ids.tolist() for encoding, ids in zip(encodings, expected, strict=True)):
        return None
    return "it has added tokens that are found in another way once it is saved"


def _own(encoding: tokenizers.Encoding) -> list[int]:
    """The ids of an encoding, less those that pad it."""
    return [id for id, is_own in zip(encoding.ids, encoding.attention_mask, strict=True) if is_own]
