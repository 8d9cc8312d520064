"""The id array against plain lists: the same ids, views that never change, no memory and no copy too many."""

from __future__ import annotations

from collections.abc import Sequence

import hypothesis.strategies as st
import numpy as np
import numpy.typing as npt
import pytest
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from tests.allocating import allocated
from toktier.idarray import SPARE, IdArray

Ids = npt.NDArray[np.uint32]
id_lists = st.lists(st.sampled_from([0, 1, 7, 2**32 - 1]), max_size=5) | st.builds(range, st.integers(0, 400)).map(list)


def ids_of(values: Sequence[int]) -> Ids:
    return np.array(values, np.uint32)


def filled(values: Sequence[int], kind: type[IdArray] = IdArray) -> IdArray:
    array = kind()
    array.splice(0, 0, ids_of(values))
    return array


class Arrays(RuleBasedStateMachine):
    """A family of forks, each beside the list that it should hold, and every view that was handed out."""

    def __init__(self) -> None:
        super().__init__()
        self.arrays: list[tuple[IdArray, list[int]]] = [(IdArray(), [])]
        self.handed_out: list[tuple[Ids, list[int]]] = []

    @rule(data=st.data(), ids=id_lists)
    def splice(self, data: st.DataObject, ids: list[int]) -> None:
        array, model = self.arrays[data.draw(st.integers(0, len(self.arrays) - 1))]
        start = data.draw(st.integers(0, len(model)))
        stop = data.draw(st.integers(start, len(model)) | st.integers(start, min(start + 3, len(model))))
        array.splice(start, stop, ids_of(ids))
        model[start:stop] = ids

    @rule(data=st.data(), ids=id_lists)
    def append(self, data: st.DataObject, ids: list[int]) -> None:
        array, model = self.arrays[data.draw(st.integers(0, len(self.arrays) - 1))]
        array.splice(len(array), len(array), ids_of(ids))
        model += ids

    @rule(data=st.data())
    def splice_a_view_of_another(self, data: st.DataObject) -> None:
        array, model = self.arrays[data.draw(st.integers(0, len(self.arrays) - 1))]
        other, inserted = self.arrays[data.draw(st.integers(0, len(self.arrays) - 1))]
        start = data.draw(st.integers(0, len(model)))
        array.splice(start, start, other.view()[:300])
        model[start:start] = inserted[:300]

    @rule(data=st.data())
    def view(self, data: st.DataObject) -> None:
        array, model = self.arrays[data.draw(st.integers(0, len(self.arrays) - 1))]
        self.handed_out.append((array.view(), model.copy()))

    @rule()
    def drop_the_views(self) -> None:
        self.handed_out.clear()

    @rule(data=st.data())
    def fork(self, data: st.DataObject) -> None:
        array, model = self.arrays.pop(data.draw(st.integers(0, len(self.arrays) - 1)))
        self.arrays = [*self.arrays[-2:], (array, model), (array.fork(), model.copy())]

    @invariant()
    def the_ids_are_those_of_the_model(self) -> None:
        for array, model in self.arrays:
            assert len(array) == len(model)
            assert array.window(0, len(model)).tolist() == model

    @invariant()
    def what_was_handed_out_is_as_it_was(self) -> None:
        for view, copy in self.handed_out:
            assert view.tolist() == copy

    @invariant()
    def memory_is_at_most_five_bytes_an_id(self) -> None:
        for array, model in self.arrays:
            assert 4 * len(model) <= array.nbytes <= 5 * len(model) + 16 * SPARE
            assert array.nbytes == array._buffer.nbytes


TestAnyProgramGivesWhatListsGive = Arrays.TestCase


class NoCopyOnWrite(IdArray):
    """Forgets what was handed out."""

    def splice(self, start: int, stop: int, ids: Ids) -> None:
        self._shown = 0
        super().splice(start, stop, ids)


class ForkWithSpareRoom(IdArray):
    """Lets a fork write behind the content of a buffer that it shares."""

    def fork(self) -> IdArray:
        other = super().fork()
        other._buffer, other._capacity = self._buffer, self._capacity
        return other


def view_survives_a_splice(kind: type[IdArray]) -> bool:
    array = filled(range(100), kind)
    view = array.view()
    array.splice(10, 20, ids_of(range(1_000, 1_010)))
    assert array.window(9, 21).tolist() == [9, *range(1_000, 1_010), 20]
    return np.array_equal(view, range(100))


