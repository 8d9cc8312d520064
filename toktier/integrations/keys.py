"""Which session of a store a request belongs to.

A key never decides which ids a request gets: a store brings whatever session it finds to the text that it was given. A
wrong key costs time. What keeps tenants apart is the salt, and nothing else.
"""

from __future__ import annotations

import re

from attrs import frozen


@frozen
class SessionKey:
    """Where a store keeps what a request goes on from: the arguments of :meth:`toktier.SessionStore.encode`.

    Made by :func:`session_key`.

    Attributes:
        session: The name of the session; None if it is to be found by the content of the text.
        salt: The tenant; nothing that another one has stored is found, neither by name nor by content.

    Example:
        >>> import toktier
        >>> key = session_key(session_id="chat-42", cache_salt="tenant")
        >>> store = toktier.SessionStore(toktier.load("toktier-mini"))
        >>> store.encode("Hello", session=key.session, salt=key.salt).tolist()
        [39, 523, 323]
    """

    session: str | None
    salt: str


def session_key(
    *,
    session_id: str | None = None,
    cache_salt: str | None = None,
    request_id: str | None = None,
    request_ids: str | re.Pattern[str] | None = None,
) -> SessionKey:
    r"""The key of a request, in the order session id, cache salt, request-id prefix, content.

    - A **session id** names the session.
    - A **cache salt** separates tenants. Everything else is looked for under it, the session id too. It names no
      session: a tenant has many conversations, and if they shared one name, each would wait for the others and undo
      what they have done.
    - A **request id** names a session by its beginning, but only where somebody has said how to tell: ``request_ids``
      is a regular expression for whole ids whose first group is the name. Without it, request ids do not count, since
      most are random, or numbers of requests and not of conversations.
    - Otherwise the session is found by **content**: it is the one with the longest prefix in common.

    Servers take an empty string for none, and so does this.

    Args:
        session_id: What stays the same for a whole conversation.
        cache_salt: What separates tenants; what SGLang calls so, and vLLM.
        request_id: The id of this one request.
        request_ids: What request ids look like, if their beginning names the conversation.

    Raises:
        TypeError: A part of the request is no string.
        ValueError: The regular expression is not valid, or has no group.

    Example:
        >>> session_key(session_id="chat-42", cache_salt="tenant", request_id="7f3a")
        SessionKey(session='chat-42', salt='tenant')
        >>> session_key(cache_salt="tenant", request_id="chat-42-7", request_ids=r"(chat-\d+)-\d+")
        SessionKey(session='chat-42', salt='tenant')
        >>> session_key(request_id="chatcmpl-0b5e2f", request_ids=r"(chat-\d+)-\d+")
        SessionKey(session=None, salt='')
    """
    parts = {"session_id": session_id, "cache_salt": cache_salt, "request_id": request_id}
    for name, part in parts.items():
        if part is not None and not isinstance(part, str):
            raise TypeError(f"{name} must be a str, not {type(part).__name__}")
    name_of_request = None
    if request_ids is not None and (match := checked_request_ids(request_ids).fullmatch(request_id or "")):
        name_of_request = match[1]
    return SessionKey(session_id or name_of_request or None, cache_salt or "")


def checked_request_ids(request_ids: object) -> re.Pattern[str]:
    """A regular expression for request ids, compiled.

    Raises:
        TypeError: It is neither a string nor a compiled pattern of one.
        ValueError: It is no regular expression, or has no group.
    """
    if isinstance(request_ids, str):
        try:
            request_ids = re.compile(request_ids)
        except re.error as error:
            raise ValueError(f"request_ids {request_ids!r} is no regular expression: {error}") from None
    if not isinstance(request_ids, re.Pattern) or not isinstance(request_ids.pattern, str):
        raise TypeError(f"request_ids must be a regular expression for str, not {request_ids!r}")
    if not request_ids.groups:
        raise ValueError(
            f"request_ids {request_ids.pattern!r} has no group: put what names the conversation in parentheses, as in"
            r" '(chat-\d+)-\d+'"
        )
    return request_ids
