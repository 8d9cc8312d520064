"""What a template gets to see: plain copies of messages and tools, and which of them are untrusted."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
from attrs import frozen

from toktier.chat.provenance import MarkedText
from toktier.errors import MissingPackage
from toktier.untrusted import Special, is_text

Message: TypeAlias = Any
"""A dictionary with at least a role, or an object that can be made one: a data class, or a model of pydantic."""

ROLES = frozenset(
    {"assistant", "developer", "environment", "function", "ipython", "model", "observation", "system", "tool", "user"}
)
"""Roles that are trusted whoever wrote them: some templates make a special token of a role, such as ``<|user|>``."""

REASONING = ("reasoning_content", "thinking", "reasoning")
"""What a message's reasoning is called; templates read the first, and some the second."""


@frozen
class Conversation:
    """The variables of a template.

    Attributes:
        variables: Plain copies of all that was given.
        untrusted: The dictionaries in there, by ``id()``, whose texts are untrusted.
        is_text: Whether all that was given is untrusted, but for what the template itself brings.
        own: The names of what the template itself brings, which is trusted.
    """

    variables: dict[str, Any]
    untrusted: frozenset[int]
    is_text: bool
    own: frozenset[str]

    @property
    def is_trusted(self) -> bool:
        """Whether there is nothing untrusted."""
        return not self.is_text and not self.untrusted

    def marked(self) -> dict[str, Any]:
        """The variables as texts that know which of their characters are untrusted."""
        marked = {
            name: self._marked(value, trusted=not self.is_text or name in self.own)
            for name, value in self.variables.items()
        }
        for message, copy in zip(self.variables["messages"], marked["messages"], strict=True):
            if isinstance(role := message.get("role"), str) and role in ROLES:
                copy["role"] = MarkedText(role, ())
        return marked

    def _marked(self, value: Any, *, trusted: bool) -> Any:
        if isinstance(value, str):
            return MarkedText(value, () if trusted else None)
        if isinstance(value, dict):
            trusted = trusted and id(value) not in self.untrusted
            # A key that is no marked text is untrusted, like any plain string.
            keys = map(_trusted_key, value) if trusted else value
            return {key: self._marked(item, trusted=trusted) for key, item in zip(keys, value.values(), strict=True)}
        if isinstance(value, (list, tuple)):
            return type(value)(self._marked(item, trusted=trusted) for item in value)
        return value


def _trusted_key(key: Any) -> Any:
    return MarkedText(key, ()) if isinstance(key, str) else key


def conversation(
    messages: Iterable[Message],
    tools: Iterable[Any] | None,
    documents: Iterable[Any] | None,
    *,
    own: Mapping[str, Any],
    variables: Mapping[str, Any],
    special: Special,
) -> Conversation:
    """What a template gets to see.

    Args:
        messages: The messages.
        tools: Tools that the model may call: JSON schemas, or Python functions of which ``transformers`` makes some.
        documents: Documents for the model.
        own: Variables that the template brings, such as ``bos_token``; they are trusted.
        variables: More variables, which go before those.
        special: ``"text"`` if all that is given, the template's own variables apart, is untrusted.

    Raises:
        TypeError: Something is of another type.
        ValueError: There are no messages, or somebody says that special tokens are something else.
    """
    everything = is_text(special)
    untrusted: set[int] = set()
    chat = [_message(number, message) for number, message in _numbered("messages", messages)]
    if not chat:
        raise ValueError("messages is empty: a chat template needs one message at least")
    schemas = None if tools is None else [_tool(number, tool) for number, tool in _numbered("tools", tools)]
    sources = None if documents is None else [_plain(document) for _, document in _numbered("documents", documents)]
    for where, dictionary in _that_may_say(chat, schemas, sources):
        if _takes_out(where, dictionary, everything=everything):
            untrusted.add(id(dictionary))
    seen = {**_plain({**own, **variables}), "messages": chat, "tools": schemas, "documents": sources}
    return Conversation(seen, frozenset(untrusted), everything, frozenset(own.keys() - variables.keys()))


