"""Prompts of servers as lists of ids, by way of a store."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterable, Sequence
from typing import TypeAlias, cast

from toktier.engines.base import Ids
from toktier.engines.reference import ReferenceEngine
from toktier.integrations.encodings import affixes
from toktier.integrations.keys import SessionKey, checked_request_ids, session_key
from toktier.store import SessionStore

AnySpans: TypeAlias = Iterable[Sequence[int]]
"""Spans ``(start, stop)`` of characters that users wrote: special tokens in them are text."""


class PromptEncoder:
    """Gives the ids of prompts as the lists that servers take.

    Args:
        store: Has the sessions, and the tokenizer.
        request_ids: What request ids look like, if their beginning names the conversation; see :func:`session_key`.

    Raises:
        TypeError: An argument is of another type.
        ValueError: The regular expression is not valid, or has no group.

    Example:
        >>> import toktier
        >>> prompts = PromptEncoder(toktier.SessionStore(toktier.load("toktier-mini")))
        >>> prompts.encode("Hello world", prompts.key(session_id="chat-42"), add_special_tokens=True)
        [4087, 39, 523, 323, 3241, 1151]
    """

    def __init__(self, store: SessionStore, *, request_ids: str | re.Pattern[str] | None = None) -> None:
        if not isinstance(store, SessionStore):
            raise TypeError(f"store must be a toktier.SessionStore, not {store!r}")
        self._store, self._tok = store, store.tokenizer
        self._request_ids = None if request_ids is None else checked_request_ids(request_ids)
        reference = cast(ReferenceEngine, self._tok.engine("reference"))
        # A post-processor may do more than add something at both ends: then the library encodes.
        around = affixes(reference.post_processor, add_special_tokens=True)
        self.adds_around = around is not None
        """Whether special tokens that are added stand around the text, and nothing else is done."""
        self._before = [] if around is None else around.before
        self._behind = [] if around is None else around.behind

    @property
    def added(self) -> int:
        """How many special tokens the tokenizer's own post-processor adds."""
        return len(self._before) + len(self._behind)

    @property
    def before(self) -> list[int]:
        """Those before the text."""
        return self._before.copy()

    def key(
        self, *, session_id: str | None = None, cache_salt: str | None = None, request_id: str | None = None
    ) -> SessionKey:
        """The key of a request; see :func:`session_key`."""
        return session_key(
            session_id=session_id, cache_salt=cache_salt, request_id=request_id, request_ids=self._request_ids
        )

    def encode(self, text: str, key: SessionKey, *, add_special_tokens: bool, untrusted: AnySpans = ()) -> list[int]:
        """The ids of a whole prompt, in a list of the caller's own.

        Args:
            text: The prompt, such as a rendered transcript.
            key: Which session it belongs to.
            add_special_tokens: Apply the tokenizer's own post-processor, as servers do where no chat template did.
            untrusted: Spans of characters that users wrote.

        Raises:
            TypeError: An argument is of another type.
            IndexError: An untrusted span does not lie in the text.
            InvalidText: The text has a lone surrogate.
        """
        if add_special_tokens and not self.adds_around:
            return self._in_full(text, untrusted)
        ids = self._store.encode(text, session=key.session, salt=key.salt, untrusted=untrusted)
        return self._listed(ids, add_special_tokens)

    async def encode_async(
        self, text: str, key: SessionKey, *, add_special_tokens: bool, untrusted: AnySpans = ()
    ) -> list[int]:
        """The same as :meth:`encode`, for an event loop."""
        if add_special_tokens and not self.adds_around:
            return await asyncio.to_thread(self._in_full, text, untrusted)
        ids = await self._store.encode_async(text, session=key.session, salt=key.salt, untrusted=untrusted)
        return self._listed(ids, add_special_tokens)

    def _in_full(self, text: str, untrusted: AnySpans) -> list[int]:
        return cast("list[int]", self._tok.encode(text, add_special_tokens=True, untrusted=untrusted).tolist())

    def _listed(self, ids: Ids, add_special_tokens: bool) -> list[int]:
        # Boxed anew on every call: a list that is kept for each session would be eight times as large as the ids, and
        # the server needs a copy of its own all the same.
        listed = cast("list[int]", ids.tolist())
        if add_special_tokens:
            listed[:0] = self._before
            listed += self._behind
        return listed
