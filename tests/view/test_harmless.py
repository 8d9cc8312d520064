"""Hostile texts, names and pieces in a real browser: nothing runs, nothing is loaded, everything is seen as it is."""

from __future__ import annotations

import pathlib
import re
import unicodedata

import tokenizers
from attrs import evolve
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import toktier
from tests import builders
from tests.view.browser import Browser, display, opened
from tests.view.test_page import HOSTILE, PARTS
from toktier.view import Recording

BIDI = "\u202eRLO\u202c שלום \u2066x\u2069 and\x00NUL\u200b."

RUNS = "<img src=x.png onerror=window.ran=1><script>window.ran=1</script>"
"""What would run and load something, were it markup."""

SEEN = """
(() => {
  const found = [document.title];
  for (const element of document.querySelectorAll("*")) {
    if (!["SCRIPT", "STYLE"].includes(element.tagName)) {
      for (const node of element.childNodes) if (node.nodeType === 3) found.push(node.data);
    }
    for (const attribute of element.attributes) found.push(attribute.value);
  }
  return found.join("");
})()
"""
"""All text of the document and all its attributes, but for scripts and the data."""

ELEMENTS = "[...document.querySelectorAll('*')].map((e) => e.tagName)"
OWN = {
    "HTML",
    "HEAD",
    "META",
    "TITLE",
    "STYLE",
    "BODY",
    "HEADER",
    "MAIN",
    "FOOTER",
    "SECTION",
    "H1",
    "P",
    "SPAN",
    "DIV",
}
OWN |= {"FORM", "LABEL", "INPUT", "OUTPUT", "SELECT", "OPTION", "BUTTON", "DETAILS", "SUMMARY", "DL", "DT", "DD"}
OWN |= {"SCRIPT", "NOSCRIPT"}


