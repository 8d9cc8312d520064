"""Added tokens as the reference finds them, for engines whose own way of finding them differs.

The reference looks for added tokens twice: for those that are not ``normalized`` in the text, and for the others in
what the normalizer makes of the rest. Each time it takes the leftmost, and of several there the longest.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import Any

from toktier.engines.base import Inapplicable
from toktier.families.definition import Definition
from toktier.families.literal import Literal, as_matched
from toktier.families.probing import Probe


class Finder:
    """Finds the leftmost and then longest of some literals, none of which absorbs or looks at what is beside it.

    Attributes:
        ids: The id of each, by its content.
        unambiguous: Whether no two can begin at one place, so that the leftmost is also the longest.
        search: Whether a text has one: the ``search`` method of a regular expression.
    """

    def __init__(self, literals: Iterable[Literal]) -> None:
        self.ids = {literal.content: literal.id for literal in literals}
        self.unambiguous = not any(after.startswith(before) for before, after in pairwise(sorted(self.ids)))
        # A tree of their common begins: a list of alternatives would be tried one by one at every "<".
        root: dict[str, Any] = {}
        for content in self.ids:
            node = root
            for character in content:
                node = node.setdefault(character, {})
            node[""] = {}
        self._pattern = re.compile(_branches(root))
        self.search = self._pattern.search

    def found(self, text: str) -> set[str]:
        r"""The contents of those that a text has.

        Example:
            >>> import toktier
            >>> finder = Finder(toktier.load("toktier-mini").family.definition.literals)
            >>> finder.found("<|im_start|>user<|im_start|>")
            {'<|im_start|>'}
        """
        return set(self._pattern.findall(text))

    def divide(self, text: str) -> Iterator[tuple[str, int | None]]:
        r"""The parts of a text in order: literals with their ids, and with None what is between them.

        Example:
            >>> import toktier
            >>> finder = Finder(toktier.load("toktier-mini").family.definition.literals)
            >>> list(finder.divide("Hi<|im_end|>\n"))
            [('Hi', None), ('<|im_end|>', 4089), ('\n', None)]
        """
        end = 0
        for found in self._pattern.finditer(text):
            if end < found.start():
                yield text[end : found.start()], None
            yield found[0], self.ids[found[0]]
            end = found.end()
        if end < len(text):
            yield text[end:], None


class Literals:
    """The added tokens of a family.

    Attributes:
        raw: Finds those of the first look; None when there are none.
        normalized: Finds those of the second.
        flagged: Finds those whose flags let them absorb or look at what is beside them, so that they are best left to
            the reference. It finds no less in the whole text than there is in its parts.

    Raises:
        Inapplicable: A token cannot be found in this way.
    """

    def __init__(self, definition: Definition, probe: Probe) -> None:
        if definition.superseded:
            raise Inapplicable(f"added token {definition.superseded[0].content!r} was declared twice")
        plain: list[Literal] = []
        flagged: list[Literal] = []
        for literal in definition.literals:
            (flagged if literal.lstrip or literal.rstrip or literal.single_word else plain).append(literal)
        for literal in flagged:
            if literal.normalized and definition.normalizers:
                raise Inapplicable(f"added token {literal.content!r} with its flags is behind the normalizer")
        self.raw = _finder([literal for literal in plain if not literal.normalized])
        self.normalized = _finder(
            [as_matched(literal, definition.normalizer, probe) for literal in plain if literal.normalized]
        )
        self.flagged = _finder(flagged)


def refuse_overlaps(definition: Definition) -> None:
    """Makes sure that looking for all added tokens at once is the same as looking twice.

    Raises:
        Inapplicable: A token of the second look can overlap one of the first that does not begin before it.
    """
    raw = [literal.content for literal in definition.literals if not literal.normalized]
    for literal in definition.literals:
        ends = [literal.content[i:] for i in range(len(literal.content))] if literal.normalized else []
        for content in raw:
            if any(content.startswith(end) or end.startswith(content) for end in ends):
                raise Inapplicable(f"added token {literal.content!r} can overlap {content!r}")


def _finder(literals: list[Literal]) -> Finder | None:
    return Finder(literals) if literals else None


def _branches(node: dict[str, Any]) -> str:
    """A tree of characters as a regular expression; where a content ends, a longer one goes first."""
    longer = []
    for first, branch in node.items():
        beginning = first
        while len(branch) == 1 and "" not in branch:  # no choice: nothing to put in brackets
            ((character, branch),) = branch.items()  # noqa: PLW2901
            beginning += character
        if first:
            longer.append(re.escape(beginning) + _branches(branch))
    if not longer:
        return ""
    return f"(?:{'|'.join(longer)})" + "?" * ("" in node)
