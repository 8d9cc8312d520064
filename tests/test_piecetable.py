"""The piece table against plain strings: the same text, few pieces, little memory, no copy of the whole."""

from __future__ import annotations

from itertools import pairwise
from unittest.mock import patch

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from tests.allocating import allocated
from toktier import piecetable
from toktier.piecetable import PieceTable

# One character of every width that CPython stores (1, 1, 2, 4 bytes), and a lone surrogate.
ALPHABET = "ab\n\xe9\u4e2d\U0001f600\ud800"
texts = st.one_of(
    st.just(""),
    st.sampled_from(ALPHABET),
    st.text(ALPHABET, max_size=12),
    st.builds(lambda text, n: text * n, st.text(ALPHABET, max_size=3), st.integers(1, 40)),
)
million = 1_000_000


def span(table: PieceTable, data: st.DataObject) -> tuple[int, int]:
    """A valid range of positions, often empty, at the end or short."""
    start = data.draw(st.integers(0, len(table)) | st.just(len(table)))
    stop = data.draw(st.integers(start, len(table)) | st.integers(start, min(start + 3, len(table))))
    return start, stop


def whole(table: PieceTable) -> str:
    """The text, read without the collapse that text() brings about."""
    return table.slice(0, len(table))


def common(a: str, b: str) -> int:
    """Length of the longest common prefix, character by character."""
    return next((n for n, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))


def unused(table: PieceTable) -> int:
    """Characters of the distinct sources beyond those of the text."""
    return sum({id(source): len(source) for source in table._sources}.values()) - len(table)


