"""SGLang: requests with ``input_ids`` in the place of texts, and a plugin for its server.

SGLang is not imported before its own plugin loader calls :func:`plugin`. What is said here about it was read in version
0.5.23.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from attrs import frozen

from toktier.integrations.hooks import with_reuse
from toktier.integrations.keys import SessionKey
from toktier.integrations.prompts import AnySpans, PromptEncoder
from toktier.store import SessionStore

TEXTS = ("prompt", "text")
"""The text, as ``Engine.generate`` calls it, and as ``GenerateReqInput`` and the server do."""

ENCODED = ("input_ids", "input_embeds")
"""Fields of requests that have no text to be encoded."""

MEDIA = ("image_data", "video_data", "audio_data")
"""Fields of requests whose text has placeholders, which SGLang replaces in its own way."""

KEYS = ("cache_salt", "extra_key", "rid")
"""Fields that may be lists, with one element for each text."""

TARGET = "sglang.srt.managers.tokenizer_manager.TokenizerManager.init_tokenizer_and_processor"
"""What has made the tokenizer of the one process that encodes."""

NAME = "toktier"
"""The name of the plugin."""


@frozen
class _Prompt:
    """One text of a request."""

    text: str
    key: SessionKey
    untrusted: Sequence[Sequence[int]]


class GenerateRequests:
    """Puts ids in the place of the texts of requests to SGLang.

    The ids are those which SGLang's own tokenizer would give, if the store has the same tokenizer: made with
    ``toktier.load(engine.tokenizer_manager.tokenizer.backend_tokenizer)`` it has.

    Args:
        store: Has the sessions, and the tokenizer.
        request_ids: What request ids (``rid``) look like, if their beginning names the conversation; see
            :func:`toktier.integrations.keys.session_key`.

    Raises:
        TypeError: An argument is of another type.
        ValueError: The regular expression is not valid, or has no group.

    Example:
        >>> import toktier
        >>> requests = GenerateRequests(toktier.SessionStore(toktier.load("toktier-mini")))
        >>> requests.encode({"prompt": "Hello world", "session_id": "chat-42", "cache_salt": "tenant"})
        {'session_id': 'chat-42', 'cache_salt': 'tenant', 'input_ids': [4087, 39, 523, 323, 3241, 1151]}
        >>> requests.encode({"text": ["Hello", " world"]}, add_special_tokens=False)
        {'input_ids': [[39, 523, 323], [3241, 1151]]}
    """

    def __init__(self, store: SessionStore, *, request_ids: str | re.Pattern[str] | None = None) -> None:
        self._encoder = PromptEncoder(store, request_ids=request_ids)

    def encode(
        self,
        request: Mapping[str, Any],
        *,
        add_special_tokens: bool = True,
        untrusted: AnySpans | Iterable[AnySpans] = (),
    ) -> dict[str, Any]:
        """A request with ids in the place of its text, and with everything else that it had.

        One that has ids or embeddings already, or images or other media, is returned as it is.

        Args:
            request: The arguments of ``Engine.generate``, the fields of a ``GenerateReqInput``, or the body for
                ``/generate``. Its ``session_id``, its ``cache_salt`` with its ``extra_key``, and its ``rid`` are its
                key. A name that is given once for several texts names none of them, and a text that continues what the
                server holds (``session_params``) is no transcript: those go by content.
            add_special_tokens: As SGLang has it: True for texts, False for a rendered chat.
            untrusted: Spans ``(start, stop)`` of characters of the text that users wrote, half-open: special tokens in
                them are text. For a list of texts, such spans for each.

        Returns:
            A new dictionary, with ``input_ids`` in the place of the text. For one text that is a list of ids, for a
            list of texts a list of such lists.

        Raises:
            TypeError: An argument is of another type.
            ValueError: A list is not as long as that of the texts, there are two texts, or untrusted spans of a request
                that is left to SGLang, which would not heed them.
            IndexError: An untrusted span does not lie in its text.
            InvalidText: A text has a lone surrogate.
            EngineFailure: The reference library cannot encode a text.
            Unprotectable: There are untrusted characters, and this tokenizer cannot tell special tokens apart.

        Example:
            >>> import toktier
            >>> requests = GenerateRequests(toktier.SessionStore(toktier.load("toktier-mini")))
            >>> requests.encode({"text": "Hello world", "rid": "7f3a", "sampling_params": {"temperature": 0}})
            {'rid': '7f3a', 'sampling_params': {'temperature': 0}, 'input_ids': [4087, 39, 523, 323, 3241, 1151]}
        """
        prompts = self._prompts(request, untrusted)
        if prompts is None:
            return dict(request)
        ids = [
            self._encoder.encode(each.text, each.key, add_special_tokens=add_special_tokens, untrusted=each.untrusted)
            for each in prompts
        ]
        return _with_ids(request, ids)

    async def encode_async(
        self,
        request: Mapping[str, Any],
        *,
        add_special_tokens: bool = True,
        untrusted: AnySpans | Iterable[AnySpans] = (),
    ) -> dict[str, Any]:
        """The same as :meth:`encode`, for an event loop; several texts are encoded side by side.

        Example:
            >>> import asyncio, toktier
            >>> requests = GenerateRequests(toktier.SessionStore(toktier.load("toktier-mini")))
            >>> asyncio.run(requests.encode_async({"text": ["Hello", " world"]}, add_special_tokens=False))
            {'input_ids': [[39, 523, 323], [3241, 1151]]}
        """
        prompts = self._prompts(request, untrusted)
        if prompts is None:
            return dict(request)
        encode = self._encoder.encode_async
        calls = [encode(p.text, p.key, add_special_tokens=add_special_tokens, untrusted=p.untrusted) for p in prompts]
        return _with_ids(request, await asyncio.gather(*calls))

    def _prompts(self, request: Mapping[str, Any], untrusted: AnySpans | Iterable[AnySpans]) -> list[_Prompt] | None:
        """The texts of a request, each with its key; None if SGLang has to encode them, or there is none."""
        if not isinstance(request, Mapping):
            raise TypeError(f"request must be a dictionary of arguments, not {type(request).__name__}")
        given = [name for name in TEXTS if request.get(name) is not None]
        if len(given) > 1:
            raise ValueError("a request has one of 'prompt' and 'text', and not both")
        spans: list[Any] = list(untrusted)
        left = [name for name in ENCODED if request.get(name) is not None]
        left += [name for name in MEDIA if _is_there(request.get(name))]
        if left or not given:
            if spans:
                what = f"a request with {left[0]}" if left else "a request without a text"
                raise ValueError(f"{what} is left to SGLang, which does not heed untrusted: leave untrusted out")
            return None
        texts = request[given[0]]
        if isinstance(texts, str):
            return [_Prompt(texts, self._key(request, request, single=True), spans)]
        if not isinstance(texts, list):
            raise TypeError(f"{given[0]} must be a str or a list of them, not {type(texts).__name__}")
        count = len(texts)
        of_each = {name: request[name] for name in KEYS if isinstance(request.get(name), list)}
        of_each["untrusted"] = spans or [()] * count
        for name, values in of_each.items():
            if len(values) != count:
                raise ValueError(f"{name} has {len(values)} elements for {count} texts")
        found = []
        for number, text in enumerate(texts):
            own = {name: values[number] for name, values in of_each.items()}
            found.append(_Prompt(text, self._key(request, own, single=count == 1), own["untrusted"]))
        return found

    def _key(self, request: Mapping[str, Any], own: Mapping[str, Any], *, single: bool) -> SessionKey:
        """The key of a text.

        Args:
            request: Its request.
            own: What of it belongs to this text alone.
            single: Whether the request has no other text.
        """
        is_transcript = request.get("session_params") is None
        salt, extra = (own.get(name, request.get(name)) for name in ("cache_salt", "extra_key"))
        if extra is not None and not isinstance(extra, str):
            raise TypeError(f"extra_key must be a str, not {type(extra).__name__}")
        session_id, rid = (request.get("session_id"), request.get("rid")) if single else (None, None)
        key = self._encoder.key(
            session_id=session_id if is_transcript else None,
            cache_salt=salt,
            request_id=own.get("rid", rid) if is_transcript else None,
        )
        # Either of the two keeps the server from sharing what it has computed.
        return SessionKey(key.session, json.dumps([key.salt, extra or ""]) if extra or key.salt else "")


def _is_there(media: Any) -> bool:
    """Whether there are media at all: servers take lists of nothing for nothing."""
    return any(map(_is_there, media)) if isinstance(media, list) else media is not None


def _with_ids(request: Mapping[str, Any], ids: list[list[int]]) -> dict[str, Any]:
    single = any(isinstance(request.get(name), str) for name in TEXTS)
    rest = {name: value for name, value in request.items() if name not in TEXTS}
    return rest | {"input_ids": ids[0] if single else ids}


def register() -> None:
    """Has every tokenizer manager that is made from now on go on from texts that it has met.

    To be called before ``sglang.Engine`` is made. They go on from whatever they have met, whoever sent it: a tokenizer
    does not see the cache salt of a request.
    """
    from sglang.srt.plugins.hook_registry import HookRegistry, HookType

    HookRegistry.register(TARGET, _wrap_tokenizer, HookType.AFTER)


def plugin() -> None:
    """The entry point ``sglang.srt.plugins``: registers if ``SGLANG_PLUGINS`` names this plugin.

    Without that variable SGLang loads whatever is installed, and this must not be a matter of what is installed.

    Example:
        >>> import os, unittest.mock
        >>> with unittest.mock.patch.dict(os.environ, SGLANG_PLUGINS="another"):
        ...     plugin()  # does nothing
    """
    if NAME in (name.strip() for name in os.environ.get("SGLANG_PLUGINS", "").split(",")):
        register()


def _wrap_tokenizer(result: None, manager: Any, *args: Any, **options: Any) -> None:
    """Called when a tokenizer manager has loaded its tokenizer."""
    if manager.tokenizer is None:
        return  # the server takes ids alone
    manager.tokenizer = with_reuse(manager.tokenizer)
    if manager.async_dynamic_batch_tokenizer is not None:
        manager.async_dynamic_batch_tokenizer.tokenizer = manager.tokenizer
