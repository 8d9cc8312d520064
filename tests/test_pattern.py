"""The parser against the reference library: what it accepts means the same, what it refuses it names."""

from __future__ import annotations

import contextlib
import re
import time
from collections.abc import Callable

import hypothesis.strategies as st
import pytest
from hypothesis import assume, given, settings

from tests.backtracking import (
    MORE_QUANTIFIERS,
    QUANTIFIERS,
    expected,
    matches,
    nodes,
    nullable,
    patterns,
    texts,
    understood,
)
from toktier.families.pattern import MAX_ITEMS, Unsupported, escaped, literal_text, parse
from toktier.families.syntax import UNBOUNDED, CharacterClass, Mode, Node, Repeat, Sequence

# Every construct, and texts in which each finds something and misses something.
CONSTRUCTS = [
    *("a", "ab", "a|b", "ab|a", "|a", "a||b", "(a)(b)", "(?:a|ab)c", "(?<name>a)b", "(?<größe>a)", "(?>a|ab)c"),
    *("a*", "a+", "a?b", "a*?b", "a+?", "a??b", "a*+a|b", "a++b", "a?+a", "(?:ab)+c", "(?:ab?)*c",),
    *("a+*", "a?*b", "()a", "a]}"),
    *("a{2}", "a{2,}", "a{,2}b", "a{1,2}", "a{1,2}?", "a{2,}?b", "a{0}b", "(?:ab){2}"),
    # The interval of Oniguruma: `+` behind it repeats it, and `?` behind a fixed one makes it optional.
    *("a{2}+", "a{1,2}+b", "a{2}?b", "a{2}??b", "a{2}?+", "a{2}{2}"),
    # Braces that are no interval are characters.
    *("a{", "a{,}", "a{1", "a{x}", "a{1,2,}", "a{ 1}", "{", "a{1{2}"),
    *("[ab]+", "[^ab]", "[a-c]+", "[a-]", "[-a]", "[a^]", r"[a\]]+", r"[\[a]", r"[\x{61}-\x{63}]", r"[^\s\d]+"),
    *(r"[\p{L}\p{N}]+", r"[^\p{L}]", r"[\P{L}]", "[a[bc]]+", "[a-c&&[^b]]+", "[^a&&b]", "[^[^a]]"),
    *("[[:alpha:]]+", "[[:^alpha:]]", "[a[:digit:]]", "[:alp]", "[a[:b]]", "[:alpha:][[:digit:]]"),
    *("[[:alpha:]&&[:lower:]]", r"[\p{L}&&[^\p{Lu}]]+"),
    *(r"\p{L}+", r"\P{L}+", r"\p{^L}", r"\p{Lu}", r"\p{Han}", r"\p{Greek}", r"\p{M}", r"\p{Alphabetic}"),
    *(r"\s+", r"\S+", r"\d+", r"\D+", r"\w+", r"\W+", r"\h+", r"\H+", ".", ".+", "(?m:.)+", "(?-m:.)"),
    *(r"\t", r"\n", r"\r", r"\f", r"\v", r"\a", r"\e", r"\x{1F600}", r"\x41", r"\u00E9", r"\x{e9}", r"\x{0}"),
    *(r"\.", r"\-", r"\#", r"\ ", r"\_", r"\\", r"\[", r"\&", r"\{", "é", "😀+", "'(?:s|t)"),
    *("(?i:a)", "(?i:ab)", "(?i:[a-c]+)", "(?i)ab|c", "(?-i)a", "(?i:a(?-i:b)c)", "(?im:a.)", "(?i-m:a.)"),
    *("(?i:k)", "(?i:s)"),
    *("a(?=b)", "a(?!b)", r"\s+(?!\S)", "(?=ab)a", "(?!ab)a", "(?=a(?!b))[a-c]", "(?:a(?=b)|b)+", "a(?=b|c)c?"),
]  # fmt: skip
TEXTS = [
    "",
    *("aab", "abab", "abcabc", "aaaaa", "baac", "AaBbCc", "ABcabC", "aBc", "abAC"),
    *("a{2}", "a{,}b", "a{1", "a{x}", "a{1,2,}", "a{ 1}", "{{", "a{{1{1", "a{11", "a]} a^-]["),
    *("l:a[p]", ":1", "a1 2b", "x\ty\nz\r\n  \x0b\x0c\x07\x1b\x00", "f0gF"),
    *("é e\u0301 Éα Ωß ſ K K", "中文1²½٣😀😀", "it's 't .-#_\\[&{", "a  b \n c  "),
]


