from __future__ import annotations

import base64
import itertools
import json
import os
import pathlib
import subprocess
import sys
from collections.abc import Sequence

import numpy as np
import pytest
import tokenizers
from click.testing import CliRunner, Result
from rich.cells import cell_len

import toktier
from tests import builders, zoo
from toktier import cli, inspection, replay, router
from toktier.engines import admission
from toktier.engines.base import Ids
from toktier.route import Route
from toktier.terminal import comparisons_printed

HOSTILE = {
    "[/red]": "[/red]",
    "[bold": "[bold",
    "[link=x]y[/link]": "[link=x]y[/link]",
    ":smile:": ":smile:",
    "\x1b[31mred": "<U+001B>[31mred",
    "e\u0301!": "e<U+0301>!",
    "\u202eabc": "<U+202E>abc",
    "\n\n": "\\n\\n",
    " \u200b": "␣<U+200B>",
    "שלום": "<U+05E9><U+05DC><U+05D5><U+05DD>",
}
"""Added tokens that could break a terminal, and what they are shown as."""

TRANSCRIPT: list[dict[str, str | None]] = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "Hi"},
    {"role": "assistant", "content": "Hello, what can I do?"},
    {"role": "user", "content": "Ça va? 中文"},
    {"role": "assistant", "content": None},
    {"role": "tool", "content": "<|im_end|> in a result\r\n"},
    {"role": "assistant", "content": "It is done."},
    {"role": "user", "content": "Thanks"},
]


def run(*arguments: str, input: str | bytes | None = None, columns: int = 80) -> Result:
    return CliRunner().invoke(cli.main, arguments, input=input, env={"COLUMNS": str(columns)})


def saved(tokenizer: tokenizers.Tokenizer, folder: pathlib.Path) -> str:
    file = folder / "tokenizer.json"
    tokenizer.save(str(file))
    return str(file)


def with_literals(contents: Sequence[str], folder: pathlib.Path) -> str:
    added = [tokenizers.AddedToken(content, normalized=False) for content in contents]
    return saved(builders.byte_level(builders.split(builders.GPT4), added=added), folder)


@pytest.fixture
def transcript(tmp_path: pathlib.Path) -> str:
    file = tmp_path / "transcript.jsonl"
    line = json.dumps({"id": "one", "messages": TRANSCRIPT})
    file.write_text(f"{line}\n\n{line}\n", encoding="utf-8")
    return str(file)


# inspect


def test_inspect_names_the_tokenizer_its_stages_and_its_relation() -> None:
    family = toktier.load("toktier-mini").family
    output = run("inspect", "toktier-mini", columns=120).output
    for expected in (
        family.digest,
        family.source_digest,
        "pre-tokenizer ByteLevel",
        "9, 3 special",
        "<|im_start|>",
        f"{family.atoms} atoms, {family.sync_pairs} of",
    ):
        assert expected in output


def test_inspect_shows_the_relation_of_the_family() -> None:
    family = toktier.load("toktier-mini").family
    lines = run("inspect", "toktier-mini").output.splitlines()
    start = next(i for i, line in enumerate(lines) if "left ╲ right" in line)
    real = {picture: character for character, picture in inspection.PICTURES.items()}
    symbols = lines[start].split("right")[1].split()
    rows = [line.split() for line in lines[start + 1 :]]
    assert [row[0] for row in rows] == symbols
    for row in rows:
        marks = row[-len(symbols) :]
        left = real.get(row[0], row[0])
        assert marks == ["✓" if family.is_pair(left, real.get(right, right)) else "·" for right in symbols]


def test_inspect_as_json_has_every_atom_with_its_cuts() -> None:
    family = toktier.load("toktier-mini").family
    report = json.loads(run("inspect", "toktier-mini", "--json").output)
    alphabet = report["alphabet"]
    assert report["digest"] == family.digest
    assert len(alphabet) == report["atoms"] == family.atoms
    assert sum(len(atom["cut_before"]) for atom in alphabet) == report["sync_pairs"]
    assert sum(atom["characters"] for atom in alphabet) == sys.maxunicode + 1
    for left, (number, right) in itertools.product(alphabet, enumerate(alphabet)):
        for a, b in itertools.product(left["examples"], right["examples"]):
            assert family.is_pair(a, b) == (number in left["cut_before"])


@pytest.mark.parametrize("content", HOSTILE)
def test_hostile_added_tokens_are_escaped_and_are_no_markup(tmp_path: pathlib.Path, content: str) -> None:
    result = run("inspect", with_literals([content], tmp_path))
    assert result.exit_code == 0
    assert HOSTILE[content] in result.output
    assert not {"\x1b", "\u202e", "\u0301", "\u200b", "ש"} & set(result.output)
    assert max(map(cell_len, result.output.splitlines())) <= 80


