"""Drives a headless Chromium through a pipe, in its own protocol: keys are real keys, screenshots are what is seen."""

from __future__ import annotations

import base64
import json
import os
import pathlib
import shutil
import subprocess
import tempfile
from types import TracebackType
from typing import Any

import toktier
from toktier import Tokenizer
from toktier.view import Recording, page

NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")

SWITCHES = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
    "--hide-scrollbars",
    "--remote-debugging-pipe",
)

KEYS = {"/": "/", "Enter": "\r"}
"""Keys that write something."""

CODES = {"Enter": 13, "Tab": 9, "Home": 36, "End": 35, "ArrowLeft": 37, "ArrowRight": 39}
"""Keys that the controls of a browser know by their number."""


def executable() -> str | None:
    """The browser of this machine, or None."""
    return next(filter(None, map(shutil.which, NAMES)), None)


class Browser:
    """A browser with one page.

    Args:
        file: The executable.
    """

    def __init__(self, file: str) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="toktier-browser-", ignore_cleanup_errors=True)
        to_browser, ours_out = os.pipe()
        ours_in, from_browser = os.pipe()
        # The browser reads from descriptor 3 and writes to 4, whatever numbers the pipes have here.
        shell = f'exec "$0" "$@" 3<&{to_browser} 4>&{from_browser}'
        self._process = subprocess.Popen(
            ["bash", "-c", shell, file, *SWITCHES, f"--user-data-dir={self._folder.name}", "about:blank"],
            pass_fds=(to_browser, from_browser),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(to_browser)
        os.close(from_browser)
        self._out, self._in = os.fdopen(ours_out, "wb", buffering=0), os.fdopen(ours_in, "rb")
        self._sent, self._rest, self._session = 0, b"", ""
        self.events: list[dict[str, Any]] = []
        targets = self.send("Target.getTargets")["targetInfos"]
        page = next(target["targetId"] for target in targets if target["type"] == "page")
        self._session = self.send("Target.attachToTarget", targetId=page, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.send(f"{domain}.enable")

    def __enter__(self) -> Browser:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.terminate()
        self._process.wait(20)
        self._out.close()
        self._in.close()
        self._folder.cleanup()

    def send(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Calls a method of the protocol, and returns its result. Events that come meanwhile are kept."""
        self._sent += 1
        message = {"id": self._sent, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        self._out.write(json.dumps(message).encode() + b"\0")
        while (answer := self._received()).get("id") != self._sent:
            self.events.append(answer)
        assert "error" not in answer, (method, answer)
        result: dict[str, Any] = answer["result"]
        return result

    def _received(self) -> dict[str, Any]:
        while b"\0" not in self._rest:
            more = os.read(self._in.fileno(), 1 << 20)
            assert more, "the browser is gone"
            self._rest += more
        message, _, self._rest = self._rest.partition(b"\0")
        received: dict[str, Any] = json.loads(message)
        return received

    def open(self, file: pathlib.Path, place: str = "") -> None:
        """Opens a page from a file, and waits until it is there."""
        # From one place of a page to another it would not be loaded again.
        for url in ("about:blank", file.absolute().as_uri() + place):
            self.events.clear()
            self.send("Page.navigate", url=url)
            while not any(event.get("method") == "Page.loadEventFired" for event in self.events):
                self.events.append(self._received())

    def evaluate(self, script: str) -> Any:
        """The value of an expression in the page, also one that is promised."""
        answer = self.send("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def press(self, *keys: str) -> None:
        """Presses keys, one after the other, by their names."""
        for key in keys:
            written = {"text": KEYS[key]} if key in KEYS else {}
            code = {"windowsVirtualKeyCode": CODES[key]} if key in CODES else {}
            self.send("Input.dispatchKeyEvent", type="keyDown", key=key, code=key, **written, **code)
            self.send("Input.dispatchKeyEvent", type="keyUp", key=key, code=key, **code)

    def settle(self) -> None:
        """Waits until what was begun is drawn."""
        self.evaluate("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")

    def write(self, text: str) -> None:
        """Writes into what has the focus."""
        self.send("Input.insertText", text=text)

    def point(self, x: float, y: float) -> None:
        """Moves the pointer."""
        self.send("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)

    def prefer(self, scheme: str) -> None:
        """Has the system prefer ``"light"`` or ``"dark"``."""
        self.send("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])

    def resize(self, width: int, height: int) -> None:
        """Sets the size of the window, in pixels."""
        self.send("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)

    def screenshot(self, file: pathlib.Path) -> None:
        """Saves what is seen, PNG."""
        file.write_bytes(base64.b64decode(self.send("Page.captureScreenshot", format="png")["data"]))

    @property
    def complaints(self) -> list[str]:
        """What the page or the browser found wrong: exceptions, errors on the console, what the policy blocked."""
        found = [event for event in self.events if event.get("method") in {"Runtime.exceptionThrown", "Log.entryAdded"}]
        return [json.dumps(event["params"]) for event in found]

    @property
    def requests(self) -> list[str]:
        """What the page loaded since it was opened."""
        sent = (event["params"] for event in self.events if event.get("method") == "Network.requestWillBeSent")
        return [one["request"]["url"] for one in sent]


def opened(
    browser: Browser,
    folder: pathlib.Path,
    text: str,
    *,
    place: str = "",
    tok: Tokenizer | None = None,
    title: str = "x",
) -> Recording:
    """Opens a page that shows a text."""
    recording = Recording(tok or toktier.load("toktier-mini"))
    recording.append(text)
    display(browser, folder, recording, place=place, title=title)
    return recording


def display(browser: Browser, folder: pathlib.Path, recording: Recording, *, place: str = "", title: str = "x") -> None:
    """Opens a page that shows a recording."""
    file = folder / "page.html"
    file.write_bytes(page(recording, title).encode())
    browser.open(file, place)
