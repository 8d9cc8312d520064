import re
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import toktier
from tests import material
from toktier.integrations.keys import SessionKey, session_key

COUNTED = r"(chat-\d+)-\d+"
UUID = "0b5e2f64-6d6c-4b8a-9f0e-1c2d3e4f5a6b"


def test_a_session_id_comes_before_everything_else() -> None:
    key = session_key(session_id="a", cache_salt="tenant", request_id="chat-42-7", request_ids=COUNTED)
    assert key == SessionKey("a", "tenant")


def test_a_cache_salt_separates_and_names_nothing() -> None:
    assert session_key(cache_salt="tenant") == SessionKey(None, "tenant")
    assert session_key(cache_salt="tenant", request_id="chat-42-7", request_ids=COUNTED) == SessionKey(
        "chat-42", "tenant"
    )


@pytest.mark.parametrize("request_id", ["7", "chat-42-7", f"cmpl-{UUID}-0", f"chatcmpl-{UUID}", UUID.replace("-", "")])
def test_request_ids_do_not_count_unless_somebody_says_how_to_read_them(request_id: str) -> None:
    assert session_key(request_id=request_id) == SessionKey(None, "")


@pytest.mark.parametrize(
    ("request_id", "name"),
    [
        ("chat-42-7", "chat-42"),
        ("chat-42-8", "chat-42"),
        ("chat-4-28", "chat-4"),
        ("chat-42", None),
        ("chat-42-7 ", None),
        (f"cmpl-{UUID}-0", None),
        ("", None),
        (None, None),
    ],
)
def test_a_request_id_names_a_session_if_all_of_it_is_as_it_was_said_to_be(
    request_id: str | None, name: str | None
) -> None:
    for pattern in (COUNTED, re.compile(COUNTED)):
        assert session_key(request_id=request_id, request_ids=pattern) == SessionKey(name, "")


def test_a_group_that_is_empty_or_took_no_part_names_nothing() -> None:
    assert session_key(request_id="-7", request_ids=r"(\w*)-\d+") == SessionKey(None, "")
    assert session_key(request_id="7", request_ids=r"(\w+)-\d+|\d+") == SessionKey(None, "")


def test_an_empty_string_is_none_as_it_is_for_the_servers() -> None:
    assert session_key(session_id="", cache_salt="", request_id="") == SessionKey(None, "")


@pytest.mark.parametrize("name", ["session_id", "cache_salt", "request_id"])
@pytest.mark.parametrize("value", [7, b"chat-42", ["chat-42"]])
def test_a_part_that_is_no_string_is_refused_by_its_name(name: str, value: Any) -> None:
    with pytest.raises(TypeError, match=rf"^{name} must be a str, not {type(value).__name__}"):
        session_key(**{name: value})


@pytest.mark.parametrize(
    ("pattern", "error", "message"),
    [
        ("(chat", ValueError, "is no regular expression: missing"),
        (r"chat-\d+", ValueError, "has no group"),
        (re.compile(b"(chat)"), TypeError, "must be a regular expression for str"),
        (7, TypeError, "must be a regular expression for str"),
    ],
)
def test_a_pattern_that_cannot_name_anything_is_refused(pattern: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        session_key(request_ids=pattern)


names = st.none() | st.sampled_from(["", "a", "b", "chat-1-1", "chat-1-2", "chat-2-1"])


@settings(max_examples=30)
@given(st.lists(st.tuples(names, names, names, st.integers(0, 3)), min_size=1, max_size=12))
def test_whatever_the_keys_are_the_ids_are_those_of_the_text(
    requests: list[tuple[str | None, str | None, str | None, int]],
) -> None:
    tok = material.load("toktier-mini")
    store = toktier.SessionStore(tok, engine="memo")
    for session_id, cache_salt, request_id, number in requests:
        text = "<|im_start|>user\nA question." * 50 + f" And a turn, number {number}" * number
        key = session_key(session_id=session_id, cache_salt=cache_salt, request_id=request_id, request_ids=COUNTED)
        ids = store.encode(text, session=key.session, salt=key.salt)
        assert ids.tolist() == material.reference("toktier-mini")(text)
