"""Leftmost-first automata against a textbook's matcher, and against what the libraries split."""

from __future__ import annotations

import contextlib
import functools
import itertools
import json
import random
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import tokenizers
from hypothesis import given, reject, settings

from tests import builders, encodings, zoo
from tests.backtracking import LETTERS, Attempt, Span, contains, expected, matches, patterns, texts, understood
from tests.builders import BLOOM, CL100K, GPT2, GPT4, KIMI, WORDS, split
from toktier.families.alphabet import partition
from toktier.families.automaton import automaton_of
from toktier.families.formats.fancy import FancyRegex
from toktier.families.formats.patterns import PATTERNS
from toktier.families.formats.probe import TiktokenProbe
from toktier.families.pattern import Unsupported, literal_text, parse
from toktier.families.probing import CODE_POINTS, DiskCache, Probe
from toktier.families.reading import Reader
from toktier.families.splitting import members
from toktier.families.stages import Pieces, Splitter, Substitution
from toktier.families.syntax import CharacterClass, Node
from toktier.gpu.matcher import DEAD, ENDS, START, Matcher, matcher_of


def in_letters(tree: Node) -> dict[CharacterClass, npt.NDArray[np.bool_]]:
    """What each class has of the letters of small texts, each of which is a class of the alphabet."""
    return {p: np.array([contains(p.source, letter) for letter in LETTERS]) for p in automaton_of(tree).positions}


def small(tree: Node) -> Matcher:
    return matcher_of(tree, in_letters(tree))


def spans(matcher: Matcher, classes: list[int]) -> list[Span]:
    """All matches from left to right."""
    found, at = list[Span](), 0
    while at < len(classes):
        end = matcher.end(classes, at)
        found += [] if end is None else [(at, end)]
        at = end or at + 1
    return found


def letters(text: str) -> list[int]:
    return list(map(LETTERS.index, text))


@pytest.mark.parametrize("fancy", [False, True])
@settings(max_examples=300)
@given(patterns(), texts)
def test_what_can_be_translated_finds_what_a_matcher_finds(fancy: bool, pattern: str, text: str) -> None:
    try:
        tree = parse(pattern, FancyRegex) if fancy else understood(pattern)
        matcher = small(tree)
    except Unsupported:
        reject()
    assert spans(matcher, letters(text)) == expected(tree, text)
    assert fancy or expected(tree, text) == matches(pattern, text)


TRANSLATED = [
    # Order of preference
    *("a|ab", "ab|a", "a|ab|abc", "(?:a|ab)(?:c|bcb)?", "(?:a|ab)+?c|b", "a+?b|a", "a*?b|a??c", "(?:ab|a)*c|[ab]"),
    *("(?:a|b)*ab", "[ab]*?b{2}|a", "(?:|a)b", "(?:a?|b)c", "(?:ab){1,2}?a|b", "a{2}|a{1,3}b", "a{0}b|c", "(?:a*)?b|c"),
    # Lookaheads of one character
    *("a(?=b)|ab|b", "a(?!b)|.", "a(?!b|c)|b", "[ab]+(?!a)", "[ab]+(?=c)|c", "a(?!.)|b", "[abc]+(?!.)", "(?!a).|ab"),
    *("a(?=b*)", "a(?!b+)|c", "a(?=b?c?)b", "(?:a(?=b)|b)+", "a(?=(?!b)[abc])", "(?=(?!b)|b)a", "(?:(?!b).)+", "a(?!)"),
    # Possessive loops and atomic groups
    *("a*+b|a", "a++[ab]|b", "a?+[ab]", "a{1,2}+b|a", "a{2,}+[ab]|.", "[ab]{0,3}+c|.", "(?:a|b)++(?:c|b)?", "a{2}+b|a"),
    *("(?:ab?)*+c|.", "(?:a+b?)++a|b", "(?:(?!b).)*+b", "(?:a*)?+[ab]", "(?:a|bc*)*+b"),
    *("(?:ab){2}+a|.", "(?:a*?b?){1}+c|b", "(?:ab*+){2}+a|.", "(?>a)b", "(?>a|ab)c|.", "(?>a|)b|c", "(?>a*)[ab]|b"),
    *( "(?>ab*)b?c", "(?>a+?)a|.", "(?>a??)b", "(?>a{2,}?)a", "(?>(?:a|ab))c", "(?>[ab]|c)b"),
    *("(?>a|b|bc)c|.", "(?>(?=a)|b)a|.", "(?>a(?:b|bc))c|a", "(?>(?:a*b?){1})b|.", "(?>.|)a", "(?>a*b*)[ab]|b"),
    *("(?>(?:a|ab){1}?)b|c", "(?>(?:a|b){0})c", "(?>a?|b)c", "(?>a(?>b*))b?", "(?>(?:a|b){2})c|.", "(?>(?:b|)|ab)a|b"),
]  # fmt: skip


