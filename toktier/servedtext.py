"""What an operation of a session is beside the change itself: an engine that may be demoted, and an account of it.

A session's ids are as right as the engine that gave them. When that is demoted, whatever it gave before is trusted no
more: everything is encoded anew, and the patch of the next operation replaces all ids.
"""

from __future__ import annotations

import logging
import sys
from time import perf_counter_ns

import numpy as np

from toktier.changes import changes_to, small_changes_to
from toktier.encodedtext import Change, EncodedText
from toktier.engines.base import UINT32, Engine, Ids, checked, contained
from toktier.explanation import Explanation, Step, explained
from toktier.patch import Patch
from toktier.planner import LONG
from toktier.route import Route
from toktier.state import State
from toktier.tokenizer import Tokenizer
from toktier.untrusted import Spans

PIECES = 32
"""Pieces of a text up to which an update leaves them as they are: the next one reads each with one comparison."""

logger = logging.getLogger(__name__)


class ServedText:
    """A text and its ids, from an engine that is trusted now. Operations on it are timed, counted and watched.

    For one thread at a time; texts and spans are valid, which whoever calls has seen to.

    Args:
        tok: The tokenizer.
        engine: What encodes.

    Attributes:
        held: The text and its ids. They may be of an engine that is trusted no more: then it :attr:`is_stale`.
        engine: What encodes.

    Example:
        >>> import toktier
        >>> tok = toktier.load("toktier-mini")
        >>> served = ServedText(tok, tok.engine("memo"))
        >>> served.append("The quick brown fox"), served.update("The slow brown fox")
        (Patch(start=0, stop=0, ...), Patch(start=..., stop=..., ...))
        >>> print(served.explanation())
        update: 14 of 18 characters encoded, ... by memo; 2 ids replace 3; ... ms
    """

    __slots__ = ("_epoch", "_last", "_meter", "_route", "_tok", "engine", "held")

    def __init__(self, tok: Tokenizer, engine: Engine) -> None:
        self._tok, self._meter, self.engine = tok, tok.meter, engine
        self._route = engine if isinstance(engine, Route) else None
        self._epoch = 0 if self._route is None else self._route.epoch
        self.held = EncodedText(tok, engine)
        self._last: tuple[str, list[tuple[int, int]], int, int, int, int] | None = None
        """What :class:`Step` is made of, if anybody asks."""

    @property
    def is_stale(self) -> bool:
        """Whether its ids are of an engine that is trusted no more."""
        return self._route is not None and self._route.epoch != self._epoch

    @property
    def is_torn(self) -> bool:
        """Whether a change of it was interrupted, or is under way."""
        return self.held.is_torn

    @property
    def characters(self) -> int:
        """The length of the text."""
        return len(self.held.table)

    @property
    def nbytes(self) -> int:
        """Bytes of all this. What is shared with a fork counts in both."""
        return sys.getsizeof(self) + self.held.nbytes

    def common_prefix(self, text: str) -> int:
        """How many characters at its beginning the text has in common with another."""
        return self.held.table.common_prefix(text)

    def begin(self, text: str) -> None:
        """Makes something the text of one that has none."""
        began = perf_counter_ns()
        self._done("full" if len(text) < LONG else "planned", self.held.append(text), 0, began)

    def append(self, text: str, spans: Spans = ()) -> Patch:
        """Adds to the end of the text.

        Args:
            text: What comes there.
            spans: Its untrusted characters.
        """
        held = self.held
        began, held.windows, before = perf_counter_ns(), [], len(held.ids)
        if self._route is not None and self._route.epoch != self._epoch:
            length = len(held.table)
            untrusted = held.untrusted.around(0, (length, length, len(text), spans), length)
            patch = self._begin_anew(before, held.table.joined() + text, untrusted)
        else:
            patch = held.append(text, spans)
        return self._done("append", patch, before, began)

    def edit(self, start: int, stop: int, text: str, spans: Spans = ()) -> Patch:
        """Puts a text in the place of the characters from ``start`` to ``stop``.

        Args:
            start: Position of the first of them.
            stop: Position after the last one.
            text: What stands there afterwards.
            spans: Its untrusted characters.

        Raises:
            IndexError: A position is out of range.
        """
        held = self.held
        began, held.windows, before = perf_counter_ns(), [], len(held.ids)
        if not 0 <= start <= stop <= len(held.table):
            raise IndexError(
                f"edit({start}, {stop}) is out of range: 0 <= start <= stop <= {len(held.table)} characters"
            )
        if self.is_stale:
            old = held.table.joined()
            untrusted = held.untrusted.around(0, (start, stop, len(text), spans), len(old))
            patch = self._begin_anew(before, old[:start] + text + old[stop:], untrusted)
        else:
            patch = held.replace(start, stop, text, spans)
        return self._done("edit", patch, before, began)

    def update(self, full_text: str, spans: Spans = ()) -> Patch:
        """Makes something the text, whatever changes by that.

        Args:
            full_text: The whole text.
            spans: Its untrusted characters.

        Raises:
            InvalidText: What is new has a lone surrogate.
        """
        began = perf_counter_ns()
        return self.change(self.changes(full_text, spans), full_text, spans, began)

    def changes(self, full_text: str, spans: Spans) -> list[Change]:
        """The changes that make something the text.

        Args:
            full_text: The whole text.
            spans: Its untrusted characters.

        Raises:
            InvalidText: What is new has a lone surrogate.
        """
        return changes_to(full_text, spans, self.held)

    def change(self, changes: list[Change], full_text: str, spans: Spans, began: int) -> Patch:
        """Makes changes that were found, as an update.

        Args:
            changes: What makes the text this one.
            full_text: The whole text.
            spans: Its untrusted characters.
            began: When the update began, in nanoseconds of the performance counter.
        """
        held = self.held
        held.windows, before = [], len(held.ids)
        if self.is_stale:
            patch = self._begin_anew(before, full_text, spans)
        elif len(changes) > 1:
            self.held, patch = held.replaced(changes)
        else:
            patch = held.replace(*changes[0]) if changes else held.replace(0, 0, "")
        if self.held.table.pieces > PIECES:
            self.held.table.replace_source(full_text)
        return self._done("update", patch, before, began)

    def small_changes(self, full_text: str, spans: Spans, most: int) -> list[Change] | None:
        """The changes that make something the text, if few characters would be encoded for them; None if that is more.

        Args:
            full_text: The whole text.
            spans: Its untrusted characters.
            most: How many characters may be encoded.
        """
        return None if self.is_stale else small_changes_to(full_text, spans, self.held, most)

    def ids(self) -> Ids:
        """The ids, read-only, as of an engine that is trusted now; uint32, shape (ids,)."""
        return self._encoded_anew() if self.is_stale else self.held.ids.view()

    def view(self) -> Ids:
        """The ids that the patches so far lead to, trusted or not, read-only; uint32, shape (ids,)."""
        return self.held.ids.view()

    def tolist(self) -> list[int]:
        """The same as a new list."""
        if self.is_stale:
            return [*map(int, self._encoded_anew())]
        held = self.held
        if held.is_torn or held.listed is None:  # asking for the ids of a torn text raises
            held.listed = held.ids.window(0, len(held.ids)).tolist()
        return held.listed.copy()

    def explanation(self) -> Explanation:
        """What the last operation did and why."""
        if self._last is None:
            return Explanation(call="none", why="nothing was called yet")
        step = Step(*self._last)
        return explained(step, self.characters, self.engine.name, self._fallback(step.windows))

    def state(self) -> State:
        """What there is to keep, with ids of an engine that is trusted now."""
        held = self.held
        if self.is_stale:
            # The patch that replaces all ids is for the next operation to return: this one stays as it is.
            held = held.anew(held.table.joined(), held.untrusted.spans())
        return held.state()

    def resume(self, state: State) -> None:
        """Makes a state that was kept the one of a text that is new.

        Raises:
            StateMismatch: A seam of it is no certified cut.
        """
        self.held = EncodedText.of(self._tok, self.engine, state)

    def fork(self) -> ServedText:
        """An independent one of the same state."""
        other = object.__new__(ServedText)
        other._tok, other._meter, other.engine = self._tok, self._meter, self.engine
        other._route, other._epoch, other._last = self._route, self._epoch, self._last
        other.held = self.held.fork()
        return other

    def _fallback(self, windows: list[tuple[int, int]]) -> str | None:
        """Why everything was encoded, or the reference has answered in the engine's place, if that was so."""
        if self._tok.family.reason is not None:
            return f"no certified cuts: {self._tok.family.reason}"
        if self._route is None or len(windows) != 1:
            return None
        start, size = windows[0]
        stop = min(start + size, self.characters)
        window, spans = self.held.table.slice(start, stop), self.held.untrusted.within(start, stop)
        if spans and self._tok.protection.is_forged(window, spans):
            return "the reference in its place, around special tokens in untrusted text"
        return self._route.fallback(window)

    def _begin_anew(self, before: int, text: str, spans: Spans) -> Patch:
        """Makes something the text and encodes all of it, since an engine that was trusted before is trusted no more.

        Args:
            before: How many ids there were before the operation, all of which the patch replaces.
            text: The text.
            spans: Its untrusted characters.
        """
        assert self._route is not None
        epoch = self._route.epoch
        fresh = self.held.anew(text, spans)
        ids = np.frombuffer(fresh.ids.window(0, len(fresh.ids)).tobytes(), UINT32)
        self.held, self._epoch = fresh, epoch
        return Patch(0, before, ids, before)

    def _encoded_anew(self) -> Ids:
        """The ids for whoever reads them before the next operation, which is the one that says what changed."""
        text, spans = self.held.table.joined(), self.held.untrusted.spans()
        if spans:
            ids = self._tok.protection.encode(text, spans, self.engine)
        else:
            ids = checked(self.engine, self._tok.planner.encode(text, self.engine))
        return np.frombuffer(ids.tobytes(), UINT32)  # nobody can write to it, whatever the engine does with its own

    def _done(self, call: str, patch: Patch, before: int, began: int) -> Patch:
        """Ends an operation: looks whether the engine is trusted still, and takes note."""
        if self._route is not None and self._route.epoch != self._epoch:
            try:
                patch = self._begin_anew(before, self.held.table.joined(), self.held.untrusted.spans())
            except BaseException as error:
                if not contained(error):
                    raise
                # The change is made, and cannot be taken back. The text stays stale: whoever reads its ids has them
                # encoded anew, and the next operation's patch replaces all of these.
                logger.warning(
                    "a session could not be encoded anew, which is tried again with its next call: %r", error
                )
        took = perf_counter_ns() - began
        held, meter = self.held, self._meter
        windows, held.windows = held.windows, []
        self._last = call, windows, patch.start, patch.stop, len(patch.ids), took
        encoded = windows[0][1] if len(windows) == 1 else sum([size for _, size in windows])
        length = len(held.table)
        meter.count(call, self.engine.name, length, encoded, took)
        watcher = meter.watcher
        if watcher is not None and watcher.is_due(length):
            text, spans = held.table.copy().joined, held.untrusted.spans()
            watcher.offer(call, self.engine, length, text, held.ids.view(), untrusted=spans)
        return patch
