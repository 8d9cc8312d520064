"""What probing says about characters, against the library asked about one at a time; and the cache on disk."""

from __future__ import annotations

import functools
import itertools
import json
import multiprocessing
import pathlib
import random
import threading
from collections.abc import Callable

import numpy as np
import pytest
import tokenizers
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken, Regex, models, normalizers, pre_tokenizers

from toktier.families.probing import CODE_POINTS, DiskCache, Probe, Runs, every_character
from toktier.families.syntax import Behavior

PROBE = Probe(DiskCache(None))


def listed(runs: Runs) -> set[int]:
    return {c for start, stop in runs.reshape(-1, 2).tolist() for c in range(start, stop)}


def drawn(members: set[int]) -> list[str]:
    """Some hundred characters: drawn from everywhere, from the members, and from both sides of their edges."""
    chooser = random.Random(1)
    edges = [c + step for c in members for step in (-1, 1) if c + step not in members]
    few = [chooser.sample(sorted(pool), min(len(pool), 150)) for pool in (range(CODE_POINTS), members, edges)]
    return [chr(c) for each in few for c in each if 0 <= c < CODE_POINTS and not 0xD800 <= c < 0xE000]


CLASSES = [
    *("a", "[a-c]", "[^a]", ".", "(?m:.)", r"\s", r"\S", r"\w", r"\d", r"\h", r"\p{L}", r"\P{L}", r"\p{M}", r"\p{N}"),
    *(
        r"\p{Lu}",
        r"\p{Han}",
        r"[\p{L}&&[^\p{Lu}]]",
        r"[^\s\p{L}\p{N}]",
        "[[:punct:]]",
        "(?i:s)",
        "(?i:k)",
        "(?i:[a-z])",
    ),
    *(r"\x{0}", r"\n", "😀", r"[\x{10FFFE}\x{10FFFF}]"),
]


@pytest.mark.parametrize("source", CLASSES)
def test_members_are_the_characters_that_match_one_by_one(source: str) -> None:
    members = listed(PROBE.members(source))
    split = pre_tokenizers.Split(Regex(source), "removed")
    for character in drawn(members):
        assert (ord(character) in members) == (split.pre_tokenize_str(character) == [])


@pytest.mark.parametrize("source", ["a", r"\p{L}", "(?m:.)", "[a&&b]"])
def test_members_are_given_as_ascending_edges(source: str) -> None:
    runs = PROBE.members(source)
    assert runs.dtype == np.int64
    assert len(runs) % 2 == 0
    assert (np.diff(runs) > 0).all()
    assert not listed(runs) & set(range(0xD800, 0xE000))


def test_every_character_is_there_once() -> None:
    assert every_character() == "".join(chr(c) for c in range(CODE_POINTS) if not 0xD800 <= c < 0xE000)


@pytest.mark.parametrize(
    ("name", "behavior", "there", "not_there"),
    [
        ("Digits", Behavior.APART, "0٣½", "a !"),
        ("Whitespace", Behavior.DROPPED, " \n\u3000", "a!\u200b"),
        ("Whitespace", Behavior.JOINED, "é中_0\u0301", "! "),
        ("Whitespace", Behavior.APART, "!。€", "a "),
        ("WhitespaceSplit", Behavior.DROPPED, " \n\u3000", "a!\u200b"),
        ("Punctuation", Behavior.APART, "!$。", "a €"),
        ("BertPreTokenizer", Behavior.APART, "!$。", "a €"),
        ("BertPreTokenizer", Behavior.DROPPED, " \u3000", "a!"),
    ],
)
def test_what_a_pre_tokenizer_does_with_each_character(
    name: str, behavior: Behavior, there: str, not_there: str
) -> None:
    found, split = listed(PROBE.behaving(name, behavior)), getattr(pre_tokenizers, name)()
    for character in {*drawn(found), *there, *not_there}:
        pieces = [piece for piece, _ in split.pre_tokenize_str(f"a{character}a")]
        expected = Behavior.DROPPED if character not in "".join(pieces) else Behavior.APART
        if pieces == [f"a{character}a"]:
            expected = Behavior.JOINED
        assert (ord(character) in found) == (expected is behavior)
    assert {*map(ord, there)} <= found
    assert not {*map(ord, not_there)} & found


def test_scripts_are_those_of_the_pre_tokenizer() -> None:
    of_any, *scripts = map(listed, PROBE.scripts())
    split = pre_tokenizers.UnicodeScripts()
    number = {point: i for i, points in enumerate(scripts) for point in points}
    assert {*map(ord, " 1!\u0301")} <= of_any | number.keys()
    for left, right in itertools.product("aZяΩ中かカ한अ", repeat=2):
        parted = len(split.pre_tokenize_str(left + right)) == 2
        assert parted == (number[ord(left)] != number[ord(right)]), (left, right)
    for character in drawn(of_any):
        joined = all(len(split.pre_tokenize_str(letter + character + letter)) == 1 for letter in "aя")
        assert joined == (ord(character) in of_any)