def _numbered(name: str, values: Iterable[Any]) -> Iterator[tuple[int, Any]]:
    if isinstance(values, (str, bytes, Mapping)) or not isinstance(values, Iterable):
        raise TypeError(f"{name} must be a list of dictionaries, not {type(values).__name__}")
    return enumerate(values)


def _message(number: int, message: Message) -> dict[str, Any]:
    plain = _plain(message)
    if not isinstance(plain, dict):
        raise TypeError(
            f"messages[{number}] must be a dictionary such as {{'role': ...}}, not {type(message).__name__}"
        )
    # Interfaces send None for what is not there, which templates would write out.
    kept = {key: value for key, value in plain.items() if value is not None or key == "special"}
    reasoning = next((kept[key] for key in REASONING if key in kept), None)
    return kept if reasoning is None else {"thinking": reasoning, **kept, "reasoning_content": reasoning}


def _tool(number: int, tool: Any) -> dict[str, Any]:
    if inspect.isfunction(tool) or inspect.ismethod(tool):
        try:
            from transformers.utils.chat_template_utils import get_json_schema
        except ModuleNotFoundError:
            raise MissingPackage(
                f"tools[{number}] is a function, of which transformers makes a JSON schema: pip install transformers,"
                " or give the schema"
            ) from None
        tool = get_json_schema(tool)
    plain = _plain(tool)
    if not isinstance(plain, dict):
        raise TypeError(f"tools[{number}] must be a JSON schema or a function, not {type(tool).__name__}")
    return plain


def _that_may_say(
    messages: Sequence[dict[str, Any]], tools: Sequence[Any] | None, documents: Sequence[Any] | None
) -> Iterator[tuple[str, dict[str, Any]]]:
    """All dictionaries with a key ``special`` of ours. Deeper ones are data, such as the arguments of a call."""
    for number, message in enumerate(messages):
        yield f"messages[{number}]", message
        for field in ("content", "tool_calls"):
            parts = message.get(field)
            if isinstance(parts, (list, tuple)):
                for k, part in enumerate(parts):
                    if isinstance(part, dict):
                        yield f"messages[{number}][{field!r}][{k}]", part
    for name, values in (("tools", tools), ("documents", documents)):
        for number, value in enumerate(values or ()):
            if not isinstance(value, dict):
                raise TypeError(f"{name}[{number}] must be a dictionary, not {type(value).__name__}")
            yield f"{name}[{number}]", value


def _takes_out(where: str, dictionary: dict[str, Any], *, everything: bool) -> bool:
    """Whether a dictionary says that it is untrusted. The template is not told."""
    if "special" not in dictionary:
        return False
    says = dictionary.pop("special")
    try:
        untrusted = is_text(says)
    except (TypeError, ValueError):
        raise ValueError(f"{where} has 'special': it must be 'token' or 'text', not {says!r}") from None
    if everything and not untrusted:
        # Or whoever writes messages could grant himself what the caller took away.
        raise ValueError(
            f"{where} has 'special': 'token', where the call says special='text': a message cannot win trust back;"
            " leave the call at 'token' and give 'text' to the messages that are untrusted"
        )
    return untrusted


def _plain(value: Any) -> Any:
    """A copy made of the types of JSON: a template may call what it finds, and other objects have more to call."""
    if value is None or type(value) in _SCALARS:
        return value
    if isinstance(value, Mapping):
        return {_plain(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_plain(item) for item in value]
    if isinstance(value, tuple):
        return tuple(_plain(item) for item in value)
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, int):
        return int.__int__(value)
    if isinstance(value, float):
        return float.__float__(value)
    if isinstance(value, np.generic):
        return _plain(value.item())
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: _plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if callable(getattr(value, "model_dump", None)):
        return _plain(value.model_dump())
    return f"<{type(value).__name__}>"


_SCALARS = frozenset({str, int, float, bool})
