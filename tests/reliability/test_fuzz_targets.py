"""The fuzz targets on seeded random bytes: what a fuzzer would run by the million, a few hundred times."""

from __future__ import annotations

import random
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator

import pytest

from tests.fuzz import pattern, session
from toktier.families.family import Family
from toktier.families.syntax import CharacterClass, Node


def trials(seed: int, count: int, most: int) -> Iterator[bytes]:
    source = random.Random(seed)
    return (source.randbytes(source.randint(0, most)) for _ in range(count))


def test_random_bytes_are_a_pattern_that_is_understood_or_refused() -> None:
    outcomes = Counter(pattern.trial(data) for data in trials(1, 10_000, 12))
    # Most ways out are taken, or the target would find nothing.
    assert min(outcomes["refused"], outcomes["compared"]) > 500, outcomes


def test_random_bytes_are_a_session_program_that_is_exact() -> None:
    operations = [session.trial(data) for data in trials(2, 200, 150)]
    assert sum(operations) > 1_000
    assert session.trial(b"") == 0


def test_the_texts_of_a_program_are_of_all_kinds() -> None:
    reader = session.Reader(bytes([0x83, 0x01, 0xF6, 0x00, 0x00, 0xD8, 0x00, 0x11, 0x00, 0x00, 0x02, 0, 255]))
    assert reader.text() == "\U0001f600\x00"  # a surrogate is left out, and what is beyond Unicode begins anew
    assert reader.text() == session.pool()[0] + session.pool()[-1]
    assert reader.text() == ""


def test_a_parser_that_is_wrong_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """The control of the first target."""

    def misread(text: str) -> Node:
        return CharacterClass("b", "b")

    monkeypatch.setattr(pattern, "parse", misread)
    with pytest.raises(AssertionError, match="the reference finds"):
        pattern.trial(b"\x00a+")


def test_a_parser_that_raises_anything_else_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(text: str) -> Node:
        raise KeyError(text)

    monkeypatch.setattr(pattern, "parse", broken)
    with pytest.raises(KeyError):
        pattern.trial(b"\x00a+")


def test_a_session_that_cuts_anywhere_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """The control of the second one."""
    monkeypatch.setattr(Family, "is_pair", lambda self, left, right: True)
    with pytest.raises(AssertionError, match="ids"):
        assert [*map(session.trial, trials(3, 200, 120))]


@pytest.mark.parametrize("arguments", [["pattern"], ["session"]])
def test_without_atheris_a_target_says_so_in_one_line(arguments: list[str]) -> None:
    code = (
        f"import runpy, sys; sys.modules['atheris'] = None; sys.argv[1:] = {arguments}; runpy.run_module('tests.fuzz')"
    )
    run = subprocess.run(
        [sys.executable, "-c", code.replace("'tests.fuzz')", "'tests.fuzz', run_name='__main__')")],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert run.returncode == 2
    assert run.stderr == "fuzzing needs the package atheris, which is not installed: pip install atheris\n"


def test_a_target_that_is_none_is_told_what_there_is() -> None:
    run = subprocess.run(
        [sys.executable, "-m", "tests.fuzz", "nothing"], capture_output=True, text=True, timeout=60, check=False
    )
    assert run.returncode == 2
    assert run.stderr.startswith("usage: python -m tests.fuzz {pattern,session}")
