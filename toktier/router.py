"""Which engine serves a tokenizer, and why.

An engine other than the reference is on a leash, the :class:`Route`: a text with a character of its guard goes to the
reference, and so does one on which it raises. Whether it may serve at all is decided by evidence
(:mod:`toktier.engines.admission`), which takes seconds to gather and is kept on disk. Nobody has to wait for it:
without, ``"auto"`` is ``memo``, which is exact by the theorem; and for a tokenizer that turns out to be used a lot, a
thread gathers the evidence.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import weakref
from collections.abc import Callable, Sequence
from typing import TypeAlias

from toktier.engines.admission import Evidence, Interrupted, Suspect, always, compared
from toktier.engines.base import Engine, Ids, Inapplicable, contained
from toktier.engines.continuing import encode_continuing
from toktier.engines.gigatoken import GigatokenEngine
from toktier.engines.memo import MemoEngine
from toktier.engines.reference import ReferenceEngine
from toktier.engines.tiktoken import TiktokenEngine
from toktier.errors import UnknownEngine
from toktier.families.family import Family, valid_text
from toktier.families.probing import DiskCache
from toktier.gpu.engine import GpuEngine, OnDevice
from toktier.gpu.offload import Offload

PROCESSOR = ("gigatoken", "tiktoken", "memo", "reference")
"""The engines of the processor, fastest first."""

NAMES = ("gpu", *PROCESSOR)
"""All engines. The first is only used once somebody has asked for it: it takes memory, and a process that has used CUDA
cannot fork any more."""

BY_THEOREM = "admitted: exact by the theorem of certified cuts, from ids of the reference"

FAILURES = 100
"""Texts on which an engine may raise before it is given no more."""

BUSY = 1 << 12
"""Texts that ``"auto"`` encodes before it is worth to compare faster engines with the reference."""

logger = logging.getLogger(__name__)

SUSPECTS: dict[str, type[Suspect]] = {suspect.name: suspect for suspect in (GpuEngine, GigatokenEngine, TiktokenEngine)}
"""The engines that need evidence."""


def never() -> bool:
    """What is known already must do."""
    return False


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
        """Trusts an engine again."""
        with self._lock:
            if self._why.pop((digest, name), None) is not None:
                for route in self._of(digest, name):
                    route.restore()
                self.changes += 1

    def _of(self, digest: str, name: str) -> list[Route]:
        return [route for route in self._routes if (route.digest, route.name) == (digest, name)]


demotions = Demotions()
"""Those of this process."""


class Route:
    """An engine on its way through the guard, with the reference behind it. Answers to the engine protocol itself.

    Attributes:
        name: The engine's.
        reason: Why it may serve.
        texts: How many it was given, about: threads do not wait for one another to count.
        guarded: The texts that went to the reference because of a character on which the engine differs.
        failed: The texts that did because the engine raised. After some it is given no more.
        digest: The digest of the family that it serves, if that is known.
        epoch: Raised whenever ids that it gave before are trusted no more. Sessions then begin anew.
    """

    __slots__ = (
        "__weakref__",
        "_engine",
        "_family",
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
        self._replaced = 0
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
        try:
            return self._engine.encode(text)
        except BaseException as error:
            self._note(error, [text])
            return self._reference.encode(text)

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
        self._texts_before = self.texts
        self._engine = self._reference
        self.reason = f"demoted: {why}"
        # Last: a session that notes it meanwhile has ids of the reference.
        self.epoch += 1

    def restore(self) -> None:
        """Trusts the engine again."""
        self._replaced, self._texts_before = self.replaced, None
        self._engine, self.reason = self._served
        self.failed = 0

    def _encoded(self, texts: Sequence[str]) -> list[Ids]:
        self.texts += len(texts)
        try:
            return self._engine.encode_batch(texts)
        except BaseException as error:
            self._note(error, texts)
            return self._reference.encode_batch(texts)

    def _note(self, error: BaseException, texts: Sequence[str]) -> None:
        if not contained(error):
            raise error
        for text in texts:
            valid_text(text)  # what is no text is no failure of the engine
        if not self.failed:
            logger.warning("engine %s raised %r: the reference answers in its place", self.name, error)
        self.failed += len(texts)
        if self.failed >= FAILURES and self._engine is not self._reference:
            logger.warning("engine %s raised on %d texts and is given no more", self.name, self.failed)
            self.reason = f"given no more texts, since it raised on {self.failed}; before, {self.reason}"
            self._engine = self._reference


Serving: TypeAlias = Route | ReferenceEngine
"""What may serve: it says why."""


def _reason(serving: Serving) -> str:
    """Why an engine may serve, and what is the matter with it now."""
    trouble: str | None = getattr(serving.engine, "trouble", None) if isinstance(serving, Route) else None
    return serving.reason if trouble is None else f"{serving.reason}; {trouble}"


class Router:
    """The engines of one tokenizer, made when they are asked for. Safe to share between threads.

    Args:
        family: What they serve.
        reference: The definition of correct.
        cache: Keeps the evidence.
        on_trial: Whether the engines are only looked at, also those that serve no more.
    """

    def __init__(self, family: Family, reference: ReferenceEngine, cache: DiskCache, *, on_trial: bool = False) -> None:
        self._on_trial = on_trial
        self._family = family
        self._reference = reference
        self._cache = cache
        self._decisions: dict[str, Serving | str] = {reference.name: reference}
        """An engine that may serve, or why it may not."""
        self._deciding = {name: threading.Lock() for name in NAMES}
        self._demotions = demotions.changes
        self._auto: Serving | None = None
        """The fastest engine that may serve; None when a decision was made since it was looked for."""
        self._choosing = threading.RLock()
        self._gathering = False

    def auto(self) -> Engine:
        """The fastest engine of which it is known by now that it may serve."""
        if self._demotions != demotions.changes:
            self._demotions, self._auto = demotions.changes, None
        auto = self._auto or self._fastest()
        if not self._gathering and isinstance(auto, Route) and auto.texts > BUSY:
            self._begin_gathering()
        return auto

    def route(self, name: str) -> Engine:
        """The engine of a name, which is compared with the reference now if it was not before.

        Raises:
            UnknownEngine: There is none of that name, or it may not serve.
        """
        if name not in NAMES:
            raise UnknownEngine(f"no engine {name!r}: use 'auto' or one of {', '.join(map(repr, NAMES))}")
        decision = self._decision(name, always)
        if decision is None or isinstance(decision, str):
            raise UnknownEngine(f"engine {name!r} does not serve this tokenizer: {decision}")
        return decision

    def encode_on_device(self, texts: Sequence[str]) -> OnDevice:
        """The ids of texts as one array on the GPU.

        Raises:
            UnknownEngine: There is none, or it does not serve this tokenizer.
            EngineFailure: It failed.
        """
        route = self.route(GpuEngine.name)
        assert isinstance(route, Route)
        offload = route.engine
        assert isinstance(offload, Offload)
        if any(route.fallback(text) for text in texts):
            return offload.gpu.uploaded(route.encode_batch(texts))
        return offload.encode_on_device(texts)

    def routes(self) -> list[Route]:
        """Those that were made so far."""
        return [decision for decision in self._decisions.copy().values() if isinstance(decision, Route)]

    def reasons(self, *, compare: bool) -> dict[str, str]:
        """Of every engine, why it may serve or may not.

        Args:
            compare: Gather the evidence that is missing; otherwise it is only said to be missing.
        """
        reasons = {}
        for name in NAMES:
            decision = self._decision(name, always if compare else never)
            if decision is None:
                how = f"Tokenizer.engine({name!r}) does that, and toktier inspect --compare"
                reasons[name] = f"not compared with the reference yet: {how}"
            else:
                reasons[name] = decision if isinstance(decision, str) else _reason(decision)
        return reasons

    def _fastest(self) -> Serving:
        with self._choosing:
            gpu = self._decisions.get(GpuEngine.name)
            self._auto = gpu if isinstance(gpu, Route) and not gpu.demoted else self._first()
            return self._auto

    def _begin_gathering(self) -> None:
        with self._choosing:
            if not self._gathering:
                self._gathering = True
                # Not a daemon, which must not be in the middle of a library when the interpreter ends.
                with contextlib.suppress(RuntimeError):  # no more threads: it stays as it is
                    threading.Thread(target=self._gather, name="toktier comparison").start()

    def _gather(self) -> None:
        for name in PROCESSOR:
            if isinstance(self._decision(name, threading.main_thread().is_alive), Route):
                break
        self._fastest()

    def _decision(self, name: str, proceed: Callable[[], bool]) -> Serving | str | None:
        """An engine, or why it may not serve; None when that is not known, since a comparison must not proceed."""
        decision = self._decisions.get(name)
        # Whoever does not want to wait for a comparison does not wait for somebody else's either.
        if decision is None and self._deciding[name].acquire(blocking=proceed is not never):
            try:
                decision = self._decisions.get(name) or self._decided(name, proceed)
            finally:
                self._deciding[name].release()
        return decision

    def _decided(self, name: str, proceed: Callable[[], bool]) -> Serving | str | None:
        family, reference = self._family, self._reference
        decision: Serving | str
        try:
            if not family.supported:
                raise Inapplicable(f"the family is not supported: {family.reason}")
            if name == MemoEngine.name:
                decision = Route(MemoEngine(family, reference), reference, BY_THEOREM, family=family)
            else:
                suspect = SUSPECTS[name]
                suspect.check(family, reference)
                if suspect is GpuEngine and proceed is never:
                    return None  # also to see what is known of it, it would have to begin
                evidence = compared(suspect, family, reference, self._cache, proceed)
                decision = (
                    str(evidence)
                    if evidence.refused
                    # A new one: that which was compared has seen much that will never come again.
                    else Route(self._made(suspect), reference, str(evidence), evidence, family)
                )
        except Interrupted:
            return None
        except Inapplicable as reason:
            decision = str(reason)
        except BaseException as error:
            if not contained(error):
                raise
            decision = f"cannot be made: {error!r}"
        if isinstance(decision, Route) and not self._on_trial:
            demotions.watch(decision)
        self._decisions[name] = decision
        with self._choosing:
            self._auto = None
        return decision

    def _made(self, suspect: type[Suspect]) -> Engine:
        """An engine that may serve. The GPU has one of the processor beside it, for what is not worth the way."""
        engine = suspect(self._family, self._reference, self._reference.probe(self._cache))
        if not isinstance(engine, GpuEngine):
            return engine
        # On trial, it is the device that is looked at, however short a text is.
        return Offload(engine, self._first(), threshold=0 if self._on_trial else None)

    def _first(self) -> Serving:
        """The fastest engine of the processor of which it is known by now that it may serve, less those demoted."""
        if self._reference.is_fast:
            return self._reference
        decisions = (self._decision(name, never) for name in PROCESSOR)
        serving = (it for it in decisions if isinstance(it, (Route, ReferenceEngine)))
        return next(it for it in serving if isinstance(it, ReferenceEngine) or not it.demoted)