@pytest.mark.parametrize("pattern", CONSTRUCTS)
def test_what_is_understood_means_what_the_library_makes_of_it(pattern: str) -> None:
    tree = parse(pattern)
    assert [matches(pattern, text) for text in TEXTS] == [expected(tree, text) for text in TEXTS]
    assert any(matches(pattern, text) for text in TEXTS) or nullable(tree), (
        "a text in which it finds something is missing"
    )


def stops_early(tree: Node) -> bool:
    """Oniguruma leaves a loop after an empty turn, even after too few: with atomic groups that is a difference."""
    return any(isinstance(node, Repeat) and node.minimum > 1 and nullable(node.node) for node in nodes(tree))


@settings(max_examples=1_000)
@given(patterns(), texts)
def test_any_pattern_means_what_the_library_makes_of_it(pattern: str, text: str) -> None:
    tree = understood(pattern)
    assume(not stops_early(tree))
    assert expected(tree, text) == matches(pattern, text)


stacked = st.lists(st.sampled_from(QUANTIFIERS + MORE_QUANTIFIERS), min_size=2, max_size=3).map("".join)


@settings(max_examples=500)
@given(
    st.sampled_from(["a", "(?:ab)", "(?:a|ab)", "[ab]", "(?:a?b)", "(ab)"]),
    stacked,
    st.sampled_from(["", "b", "c"]),
    texts,
)
def test_stacked_quantifiers_mean_what_the_library_makes_of_them(target: str, stack: str, rest: str, text: str) -> None:
    tree = understood(target + stack + rest)
    assume(not stops_early(tree))
    assert expected(tree, text) == matches(target + stack + rest, text)


SYNTAX = [
    *(
        "a",
        "b",
        "ab",
        "|",
        "(",
        "(?:",
        ")",
        "[",
        "]",
        "[^",
        "*",
        "+",
        "?",
        "{",
        "}",
        "{1",
        "{2}",
        "{1,2}",
        ",",
        "^",
        "-",
        "&&",
    ),
    *(
        "\\",
        "\\x41",
        "\\x{61}",
        "\\u0061",
        "x",
        "p",
        "{L}",
        "\\p{L}",
        "\\d",
        "\\s",
        "[:alpha:]",
        "[[:alpha:]]",
        "[:",
        ":]",
    ),
    *(
        "(?i:",
        "(?i)",
        "(?-i)",
        "(?m:",
        "(?>",
        "(?=",
        "(?!",
        "(?<n>",
        "<",
        "=",
        "!",
        ":",
        ".",
        "\n",
        " ",
        "1",
        "é",
        "\\t",
    ),
    *("\\-", "\\]", "\\[", "\\\\", "\\c", "\\C-", "\\M-", "\\x", "\\x{", "\\u", "\\o{101}", "\\e", "\\7", "\\b", "\\1"),
]
pieces = st.lists(st.sampled_from(SYNTAX), min_size=1, max_size=8).map("".join)


@settings(max_examples=300)
@given(pieces, st.text(st.sampled_from("aabbA]1x:\n é"), max_size=8))
def test_any_string_of_syntax_means_what_the_library_makes_of_it(pattern: str, text: str) -> None:
    tree = understood(pattern)
    assume(not stops_early(tree))
    assert expected(tree, text) == matches(pattern, text)


@settings(max_examples=500)
@given(st.text() | pieces | st.lists(pieces, max_size=60).map("".join))
def test_any_string_is_understood_or_refused(pattern: str) -> None:
    with contextlib.suppress(Unsupported):
        parse(pattern)


