"""What users hold: the ids and texts of the reference library, whatever comes in."""

from __future__ import annotations

import functools
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NoReturn

import numpy as np
import pytest
import tokenizers
from hypothesis import given
from hypothesis import strategies as st

import toktier
from tests import builders, material, zoo
from toktier import EngineFailure, InvalidText, Report, Session, UnknownEngine
from toktier.engines.base import Engine

by_name = pytest.mark.parametrize("name", material.available())


def texts() -> list[str]:
    """The beginnings of all texts, and the shortest."""
    return ["", " ", "\0", "a", *(text[:1_500] for text in material.corpus())]


@functools.cache
def library(name: str) -> tokenizers.Tokenizer:
    """The reference library's tokenizer with everything that its file says, less truncation and padding."""
    tokenizer = tokenizers.Tokenizer.from_str(zoo.build(name).to_str())
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return tokenizer


@by_name
def test_ids_are_those_of_the_reference(name: str) -> None:
    tok, reference = material.load(name), material.reference(name)
    for text in texts():
        ids = tok.encode(text)
        assert ids.dtype == np.uint32
        assert ids.tolist() == reference(text)


@by_name
def test_a_batch_is_what_each_text_is(name: str) -> None:
    tok, some = material.load(name), texts()[:40]
    batch = tok.encode_batch(some)
    assert [ids.tolist() for ids in batch] == [tok.encode(text).tolist() for text in some]
    assert all(ids.dtype == np.uint32 and ids.ndim == 1 for ids in batch)
    assert tok.encode_batch([]) == []


@pytest.mark.parametrize("name", [name for name in material.available() if name not in material.PRODUCTION])
def test_a_decoded_text_is_that_of_the_reference(name: str) -> None:
    tok, tokenizer = material.load(name), tokenizers.Tokenizer.from_buffer(material.definition(name))
    for text in texts()[:60]:
        ids = tok.encode(text)
        for skip in (True, False):
            assert tok.decode(ids, skip_special_tokens=skip) == tokenizer.decode(ids.tolist(), skip_special_tokens=skip)


@pytest.mark.parametrize("name", ["templated", "gpt4", "lowercase", "characters", "all flags"])
def test_special_tokens_are_added_once_and_skipped_when_decoded(name: str) -> None:
    tok, tokenizer = material.registry().load(zoo.build(name)), library(name)
    for text in ("", "It's <|im_start|> 12 on", "\n\nthe quick brown fox, don't 1 2 3"):
        assert tok.encode(text).tolist() == tokenizer.encode(text, add_special_tokens=False).ids
        whole = tok.encode(text, add_special_tokens=True)
        assert whole.dtype == np.uint32
        assert whole.tolist() == tokenizer.encode(text, add_special_tokens=True).ids
        for skip in (True, False):
            assert tok.decode(whole, skip_special_tokens=skip) == tokenizer.decode(
                whole.tolist(), skip_special_tokens=skip
            )
        assert tok.decode(whole) == tokenizer.decode(whole.tolist())


def test_the_template_of_the_bundled_tokenizer_is_applied_once() -> None:
    tok = toktier.load("toktier-mini")
    start = tok.encode("<|endoftext|>").tolist()
    assert len(start) == 1
    assert tok.encode("Hello", add_special_tokens=True).tolist() == start + tok.encode("Hello").tolist()
    assert (
        tok.encode("<|endoftext|>Hello", add_special_tokens=True).tolist() == 2 * start + tok.encode("Hello").tolist()
    )


def test_truncation_and_padding_in_the_file_play_no_part() -> None:
    assert len(zoo.build("templated").encode("a").ids) == 16
    tok = material.registry().load(zoo.build("templated"))
    long = "one two three " * 100
    assert len(tok.encode(long)) > 300
    assert len(tok.encode(long, add_special_tokens=True)) == len(tok.encode(long)) + 1
    assert len(tok.encode("a")) == 1
    assert [len(ids) for ids in tok.encode_batch(["a", "a a", ""])] == [1, 2, 0]


