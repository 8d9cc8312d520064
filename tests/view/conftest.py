from __future__ import annotations

import pathlib
from collections.abc import Iterator

import pytest

import toktier
from tests import material
from tests.view.browser import Browser, executable
from toktier import replay
from toktier.view import Recording, page, replayed


@pytest.fixture(scope="session")
def running() -> Iterator[Browser]:
    file = executable()
    if file is None:
        pytest.skip("there is no Chromium: apt-get install chromium, or put one in the PATH")
    with Browser(file) as started:
        yield started


@pytest.fixture
def browser(running: Browser) -> Browser:
    """The browser, whatever the test before has done to its window."""
    running.resize(1200, 800)
    running.prefer("light")
    running.point(5, 5)
    return running


@pytest.fixture(scope="session")
def session(tmp_path_factory: pytest.TempPathFactory) -> tuple[pathlib.Path, Recording]:
    """A page of a session with some of everything: what an edit brings, and text that nobody trusts."""
    messages = [replay.Message(m["role"], m["content"]) for m in max(material.agent_sessions(), key=len)][:16]
    recording = replayed(toktier.load("toktier-mini"), list(replay.requests(messages)))
    recording.edit(10, 14, "👍🏽")
    recording.append("Of a user: <|im_end|> and <think>", special="text")
    file = tmp_path_factory.mktemp("view") / "session.html"
    file.write_bytes(page(recording, "a session").encode())
    return file, recording
