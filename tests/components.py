"""A small definition for each component that the library has, alone and with those that it could quarrel with."""

from __future__ import annotations

from collections.abc import Callable

import tokenizers
from tokenizers import Regex, normalizers, pre_tokenizers

from tests.builders import GPT4, behind, byte_level, characters, sentencepiece, split, token, unigram, word_pieces
from toktier.families.trie import compiled


def _llama() -> normalizers.Normalizer:
    return normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])


def _metaspace(scheme: str, *, split: bool = True) -> pre_tokenizers.PreTokenizer:
    return pre_tokenizers.Metaspace(prepend_scheme=scheme, split=split)


def _in_turn(*some: pre_tokenizers.PreTokenizer) -> pre_tokenizers.PreTokenizer:
    return pre_tokenizers.Sequence(list(some))


def _bytes(*, prefix: bool = False, use_regex: bool = False) -> pre_tokenizers.PreTokenizer:
    return pre_tokenizers.ByteLevel(add_prefix_space=prefix, use_regex=use_regex)


def _of_bytes() -> tokenizers.Tokenizer:
    tokenizer = behind(split("Ġ?[a-z]+|."), byte_level(split(GPT4)))
    tokenizer.normalizer = normalizers.ByteLevel()
    return tokenizer


def _prefixed(tokenizer: tokenizers.Tokenizer) -> tokenizers.Tokenizer:
    tokenizer.normalizer = normalizers.Prepend("▁")
    return tokenizer


WORDS_APART = pre_tokenizers.WhitespaceSplit()

