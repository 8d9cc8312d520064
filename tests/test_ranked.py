"""Tokenizers that tiktoken defines: ids are tiktoken's, cuts hold, and what stands on a tokenizer works."""

from __future__ import annotations

import functools
import pathlib
import random
from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import pytest
import tiktoken
from attrs import evolve
from hypothesis import given, settings
from hypothesis import strategies as st

import toktier
from tests import encodings, material
from tests.encodings import SPECIAL, cut_ids, ids
from toktier import InvalidText, Session, SessionStore, Tokenizer, UnknownEngine
from toktier.campaign.operations import Kind, encode
from toktier.campaign.programs import Problem
from toktier.campaign.reproduction import Reproduction, encodes_special_tokens
from toktier.campaign.texts import fragments, random_text
from toktier.engines.base import Ids
from toktier.engines.tiktoken_reference import TiktokenReference
from toktier.errors import EngineFailure, StateMismatch
from toktier.families.family import Family
from toktier.families.formats.patterns import PATTERNS
from toktier.families.formats.probe import TiktokenProbe
from toktier.families.formats.ranked import RankedBPE
from toktier.families.probing import DiskCache
from toktier.state import LIBRARY
from toktier.verify import ShadowVerifier

NAMES = ("gpt2", "cl100k_base", "o200k_base", "llama3", "qwen", "kimi", "dropping")
"""One of each different pattern."""

DROPPING = r"[a-z]+|[A-Z][a-z]*|\d{1,3}|\s(?=\s)|[.,!?<>|]"
"""What it does not match is dropped."""


@functools.cache
def encoding(name: str) -> tiktoken.Encoding:
    return encodings.encoding(PATTERNS.get(name, DROPPING))


@functools.cache
def load(name: str) -> Tokenizer:
    return material.registry().load(encoding(name))


# Ids and cuts


@pytest.mark.parametrize("name", NAMES)
def test_real_texts_have_the_ids_of_the_library_and_fall_apart_at_every_cut(name: str) -> None:
    tok, expected = load(name), encoding(name)
    cuts = 0
    for real in material.corpus():
        text = f"{real[:6_000]}<|endoftext|>{real[-500:]}"
        assert tok.encode(text).tolist() == ids(expected, text)
        assert cut_ids(expected, tok.family, text) == ids(expected, text)
        cuts += len(tok.family.cuts(text))
    assert cuts > 1_000


@pytest.mark.parametrize("name", NAMES)
def test_adversarial_texts_fall_apart_at_every_cut(name: str) -> None:
    tok, expected = load(name), encoding(name)
    source, pool = random.Random(name), fragments(tok)
    for _ in range(600):
        text = random_text(source, pool, 2, 30)
        assert cut_ids(expected, tok.family, text) == ids(expected, text), text


@pytest.mark.parametrize("name", NAMES)
def test_every_two_atoms_side_by_side_keep_to_their_cut(name: str) -> None:
    """Each cut by itself, which is what the relation promises."""
    tok, expected = load(name), encoding(name)
    firsts = [chr(ranges[0].start) for ranges in tok.family.alphabet() if ranges[0].start not in range(0xD800, 0xE000)]
    contexts = [("", ""), ("a", "a"), (" ", " "), ("\n", "\n"), ("'", "s"), ("  ", "中")]
    wrong = 0
    for left in firsts:
        for right in firsts:
            for before, after in contexts:
                joined = ids(expected, before + left) + ids(expected, right + after)
                differs = joined != ids(expected, before + left + right + after)
                assert not (differs and tok.family.is_pair(left, right)), (before, left, right, after)
                wrong += differs
    assert wrong, "a test in which nothing can go wrong"


@settings(max_examples=200)
@given(st.sampled_from(NAMES), st.text(st.characters(exclude_categories=["Cs"]), max_size=40))
def test_any_text_has_the_ids_of_the_library(name: str, text: str) -> None:
    assert load(name).encode(text).tolist() == ids(encoding(name), text)
    assert load(name).engine("memo").encode(text).tolist() == ids(encoding(name), text)


def test_a_class_written_for_the_other_library_would_have_other_cuts() -> None:
    """``[[:alpha:]]`` is ASCII here and all letters there: that is what asking tiktoken itself is for."""
    expected = encodings.encoding(r"[[:alpha:]]+|[^[:alpha:]]")
    tok = material.registry().load(expected)
    assert tok.family.is_pair("é", "é")
    assert not tok.family.is_pair("e", "e")
    assert cut_ids(expected, tok.family, "éée ée") == ids(expected, "éée ée")


# Special tokens


def test_no_cut_is_inside_a_special_token() -> None:
    tok = material.registry().load(encodings.encoding(r"\s|\S", {"<a>": 5000, "ab": 5001, "bc": 5002, "\n\n": 5003}))
    assert tok.family.supported
    for left, right in [*pairwise("<a>"), *pairwise("ab"), *pairwise("bc"), *pairwise("\n\n")]:
        assert not tok.family.is_pair(left, right)
    assert tok.family.is_pair("a", "c")
    c, line = ids(encodings.encoding(r"\s|\S"), "c\n")
    assert tok.encode("abc<a>\n\n\n").tolist() == [5001, c, 5000, 5003, line], "the leftmost is found"


