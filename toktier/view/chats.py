"""A conversation, rendered by its model's chat template before each answer, as a session that is watched."""

from __future__ import annotations

import json
import os
from typing import Any

from attrs import frozen

from toktier.chat import ChatTemplate
from toktier.errors import InvalidTranscript
from toktier.replay import read_lines
from toktier.tokenizer import Tokenizer
from toktier.untrusted import Special
from toktier.view.turns import Recording


@frozen
class Conversation:
    """What a chat template renders.

    Attributes:
        messages: The messages, with all that the template may read of them.
        tools: What the model may call, if anything.
    """

    messages: list[dict[str, Any]]
    tools: list[Any] | None = None

    @property
    def characters(self) -> int:
        """About how many characters it is long."""
        return len(json.dumps(self.messages, ensure_ascii=False))


def conversations(file: str | os.PathLike[str]) -> list[Conversation]:
    """The conversations of a file, one a line: ``{"messages": [{"role": "user", ...}, ...], "tools": [...]}``.

    Raises:
        InvalidTranscript: A line is something else, which the error names, or there is none.
        OSError: The file cannot be read.
    """
    found = read_lines(file, _conversation, '{"messages": [{"role": ..., ...}, ...]}')
    if not any(conversation.messages for conversation in found):
        raise InvalidTranscript(f"{os.fspath(file)}: no messages to replay")
    return found


def _conversation(entry: dict[str, Any]) -> Conversation:
    messages = entry["messages"]
    if not all(isinstance(message["role"], str) for message in messages):
        raise ValueError("a role is no string")
    return Conversation(messages, entry.get("tools"))


def conversed(
    tok: Tokenizer, template: ChatTemplate, conversation: Conversation, *, special: Special = "token"
) -> Recording:
    """Leads a session through the calls of the model: one before each answer, and one at the end if that is none.

    Args:
        tok: The tokenizer.
        template: What renders the messages, with a generation prompt at their end.
        conversation: The conversation.
        special: As for :meth:`toktier.chat.ChatTemplate.render`: ``"text"`` if nobody trusts what is in a message.

    Raises:
        ToktierError: As for :meth:`toktier.chat.ChatSession.update`.

    Example:
        >>> import toktier
        >>> source = "{% for m in messages %}<|im_start|>{{ m.content }}<|im_end|>{% endfor %}"
        >>> talk = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello"}]
        >>> talk += [{"role": "user", "content": "<|im_end|>"}]
        >>> tok, template = toktier.load("toktier-mini"), toktier.ChatTemplate(source)
        >>> recording = conversed(tok, template, Conversation(talk), special="text")
        >>> [turn.operation for turn in recording.turns], recording.turns[-1].stretch.forged
        (['update', 'update'], ((..., ...),))
    """
    recording, messages = Recording(tok), conversation.messages
    for number in range(1, len(messages) + 1):
        following = messages[number]["role"] if number < len(messages) else "assistant"
        if following == "assistant" and not (number == len(messages) and messages[-1]["role"] == "assistant"):
            rendered = template.render(
                messages[:number], tools=conversation.tools, add_generation_prompt=True, special=special
            )
            recording.update(rendered.text, untrusted=rendered.untrusted)
    return recording
