"""Unigram on the device: its model by itself, and what stands before it in the families that have it."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import pytest
import tokenizers
from tokenizers import Regex, models, normalizers, pre_tokenizers

import toktier
from tests import material, zoo
from tests.builders import behind, unigram
from tests.gpu import comparing, host
from tests.gpu.comparing import Comparison, adversarial, changed_kernels, engine_of, small_kernels
from tests.gpu.host import HostDevice
from tests.public.families import STAND_IN, load
from toktier.engines.base import Inapplicable
from toktier.families.probing import Probe
from toktier.gpu.rewriting import rewriting_of
from toktier.gpu.vocabulary import MAX_ID, refuse_large

pytestmark = pytest.mark.skipif(not host.available(), reason="there is no C++ compiler")

FAMILIES = [
    *("Unigram", "T5", "ALBERT", "charsmap", "charsmap of spaces", "prefix, and a line end alone"),
    *("public T5", "public Mon (Unigram, bytes)"),
]

SCORES = (0.1, 0.2, 0.3, 0.0, -0.1, -0.2, -0.3, -0.5, -1.0, -2.0, 1.0, 7.0)
"""Few, so that many ways are equally good; and of 0.1, 0.2 and 0.3 the sum depends on the order."""

WORDS_APART = pre_tokenizers.WhitespaceSplit()
BYTES = [f"<0x{byte:02X}>" for byte in range(256)]


def behind_words(model: models.Model, *more: pre_tokenizers.PreTokenizer) -> tokenizers.Tokenizer:
    """A model behind words between whitespace, and what else divides them; each piece with a prefix before it."""
    stages = pre_tokenizers.Sequence([WORDS_APART, *more, pre_tokenizers.Metaspace()])
    return behind(stages, tokenizers.Tokenizer(model))


def of_lines(model: models.Model) -> tokenizers.Tokenizer:
    """A model to which each line is a piece."""
    return behind(pre_tokenizers.Split("\n", "removed"), tokenizers.Tokenizer(model))


def random_model(source: random.Random, *, prefix: bool) -> models.Unigram:
    """Tokens of a few letters, some of them twice, and an empty one; unknown is one of them, or another."""
    letters = source.choice(["ab", "abé", "a▁é中𐍈"])
    tokens = ["".join(source.choices(letters, k=source.randint(1, 4))) for _ in range(source.randint(1, 30))]
    tokens += ["", "a" * 63] + ["▁"] * prefix
    fallback = source.random() < 0.3
    tokens += ["<unk>"] + BYTES * fallback
    source.shuffle(tokens)
    unknown = [i for i, token in enumerate(tokens) if not token.startswith("▁") or not prefix]
    low = source.choice([0.0, 5.0])  # of unknown characters, one is better than two, or two are better than one
    vocabulary = [(token, source.choice(SCORES) + low) for token in tokens]
    chosen = source.choice([tokens.index("<unk>"), source.choice(unknown)])
    return models.Unigram(vocabulary, chosen, fallback)


def random_pieces(source: random.Random, model: models.Unigram, count: int) -> list[str]:
    """Some tokens and unknown characters side by side."""
    tokens = sorted(tokenizers.Tokenizer(model).get_vocab())  # the library tells them in an order of each process
    tokens = [token for token in tokens if token and not token.startswith("<0x")]
    pool = [*tokens, *"abé中𐍈▁xy", "<unk>", "aaaaaaaaaaaaaaaa"]
    return ["".join(source.choices(pool, k=source.randint(1, 12))) for _ in range(count)]


def compared_models(device: HostDevice, count: int, seed: int) -> Comparison:
    """Random models on random pieces, behind the prefix and without."""
    source = random.Random(seed)
    comparison = Comparison()
    for i in range(count):
        model = random_model(source, prefix=i % 2 == 1)
        tok = toktier.load((behind_words if i % 2 else of_lines)(model))
        pieces = random_pieces(source, model, 200)
        comparison.run(engine_of(tok, device), tok, ["\n".join(pieces), *pieces[:20]])
    return comparison


@pytest.mark.parametrize("seed", [0, 7])
def test_the_model_has_the_ids_of_the_library(seed: int) -> None:
    found = compared_models(comparing.device(seed), 24, seed)
    assert found.wrong == []
    assert found.characters > 24 * 1_000


def test_what_is_too_long_is_left_to_the_host() -> None:
    with small_kernels():
        assert compared_models(comparing.small_device(1), 6, 1).wrong == []


EQUAL_WAYS = (("<unk>", 0.0), ("a", -1.0), ("b", -1.0), ("ab", -2.0))
"""A vocabulary to which one token is as good as two."""


def tokenizer_of(name: str) -> toktier.Tokenizer:
    if name == "equal ways":
        return toktier.load(of_lines(models.Unigram([*EQUAL_WAYS], 0)))
    return load(name[7:], STAND_IN) if name.startswith("public ") else material.registry().load(zoo.build(name))


@pytest.mark.parametrize("seed", [0, 7])
@pytest.mark.parametrize("name", FAMILIES)
def test_families(name: str, seed: int) -> None:
    tok, comparison = tokenizer_of(name), Comparison()
    comparison.run(engine_of(tok, comparing.device(seed)), tok, adversarial(tok, 40, seed))
    with small_kernels():
        comparison.run(engine_of(tok, comparing.small_device(seed)), tok, adversarial(tok, 40, seed + 1))
    assert comparison.wrong == []


SMALLEST = {
    "equal ways": ["ab", "abab\nab"],
    "public T5": [
        "a b▁c ▁ ▁▁d ▁",
        "<unk>a a<unk>",
        "e\u0301 \r\n \r",
        "\x08" * 32,
        "が\x7f" * 9 + "}",
        "a",
        "\x7f\x7f",
    ],
    "public Mon (Unigram, bytes)": [
        "\u200bfoo",
        "\u200b",
        "\u200b\u2003a",
        "\xad<s>\u200bx</s>\u200b",
        "a<s>\u200b<s>b",
    ],
    "T5": ["a  b", "a \u3000 b", "  a", "a\x7f  b", "a \x7f b"],
    "charsmap of spaces": ["a  b", "a \u3000b", "a b"],
    "ALBERT": ["``a`` `` `b`", "a`\u0301`", "``", "`"],
}
"""What single rules are about."""


@pytest.mark.parametrize("name", SMALLEST)
def test_smallest_texts(name: str) -> None:
    tok, comparison = tokenizer_of(name), Comparison()
    comparison.run(engine_of(tok, comparing.device()), tok, SMALLEST[name])
    with small_kernels():
        comparison.run(engine_of(tok, comparing.small_device()), tok, SMALLEST[name])
    assert comparison.wrong == []


FAULTS = {
    "of ways that are equally good, the last": ("unigram.cuh", "score > *best", "score >= *best"),
    "a prefix goes before nothing": ("rewriting.cuh", "at).size == 0", "at).size == 99"),
    "what is paired is never odd": ("marking.cuh", "tables->kind_flags[left] & PAIRED ? ODD", "false ? ODD"),
}
"""Rules of the kernels, each broken in one place."""


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_found(fault: str, tmp_path: Path) -> None:
    with small_kernels():
        wrong = changed_kernels(tmp_path, *FAULTS[fault])
        found = compared_models(wrong, 4, 0)
        for name, texts in SMALLEST.items():
            tok = tokenizer_of(name)
            found.run(engine_of(tok, wrong), tok, texts)
    assert found.wrong


def test_more_tokens_than_there_is_room_for() -> None:
    model = models.Unigram([("<unk>", 0.0), ("▁", -1.0), ("1", -2.0)], 0)
    tokenizer = behind_words(model, pre_tokenizers.Digits(individual_digits=True))
    tokenizer.normalizer = normalizers.Replace("x", "111")
    tok = toktier.load(tokenizer)
    engine, text = engine_of(tok, comparing.device()), "x" * (1 << 16)
    assert engine.encode(text[:3]).tolist() == [1, 2] * 9
    assert comparing.same(engine.encode(text), tok.engine("reference").encode(text))


def test_one_space_is_not_left_to_the_host() -> None:
    rewriting = rewriting_of(tokenizer_of("T5").family.definition, Probe())
    assert (rewriting.odd[ord(" ")], rewriting.paired[ord(" ")], rewriting.paired[ord("a")]) == (False, True, False)


# What is refused


def of_tokens(*tokens: str, unknown: int | None = 0, fallback: bool = False) -> models.Unigram:
    return models.Unigram([(token, -1.0) for token in tokens], unknown, fallback)


def _lost(*some: normalizers.Normalizer) -> tokenizers.Tokenizer:
    return unigram(pre_tokenizers.Split("\n", "isolated"), normalizers.Sequence(list(some)))


REFUSED: dict[str, Callable[[], tokenizers.Tokenizer]] = {
    "the model has no unknown token": lambda: of_lines(of_tokens("a", unknown=None)),
    "has 64 characters, more than 63": lambda: of_lines(of_tokens("a", "b" * 64)),
    "byte 0x01 is no token": lambda: of_lines(of_tokens("a", "<0x00>", fallback=True)),
    "Unigram of bytes": lambda: behind(pre_tokenizers.ByteLevel(), tokenizers.Tokenizer(of_tokens("a"))),
    "prefix '▁' is no token": lambda: behind_words(of_tokens("a", "▁a")),
    "unknown token begins with prefix": lambda: behind_words(of_tokens("▁a", "▁")),
    "Prefix stands behind a splitter": lambda: behind(
        pre_tokenizers.Sequence([WORDS_APART, pre_tokenizers.Metaspace(prepend_scheme="first")]),
        tokenizers.Tokenizer(of_tokens("a", "▁")),
    ),
    "Substitution stands behind a splitter": lambda: behind(
        pre_tokenizers.Sequence([pre_tokenizers.Digits(), pre_tokenizers.Metaspace()]),
        tokenizers.Tokenizer(of_tokens("a", "▁")),
    ),
    "behind a splitter is divided again": lambda: behind(
        pre_tokenizers.Sequence([WORDS_APART, pre_tokenizers.Metaspace(), pre_tokenizers.Punctuation()]),
        tokenizers.Tokenizer(of_tokens("a", "▁")),
    ),
    "the model is no Unigram": lambda: zoo.build("words, Metaspace"),
    "may lose the character": lambda: _lost(normalizers.Prepend("▁"), normalizers.Replace("x", "")),
    "more than one prefix, or it is rewritten": lambda: _lost(
        normalizers.Prepend("▁"), normalizers.Replace(Regex("▁{2,}"), "▁")
    ),
}


@pytest.mark.parametrize("reason", REFUSED)
def test_what_is_refused_says_why(reason: str) -> None:
    with pytest.raises(Inapplicable, match=reason):
        engine_of(toktier.load(REFUSED[reason]()), comparing.device())


def test_ids_leave_room_for_a_note() -> None:
    refuse_large([MAX_ID, 0])
    with pytest.raises(Inapplicable, match="id 1,073,741,824 is larger than 1,073,741,823"):
        refuse_large([0, MAX_ID + 1])
