"""Small definitions, one for each thing that a definition can contain: trained here, on a few words."""

from __future__ import annotations

import functools
import random
from collections.abc import Callable, Sequence
from typing import Any

import tokenizers
from tokenizers import AddedToken, Regex, decoders, models, normalizers, pre_tokenizers, processors, trainers

GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
GPT4 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
CL100K = (
    r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+"
    r"| ?[^\s\p{L}\p{N}]++[\r\n]*+|\s*[\r\n]|\s+(?!\S)|\s"
)
KIMI = (
    r"[\p{Han}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+"
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
BLOOM = r" ?[^(\s|[.,!?…。,、।۔،])]+"
WORDS = (
    "the The THE it's IT'S we'll don't I'm 1234567 12 ½ ² ٣ naïve naïve Ångström Ångström İstanbul straße ſ K "
    "kelvin 中文 日本語 かな カナ 한국어 한국 हिन्दी क़ क़/ தமிழ் ไทย עברית العربية 👍🏽 👩‍👩‍👧 🇺🇸 fi ﬁ ≮ ≮ a_b a-b a.b "
    "a/b (x) [y] {z}   two   three\t\ttabs\n\nlines\r\n  end\n"
)

AddTokens = Sequence[AddedToken]


def _training_texts() -> list[str]:
    """Words, and characters of theirs in random pairs."""
    letters = random.Random(0)
    return [*WORDS.split(" "), *("".join(letters.choices(WORDS, k=2)) for _ in range(20_000))]


def byte_level(
    *splits: pre_tokenizers.PreTokenizer,
    normalizer: normalizers.Normalizer | None = None,
    use_regex: bool = False,
    added: AddTokens = (),
    **model: Any,
) -> tokenizers.Tokenizer:
    """A byte-level BPE behind the given splitters."""
    tokenizer = tokenizers.Tokenizer(models.BPE(**model))
    if normalizer is not None:
        tokenizer.normalizer = normalizer
    # Trained before the splitters are set, so that there are merges across every boundary they make: a piece too
    # long or too short then shows in the ids.
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=3000, initial_alphabet=alphabet, show_progress=False)
    tokenizer.train_from_iterator(_training_texts(), trainer)
    last = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=use_regex)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([*splits, last]) if splits else last
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_tokens([AddedToken("<|im_start|>", special=True), AddedToken("<|im_end|>", special=True), *added])
    return tokenizer


def split(pattern: str, behavior: str = "isolated", invert: bool = False) -> pre_tokenizers.PreTokenizer:
    """A Split on a regular expression."""
    return pre_tokenizers.Split(Regex(pattern), behavior, invert)


def characters(*splits: pre_tokenizers.PreTokenizer) -> tokenizers.Tokenizer:
    """A BPE on characters, with unknown ones, fused where they stand together."""
    tokenizer = tokenizers.Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(list(splits))
    trainer = trainers.BpeTrainer(vocab_size=200, special_tokens=["<unk>"], show_progress=False)
    tokenizer.train_from_iterator(["the quick brown fox, don't 1 2 3"], trainer)
    return tokenizer


def templated() -> tokenizers.Tokenizer:
    """One with a template, truncation and padding, none of which may touch the ids of a text."""
    tokenizer = byte_level(split(GPT4))
    bos = tokenizer.token_to_id("<|im_start|>")
    tokenizer.post_processor = processors.TemplateProcessing("<|im_start|> $A", special_tokens=[("<|im_start|>", bos)])
    tokenizer.enable_truncation(8)
    tokenizer.enable_padding(length=16)
    return tokenizer


def _token(content: str, **flags: bool) -> AddedToken:
    return AddedToken(content, **({"normalized": False} | flags))


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
        added=[_token("ABba", normalized=True), _token("É!", normalized=True), _token("It's")],
    ),
    "NFC literals": lambda: byte_level(
        split(GPT4), normalizer=normalizers.NFC(), added=[_token("e\u0301!", normalized=True), _token("e\u0301?")]
    ),
    "lstrip": lambda: byte_level(split(r"\s|\S"), added=[_token("<l>", lstrip=True)]),
    "rstrip": lambda: byte_level(split(r"\s|\S"), added=[_token("<r>", rstrip=True)]),
    "lstrip, normalized": lambda: byte_level(split(r"\s|\S"), added=[_token("<l>", lstrip=True, normalized=True)]),
    "single word": lambda: byte_level(
        split(r"\s|\S"), added=[_token("on", single_word=True), _token("-", single_word=True)]
    ),
    "all flags": lambda: byte_level(
        split(GPT4), added=[_token("it", lstrip=True, rstrip=True, single_word=True), _token(" 's", rstrip=True)]
    ),
    "overlapping literals": lambda: byte_level(
        split(GPT4), added=[_token("ab"), _token("abc"), _token("bcd"), _token("\n\n")]
    ),
    "ignore merges": lambda: byte_level(split(GPT4), ignore_merges=True),
    "characters": lambda: characters(split(GPT2)),
    "templated": templated,
}
"""Definitions that are understood, by what they are here for."""


def _prefixed() -> tokenizers.Tokenizer:
    tokenizer = byte_level(split(GPT4))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
    return tokenizer


def _bare() -> tokenizers.Tokenizer:
    tokenizer = characters(split(GPT2))
    tokenizer.pre_tokenizer = None
    return tokenizer


def _byte_level_first() -> tokenizers.Tokenizer:
    tokenizer = byte_level(split(GPT4))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False), split(r"\p{L}+")]
    )
    return tokenizer


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
    "merged": lambda: byte_level(split(r"\s", "merged_with_next")),
    "prefix space": _prefixed,
    "no pre-tokenizer": _bare,
    "byte level first": _byte_level_first,
    "nothing divides": byte_level,
    "two literals that become one": lambda: byte_level(
        split(GPT4),
        normalizer=normalizers.NFD(),
        added=[_token("\u212b!", normalized=True), _token("\u00c5!", normalized=True)],
    ),
    "dropout": lambda: byte_level(split(GPT4), dropout=0.0001),
    "replace": lambda: byte_level(split(GPT4), normalizer=normalizers.Replace("a", "b")),
    "template that repeats": _repeating,
}
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
    symbols = sorted({*pre_tokenizers.ByteLevel.alphabet(), *WORDS})
    vocabulary = {"<unk>": 0} | {
        f"{c}{end}": 2 * i + j for i, c in enumerate(symbols, 1) for j, end in enumerate(("", "#"))
    }
    copy.model = models.BPE(vocabulary, [], unk_token="<unk>", fuse_unk=True, end_of_word_suffix="#")
    return tokenizers.Tokenizer.from_str(copy.to_str())
