"""Normalizers as the device applies them: one character at a time.

The image of a character is what the whole chain of normalizers makes of it wherever it stands. Of the others, which
may be treated by what is beside them, nothing is said: they are *odd*, and a segment with one is left to the host. Some
are so only beside another one of the same kind: they are *paired*.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import numpy as np
import numpy.typing as npt
from attrs import evolve, field, frozen

from toktier.engines.base import Inapplicable
from toktier.families.charsmap import images_of
from toktier.families.definition import Definition
from toktier.families.normalization import rewriting
from toktier.families.pattern import literal_text
from toktier.families.probing import CODE_POINTS, Probe, code_points_of
from toktier.families.splitting import automata_in, certainly_matched, members
from toktier.families.stages import (
    ByteLevel,
    CharacterMap,
    Charsmap,
    Form,
    Normalizer,
    Pieces,
    Prefix,
    PreTokenizer,
    Splitter,
)
from toktier.families.stages import Substitution as Substitute
from toktier.families.syntax import Alternation, Atomic, CharacterClass, Lookahead, Node, Repeat
from toktier.families.syntax import Sequence as InTurn


@frozen(eq=False)
class Step:
    """What a stage does with characters.

    Attributes:
        image: What it makes of one; None where that depends on what is beside it.
        touched: Those with which it does anything.
        paired: Those that stay as they are, unless they are beside another one of these.
    """

    image: Callable[[int], str | None]
    touched: Sequence[int]
    paired: frozenset[int] = frozenset()


@frozen(eq=False)
class Rewriting:
    """What becomes of each character before the splitters see it.

    Attributes:
        odd: Whether it may be treated by what is beside it, shape (0x110000,).
        paired: Whether it may beside another that is paired, shape (0x110000,).
        images: What comes of those that are not odd and do not stay as they are, by code point.
        prefix: What is put before stretches, after the normalizers; None when nothing is.
        splitters: The stages behind, which divide; and one may put a prefix before all pieces that there are by then.
    """

    odd: npt.NDArray[np.bool_] = field(repr=False)
    paired: npt.NDArray[np.bool_] = field(repr=False)
    images: dict[int, str] = field(repr=False)
    prefix: Prefix | None
    splitters: tuple[Splitter | Prefix, ...]


def rewriting_of(definition: Definition, probe: Probe) -> Rewriting:
    """What the stages before the splitters do.

    Args:
        definition: A definition that is understood.
        probe: Where the reference library is asked.

    Raises:
        Inapplicable: A stage does more than put something in the place of single characters.

    Example:
        >>> import toktier
        >>> rewriting_of(toktier.load("toktier-mini").family.definition, Probe()).images
        {}
    """
    before, splitters = _divided(definition, probe)
    stages = [stage if isinstance(stage, Prefix) else _step(stage, probe) for stage in before]
    steps = [step for step in stages if isinstance(step, Step)]
    odd, paired = np.zeros(CODE_POINTS, bool), np.zeros(CODE_POINTS, bool)
    images = {}
    for code_point in sorted({c for step in steps for c in step.touched}):
        image, paired[code_point] = _through(chr(code_point), steps)
        if image is None:
            odd[code_point] = True
        elif image != chr(code_point):
            images[code_point] = image
    return Rewriting(odd, paired, images, _prefix(stages, images), splitters)


def _divided(
    definition: Definition, probe: Probe
) -> tuple[list[Normalizer | PreTokenizer], tuple[Splitter | Prefix, ...]]:
    """The stages that rewrite, and those that divide what they made."""
    before: list[Normalizer | PreTokenizer] = [*definition.normalizers]
    rest = [*definition.pre_tokenizers]
    while rest and isinstance(stage := rest[0], Substitute | Prefix):
        rest.pop(0)
        for literal in definition.literals:
            if literal.normalized:
                # It is looked for before this stage, and the device would look for it after.
                raise Inapplicable(f"pre-tokenizer {stage.name} rewrites text beside added token {literal.content!r}")
        before.append(stage)
    if rest and isinstance(rest[-1], ByteLevel):
        rest.pop()
    behind: list[Splitter | Prefix] = []
    for stage in rest:
        if isinstance(stage, Splitter) or (isinstance(stage, Prefix) and stage.everywhere and stage.unless_there):
            behind.append(stage)
        elif not (isinstance(stage, Substitute) and _finds_nothing(stage, behind, probe)):
            raise Inapplicable(f"pre-tokenizer {type(stage).__name__} stands behind a splitter, or is not one")
    _check_piece_prefix(behind)
    return before, tuple(behind)


def _finds_nothing(stage: Substitute, before: Iterable[Splitter | Prefix], probe: Probe) -> bool:
    """Whether all that a pattern could match was dropped by splitters before."""
    splitters = [splitter for splitter in before if isinstance(splitter, Splitter)]
    return all(any(_drops(splitter, character, probe) for splitter in splitters) for character in _some(stage, probe))


def _drops(splitter: Splitter, character: int, probe: Probe) -> bool:
    """Whether a splitter drops a character wherever it stands."""
    (automaton,) = automata_in([splitter], probe).values()
    edges = [np.searchsorted(members(position, probe), character, side="right") for position in automaton.positions]
    inside = np.array([edges]) % 2 == 1
    if splitter.keeps is Pieces.MATCHES:
        return not inside.any()
    return splitter.keeps is Pieces.GAPS and bool(certainly_matched(automaton, inside)[0])


def _check_piece_prefix(stages: Sequence[Splitter | Prefix]) -> None:
    """A prefix of pieces is never written down: what is behind it must do the same whether it sees it or not."""
    for i, stage in enumerate(stages):
        if isinstance(stage, Prefix):
            alike = [[], [Splitter(stage.name, literal_text(stage.content), Pieces.BEFORE_GAPS)]]
            if len(stage.content) != 1 or [*stages[i + 1 :]] not in alike:
                raise Inapplicable(f"pre-tokenizer {stage.name}: what it puts behind a splitter is divided again")


def _step(stage: Normalizer | PreTokenizer, probe: Probe) -> Step:
    """What a stage does, if it is one that rewrites characters."""
    if isinstance(stage, CharacterMap):
        images = probe.changes(stage.component) | dict.fromkeys(code_points_of(probe.deleted(stage.component)), "")
        return Step(lambda c: images.get(c, chr(c)), [*images])
    if isinstance(stage, Form):
        return _form(stage, probe)
    if isinstance(stage, Substitute):
        return _substitution(stage, probe)
    if isinstance(stage, Charsmap):
        return _charsmap(stage, probe)
    raise Inapplicable(f"normalizer {type(stage).__name__} looks further than at single characters")


def _form(stage: Form, probe: Probe) -> Step:
    """A normalization form. Marks are reordered and composed; what is decomposed to a starter and marks stays apart."""
    if stage.name in ("NFC", "NFKC"):
        rewritten = rewriting(stage, probe)
        odd = {*rewritten.ends, *code_points_of(rewritten.lost)}
        return Step(lambda c: None if c in odd else chr(c), [*odd])
    images = probe.changes(stage.name)
    marks = {*code_points_of(probe.combining())}
    moved = marks | {c for c, image in images.items() if ord(image[0]) in marks}
    return Step(lambda c: None if c in moved else images.get(c, chr(c)), [*images.keys() | moved])


def _charsmap(stage: Charsmap, probe: Probe) -> Step:
    """What is in no cluster with others is looked up by itself; and so are the characters of clusters of six bytes.

    Those that are shorter have a character in them that is appended or prepended to any, or are the one line end of two
    characters: the others that clusters are made of have three bytes or four, and join none but each other.
    """
    images = images_of(stage.component)
    appended, prepended = probe.clusters()
    odd = {*appended, *prepended, ord("\r")}
    return Step(lambda c: None if c in odd else images.get(c, chr(c)), [*images.keys() | odd])


def _substitution(stage: Substitute, probe: Probe) -> Step:
    """A pattern of one character has an image; one of several needs them side by side; what may be either is odd."""
    some = sorted(_some(stage, probe))
    if len(some) > MAX_SUBSTITUTED:
        raise Inapplicable(f"normalizer {stage.name} may replace any of {len(some):,} characters")
    chosen = frozenset(some)
    if _shortest(stage.tree) > 1:
        return Step(chr, some, chosen)
    image = stage.content if _is_single(stage.tree) else None
    return Step(lambda c: image if c in chosen else chr(c), some)


def _some(stage: Substitute, probe: Probe) -> set[int]:
    """What may be in a match, or looked at for one."""
    (automaton,) = automata_in([stage], probe).values()
    return {c for position in automaton.positions for c in code_points_of(members(position, probe))}


MAX_SUBSTITUTED = 10_000
"""Characters that a substitution may touch: of a text with more of them, little would be left to the device."""


def _is_single(tree: Node) -> bool:
    if isinstance(tree, InTurn) and len(tree.items) == 1:
        (tree,) = tree.items
    return isinstance(tree, CharacterClass)


def _shortest(tree: Node) -> int:
    """Characters that a match has at least."""
    if isinstance(tree, CharacterClass):
        return 1
    if isinstance(tree, Lookahead):
        return 0
    if isinstance(tree, Repeat):
        return tree.minimum * _shortest(tree.node)
    if isinstance(tree, Atomic):
        return _shortest(tree.node)
    if isinstance(tree, Alternation):
        return min(map(_shortest, tree.branches))
    return sum(map(_shortest, tree.items))


def _through(text: str, steps: Iterable[Step]) -> tuple[str | None, bool]:
    """A text after some stages, if each of its characters has an image in all of them; and whether it is paired.

    Where nothing is left of it, what was beside it is side by side.
    """
    paired = False
    for step in steps:
        count = sum(ord(character) in step.paired for character in text)
        images = [step.image(ord(character)) for character in text]
        if count > 1 or None in images:
            return None, False
        paired |= bool(step.paired) and (count > 0 or not text)
        text = "".join(image for image in images if image is not None)
    return text, paired


def _prefix(stages: Sequence[Step | Prefix], images: dict[int, str]) -> Prefix | None:
    """The prefix as it is after the stages behind it."""
    found = [i for i, stage in enumerate(stages) if isinstance(stage, Prefix)]
    if not found:
        return None
    prefix = stages[found[0]]
    assert isinstance(prefix, Prefix)
    before, behind = (
        [step for step in some if isinstance(step, Step)] for some in (stages[: found[0]], stages[found[0] :])
    )
    content, paired = _through(prefix.content, behind)
    if len(found) > 1 or not content or paired:
        raise Inapplicable("there is more than one prefix, or it is rewritten")
    lost = [chr(code_point) for code_point, image in images.items() if not image]
    if (lost and not prefix.everywhere) or any(_through(character, before)[0] for character in lost):
        # Of a stretch that is empty when its turn comes, a prefix does not go before anything.
        raise Inapplicable("a stretch with a prefix may lose the character that it begins with")
    if prefix.unless_there and behind:
        raise Inapplicable(f"what is behind prefix {prefix.content!r} is rewritten after it was looked at")
    return evolve(prefix, content=content)