@pytest.mark.parametrize(
    ("pattern", "reason"),
    [
        ("^a", "anchor '^' at position 0"),
        ("a$", "anchor '$' at position 1"),
        (r"\Aa", r"anchor '\\A' at position 0"),
        (r"a\z", r"anchor '\\z' at position 1"),
        (r"a\Z", r"anchor '\\Z' at position 1"),
        (r"\Ga", r"anchor '\\G' at position 0"),
        (r"a\b", r"word boundary '\\b' at position 1"),
        (r"\B", r"word boundary '\\B' at position 0"),
        ("a(?<=b)", "lookbehind '(?<=' at position 1"),
        ("(?<!b)a", "lookbehind '(?<!' at position 0"),
        (r"(a)\1", r"back-reference '\\1' at position 3"),
        (r"(?<n>a)\k<n>", r"back-reference '\\k' at position 7"),
        (r"(?<n>a)\g<n>", r"subexpression call '\\g' at position 7"),
        (r"\R", r"line break sequence '\\R' at position 0"),
        (r"a|\X", r"grapheme cluster '\\X' at position 2"),
        (r"\ya", r"grapheme boundary '\\y' at position 0"),
        (r"\Y", r"grapheme boundary '\\Y' at position 0"),
        (r"a\Kb", r"keep '\\K' at position 1"),
        (r"\O", r"any character '\\O' at position 0"),
        (r"\N", r"not a newline '\\N' at position 0"),
        (r"\cA", r"control escape '\\c' at position 0"),
        (r"\C-A", r"control escape '\\C' at position 0"),
        (r"\M-a", r"meta escape '\\M' at position 0"),
        (r"\o{101}", r"escape '\\o' at position 0"),
        (r"\pL", r"escape '\\p' at position 0"),
        ("a\\", r"escape '\\' at position 1"),
        (r"a\xe9", r"escape '\\xe9' at position 1"),
        (r"\x{41 42}", r"escape '\\x{4' at position 0"),
        (r"\x{110000}", r"escape '\\x{1' at position 0"),
        ("(?#comment)a", "group '(?#' at position 0"),
        ("(?~a)", "group '(?~' at position 0"),
        ("(?x: a)", "group '(?x' at position 0"),
        ("(?'n'a)", "group \"(?'\" at position 0"),
        ("(?<n-1>a)", "group '(?<n' at position 0"),
        ("(?(1)a|b)", "group '(?(' at position 0"),
        ("a(?i)b", "group '(?i)' at position 1"),
        ("(?=a)*", "quantified lookahead at position 5"),
        ("(?!a){2}", "quantified lookahead at position 5"),
        ("a{3,2}", "possessive interval '{3,2}' at position 1"),
        ("+a", "quantifier without a target '+' at position 0"),
        ("a|{2}", "quantifier without a target '{' at position 2"),
        ("(*FAIL)", "quantifier without a target '*' at position 1"),
        ("[]a]", "']' first in a class at position 1"),
        ("a[^]b]", "']' first in a class at position 3"),
        ("a[b", "unclosed class at position 1"),
        ("b(a", "unclosed group at position 1"),
        ("(?:a", "unclosed group at position 0"),
        ("a)b", "unmatched ')' at position 1"),
        (r"\p{L", "unclosed property at position 0"),
        ("a{0001234567890}", "a repetition with a number of 10 digits at position 1"),
        ("a{1,%s}" % ("9" * 5_000), "a repetition with a number of 5000 digits at position 1"),
        ("(?:)" * 2_001, "more than 2,000 characters, classes and groups"),
        ("[ab]" * 1_000_000, "more than 2,000 characters, classes and groups"),
        ("(" * 5_000 + "a" + ")" * 5_000, "groups nested too deeply"),
    ],
)  # fmt: skip
def test_what_is_refused_is_named_with_its_position(pattern: str, reason: str) -> None:
    with pytest.raises(Unsupported, match=f"^{re.escape(reason)}( of the pattern)?$"):
        parse(pattern)


@pytest.mark.parametrize(
    ("pattern", "text"),
    [
        (r"\x4 a", "\x04 a"),  # one digit is enough for the library
        (r"\x4", "\x04"),
        ("\\x4\uff11", "\x04\uff11"),  # digits of other scripts are none
        ("\\x{\uff14\uff11}", None),
        (r"\x{ 41}", None),
        (r"\x{4_1}", None),
        (r"\x{+41}", None),
        (r"\x{-41}", None),
        (r"\x{41", None),
        (r"\x{}", None),
        (r"\u+041", None),
        (r"\u 041", None),
        (r"\u4_41", None),
        (r"\u41", None),
        (r"[\c]a]", "]\x1da"),  # Ctrl-] and not the end of the class
        (r"[\C-]a]", "]\x1da"),
        (r"[\M-]a]", "]a"),
        ("(?:ab){1}+", "abbb"),  # the library forgets the group with the interval: ab+
        ("(?:ab){1}{2}", "abb"),
        ("(?:ab){1,1}*", "a"),
        ("(?:ab){1}{1}?", "a"),
    ],
)
def test_traps_are_understood_as_the_library_understands_them_or_refused(pattern: str, text: str | None) -> None:
    try:
        tree = parse(pattern)
    except Unsupported:
        return
    assert text is not None, "this is no character"
    assert expected(tree, text) == matches(pattern, text)


