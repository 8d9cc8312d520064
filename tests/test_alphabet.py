"""Partitions of the code space against sets of code points, one point at a time."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from toktier.families.alphabet import Alphabet, partition
from toktier.families.probing import CODE_POINTS, Runs
from toktier.families.relation import Relation

# Edges close together, so that sets touch, overlap and contain one another; and the ends of the code space.
edges = st.integers(0, 12) | st.sampled_from([100, 0xD800, 0xE000, CODE_POINTS - 1, CODE_POINTS])
runs = st.lists(st.tuples(edges, edges), max_size=4).map(
    lambda ranges: as_runs({c for a, b in ranges for c in (*range(a, min(b, a + 20)), *range(max(a, b - 20), b))})
)
sets = st.lists(runs, max_size=5)
points = st.lists(st.integers(0, 25) | edges.filter(lambda c: c < CODE_POINTS), max_size=6)


def as_runs(members: set[int]) -> Runs:
    return np.array(
        sorted(c for c in members | {m + 1 for m in members} if (c in members) != (c - 1 in members)), np.int64
    )


def as_set(runs: Runs) -> set[int]:
    return {c for start, stop in runs.reshape(-1, 2).tolist() for c in range(start, stop)}


def looked_at(sets: list[Runs]) -> list[int]:
    """The code points at which something can change."""
    near = {c + step for runs in sets for c in runs.tolist() for step in (-1, 0, 1)}
    return sorted(c for c in near | {0, 1, 26, CODE_POINTS - 1} if 0 <= c < CODE_POINTS)


def is_sound(alphabet: Alphabet) -> None:
    assert alphabet.table.shape == (CODE_POINTS,)
    assert alphabet.size == len(alphabet.properties)
    assert np.unique(alphabet.table).tolist() == list(range(alphabet.size)), "every atom has a member"


@given(sets)
def test_an_atom_lies_inside_or_outside_of_every_set(sets: list[Runs]) -> None:
    alphabet = partition(sets)
    is_sound(alphabet)
    members = list(map(as_set, sets))
    for c in looked_at(sets):
        assert alphabet.properties[alphabet.table[c]].tolist() == [c in each for each in members]


@given(sets)
def test_code_points_that_no_set_tells_apart_are_one_atom(sets: list[Runs]) -> None:
    alphabet = partition(sets)
    rows = {tuple(row) for row in alphabet.properties.tolist()}
    assert len(rows) == alphabet.size
    # Between two edges nothing changes.
    ends = sorted({0, CODE_POINTS, *(c for runs in sets for c in runs.tolist())})
    assert all(len(np.unique(alphabet.table[a:b])) == 1 for a, b in pairwise(ends))


def related(sets: list[Runs]) -> Relation:
    """A relation on the atoms of some sets, of half of all pairs."""
    alphabet = partition(sets)
    return Relation(alphabet.table, np.random.default_rng(len(sets)).random((alphabet.size, alphabet.size)) < 0.5)


@given(sets, points)
def test_singled_out_code_points_are_alone_and_all_others_as_before(sets: list[Runs], points: list[int]) -> None:
    before = related(sets)
    after = before.single_out(points)
    counts = np.bincount(after.table)
    assert after.size == len(counts)
    assert counts.all(), "every atom has a member"
    assert all(counts[after.table[c]] == 1 for c in points)
    others = [c for c in looked_at(sets) if c not in points]
    for a in others:
        for b in others:
            assert (before.table[a] == before.table[b]) == (after.table[a] == after.table[b])


@given(sets, points)
def test_singling_out_relates_the_same_code_points(sets: list[Runs], points: list[int]) -> None:
    before = related(sets)
    after = before.single_out(points)
    some = np.array([*points, *looked_at(sets)])
    one, other = before.table[some], after.table[some]
    assert (before.pairs[np.ix_(one, one)] == after.pairs[np.ix_(other, other)]).all()


def test_an_atom_that_is_singled_out_completely_is_gone() -> None:
    before = related([np.array([97, 99])])
    assert before.size == 2
    assert before.single_out([97, 98]).size == 3
    assert before.single_out([]).size == 2


def test_without_sets_everything_is_one_atom() -> None:
    alphabet = partition([])
    assert alphabet.size == 1
    assert not alphabet.table.any()
