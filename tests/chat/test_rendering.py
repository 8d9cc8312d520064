"""What a template makes of a conversation is what ``transformers`` makes of it, tracked or not."""

from __future__ import annotations

import dataclasses
import enum
import functools
import json
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import jinja2
import numpy as np
import pytest
import tokenizers
from pydantic import BaseModel

from tests.chat.templates import CALLS, CONVERSATIONS, SPECIAL, STYLES, all_templates, cases, library, said
from toktier.chat import ChatTemplate, Rendered
from toktier.errors import InvalidTemplate, MissingPackage, TemplateFailure


@functools.cache
def templating() -> Any:
    """A tokenizer of transformers, for its chat templates alone."""
    bare = tokenizers.Tokenizer(tokenizers.models.BPE())
    return library().PreTrainedTokenizerFast(tokenizer_object=bare, **SPECIAL)


def expected(source: str, messages: list[dict[str, Any]], **call: Any) -> str | None:
    """What transformers renders; None if the template fails."""
    try:
        rendered: str = templating().apply_chat_template(messages, chat_template=source, tokenize=False, **call)
    except (jinja2.TemplateError, TypeError, OverflowError):
        return None
    return rendered


@functools.cache
def template(name: str) -> ChatTemplate:
    return ChatTemplate(all_templates()[name], SPECIAL)


def rendered(name: str, messages: list[dict[str, Any]], **call: Any) -> str | None:
    try:
        return template(name).render(messages, **call).text
    except TemplateFailure:
        return None


def test_texts_are_those_of_transformers_whether_tracked_or_not() -> None:
    done = 0
    for name, which, call in cases():
        messages = CONVERSATIONS[which]
        text = expected(all_templates()[name], messages, **call)
        assert rendered(name, messages, **call) == text, (name, which)
        assert rendered(name, messages, special="text", **call) == text, (name, which)
        marked = [{**message, "special": "text"} if k % 2 else message for k, message in enumerate(messages)]
        assert rendered(name, marked, **call) == text, (name, which)
        done += text is not None
    assert done > len(cases()) // 2


def test_messages_are_left_as_they_are_and_templates_can_change_nothing() -> None:
    for name in all_templates():
        for which, messages in CONVERSATIONS.items():
            before = json.dumps(messages)
            rendered(name, messages, special="text", **CALLS[2])
            assert json.dumps(messages) == before, (name, which)
    with pytest.raises(TemplateFailure, match=r"line 1: .*unsafe"):
        ChatTemplate("{{ messages.append(1) }}").render([said("user", "")])


@pytest.mark.parametrize(
    "source",
    [
        "{{ ''.__class__ }}{{ messages.__class__.__mro__ }}{{ (messages[0].content | attr('_untrusted')) is defined }}",
        "{{ messages[0].content._untrusted is defined }}{{ messages[0].content.untrusted is defined }}",
        "{{ ('{0._untrusted}').format(messages[0].content) }}",
        "{% set ns = namespace(_x=1) %}",
        "{% set ns = namespace() %}{% set ns.__class__ = 1 %}",
        "{{ dict.__base__ }}{{ dict.mro }}{{ dict(a=1, self=2) }}{{ dict.fromkeys(['k'], 1) }}",
        "{{ namespace(self=1, a='x').a }}",
        "{{ range(10 ** 9) }}",
        "{% include 'other' %}",
        "{{ 'a\\n\\nb' | indent(2, true, true) }}{{ 'a\\n\\nb' | indent }}{{ 'a\\nb' | indent('> ', first=true) }}",
        "{{ '<' + ('b' | safe) }}{{ messages[0].content + ('<' | e) }}{{ ('<b>' | e) + messages[0].content }}",
        "{{ undefined.field }}",
        "{{ messages[0].content + 1 }}{{ none + 'x' }}",
        "{{ 'a' + ('<' | safe) ~ ('<b>' | e) }}{{ ('<' | safe) + '<' }}"
        "{{ '%s' % ('<' | e) }}{{ ['<' | safe] | join('<') }}",
        "{{ '{:{}}'.format(messages[0].content, 9) }}"
        "{{ '{0.x!r:>3}'.format({'x': 1}) }}{{ '{a}'.format_map({'a': 'b'}) }}",
        "{{ '%*d|%r|%c|%(a)s' % {'a': 1} }}",
        "{{ '%r|%c|%-4s|%s' % ('a', 'b', 'c', messages) }}{{ '%(a)s%(b)d%%' % {'a': 'x', 'b': 2} }}{{ 'ab' * 0 }}",
        "{{ ['b', 'A'] | sort | join(0) }}{{ 3 | string }}{{ messages[0].content[1] }}{{ 'abc' | list | join }}",
        "{{ messages[0].content | urlencode }}{{ 'a b' | wordwrap(1) | center(9) | truncate(4) }}{{ 'x'.zfill(3) }}",
        "{{ 'a,b'.split(',', 1) }}{{ ' a  b c '.split(none, 1) }}"
        "{{ ' a  b '.rsplit() }}{{ 'a--b---c'.rsplit('--', 1) }}",
        "{{ messages | tojson(indent=1) | indent('> ', true) }}{{ messages[0] | pprint }}{{ messages[0] }}",
        "{% set x %}<{{ messages[0].content }}>{% endset %}{{ x | replace('a', 'b', 1) }}"
        "{{ x is string }}{{ x in [x] }}",
        "{% for a in [1, [2, [3]]] recursive %}{{ loop(a) if a is iterable else a ~ '.' }}{% endfor %}",
        "{% block b %}<{{ messages[0].content }}{% endblock %}{{ self.b() }}",
        "{{ messages | groupby('role') | first | first }}"
        "{{ {'a': messages[0].content} | dictsort }}{{ {'a': 1} | items | list }}",
        "{{ cycler('a', 'b').next() }}{% set j = joiner(', ') %}{{ j() }}"
        "{{ j() }}{{ 'ß' | upper }}{{ 'İx'.lower() | title }}",
    ],
)
def test_the_sandbox_of_a_tracked_template_is_that_of_transformers(source: str) -> None:
    messages = [said("user", "a <b>\nc  ")]
    text = expected(source, messages)
    for special in ("token", "text"):
        try:
            mine = ChatTemplate(source).render(messages, special=special).text
        except TemplateFailure:
            mine = None
        assert mine == text


