"""Fuzz target: a split pattern gives a tree that means what the reference makes of it, or the documented refusal."""

from __future__ import annotations

from unittest import mock

from tokenizers import Regex

from tests import backtracking
from tests.backtracking import expected, matches, nodes, nullable
from tests.test_pattern import SYNTAX
from toktier.families.automaton import automaton_of
from toktier.families.pattern import Unsupported, parse
from toktier.families.syntax import Node, Repeat

TEXTS = ("aabab1 \nA", "a]b{2}é")
LONGEST = 40
"""Characters of a pattern that is compared; each text is short, but a backtracking matcher can take its time."""


class Undecided(Exception):
    """Two matchers cannot be compared: one of them gave up."""


def pattern_of(data: bytes) -> str:
    """Any string at all, or one that is put together from pieces of syntax: the first byte decides."""
    if data[:1] < b"\x40":
        return data[1:].decode("utf-8", "ignore")
    return "".join(SYNTAX[byte % len(SYNTAX)] for byte in data[1:])


def trial(data: bytes) -> str | None:
    """Tries one pattern.

    Returns:
        What became of it, for tests that want to know whether trials are worth anything.

    Raises:
        AssertionError: The parser is wrong about it. Any other exception is a failure too.
    """
    pattern = pattern_of(data)
    try:
        tree = parse(pattern)
        automaton_of(tree)
    except Unsupported as refusal:
        if not str(refusal):
            raise AssertionError("a refusal without a reason") from refusal
        return "refused"
    if not _accepted(pattern):
        return "no pattern"
    if len(pattern) > LONGEST or _stops_early(tree):
        return "parsed"
    try:
        with mock.patch.object(backtracking, "reject", _give_up):
            for text in TEXTS:
                want, got = matches(pattern, text), expected(tree, text)
                assert want == got, f"{pattern!r} on {text!r}: the reference finds {want}, the tree means {got}"
    except Undecided:
        return "parsed"
    if backtracking.contains.cache_info().currsize > 1 << 16:
        backtracking.contains.cache_clear()
    return "compared"


def _accepted(pattern: str) -> bool:
    try:
        Regex(pattern)
    except Exception as error:  # the library has no other class of its own
        assert "Oniguruma" in str(error), error  # noqa: PT017
        return False
    return True


def _stops_early(tree: Node) -> bool:
    """Oniguruma leaves a loop after an empty turn, even after too few: with atomic groups that is a difference."""
    return any(isinstance(node, Repeat) and node.minimum > 1 and nullable(node.node) for node in nodes(tree))


def _give_up() -> None:
    raise Undecided
