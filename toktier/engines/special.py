"""Special tokens as text: what the reference makes of a text in which only some of them count.

The library can take all special tokens of a text for text, or none. To have it take some, those that count are
replaced by an alias, a token that is added for this alone: not special, with the flags of the one it stands for, and
of characters that no other token has. Whatever the library does around a token, it does around the alias.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Sequence
from itertools import pairwise
from typing import Any, NamedTuple, Protocol

import numpy as np
import tokenizers
from attrs import evolve

from toktier.engines.base import Ids, failure
from toktier.errors import Unprotectable
from toktier.families.bytelevel import BYTE
from toktier.families.definition import Definition
from toktier.families.family import Family
from toktier.families.literal import Literal
from toktier.families.probing import Probe
from toktier.families.stages import ByteLevel, ScriptSplitter, Splitter

MARK = "\U0010fffe"
"""A code point that is no character, and will never be one: an alias begins with it."""

LETTERS = range(0x100000, 0x10FFFE)
"""Code points for private use, of which the rest of an alias consists."""


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
        self._reference, self._literals = reference, definition.literals
        self._letters = sorted({*LETTERS} - {ord(letter) for literal in self._literals for letter in literal.content})
        self._lock = threading.Lock()
        self._make()

    def encode(self, text: str, counted: Sequence[Counted], *, add_special_tokens: bool = False) -> Ids:
        """The ids of a text; uint32, shape (tokens,).

        Raises:
            EngineFailure: The library cannot encode it.
        """
        latest = self._latest
        while latest.secret in text:  # by chance, or by somebody who has read this memory
            latest = self._make()
        parts, at = list[str](), 0
        for start, stop, id in counted:
            parts += text[at:start], latest.aliases[id]
            at = stop
        parts.append(text[at:])
        try:
            encoding = latest.library.encode_batch_fast(["".join(parts)], add_special_tokens=add_special_tokens)[0]
        except BaseException as error:
            raise failure("the library", error, len(text)) from None
        ids = np.array(encoding.ids, np.uint32)
        if not counted:
            return ids
        ids = np.array([latest.ids.get(id, id) for id in encoding.ids], np.uint32)
        if add_special_tokens:  # what was added has its own ids
            ids = np.where(np.array(encoding.special_tokens_mask, bool), np.array(encoding.ids, np.uint32), ids)
        return ids

    def _make(self) -> _Library:
        """A tokenizer with new aliases."""
        import secrets

        reference = self._reference
        library = tokenizers.Tokenizer(reference.model)
        if reference.normalizer is not None:
            library.normalizer = reference.normalizer
        if reference.pre_tokenizer is not None:
            library.pre_tokenizer = reference.pre_tokenizer
        if reference.post_processor is not None:
            library.post_processor = reference.post_processor
        library.add_tokens([token for _, token in sorted(reference.get_added_tokens_decoder().items())])
        library.encode_special_tokens = True
        secret = MARK + "".join(chr(secrets.choice(self._letters)) for _ in range(8))
        special = [literal for literal in self._literals if literal.special]
        aliases = {token.id: secret + chr(letter) for token, letter in zip(special, self._letters, strict=False)}
        library.add_tokens([_alias(token, aliases[token.id]) for token in special])
        found = {library.token_to_id(alias): id for id, alias in aliases.items()}
        ids = {alias: id for alias, id in found.items() if alias is not None}
        if len(ids) < len(aliases) or any(reference.id_to_token(id) is not None for id in ids):
            raise Unprotectable("its vocabulary has gaps, and an alias of a special token would have the id of a token")
        latest = _Library(library, secret, aliases, ids)
        with self._lock:
            self._latest = latest
        return latest


class _Library(NamedTuple):
    """A tokenizer with aliases.

    Attributes:
        library: The tokenizer.
        secret: What every alias begins with.
        aliases: By the id of the token.
        ids: By the id of its alias.
    """

    library: tokenizers.Tokenizer
    secret: str
    aliases: dict[int, str]
    ids: dict[int, int]


def check_aliases(definition: Definition) -> None:
    """Makes sure that aliases can stand for the special tokens of a definition, and nothing can hide these.

    Raises:
        Unprotectable: That is not so; the message says for which token, and why.
    """
    literals = definition.literals
    strips = any(literal.lstrip or literal.rstrip for literal in literals)
    special = [literal.content for literal in literals if literal.special]
    for literal in definition.superseded:
        raise Unprotectable(f"added token {literal.content!r} was declared twice, and both forms are looked for")
    for literal in literals:
        content = literal.content
        if MARK in content:
            raise Unprotectable(f"added token {content!r} has the code point that marks what is internal")
        if literal.single_word:
            raise Unprotectable(f"added token {content!r} depends on the characters beside it (single_word)")
        if literal.special and literal.normalized and definition.normalizer not in {None, NOTHING}:
            raise Unprotectable(f"special token {content!r} is looked for in what the normalizer makes of a text")
        if strips and ((literal.special and literal.normalized) or content != content.strip()):
            raise Unprotectable(
                f"added token {content!r} may overlap whitespace that another one takes in (lstrip, rstrip)"
            )
        if not literal.special and (hidden := _first_hidden(content, special)) is not None:
            raise Unprotectable(f"added token {content!r} can overlap special token {hidden!r}, and so hide it")


def refuse_what_the_model_gives(reference: tokenizers.Tokenizer, definition: Definition, probe: Probe) -> None:
    """Makes sure that the model gives a special token for no text: whoever writes that could forge it.

    The token for what the model does not know is none of them: anybody can have that.

    Args:
        reference: The library's tokenizer.
        definition: What it is.
        probe: Where the library is asked what its classes of characters contain.

    Raises:
        Unprotectable: It may give one; the message says which.
    """
    model: Any = reference.model
    own = {literal: model.id_to_token(literal.id) for literal in definition.literals if literal.special}
    unknown = getattr(model, "unk_token", None)
    entries = {literal: entry for literal, entry in own.items() if entry is not None and entry != unknown}
    by_merges = definition.model == "BPE" and not model.ignore_merges
    divided = None if not entries or by_merges else _divided(definition, probe)
    for literal, entry in entries.items():
        if divided is None:
            may = _is_made_by_merges(model, entry)
        else:
            prefix = getattr(model, "continuing_subword_prefix", None) or ""
            may = not any(divided.is_pair(left, right) for left, right in pairwise(entry.removeprefix(prefix)))
            may = may or (definition.byte_level and not all("!" <= character <= "~" for character in entry))
        if may or (getattr(model, "byte_fallback", False) and BYTE.fullmatch(entry)):
            raise Unprotectable(f"the model may give special token {literal.content!r} for characters that are text")


def _is_made_by_merges(model: Any, entry: str) -> bool:
    """Whether byte-pair encoding can make an entry of its vocabulary.

    Where it does so in a text, it joined the characters of the entry by themselves, as if there were no others.
    """
    affixed = model.continuing_subword_prefix or model.end_of_word_suffix
    return bool(affixed) or [token.value for token in model.tokenize(entry)] == [entry]


def _divided(definition: Definition, probe: Probe) -> Family:
    """Where the pieces that a model sees are divided, whatever they contain. No cuts, if that is not known.

    Byte by byte, printable ASCII stays what it is.
    """
    kept = Splitter, ScriptSplitter, ByteLevel
    rewrites = any(not isinstance(stage, kept) for stage in definition.pre_tokenizers)
    reason = definition.reason or ("the pieces are rewritten" if rewrites else None)
    bare = evolve(definition, literals=(), superseded=(), normalizer=None, normalizers=(), joins=None, reason=reason)
    return Family.derive(bare, probe)


def _first_hidden(content: str, special: Sequence[str]) -> str | None:
    """The first special token that is not found where another token begins no later, and overlaps it."""
    ends = [content[i:] for i in range(len(content))]
    return next(
        (token for token in special if any(token.startswith(end) or end.startswith(token) for end in ends)), None
    )


NOTHING = json.dumps({"type": "Sequence", "normalizers": []})
"""A normalizer that changes nothing."""


def _alias(token: Literal, content: str) -> tokenizers.AddedToken:
    return tokenizers.AddedToken(
        content, lstrip=token.lstrip, rstrip=token.rstrip, normalized=token.normalized, single_word=False, special=False
    )