def test_the_time_is_the_same_in_both_renderings() -> None:
    source = "{{ strftime_now('%H:%M:%S.%f') }}{{ messages[0].content }}"
    for _ in range(20):
        assert ChatTemplate(source).render([said("user", "x")], special="text").text.endswith("x")
    assert ChatTemplate("{{ strftime_now }}").render([said("user", "x")], strftime_now="never").text == "never"


class Role(str, enum.Enum):
    USER = "user"


@dataclasses.dataclass
class Dataclass:
    role: str
    content: str


class Model(BaseModel):
    role: str
    content: str
    name: str | None = None


def test_objects_become_plain_data_before_a_template_sees_them() -> None:
    source = "{% for m in messages %}{{ m | tojson }}{{ m.content.tofile }}{{ m.n + 1 if m.n }}{% endfor %}"
    messages: list[Any] = [
        {"role": Role.USER, "content": np.zeros(2), "n": np.int64(3), "f": np.float32(0.5), "t": (1, "x")},
        Dataclass("user", "data"),
        Model(role="user", content="model"),
    ]
    text = expected(source, messages)
    assert text is not None
    for special in ("token", "text"):
        assert ChatTemplate(source).render(messages, special=special).text == text


def test_functions_become_tools_as_transformers_makes_them() -> None:
    def get_weather(city: str, days: int = 1) -> str:
        """Tells the weather.

        Args:
            city: Where.
            days: How many.
        """
        return f"{city} {days}"

    messages = CONVERSATIONS["one"]
    text = expected(STYLES["reasoning"], messages, tools=[get_weather])
    assert text is not None
    assert "get_weather" in text
    assert template("reasoning").render(messages, tools=[get_weather]).text == text
    assert template("reasoning").render(messages, tools=[get_weather], special="text").text == text


def test_a_function_without_transformers_is_refused_in_words(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "transformers.utils.chat_template_utils", None)
    with pytest.raises(MissingPackage, match=r"tools\[0\] is a function.*pip install transformers"):
        template("reasoning").render(CONVERSATIONS["one"], tools=[lambda city: city])


def test_the_line_of_a_broken_template_is_named() -> None:
    with pytest.raises(InvalidTemplate, match=r"the template, line 3: .*endwhile"):
        ChatTemplate("{{ 1 }}\n\n{% endwhile %}")
    with pytest.raises(InvalidTemplate, match="line 2: No filter named 'fromjson'"):
        ChatTemplate("\n{{ x | fromjson }}")


