from __future__ import annotations

import json
import pathlib
import re

import pytest
from click.testing import CliRunner, Result

from tests import zoo
from toktier.view import command

SESSIONS = [
    [{"role": "user", "content": "Hi"}],
    [
        {"role": "user", "content": "How long is a day?"},
        {"role": "assistant", "content": "24 hours."},
        {"role": "user", "content": "And a year?"},
    ],
]


@pytest.fixture
def folder(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> pathlib.Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "text.txt").write_bytes("One line\r\nand another: é".encode())
    lines = "".join(json.dumps({"messages": messages}) + "\n" for messages in SESSIONS)
    (tmp_path / "sessions.jsonl").write_text(lines, encoding="utf-8")
    return tmp_path


def run(*arguments: str, input: str | None = None) -> Result:
    return CliRunner().invoke(command.view, arguments, input=input)


def data(file: pathlib.Path) -> dict[str, list[dict[str, dict[str, str]]]]:
    [found] = re.findall(r'<script type="application/json" id="data">(.*?)</script>', file.read_text(encoding="utf-8"))
    parsed: dict[str, list[dict[str, dict[str, str]]]] = json.loads(found)
    return parsed


def test_a_file_becomes_a_page(folder: pathlib.Path) -> None:
    result = run("toktier-mini", "text.txt")
    assert (result.exit_code, result.output.partition(",")[0]) == (0, "view.html: 24 characters")
    [turn] = data(folder / "view.html")["turns"]
    assert turn["stretch"]["text"] == "One line\r\nand another: é"


def test_the_standard_input_becomes_a_page_with_a_name_of_its_own(folder: pathlib.Path) -> None:
    assert run("toktier-mini", "--output", "piped.html", input="from a pipe").exit_code == 0
    assert data(folder / "piped.html")["turns"][0]["stretch"]["text"] == "from a pipe"


def test_the_longest_session_of_a_file_is_replayed(folder: pathlib.Path) -> None:
    result = run("toktier-mini", "--session", "sessions.jsonl")
    assert result.output.startswith("view.html: 2 turns, ")
    turns = data(folder / "view.html")["turns"]
    assert "How long is a day?" in turns[0]["stretch"]["text"]
    assert "24 hours." in turns[1]["stretch"]["text"]


def test_the_page_is_opened_if_that_is_asked_for(folder: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str] = []
    monkeypatch.setattr("webbrowser.open", opened.append)
    run("toktier-mini", "text.txt")
    assert not opened
    run("toktier-mini", "text.txt", "--open")
    assert opened == [(folder / "view.html").as_uri()]


def test_a_file_and_a_session_are_one_too_many(folder: pathlib.Path) -> None:
    result = run("toktier-mini", "text.txt", "--session", "sessions.jsonl")
    assert result.exit_code == 2
    assert "give either FILE or --session" in result.output
    assert not (folder / "view.html").exists()


def test_a_tokenizer_without_cuts_is_shown_and_the_reason_is_given(folder: pathlib.Path) -> None:
    zoo.build("lookbehind").save(str(folder / "tokenizer.json"))
    result = run("tokenizer.json", "text.txt")
    assert result.exit_code == 0
    assert "No certified cuts: " in result.output
    assert "look" in data(folder / "view.html")["tokenizer"]["reason"]  # type: ignore[call-overload]
