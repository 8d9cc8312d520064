"""Reproductions: written once and whole, read back the same, and replayed with an engine that has seen nothing."""

from __future__ import annotations

import json
import lzma
import os
import pathlib
from collections.abc import Callable
from typing import Any

import pytest
import tokenizers
from attrs import evolve

import toktier
from tests import material, zoo
from toktier.campaign.operations import END, Change, Kind, Operation, append, cut, encode, plan
from toktier.campaign.programs import Problem
from toktier.campaign.reproduction import Reproduction
from toktier.engines.base import Engine, Ids
from toktier.errors import InvalidReproduction

MINI = material.load("toktier-mini")

PROGRAM = [
    append('A \x00 NUL, \U0001f600, \ue000, \U0010ffff, \u2028, \r\n, e\u0301 and "quotes"', look=True),
    Operation(Kind.EDIT, (Change(-3, END, "\ufeff"),), at=2),
    Operation(Kind.UPDATE, (Change(0, 2, ""), Change(5, 6, "two"))),
    Operation(Kind.FORK),
    Operation(Kind.REFUSED, (Change(0, 1, "x"),)),
    encode("alone"),
    plan("in chunks"),
    cut("cut everywhere"),
]
"""One operation of each kind, and characters that files lose."""

PROBLEM = Problem(6, Kind.ENCODE, "3 ids where the reference has 2", (1, 2), (1, 2, 3))

FOUND = Reproduction.of(MINI, "memo", PROGRAM, PROBLEM)


class Constant:
    """An engine that has one answer for everything."""

    name = "constant"

    def encode(self, text: str, *, continuation: bool = False) -> Ids:
        return MINI.encode("constant")

    def encode_batch(self, texts: object, *, continuation: bool = False) -> list[Ids]:
        raise NotImplementedError


def test_what_was_saved_is_read_back_the_same(tmp_path: pathlib.Path) -> None:
    assert {operation.kind for operation in PROGRAM} == set(Kind)
    file = FOUND.save(tmp_path / "made" / "on demand")
    assert Reproduction.load(file) == FOUND
    assert file.read_bytes().isascii()
    assert FOUND.message == f"operation 6, encode: {PROBLEM.message}"
    assert FOUND.position == 2
    assert FOUND.versions["tokenizers"] == tokenizers.__version__
    assert FOUND.versions["toktier"] == toktier.__version__


