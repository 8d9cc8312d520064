"""Every command that a page names exists, with the options that it gives it; those of ``toktier`` run."""

from __future__ import annotations

import base64
import glob
import itertools
import pathlib
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator

import click
import pytest
from attrs import frozen

from tests import material
from toktier.cli import main
from toktier.router import NAMES

ROOT = pathlib.Path(__file__).parents[1]

PAGES = [ROOT / "README.md", ROOT / "benchmarks/README.md", *sorted(ROOT.glob("*/*.md")), *sorted(ROOT.glob("*.md"))]

BLOCK = re.compile(r"^( *)```(console|sh|bash)\n(.*?)^\1```$", re.MULTILINE | re.DOTALL)
INLINE = re.compile(r"`((?:python -m|python examples/|toktier|make|pytest|pip install)(?: [a-z'.-][^`]*)?)`", re.DOTALL)
FENCED = re.compile(r"^( *)```.*?^\1```$", re.MULTILINE | re.DOTALL)

OTHERS = {"curl", "serve", "vllm", "git"}
"""Programs that are not this project's."""

MODULES = {"timeit", "venv", "pip", "pytest", "sglang.launch_server"}
"""Modules that are not."""


@frozen
class Command:
    """A command, and where it was found."""

    page: str
    words: list[str]
    block: bool

    def __str__(self) -> str:
        return f"{self.page}: {shlex.join(self.words)}"


def commands_of(page: str, text: str) -> Iterator[Command]:
    """All commands of a page: what stands behind ``$`` in its console blocks, or between backticks."""
    for block in BLOCK.finditer(text):
        lines = block[3].replace("\\\n", " ").splitlines()
        prompted = any(line.lstrip().startswith("$ ") for line in lines)
        for line in lines:
            stripped = line.strip()
            if prompted and not stripped.startswith("$ "):
                continue  # what the command before it printed
            if words := shlex.split(stripped.removeprefix("$ "), comments=True):
                yield Command(page, words, block=True)
    for inline in INLINE.finditer(FENCED.sub("", text)):
        yield Command(page, shlex.split(" ".join(inline[1].split()), comments=True), block=False)


def wrong(command: Command) -> str | None:
    """What does not exist of a command."""
    program, *rest = itertools.dropwhile(re.compile(r"[A-Z_]+=").match, command.words)
    if program in OTHERS:
        return None
    if program == "make":
        targets = re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
        return next((f"no target {word}" for word in rest if "=" not in word and word not in targets), None)
    if program == "pip":
        extras = {extra for word in rest if word.startswith(".[") for extra in word[2:-1].split(",")}
        known = re.findall(r"^([a-z]+) = \[", (ROOT / "pyproject.toml").read_text(encoding="utf-8"), re.MULTILINE)
        return next((f"no extra {extra}" for extra in extras if extra not in known), None)
    if program == "pytest":
        paths = [word for word in rest if word.startswith(("tests/", "toktier/", "docs/"))]
        return next((f"no file {path}" for path in paths if not (ROOT / path.split("::")[0]).exists()), None)
    if program == "toktier":
        return wrong_options(main, rest)
    if program == "python":
        return wrong_script(rest)
    return f"no program {program} is known"


def wrong_options(command: click.Command, words: list[str]) -> str | None:
    """What a command of click does not know of these words."""
    if isinstance(command, click.Group) and words and not words[0].startswith("-"):
        inner = command.commands.get(words[0])
        return wrong_options(inner, words[1:]) if inner else f"no command {words[0]}"
    known = {name for parameter in command.params for name in (*parameter.opts, *parameter.secondary_opts)} | {"--help"}
    return next((f"no option {word}" for word in words if word.startswith("-") and word not in known), None)


def wrong_script(words: list[str]) -> str | None:
    """What ``python`` does not find of these words: a module or a script of this repository, or an option of it."""
    words = [word for word in words if word not in {"-X", "utf8", "importtime", "-W", "error"}]
    if words[0] == "-m":
        place = ROOT.joinpath(*words[1].split("."))
        files = [place.with_suffix(".py"), place / "__main__.py"]
        words = words[1:]
        if words[0] in MODULES:
            return None
        if words[0] == "toktier":
            return wrong_options(main, words[1:])
    elif words[0].startswith("-"):
        return None
    else:
        files = [ROOT / words[0]]
    file = next((file for file in files if file.exists()), None)
    if file is None:
        return f"no script {words[0]}"
    beside = file.parent.glob("*.py") if file.name == "__main__.py" else [ROOT / "benchmarks/common.py"]
    source = "".join(path.read_text(encoding="utf-8") for path in (file, *beside))
    options = [word.split("=")[0] for word in words[1:] if word.startswith("--")]
    return next((f"no option {option}" for option in options if f'"{option}"' not in source), None)


