"""Whether everybody can read and use a page: contrast, keys, names for screen readers, small windows, no motion."""

from __future__ import annotations

import pathlib
from typing import Any

import pytest

from tests.view.browser import Browser, opened
from tests.view.test_page import HOSTILE
from toktier.view import Recording

Session = tuple[pathlib.Path, Recording]

CONTRAST = """
(() => {
  const channels = (colour) => colour.match(/[\\d.]+/g).map(Number);
  const luminance = (colour) => {
    const linear = (c) => (c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4);
    const [r, g, b] = channels(colour).map((c) => linear(c / 255));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const behind = (element) => {
    for (let at = element; at; at = at.parentElement) {
      const colour = getComputedStyle(at).backgroundColor;
      if (colour !== "rgba(0, 0, 0, 0)") return colour;
    }
  };
  const contrast = (one, other) => {
    const [dark, light] = [one, other].map(luminance).sort((a, b) => a - b);
    return (light + 0.05) / (dark + 0.05);
  };
  const poor = [];
  const check = (element, colour, least, what) => {
    const found = contrast(colour, behind(element));
    if (found < least) poor.push([what, element.className || element.id, element.textContent.slice(0, 20), found]);
  };
  for (const element of document.body.querySelectorAll("*")) {
    if (!element.getClientRects().length) continue;
    const style = getComputedStyle(element);
    const written = [...element.childNodes].some((node) => node.nodeType === 3 && node.data.trim());
    if (written || element.matches("#find, select, button")) check(element, style.color, 4.5, "text");
    if (element.placeholder) check(element, getComputedStyle(element, "::placeholder").color, 4.5, "placeholder");
    const lines = { new: /^piece new/, cut: /(^| )cut/, untrusted: /untrusted/, forged: /forged/ };
    const named = (name) => {
      const probe = document.body.appendChild(document.createElement("i"));
      probe.style.color = `var(--${name})`;
      const colour = getComputedStyle(probe).color;
      probe.remove();
      return colour;
    };
    for (const [name, is] of Object.entries(lines)) {
      // The cut is drawn on its piece, all others below it, on the paper.
      if (!is.test(element.className)) continue;
      const on = name === "cut" ? element : document.body;
      check(on, named(name === "new" ? "new-line" : name), 3, `line of ${name}`);
    }
  }
  return poor;
})()
"""
"""What has less contrast than WCAG asks for: 4.5 to 1 for text, 3 to 1 for lines that mean something."""


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_everything_can_be_read_in_both_themes(
    browser: Browser, session: Session, tmp_path: pathlib.Path, scheme: str
) -> None:
    other = {"light": "dark", "dark": "light"}[scheme]
    papers = []
    for preferred, place in ((scheme, ""), (other, f"&theme={scheme}")):
        browser.prefer(preferred)
        for turn in (3, len(session[1].turns)):
            browser.open(session[0], f"#turn={turn}{place}")
            browser.evaluate("byId('help').open = true")
            papers.append(browser.evaluate("getComputedStyle(document.body).backgroundColor"))
            kinds = "[...document.querySelectorAll('#layer .piece')].map((e) => e.classList[1].slice(0, -2))"
            assert browser.evaluate(f"new Set({kinds}).size") >= 2
            assert browser.evaluate(CONTRAST) == []
    assert set(papers) == {{"light": "rgb(255, 255, 255)", "dark": "rgb(20, 22, 26)"}[scheme]}
    opened(browser, tmp_path, HOSTILE, place=f"#theme={scheme}")
    assert browser.evaluate(CONTRAST) == []


def test_what_can_hardly_be_read_is_noticed(browser: Browser, session: Session) -> None:
    browser.open(session[0], "#theme=light")
    for name, value, found in (
        ("--faint", "#9a9a9a", {"text", "placeholder"}),
        ("--new-line", "#aadfae", {"line of new"}),
        ("--untrusted", "#f0e0c0", {"line of untrusted"}),
        ("--cut", "#ffd0d0", {"line of cut"}),
    ):
        browser.evaluate(f"document.documentElement.style.setProperty('{name}', '{value}')")
        assert {what for what, *_ in browser.evaluate(CONTRAST)} == found
        browser.evaluate(f"document.documentElement.style.removeProperty('{name}')")


def test_the_theme_is_chosen_by_keys(browser: Browser, session: Session) -> None:
    browser.open(session[0])
    browser.evaluate("byId('theme').focus()")
    browser.evaluate("byId('theme').value = 'dark'")
    browser.evaluate("byId('theme').dispatchEvent(new Event('change'))")
    assert browser.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(20, 22, 26)"


def test_tab_reaches_everything_and_shows_where_it_is(browser: Browser, session: Session) -> None:
    browser.open(session[0], f"#turn={len(session[1].turns)}")
    reached = []
    for _ in range(12):
        browser.press("Tab")
        outline = "getComputedStyle(document.activeElement).outline"
        name, line = browser.evaluate(f"[document.activeElement.id || document.activeElement.tagName, {outline}]")
        if name == "BODY":
            continue
        reached.append(name)
        assert "2px" in line
        assert "none" not in line
    everything = ["next", "find", "colour", "cuts", "theme", "SUMMARY", "turn", "gone", "text", "token"]
    assert [name for name in everything if name not in reached] == (
        [] if browser.evaluate("!byId('gone').hidden") else ["gone"]
    )


