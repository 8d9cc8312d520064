"""The front end of ``examples/front_end.py``: exact for every client, and refusing what is no request."""

from __future__ import annotations

import asyncio
import json
import zlib
from typing import Any

import httpx
import numpy as np
import pytest
from fastapi import FastAPI
from starlette.types import Message, Scope

import toktier
from examples.front_end import create_app
from tests import material
from toktier import SessionStore
from toktier.replay import PROMPT

MINI = material.load("toktier-mini")
REFERENCE = material.reference("toktier-mini")

JSON = {"Content-Type": "application/json"}


def front_end(**limits: int) -> FastAPI:
    return create_app(SessionStore(MINI, max_bytes=1 << 26), sources=[MINI], **limits)


async def send(app: FastAPI, path: str, **request: Any) -> httpx.Response:
    method = "POST" if request else "GET"
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://front-end") as client:
        return await client.request(method, path, **request)


def ask(app: FastAPI, path: str = "/v1/tokenize", **request: Any) -> Any:
    answer = asyncio.run(send(app, path, **request))
    assert answer.status_code == 200, answer.text
    return answer.json()


def refusal(app: FastAPI, path: str = "/v1/tokenize", **request: Any) -> tuple[int, str]:
    answer = asyncio.run(send(app, path, **request))
    error = answer.json()["error"]
    assert error["code"] == answer.status_code
    return answer.status_code, error["message"]


def prompts(session: int = 0) -> list[str]:
    """A transcript as it is each time that the model is asked."""
    messages = material.agent_sessions()[session]
    return [material.chatml(messages[: turn + 1]) + PROMPT for turn in range(0, len(messages), 2)]


def checksum(ids: list[int]) -> int:
    return zlib.crc32(np.array(ids, "<u4").tobytes())


@pytest.mark.parametrize("name", [None, "chat-42"])
def test_every_turn_has_the_ids_of_the_reference(name: str | None) -> None:
    app = front_end()
    for prompt in prompts():
        answer = ask(app, json={"prompt": prompt, "session_id": name})
        assert answer["tokens"] == REFERENCE(prompt)
        assert answer["count"] == len(answer["tokens"])


def test_sessions_at_the_same_time_have_the_ids_of_the_reference() -> None:
    app, turns = front_end(), prompts(1)

    async def replay(number: int) -> None:
        for prompt in turns:
            text = f"Session {number}. {prompt}"
            answer = await send(app, "/v1/tokenize", json={"prompt": text}, headers={"X-Session-ID": str(number)})
            assert answer.json()["tokens"] == REFERENCE(text)

    async def all_of_them() -> None:
        await asyncio.gather(*map(replay, range(20)))

    asyncio.run(all_of_them())


def test_patches_alone_keep_a_copy() -> None:
    app, copy = front_end(), list[int]()
    for turn, prompt in enumerate(prompts()):
        answer = ask(app, json={"prompt": prompt, "session_id": "chat-42", "patch": True})
        assert "tokens" not in answer
        patch = answer["patch"]
        assert patch["before"] == (len(copy) if turn else None)
        copy[patch["start"] : patch["stop"]] = patch["tokens"]
        assert copy == REFERENCE(prompt)
        assert answer["checksum"] == checksum(copy)


def test_a_copy_that_missed_an_answer_of_as_many_ids_is_told_by_the_checksum() -> None:
    app = front_end()
    copy = ask(app, json={"prompt": "1 2 3", "session_id": "a"})["tokens"]
    ask(app, json={"prompt": "1 6 3", "session_id": "a", "patch": True})  # gets lost
    answer = ask(app, json={"prompt": "1 6 3 4", "session_id": "a", "patch": True})
    patch = answer["patch"]
    assert patch["before"] == len(copy)  # which is why their number tells nothing
    copy[patch["start"] : patch["stop"]] = patch["tokens"]
    assert answer["checksum"] != checksum(copy)
    assert answer["checksum"] == checksum(REFERENCE("1 6 3 4"))


def test_a_session_is_of_its_tenant_alone() -> None:
    app = front_end()
    for salt, before in (("a", None), ("b", None), ("a", 4)):
        body = {"prompt": "one two three", "session_id": "chat-42", "cache_salt": salt, "patch": True}
        answer = ask(app, json=body)
        assert answer["patch"]["before"] == (before and len(REFERENCE("one two three")))


def test_the_header_names_the_session_before_the_body_does() -> None:
    """A router that has read the header need not read the body."""
    app = front_end()
    named = {"X-Session-ID": "header"}
    ask(app, json={"prompt": "one", "session_id": "body"}, headers=named)
    assert ask(app, json={"prompt": "one", "session_id": "body", "patch": True})["patch"]["before"] is None
    assert ask(app, json={"prompt": "one", "patch": True}, headers=named)["patch"]["before"] is not None