FOUND = [
    command
    for page in dict.fromkeys(PAGES)
    for command in commands_of(page.relative_to(ROOT).as_posix(), page.read_text(encoding="utf-8"))
]


def test_every_command_that_a_page_names_exists() -> None:
    assert len(FOUND) > 50
    assert [f"{command}: {problem}" for command in FOUND if (problem := wrong(command))] == []


@pytest.mark.parametrize(
    "text",
    [
        "`python -m benchmarks.nothing`",
        "`python -m benchmarks.session --nothing`",
        "`python examples/nothing.py`",
        "`toktier nothing`",
        "`toktier inspect tokenizer.json\n--nothing`",
        "`make nothing`",
        "`pytest tests/nothing.py`",
        "```console\n$ pip install '.[nothing]'\n```",
        "```sh\nnothing at all\n```",
    ],
)
def test_a_command_that_does_not_exist_is_noticed(text: str) -> None:
    assert [wrong(command) for command in commands_of("page", text)] != [None]


ELSEWHERE = {"bench", "reproduce"}
"""Commands that take minutes, or a difference to replay: test_bench.py and test_reproduction.py run them."""


def quick(command: Command) -> str:
    """A command of ``toktier`` as the page has it, but in seconds and without a window."""
    words = [word for word in command.words if word not in {"--open", "--compare"}]
    if words[1] == "verify" and "--exhaustive" not in words:
        if "--seconds" in words:
            words[words.index("--seconds") + 1] = "1"
        else:
            words += ["--seconds", "1"]
    if words[1] == "demo":
        words += ["--characters", "20000"]
    return shlex.join(words)


def is_run(command: Command) -> bool:
    """Whether a command is run here. An engine that a page tells to write is not there."""
    if not command.block or command.words[0] != "toktier" or command.words[1] in ELSEWHERE:
        return False
    return "--engine" not in command.words or command.words[command.words.index("--engine") + 1] in NAMES


RUN = sorted({quick(command) for command in FOUND if is_run(command)})
"""What the pages show of the command line, each once."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """A folder with the files that the pages speak of."""
    place = tmp_path_factory.mktemp("user")
    for name in (
        "tokenizer.json",
        "path/to/tokenizer.json",
        "path/to/a/tokenizer.json",
        "path/to/model/tokenizer.json",
    ):
        (place / name).parent.mkdir(parents=True, exist_ok=True)
        (place / name).write_bytes(material.definition("toktier-mini"))
    ranks = (b"%s %d" % (base64.b64encode(bytes([byte])), byte) for byte in range(256))
    (place / "qwen.tiktoken").write_bytes(b"\n".join(ranks))
    text = "<|im_start|>user\nList the files.<|im_end|>\n" * 20
    for name in ("prompt.txt", "transcript.txt", "transcripts/one.txt", "transcripts/two.txt", "path/to/text.txt"):
        (place / name).parent.mkdir(parents=True, exist_ok=True)
        (place / name).write_text(text, encoding="utf-8")
    template = "{% for message in messages %}<|im_start|>{{ message.content }}<|im_end|>{% endfor %}"
    (place / "path/to/model/chat_template.jinja").write_text(template, encoding="utf-8")
    (place / "transcripts.jsonl").write_text('{"messages": [{"role": "user", "content": "Hi"}]}', encoding="utf-8")
    (place / "examples").symlink_to(ROOT / "examples")
    return place


@pytest.mark.parametrize("command", RUN)
def test_a_command_of_toktier_runs_as_the_page_has_it(command: str, folder: pathlib.Path) -> None:
    words = shlex.split(command)
    words = [found for word in words for found in (sorted(glob.glob(word, root_dir=folder)) if "*" in word else [word])]
    done = subprocess.run(
        [sys.executable, "-X", "utf8", "-m", *words],
        check=False,
        cwd=folder,
        capture_output=True,
        encoding="utf-8",
        timeout=300,
    )
    assert done.returncode == 0, done.stdout + done.stderr
