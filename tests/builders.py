"""What small definitions are made with: trained here, on a few words."""

from __future__ import annotations

import functools
import json
import random
from collections.abc import Sequence
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


@functools.cache
def _training_texts() -> tuple[str, ...]:
    """Words, and characters of theirs in random pairs."""
    letters = random.Random(0)
    return (*WORDS.split(" "), *("".join(letters.choices(WORDS, k=2)) for _ in range(20_000)))


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


def token(content: str, **flags: bool) -> AddedToken:
    return AddedToken(content, **({"normalized": False} | flags))


def sentencepiece(
    pre_tokenizer: pre_tokenizers.PreTokenizer | None = None,
    normalizer: normalizers.Normalizer | None = None,
    added: AddTokens = (),
    **model: Any,
) -> tokenizers.Tokenizer:
    """A BPE on characters with ``▁`` for a space, as SentencePiece makes it; with merges across every boundary."""
    tokenizer = tokenizers.Tokenizer(models.BPE(unk_token="<unk>", **model))
    fallback = [f"<0x{byte:02X}>" for byte in range(256)] if model.get("byte_fallback") else []
    trainer = trainers.BpeTrainer(
        vocab_size=1500, special_tokens=["<unk>", *fallback], show_progress=False, limit_alphabet=150
    )
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="never", split=False)
    texts = _training_texts()
    tokenizer.train_from_iterator([" ".join(texts[i : i + 4]) for i in range(0, 12_000, 4)], trainer)
    tokenizer.normalizer, tokenizer.pre_tokenizer = normalizer, pre_tokenizer
    tokenizer.add_tokens([AddedToken("<s>", special=True), AddedToken("</s>", special=True), *added])
    return tokenizer


def word_pieces(
    pre_tokenizer: pre_tokenizers.PreTokenizer,
    normalizer: normalizers.Normalizer | None = None,
    added: AddTokens = (),
) -> tokenizers.Tokenizer:
    """A WordPiece that gives up on words of more than twenty characters.

    Its tokens are those that BPE learns, each at the beginning of a word and inside of one: the trainer of the library
    for WordPiece learns others in each process.
    """
    learned = tokenizers.Tokenizer(models.BPE())
    learned.normalizer, learned.pre_tokenizer = normalizer, pre_tokenizer
    learned.train_from_iterator(_training_texts()[:8000], trainers.BpeTrainer(vocab_size=750, show_progress=False))
    tokens = sorted(learned.get_vocab())
    vocabulary = dict.fromkeys(["[UNK]", "[CLS]", *tokens, *("##" + token for token in tokens)])
    ids = {token: i for i, token in enumerate(vocabulary)}
    tokenizer = tokenizers.Tokenizer(models.WordPiece(ids, unk_token="[UNK]", max_input_chars_per_word=20))
    tokenizer.normalizer, tokenizer.pre_tokenizer = normalizer, pre_tokenizer
    tokenizer.add_special_tokens(["[UNK]", "[CLS]"])
    tokenizer.add_tokens([AddedToken("[MASK]", special=True, lstrip=True), *added])
    return tokenizer


def unigram(
    pre_tokenizer: pre_tokenizers.PreTokenizer | None, normalizer: normalizers.Normalizer | None = None
) -> tokenizers.Tokenizer:
    """A Unigram, whose ids of a piece depend on all of it.

    Scores are rounded and those that are equal are in the order of their tokens: the trainer of the library adds in
    another order in each process.
    """
    special = ["<unk>", "</s>"]
    trained = tokenizers.Tokenizer(models.Unigram())
    trained.normalizer, trained.pre_tokenizer = normalizer, pre_tokenizer
    trainer = trainers.UnigramTrainer(vocab_size=600, special_tokens=special, unk_token="<unk>", show_progress=False)
    texts = _training_texts()
    trained.train_from_iterator([" ".join(texts[i : i + 8]) for i in range(0, 8000, 8)], trainer)
    scores = {token: round(score, 2) for token, score in json.loads(trained.to_str())["model"]["vocab"]}
    tokens = sorted(scores.keys() - set(special), key=lambda token: (-scores[token], token))
    tokenizer = tokenizers.Tokenizer(models.Unigram([(token, scores[token]) for token in [*special, *tokens]], 0))
    tokenizer.normalizer, tokenizer.pre_tokenizer = normalizer, pre_tokenizer
    tokenizer.add_special_tokens(special)
    return tokenizer


def behind(pre_tokenizer: pre_tokenizers.PreTokenizer, tokenizer: tokenizers.Tokenizer) -> tokenizers.Tokenizer:
    """A tokenizer with another pre-tokenizer."""
    tokenizer.pre_tokenizer = pre_tokenizer
    return tokenizer
