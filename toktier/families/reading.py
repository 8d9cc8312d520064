"""The stages of a definition, read off the components of the reference library.

One component can be several stages, and each is here because it was read in the library's own source what it does. What
is not here is not understood, and is the reason why a family is not supported.
"""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import tokenizers

from toktier.families.literal import Literal
from toktier.families.normalization import DECOMPOSITION
from toktier.families.pattern import Unsupported, literal_text, parse
from toktier.families.stages import (
    ByteLevel,
    CharacterMap,
    Charsmap,
    Form,
    Normalizer,
    Pieces,
    Prefix,
    PreTokenizer,
    ScriptSplitter,
    Splitter,
    Substitution,
    Trim,
)
from toktier.families.syntax import UNBOUNDED, Alternation, Behavior, CharacterClass, Mode, Node, Repeat

BYTE_LEVEL_PATTERN = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
"""The pattern of GPT-2, which ``ByteLevel`` applies unless ``use_regex`` is false."""

MAX_NORMALIZERS = 8
"""Stages that normalize. Production tokenizers have 7 at most; each takes a quarter of a second."""

CHARACTER_MAPS = frozenset({"Lowercase", "StripAccents", "Nmt"})
"""Normalizers that map every character by itself."""

MODELS = frozenset({"BPE", "WordPiece", "WordLevel", "Unigram"})
"""Models whose ids of a piece are a function of the piece alone."""

KEEPS = {
    ("Isolated", False): Pieces.ALL,
    ("Isolated", True): Pieces.ALL,
    ("Removed", False): Pieces.GAPS,
    ("Removed", True): Pieces.MATCHES,
    ("Contiguous", False): Pieces.RUNS,
    ("Contiguous", True): Pieces.RUNS,
    ("MergedWithPrevious", False): Pieces.AFTER_GAPS,
    ("MergedWithPrevious", True): Pieces.BEFORE_GAPS,
    ("MergedWithNext", False): Pieces.BEFORE_GAPS,
    ("MergedWithNext", True): Pieces.AFTER_GAPS,
}
"""What a behavior of ``Split`` keeps, and whether matches and gaps have changed places for it."""


class Reader:
    """Walks the components in the order in which a text meets them, and remembers the first that is not understood."""

    def __init__(self) -> None:
        self.normalizers: list[Normalizer] = []
        self.pre_tokenizers: list[PreTokenizer] = []
        self.stages: list[str] = []
        self.reason: str | None = None

    @property
    def divides(self) -> bool:
        """Whether any stage divides the text before the model sees it."""
        return any(isinstance(stage, Splitter | ScriptSplitter) for stage in self.pre_tokenizers)

    @property
    def byte_level(self) -> bool:
        """Whether any stage makes bytes of the text."""
        return any(isinstance(stage, ByteLevel) for stage in [*self.normalizers, *self.pre_tokenizers])

    def stop(self, reason: str) -> None:
        """Takes note of something that is not understood."""
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
        """Reads a normalizer, or those of a sequence."""
        if state is None:
            return
        name = state["type"]
        if name == "Sequence":
            for each in state["normalizers"]:
                self.normalizer(each)
            return
        self.stages.append(f"normalizer {_described(state)}")
        try:
            found = _normalizers(state)
        except Unsupported as error:
            self.stop(f"normalizer {name}: {error}")
            return
        if found == self.normalizers[-1:] and (name in DECOMPOSITION or name in CHARACTER_MAPS):
            return  # each of them leaves alone what it has made
        if len(self.normalizers) + len(found) > MAX_NORMALIZERS:
            self.stop(f"more than {MAX_NORMALIZERS} normalizers one after the other")
        else:
            self.normalizers += found

    def pre_tokenizer(self, state: dict[str, Any] | None) -> None:
        """Reads a pre-tokenizer, or those of a sequence."""
        if state is None:
            return
        if state["type"] == "Sequence":
            for each in state["pretokenizers"]:
                self.pre_tokenizer(each)
            return
        self.stages.append(f"pre-tokenizer {_described(state)}")
        try:
            self.pre_tokenizers += _pre_tokenizers(state)
        except Unsupported as error:
            self.stop(f"pre-tokenizer {state['type']}: {error}")

    def model(self, model: tokenizers.models.Model) -> None:
        """Reads a model."""
        name = type(model).__name__
        if not isinstance(model, tokenizers.models.BPE):
            self.stages.append(f"model {name}")
            if name not in MODELS:
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


