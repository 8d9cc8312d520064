"""The dialect of tiktoken's patterns against tiktoken: what is accepted means the same, what is refused is named."""

from __future__ import annotations

import functools
from itertools import pairwise

import pytest
import tiktoken
from hypothesis import assume, given, reject, settings
from hypothesis import strategies as st

from tests.backtracking import Attempt, expected, nullable, patterns, texts
from tests.encodings import BYTES, matches
from toktier.families.family import Family
from toktier.families.formats.fancy import FancyRegex
from toktier.families.formats.probe import TiktokenProbe
from toktier.families.formats.ranked import RankedBPE
from toktier.families.pattern import Unsupported, parse
from toktier.families.probing import DiskCache, Probe
from toktier.families.syntax import Node, Sequence

PROBE = TiktokenProbe(DiskCache(None))


@functools.cache
def contains(source: str, character: str) -> bool:
    """Whether a class contains a character, by the library, asked for this one alone."""
    encoding = tiktoken.Encoding("class", pat_str=source, mergeable_ranks=BYTES, special_tokens={})
    return bool(encoding.encode_ordinary(character))


class FancyAttempt(Attempt):
    contains = staticmethod(contains)


def understood(tree: Node, text: str) -> list[str]:
    """The matches of a tree, by a textbook's matcher."""
    return [text[start:stop] for start, stop in expected(tree, text, FancyAttempt)]


# Every construct, and texts in which each finds something and misses something.
CONSTRUCTS = [
    *("a", "ab", "a|b", "ab|a", "(a)(b)", "(?:a|ab)c", "(?<name>a)b", "(?>a|ab)c", "(?>ab|a)c", "]", "}", "a]}"),
    *("a*b", "a+", "a?b", "a*?b", "a+?", "a??b", "a*+a|b", "a++b", "a?+a", "(?:ab)+c", "(?:ab?)*c", "(?:a|ab)+?c"),
    *("a{2}", "a{2,}", "a{1,2}", "a{1,2}?", "a{2,}?b", "a{0}b", "(?:ab){2}", "a{002}", "a{0,1}b"),
    # Not as in Oniguruma: these are possessive and lazy.
    *("a{2}+b", "a{1,2}+b", "a{1,2}+a|a", "a{2,}+a|b", "(?:a|b){1,2}+b", "a{2}?b", "a{2}?", "a{1,}?b"),
    *("[ab]+", "[^ab]", "[a-c]+", "[a-]", "[-a]", "[a^]", r"[a\]]+", r"[\[a]", r"[\x{61}-\x{63}]", r"[^\s\d]+"),
    *(r"[\p{L}\p{N}]+", r"[^\p{L}]", r"[\P{L}]", "[a[bc]]+", "[a-c&&[^b]]+", "[^a&&b]", "[a-c--b]+", "[a-c~~b-d]"),
    *("[[:alpha:]]+", "[[:^alpha:]]", "[a[:digit:]]", "[:alp]", r"[\h]+", r"[\pL\d]+", r"[\p{L}&&[^\p{Han}]]+"),
    *(r"\p{L}+", r"\P{L}+", r"\p{^L}", r"\p{Lu}", r"\p{Han}", r"\p{Greek}", r"\p{Alphabetic}", r"\pL+", r"\PL", r"\pN"),
    *(r"\s+", r"\S+", r"\d+", r"\D+", r"\w+", r"\W+", r"\h+", r"\H+", ".", ".+", "(?s:.)+", "(?-s:.)", "(?s).+"),
    *(r"\t", r"\n", r"\r", r"\f", r"\v", r"\a", r"\e", r"\x41", r"\xE9", r"\x{e9}", r"\u00E9", r"\u{E9}"),
    r"\U000000E9",
    *(r"\.", r"\-", r"\#", r"\ ", r"\_", r"\\", r"\[", r"\&", r"\{", "é", "😀+", "'(?:s|t)"),
    *("(?i:a)", "(?i:ab)", "(?i:[a-c]+)", "(?i)ab|c", "(?-i)a", "(?i:a(?-i:b)c)", "(?is:a.)", "(?i-s:a.)", "(?i:ß)"),
    *("(?i:k)", "(?i:s)", "(?i:st)", "(?i:ss)"),
    *("a(?=b)", "a(?!b)", r"\s+(?!\S)", "(?=ab)a", "(?!ab)a", "(?=a(?!b))[a-c]", "(?:a(?=b)|b)+", "a(?=b|c)c?"),
    # The end of the text and no other: not the one before a last line break.
    *(r"\s+$", r"\s++$|\s", r"a$", r"a\z", r"[a-c]+$|b", r"(?:a$|a)b?", r"a(?!$)", r"(?:ab|a$)+"),
]  # fmt: skip
TEXTS = [
    *("aab", "abab", "abcabc", "aaaaa", "baac", "AaBbCc", "ABcabC", "aBc", "abAC", "aaab", "bbbb", "a", "ba"),
    *("a]} a^-][", "l:a[p]", "ab  ", "ab \n", "a\n", " \n\n", "a1 2b", "x\ty\nz\r\n  \x0b\x0c\x07\x1b\x00", "f0gF"),
    *("é e\u0301 Éα Ωß ſ K ẞss", "中文1²½٣😀😀", "it's 't .-#_\\[&{", "ﬆ st ſt"),
]


