"""The page for beginners shows what ``toktier inspect`` prints."""

from __future__ import annotations

import doctest
import pathlib
import re

from click.testing import CliRunner

from toktier.cli import main

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
    result = CliRunner().invoke(main, ["inspect", "toktier-mini"], env={"COLUMNS": "80"})
    printed = result.output.replace(" (used)", "")  # whichever engine that is here
    assert agree(block[1].replace(" (used)", ""), printed), result.output
    assert not agree(block[1].replace(" (used)", ""), printed.replace("410 of", "411 of"))
