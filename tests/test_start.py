"""The page for beginners shows what ``toktier inspect`` prints."""

from __future__ import annotations

import doctest
import os
import pathlib
import re
import subprocess
import sys

PAGE = pathlib.Path(__file__).parents[1] / "docs" / "start.md"

NUMBER = re.compile(r"\+[\d,]+")
CHECKER = doctest.OutputChecker()


def agree(shown: str, printed: str) -> bool:
    """Whether they are the same, but for how many characters are alike, which depends on the version of Unicode."""
    flags = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
    return CHECKER.check_output(NUMBER.sub("+N", shown), NUMBER.sub("+N", printed), flags)


def test_the_page_shows_what_inspect_prints() -> None:
    block = re.search(r"\$ toktier inspect toktier-mini\n(.*?)^```$", PAGE.read_text("utf-8"), re.MULTILINE | re.DOTALL)
    assert block
    # In a process of its own: in this one, some test may have loaded the same tokenizer from a file written otherwise.
    command = [sys.executable, "-X", "utf8", "-m", "toktier", "inspect", "toktier-mini"]
    environment = os.environ | {"COLUMNS": "80"}
    done = subprocess.run(command, check=True, capture_output=True, encoding="utf-8", env=environment, timeout=120)
    printed = done.stdout.replace(" (used)", "")  # whichever engine that is here
    assert agree(block[1].replace(" (used)", ""), printed), done.stdout
    assert not agree(block[1].replace(" (used)", ""), printed.replace("410 of", "411 of"))