@pytest.mark.parametrize("pattern", TRANSLATED)
def test_on_every_short_text(pattern: str) -> None:
    tree = parse(pattern, FancyRegex)
    matcher = small(tree)
    for size in range(6):
        for text in map("".join, itertools.product("abc", repeat=size)):
            assert spans(matcher, letters(text)) == expected(tree, text)


@pytest.mark.parametrize(
    ("first", "longest", "text"),
    [("a|ab", "ab|a", "ab"), ("a+?", "a+", "aa"), ("a(?:|b|bc)", "a(?:bc|b|)", "abc")],
)
def test_the_first_match_is_not_the_longest(first: str, longest: str, text: str) -> None:
    """Without the cut at a match, both would find the longest."""
    ends = list(Attempt(parse(first), text, 0)._match(parse(first), 0))
    assert small(parse(first)).end(letters(text), 0) == ends[0] < max(ends)
    assert small(parse(longest)).end(letters(text), 0) == max(ends)


@pytest.mark.parametrize(
    ("pattern", "reason"),
    [
        *((p, "the pattern can match the empty string") for p in ("a*", "(?!a)", "a|", "(?=a)", "(?>a?)", "$")),
        *((p, "a lookahead of more than one character") for p in ("a(?=bc)", "(?!ab)a", "a(?=b(?!c))", "a(?!b{2})")),
        *((p, "a repetition of what can match the empty") for p in ("(?:a?)*b", "(?:a|(?=b))+b", "(?:a?){2}b")),
        *((p, "a possessive loop that needs more") for p in ("(?:ab|c)++", "(?>(?:ab)*)c", "(?:a(?!b))*+c")),
        *((p, "a possessive repetition of what can") for p in ("(?:ab?){2}+b", "(?:ab?){2,}+b", "(?>(?:ab?){2})b")),
        *((p, "an atomic group that needs more") for p in ("(?>ab|a)b", "(?>a*b)b", "(?>a|bc|b)c")),
        ("a{1,5000}", "a matcher of more than 4,096 states"),
        ("(?:a|b)*a(?:a|b){12}", "a matcher of more than 4,096 states"),
        ("a{1,20000}", "the pattern has more than 20,000 places"),
        ("(?:(?:a{1,500}b){1,500}c)", "the pattern has more than 20,000 places"),
        ("a" + "(?:|b)" * 120 + "(?:" + "a?" * 300 + "b){20}", "a matcher that takes more than 1,000,000 steps"),
    ],
)
def test_what_cannot_be_translated_has_its_reason(pattern: str, reason: str) -> None:
    with pytest.raises(Unsupported, match=reason):
        small(parse(pattern, FancyRegex))


def test_any_depth_of_nesting_is_translated_or_refused() -> None:
    for depth in range(20, 500, 40):
        with contextlib.suppress(Unsupported):
            assert small(parse("(?:" * depth + "a" + ")+" * depth + "b")).end(letters("aaab"), 0) == 4


def test_equal_states_are_one() -> None:
    assert len(small(parse("ab*c|bb*c|c")).transitions) == 4
    assert len(small(parse("|".join(map("".join, itertools.product("abc", repeat=4))))).transitions) == 6
    assert len(small(literal_text("abc" * 300)).transitions) == 902
    assert small(parse("a(?=b)(?!b)")).transitions.tolist() == [[DEAD] * 6] * 2  # it matches nothing


# Against the libraries, with all of Unicode

AWKWARD = [
    *("", " ", "  ", "\n", " \r\n \n  x", "a\n", "it's  we'LL I'Mx '", "x' s'd", "1234567 1", "\0\x85"),
    *("e\u0301e\u0301'S", "ſ'ſ ıİ K", "中文abc漢", "👩‍👩‍👧 🇺🇸", "a/b//\n/ ..\r\n", "\t\t a", "  ...  "),
    *("▁▁a▁ b", " \u00a0 \u2003a\u200b", "\ufeffa\uffffb\U0010ffff"),
]  # fmt: skip


