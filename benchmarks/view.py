"""What a page of ``toktier view`` takes: to be made, to be opened, and to be drawn while somebody scrolls.

The times of the page are the browser's own, in a headless Chromium without a GPU: a draw is timed with the layout that
follows it, at places all over the text.
"""

from __future__ import annotations

import argparse
import pathlib
import tempfile
import time

from rich import box
from rich.table import Table

from tests import material
from tests.view.browser import Browser, executable
from toktier.bench.plan import library_text
from toktier.terminal import plain_console
from toktier.view import Recording, page

SIZES = (100_000, 1_000_000)

DRAWS = """
(() => {
  const took = [];
  for (let i = 0; i < 200; i++) {
    byId("text").scrollTop = ((i * 73) % 200) / 200 * byId("text").scrollHeight;
    const began = performance.now();
    drawing.draw();
    document.body.offsetHeight;
    took.push(performance.now() - began);
  }
  took.sort((a, b) => a - b);
  return [took[100], took[180]];
})()
"""

OPENED = "performance.getEntriesByType('navigation')[0].domInteractive"


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.view", description=__doc__)
    parser.add_argument("--tokenizer", default="toktier-mini", choices=material.available())
    name = parser.parse_args().tokenizer
    file = executable()
    if file is None:
        parser.error("there is no Chromium: apt-get install chromium, or put one in the PATH")
    tok, text = material.load(name), library_text(SIZES[-1])
    tok.encode(text[:1_000])  # the engine has its tables
    table = Table("characters", "ids", "made s", "page MB", "opened ms", "draw ms", "p90 ms", box=box.SIMPLE_HEAD)
    with tempfile.TemporaryDirectory() as folder, Browser(file) as browser:
        browser.resize(1200, 800)
        written = pathlib.Path(folder, "page.html")
        for size in SIZES:
            began = time.perf_counter()
            recording = Recording(tok)
            recording.append(text[:size])
            data = page(recording, name).encode()
            made = time.perf_counter() - began
            written.write_bytes(data)
            browser.open(written)
            opened, (draw, slow) = browser.evaluate(OPENED), browser.evaluate(DRAWS)
            ids = recording.turns[-1].ids
            figures = (f"{made:.2f}", f"{len(data) / 1e6:.2f}", f"{opened:.0f}", f"{draw:.1f}", f"{slow:.1f}")
            table.add_row(f"{size:,}", f"{ids:,}", *figures)
    plain_console().print(table)


if __name__ == "__main__":
    main()
