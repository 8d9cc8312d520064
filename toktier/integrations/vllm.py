"""vLLM: prompts of ids in the place of texts, and a tokenizer mode for ``vllm serve``.

vLLM is not imported before its own hook calls :func:`register`. What is said here about it was read in version 0.33.0.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import Any

from toktier.integrations.hooks import with_reuse
from toktier.integrations.keys import SessionKey
from toktier.integrations.prompts import AnySpans, PromptEncoder
from toktier.store import SessionStore

MODE = "toktier"
"""The tokenizer mode: ``vllm serve MODEL --tokenizer-mode toktier``."""

ENCODED = ("prompt_token_ids", "prompt_embeds", "encoder_prompt")
"""Keys of prompts that have no text to be encoded."""

MEDIA = ("multi_modal_data", "multi_modal_uuids")
"""Keys of prompts whose text has placeholders, which vLLM replaces in its own way."""


class TokensPrompts:
    r"""Makes the prompts of ids (``TokensPrompt``) that vLLM takes in the place of texts.

    The ids are those which vLLM's own tokenizer would give, if the store has the same tokenizer: made with
    ``toktier.load(llm.get_tokenizer().backend_tokenizer)`` it has.

    Args:
        store: Has the sessions, and the tokenizer.
        request_ids: What request ids look like, if their beginning names the conversation; see
            :func:`toktier.integrations.keys.session_key`.

    Raises:
        TypeError: An argument is of another type.
        ValueError: The regular expression is not valid, or has no group.

    Example:
        >>> import toktier
        >>> prompts = TokensPrompts(toktier.SessionStore(toktier.load("toktier-mini")))
        >>> prompts.encode("Hello world", session_id="chat-42")
        {'prompt': 'Hello world', 'prompt_token_ids': [4087, 39, 523, 323, 3241, 1151]}
        >>> prompts.encode({"prompt": "<|im_start|>", "cache_salt": "tenant"}, add_special_tokens=False)
        {'prompt': '<|im_start|>', 'cache_salt': 'tenant', 'prompt_token_ids': [4088]}
    """

    def __init__(self, store: SessionStore, *, request_ids: str | re.Pattern[str] | None = None) -> None:
        self._encoder = PromptEncoder(store, request_ids=request_ids)

    def encode(
        self,
        prompt: str | Mapping[str, Any] | list[int],
        *,
        session_id: str | None = None,
        request_id: str | None = None,
        add_special_tokens: bool = True,
        truncate_prompt_tokens: int | None = None,
        untrusted: AnySpans = (),
    ) -> dict[str, Any]:
        """A prompt with its ids, and with everything else that it had.

        A prompt that has ids or embeddings already, and one with images or other media, is returned as it is.

        Args:
            prompt: A text or one of vLLM's dictionaries, whose ``cache_salt`` is the tenant.
            session_id: What stays the same for a whole conversation.
            request_id: The id of this one request.
            add_special_tokens: As vLLM has it: True for completions, False for a rendered chat.
            truncate_prompt_tokens: Keep this many ids of a text that has more: the last, behind what is added at the
                beginning. That is vLLM's way as long as no ``truncation_side`` is given.
            untrusted: Spans ``(start, stop)`` of characters of the text that users wrote, half-open: special tokens in
                them are text.

        Returns:
            A new dictionary, with all of the prompt and ``prompt_token_ids``, a list of the caller's own.

        Raises:
            TypeError: An argument is of another type.
            ValueError: The prompt is left to vLLM, and there is something that vLLM would not heed; or fewer ids are to
                be kept than are added.
            IndexError: An untrusted span does not lie in the text.
            InvalidText: The text has a lone surrogate.
            EngineFailure: The reference library cannot encode the text.
            Unprotectable: There are untrusted characters, and this tokenizer cannot tell special tokens apart.

        Example:
            >>> import toktier
            >>> prompts = TokensPrompts(toktier.SessionStore(toktier.load("toktier-mini")))
            >>> prompts.encode("Hello world", truncate_prompt_tokens=3)
            {'prompt': 'Hello world', 'prompt_token_ids': [4087, 3241, 1151]}
            >>> prompts.encode([1, 2, 3])
            {'prompt_token_ids': [1, 2, 3]}
        """
        prompt = _dictionary(prompt)
        spans, length = list(untrusted), self._checked_length(truncate_prompt_tokens, add_special_tokens)
        if (text := _text(prompt, heeded={"untrusted": spans, "truncate_prompt_tokens": length})) is None:
            return prompt
        key = self._key(prompt, session_id, request_id)
        ids = self._encoder.encode(text, key, add_special_tokens=add_special_tokens, untrusted=spans)
        return self._with_ids(prompt, ids, length, add_special_tokens)

    async def encode_async(
        self,
        prompt: str | Mapping[str, Any] | list[int],
        *,
        session_id: str | None = None,
        request_id: str | None = None,
        add_special_tokens: bool = True,
        truncate_prompt_tokens: int | None = None,
        untrusted: AnySpans = (),
    ) -> dict[str, Any]:
        """The same as :meth:`encode`, for an event loop; see :meth:`toktier.SessionStore.encode_async`.

        Example:
            >>> import asyncio, toktier
            >>> prompts = TokensPrompts(toktier.SessionStore(toktier.load("toktier-mini")))
            >>> asyncio.run(prompts.encode_async("Hello world", session_id="chat-42"))
            {'prompt': 'Hello world', 'prompt_token_ids': [4087, 39, 523, 323, 3241, 1151]}
        """
        prompt = _dictionary(prompt)
        spans, length = list(untrusted), self._checked_length(truncate_prompt_tokens, add_special_tokens)
        if (text := _text(prompt, heeded={"untrusted": spans, "truncate_prompt_tokens": length})) is None:
            return prompt
        key = self._key(prompt, session_id, request_id)
        ids = await self._encoder.encode_async(text, key, add_special_tokens=add_special_tokens, untrusted=spans)
        return self._with_ids(prompt, ids, length, add_special_tokens)

    def _key(self, prompt: dict[str, Any], session_id: str | None, request_id: str | None) -> SessionKey:
        return self._encoder.key(session_id=session_id, cache_salt=prompt.get("cache_salt"), request_id=request_id)

    def _checked_length(self, length: object, add_special_tokens: bool) -> int | None:
        if length is None:
            return None
        if not isinstance(length, int) or isinstance(length, bool):
            raise TypeError(f"truncate_prompt_tokens must be an int, not {length!r}")
        if add_special_tokens and not self._encoder.adds_around:
            raise ValueError(
                "truncate_prompt_tokens cannot be heeded: the post-processor of this tokenizer does more than add"
                " tokens around a text; leave it out, and truncate the ids"
            )
        least = max(1, self._encoder.added if add_special_tokens else 0)
        if length < least:
            raise ValueError(
                f"truncate_prompt_tokens must be {least} or more, not {length}: the length of the model's context, for"
                " which -1 stands in vLLM, is not known here"
            )
        return length

    def _with_ids(
        self, prompt: dict[str, Any], ids: list[int], length: int | None, add_special_tokens: bool
    ) -> dict[str, Any]:
        if length is not None and len(ids) > length:
            before = self._encoder.before if add_special_tokens else []
            ids = before + ids[len(ids) - length + len(before) :]
        return {**prompt, "prompt_token_ids": ids}


def _dictionary(prompt: str | Mapping[str, Any] | list[int]) -> dict[str, Any]:
    """A prompt as one of vLLM's dictionaries."""
    if isinstance(prompt, str):
        return {"prompt": prompt}
    if isinstance(prompt, list):
        return {"prompt_token_ids": prompt}
    if isinstance(prompt, Mapping):
        return dict(prompt)
    raise TypeError(f"prompt must be a str, a list of ids or a dictionary, not {type(prompt).__name__}")


