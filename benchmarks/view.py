"""What a page of ``toktier view`` takes: to be made, to be opened, to be scrolled, and to go from turn to turn.

The times of the page are the browser's own, in a headless Chromium without a GPU, 50th and 99th percentile. A frame is
what the page does in it: the rows that come on screen, with the layout that follows. ``scroll`` moves by a notch of a
wheel, ``jump`` to anywhere in the text. A ``step`` moves the slider by one turn, a ``slide`` to any turn, both with all
that the page then shows. The limits:

- opened within a second
- a frame of scrolling within a sixtieth of a second, 99 times of 100
- a jump, a step and a slide within 50 ms, of which nobody takes notice, 99 times of 100
- at most 2,000 elements in the document
"""

from __future__ import annotations

import itertools
import pathlib
import tempfile
import time
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from benchmarks.common import Figure, arguments, show
from tests import material
from tests.view.browser import Browser, executable
from toktier import Tokenizer
from toktier.replay import library_session, library_text, requests, within
from toktier.view import Recording, page, replayed

CHARACTERS = 1_000_000

LIMITS = {"opened": 1_000.0, "scroll": 1e3 / 60, "jump": 50.0, "step": 50.0, "slide": 50.0}
"""Milliseconds."""

MOST_ELEMENTS = 2_000

DRAWS = """
(() => {
  const times = { scroll: [], jump: [], step: [], slide: [] };
  const timed = (name, act) => {
    const began = performance.now();
    act();
    document.body.offsetHeight;
    times[name].push(performance.now() - began);
  };
  const text = byId("text"), turns = data.turns.length;
  text.scrollTop = text.scrollHeight / 3;
  drawing.draw();
  for (let i = 0; i < 300; i++) timed("scroll", () => { text.scrollTop += 120; drawing.draw(); });
  for (let i = 0; i < 200; i++) {
    timed("jump", () => { text.scrollTop = ((i * 73) % 200) / 200 * text.scrollHeight; drawing.draw(); });
  }
  const nodes = document.querySelectorAll("*").length;
  const turn = (wanted) => { byId("turn").value = wanted; byId("turn").dispatchEvent(new Event("input")); };
  if (turns > 1) {
    for (let i = turns - 1; i > Math.max(1, turns - 100); i--) timed("step", () => turn(i));
    for (let i = 0; i < 100; i++) timed("slide", () => turn(1 + (i * 37) % turns));
  }
  return [times, nodes];
})()
"""

OPENED = "performance.getEntriesByType('navigation')[0].domInteractive"


class Shown(NamedTuple):
    """What a page shows, and how many seconds the recording took."""

    name: str
    recording: Recording
    seconds: float


def pages(tok: Tokenizer) -> Iterator[Shown]:
    """What is measured, one after the other."""
    text = library_text(CHARACTERS)
    for name, part in (
        ("a tenth", text[: CHARACTERS // 10]),
        ("text", text),
        ("one line", text.replace("\n", " ")),
        ("spaces", " " * (CHARACTERS // 5)),
    ):
        began = time.perf_counter()
        recording = Recording(tok)
        recording.append(part)
        yield Shown(name, recording, time.perf_counter() - began)
    transcript = within(itertools.islice(requests(library_session()), 1_000), CHARACTERS)
    began = time.perf_counter()
    recording = replayed(tok, transcript)
    yield Shown("session", recording, time.perf_counter() - began)


def measured(browser: Browser, file: pathlib.Path, shown: Shown) -> Iterator[Figure]:
    """The rows of a page."""
    last, turns = shown.recording.turns[-1], len(shown.recording.turns)
    at = f"{shown.name}, {last.characters:,} characters" + f", {turns} turns" * (turns > 1)
    began = time.perf_counter()
    data = page(shown.recording, shown.name).encode()
    yield Figure("made", at, shown.seconds + time.perf_counter() - began, "s")
    yield Figure("size", at, len(data) / 1e6, "MB")
    file.write_bytes(data)
    browser.open(file)
    yield Figure("opened", at, browser.evaluate(OPENED), "ms", limit=LIMITS["opened"])
    times, elements = browser.evaluate(DRAWS)
    for name, taken in times.items():
        if taken:
            usual, slow = np.percentile(taken, [50, 99])
            yield Figure(f"{name}, median", at, usual, "ms")
            yield Figure(f"{name}, 99th percentile", at, slow, "ms", limit=LIMITS[name])
    yield Figure("elements in the document", at, elements, limit=MOST_ELEMENTS)


def main() -> None:
    """Measures and prints."""
    parser = arguments(__doc__)
    parser.add_argument("--tokenizer", default="toktier-mini", choices=material.available())
    options = parser.parse_args()
    file = executable()
    if file is None:
        parser.error("there is no Chromium: apt-get install chromium, or put one in the PATH")
    tok = material.load(options.tokenizer)
    tok.encode(library_text(1_000))  # the engine has its tables
    figures: list[Figure] = []
    with tempfile.TemporaryDirectory() as folder, Browser(file) as browser:
        browser.resize(1200, 800)
        for shown in pages(tok):
            figures += measured(browser, pathlib.Path(folder, "page.html"), shown)
    show(f"Pages of toktier view, {options.tokenizer}", figures, options.json)


if __name__ == "__main__":
    main()