def unseen(text: str) -> set[str]:
    """Characters of a text that cannot be seen, or turn it around; its own line breaks are none."""
    odd = {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"}
    return {character for character in text if character != "\n" and unicodedata.category(character) in odd}


def check_harmless(browser: Browser) -> None:
    """Asserts that a page did nothing but show itself."""
    assert not browser.complaints
    assert not [event for event in browser.events if event.get("method") == "Page.javascriptDialogOpening"]
    assert browser.evaluate("window.ran ?? 0") == 0
    assert browser.requests == [browser.evaluate("location.href").partition("#")[0]]
    elements = browser.evaluate(ELEMENTS)
    assert set(elements) <= OWN
    assert elements.count("SCRIPT") == 2
    assert unseen(browser.evaluate(SEEN)) == set()


def test_a_page_that_does_run_load_and_hide_something_is_noticed(browser: Browser, tmp_path: pathlib.Path) -> None:
    file = tmp_path / "harmful.html"
    file.write_text(f"<!DOCTYPE html><meta charset=utf-8><p>\u202e\x1b</p>{RUNS}", encoding="utf-8")
    browser.open(file)
    assert browser.evaluate("window.ran ?? 0") == 1
    assert len(browser.requests) == 2
    assert not set(browser.evaluate(ELEMENTS)) <= OWN
    assert unseen(browser.evaluate(SEEN)) == {"\u202e", "\x1b"}
    assert browser.complaints


def test_a_hostile_text_is_harmless_and_seen_as_it_is(browser: Browser, tmp_path: pathlib.Path) -> None:
    opened(browser, tmp_path, HOSTILE + RUNS, title=HOSTILE + RUNS)
    check_harmless(browser)
    assert browser.evaluate("transcript.text") == HOSTILE + RUNS
    shown = browser.evaluate("byId('layer').innerText").replace("▫", "")
    assert "</script><script>alert(1)</script><img src=x onerror=alert(2)>" in shown
    for sign in ("<U+202E>", "<U+0000>", "<U+001B>", "<U+007F>", "<U+2028>", "<U+FEFF>", "<U+E0041>"):
        assert sign in shown


@settings(max_examples=12, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(PARTS, max_size=12).map("".join))
def test_any_hostile_text_is_harmless_and_is_that_text(browser: Browser, tmp_path: pathlib.Path, text: str) -> None:
    opened(browser, tmp_path, text, title=text)
    check_harmless(browser)
    assert browser.evaluate("transcript.text") == text
    for token in range(min(browser.evaluate("transcript.tokens.length"), 5)):
        browser.evaluate(f"choose({token})")
    check_harmless(browser)


def test_hostile_tokens_are_harmless(browser: Browser, tmp_path: pathlib.Path) -> None:
    hostile = ["</script>" + RUNS, "\u202e<!--\u2066", "\x00\x1b[31m", "{{data}}", "\U000e0041\u200b"]
    added = [tokenizers.AddedToken(content, special=i % 2 == 0, normalized=False) for i, content in enumerate(hostile)]
    tok = toktier.load(builders.byte_level(builders.split(builders.GPT4), added=added))
    recording = Recording(tok)
    for text in (" and ".join(hostile), "nothing", " and ".join(hostile)):
        recording.update(text)
    display(browser, tmp_path, recording)
    assert browser.evaluate("data.vocabulary.map(([, piece]) => piece)").count(hostile[0]) == 1
    for token in range(recording.turns[-1].ids):
        browser.evaluate(f"choose({token})")
        browser.evaluate(f"byId('t{token}').dispatchEvent(new PointerEvent('pointerover', {{bubbles: true}}))")
    check_harmless(browser)
    browser.evaluate("goTo(2)")
    assert "<U+202E>" in browser.evaluate("byId('gone').textContent")
    check_harmless(browser)


def test_what_a_turn_says_is_harmless_whatever_it_says(browser: Browser, tmp_path: pathlib.Path) -> None:
    recording = Recording(toktier.load("toktier-mini"))
    recording.append("text, ")
    recording.append(HOSTILE)
    recording.edit(6, len(recording.session.text) - 1, RUNS)
    recording.turns[:] = [
        evolve(turn, operation=HOSTILE + RUNS, explanation=HOSTILE + RUNS) for turn in recording.turns
    ]
    display(browser, tmp_path, recording)
    for turn in (3, 1, 2, 3):
        browser.evaluate(f"goTo({turn})")
        check_harmless(browser)
    assert "<U+202E>" in browser.evaluate("byId('explanation').textContent")
    assert browser.evaluate("byId('gone').querySelectorAll('.gone').length") > 5


def test_what_is_looked_for_is_harmless(browser: Browser, tmp_path: pathlib.Path) -> None:
    opened(browser, tmp_path, HOSTILE)
    for wanted in (HOSTILE, RUNS, "#99999999999999999999", "\u202e"):
        browser.press("/")
        browser.evaluate("byId('find').value = ''")
        browser.write(wanted)
        browser.press("Enter")
    check_harmless(browser)


def test_no_text_turns_the_page_around(browser: Browser, tmp_path: pathlib.Path) -> None:
    opened(browser, tmp_path, BIDI * 3)
    lefts = browser.evaluate("[...document.querySelector('.row').querySelectorAll('.piece')].map((e) => e.offsetLeft)")
    assert lefts == sorted(lefts)


def test_what_cannot_be_seen_is_shown_by_its_number(browser: Browser, tmp_path: pathlib.Path) -> None:
    text = "".join(map(chr, (0xA0, 0xAD, 0x34F, 0x61C, 0x115F, 0x180E, 0x200B, 0x2060, 0x2800, 0x3000, 0x3164)))
    text += "\u2066\ufe0f\ufeff\ufffb\U0001d159\U000e0001\U000e0100\U000f0000\U0010ffff\u0378"
    opened(browser, tmp_path, text)
    signs = browser.evaluate("[...document.querySelectorAll('#layer .sign')].map((e) => e.textContent).join('')")
    assert re.findall(r"<U\+(\w+)>", signs) == [f"{ord(character):04X}" for character in text]


def test_the_policy_stops_what_would_run(browser: Browser, tmp_path: pathlib.Path) -> None:
    opened(browser, tmp_path, "text")
    script = "const s = document.createElement('script'); s.append('window.ran = 1'); document.body.append(s)"
    assert browser.evaluate(f"(() => {{ try {{ {script} }} catch {{}} return window.ran ?? 0 }})()") == 0
    assert browser.evaluate("(() => { try { document.body.innerHTML = '<b>' } catch { return 1 } return 0 })()") == 1
    assert browser.evaluate("fetch('http://localhost:9/').then(() => 1, () => 0)") == 0
    image = "new Promise((done) => { const i = new Image(); i.onload = i.onerror = done; i.src = 'x.png' })"
    browser.evaluate(image)
    assert sum("Content Security Policy" in complaint for complaint in browser.complaints) >= 3