COMPONENTS: dict[str, Callable[[], tokenizers.Tokenizer]] = {
    # What the model joins, where nothing divides
    "Llama 2": lambda: sentencepiece(normalizer=_llama(), byte_fallback=True, fuse_unk=True),
    "unknown characters": lambda: sentencepiece(normalizer=_llama()),
    "unknown characters, fused": lambda: sentencepiece(normalizer=_llama(), fuse_unk=True),
    "Gemma": lambda: sentencepiece(
        pre_tokenizers.Split(" ", "merged_with_previous"), normalizers.Replace(" ", "▁"), byte_fallback=True
    ),
    "no pre-tokenizer": lambda: behind(_in_turn(), characters(split(GPT4))),
    "bytes alone": byte_level,
    # Prefixes
    "Metaspace": lambda: sentencepiece(_metaspace("always")),
    "Metaspace first": lambda: sentencepiece(_metaspace("first"), byte_fallback=True),
    "Metaspace never": lambda: sentencepiece(_metaspace("never")),
    "Metaspace first, whole": lambda: sentencepiece(_metaspace("first", split=False), byte_fallback=True),
    "Metaspace always, whole": lambda: sentencepiece(_metaspace("always", split=False), fuse_unk=True),
    "words, Metaspace": lambda: sentencepiece(_in_turn(WORDS_APART, _metaspace("always"))),
    "words, Metaspace first": lambda: sentencepiece(_in_turn(WORDS_APART, _metaspace("first"))),
    "Metaspace twice": lambda: sentencepiece(_in_turn(_metaspace("always"), _metaspace("always"))),
    "digits, Metaspace": lambda: sentencepiece(_in_turn(pre_tokenizers.Digits(True), _metaspace("always"))),
    "prefix and literals": lambda: sentencepiece(
        normalizer=_llama(),
        byte_fallback=True,
        added=[token("<n>", normalized=True), token("<r>", rstrip=True), token("x"), token("e", normalized=True)],
    ),
    "Metaspace and literals": lambda: sentencepiece(
        _metaspace("always"),
        added=[token("<n>", normalized=True), token("<r>", rstrip=True), token("x"), token("e", normalized=True)],
    ),
    "prefix, and a line end alone": lambda: _prefixed(unigram(pre_tokenizers.Split("\n", "isolated"))),
    "prefix space": lambda: behind(_bytes(prefix=True, use_regex=True), byte_level(split(GPT4))),
    "split, prefix space": lambda: behind(
        _in_turn(pre_tokenizers.Split("e", "isolated"), _bytes(prefix=True, use_regex=True)), byte_level(split(GPT4))
    ),
    # WordPiece and Unigram
    "BERT": lambda: word_pieces(pre_tokenizers.BertPreTokenizer(), normalizers.BertNormalizer(lowercase=True)),
    "BERT, cased": lambda: word_pieces(pre_tokenizers.BertPreTokenizer(), normalizers.BertNormalizer(lowercase=False)),
    "BERT, accents alone": lambda: word_pieces(
        pre_tokenizers.BertPreTokenizer(),
        normalizers.BertNormalizer(clean_text=False, strip_accents=True, lowercase=False),
    ),
    "Unigram": lambda: unigram(_metaspace("always")),
    "T5": lambda: unigram(
        _in_turn(WORDS_APART, _metaspace("always")),
        normalizers.Sequence([normalizers.Nmt(), normalizers.NFKC(), normalizers.Replace(Regex(" {2,}"), " ")]),
    ),
    "ALBERT": lambda: unigram(
        _in_turn(WORDS_APART, _metaspace("always")),
        normalizers.Sequence(
            [
                normalizers.Replace("``", '"'),
                normalizers.NFKD(),
                normalizers.StripAccents(),
                normalizers.Lowercase(),
                normalizers.Replace(Regex(" {2,}"), " "),
            ]
        ),
    ),
    "charsmap": lambda: unigram(
        _in_turn(WORDS_APART, _metaspace("always")), normalizers.Precompiled(compiled("a\u0301", "á"))
    ),
    "charsmap of spaces": lambda: unigram(
        _metaspace("always"),
        normalizers.Sequence(
            [normalizers.Precompiled(compiled("\u3000", " ")), normalizers.Replace(Regex(" {2,}"), "▁")]
        ),
    ),
    # Other pre-tokenizers
    "Whitespace": lambda: word_pieces(
        pre_tokenizers.Whitespace(),
        normalizers.Sequence([normalizers.NFD(), normalizers.StripAccents(), normalizers.Lowercase()]),
    ),
    "Punctuation with what is before": lambda: word_pieces(
        _in_turn(WORDS_APART, pre_tokenizers.Punctuation("merged_with_previous"), pre_tokenizers.Digits())
    ),
    "Punctuation with what is behind": lambda: word_pieces(
        _in_turn(WORDS_APART, pre_tokenizers.Punctuation("merged_with_next"))
    ),
    "Punctuation in runs": lambda: word_pieces(_in_turn(WORDS_APART, pre_tokenizers.Punctuation("contiguous"))),
    "Punctuation removed": lambda: word_pieces(pre_tokenizers.Punctuation("removed")),
    "CharDelimiterSplit": lambda: word_pieces(pre_tokenizers.CharDelimiterSplit("e")),
    "UnicodeScripts": lambda: word_pieces(pre_tokenizers.UnicodeScripts()),
    "UnicodeScripts, words": lambda: word_pieces(_in_turn(pre_tokenizers.UnicodeScripts(), WORDS_APART)),
    "words, UnicodeScripts": lambda: word_pieces(_in_turn(WORDS_APART, pre_tokenizers.UnicodeScripts())),
    "byte level first": lambda: behind(_in_turn(_bytes(), split("Ġ?[a-zA-Z]+|Ã.")), byte_level(split(GPT4))),
    "byte level twice": lambda: behind(_in_turn(split(GPT4), _bytes(), _bytes()), byte_level(split(GPT4))),
    "merged with next": lambda: byte_level(split(r"\s", "merged_with_next")),
    "merged with previous": lambda: byte_level(split(r"\s|[a-f]", "merged_with_previous")),
    "merged with next, inverted": lambda: byte_level(split(r"\s|[a-f]+", "merged_with_next", True)),
    "merged with previous, inverted": lambda: byte_level(split(r"\s|[a-f]", "merged_with_previous", True)),
    "contiguous": lambda: byte_level(split(r"\s|[a-f]", "contiguous")),
    "contiguous, inverted": lambda: byte_level(split(r"\s|[a-f]", "contiguous", True)),
    # Other normalizers
    "Strip, left": lambda: byte_level(split(r"[a-m]+|."), normalizer=normalizers.Strip(right=False)),
    "Strip, right": lambda: byte_level(split(r"[a-m]+|."), normalizer=normalizers.Strip(left=False)),
    "Strip": lambda: byte_level(split(r"[a-m]+|."), normalizer=normalizers.Strip()),
    "Replace by nothing": lambda: word_pieces(
        pre_tokenizers.BertPreTokenizer(), normalizers.Replace(Regex("[a-c]+"), "")
    ),
    "Replace that looks ahead": lambda: word_pieces(
        pre_tokenizers.BertPreTokenizer(), normalizers.Replace(Regex("a(?=b)| +"), "x ")
    ),
    "ByteLevel that normalizes": _of_bytes,
}
"""Definitions by what they are here for."""