@given(st.lists(st.text(), max_size=5))
def test_any_texts_are_encoded_as_by_the_reference(some: list[str]) -> None:
    tok, reference = toktier.load("toktier-mini"), material.reference("toktier-mini")
    assert [ids.tolist() for ids in tok.encode_batch(some)] == [reference(text) for text in some]
    for text in some:
        assert tok.encode(text).tolist() == reference(text)
        assert tok.decode(tok.encode(text), skip_special_tokens=False) == text


@pytest.mark.parametrize(
    "kind", [list, tuple, iter, np.array, lambda ids: np.array(ids, np.int64), lambda ids: map(np.uint32, ids)]
)
def test_ids_of_every_kind_are_decoded(kind: Any) -> None:
    tok = toktier.load("toktier-mini")
    ids = tok.encode("It's 12 straße").tolist()
    assert tok.decode(kind(ids)) == "It's 12 straße"
    assert tok.decode(kind([])) == ""


@pytest.mark.parametrize("name", ["gigatoken", "tiktoken", "memo", "reference"])
def test_an_array_that_was_returned_is_the_callers_own(name: str) -> None:
    engine = material.load("toktier-mini").engine(name)
    for text in ("Hello world", "Hello <|im_end|>wörld", "\u0c5c"):
        first, expected = engine.encode(text), engine.encode(text).tolist()
        first[:] = 0
        assert engine.encode(text).tolist() == expected


def test_threads_share_a_tokenizer() -> None:
    tok, some = toktier.load("toktier-mini"), texts()[:60]
    expected = [tok.encode(text).tolist() for text in some]
    with ThreadPoolExecutor(8) as pool:
        for ids in pool.map(lambda _: [tok.encode(text).tolist() for text in some], range(8)):
            assert ids == expected


# What is no text


@pytest.mark.parametrize(
    "text", [None, 3, b"text", bytearray(b"text"), ["text"], ("a", "b"), np.array("text")], ids=repr
)
def test_what_is_no_text_is_a_type_error(text: Any) -> None:
    tok = toktier.load("toktier-mini")
    message = f"text must be str, not {type(text).__name__}"
    for call in (tok.encode, tok.session, tok.family.cuts):
        with pytest.raises(TypeError, match=message):
            call(text)
    with pytest.raises(TypeError, match=message):
        tok.encode(text, add_special_tokens=True)
    with pytest.raises(TypeError, match=message):
        tok.encode_batch(["text", text])


def test_one_text_is_no_batch() -> None:
    with pytest.raises(TypeError):
        toktier.load("toktier-mini").encode_batch("text")


@pytest.mark.parametrize(
    ("text", "position"),
    [("\ud800", 0), ("ab\udfff", 2), ("é中😀\udc00x\udc00", 3), ("\ud83d\ude00", 0), ("<|im_start|>\udbff", 12)],
    ids=ascii,
)
def test_a_lone_surrogate_is_named_with_its_position(text: str, position: int) -> None:
    tok = toktier.load("toktier-mini")
    calls: list[Callable[[], object]] = [
        lambda: tok.encode(text),
        lambda: tok.encode(text, add_special_tokens=True),
        lambda: tok.encode_batch(["fine", text]),
        lambda: tok.family.cuts(text),
        lambda: tok.session(text),
    ]
    for call in calls:
        with pytest.raises(InvalidText, match=f"U\\+{ord(text[position]):04X} at position {position}:") as error:
            call()
        assert error.value.position == position
        assert isinstance(error.value, ValueError)


def liar(*args: object, **kwargs: object) -> NoReturn:
    raise AssertionError("the text is asked, and not what it holds")


METHODS = {name: liar for name in dir(str) if callable(getattr(str, name)) and name not in dir(object)}
Liar: Any = type("Liar", (str,), METHODS | {"__str__": liar, "isascii": lambda self: True})
"""A text none of whose methods can be trusted, as those of markupsafe.Markup cannot."""


@pytest.mark.parametrize("text", ["It's 12", "straße ½ 😀", "", "<|im_start|>\n\n"])
def test_a_text_of_a_subclass_is_the_text_that_it_holds(text: str) -> None:
    tok = toktier.load("toktier-mini")
    ids = tok.encode(text).tolist()
    assert tok.encode(Liar(text)).tolist() == ids
    assert (
        tok.encode(Liar(text), add_special_tokens=True).tolist() == tok.encode(text, add_special_tokens=True).tolist()
    )
    assert tok.encode_batch([Liar(text)])[0].tolist() == ids
    assert tok.encode(np.str_(text)).tolist() == ids
    assert tok.family.cuts(Liar(text)).tolist() == tok.family.cuts(text).tolist()
    session = tok.session(Liar(text))
    assert type(session.text) is str
    assert session.tolist() == ids


