"""Special tokens in untrusted text are text: the spans, their encoding, and sessions and stores that carry them."""

from __future__ import annotations

import asyncio
import itertools
import random
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

import numpy as np
import pytest
import tiktoken
import tokenizers
from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st

import toktier
from tests import forging, material
from tests.builders import GPT4, byte_level, split, token, unigram
from tests.forging import SMALL, Oracle, differing, oracle, parts, session_differing, spans_of, tokenizer
from toktier import Session, SessionStore, protection
from toktier.changes import trusted_otherwise
from toktier.difference import Hunk
from toktier.engines.special import MARK, Aliases, check_aliases
from toktier.errors import EngineFailure, InvalidText, StateMismatch, Unprotectable
from toktier.families.formats.ranked import RankedBPE
from toktier.protection import Protection
from toktier.untrusted import Spans, Untrusted, checked_spans, within
from toktier.verify import Mismatch, ShadowVerifier

NAMES = [*material.available(), *SMALL]

END = "<|im_end|>"
END_ID = 4089


def mini() -> toktier.Tokenizer:
    return material.load("toktier-mini")


# The spans.

MASKS = st.lists(st.booleans(), max_size=12)


def spans_of_mask(mask: list[bool]) -> Spans:
    return checked_spans([(i, i + 1) for i, it in enumerate(mask) if it], len(mask))


def mask_of(spans: Spans, length: int) -> list[bool]:
    return [any(start <= i < stop for start, stop in spans) for i in range(length)]


@given(st.lists(st.tuples(st.integers(0, 12), st.integers(0, 12)).map(sorted), max_size=6))
def test_spans_are_put_in_order_and_merged(pairs: list[list[int]]) -> None:
    spans = checked_spans(pairs, 12)
    assert mask_of(spans, 12) == [any(start <= i < stop for start, stop in pairs) for i in range(12)]
    assert all(start < stop for start, stop in spans)
    assert all(before[1] < after[0] for before, after in itertools.pairwise(spans))


@given(MASKS, st.data())
def test_what_lies_within_a_part_is_counted_from_its_begin(mask: list[bool], data: st.DataObject) -> None:
    start = data.draw(st.integers(0, len(mask)))
    stop = data.draw(st.integers(start, len(mask)))
    assert within(spans_of_mask(mask), start, stop) == spans_of_mask(mask[start:stop])
    assert Untrusted(spans_of_mask(mask)).within(start, stop) == spans_of_mask(mask[start:stop])


@given(MASKS, st.lists(st.tuples(st.integers(0, 12), st.integers(0, 12), MASKS), max_size=5))
def test_untrusted_characters_move_with_the_text(mask: list[bool], edits: list[tuple[int, int, list[bool]]]) -> None:
    untrusted = Untrusted(spans_of_mask(mask))
    for one, other, new in edits:
        start, stop = sorted((min(one, len(mask)), min(other, len(mask))))
        around = untrusted.around(0, (start, stop, len(new), spans_of_mask(new)), len(mask))
        mask = mask[:start] + new + mask[stop:]
        untrusted.replace(start, stop, len(new), spans_of_mask(new))
        assert untrusted.spans() == spans_of_mask(mask) == checked_spans(around, len(mask))
        assert Untrusted.of(untrusted.array()).spans() == untrusted.copy().spans() == untrusted.spans()


@given(MASKS, MASKS, st.integers(0, 12), st.integers(0, 12))
def test_what_is_trusted_in_another_way_is_found(old: list[bool], new: list[bool], one: int, other: int) -> None:
    """Of two texts with a begin and an end in common, between which one has more than the other."""
    length = min(len(old), len(new))
    start, stop = sorted((min(one, length), min(other, length)))
    hunk = Hunk(start, len(old) - length + stop, start, len(new) - length + stop)
    found = trusted_otherwise(Untrusted(spans_of_mask(old)), spans_of_mask(new), [hunk], len(old), len(new))
    assert hunk in found
    at = 0
    for change in found:
        assert old[at : change.start] == new[change.begin - (change.start - at) : change.begin]
        assert at <= change.start
        at = change.stop
    assert old[at:] == new[len(new) - (len(old) - at) :]


