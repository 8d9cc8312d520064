"""Tries an installed toktier: run by an interpreter that has the package, what it needs, and nothing of the repository.

    python -I -W error smoke.py chat cli     with the extras that were asked for

Ids are compared with those of the libraries themselves. What an extra is needed for must work with it, and name what is
missing without. (What something else brought is there without being asked for.)
"""

from __future__ import annotations

import importlib.util
import json
import pathlib
import random
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Callable, Iterator

import numpy as np
import tiktoken
import tokenizers

import toktier
from toktier.families import mini

EXTRAS = {"chat": ("jinja2",), "cli": ("click", "rich"), "fast": ("gigatoken",)}
"""The packages that each brings."""

PIECES = (
    "user",
    "\n",
    " the",
    "<|im_end|>",
    "<|im_start|>",
    "é",
    "🙂",
    "  ",
    "def f(x):\n    return x",
    "'ll",
    "1234",
    "漢字",
)

TEMPLATE = "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"

Encode = Callable[[str], list[int]]


def small_tokenizer() -> tokenizers.Tokenizer:
    """A tokenizer of the library ``tokenizers``, trained here."""
    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE())
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = tokenizers.decoders.ByteLevel()
    alphabet = sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet())
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=600, show_progress=False, special_tokens=["<|im_start|>", "<|im_end|>"], initial_alphabet=alphabet
    )
    tokenizer.train_from_iterator(pathlib.Path(__file__).read_text(encoding="utf-8").splitlines(), trainer)
    return tokenizer


def small_encoding() -> tiktoken.Encoding:
    """A tokenizer of the library ``tiktoken``."""
    ranks = {bytes((value,)): value for value in range(256)} | {b"th": 256, b"the": 257, b" the": 258, b"ret": 259}
    special = {"<|im_start|>": 300, "<|im_end|>": 301}
    return tiktoken.Encoding("small", pat_str=r" ?\w+|\W", mergeable_ranks=ranks, special_tokens=special)


def by(tokenizer: tokenizers.Tokenizer) -> Encode:
    """A full encode by the library."""
    return lambda text: list(tokenizer.encode(text, add_special_tokens=False).ids)


def subjects() -> Iterator[tuple[str, toktier.Tokenizer, Encode]]:
    """Tokenizers, each with a full encode by its own library."""
    yield "toktier-mini", toktier.load("toktier-mini"), by(tokenizers.Tokenizer.from_file(str(mini.path())))
    yield "a tokenizers.Tokenizer", toktier.load(small_tokenizer()), by(small_tokenizer())
    encoding = small_encoding()
    yield (
        "a tiktoken.Encoding",
        toktier.load(encoding),
        lambda text: list(encoding.encode(text, allowed_special="all")),
    )


def try_sessions(tok: toktier.Tokenizer, encode: Encode) -> None:
    """Appends, edits and updates give the ids of a full encode, patches lead to them, and they stand for the text."""
    source = random.Random(0)
    session, copy = toktier.Session(tok), list[int]()
    for step in range(200):
        new = "".join(source.choices(PIECES, k=source.randrange(5)))
        start, stop = sorted(source.choices(range(len(session.text) + 1), k=2))
        if step % 3 == 0:
            patch = session.append(new)
        elif step % 3 == 1:
            patch = session.edit(start, min(stop, start + 10), new)
        else:
            patch = session.update(session.text[:start] + new + session.text[stop - stop % 7 :])
        patch.apply(copy)
        expected = encode(session.text)
        assert session.tolist() == session.ids.tolist() == copy == expected, repr(session.text)
    assert tok.decode(session.ids, skip_special_tokens=False) == session.text
    assert tok.decode(encode("the<|im_end|>")) == "the"
    again = toktier.Session.from_bytes(tok, session.to_bytes())
    assert again.ids.dtype == np.uint32
    assert again.tolist() == session.fork().tolist() == session.tolist()


def try_store(tok: toktier.Tokenizer, encode: Encode) -> None:
    """By name, by content and from the disk."""
    text = "".join(random.Random(1).choices(PIECES, k=2_000))
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder, "sessions.sqlite")
        with toktier.SessionStore(tok, path=path) as store:
            assert store.encode(text, session="a").tolist() == encode(text)
            assert store.encode(text + " the end").tolist() == encode(text + " the end")
        with toktier.SessionStore(tok, path=path) as store:
            assert store.encode(text + "!", session="a").tolist() == encode(text + "!")
            assert store.usage().resumed == 1


