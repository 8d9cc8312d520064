"""A regular-expression matcher small enough to be seen right, and the reference library asked the same questions.

It is the textbook's: it walks the syntax tree, tries everything in order of preference, and takes the first that
fits. What a character class contains is asked of the library, one character at a time.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator

from hypothesis import reject
from hypothesis import strategies as st
from tokenizers import Regex, pre_tokenizers

from toktier.families.pattern import Unsupported, parse
from toktier.families.syntax import Alternation, Atomic, CharacterClass, Lookahead, Mode, Node, Repeat, Sequence

Span = tuple[int, int]

LETTERS = "abc \n"
"""What texts are made of: what the patterns below name, and two characters that only classes contain."""

CLASSES = ("a", "b", "c", "[ab]", "[^a]", ".", "[a-c&&[^b]]", r"\s", r"\w")
QUANTIFIERS = (
    "*",
    "+",
    "?",
    "*?",
    "+?",
    "??",
    "*+",
    "++",
    "?+",
    "{0}",
    "{2}",
    "{0,2}",
    "{,2}",
    "{1,2}",
    "{1,}",
    "{2,}",
)
MORE_QUANTIFIERS = ("{2}?", "{1,2}?", "{0,2}?", "{1,}?", "{2}+", "{1,2}+", "{0,}", "{0,1}", "{1}")

texts = st.text(st.sampled_from("aaabbbcc \n"), min_size=1, max_size=10)


def patterns(quantifiers: tuple[str, ...] = QUANTIFIERS + MORE_QUANTIFIERS) -> st.SearchStrategy[str]:
    """Small patterns of every construct that consumes or looks ahead, deeply mixed."""

    def larger(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
        branches = st.lists(inner | st.just(""), min_size=2, max_size=3)
        group = st.sampled_from(["(?:%s)", "(?:%s)", "(%s)", "(?>%s)", "(?=%s)", "(?!%s)"])
        return st.one_of(
            st.lists(inner, min_size=2, max_size=3).map("".join),
            branches.map("|".join).map("(?:{})".format),
            st.builds("(?:{}){}".format, inner, st.sampled_from(quantifiers)),
            st.builds("{}{}".format, st.sampled_from(CLASSES), st.sampled_from(quantifiers)),
            st.builds(lambda group, inner: group % inner, group, inner),
        )

    return st.recursive(st.sampled_from(CLASSES), larger, max_leaves=6)


def understood(pattern: str) -> Node:
    """The tree of a pattern that the library and the parser both accept; any other is no example."""
    try:
        Regex(pattern)
        return parse(pattern)
    except Unsupported:
        reject()
    except Exception as error:  # the library has no other class of its own
        if "Oniguruma" not in str(error):
            raise
        reject()


def matches(pattern: str, text: str) -> list[Span]:
    """The matches that the reference library finds, those of no characters left out."""
    try:
        pieces = pre_tokenizers.Split(Regex(pattern), "removed", invert=True).pre_tokenize_str(text)
    except BaseException as error:  # a panic of the library is no Exception
        if "retry-limit" not in str(error):
            raise
        reject()
    return [span for _, span in pieces]


@functools.cache
def contains(source: str, character: str) -> bool:
    """Whether a character class contains a character, by the reference library."""
    return not pre_tokenizers.Split(Regex(source), "removed").pre_tokenize_str(character)


class Attempt:
    """One attempt to match, at one place of a text.

    Attributes:
        read: The places of all characters that fitted a class: on the way to the match, on any way that was given
            up before, or in a lookahead.
        stop: Where the match ends; None when there is none.
    """

    STEPS = 20_000
    contains = staticmethod(contains)

    def __init__(self, tree: Node, text: str, start: int) -> None:
        self.text = text
        self.read: set[int] = set()
        self._steps = 0
        self.stop = next(self._match(tree, start), None)

    def _match(self, node: Node, at: int) -> Iterator[int]:
        """Where a match of the node from here on can end, the preferred end first."""
        self._steps += 1
        if self._steps > self.STEPS:
            reject()
        if isinstance(node, CharacterClass):
            if at < len(self.text) and self.contains(node.source, self.text[at]):
                self.read.add(at)
                yield at + 1
        elif isinstance(node, Sequence):
            yield from self._sequence(node.items, at)
        elif isinstance(node, Alternation):
            for branch in node.branches:
                yield from self._match(branch, at)
        elif isinstance(node, Atomic):
            yield from self._first(self._match(node.node, at))
        elif isinstance(node, Lookahead):
            if (next(self._match(node.node, at), None) is None) == node.negative:
                yield at
        elif node.mode is Mode.POSSESSIVE:
            yield from self._first(self._repeat(node, at, 0))
        else:
            yield from self._repeat(node, at, 0)

    def _sequence(self, items: tuple[Node, ...], at: int) -> Iterator[int]:
        if not items:
            yield at
            return
        for stop in self._match(items[0], at):
            yield from self._sequence(items[1:], stop)

    def _repeat(self, node: Repeat, at: int, count: int) -> Iterator[int]:
        enough = count >= node.minimum
        if enough and node.mode is Mode.LAZY:
            yield at
        if count < node.maximum:
            for stop in self._match(node.node, at):
                if stop == at and enough:  # once more of nothing would go on forever
                    yield at
                else:
                    yield from self._repeat(node, stop, count + 1)
        if enough and node.mode is not Mode.LAZY:
            yield at

    @staticmethod
    def _first(ends: Iterator[int]) -> Iterator[int]:
        for end in ends:
            yield end
            return


def expected(tree: Node, text: str, attempt: type[Attempt] = Attempt) -> list[Span]:
    """All matches of a tree from left to right, those of no characters left out."""
    found: list[Span] = []
    at = 0
    while at < len(text):
        stop = attempt(tree, text, at).stop
        if stop is not None and stop > at:
            found.append((at, stop))
        at = max(at + 1, stop or 0)
    return found


def nullable(node: Node) -> bool:
    """Whether a tree can match without a character, lookaheads taken to hold."""
    if isinstance(node, Sequence):
        return all(map(nullable, node.items))
    if isinstance(node, Alternation):
        return any(map(nullable, node.branches))
    if isinstance(node, Repeat):
        return node.minimum == 0 or nullable(node.node)
    if isinstance(node, Atomic):
        return nullable(node.node)
    return isinstance(node, Lookahead)


def nodes(node: Node) -> Iterator[Node]:
    """A tree's nodes."""
    yield node
    inner: tuple[Node, ...] = ()
    if isinstance(node, Sequence):
        inner = node.items
    elif isinstance(node, Alternation):
        inner = node.branches
    elif not isinstance(node, CharacterClass):
        inner = (node.node,)
    for each in inner:
        yield from nodes(each)