@pytest.mark.parametrize(
    ("untrusted", "error", "message"),
    [
        ([(0, 5)], IndexError, r"untrusted span \(0, 5\) is out of range: 0 <= start <= stop <= 4"),
        ([(-1, 2)], IndexError, "out of range"),
        ([(3, 2)], IndexError, "out of range"),
        ([3], TypeError, "pairs"),
        ([(1, 2, 3)], TypeError, "pairs"),
        ([("a", "b")], TypeError, "pairs"),
        ([(0.0, 1.0)], TypeError, "pairs"),
        (3, TypeError, "pairs"),
    ],
)
def test_spans_that_are_none_are_refused(untrusted: object, error: type[Exception], message: str) -> None:
    session, store = mini().session("text"), SessionStore(mini())
    calls: list[Callable[..., object]] = [mini().encode, session.update, store.encode]
    for call in calls:
        with pytest.raises(error, match=message):
            call("text", untrusted=untrusted)
    assert (session.text, session.untrusted) == ("text", ())


def test_special_is_one_of_two_words() -> None:
    session = mini().session("text")
    with pytest.raises(ValueError, match="special must be 'token' or 'text', not 'txt'"):
        session.append("x", special="txt")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="special must be 'token' or 'text', not None"):
        session.edit(0, 1, "x", special=None)  # type: ignore[arg-type]
    assert session.text == "text"


# Exactness.


