"""Every example runs, and what it prints is what the documentation shows, most of it in ``docs/examples.md``."""

from __future__ import annotations

import doctest
import pathlib
import re
import shlex
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).parents[1]

BLOCK = re.compile(
    r"^```console\n\$ (?P<command>python examples/[^\n]+)\n(?P<output>.*?)^```$", re.MULTILINE | re.DOTALL
)
"""What a page shows of an example: its command, and everything that it prints."""

MEASURED = re.compile(r"\b[\d,]+(\.\d+)? (ms|s)\b")
"""A time: it is another one on every run, and the page shows one of them."""

SERVERS = ("front_end.py", "ray_front_end.py")
"""What does not end by itself; another example starts it."""

SHOWN = [
    (page.name, found["command"], found["output"])
    for page in sorted(ROOT.glob("docs/*.md"))
    for found in BLOCK.finditer(page.read_text(encoding="utf-8"))
]
"""Pages, the commands that they show and what these print there."""

CHECKER = doctest.OutputChecker()


def agree(shown: str, printed: str) -> bool:
    """Whether what was printed is what the page shows: times and spaces may differ, and ``...`` is anything."""
    flags = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
    return CHECKER.check_output(MEASURED.sub("TIME", shown), MEASURED.sub("TIME", printed), flags)


@pytest.mark.parametrize(("page", "command", "output"), SHOWN, ids=[command for _, command, _ in SHOWN])
def test_an_example_prints_what_the_page_shows(page: str, command: str, output: str) -> None:
    script = [sys.executable, "-X", "utf8", *shlex.split(command)[1:]]
    done = subprocess.run(script, check=False, cwd=ROOT, capture_output=True, encoding="utf-8", timeout=120)
    assert done.returncode == 0, done.stderr
    assert agree(output, done.stdout), f"{page} does not show this:\n{done.stdout}\n{done.stderr}"


def test_every_example_is_shown() -> None:
    shown = {shlex.split(command)[1] for _, command, _ in SHOWN}
    scripts = {path.relative_to(ROOT).as_posix() for path in ROOT.glob("examples/*.py") if path.name not in SERVERS}
    assert shown == scripts


def test_a_page_that_shows_something_else_is_noticed() -> None:
    shown = "turn  ids    update\n   0  132   0.71 ms\nEvery turn equal to a full encode.\n"
    assert agree(shown, shown)
    assert agree(shown, shown.replace(" 0.71 ms", "12.04 ms"))
    assert not agree(shown, shown.replace("132", "133"))
    assert not agree(shown, shown.replace("0.71 ms", "0.71 us"))
    assert not agree(shown, shown.replace("Every turn equal to a full encode.\n", ""))
    assert not agree(shown, shown + "One more line.\n")
    assert agree("session ... moved\n", "session 8d3f moved\n")