def _normalizers(state: dict[str, Any]) -> list[Normalizer]:
    """The stages of one normalizer."""
    name = state["type"]
    if name in DECOMPOSITION:
        return [Form(name)]
    if name in CHARACTER_MAPS:
        return [CharacterMap(json.dumps({"type": name}))]
    if name == "BertNormalizer":
        return _bert_normalizers(state)
    if name == "Replace":
        return [Substitution(name, _pattern(state["pattern"]), state["content"])]
    if name == "Prepend":
        return [Prefix(name, state["prepend"], everywhere=True, unless_there=False)]
    if name == "Strip":
        return [Trim(state["strip_left"], state["strip_right"])]
    if name == "Precompiled":
        return [Charsmap(json.dumps(state))]
    if name == "ByteLevel":
        return [ByteLevel()]
    raise Unsupported("not understood yet")


def _bert_normalizers(state: dict[str, Any]) -> list[Normalizer]:
    """Up to four steps, of which all but one map every character by itself: accents are stripped off what is in NFD."""
    nothing = dict.fromkeys(("clean_text", "handle_chinese_chars", "strip_accents", "lowercase"), False)

    def only(option: str) -> CharacterMap:
        return CharacterMap(json.dumps({"type": "BertNormalizer"} | nothing | {option: True}))

    found: list[Normalizer] = [only(option) for option in ("clean_text", "handle_chinese_chars") if state[option]]
    if state["lowercase"] if state["strip_accents"] is None else state["strip_accents"]:
        found += [Form("NFD"), only("strip_accents")]
    return found + [only("lowercase")] * state["lowercase"]


def _pre_tokenizers(state: dict[str, Any]) -> list[PreTokenizer]:
    """The stages of one pre-tokenizer."""
    name = state["type"]
    if name == "Split":
        return [Splitter(name, _pattern(state["pattern"]), KEEPS[state["behavior"], state["invert"]])]
    if name == "ByteLevel":
        prefix = [Prefix(name, " ", everywhere=True, unless_there=True)] * state["add_prefix_space"]
        return [*prefix, *[Splitter(name, parse(BYTE_LEVEL_PATTERN), Pieces.ALL)] * state["use_regex"], ByteLevel()]
    if name == "Metaspace":
        scheme, replacement = state["prepend_scheme"], state["replacement"]
        prefixes = [Prefix(name, replacement, everywhere=scheme == "always", unless_there=True)] * (scheme != "never")
        splitter = [Splitter(name, literal_text(replacement), Pieces.BEFORE_GAPS)] * state["split"]
        return [Substitution(name, literal_text(" "), replacement), *prefixes, *splitter]
    if name == "Digits":
        digits = _class(name, Behavior.APART)
        return [Splitter(name, digits if state["individual_digits"] else _run(digits), Pieces.ALL)]
    if name == "Punctuation":
        return [Splitter(name, _class(name, Behavior.APART), KEEPS[state["behavior"], False])]
    if name == "CharDelimiterSplit":
        return [Splitter(name, literal_text(state["delimiter"]), Pieces.GAPS)]
    if name == "Whitespace":
        words, others = _class(name, Behavior.JOINED), _class(name, Behavior.APART)
        return [Splitter(name, Alternation((_run(words), _run(others))), Pieces.MATCHES)]
    if name == "WhitespaceSplit":
        return [Splitter(name, _class(name, Behavior.DROPPED), Pieces.GAPS)]
    if name == "BertPreTokenizer":
        punctuation = Splitter(name, _class(name, Behavior.APART), Pieces.ALL)
        return [Splitter(name, _class(name, Behavior.DROPPED), Pieces.GAPS), punctuation]
    if name == "UnicodeScripts":
        return [ScriptSplitter()]
    raise Unsupported("not understood yet")


def _pattern(pattern: dict[str, str]) -> Node:
    return parse(pattern["Regex"]) if "Regex" in pattern else literal_text(pattern["String"])


def _class(component: str, behavior: Behavior) -> CharacterClass:
    return CharacterClass(component, component=behavior)


def _run(node: Node) -> Node:
    return Repeat(node, 1, UNBOUNDED, Mode.GREEDY)


def _described(state: dict[str, Any]) -> str:
    """A component with its options in one line: ``Split(pattern=..., behavior=Isolated)``."""
    options = [
        f"{name}={next(iter(value.values())) if isinstance(value, dict) else value}"
        for name, value in state.items()
        if name not in ("type", "precompiled_charsmap") and value not in (None, False)
    ]
    return f"{state['type']}({', '.join(options)})" if options else str(state["type"])