def test_special_tokens_that_begin_alike_are_left_to_the_library() -> None:
    for order in (["<a>", "<a>b", "x"], ["<a>b", "x", "<a>"], ["x", "<a>", "<a>b"]):
        expected = encodings.encoding(PATTERNS["gpt2"], {content: 5000 + len(content) for content in order})
        tok = material.registry().load(expected)
        assert tok.family.reason is not None
        assert "'<a>b' begins with '<a>'" in tok.family.reason
        for text in ("<a>b", "<a><a>b<a>", "x<a>bx b"):
            assert tok.encode(text).tolist() == ids(expected, text)
            assert tok.session(text).tolist() == ids(expected, text)


def test_their_order_is_a_part_of_what_the_tokenizer_is() -> None:
    """Were it not, the first of the two to be loaded would answer for both."""
    texts = [(f"<{i}>", f"<{i}>b") for i in range(40)]
    orders = [[{short: 5000, long: 5001}, {long: 5001, short: 5000}] for short, long in texts]
    different = 0
    for (_, long), order in zip(texts, orders, strict=True):
        both = [encodings.encoding("a", special) for special in order]
        loaded = [material.registry().load(encoding) for encoding in both]
        assert [tok.encode(long).tolist() for tok in loaded] == [ids(encoding, long) for encoding in both]
        different += ids(both[0], long) != ids(both[1], long)
    assert different, "a test in which the order plays no part"


def test_a_definition_without_its_special_tokens_would_have_cuts_inside_them() -> None:
    special = {"ab": 5000}
    expected = encodings.encoding(r"\s|\S", special)
    definition = material.registry().load(expected).family.definition
    bare = Family.derive(evolve(definition, literals=()), TiktokenProbe(DiskCache(None)))
    assert bare.is_pair("a", "b")
    assert ids(expected, "a") + ids(expected, "b") != ids(expected, "ab")


def test_a_pattern_that_is_not_understood_is_encoded_in_full() -> None:
    expected = encodings.encoding(r"\b\w+|\W")
    tok = material.registry().load(expected)
    assert tok.family.reason == "pattern: word boundary '\\\\b' at position 0 of the pattern"
    session = tok.session("Some text")
    session.append(" and more")
    assert session.tolist() == ids(expected, "Some text and more")


# The reference


def test_an_id_of_no_token_stands_for_nothing_in_either_reference() -> None:
    for tok in (load("qwen"), material.load("toktier-mini")):
        assert tok.reference.token(70)
        assert not tok.reference.token(10**6)


def test_the_reference_is_the_library_and_others_say_why_they_do_not_serve() -> None:
    tok = load("qwen")
    reference = tok.engine("reference")
    assert isinstance(reference, TiktokenReference)
    assert "tiktoken" in reference.reason
    report = tok.report(compare=True)
    for name in ("gigatoken", "tiktoken"):
        assert "the reference of this tokenizer is tiktoken" in report.engines[name]
        with pytest.raises(UnknownEngine, match="the reference of this tokenizer is tiktoken"):
            tok.engine(name)
    assert report.engines["memo"].startswith("admitted")


def test_a_text_that_cannot_be_encoded_raises_as_everywhere() -> None:
    tok = load("qwen")
    assert tok.encode("a\0b").tolist() == ids(encoding("qwen"), "a\0b")
    for encode_one in (tok.encode, tok.engine("reference").encode, tok.engine("memo").encode, tok.session):
        with pytest.raises(InvalidText, match=r"U\+D800 at position 2"):
            encode_one("ab\ud800")
    assert encoding("qwen").encode("ab\ud800"), "the library itself would replace it"


def test_what_is_beyond_the_library_is_an_engine_failure() -> None:
    """A run of a million spaces is more than its regular expressions can give back character by character."""
    tok = load("llama3")
    with pytest.raises(EngineFailure, match=r"tiktoken cannot encode a text of 1000001 characters.*stack"):
        tok.encode(" " * 1_000_000 + "a")
    assert tok.encode("a" * 1_000_000).size > 1
    letters = material.registry().load(RankedBPE("letters", r"\w+", {b"a": 0, b"b": 1}, {}).encoding)
    with pytest.raises(EngineFailure):
        letters.encode("abc")


def test_decoding_leaves_out_special_tokens_unless_told_otherwise() -> None:
    tok = load("qwen")
    given_ids = tok.encode("a<|im_end|>é")
    assert tok.decode(given_ids) == "aé"
    assert (
        tok.decode(given_ids, skip_special_tokens=False)
        == encoding("qwen").decode(given_ids.tolist())
        == "a<|im_end|>é"
    )
    assert tok.encode("a", add_special_tokens=True).tolist() == tok.encode("a").tolist()
    with pytest.raises(KeyError):
        tok.decode([999_999])


