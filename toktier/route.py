"""An engine on a leash: what it cannot do exactly goes to the reference, and one day it may be trusted no more.

A text with a character of the engine's guard goes to the reference, and so does one on which it raises. An engine that
was caught with other ids is demoted for the family, in this process, wherever it serves.
"""

from __future__ import annotations

import logging
import threading
import weakref
from collections.abc import Sequence

from toktier.engines.admission import Evidence
from toktier.engines.base import Engine, Ids, contained
from toktier.engines.continuing import encode_continuing
from toktier.engines.reference import ReferenceEngine
from toktier.families.family import Family, valid_text

FAILURES = 100
"""Texts on which an engine may raise before it is given no more."""

logger = logging.getLogger(__name__)


class Demotions:
    """The engines that gave other ids than the reference, by family: in this process they serve it no more."""

    def __init__(self) -> None:
        self.changes = 0
        """Of any kind: whoever chose an engine chooses again."""
        self._lock = threading.Lock()
        self._why: dict[tuple[str, str], str] = {}
        self._counts: dict[str, int] = {}
        self._routes: weakref.WeakSet[Route] = weakref.WeakSet()

    def count(self, digest: str) -> int:
        """Twice how many there were for a family, and one more while one is under way.

        Whoever remembers ids compares this with what it was then. While it is odd, some engine may be trusted still
        that will not be, and some session may be taken for trusted that was just begun with its ids.
        """
        return self._counts.get(digest, 0)

    def watch(self, route: Route) -> None:
        """Has a new route take part."""
        with self._lock:
            self._routes.add(route)
            if route.digest is not None and (why := self._why.get((route.digest, route.name))):
                route.demote(why)

    def demote(self, digest: str, name: str, why: str) -> None:
        """Demotes an engine for a family."""
        with self._lock:
            if (digest, name) in self._why:
                return
            self._counts[digest] = self.count(digest) + 1
            try:
                for route in self._of(digest, name):
                    route.demote(why)
                for route in self._routes:
                    if route.digest == digest and route.beside == name:
                        route.epoch += 1
                self._why[digest, name] = why
            finally:
                # Last, so that whoever sees it meets no engine that is trusted still.
                self._counts[digest] += 1
                self.changes += 1

    def restore(self, digest: str, name: str) -> None:
        """Trusts an engine again, also one that raised too often."""
        with self._lock:
            self._why.pop((digest, name), None)
            for route in self._of(digest, name):
                if route.demoted:
                    route.restore()
            self.changes += 1

    def give_up(self, route: Route, reason: str) -> None:
        """Gives an engine no more texts; ``"auto"`` is another one from now on. What it gave before stays trusted."""
        with self._lock:
            if not route.demoted:
                route.give_up(reason)
                self.changes += 1

    def _of(self, digest: str, name: str) -> list[Route]:
        return [route for route in self._routes if (route.digest, route.name) == (digest, name)]


demotions = Demotions()
"""Those of this process."""