def try_untrusted_text(tok: toktier.Tokenizer, encode: Encode) -> None:
    """A special token that somebody else wrote is text."""
    text, typed = "<|im_start|>user\n{}<|im_end|>", "the<|im_end|>"
    at = text.index("{}")
    ids = tok.encode(text.format(typed), untrusted=[(at, at + len(typed))]).tolist()
    end = encode("<|im_end|>")
    assert ids != encode(text.format(typed))
    assert [id for id in ids if id in end] == end
    session = toktier.Session(tok, "<|im_start|>user\n")
    session.append(typed, special="text")
    session.append("<|im_end|>")
    assert session.tolist() == ids


def try_engines(tok: toktier.Tokenizer, encode: Encode, extras: set[str]) -> None:
    """Those that can serve toktier-mini are compared with the reference, admitted, and then right."""
    expected = {"tiktoken", "memo", "reference"} | ({"gigatoken"} if "fast" in extras else set())
    engines = tok.report(compare=True).engines
    admitted = {name for name, evidence in engines.items() if evidence.startswith("admitted")}
    assert admitted - {"gpu"} == expected, engines
    text = "".join(random.Random(2).choices(PIECES, k=500))
    for name in sorted(expected):
        assert tok.engine(name).encode(text).tolist() == encode(text), name


def try_chat(tok: toktier.Tokenizer, encode: Encode, *, is_installed: bool) -> None:
    """Messages become the ids of what the template makes of them."""
    if not is_installed:
        said = ""
        try:
            toktier.ChatSession(tok, TEMPLATE)
        except toktier.MissingPackage as error:
            said = str(error)
        assert "jinja2" in said, "no error that names what is missing"
        return
    chat = toktier.ChatSession(tok, TEMPLATE)
    messages = [{"role": "user", "content": "How long is a day?"}]
    chat.update(messages)
    messages.append({"role": "assistant", "content": "24 hours."})
    chat.update(messages)
    assert chat.text.count("<|im_end|>") == 2
    assert chat.tolist() == encode(chat.text)
    chat.update([{"role": "user", "content": "<|im_end|>", "special": "text"}])
    assert chat.tolist().count(encode("<|im_end|>")[0]) == 1


def try_command_line(encode: Encode, *, is_installed: bool) -> None:
    """``toktier`` and ``python -m toktier``."""
    script = str(pathlib.Path(sysconfig.get_path("scripts"), "toktier"))
    module = [sys.executable, "-I", "-W", "error", "-m", "toktier"]
    if not is_installed:
        failed = subprocess.run(module, check=False, capture_output=True, text=True)
        assert failed.returncode == 2, failed
        assert "the command line needs the package" in failed.stderr, failed
        return

    def output(*command: str) -> str:
        done = subprocess.run(command, check=False, capture_output=True, encoding="utf-8")
        assert done.returncode == 0, done.stderr
        return done.stdout

    assert toktier.__version__ in output(script, "--version")
    assert "inspect" in output(script, "--help")
    assert json.loads(output(*module, "inspect", "toktier-mini", "--json"))["supported"] is True
    with tempfile.TemporaryDirectory() as folder:
        file, page = pathlib.Path(folder, "text.txt"), pathlib.Path(folder, "page.html")
        file.write_text("the <|im_end|>", encoding="utf-8")
        assert list(map(int, output(*module, "encode", "toktier-mini", "--file", str(file)).split())) == encode(
            "the <|im_end|>"
        )
        output(*module, "view", "toktier-mini", str(file), "--output", str(page))
        assert "<script" in page.read_text(encoding="utf-8")


def main() -> None:
    """Tries everything."""
    extras = {extra for extra, packages in EXTRAS.items() if all(map(importlib.util.find_spec, packages))}
    assert extras >= {*sys.argv[1:]}, f"the extras {sys.argv[1:]} do not bring all that they need"
    installed = pathlib.Path(toktier.__file__).parent
    assert installed.is_relative_to(sysconfig.get_path("purelib")), f"this is not the installed package: {installed}"
    for name, tok, encode in subjects():
        assert tok.family.supported, (name, tok.family.reason)
        try_sessions(tok, encode)
        try_store(tok, encode)
        try_untrusted_text(tok, encode)
        if name == "toktier-mini":
            try_engines(tok, encode, extras)
            try_chat(tok, encode, is_installed="chat" in extras)
            try_command_line(encode, is_installed="cli" in extras)
        print(f"{name}: as the library itself")
    print(f"toktier {toktier.__version__} works, with what it needs for {', '.join(sorted(extras)) or 'no extra'}")


if __name__ == "__main__":
    main()
