r"""The dialect that tiktoken compiles with: the Rust crate ``fancy-regex`` 0.19, which hands classes to ``regex``.

It is close to Oniguruma's, and where it is not, a pattern that was read by the wrong grammar would have wrong cuts:

* ``x{2,3}+`` is possessive and ``x{2}?`` is lazy; there, they are not.
* ``$`` and ``\z`` are the end of the text and nothing else, so each is a lookahead that finds no character.
* ``(?s)`` is the flag with which a dot matches line ends; there, that is ``(?m)``.
* ``\pL`` is a class, ``\xE9`` a character by its code point, and ``\<`` the beginning of a word.
* A quantifier may not follow another one, and a brace there is a character.

Each of these was observed, and is compared with the library in the tests. What was not is refused by its name.
"""

from __future__ import annotations

import re

from toktier.families.pattern import Flags, Oniguruma, character_class
from toktier.families.syntax import UNBOUNDED, CharacterClass, Lookahead, Mode, Node, Repeat

END = Lookahead(CharacterClass("(?s:.)"), negative=True)
"""The end of the text: no character follows."""

_INTERVAL = re.compile(r"\{([0-9]+)(,?)([0-9]*)\}")
_SIGNS = {"*": (0, UNBOUNDED), "+": (1, UNBOUNDED), "?": (0, 1)}


class FancyRegex(Oniguruma):
    r"""The grammar, as far as it differs.

    Example:
        >>> from toktier.families.pattern import parse
        >>> parse(r"a{1,2}+", FancyRegex).mode, parse(r"a{1,2}+").mode
        (<Mode.POSSESSIVE: 'possessive'>, <Mode.GREEDY: 'greedy'>)
        >>> parse(r"a{,2}", FancyRegex)
        Traceback (most recent call last):
            ...
        toktier.families.pattern.Unsupported: brace at position 1 of the pattern
    """

    dot_all = "s"
    hexadecimal_signs = ("x", "u", "U")
    hexadecimal_escape = re.compile(
        r"\\[xuU]\{([0-9A-Fa-f]{1,6})\}|\\x([0-9A-Fa-f]{2})|\\u([0-9A-Fa-f]{4})|\\U([0-9A-Fa-f]{8})"
    )

    def item(self, flags: Flags) -> Node:
        """A group, a class, a character or the end of the text."""
        if self.take("$") or self.take(r"\z"):
            return END
        return super().item(flags)

    def quantified(self, node: Node) -> Node:
        """An item with the one quantifier that it may have."""
        start = self.at
        bounds = self.bounds()
        if bounds is None:
            return node
        if isinstance(node, Lookahead):
            raise self.unsupported("quantified lookahead", start)
        if bounds[0] > bounds[1]:
            raise self.unsupported("interval", start, self.at - start)
        mode = Mode.LAZY if self.take("?") else Mode.POSSESSIVE if self.take("+") else Mode.GREEDY
        start = self.at
        if self.bounds() is not None:
            raise self.unsupported("quantifier behind a quantifier", start)
        return Repeat(node, *bounds, mode)

    def bounds(self) -> tuple[int, int] | None:
        """The quantifier at this place, or None."""
        sign = self.pattern[self.at : self.at + 1]
        if sign in _SIGNS:
            self.at += 1
            return _SIGNS[sign]
        if sign != "{":
            return None
        interval = _INTERVAL.match(self.pattern, self.at)
        if interval is None:
            raise self.unsupported("brace", self.at)
        low, comma, high = interval.groups()
        minimum = self.number(low, self.at)
        maximum = self.number(high, self.at) if high else UNBOUNDED if comma else minimum
        self.at = interval.end()
        return minimum, maximum

    def escape(self, flags: Flags) -> Node:
        """What a backslash begins."""
        start = self.at
        one, letter = self.pattern[start + 1 : start + 2], self.pattern[start + 2 : start + 3]
        if one in ("p", "P") and letter.isascii() and letter.isalpha():
            self.at += 3
            return character_class(self.pattern[start : self.at], flags)
        if one in ("<", ">"):
            raise self.unsupported("word boundary", start, 2)
        return super().escape(flags)