def character(pattern: str) -> str | None:
    tree = parse(pattern)
    assert isinstance(tree, CharacterClass)
    return tree.literal


def test_quantifiers_have_the_bounds_and_the_mode_that_are_written() -> None:
    a = CharacterClass("a", "a")
    for pattern, bounds in (("a*", (0, UNBOUNDED)), ("a+", (1, UNBOUNDED)), ("a?", (0, 1))):
        assert parse(pattern) == Repeat(a, *bounds, Mode.GREEDY)
        assert parse(pattern + "?") == Repeat(a, *bounds, Mode.LAZY)
        assert parse(pattern + "+") == Repeat(a, *bounds, Mode.POSSESSIVE)
    assert parse("a{2,3}") == Repeat(a, 2, 3, Mode.GREEDY)
    assert parse("a{2,3}?") == Repeat(a, 2, 3, Mode.LAZY)
    assert parse("a{2,3}+") == Repeat(Repeat(a, 2, 3, Mode.GREEDY), 1, UNBOUNDED, Mode.GREEDY)
    assert parse("a{2}?") == Repeat(Repeat(a, 2, 2, Mode.GREEDY), 0, 1, Mode.GREEDY)


def test_zeros_before_a_number_change_nothing() -> None:
    zeros = "0" * 5_000
    assert parse(f"a{{{zeros}2,{zeros}3}}") == parse("a{2,3}")
    assert parse(f"a{{{zeros}}}") == parse("a{0}")
    assert parse(f"a{{,{zeros}99999}}") == parse("a{,99999}")
    assert matches(f"a{{{zeros}2}}", "aaa") == matches("a{2}", "aaa")


@pytest.mark.parametrize("understand", [parse, literal_text])
def test_a_pattern_is_understood_up_to_a_length_and_refused_at_once_beyond_it(
    understand: Callable[[str], Node],
) -> None:
    assert len([*nodes(understand("a" * MAX_ITEMS))]) == MAX_ITEMS + 1
    started = time.process_time()
    with pytest.raises(Unsupported, match=r"^more than 2,000 characters, classes and groups$"):
        understand("a" * 10_000_000)
    assert time.process_time() - started < 1, "a hundred times what it takes"


def test_case_is_ignored_exactly_where_the_pattern_says_so() -> None:
    tree = parse("a(?i:b[c](?-i:d))e")
    assert [(n.source, n.ignore_case) for n in nodes(tree) if isinstance(n, CharacterClass)] == [
        *(("a", False), ("(?i:b)", True), ("(?i:[c])", True), ("d", False), ("e", False))
    ]


@given(st.characters(exclude_categories=["Cs"]))
def test_a_character_has_a_regular_expression_that_matches_it_alone(letter: str) -> None:
    assert character(escaped(letter)) == letter
    assert matches(escaped(letter), f"{letter}\u0301a{letter}")[-1] == (3, 4)


@given(st.text(min_size=1))
def test_a_literal_text_is_the_sequence_of_its_characters(text: str) -> None:
    tree = literal_text(text)
    assert isinstance(tree, Sequence)
    assert "".join(node.literal or "" for node in tree.items if isinstance(node, CharacterClass)) == text


@pytest.mark.parametrize(
    "opening",
    ["(", "(?:", "(?i:", "(?=", "[", "[^", "[[:", "a[b&&", "{", "a{1,", "a{1}", "a?", "a|", "\\", "\\x{", "(?<n>"],
)
def test_long_patterns_take_time_in_proportion(opening: str) -> None:
    started = time.process_time()
    with contextlib.suppress(Unsupported):
        parse(opening * 10_000)
    assert time.process_time() - started < 3, "a hundred times what it takes"
