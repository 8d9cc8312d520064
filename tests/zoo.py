"""Small definitions, one for each thing that a definition can contain: trained here, on a few words."""

from __future__ import annotations

import functools
from collections.abc import Callable

import tokenizers
from tokenizers import models, normalizers, pre_tokenizers, processors

from tests.builders import (
    BLOOM,
    CL100K,
    GPT2,
    GPT4,
    KIMI,
    WORDS,
    byte_level,
    characters,
    split,
    templated,
    token,
    unigram,
    word_pieces,
)
from tests.components import COMPONENTS
from toktier.families.trie import compiled

SUPPORTED: dict[str, Callable[[], tokenizers.Tokenizer]] = {
    "gpt2": lambda: byte_level(use_regex=True),
    "gpt4": lambda: byte_level(split(GPT4)),
    "possessive": lambda: byte_level(split(CL100K)),
    "intersection": lambda: byte_level(split(KIMI)),
    "negated set": lambda: byte_level(split(BLOOM)),
    "removed and inverted": lambda: byte_level(split(GPT4, "removed", invert=True)),
    "matches dropped": lambda: byte_level(split(r"\s+", "removed"), split(GPT2)),
    "string": lambda: byte_level(pre_tokenizers.Split(" ", "isolated"), split(GPT2)),
    "string of two": lambda: byte_level(pre_tokenizers.Split("th", "isolated"), split(GPT2)),
    "digits": lambda: byte_level(pre_tokenizers.Digits(individual_digits=True), use_regex=True),
    "runs of digits": lambda: byte_level(pre_tokenizers.Digits(individual_digits=False), use_regex=True),
    "chain": lambda: byte_level(split(r"\p{N}{1,3}"), split("[一-龥぀-ゟ゠-ヿ]+"), split(GPT2)),
    "gaps": lambda: byte_level(split(r"\p{N}"), split(r"[A-Z][a-z]+")),
    "chain that joins": lambda: byte_level(split(r"[ab]+"), split(r"[a-z]+")),
    "NFC": lambda: byte_level(split(GPT4), normalizer=normalizers.NFC()),
    "NFD": lambda: byte_level(split(GPT4), normalizer=normalizers.NFD()),
    "NFKC": lambda: byte_level(split(GPT4), normalizer=normalizers.NFKC()),
    "NFKD": lambda: byte_level(split(GPT4), normalizer=normalizers.NFKD()),
    "NFC and marks": lambda: byte_level(split(r"[à-ÿ][ -~]|\p{M}|\p{N}+|."), normalizer=normalizers.NFC()),
    "NFC and classes": lambda: byte_level(split(r"\p{L}+|\p{M}+|[^\p{L}\p{M}]"), normalizer=normalizers.NFC()),
    "NFC and symbols": lambda: byte_level(split(r"[a<]+|[≮é/]+|\s|."), normalizer=normalizers.NFC()),
    "lowercase": lambda: byte_level(split(r"[a-z]+|[A-Z]+|."), normalizer=normalizers.Lowercase()),
    "lowercase, NFKC": lambda: byte_level(
        split(GPT4), normalizer=normalizers.Sequence([normalizers.Lowercase(), normalizers.NFKC()])
    ),
    "NFD, lowercase": lambda: byte_level(
        split(r"\p{L}+|\p{M}|."), normalizer=normalizers.Sequence([normalizers.NFD(), normalizers.Lowercase()])
    ),
    "normalized literals": lambda: byte_level(
        split(GPT4),
        normalizer=normalizers.Lowercase(),
        added=[token("ABba", normalized=True), token("É!", normalized=True), token("It's")],
    ),
    "NFC literals": lambda: byte_level(
        split(GPT4), normalizer=normalizers.NFC(), added=[token("e\u0301!", normalized=True), token("e\u0301?")]
    ),
    "spaces deleted": lambda: byte_level(split(GPT4), normalizer=normalizers.Replace(" ", "")),
    "lstrip": lambda: byte_level(split(r"\s|\S"), added=[token("<l>", lstrip=True)]),
    "rstrip": lambda: byte_level(split(r"\s|\S"), added=[token("<r>", rstrip=True)]),
    "lstrip, normalized": lambda: byte_level(split(r"\s|\S"), added=[token("<l>", lstrip=True, normalized=True)]),
    "single word": lambda: byte_level(
        split(r"\s|\S"), added=[token("on", single_word=True), token("-", single_word=True)]
    ),
    "all flags": lambda: byte_level(
        split(GPT4), added=[token("it", lstrip=True, rstrip=True, single_word=True), token(" 's", rstrip=True)]
    ),
    "overlapping literals": lambda: byte_level(
        split(GPT4), added=[token("ab"), token("abc"), token("bcd"), token("\n\n")]
    ),
    "ignore merges": lambda: byte_level(split(GPT4), ignore_merges=True),
    "characters": lambda: characters(split(GPT2)),
    "templated": templated,
    **COMPONENTS,
}
"""Definitions that are understood, by what they are here for."""


