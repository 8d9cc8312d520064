"""A ``tokenizer.json`` as a :class:`Definition`: literals, normalizers, splitters, model, and its identity.

The reference library reads the file, and the stages are read off the reference in turn: what it understood is
what counts, however old the way of writing it. Only the vocabulary is taken from the file itself.
"""

from __future__ import annotations

import enum
import hashlib
import itertools
import json
import re
from collections import Counter
from typing import Any

import tokenizers
from attrs import asdict, evolve, field, frozen

from toktier.errors import InvalidDefinition
from toktier.families.normalization import CHARACTER_WISE, DECOMPOSITION
from toktier.families.pattern import (
    UNBOUNDED,
    CharacterClass,
    Mode,
    Node,
    Repeat,
    Unsupported,
    literal_text,
    parse,
)
from toktier.families.probing import DiskCache

BYTE_LEVEL_PATTERN = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
"""The pattern of GPT-2, which ``ByteLevel`` applies unless ``use_regex`` is false."""

FLAGS = ("special", "normalized", "lstrip", "rstrip", "single_word")
"""The flags of an added token."""

MAX_NORMALIZERS = 8
"""Normalizers one after the other. Production tokenizers have two at most; each takes a quarter of a second."""

PREFIX = "continuing_subword_prefix"

AFFIXES = (PREFIX, "end_of_word_suffix")

_PREFIXED = re.compile(
    # However its letters are escaped; none of them has another escape than this.
    b'"' + b"".join(b"(?:%c|\\\\u%04x)" % (letter, letter) for letter in PREFIX.encode()) + b'"'
    # Null and nothing are what nearly all files say, and are not worth reading them twice.
    rb'\s*:\s*(?!\s|null|"")',
    re.IGNORECASE,
)

DIGITS = CharacterClass("Digits", component=True)


class Pieces(enum.Enum):
    """What a splitter keeps, each as a piece of its own."""

    ALL = "matches and the gaps between them"
    MATCHES = "matches"
    GAPS = "gaps"


@frozen
class Literal:
    """An added token, with the flags of the reference library."""

    id: int
    content: str
    special: bool
    normalized: bool
    lstrip: bool
    rstrip: bool
    single_word: bool


@frozen
class Splitter:
    """A pre-tokenizer that divides every piece by a pattern.

    Attributes:
        name: How the definition calls it, for people.
        tree: What it matches.
        keeps: Which of the parts become pieces.
    """

    name: str
    tree: Node = field(repr=False)
    keeps: Pieces


@frozen
class Definition:
    """What a tokenizer is, as far as cuts can depend on it.

    Attributes:
        literals: The added tokens, by id.
        superseded: Added tokens that were declared again with other flags, in every form that may still be looked for.
        normalizers: The chain of normalizers, by their class names in ``tokenizers.normalizers``; none follows itself.
        splitters: The chain of pre-tokenizers that divide.
        byte_level: Whether the model sees the UTF-8 bytes of a piece, each as one character of its own alphabet.
        model: Class name of the model, such as ``BPE``.
        stages: The pipeline in words, for people, in the order in which a character meets it.
        reason: The first thing in it that is not understood; None when all is.
        digest: SHA-256 of the canonical definition, hexadecimal: equal for two ways to write the same tokenizer.
        source_digest: SHA-256 of the bytes it was read from, hexadecimal.
    """

    literals: tuple[Literal, ...] = field(repr=lambda literals: f"<{len(literals)} literals>")
    superseded: tuple[Literal, ...] = field(repr=False)
    normalizers: tuple[str, ...]
    splitters: tuple[Splitter, ...]
    byte_level: bool
    model: str
    stages: tuple[str, ...] = field(repr=False)
    reason: str | None
    digest: str
    source_digest: str


def load_reference(source: bytes, where: str) -> tokenizers.Tokenizer:
    """The reference library's own tokenizer for the bytes of a ``tokenizer.json``.

    Args:
        source: The file's bytes.
        where: Its name, for messages.

    Raises:
        InvalidDefinition: The bytes are not a tokenizer file, or the library refuses it; the message names the field.
    """
    if _PREFIXED.search(source):
        _refuse_divided_characters(source, where)
    made = _attempt(source)
    if isinstance(made, str):
        raise InvalidDefinition(f"{where}: {_diagnosis(source, made)}")
    return made


