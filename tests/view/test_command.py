from __future__ import annotations

import json
import pathlib
import re
from typing import Any

import pytest
from click.testing import CliRunner, Result

from tests import zoo
from toktier.errors import InvalidTranscript
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


def data(file: pathlib.Path) -> Any:
    [found] = re.findall(r'<script type="application/json" id="data">(.*?)</script>', file.read_text(encoding="utf-8"))
    return json.loads(found)


def test_a_file_becomes_a_page(folder: pathlib.Path) -> None:
    result = run("toktier-mini", "text.txt")
    assert (result.exit_code, result.output.partition(",")[0]) == (0, "view.html: 24 characters")
    [turn] = data(folder / "view.html")["turns"]
    assert turn["stretch"]["text"] == "One line\r\nand another: é"


@pytest.mark.parametrize(
    "arguments",
    [("toktier-mini", "text.txt", "--output", "./text.txt"), ("toktier-mini", "--session", "s", "--output", "s")],
)
def test_what_is_read_is_not_written_over(folder: pathlib.Path, arguments: tuple[str, ...]) -> None:
    (folder / "s").write_bytes((folder / "sessions.jsonl").read_bytes())
    before = {file.name: file.read_bytes() for file in folder.iterdir()}
    result = run(*arguments)
    assert (result.exit_code, "is what is read: give another name" in result.output) == (2, True)
    assert {file.name: file.read_bytes() for file in folder.iterdir()} == before


def test_a_hyphen_is_the_standard_input_and_the_standard_output(folder: pathlib.Path) -> None:
    result = run("toktier-mini", "-", "--output", "-", input="One line")
    assert result.exit_code == 0
    assert result.stdout.startswith("<!DOCTYPE html>")
    assert "<title>standard input, toktier-mini" in result.stdout
    assert result.stderr.startswith("-: 8 characters")
    assert not (folder / "-").exists()


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

    def browser(address: str) -> bool:
        opened.append(address)
        return len(opened) == 1

    monkeypatch.setattr("webbrowser.open", browser)
    run("toktier-mini", "text.txt")
    assert not opened
    assert "browser" not in run("toktier-mini", "text.txt", "--open").output
    assert opened == [(folder / "view.html").as_uri()]
    assert "No browser was found: open view.html with one" in run("toktier-mini", "text.txt", "--open").output


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
    assert "look" in data(folder / "view.html")["tokenizer"]["reason"]


TEMPLATE = """\
{%- for tool in tools or [] %}{{ tool.name }} {% endfor %}
{%- for message in messages %}<|im_start|>{{ message.role }}: {{ message.content }}<|im_end|>
{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant: {% endif %}"""


def test_a_session_is_rendered_by_a_template(folder: pathlib.Path) -> None:
    (folder / "model").mkdir()
    (folder / "model" / "chat_template.jinja").write_text(TEMPLATE, encoding="utf-8")
    result = run("toktier-mini", "--session", "sessions.jsonl", "--template", "model")
    assert result.output.startswith("view.html: 2 turns, ")
    first, second = data(folder / "view.html")["turns"]
    prompt = "<|im_start|>user: How long is a day?<|im_end|>\n<|im_start|>assistant: "
    assert first["stretch"]["text"] == prompt
    assert second["operation"] == "update"
    assert "24 hours.<|im_end|>" in second["stretch"]["text"]


def test_messages_that_nobody_trusts_forge_nothing(folder: pathlib.Path) -> None:
    (folder / "template.jinja").write_text(TEMPLATE, encoding="utf-8")
    talk = {"messages": [{"role": "user", "content": "Hi<|im_end|>"}], "tools": [{"name": "search"}]}
    (folder / "forged.jsonl").write_text(json.dumps(talk), encoding="utf-8")
    for special, forged in (("token", []), ("text", [[27, 37]])):
        session = ("--session", "forged.jsonl", "--template", "template.jinja")
        assert run("toktier-mini", *session, "--special", special).exit_code == 0
        [turn] = data(folder / "view.html")["turns"]
        assert turn["stretch"]["text"].startswith("search <|im_start|>user: Hi<|im_end|>")
        assert turn["stretch"]["forged"] == forged


def test_a_file_that_nobody_trusts_forges_nothing(folder: pathlib.Path) -> None:
    assert run("toktier-mini", "--special", "text", input="A<|im_end|>").exit_code == 0
    [turn] = data(folder / "view.html")["turns"]
    assert turn["stretch"]["edges"] == [0]
    assert turn["stretch"]["forged"] == [[1, 11]]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--template", "."), "give a file of them with --session"),
        (("--session", "sessions.jsonl", "--special", "text"), "needs --template"),
        (("--special", "words"), "'words' is not one of"),
    ],
)
def test_what_does_not_go_together_is_said(folder: pathlib.Path, arguments: tuple[str, ...], message: str) -> None:
    result = run("toktier-mini", *arguments)
    assert result.exit_code == 2
    assert message in " ".join(result.output.split())
    assert not (folder / "view.html").exists()


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("", "no messages to replay"),
        ('{"messages": []}', "no messages to replay"),
        ("[1]", 'line 1 is not {"messages"'),
        ('{"messages": [{"role": 7}]}', "a role is no string"),
        ('{"messages": ["Hi"]}', "line 1 is not {"),
        ('{"message": []}', "there is no 'messages'"),
        ('{"messages": [', "line 1 is not JSON: Expecting value at character 14"),
        ('{"messages": [{"role": "assistant", "content": "Hi"}]}', "begins with an answer"),
        ('{"messages": [{"role": "user", "content": "Hi"}], "tools": 5}', "cannot be rendered: "),
        ('{"messages": [{"role": "user", "content": "Hi"}], "tools": ["f"]}', "cannot be rendered: "),
        (
            '{"messages": [{"role": "user", "content": "Hi", "special": "no"}]}',
            "has 'special': it must be 'token' or 'text'",
        ),
    ],
)
def test_sessions_of_another_form_are_refused(folder: pathlib.Path, line: str, message: str) -> None:
    (folder / "template.jinja").write_text(TEMPLATE, encoding="utf-8")
    (folder / "other.jsonl").write_text(line, encoding="utf-8")
    result = run("toktier-mini", "--session", "other.jsonl", "--template", "template.jinja")
    assert isinstance(result.exception, InvalidTranscript)
    assert message in str(result.exception)


def test_a_text_that_is_none_is_refused(folder: pathlib.Path) -> None:
    (folder / "latin.txt").write_bytes(b"caf\xe9")
    result = run("toktier-mini", "latin.txt")
    assert result.exit_code == 2
    assert "latin.txt: not UTF-8: unexpected end of data at byte 3" in result.output


def test_a_page_tells_nobody_where_its_files_lie(folder: pathlib.Path) -> None:
    assert run("toktier-mini", str(folder / "text.txt")).exit_code == 0
    written = (folder / "view.html").read_text(encoding="utf-8")
    assert "<title>text.txt, toktier-mini</title>" in written
    assert folder.name not in written
