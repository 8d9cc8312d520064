"""Normalizers as the device applies them: one character at a time.

The image of a character is what the whole chain of normalizers makes of it wherever it stands. Of the others, which
may be treated by what is beside them, nothing is said: they are *odd*, and a segment with one is left to the host.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np
import numpy.typing as npt
from attrs import evolve, field, frozen

from toktier.engines.base import Inapplicable
from toktier.families.definition import Definition
from toktier.families.normalization import rewriting
from toktier.families.pattern import CharacterClass, Node, Sequence
from toktier.families.probing import CODE_POINTS, Probe, code_points_of
from toktier.families.splitting import automata_in, members
from toktier.families.stages import ByteLevel, CharacterMap, Form, Normalizer, Prefix, PreTokenizer, Splitter
from toktier.families.stages import Substitution as Substitute

Step = Callable[[int], str | None]
"""What a stage makes of a character; None where that depends on what is beside it."""


@frozen(eq=False)
class Rewriting:
    """What becomes of each character before the splitters see it.

    Attributes:
        odd: Whether it may be treated by what is beside it, shape (0x110000,).
        images: What comes of those that are not odd and do not stay as they are, by code point.
        prefix: What is put before stretches, after the normalizers; None when nothing is.
        splitters: The stages behind, which only divide.
    """

    odd: npt.NDArray[np.bool_] = field(repr=False)
    images: dict[int, str] = field(repr=False)
    prefix: Prefix | None
    splitters: tuple[Splitter, ...]

    @property
    def rewrites(self) -> bool:
        """Whether the text is another one afterwards, odd characters apart."""
        return bool(self.images) or self.prefix is not None


def rewriting_of(definition: Definition, probe: Probe) -> Rewriting:
    """What the stages before the splitters do.

    Args:
        definition: A definition that is understood.
        probe: Where the reference library is asked.

    Raises:
        Inapplicable: A stage does more than put something in the place of single characters.

    Example:
        >>> import toktier
        >>> rewriting_of(toktier.load("toktier-mini").family.definition, Probe()).rewrites
        False
    """
    before, splitters = _divided(definition)
    steps: list[Step | Prefix] = []
    touched = np.zeros(CODE_POINTS, bool)
    for stage in before:
        if isinstance(stage, Prefix):
            steps.append(stage)
        else:
            step, some = _step(stage, probe)
            steps.append(step)
            touched[some] = True
    odd = np.zeros(CODE_POINTS, bool)
    images = {}
    characters = [step for step in steps if not isinstance(step, Prefix)]
    for code_point in np.flatnonzero(touched).tolist():
        image = _through(chr(code_point), characters)
        if image is None:
            odd[code_point] = True
        elif image != chr(code_point):
            images[code_point] = image
    return Rewriting(odd, images, _prefix(steps, images), splitters)


def _divided(definition: Definition) -> tuple[list[Normalizer | PreTokenizer], tuple[Splitter, ...]]:
    """The stages that rewrite, and those that divide what they made."""
    before: list[Normalizer | PreTokenizer] = [*definition.normalizers]
    rest = [*definition.pre_tokenizers]
    while rest and isinstance(stage := rest[0], Substitute | Prefix):
        rest.pop(0)
        for literal in definition.literals:
            if literal.normalized:
                # It is looked for before this stage, and the device would look for it after.
                raise Inapplicable(
                    f"pre-tokenizer {stage.name} rewrites what is beside added token {literal.content!r}"
                )
        before.append(stage)
    if rest and isinstance(rest[-1], ByteLevel):
        rest.pop()
    splitters = [stage for stage in rest if isinstance(stage, Splitter)]
    if len(splitters) < len(rest):
        other = next(stage for stage in rest if not isinstance(stage, Splitter))
        raise Inapplicable(f"pre-tokenizer {type(other).__name__} stands behind a splitter, or is none")
    return before, tuple(splitters)


def _step(stage: Normalizer | PreTokenizer, probe: Probe) -> tuple[Step, list[int]]:
    """What a stage makes of each character, and the characters with which it does anything."""
    if isinstance(stage, CharacterMap):
        images = probe.changes(stage.component) | dict.fromkeys(code_points_of(probe.deleted(stage.component)), "")
        return (lambda c: images.get(c, chr(c))), [*images]
    if isinstance(stage, Form):
        return _form(stage, probe)
    if isinstance(stage, Substitute):
        return _substitution(stage, probe)
    raise Inapplicable(f"normalizer {type(stage).__name__} looks further than at single characters")


def _form(stage: Form, probe: Probe) -> tuple[Step, list[int]]:
    """A normalization form. Marks are reordered and composed; what is decomposed to a starter and marks stays apart."""
    if stage.name in ("NFC", "NFKC"):
        rewritten = rewriting(stage, probe)
        odd = {*rewritten.ends, *code_points_of(rewritten.lost)}
        return (lambda c: None if c in odd else chr(c)), [*odd]
    images = probe.changes(stage.name)
    marks = {*code_points_of(probe.combining())}
    moved = marks | {c for c, image in images.items() if ord(image[0]) in marks}
    return (lambda c: None if c in moved else images.get(c, chr(c))), [*images.keys() | moved]


def _substitution(stage: Substitute, probe: Probe) -> tuple[Step, list[int]]:
    """A pattern of one character has an image; what may be in a longer match is odd."""
    (automaton,) = automata_in([stage], probe).values()
    some = sorted({c for position in automaton.positions for c in code_points_of(members(position, probe))})
    if len(some) > MAX_SUBSTITUTED:
        raise Inapplicable(f"normalizer {stage.name} may replace any of {len(some):,} characters")
    chosen = frozenset(some)
    image = stage.content if _is_single(stage.tree) else None
    return (lambda c: image if c in chosen else chr(c)), some


MAX_SUBSTITUTED = 10_000
"""Characters that a substitution may touch: of a text with more of them, little would be left to the device."""


def _is_single(tree: Node) -> bool:
    if isinstance(tree, Sequence) and len(tree.items) == 1:
        (tree,) = tree.items
    return isinstance(tree, CharacterClass)


def _through(text: str, steps: Iterable[Step]) -> str | None:
    """A text after some stages, if each of its characters has an image in all of them."""
    for step in steps:
        images = [step(ord(character)) for character in text]
        if None in images:
            return None
        text = "".join(image for image in images if image is not None)
    return text


def _prefix(steps: list[Step | Prefix], images: dict[int, str]) -> Prefix | None:
    """The prefix as it is after the stages behind it."""
    found = [(i, step) for i, step in enumerate(steps) if isinstance(step, Prefix)]
    if not found:
        return None
    ((at, prefix), *others) = found
    behind = [step for step in steps[at + 1 :] if not isinstance(step, Prefix)]
    content = _through(prefix.content, behind)
    if others or not content:
        raise Inapplicable("there is more than one prefix, or it is rewritten")
    if not all(images.values()):
        raise Inapplicable("a stretch with a prefix may lose the character that it begins with")
    if prefix.unless_there and behind:
        raise Inapplicable(f"what is behind prefix {prefix.content!r} is rewritten after it was looked at")
    return evolve(prefix, content=content)