def _refuse_divided_characters(source: bytes, where: str) -> None:
    """Makes sure that no merge has a right side that begins, behind the model's prefix, in the middle of a character.

    The library takes as many bytes off as the prefix has, and ends the process when it cannot print what is left.

    Raises:
        InvalidDefinition: There is such a merge, or the file is not JSON.
    """

    def checked(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        # Of what is written twice, either may be the one that the library takes.
        prefixes = [value for name, value in pairs if name == PREFIX and isinstance(value, str)]
        merges = [value for name, value in pairs if name == "merges" and isinstance(value, list)]
        fields = dict(pairs)
        if fields.get("type", "BPE") == "BPE":
            for prefix, right in itertools.product(prefixes, itertools.chain(*map(_right_sides, merges))):
                if _divides(right, len(_utf8(prefix))):
                    raise InvalidDefinition(
                        f"{where}: field 'model': {PREFIX} {prefix!r} has as many bytes as there are before the middle"
                        f" of a character of {right!r}, which is merged"
                    )
        return fields

    try:
        json.loads(source.decode("utf-8"), object_pairs_hook=checked)
    except InvalidDefinition:
        raise
    except (ValueError, RecursionError) as broken:
        raise InvalidDefinition(f"{where}: not JSON: {broken}") from None


def _right_sides(merges: list[Any]) -> list[str]:
    """The right sides of those merges that have one; the library refuses the others."""
    pairs = [merge.split(" ") if isinstance(merge, str) else merge for merge in merges]
    return [pair[1] for pair in pairs if isinstance(pair, list) and len(pair) == 2 and isinstance(pair[1], str)]


def _divides(text: str, size: int) -> bool:
    """Whether the first bytes of a text, so many, end inside a character."""
    following = _utf8(text)[size : size + 1]
    return bool(following) and following[0] & 0xC0 == 0x80


def _utf8(text: str) -> bytes:
    """A text of a file, which may have lone surrogates: the library refuses those after this."""
    return text.encode("utf-8", "surrogatepass")


def _attempt(source: bytes) -> tokenizers.Tokenizer | str:
    """The library's tokenizer, or why it makes none."""
    try:
        return tokenizers.Tokenizer.from_buffer(source)
    except BaseException as error:  # a panic of the library is no Exception
        if isinstance(error, (KeyboardInterrupt, SystemExit, MemoryError)):
            raise
        return str(error) or type(error).__name__


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
    reader = _Reader()
    reader.added_tokens(vocabulary["added_tokens"], literals)
    reader.normalizer(states["normalizer"])
    reader.pre_tokenizer(states["pre_tokenizer"], last=True)
    if not reader.splitters:
        reader.stop("no pre-tokenizer divides the text before the model sees it")
    reader.model(reference.model)
    reader.post_processor(states["post_processor"])
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
        normalizers=tuple(reader.normalizers),
        splitters=tuple(reader.splitters),
        byte_level=reader.bytes_seen,
        model=type(reference.model).__name__,
        stages=tuple(reader.stages),
        reason=reader.reason,
        digest=hashlib.sha256(canonical.encode()).hexdigest(),
        source_digest=source_digest,
    )


