"""Marks stay with the characters they belong to, whatever a template does; what loses them is untrusted.

Here trust can be seen: some characters are only ever written by somebody who is trusted, and others never. So it is
known of each character of a result what its mark must be.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.chat.templates import CALLS, CONVERSATIONS, SPECIAL, all_templates, said
from toktier.chat import ChatTemplate
from toktier.chat.provenance import MarkedText, is_trusted, joined, spans_of
from toktier.errors import TemplateFailure
from toktier.untrusted import Spans

TRUSTED, UNTRUSTED = "aB< \n%s", "xY>\t\v"


def marked(text: str) -> MarkedText:
    """A text whose characters show whether they are trusted."""
    return MarkedText(text, where(text, UNTRUSTED + UNTRUSTED.swapcase()))


def where(text: str, characters: str) -> Spans:
    return tuple(found.span() for found in re.finditer(f"[{re.escape(characters)}]+", text))


texts = st.text(TRUSTED + UNTRUSTED, max_size=12)
short = st.text(TRUSTED + UNTRUSTED, max_size=2)

METHODS: dict[str, st.SearchStrategy[tuple[Any, ...]]] = {
    "strip": st.tuples(st.none() | short),
    "lstrip": st.tuples(st.none() | short),
    "rstrip": st.tuples(st.none() | short),
    "removeprefix": st.tuples(short),
    "removesuffix": st.tuples(short),
    "split": st.tuples(st.none() | short, st.integers(-1, 3)),
    "rsplit": st.tuples(st.none() | short, st.integers(-1, 3)),
    "splitlines": st.tuples(st.booleans()),
    "partition": st.tuples(short),
    "rpartition": st.tuples(short),
    "replace": st.tuples(st.text(TRUSTED + UNTRUSTED, min_size=1, max_size=2), short, st.integers(-1, 3)),
    "join": st.tuples(st.lists(short, max_size=3)),
    "upper": st.just(()),
    "lower": st.just(()),
    "title": st.just(()),
    "capitalize": st.just(()),
    "swapcase": st.just(()),
    "__add__": st.tuples(short),
    "__mul__": st.tuples(st.integers(-1, 3)),
    "__rmul__": st.tuples(st.integers(-1, 3)),
    "__getitem__": st.tuples(st.builds(slice, *[st.none() | st.integers(-14, 14)] * 2)),
}


def marked_too(value: Any) -> Any:
    if isinstance(value, list):
        return [marked_too(item) for item in value]
    return marked(value) if isinstance(value, str) else value


@given(st.sampled_from(sorted(METHODS)), texts, st.data())
@settings(max_examples=500)
def test_an_operation_gives_the_text_of_str_and_keeps_every_mark(name: str, text: str, data: st.DataObject) -> None:
    arguments = data.draw(METHODS[name])
    operation = operator.methodcaller(name, *arguments)
    try:
        plain = operation(text)
    except ValueError:
        with pytest.raises(ValueError, match="empty separator"):
            operation(marked(text))
        return
    tracked = operator.methodcaller(name, *map(marked_too, arguments))(marked(text))
    assert tracked == plain
    for piece in [tracked] if isinstance(tracked, str) else tracked:
        assert isinstance(piece, MarkedText)
        assert spans_of(piece) == where(piece, UNTRUSTED + UNTRUSTED.swapcase())


@given(texts, st.integers(-12, 11), st.sampled_from([-3, -2, -1, 2, 3]))
def test_what_cannot_be_followed_is_untrusted_as_a_whole(text: str, at: int, step: int) -> None:
    tracked = marked(text)
    if -len(text) <= at < len(text):
        assert spans_of(tracked[at]) == where(text[at], UNTRUSTED)
    for result, plain in (
        (tracked[::step], text[::step]),
        (tracked.replace("", "a"), text.replace("", "a")),
        (tracked.center(9), text.center(9)),
        (tracked.expandtabs(), text.expandtabs()),
        ("".join(tracked), text),
        (f"{tracked}", text),
    ):
        assert result == plain
        assert spans_of(result) in {((0, len(plain)),), spans_of(tracked) if plain == text else None, ()}
        assert spans_of(result) or not set(plain) & set(UNTRUSTED)


@pytest.mark.parametrize(
    ("operation", "spans"),
    [
        (lambda x: x.rsplit(), [(), ((0, 1),), ()]),
        (lambda x: x.rsplit(None, 1), [((2, 3),), ()]),
        (lambda x: x.split(), [(), ((0, 1),), ()]),
        (lambda x: x.split(" ", 1), [(), ((0, 1),)]),
        (lambda x: x.rsplit(" ", 1), [((2, 3),), ()]),
        (lambda x: x.partition(" "), [(), (), ((0, 1),)]),
        (lambda x: x.rpartition(" "), [((2, 3),), (), ()]),
        (lambda x: x.replace(" ", "\n").splitlines(), [(), ((0, 1),), ()]),
        (lambda x: [x.replace("a", MarkedText("a", ()), 1)], [((2, 3),)]),
        (lambda x: [x.replace("a", "a")], [((0, 1), (2, 3), (4, 5))]),
        (lambda x: [MarkedText("a", ()).replace("a", x)], [((2, 3),)]),
        (lambda x: [MarkedText("a", ()).replace("a", "b")], [((0, 1),)]),
        (lambda x: [x + x, x * 2], [((2, 3), (7, 8))] * 2),
        (lambda x: [x[:3] + x[2:], "a" + x, x + "a"], [((2, 4),), ((0, 1), (3, 4)), ((2, 3), (5, 6))]),
        (lambda x: [MarkedText("a") + MarkedText("aaaa", ((0, 1), (2, 3)))], [((0, 2), (3, 4))]),
    ],
)
def test_equal_characters_with_other_marks_are_told_apart(operation: Any, spans: list[Spans]) -> None:
    results = operation(MarkedText("a a a", ((2, 3),)))
    assert [spans_of(piece) for piece in results] == spans


@given(st.lists(texts, max_size=4), texts)
def test_a_plain_string_is_untrusted(pieces: list[str], plain: str) -> None:
    whole = joined([*map(marked, pieces), plain])
    assert whole == "".join(pieces) + plain
    assert spans_of(plain + marked("a")) == (((0, len(plain)),) if plain else ())
    start = len(whole) - len(plain)
    assert all(any(a <= at < b for a, b in spans_of(whole)) for at in range(start, len(whole)))
    assert all(b <= start or a >= start or b == len(whole) for a, b in spans_of(whole))


def test_a_format_keeps_what_it_writes_itself() -> None:
    trusted = MarkedText("<%s|%(x)s>".replace("%(x)s", "%d"), ())
    assert spans_of(trusted % (marked("xx"), 12)) == ((1, 3), (4, 6))
    assert spans_of(MarkedText("%%%(a)s%%", ()) % {"a": marked("axa")}) == ((2, 3),)
    assert spans_of(MarkedText("<%5s>", ()) % marked("a")) == ((1, 6),)
    assert spans_of(MarkedText("<%s>", ()) % "a") == ((1, 2),)
    assert spans_of(MarkedText("%*d|", ()) % (3, 5)) == ((0, 4),)
    assert spans_of(marked("x%s") % marked("a")) == ((0, 2),)
    with pytest.raises(TypeError):
        MarkedText("%s%s", ()) % marked("a")


def test_case_is_followed_only_where_characters_stay_in_their_places() -> None:
    assert spans_of(MarkedText("xß<", ((0, 1),)).upper()) == ((0, 4),)
    assert spans_of(MarkedText("aß", ()).upper()) == ()


def test_other_types_are_refused_as_by_any_string() -> None:
    for wrong in (lambda: MarkedText("a") + 1, lambda: MarkedText("a") * "a", lambda: MarkedText("a").join([1])):  # type: ignore[operator,list-item]
        with pytest.raises(TypeError):
            wrong()


def test_trust_is_of_all_that_is_in_a_value() -> None:
    a = MarkedText("a", ())
    assert is_trusted({a: [a, None, True, (a, a)]})
    for value in ("a", {a: "a"}, {"a": a}, [a, 3], 1.5, object()):
        assert not is_trusted(value)


# In templates: the user writes in Cyrillic, everybody else does not.

CYRILLIC = re.compile(r"[\u0400-\u04ff]")


def spoken(value: Any) -> Any:
    """A conversation in which every letter of a value is Cyrillic, markup and field names apart."""
    if isinstance(value, str):
        latin = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
        cyrillic = {ord(a): chr(0x0430 + k) if a.islower() else chr(0x0410 + k - 26) for k, a in enumerate(latin)}
        return "".join(
            part if k % 2 else part.translate(cyrillic) for k, part in enumerate(re.split("(<[^>]*>)", value))
        )
    if isinstance(value, dict):
        kept = {"role", "type"}
        return {key: item if key in kept else spoken(item) for key, item in value.items()}
    return [spoken(item) for item in value] if isinstance(value, list) else value


@pytest.mark.parametrize("name", sorted(all_templates()))
def test_untrusted_letters_are_untrusted_and_all_others_of_a_template_are_not(name: str) -> None:
    template = ChatTemplate(all_templates()[name], SPECIAL)
    done = 0
    for messages in CONVERSATIONS.values():
        for k, call in enumerate(CALLS):
            chat = [{**spoken(m), "special": "text"} if (k + n) % 2 else m for n, m in enumerate(messages)]
            try:
                rendered = template.render(chat, **call)
            except TemplateFailure:
                continue
            done += 1
            untrusted = [at for a, b in rendered.untrusted for at in range(a, b)]
            assert {m.start() for m in CYRILLIC.finditer(rendered.text)} <= set(untrusted)
            if name != "everything":  # which does what cannot be followed
                lost = "".join(rendered.text[at] for at in untrusted)
                assert "<|" not in re.sub(r"\{.*?\}", "", lost)
    assert done > 3


def untrusted_of(source: str, **message: Any) -> list[str]:
    rendered = ChatTemplate(source, SPECIAL).render([said("user", "x", special="text"), said("user", "a", **message)])
    return [rendered.text[a:b] for a, b in rendered.untrusted]


USER, OTHER = "messages[0].content", "messages[1].content"


@pytest.mark.parametrize(
    ("source", "untrusted"),
    [
        (f"<{{{{ {USER} }}}}>{{{{ {OTHER} }}}}", ["x"]),
        (f"{{{{ '<' ~ {USER} ~ '>' ~ {OTHER} ~ 1 }}}}", ["x", "1"]),
        (f"{{{{ '<%s>' | format({USER}) }}}}{{{{ '<{{:{{}}}}>'.format({USER}, 3) }}}}", ["x", "<x  >"]),
        (f"{{{{ '<{{}}|{{}}{{{{>'.format({USER}, {OTHER}) }}}}", ["x"]),
        (f"{{{{ '<{{0}}|{{1!r:>4}}|{{x.content}}>'.format({USER}, {OTHER}, x=messages[0]) }}}}", ["x", " 'a'", "x"]),
        (f"{{{{ '<{{!r}}>'.format({USER}) }}}}", ["'x'"]),
        (f"{{{{ ['<', {USER}, '>'] | join('|') }}}}{{{{ [{USER}, '>'] | join }}}}", ["x", "x"]),
        (f"{{{{ {USER} | replace('x', '<|im_end|>') }}}}", []),
        (f"{{{{ ({USER} ~ '<b>') | replace('<b>', {USER}) }}}}", ["xx"]),
        (f"{{% set t %}}<{{{{ {USER} }}}}>{{% endset %}}{{{{ t | trim | upper }}}}", ["X"]),
        (f"{{% filter indent %}}<\n{{{{ {OTHER} }}}}>{{% endfilter %}}", []),
        (f"{{% filter indent %}}<\n{{{{ {USER} }}}}>{{% endfilter %}}", ["x"]),
        ("{% macro m() %}<{{ caller() }}>{% endmacro %}{% call m() %}{{ messages[0].content }}{% endcall %}", ["x"]),
        ("{{ messages[1] | tojson }}", []),
        ("{{ [messages[1].content, messages[0].content] | tojson }}", ['["a", "x"]']),
        ("{{ {'a': [true, none, 'b']} | tojson(indent=2) }}{{ [1] | tojson }}", ["[1]"]),
        ("{{ '<' | safe | safe }}{{ 'a' ~ ('<' | safe) }}{{ messages[0].content | safe }}", ["x"]),
        (f"{{{{ {USER}.format('a') }}}}|{{{{ ({USER} ~ '%s') % 'a' }}}}", ["x", "xa"]),
        ("{{ ('<' | safe) + '&' }}{{ '<' | e }}{{ '<' }}", ["<&amp;&lt;"]),
        ("{{ messages[1].content | indent(2, true, true) | indent('> ') }}{{ 3 | string | indent }}", ["3"]),
        ("{{ loop }}{% for m in messages %}{{ loop.cycle('<', '>') ~ m.content }}{% endfor %}", ["x"]),
        ("{{ messages[0].role ~ messages[0] | map('string') | join }}", ["rolecontent"]),
        ("{{ bos_token }}{{ messages[1] | items | map('join', '=') | join('&') }}", []),
        ("{{ namespace(a='<' ~ messages[0].content).a }}{{ 'a-b'.split('-') | last }}{{ '<' * 3 }}", ["x"]),
    ],
)  # fmt: skip
def test_constants_are_trusted_and_what_a_user_wrote_is_not(source: str, untrusted: list[str]) -> None:
    assert untrusted_of(source) == untrusted


def test_a_role_that_templates_know_is_trusted_and_any_other_is_text() -> None:
    source = "{{ '<|' ~ messages[0].role ~ '|>' }}{{ messages[0].name }}"
    for role, spans in (("user", ()), ("im_end", ((2, 8),))):
        rendered = ChatTemplate(source).render([said(role, "x")], special="text")
        assert rendered.untrusted == spans
    assert ChatTemplate(source).render([said("user", "x", name="system")], special="text").untrusted == ((8, 14),)


def test_who_is_untrusted_is_said_anywhere_and_templates_do_not_see_it() -> None:
    source = "{{ messages | tojson }}{{ tools | tojson }}{{ documents | tojson }}{{ name }}"
    template = ChatTemplate(source)
    call: dict[str, Any] = {
        "messages": [
            said("user", [{"type": "text", "text": "x", "special": "text"}]),
            said("assistant", "", tool_calls=[{"function": {"arguments": {"special": "text"}}, "special": "text"}]),
        ],
        "tools": [{"type": "function", "special": "token"}],
        "documents": [{"text": "y", "special": "text"}],
        "name": "z",
    }  # fmt: skip
    text = template.render(**call).text
    assert text.count("special") == 1  # that of the arguments, which are data
    lost = [text[a:b] for a, b in template.render(**call).untrusted]
    assert [part[0] for part in lost] == ["[", "["]
    assert '"y"' in lost[1]
    assert '[{"type": "function"}]' not in lost[1]
    del call["tools"][0]["special"]
    assert template.render(**call, special="text").untrusted == ((0, len(text)),)


def test_a_message_cannot_win_back_the_trust_that_the_call_took_away() -> None:
    template = ChatTemplate("{{ messages }}")
    for message in (said("user", "x", special="token"), said("user", [{"type": "text", "special": "token"}])):
        template.render([message])
        with pytest.raises(
            ValueError, match=r"messages\[0\].* has 'special': 'token', where the call says special='text'"
        ):
            template.render([message], special="text")


def test_own_variables_are_trusted_and_those_of_a_call_like_everything_in_it() -> None:
    template = ChatTemplate("{{ bos_token }}{{ eos_token }}{{ day }}", SPECIAL)
    chat = [said("user", "x")]
    assert template.render(chat, day="May", special="text").untrusted == ((23, 26),)
    assert template.render(chat, eos_token="</s>", special="text").untrusted == ((13, 17),)
    assert template.render([said("user", "x", special="text")], day="May").untrusted == ()


def methods_that_give_strings() -> list[Callable[[MarkedText], Any]]:
    """Every method of ``str`` that can be called without or with one argument."""
    calls: list[Callable[[MarkedText], Any]] = []
    for name in dir(str):
        if not name.startswith("__") or name in {"__str__", "__repr__", "__format__", "__add__", "__mod__", "__mul__"}:
            calls += [operator.methodcaller(name), *(operator.methodcaller(name, x) for x in ("", "a", 30, {97: "b"}))]
    return calls


def test_no_method_of_str_ever_trusts_an_untrusted_text() -> None:
    for call in methods_that_give_strings():
        try:
            results = call(MarkedText("ab a\n"))
        except (TypeError, ValueError, LookupError):
            continue
        for result in [results] if isinstance(results, str) else results if isinstance(results, (list, tuple)) else []:
            if isinstance(result, str) and result.strip():
                assert spans_of(result) == ((0, len(result)),)
