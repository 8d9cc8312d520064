"""The automaton's claims against what a matcher does, and against the matches of the reference library."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from itertools import pairwise

import pytest
from hypothesis import given, reject, settings
from hypothesis import strategies as st
from tokenizers import Regex, normalizers

from tests.backtracking import LETTERS, Attempt, Span, contains, matches, nodes, patterns, texts, understood
from toktier.families.automaton import MAX_JOINED, Automaton, automaton_of
from toktier.families.pattern import Unsupported, literal_text, parse
from toktier.families.syntax import Lookahead, Node


def automaton(pattern: str) -> Automaton:
    try:
        return automaton_of(understood(pattern))
    except Unsupported:
        reject()


def sources(automaton: Automaton, pairs: Iterable[tuple[int, int]]) -> set[str]:
    return {f"{automaton.positions[i].source} {automaton.positions[j].source}" for i, j in pairs}


@pytest.mark.parametrize(
    ("pattern", "follow"),
    [
        ("abc", {"a b", "b c"}),
        ("ab?c", {"a b", "b c", "a c"}),
        ("a(?:b|c)", {"a b", "a c"}),
        ("(?:ab)+", {"a b", "b a"}),
        ("a{2}b", {"a a", "a b"}),
        ("a{1}b", {"a b"}),
        ("a{0}bc", {"b c"}),
        ("a++b", {"a a", "a b"}),  # also where it can never match
        ("a(?=bc)d", {"a b", "b c", "a d"}),
        ("a(?!bc)d", {"a b", "b c", "a d"}),
        ("(?=ab)cd", {"a b", "c d"}),
        ("(?:a(?=b))+|c", {"a a", "a b"}),
        ("a|b", set()),
    ],
)
def test_follow_relates_what_can_be_read_one_after_the_other(pattern: str, follow: set[str]) -> None:
    built = automaton_of(parse(pattern))
    assert sources(built, built.follow) == follow


@pytest.mark.parametrize(
    ("pattern", "certain"),
    [
        ("a", {"a": set()}),
        ("a|bc", {"a": set()}),
        ("ab", {}),
        ("ab?", {"a": set()}),
        ("a?b", {"b": set()}),
        ("a+b*", {"a": set()}),
        ("a{2}|b{1,2}", {"b": set()}),
        ("a?+b", {"b": {"a"}}),  # where a character is of both, `a` keeps it
        ("(?>a|)(?:b|c)", {"b": {"a"}, "c": {"a"}}),
        ("a(?!b)|c", {"c": set()}),
        ("(?!b)a|c", {"c": set()}),
        ("(?>(?!b))a|c", {"c": set()}),
        ("(?:(?!a)|b)a|c", {"c": set()}),
        ("(?:a?+|b?)c", {"c": {"a", "b"}}),
    ],
)
def test_certain_are_the_positions_that_match_alone(pattern: str, certain: dict[str, set[str]]) -> None:
    built = automaton_of(parse(pattern))
    source = [position.source for position in built.positions]
    assert {source[i]: {source[j] for j in by} for i, by in built.certain.items()} == certain


def test_what_a_lookahead_reads_follows_what_stands_before_it_and_nothing_follows_it() -> None:
    built = automaton_of(parse("a(?=b(?!c))d|e(?!f)"))
    source = [position.source for position in built.positions]
    assert {source[i] + source[j] for i, j in built.follow} == {"ab", "bc", "ad", "ef"}


@settings(max_examples=500)
@given(patterns(), texts)
def test_no_attempt_reads_two_neighbours_that_follow_does_not_relate(pattern: str, text: str) -> None:
    built = automaton(pattern)
    related = {
        (before, after)
        for i, j in built.follow
        for before in LETTERS
        for after in LETTERS
        if contains(built.positions[i].source, before) and contains(built.positions[j].source, after)
    }
    tree = understood(pattern)
    for start in range(len(text)):
        for place in Attempt(tree, text, start).read - {start}:
            assert (text[place - 1], text[place]) in related


def crossed(automaton: Automaton, before: str, after: str) -> bool:
    inside = [(contains(c.source, before), contains(c.source, after)) for c in automaton.positions]
    return any(inside[i][0] and inside[j][1] for i, j in automaton.follow)


def shifted(spans: list[Span], by: int) -> list[Span]:
    return [(start + by, stop + by) for start, stop in spans]


@settings(max_examples=500)
@given(patterns(), texts)
def test_the_library_matches_each_side_of_unrelated_neighbours_by_itself(pattern: str, text: str) -> None:
    built = automaton(pattern)
    whole = matches(pattern, text)
    for cut in range(1, len(text)):
        if not crossed(built, text[cut - 1], text[cut]):
            assert whole == matches(pattern, text[:cut]) + shifted(matches(pattern, text[cut:]), cut)


@settings(max_examples=500)
@given(patterns(), texts)
def test_the_library_always_matches_at_a_character_that_is_certain(pattern: str, text: str) -> None:
    built = automaton(pattern)
    for start, first in enumerate(text):
        inside = [contains(position.source, first) for position in built.positions]
        if any(inside[i] and not any(inside[j] for j in by) for i, by in built.certain.items()):
            assert [span for span in matches(pattern, text[start:]) if span[0] == 0]
            assert [span for span in matches(pattern, text) if span[0] <= start < span[1]]


def refused(tree: Node) -> bool:
    try:
        automaton_of(tree)
    except Unsupported:
        return True
    return False


def matches_nothing(pattern: str, text: str) -> bool:
    """Whether the library finds a match of no characters in a text."""
    try:
        replaced = normalizers.Replace(Regex(pattern), "\0").normalize_str(text)
    except BaseException as error:  # a panic of the library is no Exception
        if "retry-limit" not in str(error):
            raise
        reject()
    return replaced.count("\0") > len(matches(pattern, text))


@settings(max_examples=500)
@given(patterns(), texts)
def test_a_pattern_that_can_match_nothing_is_refused_and_no_other(pattern: str, text: str) -> None:
    tree = understood(pattern)
    # At the end of a text nothing is left to match but the empty string.
    possible = bool(matches(f"~(?:{pattern})", "~"))
    if refused(tree):
        assert possible or any(isinstance(node, Lookahead) for node in nodes(tree))
    else:
        assert not possible
        assert not matches_nothing(pattern, text)


@pytest.mark.parametrize(
    "pattern", ["a*", "a?", "", "a|", "(?:a|b?)", "(?=a)", "(?!a)", "a{0}", "a{,3}", "(?>a*)", "a*+", "(?:a?){2}"]
)
def test_patterns_that_can_match_nothing(pattern: str) -> None:
    with pytest.raises(Unsupported, match="the pattern can match the empty string"):
        automaton_of(parse(pattern))
    assert any(matches_nothing(pattern, text) for text in ("a", "b", "c"))


@pytest.mark.parametrize("stack", ["+", "*?", "{2,3}+", "?{1}"])
def test_any_depth_of_nesting_is_understood_or_refused(stack: str) -> None:
    for pattern in ("a" + stack * 20_000 + "b", "(?:" * 150 + "a" + f"){stack}" * 150 + "b"):
        with contextlib.suppress(Unsupported):
            assert automaton_of(parse(pattern)).positions


@pytest.mark.parametrize(
    ("few", "many"),
    [
        ("(?:" + "|".join("a" * 500) + ")+", "(?:" + "|".join("a" * 501) + ")+"),
        ("a?" * 700 + "b", "a?" * 710 + "b"),
        ("(?:" * 25 + "|".join("a" * 100) + ")+" * 25, "(?:" * 26 + "|".join("a" * 100) + ")+" * 26),  # the same again
    ],
)
def test_a_pattern_in_which_too_much_can_follow_too_much_is_refused_before_it_is_worked_out(
    few: str, many: str
) -> None:
    assert len(automaton_of(parse(few)).follow) <= MAX_JOINED
    with pytest.raises(Unsupported, match=r"^more than 250,000 pairs of its classes can follow one another$"):
        automaton_of(parse(many))


@given(st.text("ab", min_size=1))
def test_the_neighbours_in_a_literal_text_follow_one_another(text: str) -> None:
    built = automaton_of(literal_text(text))
    assert sources(built, built.follow) == {f"{a} {b}" for a, b in pairwise(text)}
    assert bool(built.certain) == (len(text) == 1)
