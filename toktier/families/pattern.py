r"""Split patterns: the Oniguruma syntax that ``tokenizer.json`` files use, parsed to a tree.

A character class is kept *as written*: which code points it contains is never worked out here, it is asked of the
reference library (see :mod:`toktier.families.probing`). So the parser has to know only how classes are delimited, and
how they are put together. What can see more than the characters it consumes (anchors, lookbehind, back-references)
or may consume several characters by nature (``\R``, ``\X``) raises :class:`Unsupported`.

Source: the syntax is that of Oniguruma's ``doc/RE`` for ``ONIG_SYNTAX_ONIGURUMA``, the one that ``tokenizers`` compiles
with. Two rules differ from other dialects and matter here: ``x{2,3}+`` repeats the interval (it is not possessive), and
``x{2}?`` makes it optional (it is not lazy). The dialect of tiktoken is :mod:`toktier.families.formats.fancy`.
"""

from __future__ import annotations

import re

from attrs import frozen

from toktier.families.syntax import (
    UNBOUNDED,
    Alternation,
    Atomic,
    CharacterClass,
    Lookahead,
    Mode,
    Node,
    Repeat,
    Sequence,
)

MAX_ITEMS = 2_000
"""Characters, classes and groups of a pattern. Those of production tokenizers have some 60; what is derived from a
pattern can take time and memory as the square of it."""

MAX_DIGITS = 9
"""Digits of a counted repetition, so that it is less than :data:`UNBOUNDED`. The library counts to 100,000."""


class Unsupported(Exception):
    """Something outside what the proof covers. The message is the reason that the user is shown."""


def parse(pattern: str, dialect: type[Oniguruma] | None = None) -> Node:
    """Parses a split pattern.

    Args:
        pattern: A regular expression, valid for the reference library.
        dialect: The grammar that the library follows. Not given: Oniguruma's.

    Raises:
        Unsupported: It uses something that is not understood; the message names it and its position.

    Example:
        >>> parse("a+")
        Repeat(node=CharacterClass(source='a', literal='a', ...), minimum=1, ..., mode=<Mode.GREEDY: 'greedy'>)
        >>> parse(r"(?<=a)b")
        Traceback (most recent call last):
            ...
        toktier.families.pattern.Unsupported: lookbehind '(?<=' at position 0 of the pattern
    """
    try:
        return (dialect or Oniguruma)(pattern).parse()
    except RecursionError:
        raise Unsupported("groups nested too deeply") from None


def literal_text(text: str) -> Node:
    """The tree of a pattern that is a string to be found as it is; :class:`Unsupported` if it is too long."""
    if len(text) > MAX_ITEMS:
        raise _too_long()
    return Sequence(tuple(literal(character, Flags()) for character in text))


@frozen
class Flags:
    """What governs a part of a pattern."""

    ignore_case: bool = False
    dot_matches_newline: bool = False


_CLASS_ESCAPES = frozenset("sSdDwWhH")
_CONTROL_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f", "v": "\v", "a": "\a", "e": "\x1b"}
_NOT_UNDERSTOOD = {
    "A": "anchor", "z": "anchor", "Z": "anchor", "b": "word boundary", "B": "word boundary", "G": "anchor",
    "R": "line break sequence", "X": "grapheme cluster", "y": "grapheme boundary", "Y": "grapheme boundary",
    "K": "keep", "k": "back-reference", "g": "subexpression call", "O": "any character",
    "N": "not a newline", "c": "control escape", "C": "control escape", "M": "meta escape",
}  # fmt: skip
_INTERVAL = re.compile(r"\{(?=[0-9,]*[0-9])([0-9]*)(,?)([0-9]*)\}")
_POSIX_CLASS = re.compile(r"\[:\^?\w+:\]", re.ASCII)