@pytest.mark.parametrize("columns", [40, 80, 100, 120])
def test_sixty_kinds_of_characters_fit(tmp_path: pathlib.Path, columns: int) -> None:
    letters = [chr(c) for c in range(ord("A"), ord("z")) if chr(c).isalpha()] + list("éßñøåæœłđ中")
    added = [tokenizers.AddedToken("".join(pair)) for pair in itertools.pairwise(letters)]
    source = saved(builders.byte_level(builders.split(r"\s|\S"), added=added), tmp_path)
    assert len(inspection.kinds(toktier.load(source).family)) >= 60
    result = run("inspect", source, columns=columns)
    assert result.exit_code == 0
    assert max(map(cell_len, result.output.splitlines())) <= columns
    assert "…" not in result.output.partition("╲")[2]  # nothing of the tables is truncated


def test_hundreds_of_kinds_of_characters_are_not_printed(tmp_path: pathlib.Path) -> None:
    result = run("inspect", saved(zoo.build("bytes alone"), tmp_path), columns=200)
    assert len(result.output.splitlines()) < 40
    assert "--json has it" in result.output


def test_a_rank_file_is_taken_with_a_pattern(tmp_path: pathlib.Path) -> None:
    file = tmp_path / "tiny.tiktoken"
    tokens = [*(bytes((value,)) for value in range(256)), b"Hi"]
    file.write_bytes(b"".join(base64.b64encode(token) + b" %d\n" % rank for rank, token in enumerate(tokens)))
    assert "give --pattern" in run("encode", str(file), "Hi").output
    assert run("encode", str(file), "Hi i", "--pattern", "gpt2").output.split() == ["256", "32", "105"]
    assert run("inspect", str(file), "--pattern", "gpt2").exit_code == 0
    verified = run("verify", str(file), "--pattern", "gpt2", "--seconds", "0", "--quarantine", str(tmp_path / "none"))
    assert verified.exit_code == 0, verified.output


def test_inspect_says_why_a_tokenizer_is_not_supported(tmp_path: pathlib.Path) -> None:
    source = saved(zoo.build("lookbehind"), tmp_path)
    reason = toktier.load(source).family.reason
    result = run("inspect", source, columns=300)
    assert result.exit_code == 0
    assert reason is not None
    assert f"no: {reason}" in result.output
    assert "╲" not in result.output
    report = json.loads(run("inspect", source, "--json").output)
    assert (report["supported"], report["reason"], report["alphabet"]) == (False, reason, [])


def test_comparisons_of_engines_are_printed_as_they_begin(capsys: pytest.CaptureFixture[str]) -> None:
    level = admission.logger.level
    with comparisons_printed():
        admission.logger.info("comparing engine %s", "\x1b")
    assert capsys.readouterr().err == "comparing engine <U+001B> ...\n"
    admission.logger.info("comparing engine %s", "another")
    assert (capsys.readouterr().err, admission.logger.level) == ("", level)


# encode


def test_text_file_and_standard_input_give_the_same_ids(tmp_path: pathlib.Path) -> None:
    text = "Ça va?\r\n中文 <|im_end|>\n"
    file = tmp_path / "text.txt"
    file.write_bytes(text.encode())
    expected = " ".join(map(str, toktier.load("toktier-mini").encode(text).tolist())) + "\n"
    assert run("encode", "toktier-mini", text).output == expected
    assert run("encode", "toktier-mini", "--file", str(file)).output == expected
    assert run("encode", "toktier-mini", input=text.encode()).output == expected


def test_pieces_show_every_character_with_its_ids() -> None:
    text = "wörld\t👍 e\u0301"
    lines = [line.rsplit("  ", 1) for line in run("encode", "toktier-mini", text, "--pieces").output.splitlines()]
    assert [int(id) for ids, _ in lines for id in ids.split()] == toktier.load("toktier-mini").encode(text).tolist()
    assert "".join(piece for _, piece in lines) == "wörld\\t👍␣eU+0301"


def test_cuts_divide_the_ids_without_changing_them() -> None:
    text = "Cut me, please!"
    tok = toktier.load("toktier-mini")
    lines = run("encode", "toktier-mini", text, "--cuts").output.splitlines()
    assert len(lines) == len(tok.family.cuts(text)) + 1
    assert " ".join(lines).split() == [str(id) for id in tok.encode(text)]
    paragraphs = run("encode", "toktier-mini", text, "--cuts", "--pieces").output.split("\n\n")
    assert len(paragraphs) == len(lines)


def test_behind_a_cut_pieces_are_what_they_are_in_the_whole(tmp_path: pathlib.Path) -> None:
    source = saved(zoo.build("Llama 2"), tmp_path)
    whole, parts = (run("encode", source, "the fox  it", "--pieces", *cuts).output for cuts in ((), ("--cuts",)))
    assert [line for line in parts.splitlines() if line] == whole.splitlines()
    assert len(parts.splitlines()) > len(whole.splitlines())