class _Reader:
    """Walks the stages in the order in which a text meets them, and remembers the first that is not understood."""

    def __init__(self) -> None:
        self.normalizers: list[str] = []
        self.splitters: list[Splitter] = []
        self.bytes_seen = False
        self.stages: list[str] = []
        self.reason: str | None = None

    def stop(self, reason: str) -> None:
        self.reason = self.reason or reason

    def added_tokens(self, listed: list[list[Any]], literals: tuple[Literal, ...]) -> None:
        """The library keeps one token for each id and content, but may still look for those that it has dropped."""
        kept = {literal.content for literal in literals}
        counted = Counter(content for content, *_ in listed)
        for content, count in counted.items():
            if count > 1:
                self.stop(f"added token {content!r} is listed twice")
            elif content and content not in kept:
                self.stop(f"added token {content!r} has the id of another one")

    def normalizer(self, state: dict[str, Any] | None) -> None:
        if state is None:
            return
        name = state["type"]
        if name == "Sequence":
            for each in state["normalizers"]:
                self.normalizer(each)
            return
        self.stages.append(f"normalizer {_described(state)}")
        if name not in DECOMPOSITION and name not in CHARACTER_WISE:
            self.stop(f"normalizer {name} is not understood yet")
        elif self.normalizers[-1:] == [name]:
            pass  # Each of them leaves alone what it has made.
        elif len(self.normalizers) == MAX_NORMALIZERS:
            self.stop(f"more than {MAX_NORMALIZERS} normalizers one after the other")
        else:
            self.normalizers.append(name)

    def pre_tokenizer(self, state: dict[str, Any] | None, last: bool) -> None:
        if state is None:
            return
        name = state["type"]
        if name == "Sequence":
            for i, each in enumerate(state["pretokenizers"]):
                self.pre_tokenizer(each, last and i == len(state["pretokenizers"]) - 1)
            return
        self.stages.append(f"pre-tokenizer {_described(state)}")
        try:
            if name == "Split":
                self.split(state)
            elif name == "Digits":
                digits = DIGITS if state["individual_digits"] else Repeat(DIGITS, 1, UNBOUNDED, Mode.GREEDY)
                self.splitters.append(Splitter("Digits", digits, Pieces.ALL))
            elif name == "ByteLevel":
                self.byte_level(state, last)
            else:
                self.stop(f"pre-tokenizer {name} is not understood yet")
        except Unsupported as error:
            self.stop(f"pre-tokenizer {name}: {error}")

    def split(self, state: dict[str, Any]) -> None:
        pattern = state["pattern"]
        tree = parse(pattern["Regex"]) if "Regex" in pattern else literal_text(pattern["String"])
        keeps = {
            ("Isolated", False): Pieces.ALL,
            ("Isolated", True): Pieces.ALL,
            ("Removed", False): Pieces.GAPS,
            ("Removed", True): Pieces.MATCHES,
        }.get((state["behavior"], state["invert"]))
        if keeps is None:
            self.stop(f"pre-tokenizer Split: behavior {state['behavior']} is not understood yet")
        else:
            self.splitters.append(Splitter("Split", tree, keeps))

    def byte_level(self, state: dict[str, Any], last: bool) -> None:
        self.bytes_seen = True
        if state["add_prefix_space"]:
            self.stop("pre-tokenizer ByteLevel: add_prefix_space is not understood yet")
        if not last:
            self.stop("pre-tokenizer ByteLevel: others follow it, which see bytes instead of characters")
        if state["use_regex"]:
            self.splitters.append(Splitter("ByteLevel", parse(BYTE_LEVEL_PATTERN), Pieces.ALL))

    def model(self, model: tokenizers.models.Model) -> None:
        name = type(model).__name__
        if not isinstance(model, tokenizers.models.BPE):
            self.stages.append(f"model {name}")
            self.stop(f"model {name} is not understood yet")
            return
        options = ("unk_token", "fuse_unk", "byte_fallback", "ignore_merges", "dropout")
        self.stages.append(f"model {_described({'type': name} | {o: getattr(model, o) for o in options})}")
        if model.dropout:
            self.stop("model BPE: dropout makes its ids random")

    def post_processor(self, state: dict[str, Any] | None) -> None:
        """Without special tokens a post-processor must leave the ids alone; a template could still repeat the text."""
        if state is None:
            return
        name = state["type"]
        if name == "Sequence":
            for each in state["processors"]:
                self.post_processor(each)
            return
        self.stages.append(f"post-processor {name}")
        if name == "TemplateProcessing":
            texts = [part for part in state["single"] if "Sequence" in part]
            if len(texts) != 1:
                self.stop("post-processor TemplateProcessing: its template does not hold the text exactly once")
        elif name not in ("ByteLevel", "BertProcessing", "RobertaProcessing"):
            self.stop(f"post-processor {name} is not understood yet")


def _state(component: Any, stage: str, where: str) -> dict[str, Any] | None:
    """What the library itself would write to a file for one component, defaults filled in."""
    if component is None:
        return None
    try:
        state: dict[str, Any] = json.loads(component.__getstate__())
    except Exception as error:
        raise InvalidDefinition(f"{where}: {stage}: cannot be serialised: {error}") from None
    return state


def _described(state: dict[str, Any]) -> str:
    """A component with its options in one line: ``Split(pattern=..., behavior=Isolated)``."""
    options = [
        f"{name}={next(iter(value.values())) if isinstance(value, dict) else value}"
        for name, value in state.items()
        if name != "type" and value not in (None, False)
    ]
    return f"{state['type']}({', '.join(options)})" if options else str(state["type"])


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


def _diagnosis(source: bytes, refusal: str) -> str:
    """Which field the library does not accept: the first that it refuses beside a model of nothing."""
    try:
        definition = json.loads(source.decode("utf-8"))
    except (ValueError, RecursionError) as broken:
        return f"not JSON: {broken}"
    if not isinstance(definition, dict) or not isinstance(definition.get("model"), dict):
        return "field 'model': missing; is this a tokenizer.json?"
    # With a model of nothing in the place of a large one, trying is cheap.
    model = {"model": {"type": "BPE", "vocab": {}, "merges": []}}
    for name, value in definition.items():
        if name != "model":
            made = _attempt(json.dumps(model | {name: value}).encode())
            if isinstance(made, str):
                return f"field {name!r}: {made}"
    return f"field 'model': {refusal}"