def test_without_special_tokens_the_library_does_not_look_for_any() -> None:
    expected = encodings.encoding(PATTERNS["qwen"], {})
    assert material.registry().load(expected).encode("<|im_end|>é").tolist() == ids(expected, "<|im_end|>é")


# What stands on a tokenizer

TRANSCRIPT = "".join(
    f"<|im_start|>{'user' if i % 2 else 'tool'}\nLine {i} of 1,234: straße 中文\n<|im_end|>\n" for i in range(60)
)


@pytest.mark.parametrize("name", NAMES)
def test_sessions_have_the_ids_of_a_full_encode(name: str) -> None:
    tok, expected = load(name), encoding(name)
    session, source = tok.session(), random.Random(name)
    copy: list[int] = []
    text = ""
    for i in range(0, len(TRANSCRIPT), 97):
        session.append(TRANSCRIPT[i : i + 97]).apply(copy)
        text += TRANSCRIPT[i : i + 97]
        start, stop = sorted(source.choices(range(len(text) + 1), k=2))
        stop = min(stop, start + 20)
        session.edit(start, stop, "<|im_end|> new\n ").apply(copy)
        text = text[:start] + "<|im_end|> new\n " + text[stop:]
        assert session.tolist() == copy == ids(expected, text)
    restored = Session.from_bytes(tok, session.to_bytes())
    restored.append("!")
    assert restored.tolist() == ids(expected, text + "!")


def test_a_store_and_a_long_text_have_them_too(tmp_path: pathlib.Path) -> None:
    tok, expected = load("o200k_base"), encoding("o200k_base")
    with SessionStore(tok, path=tmp_path / "sessions") as store:
        for end in (2_000, 3_000, 3_500):
            assert store.encode(TRANSCRIPT[:end], session="chat").tolist() == ids(expected, TRANSCRIPT[:end])
    with SessionStore(tok, path=tmp_path / "sessions") as store:
        assert store.encode(TRANSCRIPT, session="chat").tolist() == ids(expected, TRANSCRIPT)
    long = TRANSCRIPT * 80
    assert tok.encode(long).tolist() == ids(expected, long)
    assert [one.tolist() for one in tok.encode_batch([long, "a", ""])] == [ids(expected, t) for t in (long, "a", "")]


def test_a_session_of_another_version_of_the_library_is_not_resumed(monkeypatch: pytest.MonkeyPatch) -> None:
    tok = load("qwen")
    state = tok.session("A text").to_bytes()
    assert tiktoken.__version__.encode() in LIBRARY
    monkeypatch.setattr("toktier.state.LIBRARY", LIBRARY.replace(tiktoken.__version__.encode(), b"0.9"))
    with pytest.raises(StateMismatch):
        Session.from_bytes(tok, state)


class Wrong:
    """An engine that leaves out the last id."""

    name = "memo"

    def encode(self, text: str, *, continuation: bool = False) -> Ids:
        return np.array(ids(encoding("qwen"), text)[:-1], np.uint32)

    def encode_batch(self, texts: Sequence[str], *, continuation: bool = False) -> list[Ids]:
        return [self.encode(text) for text in texts]


def test_a_verifier_finds_no_difference_and_keeps_one_that_there_is(tmp_path: pathlib.Path) -> None:
    tok = toktier.Registry(None).load(encoding("qwen"))
    with ShadowVerifier(tok, sample=1.0, quarantine=tmp_path) as verifier:
        tok.session(TRANSCRIPT[:2_000]).append("more")
        verifier.drain()
        assert verifier.checks().mismatched == 0
        tok.session(TRANSCRIPT[:500], engine=Wrong())
        verifier.drain()
        assert verifier.checks().mismatched == 1
    tok.restore("memo")
    (file,) = tmp_path.glob("reproduction-*.json")
    kept = Reproduction.load(file)
    again = kept.load_tokenizer(tmp_path)
    assert again.family.digest == tok.family.digest == kept.digest
    assert kept.replay(again) is None
    assert kept.replay(again, Wrong()) is not None


def test_a_reproduction_brings_its_tokenizer(tmp_path: pathlib.Path) -> None:
    tok = load("cl100k_base")
    problem = Problem(1, Kind.ENCODE, "an example", (1, 2), (1,))
    kept = Reproduction.load(Reproduction.of(tok, "memo", [encode("Hello")], problem).save(tmp_path))
    assert not encodes_special_tokens(tok)
    assert kept.load_tokenizer(tmp_path).encode(TRANSCRIPT).tolist() == ids(encoding("cl100k_base"), TRANSCRIPT)


def test_special_tokens_of_the_definition_are_literals() -> None:
    literals = load("qwen").family.definition.literals
    assert {literal.content: literal.id for literal in literals} == SPECIAL
    assert all(literal.special and not literal.normalized for literal in literals)
