"""A session that is watched: what each operation kept, re-encoded and replaced.

For every operation a stretch of the text is taken down that begins and ends at certified cuts and has all that
changed, so that a page with hundreds of turns is not hundreds of texts long.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from attrs import field, frozen

from toktier.difference import Hunk, hunks
from toktier.engines.base import Engine, Ids
from toktier.explanation import Step
from toktier.patch import Patch
from toktier.piecetable import PieceTable
from toktier.replay import Request, rendered
from toktier.session import Session
from toktier.tokenizer import Tokenizer
from toktier.view.tokens import Finder, OtherIds, Places, Positions, failure


@frozen(eq=False)
class Stretch:
    """A part of the text as it was and as it is; before and behind it nothing changed but positions.

    Attributes:
        start: Its first character.
        stop: The character behind it, before the operation.
        text: What stands there now.
        first: The number of ids left of it.
        last: The number of ids up to its end, before the operation.
        ids: What stands there now.
        places: Where they stand in ``text``.
        cuts: The certified cuts inside, as positions in ``text``.
    """

    start: int
    stop: int
    text: str = field(repr=False)
    first: int
    last: int
    ids: Ids = field(repr=False)
    places: Places = field(repr=False)
    cuts: Positions = field(repr=False)


@frozen(eq=False)
class Turn:
    """One operation on a session.

    Attributes:
        operation: What was called.
        characters: The length of the text after it.
        added: How many of these it added.
        ids: The number of ids after it.
        patch: What it changed in the ids.
        replaced: The ids that had to go.
        encoded: Where the engine was at work, as spans ``(start, stop)`` of characters.
        explanation: What ``session.explain()`` says.
        stretch: What changed in the text, for a page to show.
    """

    operation: str
    characters: int
    added: int
    ids: int
    patch: Patch
    replaced: Ids = field(repr=False)
    encoded: tuple[tuple[int, int], ...]
    explanation: str
    stretch: Stretch = field(repr=False)


class _State(NamedTuple):
    """The session before an operation."""

    text: str
    ids: Ids
    starts: Positions


class Recording:
    """A session, and what each of its operations did.

    Args:
        tok: The tokenizer.
        engine: As for :class:`toktier.Session`.

    Attributes:
        tok: The tokenizer.
        session: The session; lead it through the methods of the recording alone.
        turns: One for each operation.

    Example:
        >>> import toktier
        >>> recording = Recording(toktier.load("toktier-mini"))
        >>> recording.append("One, two")
        >>> recording.append("fold")
        >>> turn = recording.turns[-1]
        >>> turn.encoded, turn.patch.start, len(turn.replaced), len(turn.patch.ids)
        (((4, 12),), 4, 0, 1)
    """

    def __init__(self, tok: Tokenizer, *, engine: str | Engine = "auto") -> None:
        self.tok = tok
        self.session = Session(tok, engine=engine)
        self.turns: list[Turn] = []
        self._finder = Finder(tok)
        self._state = _State("", np.zeros(0, np.uint32), np.zeros(0, np.int64))

    @property
    def finder(self) -> Finder:
        """What says what ids stand for."""
        return self._finder

    def append(self, text: str) -> None:
        """Adds to the end of the text, as :meth:`toktier.Session.append` does, which says what it raises."""
        self._record(self.session.append(text))

    def edit(self, start: int, stop: int, text: str) -> None:
        """Replaces characters, as :meth:`toktier.Session.edit` does, which says what it raises."""
        self._record(self.session.edit(start, stop, text))

    def update(self, full_text: str) -> None:
        """Makes something the text, as :meth:`toktier.Session.update` does, which says what it raises."""
        self._record(self.session.update(full_text))

    def _record(self, patch: Patch) -> None:
        session, before = self.session, self._state
        # A copy: of ids that somebody looks at, the next operation would make one, and count it as its own time.
        text, ids = session.text, session.ids.copy()
        assert session._last is not None
        step = Step(*session._last)
        changes = hunks(PieceTable(before.text), text) or [Hunk(len(text), len(text), len(text), len(text))]
        stretch = self._stretch(before, text, ids, changes[0].start, changes[-1].stop)
        turn = Turn(
            operation=step.call,
            characters=len(text),
            added=len(text) - len(before.text),
            ids=len(ids),
            patch=patch,
            replaced=before.ids[patch.start : patch.stop],
            encoded=_encoded(step, changes),
            explanation=str(session.explain()),
            stretch=stretch,
        )
        moved = before.starts[stretch.last :] + len(text) - len(before.text)
        starts = np.concatenate([before.starts[: stretch.first], stretch.places.starts + stretch.start, moved])
        self._state = _State(text, ids, starts)
        self.turns.append(turn)

    def _stretch(self, before: _State, text: str, ids: Ids, start: int, stop: int) -> Stretch:
        """What changed in the text, from one certified cut to another, around the characters that were replaced."""
        start, stop = self._edges(before.text, start, stop)
        try:
            return self._between(before, text, ids, start, stop)
        except OtherIds:
            pass  # of a part; where the whole is asked for, there is no cut that could matter
        try:
            return self._between(before, text, ids, 0, len(before.text))
        except OtherIds:
            raise failure(text) from None

    def _edges(self, old: str, start: int, stop: int) -> tuple[int, int]:
        """The nearest certified cuts around a change, of whose characters on both sides none has changed."""
        family = self.tok.family
        if not family.supported:
            return 0, len(old)
        behind = range(stop + 1, len(old))
        return family.last_cut(old, 0, start - 1), next(
            (i for i in behind if family.is_pair(old[i - 1], old[i])), len(old)
        )

    def _between(self, before: _State, text: str, ids: Ids, start: int, stop: int) -> Stretch:
        first, last = np.searchsorted(before.starts, [start, stop]).tolist()
        if stop == len(before.text):
            last = len(before.ids)
        part = text[start : stop + len(text) - len(before.text)]
        fresh = ids[first : last + len(ids) - len(before.ids)]
        places = self._finder.places(part, fresh, continuation=start > 0)
        cuts = self.tok.family.cuts(part, continuation=True)
        return Stretch(start, stop, part, first, last, fresh, places, cuts)


def _encoded(step: Step, changes: Sequence[Hunk]) -> tuple[tuple[int, int], ...]:
    """Where the engine was at work, in characters of the text after all changes."""
    # Several changes are made from right to left: where a window begins is where it began in the old text.
    shifts = [sum(c.end - c.begin - (c.stop - c.start) for c in changes if c.stop < at) for at, _ in step.windows]
    return tuple(
        sorted((at + shift, at + shift + size) for (at, size), shift in zip(step.windows, shifts, strict=True))
    )


def replayed(tok: Tokenizer, transcript: Sequence[Request]) -> Recording:
    """Leads a session through a transcript, as ``toktier demo`` does: appends and updates take turns.

    Args:
        tok: The tokenizer.
        transcript: What ``toktier.replay.requests`` gives.

    Example:
        >>> import toktier
        >>> from toktier.replay import Message, requests
        >>> talk = [Message("user", "Hi"), Message("assistant", "Hello"), Message("user", "Bye")]
        >>> recording = replayed(toktier.load("toktier-mini"), list(requests(talk)))
        >>> [(turn.operation, turn.ids) for turn in recording.turns]
        [('append', ...), ('update', ...)]
    """
    recording, text = Recording(tok), ""
    for number, request in enumerate(transcript):
        before = text
        operation = "append" if request.answer is None else ("append", "update")[number % 2]
        text = rendered(before, operation, request)
        if operation == "update":
            recording.update(text)
        else:
            recording.append(text[len(before) :])
    return recording