def test_no_letter_is_hidden_by_a_line_around_it(browser: Browser, session: Session) -> None:
    browser.open(session[0], f"#turn={len(session[1].turns)}")
    shadows = browser.evaluate(
        "[...document.querySelectorAll('#layer .piece')].map((e) => getComputedStyle(e).boxShadow)"
    )
    assert any(shadow != "none" for shadow in shadows)
    assert not [shadow for shadow in shadows if "inset" in shadow]
    framed = "[...document.querySelectorAll('#layer .added, #layer .chosen')]"
    offsets = browser.evaluate(f"{framed}.map((e) => parseFloat(getComputedStyle(e).outlineOffset))")
    assert len(offsets) >= 2
    assert min(offsets) >= 0
    bottoms = browser.evaluate(
        "[...document.querySelectorAll('#layer .untrusted')].map((e) => e.getBoundingClientRect().bottom"
        " - e.closest('.row').getBoundingClientRect().bottom)"
    )
    assert bottoms
    assert max(bottoms) <= 0.5


def tree(browser: Browser) -> dict[str, list[dict[str, Any]]]:
    """What a screen reader is told, by roles."""
    found: dict[str, list[dict[str, Any]]] = {}
    for node in browser.send("Accessibility.getFullAXTree")["nodes"]:
        if not node["ignored"]:
            properties = {entry["name"]: entry["value"].get("value") for entry in node.get("properties", [])}
            name, value = (node.get(key, {}).get("value") for key in ("name", "value"))
            found.setdefault(node["role"]["value"], []).append({"name": name, "value": value, **properties})
    return found


def test_screen_readers_are_told_what_there_is(browser: Browser, session: Session) -> None:
    browser.open(session[0], "#turn=3")
    found = tree(browser)
    [slider] = found["slider"]
    assert slider["name"] == "Turn"
    assert slider["valuetext"] == f"3 of {len(session[1].turns)}: {session[1].turns[2].operation}"
    assert (slider["valuemin"], slider["valuemax"]) == (1, len(session[1].turns))
    names = {role: [box["name"].strip() for box in found[role]] for role in ("combobox", "searchbox", "checkbox")}
    assert names == {"combobox": ["Colours", "Theme"], "searchbox": ["Find"], "checkbox": ["certified cuts"]}
    [text] = found["listbox"]
    assert text["name"].startswith("Tokens.")
    options = found["option"]
    assert sum(option.get("selected") is True and ", id " in option["name"] for option in options) == 1
    assert {"main", "banner", "contentinfo", "region"} <= found.keys()
    live = browser.evaluate(
        "[...document.querySelectorAll('[aria-live=polite]')].map((e) => [e.id, e.getAttribute('aria-atomic')])"
    )
    assert live == [["found", None], ["token", "true"]]


def test_nothing_moves_by_itself(browser: Browser, session: Session) -> None:
    browser.open(session[0])
    moving = """[...document.querySelectorAll("*")].filter((e) => {
      const { transitionDuration, animationName, scrollBehavior } = getComputedStyle(e);
      return transitionDuration !== "0s" || animationName !== "none" || scrollBehavior !== "auto";
    }).length"""
    assert browser.evaluate(moving) == 0
    browser.evaluate("document.body.style.transition = 'all 1s'")
    assert browser.evaluate(moving) == 1


def test_what_is_read_stays_on_screen_when_the_window_changes(browser: Browser, session: Session) -> None:
    browser.open(session[0], f"#turn={len(session[1].turns)}")
    seen = "drawing.isSeen(drawing.chosenRow) && !!byId(`t${drawing.chosen}`)"
    for width, height in ((1200, 500), (390, 500), (390, 844), (1200, 800)):
        browser.resize(width, height)
        browser.settle()
        assert browser.evaluate(seen)
    browser.evaluate("(() => { byId('text').scrollTop = byId('text').scrollHeight / 3; drawing.draw() })()")
    top = "drawing.rows.lineOf(drawing.rows.starts.values[Math.floor(drawing.top / HEIGHT)])"
    line = browser.evaluate(top)
    browser.resize(500, 800)
    browser.settle()
    assert browser.evaluate(top) == line
    assert not browser.evaluate(seen)


def test_a_small_window_shows_everything_too(browser: Browser, session: Session) -> None:
    browser.resize(390, 844)
    browser.open(session[0], f"#turn={len(session[1].turns)}")
    browser.settle()
    assert browser.evaluate("document.documentElement.scrollWidth") <= 390
    outside = """[...document.querySelectorAll("header *, #session *, footer *, #layer .piece")].filter((e) => {
      const { left, right, width } = e.getBoundingClientRect();
      return width && (left < 0 || right > 390.5);
    }).map((e) => [e.tagName, e.id, e.textContent])"""
    assert browser.evaluate(outside) == []
    assert browser.evaluate("byId('text').clientHeight") > 250
    browser.resize(390, 500)  # with a keyboard on the screen
    browser.settle()
    assert browser.evaluate("byId('text').clientHeight") >= 70
