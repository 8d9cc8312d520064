"""gigatoken: a hundred times the reference's speed, from the optional package of that name (the extra ``fast``).

The library follows another version of Unicode than the reference, and recognises added tokens in its own way: what it
may be given is for :mod:`toktier.engines.admission` to find out. Normalization is not left to it: which characters
compose is a matter of pairs, which no guard of single code points describes. It also remembers the pieces of all texts
that it has seen, for as long as its object lives; so after a budget of new words other objects take their place.
"""

from __future__ import annotations

import importlib.util
import json
import queue
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from typing import Any

import numpy as np

from toktier.engines.base import Ids, Inapplicable
from toktier.engines.literals import refuse_overlaps
from toktier.engines.normality import Normality, refuse_other_rewriting
from toktier.engines.novelty import Novelty
from toktier.engines.reference import ReferenceEngine
from toktier.families.family import Family
from toktier.families.literal import as_matched
from toktier.families.probing import Probe

BUDGET = 1 << 25
"""Characters that are new to the library's objects after which they are replaced. Each takes some 4 bytes."""

LONG = 1 << 17
"""Characters from which on it is worth to let other threads run meanwhile: that way of calling takes 0.1 ms more."""

PAUSE = 1.0
"""Seconds for which everybody else may run before the next object is built in the place of another."""

SPARES = 2
"""Objects for long texts, each of which takes some 50 MB: while they are at work, short texts have one of their own."""


class GigatokenEngine:
    """Encodes with ``gigatoken``.

    Args:
        family: What to encode for.
        reference: Whose definition the library is given, less its normalizers; encodes what is not normal.
        probe: Where the reference is asked whether a text is.
        budget: New characters after which its objects are replaced by others, which another thread builds. The library
            keeps the interpreter to itself for as long as that takes, under half a second for 150,000 tokens; so they
            are built one by one, with a pause between, in which one object alone serves long texts. At the first long
            text, two are built at once.

    Raises:
        Inapplicable: The library is not installed, or refuses the definition.
    """

    name = "gigatoken"
    call_size = 1 << 19  # a call that lets other threads run costs as much as some 30,000 characters

    def __init__(self, family: Family, reference: ReferenceEngine, probe: Probe, *, budget: int = BUDGET) -> None:
        self.check(family, reference)
        from gigatoken.gigatoken_rs import load_hf_json

        self._build = load_hf_json
        for literal in family.definition.literals:
            if literal.normalized and as_matched(literal, family.definition.normalizer, probe) != literal:
                raise Inapplicable(f"added token {literal.content!r} is looked for in another form")
        refuse_overlaps(family.definition)
        self._reference = reference
        self._probe = probe
        self._normalizer = family.definition.normalizer
        self._normality = Normality(family.definition.normalizers, probe)
        self._definition = json.dumps(json.loads(reference.tokenizer.to_str()) | {"normalizer": None}).encode()
        self._budget = budget
        self._novelty = Novelty()
        self._renewal = threading.Lock()
        # The library's object serves one caller at a time, and raises when it lets the others run meanwhile.
        self._using = threading.Lock()
        self._spares: queue.SimpleQueue[Any] | None = None
        """Objects for long texts that nobody uses; None until there is one."""
        self._building = threading.Lock()
        try:
            self._backend: Any = self._build(self._definition)
        except Exception as error:
            raise Inapplicable(f"the library refuses the definition: {error}") from None

    @staticmethod
    def version() -> str:
        """The library's."""
        from importlib.metadata import version

        return version("gigatoken")

    @staticmethod
    def check(family: Family, reference: ReferenceEngine) -> None:
        """Raises :class:`Inapplicable` for what can be told at once."""
        if importlib.util.find_spec("gigatoken") is None:
            raise Inapplicable("not installed: pip install gigatoken")
        refuse_other_rewriting(family.definition)
        if reference.tokenizer.encode_special_tokens:
            raise Inapplicable("special tokens are encoded as text")

    def encode(self, text: str, *, continuation: bool = False) -> Ids:
        """The ids of a text, uint32, shape (tokens,)."""
        return self.encode_batch([text])[0]

    def encode_batch(self, texts: Sequence[str], *, continuation: bool = False) -> list[Ids]:
        """The ids of several texts; other threads run meanwhile, if they are long."""
        characters = sum(map(len, texts))
        for text in texts:
            self._novelty.meet(text)
        if self._novelty.characters > self._budget and self._renewal.acquire(blocking=False):
            try:
                # Not a daemon: the interpreter must not end while the library is at work in it.
                threading.Thread(target=self._renew, name="gigatoken renewal").start()
            except RuntimeError:  # no more threads: another call may have more luck
                self._renewal.release()
        fine = [*map(self._is_normal, texts)]
        if all(fine):
            return self._encoded(texts, characters)
        normal = [text for text, it in zip(texts, fine, strict=True) if it]
        encoded = iter(self._encoded(normal, sum(map(len, normal))))
        return [next(encoded) if it else self._reference.encode(text) for text, it in zip(texts, fine, strict=True)]

    def _encoded(self, texts: Sequence[str], characters: int) -> list[Ids]:
        """The ids of texts that are normal."""
        if characters < LONG:
            with self._using:
                encode = self._backend.encode
                return [encode(text) for text in texts]
        with self._spare() as backend:
            layout = backend.encode_batch(list(texts), parallel=False).layout
        ids, ends = np.asarray(layout.content.data, np.uint32), np.asarray(layout.offsets.data).tolist()
        return [ids[start:end] for start, end in pairwise(ends)]

    @contextmanager
    def _spare(self) -> Iterator[Any]:
        """An object of the library for a long text, while another serves the short ones."""
        spares = self._spares
        if spares is None:
            with self._building:
                spares = self._spares = self._spares or self._built_spares()
        spare = spares.get()
        try:
            yield spare
        finally:
            spares.put(spare)

    def _built_spares(self) -> queue.SimpleQueue[Any]:
        spares: queue.SimpleQueue[Any] = queue.SimpleQueue()
        for _ in range(SPARES):
            spares.put(self._build(self._definition))
            time.sleep(0.01)  # whoever has waited for the interpreter meanwhile
        return spares

    def _is_normal(self, text: str) -> bool:
        """Whether the normalizers leave a text alone, and so each part of it, such as what is between added tokens."""
        normalizer = self._normalizer
        return normalizer is None or self._normality.is_sure(text) or self._probe.normalize(normalizer, text) == text

    def _renew(self) -> None:
        try:
            backend = self._build(self._definition)
            with self._using:
                self._backend = backend
            self._novelty = Novelty()
            if self._spares is not None:
                spares: queue.SimpleQueue[Any] = queue.SimpleQueue()
                for _ in range(SPARES):
                    _rest()
                    spares.put(self._build(self._definition))
                    self._spares = spares  # those of before go when they are put back
        except BaseException:
            self._novelty = Novelty()  # or each call would try it again
            raise
        finally:
            self._renewal.release()


def _rest() -> None:
    """Lets everybody else run for a while, unless the interpreter is about to end."""
    until = time.monotonic() + PAUSE
    while time.monotonic() < until and threading.main_thread().is_alive():
        time.sleep(0.05)