class Cutter:
    """A pattern with the alphabet that its classes make, and texts of characters of each."""

    def __init__(self, tree: Node, probe: Probe) -> None:
        positions = list(dict.fromkeys(automaton_of(tree).positions))
        sets = [members(position, probe) for position in positions]
        edges = np.unique(np.concatenate([*sets, *(runs - 1 for runs in sets)]))
        self.edges = edges[(edges >= 0) & (edges < 0xD800) | (edges > 0xDFFF) & (edges < CODE_POINTS)]
        self.alphabet = partition(sets)
        self.matcher = matcher_of(tree, dict(zip(positions, self.alphabet.properties.T, strict=True)))

    def spans(self, text: str) -> list[Span]:
        return spans(self.matcher, self.alphabet.table[[ord(character) for character in text]].tolist())

    def texts(self, number: int) -> Iterator[str]:
        yield from (WORDS, *AWKWARD)
        choice = random.Random(0)
        of_class = self.alphabet.table[self.edges]
        some = [chr(c) for k in set(of_class.tolist()) for c in choice.choices(self.edges[of_class == k].tolist(), k=6)]
        for _ in range(number):
            likely = choice.sample(some, min(len(some), 5)) + choice.choices("a s'\n1", k=4)
            yield "".join(choice.choices(likely, k=choice.randrange(1, 20)))


PROBES = (Probe(DiskCache(None)), TiktokenProbe(DiskCache(None)))


@functools.cache
def cutter(tree: Node, fancy: bool = False) -> Cutter:
    return Cutter(tree, PROBES[fancy])


GLUED = {Pieces.RUNS: (True, True), Pieces.AFTER_GAPS: (False, True), Pieces.BEFORE_GAPS: (True, False)}
ONLY = {Pieces.MATCHES: True, Pieces.GAPS: False}


def kept(found: list[Span], keeps: Pieces, size: int) -> Iterator[Span]:
    """What a splitter makes of the matches in a piece."""
    edges = itertools.pairwise([0, *itertools.chain(*found), size])
    parts = [(a, b, i % 2 == 1) for i, (a, b) in enumerate(edges) if a < b and ONLY.get(keeps, i % 2) == i % 2]
    start: int | None = None
    for (a, b, match), (_, _, following) in itertools.pairwise([*parts, (size, size, None)]):
        start = a if start is None else start
        if (match, following) != GLUED.get(keeps):
            yield start, b
            start = None


def leaves(state: dict[str, Any] | None) -> Iterator[str]:
    """The pre-tokenizers of a chain, without what they put before a text."""
    if state is not None and state["type"] == "Sequence":
        for each in state["pretokenizers"]:
            yield from leaves(each)
    elif state is not None:
        prefix = {"add_prefix_space": False, "prepend_scheme": "never"}
        yield json.dumps(state | {key: value for key, value in prefix.items() if key in state})


@functools.cache
def compared(state: str) -> bool:
    """Compares a pre-tokenizer of the library with its stages; false for one that looks for no matches."""
    model = '{"type":"BPE","vocab":{},"merges":[]}'
    reference = tokenizers.Tokenizer.from_str(f'{{"pre_tokenizer":{state},"model":{model}}}').pre_tokenizer
    reader = Reader()
    reader.pre_tokenizer(json.loads(state))
    stages = [stage for stage in reader.pre_tokenizers if isinstance(stage, Splitter)]
    space = "▁" if any(isinstance(stage, Substitution) for stage in reader.pre_tokenizers) else " "
    for each in cutter(stages[0].tree).texts(50) if stages else ():
        text = each.replace(" ", space)
        pieces = [(0, len(text))]
        for stage in stages:
            found = [(i, kept(cutter(stage.tree).spans(text[i:j]), stage.keeps, j - i)) for i, j in pieces]
            pieces = [(i + a, i + b) for i, inside in found for a, b in inside]
        assert pieces == [span for _, span in reference.pre_tokenize_str(text)]
    return bool(stages)


@pytest.mark.parametrize("name", zoo.SUPPORTED)
def test_every_definition_is_split_as_the_library_splits(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(builders, "_training_texts", lambda: [WORDS] * 50)  # what the models join does not matter
    for leaf in leaves(json.loads(zoo.SUPPORTED[name]().to_str())["pre_tokenizer"]):
        assert compared(leaf) or '"ByteLevel"' in leaf or '"Metaspace"' in leaf or '"UnicodeScripts"' in leaf


@pytest.mark.parametrize("pattern", [GPT2, GPT4, CL100K, KIMI, BLOOM])
def test_well_known_patterns_are_small(pattern: str) -> None:
    assert compared(split(pattern).__getstate__().decode())
    transitions = cutter(parse(pattern)).matcher.transitions
    assert len(transitions) <= 24
    assert not (transitions[START] & ENDS).any()
    assert not transitions[DEAD].any()


@pytest.mark.parametrize("pattern", sorted(set(PATTERNS.values())))
def test_patterns_of_rank_files_match_as_tiktoken_matches(pattern: str) -> None:
    of = cutter(parse(pattern, FancyRegex), fancy=True)
    assert len(of.matcher.transitions) <= 24
    for text in itertools.islice(of.texts(50), 1, None):
        assert [text[start:stop] for start, stop in of.spans(text)] == encodings.matches(pattern, text)
