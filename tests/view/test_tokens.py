from __future__ import annotations

import functools

import numpy as np
import pytest
import tiktoken
import tokenizers
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import models, normalizers, pre_tokenizers, processors

import toktier
from tests import builders, material, zoo
from toktier.view.tokens import Finder, OtherIds, Places

TEXT = "The naïve 👩‍👩‍👧 said: 'É, ça va?'\n\n  <|im_start|>中文 e\u0301 \u212b\t\x00 <|im_end|> end "
ALPHABET = st.sampled_from([*"aé中👍🏽 \n\u0301\u200dİ", "<|im_end|>", "the "])
BYTE_LEVEL = ("gpt2", "overlapping literals", "ignore merges")
OTHERS = (
    *("NFC", "lowercase", "spaces deleted", "lstrip", "lookbehind"),
    *("Llama 2", "Metaspace first", "prefix space", "BERT", "T5", "Strip"),
)


@functools.cache
def load(name: str) -> toktier.Tokenizer:
    return material.registry().load(zoo.build(name))


def places(tok: toktier.Tokenizer, text: str) -> tuple[list[int], Places]:
    ids = tok.encode(text)
    return ids.tolist(), Finder(tok).places(text, ids)


def slices(found: Places, text: str) -> list[str]:
    return [text[start:stop] for start, stop in zip(found.starts, found.stops, strict=True)]


def check_places(found: Places, text: str, count: int) -> None:
    assert len(found.starts) == len(found.stops) == count
    assert (np.diff(found.starts) >= 0).all()
    assert (np.diff(found.stops) >= 0).all()
    assert (found.starts <= found.stops).all()
    assert not count or (found.starts[0] >= 0 and found.stops[-1] <= len(text))


def check_cover(found: Places, text: str) -> None:
    """Each character is some token's."""
    assert found.starts[0] == 0
    assert found.stops[-1] == len(text)
    assert (found.starts[1:] <= found.stops[:-1]).all()


KINDS = ("toktier-mini", "llama2", "minilm_bert_uncased", "qwen3")
"""One of each kind: where places come from differs by kind alone."""


@pytest.mark.parametrize("name", [name for name in KINDS if name in material.available()])
def test_places_ascend_and_end_with_the_text(name: str) -> None:
    tok = material.load(name)
    ids, found = places(tok, TEXT)
    check_places(found, TEXT, len(ids))


@pytest.mark.parametrize("name", [*BYTE_LEVEL, *OTHERS])
def test_places_by_small_definitions_ascend_and_end_with_the_text(name: str) -> None:
    tok = load(name)
    ids, found = places(tok, TEXT)
    check_places(found, TEXT, len(ids))


@given(st.lists(ALPHABET, min_size=1).map("".join))
def test_bytes_of_byte_level_tokens_are_those_of_the_text(text: str) -> None:
    for tok in (toktier.load("toktier-mini"), *map(load, BYTE_LEVEL)):
        ids = tok.encode(text)
        finder = Finder(tok)
        assert b"".join(finder.meaning(id).data for id in ids.tolist()) == text.encode()
        check_cover(finder.places(text, ids), text)


@given(st.lists(ALPHABET, min_size=1).map("".join))
def test_places_by_bytes_are_those_of_the_library(text: str) -> None:
    tok = toktier.load("toktier-mini")
    _, found = places(tok, text)
    offsets = tok.reference.tokenizer.encode(text, add_special_tokens=False).offsets
    assert list(zip(found.starts.tolist(), found.stops.tolist(), strict=True)) == offsets


def test_tokens_that_share_a_character_have_its_place_each() -> None:
    tok = toktier.load("toktier-mini")
    ids, found = places(tok, "a👍b")
    assert slices(found, "a👍b") == ["a", *["👍"] * (len(ids) - 2), "b"]
    assert len(ids) > 3


def test_what_a_normalizer_changes_is_placed_where_it_stood() -> None:
    tok = toktier.load(builders.byte_level(normalizer=normalizers.Lowercase()))
    text = "THE the İ!"
    _, found = places(tok, text)
    check_cover(found, text)
    assert slices(found, text)[0] == "THE"


