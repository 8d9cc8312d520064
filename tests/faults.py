"""Faults to be planted in engines, to see whether they are found."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from tests import material
from toktier.engines.base import Engine, Ids
from toktier.engines.memo import MemoEngine
from toktier.engines.reference import ReferenceEngine
from toktier.families.family import Family

MINI = material.load("toktier-mini")

Fault = Callable[[str, Ids], Ids]
"""What becomes of the ids of a text."""

MARK = "q"
"""A character that faults look for, so that most texts are right."""


def substituted(text: str, ids: Ids) -> Ids:
    return np.where(np.arange(len(ids)) == len(ids) // 2, ids + 1, ids).astype(np.uint32) if MARK in text else ids


def deleted(text: str, ids: Ids) -> Ids:
    return ids[:-1] if MARK in text else ids


def duplicated(text: str, ids: Ids) -> Ids:
    return np.append(ids, ids[-1:]) if MARK in text else ids


def swapped(text: str, ids: Ids) -> Ids:
    return np.concatenate([ids[1::-1], ids[2:]]) if MARK in text else ids


def divided_otherwise(text: str, ids: Ids) -> Ids:
    """The tail in other tokens, as many of them and of the same text: nothing that decodes or counts can tell."""
    if MARK not in text:
        return ids
    vocabulary = {MINI.decode([id]): id for id in range(300)}
    for i in range(len(ids) - 1, 0, -1):
        two = MINI.decode(ids[i - 1 : i + 1])
        for at in range(1, len(two)):
            other = [vocabulary.get(two[:at]), vocabulary.get(two[at:])]
            if None not in other and other != ids[i - 1 : i + 1].tolist():
                return np.concatenate([ids[: i - 1], np.array(other, np.uint32), ids[i + 1 :]])
    return ids


def raising(text: str, ids: Ids) -> Ids:
    if MARK in text:
        raise RuntimeError("planted")
    return ids


def stale() -> Fault:
    """A cache that takes the beginning of a text for all of it: what it answers was right for an earlier text."""
    known: dict[str, Ids] = {}

    def of_before(text: str, ids: Ids) -> Ids:
        return known.setdefault(text[:20], ids) if len(text) > 20 else ids

    return of_before


def forgetful() -> Fault:
    """Wrong once a text of some length was seen before a long one, as one production engine was."""
    seen = [0]

    def after_a_long_one(text: str, ids: Ids) -> Ids:
        was_long, seen[0] = seen[0] >= 4096, len(text)
        return ids[:-1] if was_long and len(text) > 4096 else ids

    return after_a_long_one


FAULTS: dict[str, Callable[[], Fault]] = {
    **{fault.__name__: lambda fault=fault: fault for fault in (substituted, deleted, duplicated, swapped, raising)},  # type: ignore[misc]
    "divided otherwise": lambda: divided_otherwise,
    "stale": stale,
    "forgetful": forgetful,
}


class Faulty:
    """An engine with a fault that has been planted in it."""

    name = "memo"

    def __init__(self, engine: Engine, fault: Fault) -> None:
        self._engine, self._fault = engine, fault

    def encode(self, text: str, *, continuation: bool = False) -> Ids:
        return self._fault(text, self._engine.encode(text, continuation=continuation))

    def encode_batch(self, texts: Sequence[str], *, continuation: bool = False) -> list[Ids]:
        return [self.encode(text, continuation=continuation) for text in texts]


def faulty_class(fault: Callable[[], Fault]) -> type:
    """What can take the place of :class:`MemoEngine` in the router, so that the fault serves behind its leash."""

    class Planted(Faulty):
        def __init__(self, family: Family, reference: ReferenceEngine) -> None:
            super().__init__(MemoEngine(family, reference), fault())

    return Planted
