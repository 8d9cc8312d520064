"""The tree of a split pattern: what one is made of, whoever wrote it and in whatever syntax."""

from __future__ import annotations

import enum
from typing import TypeAlias

from attrs import frozen

UNBOUNDED = 1 << 30
"""The upper bound of ``*``, ``+`` and ``{m,}``."""


class Behavior(enum.Enum):
    """What a pre-tokenizer does with a character between two letters."""

    DROPPED = "it is in no piece"
    JOINED = "it is in the piece of the letters"
    APART = "it is in a piece of its own"


class Mode(enum.Enum):
    """How a repetition chooses between more and less."""

    GREEDY = "greedy"
    LAZY = "lazy"
    POSSESSIVE = "possessive"


@frozen
class CharacterClass:
    r"""One place that consumes exactly one character.

    Attributes:
        source: The class in the syntax of its dialect, complete in itself: ``\p{L}``, ``[^\s\d]``, ``(?i:s)``.
        literal: The character, where the class is a single one taken literally; its source is then only a name.
        ignore_case: Whether it stands under ``(?i)``.
        component: The class is no regular expression but what a pre-tokenizer, which ``source`` names, treats in this
            way.
    """

    source: str
    literal: str | None = None
    ignore_case: bool = False
    component: Behavior | None = None


@frozen
class Sequence:
    """Items one after the other; no items match the empty string."""

    items: tuple[Node, ...]


@frozen
class Alternation:
    """Branches tried from left to right."""

    branches: tuple[Node, ...]


@frozen
class Repeat:
    """``node`` from ``minimum`` to ``maximum`` times."""

    node: Node
    minimum: int
    maximum: int
    mode: Mode


@frozen
class Atomic:
    """``(?>...)``: once matched, never re-entered."""

    node: Node


@frozen
class Lookahead:
    """``(?=...)`` and ``(?!...)``: reads what follows and consumes nothing."""

    node: Node
    negative: bool


Node: TypeAlias = CharacterClass | Sequence | Alternation | Repeat | Atomic | Lookahead
