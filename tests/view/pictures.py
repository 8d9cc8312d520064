"""``python -m tests.view.pictures``: the screenshot of docs/view.md, taken anew. Needs Chromium."""

from __future__ import annotations

import pathlib
import sys
import tempfile

import toktier
from tests.view.browser import Browser, executable
from toktier import replay
from toktier.view import page, replayed

ROOT = pathlib.Path(__file__).parents[2]
SESSION = ROOT / "examples" / "agent_session.jsonl"
PICTURES = ROOT / "docs" / "_static"


def main() -> int:
    """Takes one picture in light and one in dark."""
    file = executable()
    if file is None:
        print("there is no Chromium: apt-get install chromium, or put one in the PATH", file=sys.stderr)
        return 2
    recording = replayed(toktier.load("toktier-mini"), replay.sessions(SESSION)[0])
    PICTURES.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder, Browser(file) as browser:
        written = pathlib.Path(folder, "page.html")
        written.write_bytes(page(recording, "agent_session.jsonl, toktier-mini").encode())
        browser.resize(1000, 620)
        for theme in ("light", "dark"):
            browser.open(written, f"#turn=4&theme={theme}")
            browser.screenshot(PICTURES / f"view-{theme}.png")
            print(PICTURES / f"view-{theme}.png")
    return 0


if __name__ == "__main__":
    sys.exit(main())
