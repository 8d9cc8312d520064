"""A front end of FastAPI over a ``SessionStore``: exact ids for the price of what is new.

You learn how a serving front end holds a store: which parts of a request become its arguments, what serves a client
that keeps a copy of the ids, what is refused and how, and what there is to be watched.

    python examples/front_end.py --tokenizer toktier-mini --port 8000

``/v1/tokenize`` answers with ids, ``/v1/completions`` with what a stub says in the place of a model, ``/metrics`` with
what Prometheus reads, and ``/docs`` describes them. ``python examples/front_end_client.py`` starts one and calls it.
"""

from __future__ import annotations

import argparse
import contextlib
import sys
import time
import uuid
import zlib
from collections.abc import AsyncIterator, Sequence
from typing import Annotated, Any

import prometheus_client
import uvicorn
from fastapi import FastAPI, Header, HTTPException, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import StreamingResponse
from pydantic import BaseModel, FailFast, Field
from pydantic_core import to_json
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException as AnyHTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

import toktier
from toktier import Patch, SessionStore
from toktier.engines.base import Ids
from toktier.errors import EngineFailure, InvalidText, ToktierError, Unprotectable
from toktier.metrics import Source, register

LONGEST_NAME = 256

SessionHeader = Annotated[str | None, Header(max_length=LONGEST_NAME)]


class Prompt(BaseModel):
    """What both endpoints take. What else a client sends, such as a temperature, is ignored."""

    prompt: str
    session_id: str | None = Field(
        None, min_length=1, max_length=LONGEST_NAME, description="or as X-Session-ID, which counts"
    )
    # A server for several tenants takes the salt from who has logged in, and not from whoever asks.
    cache_salt: str = Field("", max_length=LONGEST_NAME, description="separates tenants")
    untrusted: Annotated[list[tuple[int, int]], FailFast()] = Field(
        default=[],
        max_length=10_000,
        description="[start, stop] of characters that users wrote: special tokens in them are text",
    )


class TokenizeRequest(Prompt):
    """The body of ``/v1/tokenize``."""

    patch: bool = Field(False, description="answer with what changed since the last call for this session")


class CompletionRequest(Prompt):
    """The body of ``/v1/completions``."""

    max_tokens: int = Field(16, ge=1, le=4096)
    stream: bool = False