@pytest.mark.parametrize("pattern", CONSTRUCTS)
def test_what_is_understood_means_what_the_library_makes_of_it(pattern: str) -> None:
    tree = parse(pattern, FancyRegex)
    found = [matches(pattern, text) for text in TEXTS]
    assert found == [understood(tree, text) for text in TEXTS]
    assert any(found), "a text in which it finds something is missing"


@settings(max_examples=1_500)
@given(patterns(), texts)
def test_any_pattern_means_what_the_library_makes_of_it(pattern: str, text: str) -> None:
    try:
        tree = parse(pattern, FancyRegex)
    except Unsupported:
        reject()
    assume(not nullable(tree))  # on which the library panics
    try:
        found = matches(pattern, text)
    except ValueError:  # a pattern that it refuses
        reject()
    assert understood(tree, text) == found


@pytest.mark.parametrize(
    ("pattern", "named"),
    [
        *((p, "anchor") for p in ("^a", r"\Aa", r"a\Z", r"\Ga")),
        *((p, "word boundary") for p in (r"\ba", r"\Ba", r"\<a", r"a\>")),
        *((p, "lookbehind") for p in ("(?<=a)b", "(?<!a)b")),
        *((p, "back-reference") for p in (r"(a)\1", r"(?<n>a)\k<n>")),
        *((p, "brace") for p in ("a{,2}", "a{", "a{x}", "a{1", "{", "a{2}{3", "a{ 1 }", "a{,}")),
        *((p, "behind a quantifier") for p in ("a{2}{2}", "a+*", "a**", "a+?+", "a{1}{0,1}")),
        *((p, "group") for p in ("(?x)a b", "(?m:a$)", "(?U)a+", "a(?i)b|c", "(?P<n>a)", "(?#c)a")),
        *((p, "group") for p in ("(?~ab)", "(?(1)a|b)")),
        *((p, "quantifier without a target") for p in ("*a", "+", "(?:|*a)", "(*FAIL)")),
        *(("a{3,1}", "interval"), ("(?=a)*b", "quantified lookahead"), ("(?=a){2}b", "quantified lookahead")),
        *((r"\Ka", "keep"), (r"\R", "line break"), (r"\X", "grapheme"), (r"\Oa", "any"), (r"\N", "newline")),
        *((r"\i", "escape"), (r"\x4", "escape"), (r"\u{110000}", "escape"), (r"\uD800", "escape"), (r"\é", "escape")),
        ("[]a]", "first in a class"),
        *(("(a", "unclosed group"), ("a)", "unmatched"), ("[a", "unclosed class"), (r"\p{L", "unclosed property")),
    ],
)  # fmt: skip
def test_what_is_not_understood_is_named(pattern: str, named: str) -> None:
    with pytest.raises(Unsupported, match=named):
        parse(pattern, FancyRegex)


# What classes contain

CLASSES = [
    r"\p{L}",
    r"[^\s\p{L}\p{N}]",
    r"(?i:s)",
    r"[\p{L}&&[^\p{Han}]]",
    r"\w",
    ".",
    "(?s:.)",
    r"\h",
    "(?i:[k-z])",
    r"\pM",
]


