"""A ``tokenizer.json`` as a :class:`Definition`: literals, normalizers, pre-tokenizers, model, and its identity.

The reference library reads the file, and the stages are read off the reference in turn: what it understood is
what counts, however old the way of writing it. Only the digest of the vocabulary is taken from the file itself.
"""

from __future__ import annotations

import hashlib
import json
from typing import Any

import tokenizers
from attrs import asdict, evolve, field, frozen

from toktier.errors import InvalidDefinition
from toktier.families.literal import FLAGS, Literal
from toktier.families.merging import AFFIXES, Joins, joins_of
from toktier.families.probing import DiskCache
from toktier.families.reading import Reader
from toktier.families.stages import Normalizer, PreTokenizer, Splitter


@frozen
class Definition:
    """What a tokenizer is, as far as cuts can depend on it.

    Attributes:
        literals: The added tokens, by id.
        superseded: Added tokens that were declared again with other flags, in every form that may still be looked for.
        normalizer: What rewrites the text between literals, as the library writes it, JSON; None when nothing does.
        normalizers: The same as a chain of stages; no form follows itself.
        pre_tokenizers: The chain of stages that divide what the normalizers leave, and rewrite it.
        byte_level: Whether the model sees the UTF-8 bytes of a piece, each as one character of its own alphabet.
        model: Class name of the model, such as ``BPE``.
        joins: What the model can join, where little else divides; None when much does, or it cannot be said.
        undivided: Why there may be no cuts, if ``joins`` is None and no stage divides.
        stages: The pipeline in words, for people, in the order in which a character meets it.
        reason: The first thing in it that is not understood; None when all is.
        digest: SHA-256 of the canonical definition, hexadecimal: equal for two ways to write the same tokenizer.
        source_digest: SHA-256 of the bytes it was read from, hexadecimal.
    """

    literals: tuple[Literal, ...] = field(repr=lambda literals: f"<{len(literals)} literals>")
    superseded: tuple[Literal, ...] = field(repr=False)
    normalizer: str | None = field(repr=False)
    normalizers: tuple[Normalizer, ...]
    pre_tokenizers: tuple[PreTokenizer, ...]
    byte_level: bool
    model: str
    joins: Joins | None = field(repr=False)
    undivided: str | None = field(repr=False)
    stages: tuple[str, ...] = field(repr=False)
    reason: str | None
    digest: str
    source_digest: str

    @property
    def splitters(self) -> tuple[Splitter, ...]:
        """The pre-tokenizers that divide by a pattern."""
        return tuple(stage for stage in self.pre_tokenizers if isinstance(stage, Splitter))


def literals_of(reference: tokenizers.Tokenizer) -> tuple[Literal, ...]:
    """The added tokens of a reference tokenizer, by id."""
    return tuple(
        Literal(id, t.content, t.special, t.normalized, t.lstrip, t.rstrip, t.single_word)
        for id, t in sorted(reference.get_added_tokens_decoder().items())
    )


def read(
    reference: tokenizers.Tokenizer, source: bytes, where: str, cache: DiskCache, earlier: tuple[Literal, ...] = ()
) -> Definition:
    """Reads the definition off a reference tokenizer.

    Args:
        reference: What :func:`load_reference` made of ``source``; tokens may have been added since.
        source: The bytes of its ``tokenizer.json``.
        where: Its name, for messages.
        cache: Keeps the digest of the model's vocabulary, which takes long to parse.
        earlier: The literals before tokens were added; where flags have changed, the library may look for both.

    Raises:
        InvalidDefinition: A stage is written in Python, so that nothing can be known about it.
    """
    source_digest = hashlib.sha256(source).hexdigest()
    literals = literals_of(reference)
    superseded = _superseded(earlier, literals)
    states = {
        stage: _state(getattr(reference, stage), stage, where)
        for stage in ("normalizer", "pre_tokenizer", "post_processor", "decoder")
    }
    vocabulary = cache.get(["vocabulary", source_digest], lambda: _vocabulary(source, where))
    reader = Reader()
    reader.added_tokens(vocabulary["added_tokens"], literals)
    reader.normalizer(states["normalizer"])
    reader.pre_tokenizer(states["pre_tokenizer"])
    reader.model(reference.model)
    reader.post_processor(states["post_processor"])
    joins: Joins | str | None = None
    if isinstance(reference.model, tokenizers.models.BPE) and not (reader.byte_level and reader.divides):
        joins = joins_of(reference.model, vocabulary["digest"], cache)
    elif not reader.divides:
        joins = "it may join any characters"
    canonical = json.dumps(
        [
            [asdict(literal) for literal in (*literals, *superseded)],
            reference.encode_special_tokens,
            states,
            type(reference.model).__name__,
            vocabulary["digest"],
            # Where the library and the file disagree, the file counts too: it decided about support.
            vocabulary["added_tokens"] if reader.reason else None,
        ],
        sort_keys=True,
    )
    return Definition(
        literals=literals,
        superseded=superseded,
        normalizer=json.dumps(states["normalizer"]) if states["normalizer"] else None,
        normalizers=tuple(reader.normalizers),
        pre_tokenizers=tuple(reader.pre_tokenizers),
        byte_level=reader.byte_level,
        model=type(reference.model).__name__,
        joins=joins if isinstance(joins, Joins) else None,
        undivided=f"model {type(reference.model).__name__}: {joins}" if isinstance(joins, str) else None,
        stages=tuple(reader.stages),
        reason=reader.reason,
        digest=hashlib.sha256(canonical.encode()).hexdigest(),
        source_digest=source_digest,
    )


def _state(component: Any, stage: str, where: str) -> dict[str, Any] | None:
    """What the library itself would write to a file for one component, defaults filled in."""
    if component is None:
        return None
    try:
        state: dict[str, Any] = json.loads(component.__getstate__())
    except Exception as error:
        raise InvalidDefinition(f"{where}: {stage}: cannot be serialised: {error}") from None
    return state


def _superseded(earlier: tuple[Literal, ...], literals: tuple[Literal, ...]) -> tuple[Literal, ...]:
    """The library finds a token in the texts that its old or its new flags say, and then goes by the new ones."""
    now = {literal.content: literal for literal in literals}
    pairs = [(old, now[old.content]) for old in earlier if old.content in now and now[old.content] != old]
    return tuple(evolve(new, normalized=old.normalized) for old, new in pairs if old.normalized != new.normalized)


def _vocabulary(source: bytes, where: str) -> dict[str, Any]:
    """The digest of everything in the model, in one canonical form, and the added tokens with their flags."""
    try:
        definition = json.loads(source)
    except RecursionError:
        raise InvalidDefinition(f"{where}: nested too deeply") from None
    model = dict(definition["model"])
    vocabulary = model.pop("vocab", {})
    merges = model.pop("merges", [])
    canonical = json.dumps(
        [
            # What is left out is null or false. An affix of no characters is none.
            {
                name: value
                for name, value in model.items()
                if value is not None and value is not False and name != "type" and (value or name not in AFFIXES)
            },
            sorted(vocabulary.items()) if isinstance(vocabulary, dict) else vocabulary,
            # As strings, merges may begin with the header line of the file that they were in. Models that have none
            # may say anything there.
            [m.split(" ") if isinstance(m, str) else m for m in merges if not str(m).startswith("#version")]
            if isinstance(merges, list)
            else merges,
        ],
        sort_keys=True,
    )
    return {
        "digest": hashlib.sha256(canonical.encode()).hexdigest(),
        "added_tokens": [
            [token["content"], *(bool(token.get(flag)) for flag in FLAGS)]
            for token in definition.get("added_tokens") or ()
        ],
    }
