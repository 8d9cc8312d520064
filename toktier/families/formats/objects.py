"""Tokenizer objects of other libraries: what is inside a fast tokenizer of ``transformers``.

That package is heavy and need not be installed, so it is told by what the object has, and never imported.
"""

from __future__ import annotations

import tokenizers


def backend_of(source: object) -> tuple[tokenizers.Tokenizer, str, bool]:
    """The ``tokenizers.Tokenizer`` of an object.

    Args:
        source: One itself, or a fast tokenizer of ``transformers``.

    Returns:
        It, what to call it in messages, and whether special tokens in a text are encoded like any other text.

    Raises:
        TypeError: The object is neither of the two.

    Example:
        >>> backend_of(tokenizers.Tokenizer(tokenizers.models.BPE()))[1:]
        ('tokenizers.Tokenizer', False)
        >>> backend_of(3)
        Traceback (most recent call last):
            ...
        TypeError: cannot load a tokenizer from 3: give a path, a name, a tokenizers.Tokenizer, ...
    """
    if isinstance(source, tokenizers.Tokenizer):
        return source, "tokenizers.Tokenizer", source.encode_special_tokens
    backend = getattr(source, "backend_tokenizer", None)
    if isinstance(backend, tokenizers.Tokenizer):
        # On its next call, transformers gives the switch of its own to the library.
        return backend, type(source).__name__, bool(getattr(source, "split_special_tokens", False))
    if callable(getattr(source, "convert_tokens_to_ids", None)):
        raise TypeError(
            f"cannot load a tokenizer from a {type(source).__name__}, a slow tokenizer of transformers, which encodes"
            " in Python: load its fast form, or save that as a tokenizer.json"
        )
    raise TypeError(
        f"cannot load a tokenizer from {source!r}: give a path, a name, a tokenizers.Tokenizer, a tiktoken.Encoding or"
        " a fast tokenizer of transformers"
    )