@pytest.mark.parametrize("special", ["token", "text"])
def test_the_line_in_which_a_template_fails_is_named(special: Any) -> None:
    messages = [said("user", "a"), said("user", "b")]
    with pytest.raises(
        TemplateFailure, match=r"^the template, line \d+: Roles must alternate, and message 2 does not$"
    ):
        template("instructions").render(messages, special=special)
    broken = ChatTemplate("\n\n{{ messages[0].nothing.more }}", place="mine.jinja")
    with pytest.raises(TemplateFailure, match=r"^mine\.jinja, line 3: 'dict object' has no attribute 'nothing'$"):
        broken.render(messages, special=special)
    with pytest.raises(TemplateFailure, match="line 1: TypeError: "):
        ChatTemplate("{{ 1 + 'a' }}{{ messages }}").render(messages, special=special)


@pytest.mark.parametrize(
    ("call", "error", "why"),
    [
        ({"messages": "text"}, TypeError, "messages must be a list of dictionaries, not str"),
        ({"messages": 3}, TypeError, "not int"),
        ({"messages": ["text"]}, TypeError, r"messages\[0\] must be a dictionary.*not str"),
        ({"messages": []}, ValueError, "messages is empty"),
        ({"tools": {}}, TypeError, "tools must be a list"),
        ({"tools": ["x"]}, TypeError, r"tools\[0\] must be a JSON schema or a function, not str"),
        ({"documents": ["x"]}, TypeError, r"documents\[0\] must be a dictionary, not str"),
        ({"special": "no"}, ValueError, "special must be 'token' or 'text', not 'no'"),
        ({"messages": [said("user", "", special=[])]}, ValueError, r"messages\[0\] has 'special'.*not \[\]"),
    ],
)
def test_what_is_no_conversation_is_refused(call: dict[str, Any], error: type[Exception], why: str) -> None:
    with pytest.raises(error, match=why):
        template("chatml").render(**{"messages": CONVERSATIONS["one"], **call})


def test_what_is_no_template_is_refused() -> None:
    with pytest.raises(TypeError, match="template must be a ChatTemplate, its source or a path, not int"):
        ChatTemplate.of(3)  # type: ignore[arg-type]
    for source in (3, {"a": 1}):
        with pytest.raises(TypeError, match="source must be a str"):
            ChatTemplate(source)  # type: ignore[arg-type]
    mine = template("chatml")
    assert ChatTemplate.of(mine) is mine
    assert ChatTemplate.of(STYLES["chatml"]).render(CONVERSATIONS["one"]) == mine.render(CONVERSATIONS["one"])
    assert repr(mine) == "<toktier.chat.ChatTemplate default of the template>"


def test_escaping_is_refused_only_where_something_is_untrusted() -> None:
    source = "x\n{% autoescape true %}<{{ messages[0].content }}{% endautoescape %}"
    text = ChatTemplate(source).render([said("user", "<")]).text
    assert text == expected(source, [said("user", "<")]) == "x\n<&lt;"
    with pytest.raises(InvalidTemplate, match="line 2: it switches escaping on"):
        ChatTemplate(source).render([said("user", "<")], special="text")


def test_a_text_that_tracking_would_change_is_never_returned(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("toktier.chat.provenance.MarkedText.strip", lambda *_: "wrong")
    with pytest.raises(TemplateFailure, match="another text with untrusted parts than without"):
        ChatTemplate("{{ messages[0].content.strip() }}").render([said("user", "x")], special="text")


def test_an_old_jinja_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jinja2, "__version__", "3.1.5")
    with pytest.raises(MissingPackage, match=r"need jinja2 3\.1\.6, not 3\.1\.5"):
        ChatTemplate("x")


def test_jinja_is_imported_for_templates_alone() -> None:
    code = """
import sys
sys.modules["jinja2"] = None
import toktier, toktier.chat
try:
    toktier.chat.ChatTemplate("x")
except toktier.errors.MissingPackage as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "chat templates need the package jinja2: pip install jinja2\n"


def test_threads_may_share_a_template() -> None:
    fresh = ChatTemplate(STYLES["reasoning"], SPECIAL)
    calls: list[Callable[[], Rendered]] = [
        functools.partial(fresh.render, messages, special=special)
        for messages in (CONVERSATIONS["tools"], CONVERSATIONS["reasoning"])
        for special in ("token", "text")
    ]
    alone = [call() for call in calls]
    with ThreadPoolExecutor(4) as threads:
        assert list(threads.map(lambda k: calls[k % 4](), range(40))) == alone * 10


@pytest.mark.parametrize("argument", ["continue_final_message", "tokenize", "return_tensors"])
def test_arguments_that_only_transformers_knows_are_not_lost_without_a_word(argument: str) -> None:
    arguments: dict[str, Any] = {argument: True}
    with pytest.raises(TypeError, match=f"'{argument}' is known to apply_chat_template alone"):
        ChatTemplate("{{ messages }}").render([{"role": "user", "content": ""}], **arguments)