class BodyLimit:
    """Refuses bodies that are too long as soon as that is known, and reads no more of them."""

    def __init__(self, app: ASGIApp, most: int) -> None:
        self.app, self.most = app, most

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Passes a request on, with a ``receive`` that counts."""
        size = int(Headers(scope=scope).get("content-length", 0)) if scope["type"] == "http" else 0
        received = 0

        async def counting() -> Message:
            nonlocal received
            message = {} if size > self.most else await receive()
            received += len(message.get("body", b""))
            if max(size, received) > self.most:
                raise HTTPException(413, f"the body has more than {self.most:,} bytes")
            return message

        await self.app(scope, counting, send)


async def stub_model(ids: Ids, cached: int) -> AsyncIterator[str]:
    """In the place of a model: every word that it says is a token. It has the ids before ``cached`` in its KV cache."""
    for word in f"I was given {len(ids)} ids and had {cached} of them in my cache.".split():
        yield f" {word}"


async def completion(ids: Ids, cached: int, max_tokens: int) -> AsyncIterator[dict[str, Any]]:
    """An answer in chunks, as they are streamed. The last one says why there are no more, and what it came to."""
    about = {"id": f"cmpl-{uuid.uuid4().hex}", "object": "text_completion", "created": int(time.time())}
    said, reason = 0, "stop"
    async for word in stub_model(ids, cached):
        if said == max_tokens:
            reason = "length"
            break
        said += 1
        yield about | {"choices": [{"index": 0, "text": word, "finish_reason": None}]}
    usage: dict[str, Any] = {"prompt_tokens": len(ids), "completion_tokens": said, "total_tokens": len(ids) + said}
    usage["prompt_tokens_details"] = {"cached_tokens": cached}
    yield about | {"choices": [{"index": 0, "text": "", "finish_reason": reason}], "usage": usage}


async def events(chunks: AsyncIterator[dict[str, Any]]) -> AsyncIterator[bytes]:
    """Chunks as server-sent events."""
    async for chunk in chunks:
        yield b"data: " + to_json(chunk) + b"\n\n"
    yield b"data: [DONE]\n\n"


def create_app(
    store: SessionStore,
    *,
    sources: Sequence[Source] = (),
    max_characters: int = 4_000_000,
    max_body_bytes: int = 32 << 20,
    max_model_len: int = 1 << 20,
) -> FastAPI:
    """The front end over a store, which is closed when the server stops.

    Args:
        store: Has the sessions. How many bytes they may hold, and for how long, are limits of its own.
        sources: What ``/metrics`` shows beside the store: the tokenizer, a ``ShadowVerifier``.
        max_characters: Of a prompt.
        max_body_bytes: Of a request. JSON takes one to twelve for a character.
        max_model_len: Ids that a prompt and its completion may have together.
    """

    @contextlib.asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        async with store:
            yield

    app = FastAPI(title="toktier front end", lifespan=lifespan)
    app.add_middleware(BodyLimit, most=max_body_bytes)
    registry = prometheus_client.CollectorRegistry()  # of this app, where the usual one is of the process
    register(store, *sources, registry=registry)
    bounds = [digit * scale for scale in (1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 1.0) for digit in (1, 2, 5)]
    waited = "Seconds from a prompt to its ids, with all that it waited for."
    tokenize_seconds = prometheus_client.Histogram(
        "front_end_tokenize_seconds", waited, buckets=bounds, registry=registry
    )
    refused = prometheus_client.Counter("front_end_refused", "Requests, by status.", ["status"], registry=registry)

    async def tokenize(asked: Prompt, header: str | None) -> tuple[Ids, Patch | None, dict[str, str]]:
        """The ids, for a session what changed as well, and the headers of the answer."""
        if len(asked.prompt) > max_characters:
            raise HTTPException(413, f"prompt: {len(asked.prompt):,} characters, where {max_characters:,} are allowed")
        for start, stop in asked.untrusted:
            if not 0 <= start <= stop <= len(asked.prompt):
                raise HTTPException(400, f"untrusted: [{start}, {stop}] of {len(asked.prompt)} characters")
        text, session, salt, untrusted = asked.prompt, header or asked.session_id, asked.cache_salt, asked.untrusted
        began, patch = time.perf_counter(), None
        # What is long is encoded by another thread; calls for one session wait for one another, and for nobody else.
        try:
            if session:
                ids, patch = await store.encode_async(text, session=session, salt=salt, untrusted=untrusted, patch=True)
            else:
                ids = await store.encode_async(text, salt=salt, untrusted=untrusted)
        except (EngineFailure, InvalidText) as error:
            raise HTTPException(400, f"prompt: {error}") from None
        except Unprotectable as error:
            raise HTTPException(400, f"untrusted: {error}") from None
        took = time.perf_counter() - began
        tokenize_seconds.observe(took)
        return ids, patch, {"Server-Timing": f"tokenize;dur={1e3 * took:.3f}"}

    @app.post("/v1/tokenize")
    async def tokenize_prompt(asked: TokenizeRequest, x_session_id: SessionHeader = None) -> Response:
        if asked.patch and not (asked.session_id or x_session_id):
            raise HTTPException(400, "patch: of a session, and there is neither session_id nor X-Session-ID")
        ids, patch, headers = await tokenize(asked, x_session_id)
        answer: dict[str, Any] = {"count": len(ids), "max_model_len": max_model_len}
        if patch is None or not asked.patch:
            answer["tokens"] = ids.tolist()
        else:
            changed = {"before": patch.before, "start": patch.start, "stop": patch.stop, "tokens": patch.ids.tolist()}
            # An answer may get lost, or go to somebody else. Whose copy has another checksum then asks for all ids.
            answer |= {"patch": changed, "checksum": zlib.crc32(ids.astype("<u4", copy=False).data)}
        return Response(to_json(answer), media_type="application/json", headers=headers)

    @app.post("/v1/completions")
    async def complete(asked: CompletionRequest, x_session_id: SessionHeader = None) -> Response:
        ids, patch, headers = await tokenize(asked, x_session_id)
        if len(ids) + asked.max_tokens > max_model_len:
            what = f"{len(ids):,} ids and max_tokens of {asked.max_tokens:,}"
            raise HTTPException(400, f"prompt: {what}, where the model has {max_model_len:,}")
        # Ids before the patch were there in the last call for this session: as much of a KV cache can be valid still.
        cached = 0 if patch is None or patch.before is None else patch.start
        chunks = completion(ids, cached, asked.max_tokens)
        if asked.stream:
            return StreamingResponse(events(chunks), media_type="text/event-stream", headers=headers)
        answer = [chunk async for chunk in chunks]
        answer[-1]["choices"][0]["text"] = "".join(chunk["choices"][0]["text"] for chunk in answer)
        return Response(to_json(answer[-1]), media_type="application/json", headers=headers)

    @app.get("/health")
    async def health() -> dict[str, str]:
        return {"status": "ok"}

    @app.get("/metrics")
    async def metrics() -> Response:
        return Response(prometheus_client.generate_latest(registry), media_type=prometheus_client.CONTENT_TYPE_LATEST)

    @app.exception_handler(AnyHTTPException)
    async def refuse(request: Request, error: AnyHTTPException) -> Response:
        refused.labels(str(error.status_code)).inc()
        what = {"message": error.detail, "type": "invalid_request_error", "code": error.status_code}
        return Response(to_json({"error": what}), error.status_code, error.headers, "application/json")

    @app.exception_handler(RequestValidationError)
    async def refuse_body(request: Request, error: RequestValidationError) -> Response:
        # What was sent is not repeated: it may be long, and so may the list of what is wrong with it.
        some = error.errors()[:5]
        what = "; ".join(f"{'.'.join(map(str, it['loc']))}: {it['msg']}" for it in some)
        return await refuse(request, AnyHTTPException(400, what))

    return app


def serve(app: FastAPI, host: str, port: int) -> None:
    """Answers requests until the process is told to stop; those that are under way then have ten seconds."""
    # Threads with long texts hand over the interpreter ten times sooner than they would.
    sys.setswitchinterval(0.0005)
    uvicorn.run(
        app,
        host=host,
        port=port,
        log_level="warning",
        limit_concurrency=1000,  # connections; beyond that the answer is 503
        timeout_keep_alive=75,  # seconds, for agents take longer than the usual five between two calls
        timeout_graceful_shutdown=10,
    )


def main() -> None:
    """Loads the tokenizer, makes the store and serves."""
    parser = argparse.ArgumentParser(description="Exact tokenization of growing transcripts, over HTTP.")
    parser.add_argument("--tokenizer", default="toktier-mini", help="a tokenizer.json, a directory or a hub id")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8000)
    parser.add_argument("--max-bytes", type=int, default=1 << 30, help="what all sessions together may hold")
    parser.add_argument("--ttl", type=float, default=3600.0, help="seconds after which an unused session goes")
    parser.add_argument("--path", help="a file from which sessions are resumed after a restart")
    options = parser.parse_args()
    try:
        tok = toktier.load(options.tokenizer)
    except (OSError, ToktierError) as error:
        parser.error(str(error))
    store = SessionStore(tok, max_bytes=options.max_bytes, ttl=options.ttl, path=options.path)
    serve(create_app(store, sources=[tok]), options.host, options.port)


if __name__ == "__main__":
    main()