def test_cuts_of_an_unsupported_tokenizer_are_none_and_the_reason_is_told(tmp_path: pathlib.Path) -> None:
    result = run("encode", saved(zoo.build("lookbehind"), tmp_path), "a b c", "--cuts")
    assert len(result.stdout.splitlines()) == 1
    assert "No certified cuts: pre-tokenizer Split" in result.stderr


def test_special_tokens_are_added_on_demand() -> None:
    expected = toktier.load("toktier-mini").encode("Hi", add_special_tokens=True).tolist()
    assert run("encode", "toktier-mini", "Hi", "--add-special-tokens").output.split() == list(map(str, expected))
    assert "<|endoftext|>" in run("encode", "toktier-mini", "Hi", "--add-special-tokens", "--pieces").output


@pytest.mark.parametrize("arguments", [("Hi", "--file", "x"), ("Hi", "--cuts", "--add-special-tokens")])
def test_options_that_exclude_one_another_are_refused(arguments: tuple[str, ...]) -> None:
    result = run("encode", "toktier-mini", *arguments)
    assert result.exit_code == 2
    assert "Error: " in result.stderr


def test_a_hyphen_is_the_standard_input() -> None:
    expected = toktier.load("toktier-mini").encode("Hello world").tolist()
    result = CliRunner().invoke(cli.main, ["encode", "toktier-mini", "-"], input="Hello world")
    assert result.stdout.split() == [*map(str, expected)]


# demo


def test_demo_checks_every_turn_and_ends_with_a_table() -> None:
    result = run("demo", "--characters", "12000")
    assert result.exit_code == 0
    assert "turns, each with exactly the ids of a full encode, by " in result.stdout
    assert max(map(cell_len, result.stdout.splitlines())) <= 80
    for name in ("characters", "append", "update", "ratio", "encode", "matches"):
        assert name in result.stdout