def forks_append_apart(kind: type[IdArray]) -> bool:
    array = filled(range(100), kind)
    other = array.fork()
    array.splice(100, 100, ids_of([1]))
    other.splice(100, 100, ids_of([2]))
    return np.array_equal(array.window(99, 101), [99, 1]) and np.array_equal(other.window(99, 101), [99, 2])


def test_a_view_never_changes() -> None:
    assert view_survives_a_splice(IdArray)


def test_a_view_would_change_without_copy_on_write() -> None:
    assert not view_survives_a_splice(NoCopyOnWrite)


def test_forks_never_write_the_same_cells() -> None:
    assert forks_append_apart(IdArray)


def test_forks_would_write_the_same_cells_if_both_had_the_spare_room() -> None:
    assert not forks_append_apart(ForkWithSpareRoom)


def test_a_view_is_read_only_and_shares_memory() -> None:
    array = filled([1, 2, 3])
    view = array.view()
    assert view.dtype == np.uint32
    assert np.shares_memory(view, array.view())
    with pytest.raises(ValueError, match="read-only"):
        view[0] = 5


def test_only_a_splice_before_the_end_of_a_view_copies() -> None:
    array = filled(range(100_000))
    buffer = array._buffer
    view = array.view()
    array.splice(100_000, 100_000, ids_of(range(50)))
    array.splice(100_010, 100_020, ids_of([]))
    assert array._buffer is buffer
    array.splice(99_999, 100_000, ids_of([7]))
    assert array._buffer is not buffer
    buffer = array._buffer
    array.splice(0, 1, ids_of([5]))
    assert array._buffer is buffer, "one copy is enough: the new buffer was not handed out"
    assert view.tolist() == list(range(100_000))
    assert array.window(0, 1).tolist() == [5]


def test_a_buffer_that_nobody_saw_grows_in_place() -> None:
    array = filled(range(10))
    wanted, buffer = list(range(10)), id(array._buffer)
    for n in range(2_000):
        array.splice(len(array), len(array), ids_of([n] * 30))
        wanted += [n] * 30
    assert id(array._buffer) == buffer
    assert array.view().tolist() == wanted


def test_a_buffer_that_was_handed_out_is_not_resized() -> None:
    array = filled(range(10))
    array.view()  # and let go: numpy's own check of references would allow it
    size, buffer = array.nbytes // 4, id(array._buffer)
    array.splice(10, 10, ids_of(range(size)))
    assert id(array._buffer) != buffer


def test_growth_is_amortised() -> None:
    array = IdArray()
    sizes = set()
    for _ in range(10_000):
        array.splice(len(array), len(array), ids_of(range(20)))
        sizes.add(array.nbytes)
    assert len(sizes) < 150


def test_a_forgotten_window_keeps_its_memory() -> None:
    array = filled(range(100))
    window = array.window(0, 100)
    array.splice(100, 100, ids_of(range(100_000)))
    assert window.tolist() == list(range(100))
    assert len(array) == 100_100


def test_a_splice_in_the_middle_moves_without_a_temporary() -> None:
    array = filled(np.arange(4_000_000).tolist())
    new = ids_of([1, 2, 3, 4])
    _, peak = allocated(lambda: array.splice(5, 7, new))
    assert peak < 10_000
    assert np.array_equal(array.view()[9:], np.arange(7, 4_000_000, dtype=np.uint32))


@pytest.mark.parametrize("handed_out", [False, True])
def test_a_huge_deletion_gives_the_memory_back(handed_out: bool) -> None:
    array = IdArray()

    def build_and_delete() -> None:
        array.splice(0, 0, np.ones(4_000_000, np.uint32))
        if handed_out:
            array.view()
        array.splice(1_000, 4_000_000, ids_of([]))

    held, _ = allocated(build_and_delete)
    assert held <= 10_000
    assert array.nbytes <= 5 * 1_000 + 16 * SPARE


@pytest.mark.parametrize("handed_out", [False, True])
@pytest.mark.parametrize("start", [50, 100])
def test_a_splice_that_runs_out_of_memory_changes_nothing(handed_out: bool, start: int) -> None:
    array = filled(range(100))
    if handed_out:
        array.view()
    endless = np.broadcast_to(np.uint32(0), 1 << 52)
    with pytest.raises(MemoryError):
        array.splice(start, 100, endless)
    assert array.view().tolist() == list(range(100))
    array.splice(100, 100, ids_of([1]))
    assert array.view().tolist() == [*range(100), 1]