def _text(prompt: dict[str, Any], *, heeded: dict[str, Any]) -> str | None:
    """The text of a prompt; None if there is none, or vLLM has to encode it.

    Args:
        prompt: The prompt.
        heeded: What was asked for by name, and must not be lost.
    """
    has = [key for key in ENCODED if key in prompt] + [key for key in MEDIA if prompt.get(key)]
    if not has:
        if "prompt" not in prompt:
            raise TypeError(f"prompt must have a text or ids, and has nothing but {sorted(prompt)}")
        if not isinstance(prompt["prompt"], str):
            raise TypeError(f"prompt['prompt'] must be a str, not {type(prompt['prompt']).__name__}")
        return prompt["prompt"]
    for name, value in heeded.items():
        if value:
            raise ValueError(f"a prompt with {has[0]} is left to vLLM, which does not heed {name}: leave {name} out")
    return None


class TokenizerMode:
    """What vLLM loads for ``--tokenizer-mode toktier``: its own tokenizer of mode ``hf``, with reuse.

    It goes on from texts that it has met, whoever sent them: a tokenizer does not see the cache salt of a request.

    Nobody has to import it: ``vllm serve MODEL --tokenizer-mode toktier`` finds it by the entry point :func:`register`.
    """

    @classmethod
    def from_pretrained(cls, path_or_repo_id: str | os.PathLike[str], *args: Any, **options: Any) -> Any:
        """The tokenizer of a model.

        Args:
            path_or_repo_id: The directory of a model or its id on the hub, as vLLM has it.
            args: As vLLM has them.
            options: As vLLM has them.

        Returns:
            What vLLM loads in mode ``hf``, wrapped by :func:`toktier.integrations.transformers.wrap`; as it is, with a
            warning in the log, where that cannot be wrapped.
        """
        from vllm.tokenizers import get_tokenizer

        return with_reuse(get_tokenizer(path_or_repo_id, *args, tokenizer_mode="hf", **options))


def register() -> None:
    """Registers the tokenizer mode: the entry point ``vllm.general_plugins``. May be called more than once.

    vLLM calls it in each of its processes, since toktier is installed beside it.
    """
    from vllm.renderers.registry import RENDERER_REGISTRY
    from vllm.tokenizers import TokenizerRegistry

    if MODE not in TokenizerRegistry.tokenizers:
        TokenizerRegistry.register(MODE, __name__, TokenizerMode.__name__)
    if MODE not in RENDERER_REGISTRY.renderers:
        # Chats are rendered as they are in mode hf.
        RENDERER_REGISTRY.register(MODE, *RENDERER_REGISTRY.renderers["hf"])