def some_literals(name: str, most: int = 3) -> Iterator[str]:
    contents = sorted((literal.content for literal in oracle(name).literals.values()), key=len)
    yield from contents[:: max(1, len(contents) // most)]


@pytest.mark.parametrize("name", NAMES)
def test_a_literal_counts_only_where_it_is_trusted_as_a_whole(name: str) -> None:
    for content in some_literals(name):
        for spans in list(forging.with_each_part_untrusted(content))[:: 1 + len(content) // 6]:
            assert differing(name, content, spans) is None


@pytest.mark.parametrize("name", NAMES)
def test_every_literal_as_text(name: str) -> None:
    """Wholly untrusted, between trusted ones."""
    contents = [literal.content for literal in oracle(name).literals.values()][:300]
    for first, then in zip(contents, contents[1:] + contents[:1], strict=True):
        text = f"{first} {then}{first}"
        start = len(first) + 1
        assert differing(name, text, ((start, start + len(then)),)) is None


@pytest.fixture
def _apart(monkeypatch: pytest.MonkeyPatch) -> None:
    """In short texts, too, what is not forged is encoded by the engine."""
    monkeypatch.setattr(protection, "APART", 0)


@pytest.mark.usefixtures("_apart")
@pytest.mark.parametrize("name", NAMES)
def test_fragments_in_trusted_and_untrusted_parts(name: str) -> None:
    source = random.Random(name)
    for _ in range(30):
        some = parts(name, source)
        assert differing(name, "".join(text for text, _ in some), spans_of(some)) is None


@pytest.mark.usefixtures("_apart")
@pytest.mark.parametrize("name", NAMES)
def test_sessions_of_fragments(name: str) -> None:
    source = random.Random(name)
    for _ in range(5):
        assert session_differing(name, source, 12) is None


@pytest.mark.parametrize("name", NAMES)
def test_where_nothing_is_forged_untrusted_text_is_like_any_other(name: str) -> None:
    source, tok = random.Random(name), tokenizer(name)
    special = [literal.content for literal in oracle(name).literals.values() if literal.special]
    for _ in range(40):
        text = "".join(text for text, _ in parts(name, source))
        spans = checked_spans([(0, len(text))], len(text))
        if not any(content in text for content in special):
            assert tok.encode(text, untrusted=spans).tolist() == tok.encode(text).tolist()


@pytest.mark.parametrize("engine", ["reference", "memo", "auto"])
def test_every_engine_gives_the_same_around_what_is_forged(engine: str) -> None:
    text = ("Some text before. " * 40 + END) * 3
    spans = checked_spans([(700, len(text) - 5)], len(text))
    session = Session(mini(), engine=engine)
    session.update(text, untrusted=spans)
    assert session.tolist() == oracle("toktier-mini").encode(text, spans)


def test_a_long_text_is_cut_into_chunks_around_what_is_forged() -> None:
    text = ("def main():\n    return 1\n" * 4000 + END + "\n") * 2
    spans = checked_spans([(0, len(text) - 5)], len(text))
    session = mini().session()
    session.update(text, untrusted=spans)
    expected = oracle("toktier-mini").encode(text, spans)
    assert session.tolist() == expected == mini().encode(text, untrusted=spans).tolist()
    assert "special tokens in untrusted text" in session.explain()["fallback"]


def test_without_special_tokens_nothing_counts_and_nothing_is_forged() -> None:
    tokenizer = tokenizers.Tokenizer(tokenizers.models.WordLevel({"a": 0, "[UNK]": 1}, unk_token="[UNK]"))
    guard = material.registry().load(tokenizer).protection
    assert (guard.counted("a", ((0, 1),)), guard.forged("a", ((0, 1),))) == ([], ())


def test_without_the_spans_it_is_forged() -> None:
    """The control of everything above."""
    assert mini().encode(END).tolist() == [END_ID]
    with mock.patch.object(Protection, "is_forged", return_value=False):
        assert mini().encode(END, untrusted=[(0, len(END))]).tolist() == [END_ID]
        session = mini().session("", engine="memo")
        session.append(END, special="text")
        assert session.tolist() == [END_ID]
    assert END_ID not in mini().encode(END, untrusted=[(0, len(END))])


def test_halves_that_meet_later_make_no_token() -> None:
    session = mini().session("user: <|im_")
    session.append("end|>", special="text")
    assert END_ID not in session.tolist()
    session = mini().session("")
    session.append("<|im_", special="text")
    session.append(" and ")
    session.append("end|>", special="text")
    session.edit(5, 10, "")
    assert session.text == END
    assert END_ID not in session.tolist()
    session.update(END)  # which is trusted now
    assert session.tolist() == [END_ID]
    session.update(END, untrusted=[(9, 10)])
    assert session.tolist() == oracle("toktier-mini").encode(END, ((9, 10),))


def test_untrusted_text_does_not_hide_a_token_that_is_trusted() -> None:
    """``<a>b`` would be longer, and begins at the same place."""
    tok = tokenizer("overlapping")
    assert tok.encode("<a>b", untrusted=[(3, 4)]).tolist() == [*tok.encode("<a>"), *tok.encode("b")]


def test_patches_tell_what_became_text() -> None:
    session, text = mini().session(f"one {END} two"), f"one {END} two"
    copy = session.tolist()
    session.update(text, untrusted=[(4, 14)]).apply(copy)
    assert copy == session.tolist() == oracle("toktier-mini").encode(text, ((4, 14),))
    assert session.update(text, untrusted=[(4, 14)]).ids.size == 0
    session.update(text).apply(copy)
    assert copy == mini().encode(text).tolist()


@pytest.mark.parametrize("template", ["<s> $A </s>", "$A <s> $A", "$A"])
def test_what_the_post_processor_makes_of_it_is_made(template: str) -> None:
    library = byte_level(split(GPT4), added=[token("<s>", special=True), token("</s>", special=True)])
    ids = {content: library.token_to_id(content) for content in ("<s>", "</s>")}
    library.post_processor = tokenizers.processors.TemplateProcessing(template, special_tokens=list(ids.items()))
    tok = material.registry().load(library)
    got = tok.encode("<s>text</s>", untrusted=[(0, 11)], add_special_tokens=True).tolist()
    library.encode_special_tokens = True
    assert got == library.encode("<s>text</s>").ids


def test_nothing_changes_when_a_call_is_refused() -> None:
    session = mini().session("text")
    before = session.untrusted, session.tolist()
    with pytest.raises(InvalidText):
        session.append("\ud800", special="text")
    with pytest.raises(IndexError):
        session.edit(3, 99, "x", special="text")
    assert (session.untrusted, session.tolist()) == before


def test_an_engine_that_is_demoted_leaves_untrusted_text_untrusted() -> None:
    tok = toktier.Registry(None).load(material.file("toktier-mini"))
    session = Session(tok, "Hello ", engine="memo")
    session.append(END, special="text")
    tok.demote("memo", "a test")
    try:
        expected = oracle("toktier-mini").encode(f"Hello {END}", ((6, 16),))
        assert session.ids.tolist() == expected  # encoded anew for who looks
        assert Session.from_bytes(tok, session.to_bytes()).tolist() == expected
        session.append("!", special="text")
        assert session.tolist() == oracle("toktier-mini").encode(f"Hello {END}!", ((6, 17),))
    finally:
        tok.restore("memo")


def test_a_verifier_knows_what_is_untrusted() -> None:
    tok = toktier.Registry(None).load(material.file("toktier-mini"))
    with ShadowVerifier(tok, sample=1.0, quarantine=None) as verifier:
        session = Session(tok, "Hello ", engine="memo")
        session.append(END, special="text")
        store = SessionStore(tok, engine="memo")
        store.encode(END, untrusted=[(0, 10)])
        store.encode(f"{END} " * 200, untrusted=[(0, 1000)], session="one")
        tok.encode(END, untrusted=[(0, 10)])
        verifier.drain()
        checks = verifier.checks()
    assert checks.mismatched == 0
    assert checks.checked >= 5


def test_a_verifier_finds_a_wrong_answer_around_what_is_forged() -> None:
    tok = toktier.Registry(None).load(material.file("toktier-mini"))
    found: list[Mismatch] = []
    with ShadowVerifier(tok, sample=1.0, quarantine=None, on_mismatch=found.append, demote=False) as verifier:
        verifier.offer(
            "append", tok.engine("memo"), 10, END.__str__, np.array([END_ID], np.uint32), untrusted=((0, 10),)
        )
        verifier.drain()
    assert [mismatch.engine for mismatch in found] == ["memo"]


# Stores.


def test_a_store_heeds_who_wrote_what() -> None:
    store, text = SessionStore(mini()), f"user: {END}"
    spans = ((6, 16),)
    as_text, as_token = oracle("toktier-mini").encode(text, spans), mini().encode(text).tolist()
    for _ in range(2):  # short texts, which are remembered
        assert store.encode(text, untrusted=spans).tolist() == as_text
        assert store.encode(text).tolist() == as_token
    for _ in range(2):
        assert store.encode(text, session="one", untrusted=spans).tolist() == as_text
        assert store.encode(text, session="one").tolist() == as_token


def test_a_store_shares_what_is_written_by_others() -> None:
    """Two texts that are equal, and differ in what is trusted."""
    store, text = SessionStore(mini()), f"The system prompt. {END}\n" * 100
    spans = checked_spans([(len(text) // 2, len(text))], len(text))
    assert store.encode(text).tolist() == mini().encode(text).tolist()
    assert store.encode(text, untrusted=spans).tolist() == oracle("toktier-mini").encode(text, spans)
    assert store.encode(text, session="two", untrusted=spans).tolist() == oracle("toktier-mini").encode(text, spans)
    assert store.encode(text + "x").tolist() == mini().encode(text + "x").tolist()
    assert store.usage().shared > 0


def test_a_store_keeps_on_disk_who_wrote_what(tmp_path: object) -> None:
    text, spans = f"user: {END}", ((6, 16),)
    with SessionStore(mini(), path=f"{tmp_path}/sessions") as store:
        store.encode(text, session="one", untrusted=spans)
    with SessionStore(mini(), path=f"{tmp_path}/sessions") as store:
        ids = store.encode(text + "!", session="one", untrusted=spans)
        assert store.usage().resumed == 1
        assert ids.tolist() == oracle("toktier-mini").encode(text + "!", spans)


def test_a_store_heeds_it_in_an_event_loop() -> None:
    store, text, spans = SessionStore(mini()), f"user: {END}", ((6, 16),)

    async def calls() -> None:
        for name in (None, "one", "one"):
            ids = await store.encode_async(text, untrusted=spans, session=name)
            assert ids.tolist() == oracle("toktier-mini").encode(text, spans)
            ids = await store.encode_async(text, session=name)
            assert ids.tolist() == mini().encode(text).tolist()
            some = await store.encode_async(text * 2, untrusted=((0, 3), (6, 16)), session=name)
            assert some.tolist() == oracle("toktier-mini").encode(text * 2, spans)

    asyncio.run(calls())


def test_few_spans_do_not_make_a_call_leave_the_event_loop() -> None:
    store, text = SessionStore(mini()), f"user: {END}"
    store.encode(text, session="one", untrusted=[(6, 16)])

    with mock.patch.object(store, "_pool", side_effect=AssertionError("it has left")):
        ids = asyncio.run(store.encode_async(text + "!", session="one", untrusted=[(6, 16)]))
    assert ids.tolist() == oracle("toktier-mini").encode(text + "!", ((6, 16),))


def test_spans_that_are_none_are_refused_in_an_event_loop_as_well() -> None:
    store = SessionStore(mini())
    wrong: list[tuple[Any, type[Exception]]] = [([3], TypeError), ([(1, 2, 3)], TypeError), ([(0, 99)], IndexError)]
    for untrusted, error in wrong:
        with pytest.raises(error, match="untrusted"):
            asyncio.run(store.encode_async("text", untrusted=untrusted))


# What cannot be protected.


def refused(library: tokenizers.Tokenizer | tiktoken.Encoding) -> str:
    tok = material.registry().load(library)
    session = tok.session("text")
    with pytest.raises(Unprotectable) as caught:
        session.append("user", special="text")
    for call in (
        lambda: tok.encode("text", untrusted=[(0, 1)]),
        lambda: SessionStore(tok).encode("text", untrusted=[(0, 1)]),
        lambda: session.update("text", untrusted=[(0, 1)]),
    ):
        with pytest.raises(Unprotectable):
            call()
    assert (session.text, tok.encode("text", untrusted=[]).tolist()) == ("text", tok.encode("text").tolist())
    return str(caught.value)


def test_tokens_that_depend_on_what_is_beside_them_are_refused() -> None:
    library = byte_level(split(GPT4), added=[token("<a>", special=True, single_word=True)])
    assert "single_word" in refused(library)


def test_tokens_behind_a_normalizer_are_refused() -> None:
    lowercase = tokenizers.normalizers.Lowercase()
    library = byte_level(split(GPT4), normalizer=lowercase, added=[token("<a>", special=True, normalized=True)])
    assert "normalizer" in refused(library)


def test_tokens_that_the_model_gives_are_refused() -> None:
    library = unigram(tokenizers.pre_tokenizers.WhitespaceSplit())
    library.add_tokens([token("</s>", special=True)])
    assert "the model may give special token" in refused(library)


def test_special_tokens_that_begin_alike_are_refused_where_tiktoken_finds_them() -> None:
    ranks = {bytes((value,)): value for value in range(256)}
    special = {"<s>": 256, "<s>x": 257}
    encoding = tiktoken.Encoding("alike", pat_str=r"\w+|\W", mergeable_ranks=ranks, special_tokens=special)
    assert "begins like another" in refused(encoding)


def test_tiktoken_encodes_the_stretches_between() -> None:
    ranks = {bytes((value,)): value for value in range(256)}
    encoding = tiktoken.Encoding(
        "two", pat_str=r"\w+|\W", mergeable_ranks=ranks, special_tokens={"<s>": 256, "<e>": 257}
    )
    tok = toktier.load(encoding)
    text = "<s>user <s><e>"
    assert tok.encode(text, untrusted=[(3, 11)]).tolist() == [256, *b"user <s>", 257]
    assert tok.encode(text).tolist() == encoding.encode(text, allowed_special="all")
    assert RankedBPE("x", ".", ranks, {}).special_tokens == {}


def test_without_special_tokens_there_is_nothing_to_forge() -> None:
    ranks = {bytes((value,)): value for value in range(256)}
    tok = toktier.load(tiktoken.Encoding("none", pat_str=".", mergeable_ranks=ranks, special_tokens={}))
    assert tok.encode("<s>", untrusted=[(0, 3)]).tolist() == list(b"<s>")


def test_where_special_tokens_are_text_anyway_nothing_changes() -> None:
    library = tokenizers.Tokenizer.from_buffer(material.definition("toktier-mini"))
    library.encode_special_tokens = True
    tok = material.registry().load(library)
    assert (
        tok.encode(END, untrusted=[(0, 5)]).tolist()
        == tok.encode(END).tolist()
        == library.encode(END, add_special_tokens=False).ids
    )


# Aliases.


def test_an_alias_that_is_in_the_text_is_not_used() -> None:
    tok = mini()
    library = tok.engine("reference").tokenizer  # type: ignore[attr-defined]
    aliases = Aliases(library, tok.family.definition)
    names = aliases._latest.aliases
    text = f"{names[END_ID]}{END}"  # by somebody who has read this memory
    got = tok.encode(text, untrusted=[(0, len(text))]).tolist()
    assert aliases.encode(text, []).tolist() == got
    assert END_ID not in got
    assert aliases._latest.aliases != names


def test_the_mark_of_an_alias_is_text_like_any_other() -> None:
    text = f"{MARK}{END}{MARK}0"
    for spans in (((0, len(text)),), ((0, 1),), ((5, 6),)):
        assert mini().encode(text, untrusted=spans).tolist() == oracle("toktier-mini").encode(text, spans)


def test_a_saved_state_of_another_version_is_refused() -> None:
    data = bytearray(mini().session("text").to_bytes())
    data[16] = 3
    with pytest.raises(StateMismatch):
        Session.from_bytes(mini(), bytes(data))


# What a breaker has found.


def test_spans_that_touch_after_a_demotion_are_one() -> None:
    tok = toktier.Registry(None).load(material.file("toktier-mini"))
    session = Session(tok, "", engine="memo")
    session.append("ab", special="text")
    tok.demote("memo", "a test")
    try:
        session.append("cd", special="text")
        assert session.untrusted == ((0, 4),)
        assert Session.from_bytes(tok, session.to_bytes()).untrusted == ((0, 4),)
        session.update("abcd", untrusted=[(0, 4)])
        session.update("abcd")
        assert not session.untrusted
    finally:
        tok.restore("memo")


def word_level(vocabulary: dict[str, int], **stages: Any) -> tokenizers.Tokenizer:
    library = tokenizers.Tokenizer(tokenizers.models.WordLevel(vocabulary, "?"))
    for name, stage in stages.items():
        setattr(library, name, stage)
    return library


def added(library: tokenizers.Tokenizer, *tokens: tokenizers.AddedToken) -> tokenizers.Tokenizer:
    library.add_tokens(list(tokens))
    return library


def pieces(vocabulary: dict[str, int], **stages: Any) -> tokenizers.Tokenizer:
    library = tokenizers.Tokenizer(tokenizers.models.WordPiece(vocabulary, unk_token="?"))
    for name, stage in stages.items():
        setattr(library, name, stage)
    return library


def pairs(vocabulary: dict[str, int], merges: list[tuple[str, str]], **options: Any) -> tokenizers.Tokenizer:
    return tokenizers.Tokenizer(tokenizers.models.BPE(vocabulary, merges, **options))


BYTES = {f"<0x{value:02X}>": value + 3 for value in range(256)}

GIVEN: dict[str, Callable[[], tokenizers.Tokenizer]] = {
    "a whole text": lambda: added(word_level({"?": 0, "<s>": 1}), token("<s>", special=True)),
    "between tabs": lambda: added(
        word_level({"?": 0, "[SEP]": 1, "GET": 2}, pre_tokenizer=tokenizers.pre_tokenizers.Split("\t", "removed")),
        token("[SEP]", special=True),
    ),
    "behind a token": lambda: added(
        pieces({"?": 0, "<s>": 1}, pre_tokenizer=tokenizers.pre_tokenizers.Metaspace(prepend_scheme="first")),
        token("<s>", special=True),
    ),
    "by a merge": lambda: added(pairs({"?": 0, "Ġ": 1, "h": 2, "Ġh": 3}, [("Ġ", "h")]), token("Ġh", special=True)),
    "a byte": lambda: added(
        pairs({"?": 0, "a": 1, "b": 2, **BYTES}, [], byte_fallback=True), token("<0x0A>", special=True)
    ),
    "with a suffix": lambda: added(
        pairs({"a": 0, "b</w>": 1, "ab</w>": 2}, [("a", "b</w>")], end_of_word_suffix="</w>"),
        token("ab</w>", special=True),
    ),
    "with a prefix": lambda: added(pieces({"?": 0, "a": 1, "##b": 2}), token("##b", special=True)),
    "by a normalizer": lambda: added(
        word_level({"?": 0, "EOS": 1}, normalizer=tokenizers.normalizers.Replace("0", "O")), token("EOS", special=True)
    ),
    "by another entry": lambda: added(
        word_level({"a": 0, "?": 1, "b": 5}), *[token(f"<{number}>", special=True) for number in range(4)]
    ),
}
"""Special tokens that the model gives for text, and where."""


@pytest.mark.parametrize("name", list(GIVEN))
def test_what_the_model_may_give_for_text_is_refused(name: str) -> None:
    message = refused(GIVEN[name]())
    assert "the model may give special token" in message or "gaps" in message


def test_the_token_for_what_is_not_known_is_nobodys() -> None:
    library = word_level({"?": 0, "a": 1}, pre_tokenizer=tokenizers.pre_tokenizers.WhitespaceSplit())
    tok = material.registry().load(added(library, token("?", special=True), token("<s>", special=True)))
    assert tok.encode("a <s> ?", untrusted=[(0, 7)]).tolist() == [1, 0, 0]


def test_no_token_is_found_inside_of_an_alias() -> None:
    library = byte_level(split(GPT4), added=[token("<z>", special=True, normalized=True)])
    added(library, *[token(digit) for digit in "0123456789abcdef"])
    tok = material.registry().load(library)
    (id,) = tok.encode("<z>").tolist()
    rest = Oracle.of(library.to_str()).encode("x<z>", ((1, 4),))
    assert tok.encode("<z>x<z>", untrusted=[(4, 7)]).tolist() == [id, *rest]


@pytest.mark.parametrize(
    ("tokens", "message"),
    [
        ([token("<a>", special=True), token("quokka", single_word=True)], "single_word"),
        ([token("<s>", special=True, normalized=True), token("foo", rstrip=True)], "takes in"),
        ([token(" <s>", special=True), token("foo", rstrip=True)], "takes in"),
        ([token("<s>", special=True), token("<<")], "hide"),
        ([token("<s>", special=True), token("<s>x")], "hide"),
        ([token("<s>", special=True), token("a<", single_word=True)], "single_word"),
    ],
)
def test_tokens_that_could_hide_or_move_special_ones_are_refused(
    tokens: list[tokenizers.AddedToken], message: str
) -> None:
    assert message in refused(byte_level(split(GPT4), added=tokens))


def test_special_tokens_in_the_vocabulary_of_the_model_are_fine_where_a_piece_never_has_them() -> None:
    """As in files of Llama 3 that list them there too: a piece that is an entry would be that, whatever the merges."""
    vocabulary = {entry: id for id, entry in enumerate([*"<|eot_id>Ġax", "<|eot_id|>"])}
    plain = pairs(vocabulary, [], ignore_merges=True)
    by_bytes = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    plain.pre_tokenizer = tokenizers.pre_tokenizers.Sequence([split(GPT4), by_bytes])
    added(plain, token("<|eot_id|>", special=True))
    tok = material.registry().load(plain)
    expected = Oracle.of(plain.to_str()).encode("a<|eot_id|><|eot_id|>", ((3, 11),))
    assert tok.encode("a<|eot_id|><|eot_id|>", untrusted=[(3, 11)]).tolist() == expected
    assert expected.count(vocabulary["<|eot_id|>"]) == 1
    plain.pre_tokenizer = by_bytes
    assert "the model may give special token" in refused(plain)


def test_aliases_that_would_have_the_ids_of_tokens_are_refused() -> None:
    library = word_level({"?": 0, "x": 1, "y": 5}, pre_tokenizer=tokenizers.pre_tokenizers.WhitespaceSplit())
    assert "gaps" in refused(added(library, token("<s>", special=True), token("<t>", special=True)))


def test_a_token_that_was_declared_twice_is_refused() -> None:
    superseded = (evolve(mini().family.definition.literals[0], normalized=True),)
    with pytest.raises(Unprotectable, match="was declared twice"):
        check_aliases(evolve(mini().family.definition, superseded=superseded))


def test_a_refusal_is_found_once() -> None:
    tok = material.registry().load(byte_level(split(GPT4), added=[token("<once>", special=True, single_word=True)]))
    with mock.patch("toktier.tokenizer.Protection", wraps=Protection) as made:
        for _ in range(3):
            with pytest.raises(Unprotectable):
                tok.encode("text", untrusted=[(0, 1)])
    assert made.call_count == 1


def test_what_is_untrusted_counts_among_the_bytes_that_are_held() -> None:
    session, store = mini().session(), SessionStore(mini())
    session.update("x" * 5000)
    before = session.nbytes
    spans = [(i, i + 1) for i in range(0, 5000, 2)]
    session.update("x" * 5000, untrusted=spans)
    assert session.nbytes >= before + 16 * len(spans)
    store.encode("x " * 500, untrusted=[(i, i + 1) for i in range(0, 1000, 2)])
    assert store.usage().nbytes > 500 * 100


def test_a_panic_of_the_library_is_a_failure_of_the_engine() -> None:
    aliases = Aliases(mini().engine("reference").tokenizer, mini().family.definition)  # type: ignore[attr-defined]

    class PanicException(BaseException):  # as the library calls it
        pass

    library = mock.Mock()
    library.encode_batch_fast.side_effect = PanicException("slice index")
    aliases._latest = aliases._latest._replace(library=library)
    with pytest.raises(EngineFailure, match="the library cannot encode a text of 4 characters: slice index"):
        aliases.encode("text", [])


def test_what_a_post_processor_adds_is_never_taken_for_an_alias() -> None:
    library = added(word_level({"?": 0, "x": 1}), token("<s>", special=True))
    template = tokenizers.processors.TemplateProcessing("[X] $A", special_tokens=[("[X]", 3)])
    library.post_processor = template
    tok = material.registry().load(library)
    assert tok.encode("<s>", add_special_tokens=True, untrusted=[(0, 1)]).tolist() == [3, 0]
