"""What a normalizer may make of the two neighbours of a cut.

A normalizer ``N`` commutes with a cut between ``a`` and ``b`` when ``N(X a b Y) == N(X a) + N(b Y)`` for all ``X`` and
``Y``. Where it does, the stages behind it see another pair: some character that ``N(X a)`` can end with, and some
character that ``N(b Y)`` can begin with. A :class:`Rewriting` lists both, for every character that is not always left
alone.

Source: Unicode Standard Annex #15, section 9.1, "Stable Code Points": a character that begins with a starter which
composes with nothing before it is a boundary of every normalization form.
"""

from __future__ import annotations

import functools
from collections import defaultdict
from collections.abc import Mapping

import numpy as np
from attrs import cmp_using, field, frozen

from toktier.families.charsmap import rewritten_by_charsmap
from toktier.families.probing import CODE_POINTS, Probe, Runs
from toktier.families.relation import Characters
from toktier.families.stages import CharacterMap, Charsmap, Form, Trim

_NOWHERE: Characters = frozenset()

DECOMPOSITION = {"NFC": "NFD", "NFD": "NFD", "NFKC": "NFKD", "NFKD": "NFKD"}
"""The normalization forms, each with the form that decomposes as it does."""


@frozen
class Rewriting:
    """The characters that may stand at a cut after normalization; a character that is no key stays as it is.

    Attributes:
        ends: By code point ``a``, what ``N(X a)`` can end with, over all ``X``. Empty: not known.
        starts: By code point ``b``, what ``N(b Y)`` can begin with, over all ``Y``. Empty: it does not commute there.
        lost: The code points of which nothing is known on either side, as runs.
        unknown_from: The first of the code points of which nothing is known that it can begin with, to the last.
    """

    ends: Mapping[int, Characters] = field(factory=dict)
    starts: Mapping[int, Characters] = field(factory=dict)
    lost: Runs = field(factory=lambda: np.zeros(0, np.int64), eq=cmp_using(np.array_equal))
    unknown_from: int = CODE_POINTS


def rewriting(stage: CharacterMap | Form | Trim | Charsmap, probe: Probe) -> Rewriting:
    """What one normalizer can put at a cut.

    Args:
        stage: The normalizer.
        probe: Where the reference library is asked.

    Example:
        >>> from toktier.families.probing import DiskCache
        >>> lowercase = rewriting(CharacterMap('{"type":"Lowercase"}'), Probe(DiskCache(None)))
        >>> lowercase.starts[ord("A")] == {ord("a")}, ord("a") in lowercase.starts
        (True, False)
    """
    if isinstance(stage, Form):
        return _form(stage.name, probe)
    if isinstance(stage, Charsmap):
        ends, starts = rewritten_by_charsmap(stage.component, probe)
        return Rewriting(ends, starts, unknown_from=0x80)
    if isinstance(stage, Trim):
        # Of a left side of nothing but whitespace, nothing may be left.
        lost = {c: _NOWHERE for start, stop in probe.trimmed().reshape(-1, 2).tolist() for c in range(start, stop)}
        return Rewriting(lost, lost if stage.left else {})
    # A character that is deleted leaves unknown neighbours.
    changes = probe.changes(stage.component)
    one = functools.cache(lambda character: frozenset((ord(character),)))
    return Rewriting(
        {c: one(after[-1]) for c, after in changes.items()},
        {c: one(after[0]) for c, after in changes.items()},
        probe.deleted(stage.component),
    )


def _form(name: str, probe: Probe) -> Rewriting:
    """One of the four normalization forms."""
    runs = probe.combining()
    marks = frozenset(c for start, stop in runs.reshape(-1, 2).tolist() for c in range(start, stop))
    decomposed = {c: list(map(ord, text)) for c, text in probe.changes(DECOMPOSITION[name]).items()}
    changed = probe.changes(name)

    # Composites, by the character that they begin with and by those that they can swallow. In a decomposing form none
    # survives, since it is among the changed.
    begun_by: defaultdict[int, set[int]] = defaultdict(set)
    swallows: defaultdict[int, set[int]] = defaultdict(set)
    for composite, parts in decomposed.items():
        if composite not in changed:
            begun_by[parts[0]].add(composite)
            for part in parts[1:]:
                swallows[part].add(composite)

    def begins_segment(c: int) -> bool:
        return c not in marks and c not in swallows

    starting = {c: frozenset(composites | {c}) for c, composites in begun_by.items()}
    starts: dict[int, Characters] = {c: s for c, s in starting.items() if begins_segment(c)}
    starts.update(dict.fromkeys(marks | swallows.keys(), _NOWHERE))
    ends: dict[int, Characters] = {}
    for c, parts in decomposed.items():
        if not begins_segment(parts[0]):
            starts[c] = ends[c] = _NOWHERE
            continue
        starts[c] = starting.get(parts[0], frozenset(parts[:1]))
        if c in changed:
            ends[c] = frozenset((ord(changed[c][-1]),))
    for c in (marks | swallows.keys()) - decomposed.keys():
        # It may end up inside a composite, and a mark may be ordered before any other mark.
        ends[c] = frozenset(swallows.get(c, ())) | (marks if c in marks else {c})
    return Rewriting(ends, starts)
