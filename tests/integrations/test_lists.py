from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from toktier.integrations import lists
from toktier.integrations.lists import Lists

ids = st.lists(st.integers(0, 3), max_size=40)


@pytest.fixture(autouse=True, scope="module")
def _short_lists_count() -> Any:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lists, "SHORTEST", 1)
        yield


@given(st.lists(ids, max_size=12), st.lists(st.tuples(st.integers(0, 11), st.integers(0, 40), ids), max_size=12))
def test_lists_are_those_of_the_ids_whatever_came_before(begun: list[list[int]], turns: list[Any]) -> None:
    kept, sessions = Lists(60 * lists.BYTES), [*begun, []]
    for which, keep, new in [*((k, 40, []) for k in range(len(begun))), *turns]:
        which %= len(sessions)  # noqa: PLW2901
        sessions[which] = sessions[which][:keep] + new
        found = kept.of(np.array(sessions[which], np.uint32))
        assert found == sessions[which]
        assert all(type(each) is int for each in found)
        found[:] = [9]  # its caller may do with it what he likes
        assert sum(len(held) for held, _ in kept._held) <= 60


def test_a_turn_takes_the_place_of_the_one_before() -> None:
    kept = Lists(1 << 20)
    for size in range(100, 200):
        kept.of(np.arange(size, dtype=np.uint32))
    assert len(kept) == 1
