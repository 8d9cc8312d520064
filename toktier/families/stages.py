"""What a definition consists of: the stages that a text goes through before the model sees it.

Each is pure data, named after what it does and not after the component of a library that does it, so that several
components can be the same stage, and one can be several.
"""

from __future__ import annotations

import enum
from typing import TypeAlias

from attrs import field, frozen

from toktier.families.syntax import Node


class Pieces(enum.Enum):
    """What a splitter makes of the matches of its pattern, and of the gaps between them."""

    ALL = "matches and gaps, each a piece of its own"
    MATCHES = "matches; gaps are dropped"
    GAPS = "gaps; matches are dropped"
    RUNS = "gaps, and runs of matches"
    AFTER_GAPS = "matches, each with the gap before it"
    BEFORE_GAPS = "matches, each with the gap behind it"


@frozen
class Splitter:
    """Divides every piece by a pattern.

    Attributes:
        name: How the definition calls it, for people.
        tree: What it matches.
        keeps: Which of the parts become pieces.
    """

    name: str
    tree: Node = field(repr=False)
    keeps: Pieces


@frozen
class ScriptSplitter:
    """Divides where the script changes. Characters of any script go with what is before them, or are dropped."""

    name: str = "UnicodeScripts"


@frozen
class CharacterMap:
    """Maps each character by itself, whatever stands around it.

    Attributes:
        component: The library's component that does, as JSON.
    """

    component: str


@frozen
class Form:
    """A normalization form.

    Attributes:
        name: NFC, NFD, NFKC or NFKD.
    """

    name: str


@frozen
class Substitution:
    """Puts a string in the place of every match of a pattern.

    Attributes:
        name: How the definition calls it, for people.
        tree: What it matches.
        content: The string.
    """

    name: str
    tree: Node = field(repr=False)
    content: str


@frozen
class Trim:
    """Drops whitespace at the ends of every stretch between added tokens.

    Attributes:
        left: Whether at the beginning.
        right: Whether at the end.
    """

    left: bool
    right: bool


@frozen
class Charsmap:
    """A compiled map of characters and short sequences, which is looked up for one grapheme cluster after the other.

    Attributes:
        component: The library's component that does, as JSON.
    """

    component: str = field(repr=False)


@frozen
class ByteLevel:
    """Puts the bytes of UTF-8 in the places of characters, each as one character of an alphabet of its own."""


@frozen
class Prefix:
    """Puts something before a stretch, so that what continues a text is to be encoded without it.

    Attributes:
        name: How the definition calls it, for people.
        content: What it puts there.
        everywhere: Whether before every stretch between added tokens, or only where the text begins.
        unless_there: Whether not where the stretch begins with it as it is.
    """

    name: str
    content: str
    everywhere: bool
    unless_there: bool


Normalizer: TypeAlias = CharacterMap | Form | Substitution | Trim | Charsmap | ByteLevel | Prefix
"""What rewrites a stretch of text between two added tokens."""

PreTokenizer: TypeAlias = Splitter | ScriptSplitter | Substitution | ByteLevel | Prefix
"""What divides pieces, or rewrites them."""