class Route:
    """An engine on its way through the guard, with the reference behind it. Answers to the engine protocol itself.

    Made by :meth:`toktier.Tokenizer.engine`; ``repr()`` of it says all that it counts.

    Attributes:
        name: The engine's.
        reason: Why it may serve.
        texts: How many it was given, about: threads do not wait for one another to count.
        guarded: The texts that went to the reference because of a character on which the engine differs.
        failed: The texts that did because the engine raised. After some it is given no more.
        digest: The digest of the family that it serves, if that is known.
        epoch: Raised whenever ids that it gave before are trusted no more. Sessions then begin anew.

    Example:
        >>> import toktier
        >>> route = toktier.load("toktier-mini").renewed().engine("memo")
        >>> ids = route.encode("Hello")
        >>> route
        <toktier engine memo: admitted: exact by the theorem ...; 1 texts, 0 guarded, 0 failed>
    """

    __slots__ = (
        "__weakref__",
        "_engine",
        "_family",
        "_forgiven",
        "_is_guarded",
        "_reference",
        "_replaced",
        "_served",
        "_texts_before",
        "digest",
        "epoch",
        "failed",
        "guarded",
        "name",
        "reason",
        "texts",
    )

    def __init__(
        self,
        engine: Engine,
        reference: ReferenceEngine,
        reason: str,
        evidence: Evidence | None = None,
        family: Family | None = None,
    ) -> None:
        self.name = engine.name
        self._family = family
        self.digest = None if family is None else family.digest
        self.epoch = 0
        self._replaced = self._forgiven = 0
        self._texts_before: int | None = None
        """How many there were when it was demoted."""
        self._served = engine, reason
        """The engine, and why it may serve, also while the reference answers in its place."""
        self.reason = reason
        self._engine = engine
        self._reference = reference
        self._is_guarded = evidence.finder() if evidence else None
        self.texts = self.guarded = self.failed = 0

    def __repr__(self) -> str:
        counted = f"{self.texts:,} texts, {self.guarded:,} guarded, {self.failed:,} failed"
        return f"<toktier engine {self.name}: {self.reason}; {counted}>"

    def encode(self, text: str, *, continuation: bool = False) -> Ids:
        """The ids of a text, uint32, shape (tokens,).

        Raises:
            TypeError: The text is not a string.
            InvalidText: The text has a lone surrogate.
            ValueError: The text continues another one, and there is no certified cut before its first character.
        """
        if type(text) is not str:
            text = valid_text(text)
        if continuation and self._family is not None and self._family.prefixed:
            return self.encode_batch([text], continuation=True)[0]
        self.texts += 1
        if self._is_guarded is not None and not text.isascii() and self._is_guarded(text):
            self.guarded += 1
            return self._reference.encode(text)
        engine = self._engine
        try:
            return engine.encode(text)
        except BaseException as error:
            return self._in_its_place(engine, error, text)

    def encode_batch(self, texts: Sequence[str], *, continuation: bool = False) -> list[Ids]:
        """The ids of several texts."""
        if continuation and self._family is not None and self._family.prefixed:
            return encode_continuing(self._family, self, texts, [True] * len(texts), self.encode_batch)
        if self._is_guarded is not None and not all(map(str.isascii, texts)):
            guarded = [not text.isascii() and self._is_guarded(text) for text in texts]
            if any(guarded):
                self.guarded += sum(guarded)
                self.texts += sum(guarded)
                fine = [text for text, it in zip(texts, guarded, strict=True) if not it]
                encoded = iter(self._encoded(fine))
                return [
                    self._reference.encode(text) if it else next(encoded)
                    for text, it in zip(texts, guarded, strict=True)
                ]
        return self._encoded(texts)

    def fallback(self, text: str) -> str | None:
        """Why the reference encodes a text in the engine's place, if it does."""
        if self._engine is self._reference:
            return f"the reference in its place: {self.reason}"
        if self._is_guarded is not None and not text.isascii() and self._is_guarded(text):
            return "the reference in its place, for a character on which the two differ"
        return None

    @property
    def call_size(self) -> int:
        """Characters that are worth a call of their own, where a chunk is not."""
        size: int = getattr(self._engine, "call_size", 0)
        return size

    @property
    def beside(self) -> str | None:
        """The name of another engine that encodes some texts in place of this one."""
        host = getattr(self._served[0], "host", None)
        return host.name if isinstance(host, Route) else None

    @property
    def engine(self) -> Engine:
        """The engine itself, without the reference behind it."""
        return self._served[0]

    @property
    def demoted(self) -> bool:
        """Whether the reference answers in place of the engine, whatever the text is."""
        return self._engine is self._reference

    @property
    def replaced(self) -> int:
        """The texts that the reference encoded because the engine was demoted."""
        return self._replaced + (self.texts - self._texts_before if self._texts_before is not None else 0)

    def demote(self, why: str) -> None:
        """Gives the engine no more texts, and trusts nothing that it gave."""
        self.give_up(f"demoted: {why}")
        # Last: a session that notes it meanwhile has ids of the reference.
        self.epoch += 1

    def give_up(self, reason: str) -> None:
        """Gives the engine no more texts."""
        self._texts_before = self.texts
        self._engine, self.reason = self._reference, reason

    def restore(self) -> None:
        """Trusts the engine again."""
        self._replaced, self._texts_before = self.replaced, None
        self._engine, self.reason = self._served
        self._forgiven = self.failed

    def _encoded(self, texts: Sequence[str]) -> list[Ids]:
        self.texts += len(texts)
        engine = self._engine
        try:
            return engine.encode_batch(texts)
        except BaseException as error:
            if not contained(error) or engine is self._reference:
                raise
            failed, encoded = self.failed, [self._alone(text) for text in texts]
            if self.failed == failed:
                self._note(error)  # on none of them alone: the batch counts as one
            return encoded

    def _alone(self, text: str) -> Ids:
        """The ids of one text of several on which the engine raised."""
        text, engine = valid_text(text), self._engine
        if engine is self._reference:
            self._replaced += 1  # it was given up in the middle of them
        try:
            return engine.encode(text)
        except BaseException as error:
            return self._in_its_place(engine, error, text)

    def _in_its_place(self, engine: Engine, error: BaseException, text: str) -> Ids:
        """What the reference gives for a text on which an engine raised, unless that is the reference."""
        if not contained(error) or engine is self._reference:
            raise error
        ids = self._reference.encode(valid_text(text))
        self._note(error)  # after it: what the reference cannot encode is no failure of the engine
        return ids

    def _note(self, error: BaseException) -> None:
        if not self.failed:
            logger.warning("engine %s raised %r: the reference answers in its place", self.name, error)
        self.failed += 1
        if self.failed - self._forgiven >= FAILURES and not self.demoted:
            logger.warning("engine %s raised on %d texts and is given no more", self.name, FAILURES)
            demotions.give_up(self, f"given no more texts, since it raised on {FAILURES}; before, {self._served[1]}")
