"""The object that users hold: a family bound to its engines."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from time import perf_counter_ns
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from toktier.engines.base import Engine, Ids
from toktier.engines.reference import ReferenceEngine
from toktier.errors import InvalidText, UnknownEngine, Unprotectable
from toktier.executor import Executor
from toktier.families.family import Family, valid_text
from toktier.families.probing import DiskCache
from toktier.meter import Meter
from toktier.planner import LONG, CutPlanner
from toktier.protection import Protection
from toktier.report import Report
from toktier.route import Route, demotions
from toktier.router import GPU, NAMES, Router
from toktier.untrusted import Spans, checked_spans

if TYPE_CHECKING:
    from toktier.gpu.engine import OnDevice
    from toktier.session import Session


def _valid(number: int, text: object) -> str:
    """A text of a batch. An error says which it was."""
    try:
        return valid_text(text)  # type: ignore[arg-type]
    except InvalidText as error:
        raise InvalidText(error.character, error.position, f"texts[{number}]: ") from None
    except TypeError as error:
        raise TypeError(f"texts[{number}]: {error}") from None


class Tokenizer:
    """A tokenizer: encodes, decodes, and starts sessions. It never changes, and is safe to share between threads.

    Made by :func:`toktier.load`.

    Attributes:
        family: What the tokenizer is, and where texts may be cut for it.
        planner: Cuts long texts, and encodes them on several cores.
        meter: Counts what is done with it; see :mod:`toktier.metrics`.

    Example:
        >>> import toktier
        >>> tok = toktier.load("toktier-mini")
        >>> tok.encode("Hello world")
        array([  39,  523,  323, 3241, 1151], dtype=uint32)
        >>> tok.decode([39, 523, 323, 3241, 1151])
        'Hello world'
    """

    def __init__(
        self,
        family: Family,
        reference: ReferenceEngine,
        cache: DiskCache,
        executor: Executor,
        *,
        on_trial: bool = False,
    ) -> None:
        self.family = family
        self.planner = CutPlanner(family, executor)
        self.meter = Meter()
        self._reference, self._cache, self._executor = reference, cache, executor
        self._protection: Protection | Unprotectable | None = None
        self._router = Router(family, reference, cache, on_trial=on_trial)

    def __repr__(self) -> str:
        state = "supported" if self.family.supported else f"unsupported: {self.family.reason}"
        return f"<toktier.Tokenizer {self.family.digest[:12]} ({state})>"

    @property
    def reference(self) -> ReferenceEngine:
        """The reference library as an engine, which is right by definition. All who use the tokenizer share it.

        Example:
            >>> import toktier
            >>> toktier.load("toktier-mini").reference.token(323)
            'lo'
        """
        return self._reference

    @property
    def protection(self) -> Protection:
        """What encodes texts with untrusted parts; made when it is asked for first.

        Raises:
            Unprotectable: Special tokens of this tokenizer cannot be told apart by who wrote them.
        """
        if self._protection is None:  # twice, if two threads come at once
            try:
                self._protection = Protection(self._reference, self.planner, self._cache)
            except Unprotectable as error:
                self._protection = error
        if isinstance(self._protection, Unprotectable):
            raise Unprotectable(str(self._protection))
        return self._protection

    @property
    def heeds_untrusted(self) -> bool:
        """Whether :attr:`protection` was made already."""
        return isinstance(self._protection, Protection)

    def untrusted_spans(self, untrusted: Iterable[Sequence[int]], length: int) -> Spans:
        """What a caller gave as the untrusted spans of a text, in order, and merged.

        Args:
            untrusted: Pairs ``(start, stop)`` of characters, half-open, in any order; they may overlap.
            length: Characters of the text.

        Raises:
            TypeError: They are something else.
            IndexError: A span does not lie in the text.
            Unprotectable: There are some, and special tokens of this tokenizer cannot be told apart.

        Example:
            >>> import toktier
            >>> toktier.load("toktier-mini").untrusted_spans([(7, 9), (2, 5), (4, 6)], 10)
            ((2, 6), (7, 9))
        """
        spans = checked_spans(untrusted, length)
        if spans:
            _ = self.protection
        return spans

    def encode(self, text: str, *, add_special_tokens: bool = False, untrusted: Iterable[Sequence[int]] = ()) -> Ids:
        """The ids of a text: what the reference library gives for it.

        Args:
            text: Any text.
            add_special_tokens: Apply the tokenizer's own post-processor (BOS, EOS, template), once, to the whole.
            untrusted: Spans ``(start, stop)`` of characters, half-open, that may be no part of a special token: where
                one stands there, it is text.

        Returns:
            A new array, uint32, shape (tokens,).

        Raises:
            TypeError: The text is not a string, or ``untrusted`` is not a sequence of spans.
            IndexError: A span does not lie in the text.
            InvalidText: The text has a lone surrogate.
            EngineFailure: The reference library cannot encode the text.
            Unprotectable: There are untrusted characters, and special tokens of this tokenizer are found in a way that
                cannot heed them.

        Example:
            >>> import toktier
            >>> tok = toktier.load("toktier-mini")
            >>> tok.encode("<|im_end|>")
            array([4089], dtype=uint32)
            >>> tok.decode(tok.encode("<|im_end|>", untrusted=[(0, 10)]))
            '<|im_end|>'
        """
        text = valid_text(text)
        spans = self.untrusted_spans(untrusted, len(text))
        if spans and self.protection.is_forged(text, spans):
            if add_special_tokens:
                return self.protection.encode_with_special_tokens(text, spans)
            began, engine = perf_counter_ns(), self._router.auto()
            ids = self.protection.encode(text, spans, engine)
            self._done(engine, [text], [ids], began, spans)
            return ids
        if add_special_tokens:
            return self._reference.encode_with_special_tokens(text)
        began, engine = perf_counter_ns(), self._router.auto()
        ids = self.planner.encode(text, engine)
        self._done(engine, [text], [ids], began)
        return ids

    def encode_batch(self, texts: Sequence[str]) -> list[Ids]:
        """The ids of several texts, as a list of what :meth:`encode` gives for each.

        Args:
            texts: Any texts.

        Returns:
            An array for each text, uint32, shape (tokens,).

        Raises:
            TypeError: One of the texts is not a string, or all of it is one; the message says which.
            InvalidText: One of the texts has a lone surrogate; the message says which.
            EngineFailure: The reference library cannot encode one of the texts.

        Example:
            >>> import toktier
            >>> tok = toktier.load("toktier-mini")
            >>> [ids.tolist() for ids in tok.encode_batch(["Hello", " world"])]
            [[39, 523, 323], [3241, 1151]]
        """
        if isinstance(texts, str):
            raise TypeError("texts must be a sequence of str, not one str")
        began, engine = perf_counter_ns(), self._router.auto()
        checked = [_valid(number, text) for number, text in enumerate(texts)]
        encoded = self.planner.encode_batch(checked, engine)
        self._done(engine, checked, encoded, began)
        return encoded

    def encode_on_device(self, texts: Sequence[str]) -> OnDevice:
        """The ids of several texts on a GPU, for code that needs them there: see :mod:`toktier.gpu`.

        No verifier looks at them, since they never leave the device.

        Args:
            texts: Any texts; one request to the device, however short they are.

        Returns:
            One CuPy array of all ids, and where those of each text end.

        Raises:
            UnknownEngine: There is no device, or it does not serve this tokenizer; the message says why.
            EngineFailure: The device failed.
            TypeError: One of the texts is not a string, or all of it is one.
            InvalidText: One of the texts has a lone surrogate.

        Example:
            >>> import toktier
            >>> tok, texts = toktier.load("toktier-mini"), ["Hello", " world"]
            >>> try:
            ...     ends = tok.encode_on_device(texts).ends
            ... except toktier.UnknownEngine:  # no GPU here: the same by hand
            ...     ends = np.cumsum([len(ids) for ids in tok.encode_batch(texts)])
            >>> ends.tolist()
            [3, 5]
        """
        if isinstance(texts, str):
            raise TypeError("texts must be a sequence of str, not one str")
        began = perf_counter_ns()
        checked = [_valid(number, text) for number, text in enumerate(texts)]
        there = self._router.encode_on_device(checked)
        self._count(GPU, checked, began)
        return there

    def _done(self, engine: Engine, texts: list[str], encoded: list[Ids], began: int, untrusted: Spans = ()) -> None:
        """Takes note of a call, and offers its ids to who watches."""
        path = self._count(engine.name, texts, began)
        if (watcher := self.meter.watcher) is not None:
            for text, ids in zip(texts, encoded, strict=True):
                if watcher.is_due(len(text)):
                    # A copy: what the caller does with the ids must not look like a fault of the engine.
                    watcher.offer(path, engine, len(text), text.__str__, ids.copy(), untrusted=untrusted)

    def _count(self, engine: str, texts: list[str], began: int) -> str:
        size = sum(map(len, texts))
        path = "full" if size < LONG else "planned"
        self.meter.count(path, engine, size, size, perf_counter_ns() - began)
        return path

    def decode(self, ids: Iterable[int] | npt.NDArray[np.integer], *, skip_special_tokens: bool = True) -> str:
        """The text of ids, as the reference decodes them.

        Args:
            ids: Token ids, a list of integers or an array of any integer type.
            skip_special_tokens: Leave out special tokens, as the reference does unless told otherwise.

        Raises:
            TypeError: The ids are no integers.
            OverflowError: An id is negative, or needs more than 32 bits.
            KeyError: An id belongs to no token, and the reference is tiktoken; ``tokenizers`` leaves it out.

        Example:
            >>> import toktier
            >>> tok = toktier.load("toktier-mini")
            >>> ids = tok.encode("Hello<|im_end|>")
            >>> tok.decode(ids), tok.decode(ids, skip_special_tokens=False)
            ('Hello', 'Hello<|im_end|>')
        """
        listed = ids.tolist() if isinstance(ids, np.ndarray) else list(ids)
        return self._reference.tokenizer.decode(listed, skip_special_tokens=skip_special_tokens)

    def engine(self, name: str = "auto") -> Engine:
        """The engine of a name, to be given to sessions or used by itself.

        ``"auto"`` is the fastest one that is known to serve this tokenizer; the first call makes it. One that is asked
        for by name and was never compared with the reference on this machine is compared now: ten to twenty seconds.

        Args:
            name: ``"auto"``, ``"gpu"``, ``"gigatoken"``, ``"tiktoken"``, ``"memo"`` or ``"reference"``.

        Raises:
            UnknownEngine: There is none of that name, or it does not serve this tokenizer; the message says why.

        Example:
            >>> import toktier
            >>> toktier.load("toktier-mini").engine("memo")
            <toktier engine memo: admitted: exact by the theorem of certified cuts, ...>
        """
        return self._router.auto() if name == "auto" else self._router.route(name)

    def renewed(self) -> Tokenizer:
        """The same tokenizer with new engines, which have seen nothing: to tell whether what one saw before matters.

        Example:
            >>> import toktier
            >>> tok = toktier.load("toktier-mini")
            >>> tok.renewed().engine("memo") is tok.engine("memo")
            False
        """
        return Tokenizer(self.family, self._reference, self._cache, self._executor, on_trial=True)

    def demote(self, engine: str, why: str) -> None:
        """Has the reference answer in place of an engine, for this family and in this process, until it is restored.

        Nothing that it gave before is trusted: sessions encode their text anew when they are used the next time, and
        stores forget what they remember of it. A :class:`toktier.verify.ShadowVerifier` calls this.

        Args:
            engine: Its name.
            why: What reports are to say.

        Raises:
            UnknownEngine: There is none of that name, or it is the reference.

        Example:
            >>> import toktier
            >>> tok = toktier.load("toktier-mini")
            >>> tok.demote("memo", "an example")
            >>> tok.engine("memo").reason
            'demoted: an example'
            >>> tok.restore("memo")
        """
        self._demotable(engine)
        demotions.demote(self.family.digest, engine, why)

    def restore(self, engine: str) -> None:
        """Trusts an engine again that was demoted, or raised too often; nothing, if it serves.

        Args:
            engine: Its name.

        Raises:
            UnknownEngine: There is none of that name, or it is the reference.

        Example:
            >>> import toktier
            >>> tok = toktier.load("toktier-mini")
            >>> tok.demote("memo", "an example")
            >>> tok.restore("memo")
            >>> tok.engine("memo").demoted
            False
        """
        self._demotable(engine)
        demotions.restore(self.family.digest, engine)

    def routes(self) -> list[Route]:
        """The engines that served so far, the reference apart, with what they count.

        Example:
            >>> import toktier
            >>> tok = toktier.Registry().load("toktier-mini")
            >>> ids = tok.engine("memo").encode("Hello")
            >>> [(route.name, route.texts) for route in tok.routes()]
            [('memo', 1)]
        """
        return self._router.routes()

    def _demotable(self, engine: str) -> None:
        if engine not in NAMES or engine == ReferenceEngine.name:
            others = ", ".join(repr(name) for name in NAMES if name != ReferenceEngine.name)
            raise UnknownEngine(f"engine {engine!r} cannot be demoted: use one of {others}")

    def session(self, text: str = "", *, engine: str | Engine = "auto") -> Session:
        """A session that begins with a text: the same as ``Session(tok, text, engine=engine)``.

        Args:
            text: The text to begin with.
            engine: What encodes; see :class:`Session`, also for what is raised.

        Example:
            >>> import toktier
            >>> session = toktier.load("toktier-mini").session("Hello")
            >>> patch = session.append(" world")
            >>> session.tolist()
            [39, 523, 323, 3241, 1151]
        """
        from toktier.session import Session

        return Session(self, text, engine=engine)

    def report(self, *, compare: bool = False) -> Report:
        """What is known about this tokenizer: identity, support, relation, engines.

        Args:
            compare: Whether engines that were never compared with the reference on this machine are compared now, which
                takes ten to twenty seconds each.

        Example:
            >>> import toktier
            >>> toktier.load("toktier-mini").report().engines["reference"]
            'admitted: it is the definition of correct'
        """
        engines = self._router.reasons(compare=compare)
        return Report.of(self.family, engines, self._router.auto().name)
