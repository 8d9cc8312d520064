"""Messages in, ids out: a session whose text is what a chat template makes of a conversation."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any

from toktier.chat.conversation import Message
from toktier.chat.template import ChatTemplate
from toktier.engines.base import Engine, Ids
from toktier.patch import Patch
from toktier.session import Session
from toktier.tokenizer import Tokenizer
from toktier.untrusted import Special


class ChatSession:
    """The ids of a conversation: those of what its chat template renders, always equal to the reference's.

    Every call brings all messages, as front ends do. The template renders them, and what is encoded is what became of
    the text: new turns, and whatever the template does to old ones. A call that raises leaves all as it was.

    Args:
        tok: The tokenizer.
        template: A :class:`ChatTemplate`; or its source; or a path, of a file or of a model's directory. What has a
            ``{`` is source. To share what is compiled between sessions, give each the same :class:`ChatTemplate`.
        engine: What encodes; see :class:`toktier.Session`.

    Raises:
        TypeError: An argument is of another type.
        UnknownEngine: There is no engine of that name, or it does not serve this tokenizer.
        UnknownTemplate: There is no template there.
        InvalidTemplate: It is no template.
        MissingPackage: There is no Jinja, or it is too old.

    Example:
        >>> import toktier
        >>> from toktier.chat import ChatSession
        >>> tok = toktier.load("toktier-mini")
        >>> source = "{% for m in messages %}<|im_start|>{{ m.role }} {{ m.content }}<|im_end|>{% endfor %}"
        >>> chat = ChatSession(tok, source)
        >>> messages = [{"role": "user", "content": "How long is a day?"}]
        >>> chat.update(messages)
        Patch(start=0, stop=0, ids=<... ids>, before=0)
        >>> messages.append({"role": "assistant", "content": "24 hours."})
        >>> chat.update(messages)
        Patch(start=..., stop=..., ids=<... ids>, before=...)
        >>> chat.tolist() == tok.encode(chat.text).tolist()
        True
    """

    __slots__ = ("_session", "_template")

    def __init__(
        self, tok: Tokenizer, template: ChatTemplate | str | os.PathLike[str], *, engine: str | Engine = "auto"
    ) -> None:
        self._session = Session(tok, engine=engine)
        self._template = ChatTemplate.of(template)

    def __len__(self) -> int:
        """The number of ids."""
        return len(self._session)

    def __bool__(self) -> bool:
        """True, also of a conversation that has not begun: it is a session."""
        return True

    def __repr__(self) -> str:
        return f"<toktier.chat.ChatSession of {self._session!r}>"

    @property
    def text(self) -> str:
        """What the template rendered, a string; empty before the first :meth:`update`."""
        return self._session.text

    @property
    def ids(self) -> Ids:
        """The ids, a read-only array that never changes; uint32, shape (ids,)."""
        return self._session.ids

    @property
    def session(self) -> Session:
        """The session that holds text and ids. What is done to it lasts until the next :meth:`update`."""
        return self._session

    @property
    def template(self) -> ChatTemplate:
        """The template."""
        return self._template

    def tolist(self) -> list[int]:
        """The ids as a new list, copied from one that is kept up to date from the first call on.

        Raises:
            SessionInUse: Another thread is at work in this session.

        Example:
            >>> import toktier
            >>> chat = ChatSession(toktier.load("toktier-mini"), "{{ messages[0].content }}")
            >>> patch = chat.update([{"role": "user", "content": "Hello"}])
            >>> chat.tolist()
            [39, 523, 323]
        """
        return self._session.tolist()

    def update(
        self,
        messages: Iterable[Message],
        *,
        tools: Iterable[Any] | None = None,
        documents: Iterable[Any] | None = None,
        add_generation_prompt: bool = False,
        special: Special = "token",
        **variables: Any,
    ) -> Patch:
        """Makes the messages the conversation, whatever changed.

        Args:
            messages: All of them, from the first on; see :meth:`ChatTemplate.render` for this and what follows.
            tools: What the model may call.
            documents: What the model may refer to.
            add_generation_prompt: Whether the text is to end where an answer begins: True before the model is called.
            special: ``"text"`` if nothing in this call is trusted, so that no special token in it counts.
            variables: What else the template reads.

        Returns:
            What changed of the ids since the last call.

        Raises:
            TypeError: Something is of another type.
            ValueError: There is no message, or a value of ``special`` is unknown.
            TemplateFailure: The template cannot render this, or refuses to.
            UnknownTemplate: There are several templates, and none is the default.
            InvalidTemplate: The template cannot say which characters are untrusted, and some are.
            MissingPackage: A tool is a function, and ``transformers`` is not installed.
            InvalidText: The text has a lone surrogate.
            EngineFailure: The reference library cannot encode the text.
            Unprotectable: Something is untrusted, and this tokenizer cannot tell special tokens apart.
            SessionInUse: Another thread is at work in this session.

        Example:
            >>> import toktier
            >>> source = "{% for m in messages %}<|im_start|>{{ m.content }}<|im_end|>{% endfor %}"
            >>> chat = ChatSession(toktier.load("toktier-mini"), source)
            >>> patch = chat.update([{"role": "user", "content": "Hello", "special": "text"}])
            >>> (patch.start, patch.stop, patch.ids.tolist())
            (0, 0, [4088, 39, 523, 323, 4089])
        """
        rendered = self._template.render(
            messages,
            tools=tools,
            documents=documents,
            add_generation_prompt=add_generation_prompt,
            special=special,
            **variables,
        )
        return self._session.update(rendered.text, untrusted=rendered.untrusted)

    def fork(self) -> ChatSession:
        """An independent session with the same state; ids and strings are shared until one of the two changes them.

        ``copy.copy`` and ``copy.deepcopy`` do the same. The template is shared.

        Raises:
            SessionInUse: Another thread is at work in this session.

        Example:
            >>> import toktier
            >>> chat = ChatSession(toktier.load("toktier-mini"), "{{ messages[0].content }}")
            >>> patch = chat.update([{"role": "user", "content": "Hello"}])
            >>> other = chat.fork()
            >>> patch = other.update([{"role": "user", "content": "Hello world"}])
            >>> len(chat), len(other)
            (3, 5)
        """
        other = ChatSession.__new__(ChatSession)
        other._session, other._template = self._session.fork(), self._template
        return other

    __copy__ = fork

    def __deepcopy__(self, memo: object) -> ChatSession:
        return self.fork()