def test_composed_characters_are_placed_where_they_stood_apart() -> None:
    text = "e\u0301 \u1100\u1161\u11a8x o\u0323\u0302"  # an accent, a syllable of three, two marks
    _, found = places(load("NFC"), text)
    check_cover(found, text)
    assert {"e\u0301", "o\u0323\u0302"} <= {part.strip() for part in slices(found, text)}
    _, found = places(load("BERT"), "e\u0301 e")  # here the accent is dropped
    assert slices(found, "e\u0301 e") == ["e", "e"]


def test_post_processors_that_trim_places_do_not_count() -> None:
    definition = builders.byte_level(builders.split(builders.GPT4), normalizer=normalizers.Lowercase())
    definition.post_processor = processors.ByteLevel(trim_offsets=True)
    text = "The THE  the"
    _, found = places(toktier.load(definition), text)
    check_cover(found, text)
    assert definition.encode(text).offsets != list(zip(found.starts.tolist(), found.stops.tolist(), strict=True))


def test_special_tokens_that_are_text_are_so_without_the_post_processor_too() -> None:
    definition = builders.byte_level(builders.split(builders.GPT4), normalizer=normalizers.Lowercase())
    definition.post_processor = processors.ByteLevel(trim_offsets=True)
    definition.encode_special_tokens = True
    ids, found = places(toktier.load(definition), "A<|im_end|>")
    check_places(found, "A<|im_end|>", len(ids))
    assert len(ids) > 2


def test_dropped_whitespace_is_no_tokens_place() -> None:
    definition = tokenizers.Tokenizer(
        models.WordPiece({"[UNK]": 0, "un": 1, "##known": 2, "word": 3}, unk_token="[UNK]")
    )
    definition.normalizer = normalizers.BertNormalizer()
    definition.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    text = "Unknown  WORD é"
    _, found = places(toktier.load(definition), text)
    assert slices(found, text) == ["Un", "known", "WORD", "é"]


def test_what_continues_a_text_has_no_prefix() -> None:
    words = tokenizers.Tokenizer(models.WordLevel({"▁an": 0, "▁other": 1, "other": 2, "?": 3}, "?"))
    words.normalizer = normalizers.Prepend("▁")
    words.pre_tokenizer = pre_tokenizers.Split(" ", "removed")
    tok = toktier.load(words)
    text = " other"
    whole = tok.encode("an other")
    assert slices(Finder(tok).places(text, whole[1:], continuation=True), text) == ["other"]
    with pytest.raises(OtherIds):
        Finder(tok).places("another", tok.encode("an"))


def test_meanings_of_pieces_bytes_and_added_tokens() -> None:
    vocabulary = {"<unk>": 0, "▁a": 1, "<0x0A>": 2, "<0x0a>": 3}
    model = models.BPE(vocabulary, [], unk_token="<unk>", byte_fallback=True)
    definition = tokenizers.Tokenizer(model)
    definition.add_special_tokens(["<s>"])
    definition.add_tokens(["<t>"])
    finder = Finder(toktier.load(definition))
    assert [(m.data, m.kind) for m in map(finder.meaning, range(1, 6))] == [
        ("▁a".encode(), "token"),
        (b"\n", "token"),
        (b"<0x0a>", "token"),
        (b"<s>", "special"),
        (b"<t>", "added"),
    ]
    assert finder.meaning(9).piece == ""


def test_tiktoken_gives_bytes_and_places_of_its_own() -> None:
    ranks = {bytes((value,)): value for value in range(256)} | {b"ab": 256}
    encoding = tiktoken.Encoding("bytes", pat_str=r"\S+|\s", mergeable_ranks=ranks, special_tokens={"<s>": 257})
    tok = toktier.load(encoding)
    text = "ab<s>é"
    ids, found = places(tok, text)
    assert slices(found, text) == ["ab", "<s>", "é", "é"]
    finder = Finder(tok)
    assert [(finder.meaning(id).piece, finder.meaning(id).kind) for id in ids] == [
        ("ab", "token"),
        ("<s>", "special"),
        ("\\xc3", "token"),
        ("\\xa9", "token"),
    ]
    with pytest.raises(OtherIds):
        finder.places("something else", tok.encode(text))


def test_no_text_has_no_tokens() -> None:
    for tok in (toktier.load("toktier-mini"), load("templated")):
        _, found = places(tok, "")
        assert len(found.starts) == len(found.stops) == 0
