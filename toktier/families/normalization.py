"""What a normalizer may make of the two neighbours of a cut.

A normalizer ``N`` commutes with a cut between ``a`` and ``b`` when ``N(X a b Y) == N(X a) + N(b Y)`` for all ``X`` and
``Y``. Where it does, the splitters see another pair: some character that ``N(X a)`` can end with, and some character
that ``N(b Y)`` can begin with. A :class:`Rewriting` lists both, for every character that is not always left alone.

Source: Unicode Standard Annex #15, section 9.1, "Stable Code Points": a character that begins with a starter which
composes with nothing before it is a boundary of every normalization form.
"""

from __future__ import annotations

import functools
from collections import defaultdict
from collections.abc import Iterable, Mapping

from attrs import field, frozen

from toktier.families.probing import Probe

Characters = frozenset[int]
"""A set of code points."""

_NOWHERE: Characters = frozenset()

DECOMPOSITION = {"NFC": "NFD", "NFD": "NFD", "NFKC": "NFKD", "NFKD": "NFKD"}
"""The normalization forms, each with the form that decomposes as it does."""

CHARACTER_WISE = frozenset({"Lowercase"})
"""Normalizers that map every character by itself, whatever stands around it."""


@frozen
class Rewriting:
    """The characters that may stand at a cut after normalization; a character that is no key stays as it is.

    Attributes:
        ends: By code point ``a``, what ``N(X a)`` can end with, over all ``X``. Empty: not known.
        starts: By code point ``b``, what ``N(b Y)`` can begin with, over all ``Y``. Empty: it does not commute there.
    """

    ends: Mapping[int, Characters] = field(factory=dict)
    starts: Mapping[int, Characters] = field(factory=dict)

    def then(self, later: Rewriting) -> Rewriting:
        """This normalizer followed by another."""
        return Rewriting(_compose(self.ends, later.ends), _compose(self.starts, later.starts))


def _compose(first: Mapping[int, Characters], second: Mapping[int, Characters]) -> dict[int, Characters]:
    images: dict[Characters, Characters] = {}

    def image(characters: Characters) -> Characters:
        if characters not in images:
            each = [second.get(c, frozenset((c,))) for c in characters]
            images[characters] = frozenset().union(*each) if all(each) else _NOWHERE
        return images[characters]

    return {c: image(first.get(c, frozenset((c,)))) for c in first.keys() | second.keys()}


def rewriting(normalizers: Iterable[str], probe: Probe) -> Rewriting:
    """What a chain of normalizers can put at a cut.

    Args:
        normalizers: Names from :data:`DECOMPOSITION` and :data:`CHARACTER_WISE`, in the order in which they act.
        probe: Where the reference library is asked.

    Example:
        >>> from toktier.families.probing import DiskCache
        >>> lowercase = rewriting(["Lowercase"], Probe(DiskCache(None)))
        >>> lowercase.starts[ord("A")] == {ord("a")}, ord("a") in lowercase.starts
        (True, False)
    """
    chain = list(normalizers)
    stages = {name: _stage(name, probe) for name in dict.fromkeys(chain)}
    return functools.reduce(Rewriting.then, [stages[name] for name in chain]) if chain else Rewriting()


def _stage(name: str, probe: Probe) -> Rewriting:
    return _character_wise(name, probe) if name in CHARACTER_WISE else _form(name, probe)


def _character_wise(name: str, probe: Probe) -> Rewriting:
    """A map of single characters; a character that is deleted leaves unknown neighbours."""
    changes = probe.changes(name)
    return Rewriting(
        {c: frozenset(map(ord, after[-1:])) for c, after in changes.items()},
        {c: frozenset(map(ord, after[:1])) for c, after in changes.items()},
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
