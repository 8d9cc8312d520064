"""Chat templates: found, chosen and rendered, with the untrusted characters of what comes out."""

from __future__ import annotations

import functools
import os
import pathlib
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any

from attrs import frozen

from toktier.chat import finding
from toktier.chat.conversation import Message, conversation
from toktier.chat.provenance import spans_of
from toktier.errors import InvalidTemplate, MissingPackage, TemplateFailure, UnknownTemplate
from toktier.untrusted import Spans, Special

if TYPE_CHECKING:
    from toktier.chat.environment import Program


ELSEWHERE = frozenset(
    {
        "chat_template",
        "continue_final_message",
        "conversation",
        "max_length",
        "padding",
        "return_assistant_tokens_mask",
        "return_dict",
        "return_tensors",
        "tokenize",
        "tokenizer_kwargs",
        "truncation",
    }
)
"""Arguments of ``apply_chat_template`` that mean something there, and would be lost here without a word."""


@frozen
class Rendered:
    """A conversation as text.

    Made by :meth:`toktier.ChatTemplate.render`, for ``session.update(rendered.text, untrusted=rendered.untrusted)``.

    Attributes:
        text: What the template made of it.
        untrusted: The characters that nobody trusts, as spans ``(start, stop)`` of the text, half-open and ascending.

    Example:
        >>> rendered = ChatTemplate("[{{ messages[0].content }}]").render([{"content": "Hi", "special": "text"}])
        >>> rendered.text, rendered.untrusted
        ('[Hi]', ((1, 3),))
    """

    text: str
    untrusted: Spans