@pytest.mark.parametrize("source", CLASSES)
@settings(max_examples=60)
@given(st.lists(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=40))
def test_a_class_has_the_characters_that_the_library_matches_one_by_one(source: str, characters: list[str]) -> None:
    inside = _members(source)
    for character in {*characters, *"sSſkK\n aZ09_²中"}:
        assert (ord(character) in inside) == contains(source, character)


@functools.cache
def _members(source: str) -> frozenset[int]:
    return frozenset(c for start, stop in PROBE.members(source).reshape(-1, 2).tolist() for c in range(start, stop))


def test_classes_are_those_of_the_library_and_of_no_other() -> None:
    """So each library is asked for its own patterns."""
    source = "[[:alpha:]]"
    assert PROBE.members(source).tolist() != Probe(DiskCache(None)).members(source).tolist()


def test_no_single_character_matches_a_sequence_whatever_its_case() -> None:
    assert PROBE.lookalikes(["st", "ss", "ff"]).tolist() == []


def test_a_class_that_the_library_refuses_is_unsupported() -> None:
    with pytest.raises(Unsupported, match=r"refuses.*Nonsense"):
        PROBE.members(r"\p{Nonsense}")


# Cuts


@settings(max_examples=250)
@given(patterns(), st.lists(texts, min_size=1, max_size=4))
def test_at_every_cut_a_text_falls_into_the_matches_of_its_parts(pattern: str, several: list[str]) -> None:
    family = _family(pattern)
    assume(family.supported)
    for text in several:
        edges = [0, *family.cuts(text).tolist(), len(text)]
        parts = [piece for start, stop in pairwise(edges) for piece in matches(pattern, text[start:stop])]
        assert parts == matches(pattern, text)


@functools.lru_cache(1_000)
def _family(pattern: str) -> Family:
    try:
        tiktoken.Encoding("tried", pat_str=pattern, mergeable_ranks=BYTES, special_tokens={})
    except ValueError:
        reject()
    return Family.derive(RankedBPE("a test", pattern, BYTES, {}).definition("0" * 64), PROBE)


@pytest.mark.parametrize("pattern", ["[ab]+|c", r"\s+$|\s|\S", "a(?!b)|b|c", "ab|a|b|c"])
def test_between_characters_that_are_no_cut_some_text_falls_otherwise(pattern: str) -> None:
    """The relation could be empty and pass; so could a test in which nothing can go wrong."""
    family = _family(pattern)
    wrong = 0
    for text in ("ab", "aab", "abc", "a b", "  a", "ba"):
        for i in range(1, len(text)):
            joined = matches(pattern, text[:i]) + matches(pattern, text[i:])
            wrong += joined != matches(pattern, text)
            assert joined == matches(pattern, text) or not family.is_cut(text, i)
    assert wrong
    assert family.sync_pairs


def test_without_the_lookahead_at_the_end_a_cut_would_be_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    pattern = "ab$|a|b|c"
    assert matches(pattern, "ab") + matches(pattern, "c") != matches(pattern, "abc")
    assert not _family(pattern).is_pair("b", "c")
    monkeypatch.setattr("toktier.families.formats.fancy.END", Sequence(()))
    assert _family.__wrapped__(pattern).is_pair("b", "c")


def test_by_the_classes_of_the_other_library_a_cut_would_be_wrong() -> None:
    pattern = "[[:alpha:]]|[^[:alpha:]]+"  # of ASCII here, of all letters there
    assert matches(pattern, "éé") == ["éé"]
    assert not _family(pattern).is_pair("é", "é")
    definition = RankedBPE("a test", pattern, BYTES, {}).definition("0" * 64)
    assert Family.derive(definition, Probe(DiskCache(None))).is_pair("é", "é")


def test_by_the_other_dialect_it_would_mean_something_else() -> None:
    pattern = "a{1,2}+|b"  # there, the loop can go on after two
    assert matches(pattern, "aaaa") == ["aa", "aa"]
    assert expected(parse(pattern), "aaaa") == [(0, 4)]