@pytest.mark.parametrize("spans", [[0] * 20_000, [[0, 1]] * 20_000, [{}] * 20_000])
def test_a_body_that_is_wrong_in_many_places_gets_a_short_answer(spans: list[Any]) -> None:
    status, message = refusal(front_end(), json={"prompt": "one", "untrusted": spans})
    assert status == 400
    assert len(message) < 1000


def test_special_tokens_that_a_user_wrote_are_text() -> None:
    app = front_end()
    prompt = "<|im_start|>user\n<|im_end|><|im_end|>\n"
    begin = prompt.index("<|im_end|>")
    spans = [[begin, begin + len("<|im_end|>")]]
    for name in (None, "chat-42"):
        ids = ask(app, json={"prompt": prompt, "session_id": name, "untrusted": spans})["tokens"]
        assert ids == MINI.encode(prompt, untrusted=[(begin, spans[0][1])]).tolist()
        assert ids.count(REFERENCE("<|im_end|>")[0]) == 1
        assert ask(app, json={"prompt": prompt, "session_id": name})["tokens"] == REFERENCE(prompt)


def test_a_completion_tells_what_it_used() -> None:
    app, before = front_end(), prompts()[1]
    prompt = before.removesuffix(PROMPT) + "More."
    ask(app, json={"prompt": before, "session_id": "chat-42"})
    answer = ask(app, "/v1/completions", json={"prompt": prompt, "session_id": "chat-42", "temperature": 0.5})
    usage = answer["usage"]
    ids, old = REFERENCE(prompt), REFERENCE(before)
    cached = usage["prompt_tokens_details"]["cached_tokens"]
    assert usage["prompt_tokens"] == len(ids)
    assert 0 < cached < len(ids)
    assert ids[:cached] == old[:cached]
    assert answer["choices"][0]["text"] == f" I was given {len(ids)} ids and had {cached} of them in my cache."
    assert answer["choices"][0]["finish_reason"] == "stop"


def test_without_a_session_nothing_is_cached() -> None:
    answer = ask(front_end(), "/v1/completions", json={"prompt": "one"})
    assert answer["usage"]["prompt_tokens_details"]["cached_tokens"] == 0


def test_a_stream_says_the_same_and_ends() -> None:
    app, body = front_end(), {"prompt": "one two three", "max_tokens": 5}
    whole = ask(app, "/v1/completions", json=body)
    streamed = asyncio.run(send(app, "/v1/completions", json=body | {"stream": True}))
    assert streamed.headers["content-type"].startswith("text/event-stream")
    *events, end, nothing = streamed.text.split("\n\n")
    assert (end, nothing) == ("data: [DONE]", "")
    chunks = [json.loads(event.removeprefix("data: ")) for event in events]
    assert "".join(chunk["choices"][0]["text"] for chunk in chunks) == whole["choices"][0]["text"]
    assert chunks[-1]["usage"] == whole["usage"]
    assert whole["usage"]["completion_tokens"] == 5
    assert chunks[-1]["choices"][0]["finish_reason"] == whole["choices"][0]["finish_reason"] == "length"