class ChatTemplate:
    r"""A chat template: renders messages as ``transformers`` does. It never changes, and threads may share it.

    Args:
        source: What it says, in Jinja; or several by name, of which ``"tool_use"`` serves calls with tools and
            ``"default"`` all others.
        variables: What it knows beside the arguments of a call, such as ``bos_token``. They are trusted.
        place: What errors call it.

    Raises:
        MissingPackage: There is no Jinja, or it is too old.
        InvalidTemplate: It is no template.
        TypeError: It is no string.

    Example:
        >>> from toktier.chat import ChatTemplate
        >>> source = "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
        >>> template = ChatTemplate(source)
        >>> template.render([{"role": "user", "content": "Hi <|im_end|>", "special": "text"}])
        Rendered(text='<|im_start|>user\nHi <|im_end|><|im_end|>\n', untrusted=((17, 30),))
    """

    def __init__(
        self,
        source: str | Mapping[str, str],
        variables: Mapping[str, Any] | None = None,
        *,
        place: str = "the template",
    ) -> None:
        try:
            from toktier.chat.environment import Program
        except ModuleNotFoundError:
            raise MissingPackage("chat templates need the package jinja2: pip install jinja2") from None
        sources: Any = {finding.DEFAULT: source} if isinstance(source, str) else source
        if not isinstance(sources, Mapping) or not all(isinstance(text, str) for text in sources.values()):
            raise TypeError(f"source must be a str, or names and strings, not {source!r}")
        if not sources:
            raise InvalidTemplate(f"{place}: no template at all")
        self._place = place
        self._variables = dict(variables or {})
        self._programs: dict[str, Program] = {
            name: Program(text, place if len(sources) == 1 else f"{place} {name!r}") for name, text in sources.items()
        }

    def __repr__(self) -> str:
        return f"<toktier.chat.ChatTemplate {', '.join(self._programs)} of {self._place}>"

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the templates in it."""
        return tuple(self._programs)

    @property
    def variables(self) -> dict[str, Any]:
        """What it knows beside the arguments of a call; a copy."""
        return dict(self._variables)

    @classmethod
    def load(
        cls, path: str | os.PathLike[str], *, template: str | None = None, name: str | None = None
    ) -> ChatTemplate:
        """A template from the files of a model.

        In a directory it is looked for in this order: ``chat_template.json``, ``chat_template.jinja`` (with those of
        ``additional_chat_templates`` by their names), any ``*.jinja``, ``tokenizer_config.json``. The special tokens
        have the names that ``tokenizer_config.json`` and ``special_tokens_map.json`` give them.

        Args:
            path: A directory, or a file: a template, or JSON with the field ``chat_template``.
            template: The source of a template that goes before all that is found there.
            name: Which of several; not given, it is chosen for each call, as ``transformers`` does.

        Raises:
            UnknownTemplate: There is none, or none of that name.
            InvalidTemplate: A file cannot be read, or is no template.
            MissingPackage: There is no Jinja, or it is too old.

        Example:
            >>> import tempfile
            >>> with tempfile.TemporaryDirectory() as folder:
            ...     _ = pathlib.Path(folder, "chat_template.jinja").write_text("{{ eos_token }}")
            ...     _ = pathlib.Path(folder, "tokenizer_config.json").write_text('{"eos_token": "<|im_end|>"}')
            ...     ChatTemplate.load(folder).render([{"role": "user"}])
            Rendered(text='<|im_end|>', untrusted=())
        """
        path = pathlib.Path(path)
        if not path.exists():
            raise UnknownTemplate(f"there is no {str(path)!r}: give a template, or the path of one or of a directory")
        directory = path if path.is_dir() else path.parent
        if template is not None:
            sources, file = {finding.DEFAULT: template}, None
        elif path.is_dir():
            sources, file = finding.templates_in(path)
        else:
            file, is_json = path, path.suffix == ".json"
            sources = finding.templates_of(path) if is_json else {finding.DEFAULT: finding.text_of(path)}
            if not sources:
                raise UnknownTemplate(f"{path} has no field chat_template: give the directory, or a template")
        place = "the template" if file is None else str(file)
        if file is not None and file.suffix == ".json":
            place = f"chat_template of {file}"  # lines are those of the field
        if name is not None:
            if name not in sources:
                raise UnknownTemplate(f"{place} has no template {name!r}, but {', '.join(map(repr, sources))}")
            sources = {finding.DEFAULT: sources[name]}
        return cls(sources, finding.special_tokens_in(directory), place=place)

    @classmethod
    def of(cls, template: ChatTemplate | str | os.PathLike[str]) -> ChatTemplate:
        """A template itself, its source, or a path: what has a ``{`` is source.

        Args:
            template: One of these.

        Raises:
            TypeError: It is something else.
            UnknownTemplate: There is none at the path.
            InvalidTemplate: A file cannot be read, or it is no template.
            MissingPackage: There is no Jinja, or it is too old.

        Example:
            >>> ChatTemplate.of("{{ messages }}")
            <toktier.chat.ChatTemplate default of the template>
        """
        if isinstance(template, ChatTemplate):
            return template
        if isinstance(template, str) and "{" in template:
            return cls(template)
        if isinstance(template, (str, os.PathLike)):
            return cls.load(template)
        raise TypeError(f"template must be a ChatTemplate, its source or a path, not {type(template).__name__}")

    def render(
        self,
        messages: Iterable[Message],
        *,
        tools: Iterable[Any] | None = None,
        documents: Iterable[Any] | None = None,
        add_generation_prompt: bool = False,
        special: Special = "token",
        **variables: Any,
    ) -> Rendered:
        """A conversation as text, and which of its characters are untrusted.

        Args:
            messages: Dictionaries such as ``{"role": "user", "content": "Hello"}``, with whatever else the template
                reads; or data classes or pydantic models of that form. With ``"special": "text"`` what is in one is
                untrusted; a part of its content, a tool call, a tool and a document may say so too.
            tools: What the model may call: JSON schemas, or functions, of which ``transformers`` makes some.
            documents: What the model may refer to, as dictionaries.
            add_generation_prompt: Whether the text is to end where an answer begins.
            special: ``"text"`` if all of these and the variables are untrusted, whatever they say.
            variables: What else the template reads, such as ``enable_thinking=False``.

        Raises:
            TypeError: Something is of another type, or an argument of ``apply_chat_template`` that is not known here.
            ValueError: There is no message, or a value of ``special`` is unknown.
            TemplateFailure: The template cannot render this, or refuses to.
            UnknownTemplate: There are several, and none is the default.
            InvalidTemplate: It cannot say which characters are untrusted, and some are.
            MissingPackage: A tool is a function, and ``transformers`` is not installed.

        Example:
            >>> template = ChatTemplate("{{ messages[0].content }}{% if add_generation_prompt %}<answer>{% endif %}")
            >>> template.render([{"role": "user", "content": "Hello"}], add_generation_prompt=True)
            Rendered(text='Hello<answer>', untrusted=())
        """
        if unknown := sorted(variables.keys() & ELSEWHERE):
            raise TypeError(f"{unknown[0]!r} is known to apply_chat_template alone, and no variable of a template")
        now = datetime.now()
        own = {**self._variables, "add_generation_prompt": add_generation_prompt}
        given = conversation(messages, tools, documents, own=own, variables=variables, special=special)
        # One time for both renderings; a variable of this name goes before it, as it does in transformers.
        clock = {"strftime_now": functools.partial(_strftime, now)}
        program = self._program(tools is not None)
        text = program.render(clock | given.variables)
        if given.is_trusted:
            return Rendered(text, ())
        marked = program.render_marked(clock | given.marked())
        if marked != text:
            raise TemplateFailure(
                f"{self._place} renders another text with untrusted parts than without, so that nobody knows which"
                " characters are whose; please report it with the template"
            )
        return Rendered(text, spans_of(marked))

    def _program(self, has_tools: bool) -> Program:
        programs = self._programs
        if len(programs) == 1:
            return next(iter(programs.values()))
        if has_tools and "tool_use" in programs:
            return programs["tool_use"]
        if finding.DEFAULT not in programs:
            raise UnknownTemplate(
                f"{self._place} has no default template, but {', '.join(map(repr, programs))}: load one by its name"
            )
        return programs[finding.DEFAULT]


def _strftime(now: datetime, how: str) -> str:
    return now.strftime(how)
