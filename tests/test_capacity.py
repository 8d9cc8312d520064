"""What a load needs: no more replicas than it takes, and enough when some are lost; and what is measured for that."""

from __future__ import annotations

import argparse

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.capacity import BUSY, SIZES, Costs, Load, chats, described, load_of, memory, need, served, starts, turns
from tests import material
from toktier import SessionStore

COSTS = Costs(
    session_bytes=2_800,
    character_bytes=3.3,
    resident=1.05,
    process_bytes=250e6,
    call_seconds=0.002,
    start_seconds=0.05,
)

LOADS = st.builds(
    Load,
    calls=st.floats(0.1, 20_000),
    characters=st.integers(10_000, 4_000_000),
    sessions=st.integers(1, 1_000_000),
    lost=st.integers(0, 4),
)


def busy(load: Load, replicas: int) -> tuple[float, float]:
    """Of a core, of those that are left: by the usual calls alone, and while sessions come back."""
    left = replicas - load.lost
    usual = load.calls * COSTS.call_seconds / left
    return usual, usual + load.calls / left * load.lost / replicas * COSTS.start_seconds


@given(LOADS)
def test_there_are_as_many_replicas_as_it_takes_and_no_more(load: Load) -> None:
    found = need(load, COSTS)
    usual, strained = busy(load, found.replicas)
    assert usual <= BUSY
    assert found.strained == pytest.approx(strained)
    assert strained <= 1
    if found.replicas > load.lost + 1:
        usual, strained = busy(load, found.replicas - 1)
        assert usual > BUSY or strained > 1


@given(LOADS)
def test_those_that_are_left_hold_all_sessions(load: Load) -> None:
    found = need(load, COSTS)
    bytes_each = COSTS.session_bytes + COSTS.character_bytes * load.characters
    # What a store may use for sessions is its budget less the part for short texts.
    assert (found.replicas - load.lost) * found.max_bytes * 15 / 16 >= load.sessions * bytes_each * (1 - 1e-9)
    assert found.memory >= COSTS.process_bytes + found.max_bytes


def test_where_no_replica_may_be_lost_no_session_begins_anew() -> None:
    found = need(Load(100, 100_000, 2_000, 0), COSTS)
    assert (found.replicas, found.started, found.work) == (1, 0, 0)
    assert found.strained == found.busy


def test_every_row_of_what_is_needed_is_shown_in_its_unit() -> None:
    load = Load(100, 100_000, 2_000, 1)
    found = need(load, COSTS)
    rows = {figure.what: figure for figure in described(load, found)}
    assert rows["max_bytes of each"].value == found.max_bytes / 1e6
    assert rows["cores' time for that"].value == pytest.approx(load.sessions / found.replicas * COSTS.start_seconds)
    assert rows["busy, of a core"].limit == BUSY


def test_transcripts_are_different_and_of_their_length() -> None:
    texts = chats(SIZES[0], 120)
    assert len(set(texts)) == 120
    assert {len(text) for text in texts} == {SIZES[0]}


def test_what_a_session_holds_is_what_a_store_counts() -> None:
    tok = material.load("toktier-mini")
    fixed, slope, _ = memory(tok, SIZES[0], held=2_000_000)
    store = SessionStore(tok)
    for number, text in enumerate(chats(SIZES[0], 20)):
        store.encode(text, session=str(number))
    assert len(store) * (fixed + slope * SIZES[0]) == pytest.approx(store.usage().nbytes, rel=0.1)


def test_every_engine_takes_as_many_turns_and_starts_as_the_others() -> None:
    tok, names = material.load("toktier-mini"), ["memo", "reference"]
    taken, begun = turns(tok, names, SIZES[0], 3), starts(tok, names, SIZES[0], 3)
    assert {name: len(seconds) for name, seconds in taken.items()} == dict.fromkeys(names, 3)
    assert {name: len(seconds) for name, seconds in begun.items()} == dict.fromkeys(names, 3)
    assert all(whole > 0 and core >= 0 for each in begun.values() for whole, core in each)


def test_the_front_end_is_called_and_watched() -> None:
    found = served(material.file("toktier-mini"), SIZES[0], 3)
    assert found.ready > 0
    assert found.process_bytes > 1 << 20
    assert found.call_seconds >= 0
    assert found.start_seconds >= 0


@pytest.mark.parametrize("wrong", [{"calls": 0.0}, {"characters": 100}, {"sessions": 0}, {"lost": -1}])
def test_a_load_that_is_none_is_refused(wrong: dict[str, float]) -> None:
    given = {"calls": 10.0, "characters": SIZES[0], "sessions": 10, "lost": 1}
    assert load_of(argparse.Namespace(**given)).sessions == 10
    with pytest.raises(SystemExit, match="give calls and sessions"):
        load_of(argparse.Namespace(**(given | wrong)))