class Oniguruma:
    """Recursive descent, one method per level of the grammar; each begins at the place that is reached."""

    dot_all = "m"
    """The letter of the flag with which a dot matches line ends too."""
    hexadecimal_signs: tuple[str, ...] = ("x", "u")
    """What begins a character by its code point, behind a backslash."""
    hexadecimal_escape = re.compile(r"\\x\{([0-9A-Fa-f]{1,6})\}|\\x([0-7][0-9A-Fa-f])|\\u([0-9A-Fa-f]{4})")

    def __init__(self, pattern: str) -> None:
        self.pattern = pattern
        self.at = 0
        self.items = 0

    def parse(self) -> Node:
        """The tree of the whole pattern."""
        node = self.alternation(Flags())
        if self.at < len(self.pattern):
            raise self.unsupported("unmatched ')'", self.at)
        return node

    def unsupported(self, what: str, at: int, length: int = 0) -> Unsupported:
        """An error that names a construct, shows so many characters of it, and says where it is."""
        shown = f" {self.pattern[at : at + length]!r}" if length else ""
        return Unsupported(f"{what}{shown} at position {at} of the pattern")

    def peek(self, text: str) -> bool:
        """Whether a text stands here."""
        return self.pattern.startswith(text, self.at)

    def take(self, text: str) -> bool:
        """Whether it does; if so, it is passed."""
        found = self.peek(text)
        self.at += len(text) * found
        return found

    def alternation(self, flags: Flags) -> Node:
        """Branches, up to the end of the group."""
        branches = [self.sequence(flags)]
        while self.take("|"):
            branches.append(self.sequence(flags))
        return branches[0] if len(branches) == 1 else Alternation(tuple(branches))

    def sequence(self, flags: Flags) -> Node:
        """One branch."""
        items: list[Node] = []
        while self.at < len(self.pattern) and not self.peek("|") and not self.peek(")"):
            items.append(self.quantified(self.item(flags)))
        return items[0] if len(items) == 1 else Sequence(tuple(items))

    def quantified(self, node: Node) -> Node:
        """An item with the quantifiers behind it."""
        while self.at < len(self.pattern):
            start = self.at
            bounds = self.bounds()
            if bounds is None:
                return node
            if isinstance(node, Lookahead):
                raise self.unsupported("quantified lookahead", start)
            interval = self.pattern[start] == "{"
            low, high = bounds
            if interval and low > high:
                raise self.unsupported("possessive interval", start, self.at - start)
            if interval:
                # `x{2}?` is `(?:x{2})?` while `x{2,3}?` is lazy; `x{2,3}+` is `(?:x{2,3})+`: left to the next turn.
                lazy = "," in self.pattern[start : self.at] and self.take("?")
                mode = Mode.LAZY if lazy else Mode.GREEDY
            else:
                mode = Mode.LAZY if self.take("?") else Mode.POSSESSIVE if self.take("+") else Mode.GREEDY
            if isinstance(node, Repeat) and node.minimum == node.maximum == 1:
                # Oniguruma drops `{1}` before it looks at what the next quantifier is for.
                raise self.unsupported("quantifier on {1}", start, self.at - start)
            node = Repeat(node, low, high, mode)
        return node

    def bounds(self) -> tuple[int, int] | None:
        """The quantifier at this place, or None. A brace that is no interval is a literal, as in Oniguruma."""
        for sign, found in (("*", (0, UNBOUNDED)), ("+", (1, UNBOUNDED)), ("?", (0, 1))):
            if self.take(sign):
                return found
        interval = _INTERVAL.match(self.pattern, self.at)
        if interval is None:
            return None
        self.at = interval.end()
        low, comma, high = interval.groups()
        minimum = self.number(low, interval.start())
        return minimum, self.number(high, interval.start()) if high else UNBOUNDED if comma else minimum

    def number(self, digits: str, start: int) -> int:
        """The number in an interval, which may be written with any number of zeros before it."""
        significant = digits.lstrip("0")
        if len(significant) > MAX_DIGITS:
            raise self.unsupported(f"a repetition with a number of {len(significant)} digits", start)
        return int(significant or 0)

    def item(self, flags: Flags) -> Node:
        """A group, a class or a character."""
        self.items += 1
        if self.items > MAX_ITEMS:
            raise _too_long()
        start = self.at
        character = self.pattern[start]
        if character == "(":
            return self.group(flags)
        if character == "[":
            return self.bracket(flags)
        if character == "\\":
            return self.escape(flags)
        if character in "^$":
            raise self.unsupported("anchor", start, 1)
        if self.bounds() is not None:
            raise self.unsupported("quantifier without a target", start, 1)
        self.at += 1
        if character == ".":
            return CharacterClass(f"(?{self.dot_all}:.)" if flags.dot_matches_newline else ".")
        return literal(character, flags)

    def group(self, flags: Flags) -> Node:
        """Whatever is in parentheses."""
        start = self.at
        self.at += 1
        if not self.take("?") or self.take(":"):
            return self.closed(self.alternation(flags), start)
        if self.take(">"):
            return Atomic(self.closed(self.alternation(flags), start))
        for sign, negative in (("=", False), ("!", True)):
            if self.take(sign):
                return Lookahead(self.closed(self.alternation(flags), start), negative)
        if self.peek("<=") or self.peek("<!"):
            raise self.unsupported("lookbehind", start, 4)
        if self.take("<"):
            end = self.pattern.find(">", self.at)
            if end < 0 or not self.pattern[self.at : end].isidentifier():
                raise self.unsupported("group", start, 4)
            self.at = end + 1
            return self.closed(self.alternation(flags), start)
        return self.flagged(flags, start)

    def flagged(self, flags: Flags, start: int) -> Node:
        """``(?i:...)``, and ``(?i)`` where it opens the pattern or a group, so that it governs all that follows."""
        on = True
        while self.at < len(self.pattern) and self.pattern[self.at] in f"i{self.dot_all}-":
            sign = self.pattern[self.at]
            self.at += 1
            if sign == "-":
                on = False
            elif sign == "i":
                flags = Flags(on, flags.dot_matches_newline)
            else:
                flags = Flags(flags.ignore_case, on)
        if self.take(":"):
            return self.closed(self.alternation(flags), start)
        if self.take(")") and start == 0:
            return self.alternation(flags)
        raise self.unsupported("group", start, max(3, self.at - start))

    def closed(self, node: Node, start: int) -> Node:
        """What is in a group, once the group has been closed."""
        if not self.take(")"):
            raise self.unsupported("unclosed group", start)
        return node

    def escape(self, flags: Flags) -> Node:
        """What a backslash begins."""
        start = self.at
        character = self.pattern[start + 1 : start + 2]
        if character in _CLASS_ESCAPES and character:
            self.at += 2
            return character_class(self.pattern[start : self.at], flags)
        if character in ("p", "P") and self.pattern[start + 2 : start + 3] == "{":
            end = self.pattern.find("}", start)
            if end < 0:
                raise self.unsupported("unclosed property", start)
            self.at = end + 1
            return character_class(self.pattern[start : self.at], flags)
        if character in _NOT_UNDERSTOOD:
            raise self.unsupported(_NOT_UNDERSTOOD[character], start, 2)
        if character in _CONTROL_ESCAPES:
            self.at += 2
            return literal(_CONTROL_ESCAPES[character], flags)
        if character in self.hexadecimal_signs:
            return literal(self.hexadecimal(), flags)
        if not character or character.isalnum():
            raise self.unsupported("back-reference" if "1" <= character <= "9" else "escape", start, 2)
        self.at += 2
        return literal(character, flags)

    def hexadecimal(self) -> str:
        r"""``\x{1F600}``, ``\uFEFF`` and ``\x41`` (only where it is ASCII: above, Oniguruma reads a raw byte)."""
        found = self.hexadecimal_escape.match(self.pattern, self.at)
        if found is None or not _is_character(code_point := int(found[found.lastindex or 0], 16)):
            raise self.unsupported("escape", self.at, 4)
        self.at = found.end()
        return chr(code_point)

    def bracket(self, flags: Flags) -> Node:
        """A class in brackets, kept whole: only its end has to be found."""
        start = self.at
        depth = 0
        while self.at < len(self.pattern):
            character = self.pattern[self.at]
            if character == "\\":
                self.at += 1
                if self.pattern[self.at : self.at + 1] in ("c", "C", "M"):
                    raise self.unsupported(_NOT_UNDERSTOOD[self.pattern[self.at]], self.at - 1, 2)
            elif character == "[":
                if depth and (posix := _POSIX_CLASS.match(self.pattern, self.at)):
                    self.at = posix.end() - 1
                else:
                    depth += 1
                    opening = self.at + 1 + self.pattern.startswith("^", self.at + 1)
                    if self.pattern.startswith("]", opening):
                        raise self.unsupported("']' first in a class", opening)
            elif character == "]":
                depth -= 1
                if depth == 0:
                    self.at += 1
                    return character_class(self.pattern[start : self.at], flags)
            self.at += 1
        raise self.unsupported("unclosed class", start)


def _too_long() -> Unsupported:
    return Unsupported(f"more than {MAX_ITEMS:,} characters, classes and groups")


def _is_character(code_point: int) -> bool:
    return code_point < 0xD800 or 0xDFFF < code_point <= 0x10FFFF


def literal(character: str, flags: Flags) -> CharacterClass:
    """The class of one character."""
    if flags.ignore_case:
        return CharacterClass(f"(?i:{escaped(character)})", character, ignore_case=True)
    return CharacterClass(escaped(character), character)


def character_class(source: str, flags: Flags) -> CharacterClass:
    """A class as it is written, under the flags that govern it."""
    return CharacterClass(f"(?i:{source})" if flags.ignore_case else source, None, flags.ignore_case)


def escaped(character: str) -> str:
    """One character as a regular expression that matches it."""
    special = character.isascii() and not character.isalnum()
    return f"\\x{{{ord(character):X}}}" if special else character