def test_ctrl_c_is_no_difference(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*arguments: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(replay, "watched", interrupted)
    result = run("demo")
    assert (result.exit_code, result.stderr) == (130, "Stopped.\n")


def test_demo_says_what_would_be_faster_once_it_is_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    reasons = {"gigatoken": "not compared with the reference yet: ...", "memo": "admitted"}
    monkeypatch.setattr(router.Router, "reasons", lambda self, compare: reasons)
    assert (
        "Faster, once compared (gigatoken): toktier inspect toktier-mini" in run("demo", "--characters", "9000").stdout
    )


def test_demo_as_json_has_growing_contexts_and_both_ways_to_give_the_text() -> None:
    result = json.loads(run("demo", "--characters", "20000", "--json").stdout)
    rows = result["rows"]
    contexts = [row["characters"] for row in rows]
    assert contexts == sorted(contexts)
    assert sum(row["turns"] for row in rows) == result["turns"]
    assert result["mismatches"] == 0
    assert 1000 < rows[-1]["new"] < 2000
    assert rows[-1]["append"] > 0
    assert rows[-1]["update"] > 0
    assert rows[-1]["full"] > 0


def test_demo_replays_transcripts_of_ones_own(transcript: str) -> None:
    result = json.loads(run("demo", "--session", transcript, "--json").stdout)
    assert (result["sessions"], result["turns"], result["mismatches"]) == (2, 8, 0)


def test_demo_on_an_unsupported_tokenizer_is_exact_and_says_why_it_is_slow(tmp_path: pathlib.Path) -> None:
    result = run("demo", "--tokenizer", saved(zoo.build("lookbehind"), tmp_path), "--characters", "4000")
    assert result.exit_code == 0
    assert "no certified cuts: pre-tokenizer Split" in " ".join(result.stdout.split())


def test_one_wrong_id_makes_the_demo_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = itertools.count()
    right = Route.encode_batch

    def wrong(self: Route, texts: Sequence[str], *, continuation: bool = False) -> list[Ids]:
        ids = right(self, texts, continuation=continuation)
        return [ids[0] ^ np.uint32(1), *ids[1:]] if next(calls) == 5 else ids

    monkeypatch.setattr(Route, "encode_batch", wrong)
    result = run("demo", "--characters", "15000")
    assert result.exit_code == 1
    assert "differ from a full encode" in result.stdout
    calls = itertools.count()
    result = run("demo", "--characters", "15000", "--json")
    assert result.exit_code == 1
    assert json.loads(result.stdout)["mismatches"] > 0


def test_a_session_that_holds_other_ids_than_its_patches_say_makes_the_demo_fail(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(toktier.Session, "ids", property(lambda self: np.zeros(len(self), np.uint32)))
    assert run("demo", "--characters", "4000").exit_code == 1


def test_an_update_has_the_answer_in_the_place_of_the_prompt() -> None:
    messages = [replay.Message(entry["role"] or "", entry["content"] or "") for entry in TRANSCRIPT]
    text = ""
    for request in replay.requests(messages):
        text = replay.rendered(text, "update", request)
    assert text == "".join(message.chatml() for message in messages) + replay.PROMPT


def test_an_append_leaves_everything_before_it_as_it_is() -> None:
    first, *others = replay.requests(replay.library_session())
    text = replay.rendered("", "open", first)
    for request in others[:3]:
        longer = replay.rendered(text, "append", request)
        assert longer.startswith(text)
        assert longer.endswith(replay.PROMPT)
        text = longer


# errors, help


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("inspect", "no/such/tokenizer.json"), "no file, directory or bundled"),
        (("inspect", "{broken}"), "not JSON"),
        (("encode", "toktier-mini", "--file", "no/such/text"), "no/such/text: No such file or directory"),
        (("inspect", "{folder}"), "has no tokenizer.json"),
        (("inspect", "{wrong}"), "field 'model': missing; is this a tokenizer.json?"),
        (("inspect", ""), "give a path, a name"),
        (("inspect", "toktier-mini", "--pattern", "qwen"), "--pattern is for rank files"),
        (("encode", "{ranks}", "text"), "give --pattern, a regular expression or one of gpt2"),
        (("demo", "--tokenizer", "{ranks}"), "give --pattern, a regular expression or one of gpt2"),
        (("encode", "toktier-mini", "--file", "{latin}"), "not UTF-8: unexpected end of data at byte 3; convert it"),
        (("encode", "toktier-mini", "--file", "{wide}"), "iconv -f UTF-16 -t UTF-8"),
        (("encode", "toktier-mini", "--file", "{folder}"), "Is a directory"),
        (("encode", "toktier-mini", "a\udcff"), "surrogate U+DCFF at position 1"),
        (("demo", "--session", "no/such/file.jsonl"), "No such file or directory"),
        (("demo", "--session", "{broken}"), "line 1 is not JSON: Expecting value at character 10"),
        (("demo", "--session", "{latin}"), "line 1 is not UTF-8"),
        (("demo", "--session", "{numbers}"), "content is int"),
        (("reproduce", "{broken}"), "not a reproduction"),
        (("demo", "--session", "{empty}"), "no messages"),
    ],
)
def test_what_the_user_can_mend_is_told_in_one_line(
    tmp_path: pathlib.Path, arguments: tuple[str, ...], message: str
) -> None:
    contents = {
        "broken": b'{"model": ',
        "latin": b"caf\xe9",
        "wide": "\ufeffcaf\xe9".encode("utf-16-le"),
        "wrong": b"[1]",
        "ranks": b"YQ== 0\n",
        "numbers": b'{"messages": [{"role": "user", "content": 1}]}',
        "empty": b"\n",
    }
    for name, content in contents.items():
        (tmp_path / name).write_bytes(content)
    (tmp_path / "folder").mkdir()
    files = {name: tmp_path / name for name in (*contents, "folder")}
    result = run(*(argument.format(**files) for argument in arguments))
    assert result.exit_code == 2
    assert result.stdout == ""
    assert result.stderr.startswith("Error: ")
    assert message in result.stderr
    assert result.stderr.count("\n") == 1


def test_an_engine_that_is_none_is_told_with_those_that_are() -> None:
    result = run("verify", "toktier-mini", "--engine", "fastest")
    assert result.exit_code == 2
    assert "'fastest' is not one of 'gpu', 'gigatoken', 'tiktoken', 'memo', 'reference'" in result.stderr


def test_an_id_of_the_hub_that_cannot_be_had_is_told_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    result = run("inspect", "owner/name")
    assert (result.exit_code, result.stderr.count("\n")) == (2, 1)
    assert "pip install huggingface_hub" in result.stderr


@pytest.mark.parametrize("missing", ["click", "rich"])
def test_without_its_extra_the_command_line_says_what_to_install(missing: str) -> None:
    program = f"import sys; sys.modules[{missing!r}] = None; import toktier.cli"
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert result.returncode == 2
    assert result.stderr == f"the command line needs the package {missing}: pip install click rich\n"


def test_a_terminal_without_unicode_gets_escapes() -> None:
    command = [sys.executable, "-m", "toktier.cli", "inspect", "toktier-mini"]
    environment = os.environ | {"PYTHONIOENCODING": "ascii"}
    result = subprocess.run(command, capture_output=True, env=environment, check=False)
    assert result.returncode == 0
    assert b"\\u2713" in result.stdout


def test_version_and_help() -> None:
    assert run("--version").output == f"toktier, version {toktier.__version__}\n"
    assert "Where to begin:" in run("--help").output
    for command in cli.main.commands:
        assert f"Examples:\n    toktier {command} " in run(command, "-h").output.replace("demo\n", "demo \n")