def test_a_subclass_cannot_hide_a_lone_surrogate() -> None:
    with pytest.raises(InvalidText) as error:
        toktier.load("toktier-mini").encode(Liar("ab\ud800"))
    assert error.value.position == 2


def test_a_text_on_which_the_library_gives_up_is_an_error_of_the_engine() -> None:
    """There are patterns that try twice as many ways with each character more."""
    tokenizer = builders.byte_level(builders.split("(?:a|aa)+[bc]|[abc]|[^abc]+"))
    tok, text = material.registry().load(tokenizer), "x" + "a" * 60
    calls: list[Callable[[], object]] = [
        lambda: tok.encode(text),
        lambda: tok.encode(text, add_special_tokens=True),
        lambda: tok.encode_batch(["x", text]),
        lambda: tok.session(text),
        lambda: tok.session("x").append(text),
    ]
    for call in calls:
        with pytest.raises(EngineFailure, match="retry-limit"):
            call()
    assert tok.encode("xaac").tolist() == material.reference_of(tokenizer)("xaac")


# What is known of it


@by_name
def test_a_report_says_what_is_known(name: str) -> None:
    tok = material.load(name)
    report = tok.report(compare=False)
    assert isinstance(report, Report)
    assert (report.digest, report.reason, report.supported) == (tok.family.digest, None, True)
    assert [*report.engines] == ["gpu", "gigatoken", "tiktoken", "memo", "reference"]
    assert report.engines[report.auto].startswith("admitted: ")
    assert report.stages == tok.family.definition.stages
    assert report.atoms == len(tok.family.alphabet())
    assert 0 < report.sync_pairs < report.atoms**2
    for line in (report.digest, "yes", *report.stages, "reference: admitted"):
        assert line in str(report)


def test_a_tokenizer_shows_whether_it_is_supported() -> None:
    supported, unsupported = toktier.load("toktier-mini"), material.registry().load(zoo.build("anchor"))
    assert repr(supported) == f"<toktier.Tokenizer {supported.family.digest[:12]} (supported)>"
    assert "unsupported: pre-tokenizer Split: anchor" in repr(unsupported)


def test_engines_go_by_their_names() -> None:
    tok = toktier.load("toktier-mini")
    assert isinstance(tok.engine(), Engine)
    assert tok.engine("auto") is tok.engine()
    assert tok.engine("reference").name == "reference"
    for name in ("", "fastest", "Reference"):
        with pytest.raises(UnknownEngine, match=f"no engine '{name}'.*'reference'") as error:
            tok.engine(name)
        assert isinstance(error.value, LookupError)


@by_name
def test_the_reference_engine_encodes_as_the_reference(name: str) -> None:
    engine, reference = material.load(name).engine("reference"), material.reference(name)
    some = texts()[:20]
    assert [ids.tolist() for ids in engine.encode_batch(some)] == list(map(reference, some))
    family = material.load(name).family
    for text in (some[-1], "e b"):
        lead = family.lead(text) or ""
        assert engine.encode(text).tolist() == reference(text)
        assert engine.encode(text, continuation=True).tolist() == reference(lead + text)[len(reference(lead)) :]


def test_a_session_is_that_of_the_class() -> None:
    tok = toktier.load("toktier-mini")
    session = tok.session("Hello", engine="reference")
    assert isinstance(session, Session)
    assert session.tolist() == tok.encode("Hello").tolist()
    assert tok.session().text == ""


@by_name
def test_every_added_token_is_one_id_and_comes_back(name: str) -> None:
    tok = material.load(name)
    literals = tok.family.definition.literals
    for literal, ids in zip(literals, tok.encode_batch([each.content for each in literals]), strict=True):
        assert ids.tolist() == [literal.id]
        assert tok.decode(ids) == ("" if literal.special else literal.content)
