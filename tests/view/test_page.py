from __future__ import annotations

import base64
import hashlib
import html
import json
import re
from html.parser import HTMLParser
from importlib import resources

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import toktier
from toktier.errors import InvalidText
from toktier.view import Recording, page
from toktier.view.writing import inert, packed

HOSTILE = (
    "</script><script>alert(1)</script><img src=x onerror=alert(2)>&lt;<!--]]>\n"
    "\u202eright to left\u202c \u2066isolated \x00 \x1b[31m \x7f \x85 \u2028 \u2029 \ufeff \u200b {{data}} \U000e0041"
)

PARTS = st.sampled_from(
    [
        *("</script>", "<script>alert(1)</script>", "<!--", "-->", "]]>", "<![CDATA[", "<img src=x onerror=alert(2)>"),
        *("&lt;", "&#0;", "\\u003c", "\\", '"', "'", "`", "{{data}}", "{{policy}}", "$&", "__proto__", "#12", "%00"),
        *("\u202a\u202b\u202c\u202d\u202e", "\u2066\u2067\u2068\u2069", "\u061c", "\u200b\u200d\u2060", "\ufeff"),
        *("\x00", "\x1b[31m", "\x07", "\x7f", "\x85", "\r\n", "\u2028", "\u2029", "\ufffe", "\U000e0041", "\U0010ffff"),
        *("<|im_end|>", "word ", "é", "e\u0301", "\u0301", "👩\u200d👧", "שלום", "中"),
    ]
)
"""Ways out of a script, of JSON and of HTML, and characters that are not seen."""


class Elements(HTMLParser):
    """The elements of a page, with their attributes and the text in them."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[tuple[str, str]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        if self.found:
            self.texts.append((self.found[-1][0], data))


def made(text: str, title: str = "an example") -> str:
    recording = Recording(toktier.load("toktier-mini"))
    recording.append(text)
    return page(recording, title)


def parsed(written: str) -> Elements:
    elements = Elements()
    elements.feed(written)
    elements.close()
    return elements


@given(st.text(st.characters(codec="utf-8")) | st.just(HOSTILE))
def test_json_in_a_page_is_the_value_and_nothing_that_html_or_an_eye_could_take_for_something_else(text: str) -> None:
    written = inert({"text": text})
    assert json.loads(written) == {"text": text}
    assert not set("<>&") & set(written)
    assert all(character.isprintable() for character in written)


def divided(written: str) -> tuple[str, str]:
    """A page without its data, and these."""
    before, begin, rest = written.partition('<script type="application/json" id="data">')
    found, end, after = rest.partition("</script>")
    return before + begin + end + after, found


@settings(max_examples=40)
@given(st.lists(PARTS).map("".join), st.lists(PARTS).map("".join))
def test_outside_of_its_data_a_page_has_nothing_of_a_text_and_these_are_the_text(text: str, title: str) -> None:
    rest, found = divided(made(text, title))
    assert rest == divided(made("", title))[0]
    assert json.loads(found)["turns"][0]["stretch"]["text"] == text
    shown = html.escape("".join(c if c.isprintable() else "\ufffd" for c in title))
    assert rest.replace(f"<title>{shown}", "<title>").replace(f"<h1>{shown}", "<h1>") == divided(made("", ""))[0]


def test_a_text_with_half_a_character_is_refused_and_changes_nothing() -> None:
    recording = Recording(toktier.load("toktier-mini"))
    recording.append("whole")
    with pytest.raises(InvalidText, match=r"U\+D800"):
        recording.append("\ud800")
    assert len(recording.turns) == 1
    assert page(recording, "a title \udcff").encode().count("a title \ufffd".encode()) == 2


def test_a_hostile_text_adds_no_element_and_no_attribute() -> None:
    harmless, hostile = parsed(made("harmless")), parsed(made(HOSTILE, HOSTILE))
    policy = [attributes.pop("content") for tag, attributes in harmless.found if "http-equiv" in attributes]
    assert policy == [attributes.pop("content") for tag, attributes in hostile.found if "http-equiv" in attributes]
    assert harmless.found == hostile.found
    [data] = [text for tag, text in hostile.texts if tag == "script" and text.startswith("{")]
    assert json.loads(data)["turns"][0]["stretch"]["text"] == HOSTILE


def test_the_title_is_escaped_and_has_nothing_unseen() -> None:
    written = made("", "a<b>\u202e&{{data}}")
    assert written.count(html.escape("a<b>\ufffd&{{data}}")) == 2
    assert "\u202e" not in written


def test_nothing_is_loaded_from_anywhere() -> None:
    elements = parsed(made("text"))
    for _, attributes in elements.found:
        assert not {"src", "href", "action", "srcset", "data", "style"} & attributes.keys()
        assert not [name for name in attributes if name.startswith("on")]
    style = resources.files("toktier.view").joinpath("page.css").read_text(encoding="utf-8")
    assert "url(" not in style
    assert "@import" not in style


def test_the_policy_allows_the_style_and_the_script_of_the_page_and_nothing_else() -> None:
    written = made("text")
    [policy] = re.findall(r'Content-Security-Policy" content="([^"]*)"', written)
    allowed = dict(rule.strip().split(" ", 1) for rule in policy.split(";"))
    [style] = re.findall(r"<style>(.*?)</style>", written, re.DOTALL)
    [script] = re.findall(r"<script>(.*?)</script>", written, re.DOTALL)
    digests = {
        name: base64.b64encode(hashlib.sha256(part.encode()).digest()).decode()
        for name, part in {"script-src": script, "style-src": style}.items()
    }
    assert allowed == {
        "default-src": "'none'",
        "base-uri": "'none'",
        "form-action": "'none'",
        "require-trusted-types-for": "'script'",
        **{name: f"'sha256-{digest}'" for name, digest in digests.items()},
    }


@pytest.mark.parametrize("most", [0, 255, 256, 65_535, 65_536, 2**32 - 1])
def test_packed_numbers_are_as_they_were(most: int) -> None:
    values = np.array([0, 1, most])
    kind, written = packed(values)
    types = {"Uint8Array": "u1", "Uint16Array": "<u2", "Uint32Array": "<u4"}
    assert np.frombuffer(base64.b64decode(written), types[kind]).tolist() == values.tolist()
    assert len(base64.b64decode(written)) == 3 * (1 if most < 256 else 2 if most < 65_536 else 4)


def test_the_vocabulary_of_a_page_is_what_occurs_in_it() -> None:
    written = made("the cat, the dog")
    [data] = [text for tag, text in parsed(written).texts if tag == "script" and text.startswith("{")]
    ids = toktier.load("toktier-mini").encode("the cat, the dog").tolist()
    assert [entry[0] for entry in json.loads(data)["vocabulary"]] == sorted(set(ids))
