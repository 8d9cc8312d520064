"""Small models, made anew in every process from the words of :mod:`tests.zoo`: the same ones each time.

A stand-in has the pipeline of a published tokenizer and one of these models. Where they can be, they are more awkward
than a published one: the merges of :func:`byte_level_model` cross every boundary that a splitter makes, so that a piece
which is too long or too short shows in the ids.
"""

from __future__ import annotations

import functools
import json
import math
import random
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

import tokenizers
from tokenizers import Regex, models, normalizers, pre_tokenizers, trainers

from tests import builders

SENTENCES = 3000
SIZE = 2000
"""Tokens of a model, about, less those that are prescribed."""

SPACE = "▁"
"""What SentencePiece writes for a space."""

BYTES = tuple(f"<0x{byte:02X}>" for byte in range(256))
"""The tokens that unknown characters fall back to."""

RUNS = rf"{SPACE}?[^{SPACE}]+|{SPACE}+(?={SPACE}[^{SPACE}])|{SPACE}+"
"""The parts of a text that SentencePiece merges within: a word with the space before it, and runs of more spaces."""

LONGEST = 8
"""Characters of a piece at most."""


SYLLABLES = (
    "a ab al an ar as at ba be ble ca ce ci co com con cu da de der di do e ed el en er es ex fa fi for ge ha he i in "
    "ing ion is it ka la le li lo ly ma me men mi na ne ni no nu o of on or ou pa per po pre pro ra re ri ro sa se si "
    "sta str su ta te ter ti tion to tu un ve vi wa we y za я на го ро ст το ια 中 文 日 本 の か 한 글 ل م क"
)
"""What made-up words are made of."""


@functools.cache
def sentences() -> tuple[str, ...]:
    """What is trained on: the zoo's words and made-up ones in random order, with runs of spaces between some."""
    source = random.Random("public families")
    made_up = ["".join(source.choices(SYLLABLES.split(), k=source.randint(1, 4))) for _ in range(SIZE)]
    words = [*builders.WORDS.split(" ") * 3, *made_up, *(word.capitalize() for word in made_up[::5])]
    return tuple(" ".join(source.choices(words, k=source.randint(3, 9))) for _ in range(SENTENCES))


@functools.cache
def _bpe(kind: str) -> tuple[dict[str, int], list[tuple[str, str]]]:
    """A vocabulary and its merges."""
    tokenizer = tokenizers.Tokenizer(models.BPE())
    prescribed: Sequence[str] = ()
    alphabet: Sequence[str] = ()
    if kind == "bytes":
        alphabet = pre_tokenizers.ByteLevel.alphabet()
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    else:
        prescribed = ("<unk>", "<s>", "</s>", *BYTES)
        tokenizer.normalizer = normalizers.Replace(" ", SPACE)
        tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex(RUNS), "isolated")
    trainer = trainers.BpeTrainer(
        vocab_size=SIZE + len(prescribed),
        special_tokens=list(prescribed),
        initial_alphabet=list(alphabet),
        show_progress=False,
    )
    tokenizer.train_from_iterator(sentences(), trainer)
    model = json.loads(tokenizer.to_str())["model"]
    return model["vocab"], [(left, right) for left, right in model["merges"]]


def byte_level_model(**options: Any) -> models.BPE:
    """A BPE on bytes, with merges across everything."""
    return models.BPE(*_bpe("bytes"), **options)


def sentencepiece_model(**options: Any) -> models.BPE:
    """A BPE on characters in the manner of SentencePiece: no merge crosses from a word to the space behind it."""
    return models.BPE(*_bpe("characters"), unk_token="<unk>", fuse_unk=True, byte_fallback=True, **options)


def _pieces(words: Iterable[str], size: int) -> list[tuple[str, int]]:
    """Parts of words with how often they occur: all single characters, and those that cover most."""
    counts: Counter[str] = Counter()
    for word in words:
        counts.update(word[i:j] for i in range(len(word)) for j in range(i + 1, min(i + LONGEST, len(word)) + 1))
    ranked = sorted(counts.items(), key=lambda item: (len(item[0]) > 1, -item[1] * len(item[0]), item[0]))
    return ranked[:size]


def word_pieces(prescribed: Sequence[str], *, lowercase: bool) -> models.WordPiece:
    """A WordPiece with every part also as a continuation.

    Args:
        prescribed: The tokens that come first.
        lowercase: Whether the words are those of an uncased tokenizer.
    """
    words = [word for sentence in sentences() for word in sentence.split()]
    kept = _pieces((word.lower() for word in words) if lowercase else words, SIZE // 2)
    tokens = [*prescribed, *(prefix + piece for piece, _ in kept for prefix in ("", "##"))]
    return models.WordPiece({token: id for id, token in enumerate(tokens)}, unk_token="[UNK]")


def unigram(prescribed: Sequence[str], unknown: str, *, byte_fallback: bool = False) -> models.Unigram:
    """A Unigram model of words with the space before them.

    Args:
        prescribed: The tokens that come first.
        unknown: Which of them is the unknown one.
        byte_fallback: Whether unknown characters become bytes.
    """
    kept = _pieces((SPACE + word for sentence in sentences() for word in sentence.split()), SIZE)
    first = [*prescribed, *(BYTES if byte_fallback else ())]
    total = math.log(sum(count for _, count in kept))
    vocabulary = [(token, 0.0) for token in first] + [(piece, math.log(count) - total) for piece, count in kept]
    return models.Unigram(vocabulary, first.index(unknown), byte_fallback)
