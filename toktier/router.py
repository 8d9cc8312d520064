"""Which engine serves a tokenizer, and why.

An engine other than the reference serves on a leash (:mod:`toktier.route`). Whether it may at all is decided by
evidence (:mod:`toktier.engines.admission`), which takes seconds to gather and is kept on disk. Nobody has to wait for
it: without, ``"auto"`` is ``memo``, which is exact by the theorem; and for a tokenizer that turns out to be used a lot,
a thread gathers the evidence.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeAlias

from toktier.engines.admission import Interrupted, Suspect, always, compared
from toktier.engines.base import Engine, Inapplicable, contained
from toktier.engines.memo import MemoEngine
from toktier.engines.reference import ReferenceEngine
from toktier.errors import UnknownEngine
from toktier.families.family import Family
from toktier.families.probing import DiskCache
from toktier.route import Route, demotions

if TYPE_CHECKING:
    from toktier.gpu.engine import OnDevice

GPU = "gpu"

PROCESSOR = ("gigatoken", "tiktoken", "memo", "reference")
"""The engines of the processor, fastest first."""

NAMES = (GPU, *PROCESSOR)
"""All engines. The first is only used once somebody has asked for it: it takes memory, and a process that has used CUDA
cannot fork any more."""

BY_THEOREM = "admitted: exact by the theorem of certified cuts, from ids of the reference"

BUSY = 1 << 12
"""Texts that ``"auto"`` encodes before it is worth to compare faster engines with the reference."""


def _gpu() -> type[Suspect]:
    from toktier.gpu.engine import GpuEngine

    return GpuEngine


def _gigatoken() -> type[Suspect]:
    from toktier.engines.gigatoken import GigatokenEngine

    return GigatokenEngine


def _tiktoken() -> type[Suspect]:
    from toktier.engines.tiktoken import TiktokenEngine

    return TiktokenEngine


SUSPECTS: dict[str, Callable[[], type[Suspect]]] = {GPU: _gpu, "gigatoken": _gigatoken, "tiktoken": _tiktoken}
"""What gives the classes of the engines that need evidence. They are imported when somebody asks for one."""


def never() -> bool:
    """What is known already must do."""
    return False


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
        from toktier.gpu.offload import Offload

        route = self.route(GPU)
        assert isinstance(route, Route)
        offload = route.engine
        assert isinstance(offload, Offload)
        if any(route.fallback(text) for text in texts):
            offload.check()  # before all of them are encoded
            return offload.uploaded(route.encode_batch(texts))
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
            gpu = self._decisions.get(GPU)
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
                suspect = SUSPECTS[name]()
                suspect.check(family, reference)
                if name == GPU and proceed is never:
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
        if suspect.name != GPU:
            return engine
        from toktier.gpu.engine import GpuEngine
        from toktier.gpu.offload import Offload

        assert isinstance(engine, GpuEngine)
        # On trial, it is the device that is looked at, however short a text is.
        return Offload(engine, self._first(), threshold=0 if self._on_trial else None)

    def _first(self) -> Serving:
        """The fastest engine of the processor of which it is known by now that it may serve, less those demoted."""
        if self._reference.is_fast:
            return self._reference
        decisions = (self._decision(name, never) for name in PROCESSOR)
        serving = (it for it in decisions if isinstance(it, (Route, ReferenceEngine)))
        return next(it for it in serving if isinstance(it, ReferenceEngine) or not it.demoted)