class Tables(RuleBasedStateMachine):
    """A family of tables, each beside the string that it should hold."""

    def __init__(self) -> None:
        super().__init__()
        self.tables = [(PieceTable(), "")]
        self.handed_out: list[tuple[str, bytes]] = []

    @rule(data=st.data(), text=texts)
    def splice(self, data: st.DataObject, text: str) -> None:
        table, model = self.tables.pop(data.draw(st.integers(0, len(self.tables) - 1)))
        start, stop = span(table, data)
        table.splice(start, stop, text)
        self.tables.append((table, model[:start] + text + model[stop:]))

    @rule(data=st.data())
    def delete_a_little(self, data: st.DataObject) -> None:
        table, model = self.tables.pop()
        start = data.draw(st.sampled_from([0, len(model) // 2, max(0, len(model) - 3)]))
        stop = min(start + data.draw(st.integers(1, 3)), len(model))
        table.splice(start, stop, "")
        self.tables.append((table, model[:start] + model[stop:]))

    @rule(text=texts)
    def append(self, text: str) -> None:
        table, model = self.tables.pop()
        table.splice(len(table), len(table), text)
        self.tables.append((table, model + text))

    @rule(data=st.data())
    def read(self, data: st.DataObject) -> None:
        table, model = self.tables[-1]
        start, stop = span(table, data)
        part = table.slice(start, stop)
        assert part == model[start:stop]
        assert start == len(model) or table[start] == model[start]
        self.handed_out.append((part, part.encode("utf-32", "surrogatepass")))

    @rule()
    def read_all(self) -> None:
        table, model = self.tables[-1]
        text = table.text()
        assert text == model
        assert table.text() is text
        self.handed_out.append((text, text.encode("utf-32", "surrogatepass")))

    @rule()
    def copy(self) -> None:
        table, model = self.tables[-1]
        self.tables = [*self.tables[-2:], (table.copy(), model)]

    @rule(text=texts)
    def replace_source(self, text: str) -> None:
        table, _ = self.tables.pop()
        table.replace_source(text)
        self.tables.append((table, text))

    @rule(data=st.data(), text=texts)
    def compare(self, data: st.DataObject, text: str) -> None:
        table, model = self.tables[-1]
        start, stop = span(table, data)
        other = model[:start] + text + model[stop:]
        prefix = common(model, other)
        assert table.common_prefix(other) == prefix
        limit = min(len(model), len(other)) - data.draw(st.sampled_from([0, prefix]))
        suffix = common(model[::-1], other[::-1])
        assert table.common_suffix(other, limit) == min(suffix, limit)

    @invariant()
    def the_text_is_that_of_the_model(self) -> None:
        for table, model in self.tables:
            assert len(table) == len(model)
            assert whole(table) == model

    @invariant()
    def pieces_are_few_and_unused_sources_bounded(self) -> None:
        for table, _ in self.tables:
            bounds = table._bounds
            assert len(table._sources) == len(table._lows) == len(bounds) - 1
            sizes = [high - low for low, high in pairwise(bounds)]
            assert 0 not in sizes
            assert all(max(pair) > piecetable.LIMIT // 2 for pair in pairwise(sizes))
            assert unused(table) <= table._garbage <= len(table) + piecetable.SLACK

    @invariant()
    def strings_that_were_handed_out_are_as_they_were(self) -> None:
        for text, copy in self.handed_out:
            assert text.encode("utf-32", "surrogatepass") == copy


@pytest.mark.parametrize(("limit", "block", "slack"), [(4096, 1 << 16, 1 << 16), (64, 16, 64), (8, 4, 8), (0, 1, 0)])
def test_any_program_gives_what_plain_strings_give(limit: int, block: int, slack: int) -> None:
    with patch.multiple(piecetable, LIMIT=limit, BLOCK=block, SLACK=slack):
        run_state_machine_as_test(Tables, settings=settings(stateful_step_count=40))


@given(text=st.text(max_size=50), inserted=st.text(max_size=5), data=st.data())
def test_any_unicode_text_is_kept(text: str, inserted: str, data: st.DataObject) -> None:
    table = PieceTable(text)
    start, stop = span(table, data)
    table.splice(start, stop, inserted)
    assert table.text() == text[:start] + inserted + text[stop:]


@pytest.mark.parametrize("character", ["a", "\xe9", "\u4e2d", "\U0001f600"])
@pytest.mark.parametrize("at", [0, 1, 65_535, 65_536, 150_000, 299_998, 299_999])
def test_comparisons_find_the_one_difference_in_a_long_text(character: str, at: int) -> None:
    text = (character + "bcde" * 2 + "f") * 30_000
    other = text[:at] + "\U0001f680" + text[at + 1 :]
    pieces = PieceTable()
    for start in range(0, len(text), 7_000):
        pieces.splice(len(pieces), len(pieces), text[start : start + 7_000])
    spans = PieceTable("<" + text + ">")
    spans.splice(0, 1, "")
    spans.splice(len(text), len(text) + 1, "")
    for table in (PieceTable(text), pieces, spans):
        assert table.common_prefix(other) == at
        assert table.common_suffix(other, len(text)) == len(text) - at - 1
        assert table.common_prefix(text) == table.common_suffix(text, len(text)) == len(text)
        assert table.common_prefix(text[:at]) == at
        assert table.common_suffix(text[at:], len(text) - at) == len(text) - at


def test_a_whole_string_is_shared_and_never_copied() -> None:
    text = "x" * million
    table = PieceTable(text)
    copied = table.copy()
    assert table.text() is text
    assert copied.text() is text
    other = "".join(["y", text])
    table.replace_source(other)
    assert table.text() is other
    assert copied.text() is text


@pytest.mark.parametrize("step", [2_000, 4 * million], ids=["many pieces", "one piece"])
@pytest.mark.parametrize("inserted", ["", "x", "\U0001f600 0123456"])
def test_an_edit_of_a_long_text_allocates_little(step: int, inserted: str) -> None:
    text = "0123456789" * 400_000
    table = PieceTable()
    for start in range(0, len(text), step):
        table.splice(len(table), len(table), text[start : start + step])
    table.splice(0, 0, "z" * 3)  # so that the lists have room, and what is seen below is the edit alone
    place = 2 * million
    for _ in range(2):
        _, peak = allocated(lambda: table.splice(len(table), len(table), "the end"))
        assert peak < 100_000
        _, peak = allocated(lambda: table.splice(place, place + 7, inserted))
        assert peak < 100_000
    edited = text[: place - 3] + inserted + (inserted + text[place + 4 :])[7:]
    assert table.text() == "zzz" + edited + "the end" * 2
    # What it would be otherwise.
    _, peak = allocated(lambda: text[:place] + inserted + text[place + 7 :])
    assert peak > 2 * million


def left_after_deletion(kept: range) -> int:
    """Bytes held by a table of four million characters after all but `kept` was deleted."""
    table = PieceTable()

    def build_and_delete() -> None:
        table.replace_source("0123456789" * 400_000)
        table.splice(kept.stop, len(table), "")
        table.splice(0, kept.start, "")

    held, _ = allocated(build_and_delete)
    assert whole(table) == "0123456789" * (len(kept) // 10)
    assert table.nbytes_overhead() >= held - len(kept)
    return held


@pytest.mark.parametrize("kept", [range(0), range(9_000), range(2 * million, 2 * million + 9_000)])
def test_a_huge_deletion_gives_the_memory_back(kept: range) -> None:
    assert left_after_deletion(kept) < 2 * len(kept) + 2_000


def test_without_a_limit_on_unused_sources_a_small_rest_holds_them_all() -> None:
    with patch.object(piecetable, "SLACK", 1 << 40):
        assert left_after_deletion(range(9_000)) > 4 * million


def test_a_copy_gives_memory_back_as_well() -> None:
    table = PieceTable("0123456789" * 26_000)
    table.splice(100_000, len(table), "")
    assert unused(table) == 160_000
    copied = table.copy()
    copied.splice(0, 3_000, "")
    assert unused(table) == 160_000
    assert unused(copied) == 0


class Counting(PieceTable):
    """Counts the looks for unused sources, and the characters that collapses copy."""

    __slots__ = ("copied", "looks")

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.copied = self.looks = 0

    def _reclaim(self) -> None:
        self.looks += 1
        super()._reclaim()

    def text(self) -> str:
        self.copied += len(self)
        return super().text()


@pytest.mark.parametrize("size", [1, 100, 5_000])
@pytest.mark.parametrize("end", ["head", "middle", "tail"])
def test_collapses_cost_no_more_than_the_deletions(size: int, end: str) -> None:
    table = Counting("0123456789" * 30_000)
    length = len(table)
    for _ in range(min(3_000, length // size)):
        start = {"head": 0, "middle": len(table) // 2, "tail": len(table) - size}[end]
        table.splice(start, start + size, "")
    assert table.copied <= 2 * (length - len(table))
    assert unused(table) <= len(table) + piecetable.SLACK


def test_typing_in_the_middle_never_collapses() -> None:
    table = Counting("0123456789" * 10_000)
    for i in range(3_000):
        table.splice(50_000 + i, 50_000 + i, "x")
    assert table.copied == 0
    assert len(table._sources) == 4, "what was before, two pieces of typed text, what was after"
    assert table.slice(49_999, 53_001) == "9" + "x" * 3_000 + "0"


def test_small_edits_just_below_the_limit_do_not_look_again_and_again() -> None:
    table = Counting("0123456789" * 30_000)
    table.splice(0, 182_200, "")
    assert unused(table) == 182_200 < len(table) + piecetable.SLACK < 184_000
    for _ in range(10_000):
        table.splice(50_000, 50_000, "x")
        table.splice(50_000, 50_001, "")
    assert table.looks == 1
    assert table.copied <= 118_000


def test_appending_to_what_a_deletion_left_of_a_long_text() -> None:
    table = PieceTable("0123456789" * 1_000)
    table.splice(3_000, len(table), "")
    table.splice(3_000, 3_000, "abc")
    assert whole(table) == "0123456789" * 300 + "abc"


def test_an_edit_stands_when_there_is_no_room_to_collapse() -> None:
    class Full(PieceTable):
        def text(self) -> str:
            raise MemoryError

    table = Full("0123456789" * 100_000)
    table.splice(10_000, len(table), "")
    table.splice(5, 9_995, "-")
    assert whole(table) == "01234-56789"


def test_small_edits_are_merged() -> None:
    def pieces() -> int:
        table = PieceTable()
        for _ in range(1_000):
            table.splice(len(table), len(table), "x")
            table.splice(len(table) // 2, len(table) // 2, "y")
        assert len(table) == 2_000
        return len(table._sources)

    assert pieces() == 1
    with patch.object(piecetable, "LIMIT", 0):  # what it would be otherwise
        assert pieces() > 1_000


def test_overhead_counts_what_is_held_for_nothing() -> None:
    table = PieceTable("0123456789" * 100_000)
    assert table.nbytes_overhead() < 1_000
    table.splice(0, 300_000, "")
    assert 300_000 <= table.nbytes_overhead() < 301_000
    table.text()
    assert table.nbytes_overhead() < 1_000
    for _ in range(1_000):  # the same string many times is held once
        table.splice(len(table), len(table), "x" * 5_000)
    assert table.nbytes_overhead() < 100_000