def _repeating() -> tokenizers.Tokenizer:
    tokenizer = byte_level(split(GPT4))
    tokenizer.post_processor = processors.TemplateProcessing("$A $A", special_tokens=[])
    return tokenizer


UNSUPPORTED: dict[str, Callable[[], tokenizers.Tokenizer]] = {
    "lookbehind": lambda: byte_level(split(r"(?<=a)b|\s+|\S+")),
    "anchor": lambda: byte_level(split(r"^a|\s+|\S+")),
    "word boundary": lambda: byte_level(split(r"\b\w+|\s+")),
    "back-reference": lambda: byte_level(split(r"(a)\1|\s+|\S+")),
    "empty match": lambda: byte_level(split(r"a*")),
    "grapheme cluster": lambda: byte_level(split(r"\X")),
    "folding": lambda: byte_level(split(r"(?i:st)|\s+|\S")),
    "folding of one": lambda: byte_level(split(r"(?i:ß)|\s+|\S")),
    "Unigram of whole texts": lambda: unigram(pre_tokenizers.Metaspace(split=False)),
    "WordPiece of whole texts": lambda: word_pieces(pre_tokenizers.Sequence([])),
    "merges that are ignored": lambda: byte_level(ignore_merges=True),
    "stripped": lambda: word_pieces(split(" "), normalizers.Strip()),
    "a begin that is not known": lambda: unigram(
        pre_tokenizers.Sequence([split("b"), pre_tokenizers.Metaspace(prepend_scheme="first", split=False)]),
        normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Precompiled(compiled("▁", ""))]),
    ),
    "two literals that become one": lambda: byte_level(
        split(GPT4),
        normalizer=normalizers.NFD(),
        added=[token("\u212b!", normalized=True), token("\u00c5!", normalized=True)],
    ),
    "dropout": lambda: byte_level(split(GPT4), dropout=0.0001),
    "replaced at the beginning": lambda: byte_level(
        split(GPT4), normalizer=normalizers.Replace(tokenizers.Regex("^a"), "b")
    ),
    "template that repeats": _repeating,
}
if hasattr(pre_tokenizers, "FixedLength"):  # the oldest versions of the library have none
    UNSUPPORTED["fixed length"] = lambda: word_pieces(pre_tokenizers.FixedLength(5))
"""Definitions outside what is understood, by the reason."""


RANDOM = ("dropout", "two literals that become one")
"""Unsupported ones of which two copies need not give the same ids."""


@functools.cache
def build(name: str) -> tokenizers.Tokenizer:
    """The tokenizer of a name; shared, so not to be changed."""
    return (SUPPORTED | UNSUPPORTED)[name]()


def revealing(tokenizer: tokenizers.Tokenizer) -> tokenizers.Tokenizer:
    """A copy whose model has another id for the last character of a piece than for the same one elsewhere.

    Its ids show every boundary between two pieces, where a trained model may give the same ids for other pieces.
    """
    copy = tokenizers.Tokenizer.from_str(tokenizer.to_str())
    symbols = sorted({*pre_tokenizers.ByteLevel.alphabet(), *WORDS, "▁"})
    vocabulary = {"<unk>": 0} | {
        f"{c}{end}": 2 * i + j for i, c in enumerate(symbols, 1) for j, end in enumerate(("", "#"))
    }
    copy.model = models.BPE(vocabulary, [], unk_token="<unk>", fuse_unk=True, end_of_word_suffix="#")
    return tokenizers.Tokenizer.from_str(copy.to_str())