def test_what_is_trimmed_is_what_strip_takes() -> None:
    trimmed, strip = listed(PROBE.trimmed()), normalizers.Strip()
    for character in drawn(trimmed):
        assert (ord(character) in trimmed) == (strip.normalize_str(f"{character}a{character}") == "a")


def test_what_is_in_a_cluster_with_any_letter() -> None:
    appended, prepended = PROBE.clusters()
    assert {0x0301, 0x200D, 0x0903} <= {*appended}
    assert {0x0600, 0x0D4E} <= {*prepended}
    assert not {*map(ord, "a \n한अ😀")} & ({*appended} | {*prepended})


def test_whitespace_is_what_added_tokens_strip() -> None:
    whitespace = listed(PROBE.whitespace())
    tokenizer = tokenizers.Tokenizer(models.BPE())
    tokenizer.add_tokens([AddedToken("<l>", lstrip=True)])
    for character in drawn(whitespace):
        (encoded,) = tokenizer.encode(f"{character}<l>").offsets
        assert (ord(character) in whitespace) == (encoded == (0, 4))
    assert {*map(ord, " \t\n\r\x85\xa0\u2028\u3000")} <= whitespace
    assert ord("\u200b") not in whitespace


@pytest.mark.parametrize("name", ["NFC", "NFD", "NFKC", "NFKD", "Lowercase"])
def test_changes_are_what_the_normalizer_does_to_single_characters(name: str) -> None:
    changes = PROBE.changes(name)
    normalizer = getattr(normalizers, name)()
    for character in drawn(set(changes)):
        assert changes.get(ord(character), character) == normalizer.normalize_str(character)


@functools.cache
def moved_by() -> dict[str, set[int]]:
    """Marks, each with the characters that change places with it in NFD, when one or the other stands first."""
    marks = "\u0334\u093c\u094d\u05b0\u064b\u0e38\u0327\u0323\u0301\u035c\u035d\u0345"
    kept = [c for c in drawn(listed(PROBE.combining())) if ord(c) not in PROBE.changes("NFD")]
    normalize = normalizers.NFD().normalize_str
    return {m: {ord(c) for c in kept if normalize(m + c) != m + c or normalize(c + m) != c + m} for m in marks}


def test_combining_are_the_characters_that_canonical_order_moves() -> None:
    combining = listed(PROBE.combining())
    moved = set[int]().union(*moved_by().values())
    assert moved <= combining
    assert {ord(c) for c in drawn(combining) if ord(c) in combining} <= moved
    assert {*map(ord, moved_by())} <= combining
    assert not {*map(ord, "aé中가\u1161\u0bbe\u09be\u200d ")} & combining


@pytest.mark.parametrize(
    ("sequences", "alike"),
    [(["st"], "ﬅﬆ"), (["ss"], "ßẞ"), (["ff"], "ﬀ"), (["fi", "fl"], "ﬁﬂ"), (["ab", "ll", "re"], ""), (["ffi"], "ﬃ")],
)
def test_lookalikes_are_the_single_characters_that_a_sequence_matches(sequences: list[str], alike: str) -> None:
    found = listed(PROBE.lookalikes(sequences))
    assert found == {*map(ord, alike)}
    split = pre_tokenizers.Split(Regex(f"(?i:{'|'.join(sequences)})"), "removed")
    for character in (*map(chr, range(1, 0x250)), *map(chr, range(0x1E00, 0x2000)), *map(chr, range(0xFB00, 0xFB50))):
        assert (ord(character) in found) == (split.pre_tokenize_str(character) == [])


# The cache


def never() -> int:
    raise AssertionError("it was on disk")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    return tmp_path_factory.mktemp("cache")


def only_file(folder: pathlib.Path) -> pathlib.Path:
    (file,) = folder.iterdir()
    return file


def test_an_answer_is_worked_out_once_and_found_by_the_next_process(tmp_path: pathlib.Path) -> None:
    cache = DiskCache(tmp_path / "new" / "folder")
    assert cache.get(["how many", 1], lambda: [1, 2, 3]) == [1, 2, 3]
    assert cache.get(["how many", 1], never) == [1, 2, 3]
    assert DiskCache(tmp_path / "new" / "folder").get(["how many", 1], never) == [1, 2, 3]
    assert DiskCache(tmp_path / "new" / "folder").get(["how many", "1"], lambda: 4) == 4


@given(st.recursive(st.none() | st.booleans() | st.integers() | st.text(), st.lists), st.text())
@settings(max_examples=50)
def test_any_answer_comes_back_as_it_was(folder: pathlib.Path, answer: object, question: str) -> None:
    DiskCache(folder).get([question, answer], lambda: answer)
    assert DiskCache(folder).get([question, answer], never) == answer