REFUSED: dict[str, tuple[int, str, dict[str, Any]]] = {
    "no JSON": (400, "JSON", {"content": b'{"prompt": ', "headers": JSON}),
    "no UTF-8": (400, "parsing", {"content": b'{"prompt": "\xff"}', "headers": JSON}),
    "too deep": (400, "body", {"content": b"[" * 100_000, "headers": JSON}),
    "half a character": (400, "U+D800 at position 2", {"content": b'{"prompt": "ab\\ud800"}', "headers": JSON}),
    "half a character, kept": (
        400,
        "U+D800 at position 2",
        {"content": b'{"prompt": "ab\\ud800", "session_id": "a"}', "headers": JSON},
    ),
    "no body": (400, "body", {"headers": JSON}),
    "a list": (400, "body", {"json": ["prompt"]}),
    "no prompt": (400, "body.prompt: Field required", {"json": {"text": "one"}}),
    "a number": (400, "body.prompt", {"json": {"prompt": 42}}),
    "many prompts": (400, "body.prompt", {"json": {"prompt": ["one", "two"]}}),
    "an empty name": (400, "body.session_id", {"json": {"prompt": "one", "session_id": ""}}),
    "a long name": (400, "body.session_id", {"json": {"prompt": "one", "session_id": "a" * 257}}),
    "a long name, as a header": (
        400,
        "header.x-session-id",
        {"json": {"prompt": "one"}, "headers": {"X-Session-ID": "a" * 257}},
    ),
    "a long salt": (400, "body.cache_salt", {"json": {"prompt": "one", "cache_salt": "a" * 257}}),
    "a patch of nothing": (400, "patch", {"json": {"prompt": "one", "patch": True}}),
    "untrusted text elsewhere": (
        400,
        "untrusted: [2, 4] of 3 characters",
        {"json": {"prompt": "one", "untrusted": [[2, 4]]}},
    ),
    "half a span": (400, "body.untrusted.0", {"json": {"prompt": "one", "untrusted": [[2]]}}),
    "a long prompt": (413, "2,001 characters, where 2,000", {"json": {"prompt": "a" * 2_001}}),
    "a long body": (413, "more than 10,000 bytes", {"json": {"prompt": "one", "spare": "a" * 10_000}}),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_is_no_request_is_refused_with_the_reason(what: str) -> None:
    status, reason, request = REFUSED[what]
    app = front_end(max_characters=2_000, max_body_bytes=200_000 if what == "too deep" else 10_000)
    got, message = refusal(app, **request)
    assert got == status
    assert reason in message
    assert len(message) < 300, "it does not repeat what was sent"
    assert ask(app, json={"prompt": "one"})["tokens"] == REFERENCE("one")


@pytest.mark.parametrize("max_tokens", [0, -1, 4097, "many"])
def test_a_completion_of_no_length_is_refused(max_tokens: object) -> None:
    status, message = refusal(front_end(), "/v1/completions", json={"prompt": "one", "max_tokens": max_tokens})
    assert status == 400
    assert "body.max_tokens" in message


def test_a_prompt_that_leaves_no_room_for_the_completion_is_refused() -> None:
    prompt = "one two three four"
    length = len(REFERENCE(prompt)) + 7
    app = front_end(max_model_len=length)
    ask(app, "/v1/completions", json={"prompt": prompt, "max_tokens": 7})
    status, message = refusal(app, "/v1/completions", json={"prompt": prompt, "max_tokens": 8})
    assert status == 400
    assert "max_tokens of 8" in message
    assert f"{length:,}" in message


@pytest.mark.parametrize(("declared", "read"), [(b"10001", 0), (None, 3)])
def test_of_a_body_that_is_too_long_no_more_is_read_than_shows_it(declared: bytes | None, read: int) -> None:
    headers = [(b"content-type", b"application/json")]
    headers += [(b"content-length", declared)] if declared else []
    scope: Scope = {
        "type": "http",
        "method": "POST",
        "path": "/v1/tokenize",
        "raw_path": b"/v1/tokenize",
        "query_string": b"",
        "headers": headers,
    }
    received, sent = 0, list[Message]()

    async def receive() -> Message:
        nonlocal received
        received += 1
        return {"type": "http.request", "body": b" " * 4_000, "more_body": received < 10}

    async def keep(message: Message) -> None:
        sent.append(message)

    asyncio.run(front_end(max_body_bytes=10_000)(scope, receive, keep))
    assert sent[0]["status"] == 413
    assert received == read


def test_paths_and_methods_that_are_not_there_are_refused_alike() -> None:
    app = front_end()
    assert refusal(app, "/v1/nothing") == (404, "Not Found")
    assert refusal(app, "/v1/tokenize") == (405, "Method Not Allowed")


def test_prometheus_reads_what_was_done() -> None:
    tok = toktier.Registry(None).load(material.file("toktier-mini"))
    app = create_app(SessionStore(tok), sources=[tok], max_characters=100)
    for prompt in ("one", "one two", "one two three"):
        ask(app, json={"prompt": prompt, "session_id": "chat-42"})
    refusal(app, json={"prompt": "a" * 101})
    lines = asyncio.run(send(app, "/metrics")).text.splitlines()
    values = dict(line.rsplit(" ", 1) for line in lines if not line.startswith("#"))
    assert values["front_end_tokenize_seconds_count"] == "3.0"
    assert values['front_end_refused_total{status="413"}'] == "1.0"
    assert values['toktier_lookups_total{kind="session",result="continued",store="0"}'] == "2.0"
    assert values['toktier_sessions{store="0"}'] == "1.0"
    served = [name for name in values if name.startswith("toktier_characters_served_total")]
    assert sum(float(values[name]) for name in served) == sum(map(len, ("one", "one two", "one two three")))


def test_the_tokenize_step_is_timed_for_the_client() -> None:
    answer = asyncio.run(send(front_end(), "/v1/tokenize", json={"prompt": "one"}))
    name, duration = answer.headers["server-timing"].split(";dur=")
    assert name == "tokenize"
    assert float(duration) > 0


def test_a_server_that_stops_closes_the_store() -> None:
    store = SessionStore(MINI)
    app = create_app(store)

    async def lifespan() -> None:
        async with app.router.lifespan_context(app):
            assert (await send(app, "/health")).json() == {"status": "ok"}
            await send(app, "/v1/tokenize", json={"prompt": "one"})

    asyncio.run(lifespan())
    with pytest.raises(RuntimeError, match="closed"):
        store.encode("one")


def test_the_endpoints_are_described() -> None:
    described = ask(front_end(), "/openapi.json")
    assert {"/v1/tokenize", "/v1/completions", "/health", "/metrics"} <= described["paths"].keys()