def test_the_folder_holds_the_tokenizer_once_and_each_problem_once(tmp_path: pathlib.Path) -> None:
    first = FOUND.save(tmp_path)
    written = first.stat().st_mtime_ns
    assert FOUND.save(tmp_path) == first
    assert evolve(FOUND, versions={"toktier": "another"}).save(tmp_path) == first
    assert first.stat().st_mtime_ns == written
    other = evolve(FOUND, engine=None).save(tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {
        first.name,
        other.name,
        f"tokenizer-{MINI.family.digest}.json.xz",
    }


def test_the_saved_tokenizer_is_the_tokenizer(tmp_path: pathlib.Path) -> None:
    FOUND.save(tmp_path)
    assert FOUND.load_tokenizer(tmp_path).family.digest == MINI.family.digest


def test_a_tokenizer_that_takes_special_tokens_for_text_is_restored_as_such(tmp_path: pathlib.Path) -> None:
    source = tokenizers.Tokenizer.from_str(zoo.build("gpt4").to_str())
    source.add_special_tokens(["<|end|>"])
    source.encode_special_tokens = True
    tok = material.registry().load(source)
    found = Reproduction.of(tok, None, [cut("<|end|>")], PROBLEM)
    found.save(tmp_path)
    restored = found.load_tokenizer(tmp_path)
    assert restored.family.digest == tok.family.digest
    assert restored.encode("<|end|>").tolist() == tok.encode("<|end|>").tolist() != [tok.encode("<|end|>")[0]]


def test_a_failed_write_leaves_nothing_behind(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*paths: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", full)
        with pytest.raises(OSError, match="No space"):
            FOUND.save(tmp_path)
    assert list(tmp_path.iterdir()) == []
    assert Reproduction.load(FOUND.save(tmp_path)) == FOUND


def test_what_goes_right_now_is_no_problem(tmp_path: pathlib.Path) -> None:
    assert FOUND.replay(MINI) is None


def test_a_given_engine_is_replayed_with() -> None:
    """The control of the one above: the comparison takes place."""
    problem = evolve(FOUND, operations=(encode("other"),)).replay(MINI, Constant())
    assert problem is not None
    assert problem.got == tuple(MINI.encode("constant").tolist())


def test_a_replay_takes_an_engine_that_has_seen_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    used, engines, real = MINI.engine("memo"), list[Engine](), toktier.Tokenizer.engine

    def watched(tok: toktier.Tokenizer, name: str = "auto") -> Engine:
        engines.append(real(tok, name))
        return engines[-1]

    monkeypatch.setattr(toktier.Tokenizer, "engine", watched)
    FOUND.replay(MINI)
    assert [engine.name for engine in engines].count("memo") == 1
    assert used not in engines


def test_an_engine_that_is_not_there_any_more_is_named() -> None:
    with pytest.raises(toktier.UnknownEngine, match="'gone'"):
        evolve(FOUND, engine="gone").replay(MINI)


def damaged(change: Callable[[dict[str, Any]], object], folder: pathlib.Path) -> pathlib.Path:
    content = json.loads(FOUND.save(folder).read_bytes())
    change(content)
    file = folder / "damaged.json"
    file.write_text(json.dumps(content))
    return file


@pytest.mark.parametrize(
    "change",
    [
        lambda content: content.pop("format"),
        lambda content: content.pop("operations"),
        lambda content: content.update(digest="../../etc/passwd"),
        lambda content: content.update(versions=3),
        lambda content: content.update(expected=["one"]),
        lambda content: content["operations"][0].update(kind="FORGET"),
        lambda content: content["operations"][0].update(changes=[[0, 1]]),
        lambda content: content["operations"][0].update(changes=[[0, 1, 2]]),
        lambda content: content["operations"][0].update(changes=[]),
    ],
)
def test_what_is_no_reproduction_is_refused_by_name(
    change: Callable[[dict[str, Any]], object], tmp_path: pathlib.Path
) -> None:
    with pytest.raises(InvalidReproduction, match=r"damaged\.json: not a reproduction, or a damaged one"):
        Reproduction.load(damaged(change, tmp_path))
    assert Reproduction.load(damaged(lambda content: None, tmp_path)) == FOUND  # the control


@pytest.mark.parametrize("content", [b"", b"\xff", b"[]", b"null", b"[" * 100_000])
def test_any_bytes_are_refused(content: bytes, tmp_path: pathlib.Path) -> None:
    file = tmp_path / "any.json"
    file.write_bytes(content)
    with pytest.raises(InvalidReproduction, match=r"any\.json: not a reproduction"):
        Reproduction.load(file)


def test_another_version_of_the_format_is_refused(tmp_path: pathlib.Path) -> None:
    with pytest.raises(InvalidReproduction, match="format 9"):
        Reproduction.load(damaged(lambda content: content.update(format=9), tmp_path))


def test_a_tokenizer_that_is_missing_or_damaged_is_named(tmp_path: pathlib.Path) -> None:
    with pytest.raises(InvalidReproduction, match="not there"):
        FOUND.load_tokenizer(tmp_path)
    FOUND.save(tmp_path)
    definition = tmp_path / f"tokenizer-{MINI.family.digest}.json.xz"
    definition.write_bytes(definition.read_bytes()[:-9])
    with pytest.raises(InvalidReproduction, match="damaged"):
        FOUND.load_tokenizer(tmp_path)
    definition.write_bytes(lzma.compress(b'{"model": {"type": "Future"}}'))
    with pytest.raises(toktier.InvalidDefinition, match="model"):
        FOUND.load_tokenizer(tmp_path)
    definition.write_bytes(b"damaged")
    with pytest.raises(InvalidReproduction, match="damaged"):
        FOUND.load_tokenizer(tmp_path)