DAMAGE: dict[str, Callable[[bytes], bytes]] = {
    "empty": lambda old: b"",
    "truncated": lambda old: old[: len(old) // 2],
    "last byte missing": lambda old: old[:-1],
    "not JSON": lambda old: b"\x00\xff" + old,
    "not UTF-8": lambda old: old.replace(b"how", b"h\xffw"),
    "deeply nested": lambda old: b"[" * 100_000,
    "a foreign list": lambda old: b"[1, 2]",
    "a foreign object": lambda old: b'{"answer": [7]}',
    "a foreign answer": lambda old: old.replace(b"[1, 2, 3]", b"[1, 2, 4]"),
    "no checksum": lambda old: json.dumps(json.loads(old) | {"sha256": None}).encode(),
    "the answer to another question": lambda old: old.replace(b"how many", b"how much"),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_file_that_is_damaged_or_foreign_is_ignored_and_written_anew(tmp_path: pathlib.Path, damage: str) -> None:
    DiskCache(tmp_path).get(["how many"], lambda: [1, 2, 3])
    file = only_file(tmp_path)
    good = file.read_bytes()
    file.write_bytes(DAMAGE[damage](good))
    assert file.read_bytes() != good
    assert DiskCache(tmp_path).get(["how many"], lambda: [1, 2, 3]) == [1, 2, 3]
    assert only_file(tmp_path).read_bytes() == good


@given(st.integers(0), st.integers(0, 255))
def test_whatever_byte_is_damaged_the_answer_is_right(folder: pathlib.Path, place: int, byte: int) -> None:
    folder = folder / "bytes"
    DiskCache(folder).get(["how many"], lambda: [1, 2, 3])
    file = only_file(folder)
    damaged = bytearray(file.read_bytes())
    damaged[place % len(damaged)] = byte
    file.write_bytes(damaged)
    assert DiskCache(folder).get(["how many"], lambda: [1, 2, 3]) == [1, 2, 3]
    assert DiskCache(folder).get(["how many"], never) == [1, 2, 3]


def test_an_answer_to_another_question_under_this_name_is_not_taken(tmp_path: pathlib.Path) -> None:
    DiskCache(tmp_path).get(["one"], lambda: 1)
    one = only_file(tmp_path)
    DiskCache(tmp_path).get(["two"], lambda: 2)
    (two,) = set(tmp_path.iterdir()) - {one}
    two.write_bytes(one.read_bytes())
    assert DiskCache(tmp_path).get(["two"], lambda: 2) == 2
    assert DiskCache(tmp_path).get(["two"], never) == 2


def test_a_directory_that_cannot_be_used_costs_time_and_nothing_else(tmp_path: pathlib.Path) -> None:
    (tmp_path / "file").write_text("no directory")
    for place in (tmp_path / "file", tmp_path / "file" / "inside"):
        assert DiskCache(place).get(["one"], lambda: 1) == 1
        assert DiskCache(place).get(["one"], lambda: 2) == 2, "nothing was stored"
    assert (tmp_path / "file").read_text() == "no directory"


def test_without_a_directory_nothing_is_stored_but_an_answer_is_remembered(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    cache = DiskCache(None)
    assert cache.get(["one"], lambda: 1) == 1
    assert cache.get(["one"], never) == 1
    assert list(tmp_path.iterdir()) == []


def test_a_computation_that_fails_leaves_nothing_behind(tmp_path: pathlib.Path) -> None:
    with pytest.raises(AssertionError):
        DiskCache(tmp_path).get(["one"], never)
    assert list(tmp_path.iterdir()) == []


def write_again_and_again(folder: pathlib.Path, rounds: int) -> None:
    for i in [*range(20)] * rounds:
        assert DiskCache(folder).get([i], lambda: [i] * 5_000) == [i] * 5_000  # noqa: B023
        for file in folder.glob("*.json"):  # so that there is always something to write
            if file.name < "3":
                file.unlink(missing_ok=True)


def test_processes_and_threads_that_write_at_once_never_show_a_broken_file(tmp_path: pathlib.Path) -> None:
    spawn = multiprocessing.get_context("spawn")
    processes = [spawn.Process(target=write_again_and_again, args=(tmp_path, 5)) for _ in range(2)]
    threads = [threading.Thread(target=write_again_and_again, args=(tmp_path, 5)) for _ in range(4)]
    workers: list[multiprocessing.process.BaseProcess | threading.Thread] = [*processes, *threads]
    for worker in workers:
        worker.start()
    looks = 0
    while any(worker.is_alive() for worker in workers):
        for file in tmp_path.glob("*.json"):
            try:
                stored = json.loads(file.read_bytes())["answer"]
            except FileNotFoundError:
                continue
            assert len(stored) == 5_000
            looks += 1
    for worker in workers:
        worker.join()
    assert looks
    assert [process.exitcode for process in processes] == [0, 0]
    assert {file.suffix for file in tmp_path.iterdir()} == {".json"}


def test_the_answers_of_a_probe_are_kept_per_library_version(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = Probe(DiskCache(tmp_path)).members("[a-c]")
    assert first.tolist() == [97, 100]
    assert len(list(tmp_path.iterdir())) == 1
    monkeypatch.setattr(tokenizers, "__version__", "0.0.0")
    assert Probe(DiskCache(tmp_path)).members("[a-c]").tolist() == [97, 100]
    assert len(list(tmp_path.iterdir())) == 2
