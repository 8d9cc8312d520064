"""A session that is watched: what each operation kept, re-encoded and replaced.

For every operation a stretch of the text is taken down that begins and ends at certified cuts and has all that
changed, so that a page with hundreds of turns is not hundreds of texts long.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
from attrs import field, frozen

from toktier.changes import trusted_otherwise
from toktier.difference import Hunk, hunks
from toktier.engines.base import Engine, Ids
from toktier.patch import Patch
from toktier.piecetable import PieceTable
from toktier.replay import Request, rendered
from toktier.session import Session
from toktier.tokenizer import Tokenizer
from toktier.untrusted import Span, Spans, Special, Untrusted, within
from toktier.view.tokens import Finder, OtherIds, Places, Positions, failure


@frozen(eq=False)
class Stretch:
    """A part of the text as it was and as it is; before and behind it nothing changed but positions.

    Attributes:
        start: Its first character, as a position in the whole text.
        stop: The character behind it, before the operation.
        text: What stands there now.
        first: The number of ids left of it.
        last: The number of ids up to its end, before the operation.
        ids: What stands there now; uint32, shape (tokens,).
        places: Where they stand in ``text``.
        cuts: The certified cuts inside, as positions in ``text``, ascending; int64, shape (cuts,).
        untrusted: What of ``text`` is untrusted.
        forged: Where special tokens stand in it that are text because somebody untrusted wrote a part of them.

    Example:
        >>> import toktier
        >>> recording = Recording(toktier.load("toktier-mini"))
        >>> recording.append("One, two")
        >>> recording.append("fold")
        >>> stretch = recording.turns[-1].stretch
        >>> stretch.start, stretch.stop, stretch.text
        (4, 8, ' twofold')
    """

    start: int
    stop: int
    text: str = field(repr=False)
    first: int
    last: int
    ids: Ids = field(repr=False)
    places: Places = field(repr=False)
    cuts: Positions = field(repr=False)
    untrusted: Spans
    forged: Spans


@frozen(eq=False)
class Turn:
    """One operation on a session.

    Attributes:
        operation: What was called.
        characters: The length of the text after it.
        added: How many of these it added.
        ids: The number of ids after it.
        patch: What it changed in the ids: one patch, from the first that changed to the last.
        changes: What it changed in them place by place: between two of these they only moved.
        replaced: The ids that had to go, of all places one after the other; uint32, shape (tokens,).
        encoded: Where the engine was at work, as spans ``(start, stop)`` of characters of the text after it.
        explanation: What ``session.explain()`` says.
        stretch: What changed in the text, for a page to show.

    Example:
        >>> import toktier
        >>> recording = Recording(toktier.load("toktier-mini"))
        >>> recording.append("One, two")
        >>> turn = recording.turns[0]
        >>> turn.operation, turn.characters, turn.added, turn.ids
        ('append', 8, 8, 4)
    """

    operation: str
    characters: int
    added: int
    ids: int
    patch: Patch
    changes: tuple[Hunk, ...]
    replaced: Ids = field(repr=False)
    encoded: Spans
    explanation: str
    stretch: Stretch = field(repr=False)


class _State(NamedTuple):
    """The session before an operation."""

    text: str
    ids: Ids
    starts: Positions
    untrusted: Spans


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
        self._state = _State("", np.zeros(0, np.uint32), np.zeros(0, np.int64), ())

    @property
    def finder(self) -> Finder:
        """What says what ids stand for."""
        return self._finder

    def append(self, text: str, *, special: Special = "token") -> None:
        """Adds to the end of the text, as :meth:`toktier.Session.append` does, which says what it raises.

        Args:
            text: What comes behind the text so far.
            special: ``"text"`` if special tokens in it are text.

        Example:
            >>> import toktier
            >>> recording = Recording(toktier.load("toktier-mini"))
            >>> recording.append("Hello")
            >>> recording.session.text
            'Hello'
        """
        self._record(self.session.append(text, special=special))

    def edit(self, start: int, stop: int, text: str, *, special: Special = "token") -> None:
        """Replaces characters, as :meth:`toktier.Session.edit` does, which says what it raises.

        Args:
            start: Position of the first character to replace.
            stop: Position after the last one.
            text: What stands there afterwards.
            special: ``"text"`` if special tokens in it are text.

        Example:
            >>> import toktier
            >>> recording = Recording(toktier.load("toktier-mini"))
            >>> recording.append("Hello world")
            >>> recording.edit(0, 5, "Howdy")
            >>> recording.session.text
            'Howdy world'
        """
        self._record(self.session.edit(start, stop, text, special=special))

    def update(self, full_text: str, *, untrusted: Iterable[Sequence[int]] = ()) -> None:
        """Makes something the text, as :meth:`toktier.Session.update` does, which says what it raises.

        Args:
            full_text: The whole text.
            untrusted: Spans ``(start, stop)`` of its characters, half-open, in which special tokens are text.

        Example:
            >>> import toktier
            >>> recording = Recording(toktier.load("toktier-mini"))
            >>> recording.update("Hello world")
            >>> recording.turns[-1].operation
            'update'
        """
        self._record(self.session.update(full_text, untrusted=untrusted))

    def _record(self, patch: Patch) -> None:
        session, before = self.session, self._state
        # A copy: of ids that somebody looks at, the next operation would make one, and count it as its own time.
        text, ids, untrusted = session.text, session.ids.copy(), session.untrusted
        facts = session.explain()
        encoded = _apart((start, stop) for start, stop in facts["windows"])
        found, length = hunks(PieceTable(before.text), text), len(text)
        changes = trusted_otherwise(Untrusted(before.untrusted), untrusted, found, len(before.text), length)
        changes = changes or [Hunk(length, length, length, length)]
        after = _State(text, ids, before.starts, untrusted)
        stretch = self._stretch(before, after, changes[0].start, changes[-1].stop)
        moved = before.starts[stretch.last :] + len(text) - len(before.text)
        starts = np.concatenate([before.starts[: stretch.first], stretch.places.starts + stretch.start, moved])
        after = after._replace(starts=starts)
        changed = _changed(before, after, encoded, changes, patch)
        self.turns.append(
            Turn(
                operation=facts["call"],
                characters=len(text),
                added=len(text) - len(before.text),
                ids=len(ids),
                patch=patch,
                changes=changed,
                replaced=np.concatenate([before.ids[:0], *(before.ids[place.start : place.stop] for place in changed)]),
                encoded=encoded,
                explanation=str(facts),
                stretch=stretch,
            )
        )
        self._state = after

    def _stretch(self, before: _State, after: _State, start: int, stop: int) -> Stretch:
        """What changed in the text, from one certified cut to another, around the characters that were replaced."""
        start, stop = self._edges(before.text, start, stop)
        try:
            return self._between(before, after, start, stop)
        except OtherIds:
            pass  # of a part; where the whole is asked for, there is no cut that could matter
        try:
            return self._between(before, after, 0, len(before.text))
        except OtherIds:
            raise failure(after.text) from None

    def _edges(self, old: str, start: int, stop: int) -> tuple[int, int]:
        """The nearest certified cuts around a change, of whose characters on both sides none has changed."""
        family = self.tok.family
        if not family.supported:
            return 0, len(old)
        behind = range(stop + 1, len(old))
        return family.last_cut(old, 0, start - 1), next(
            (i for i in behind if family.is_pair(old[i - 1], old[i])), len(old)
        )

    def _between(self, before: _State, after: _State, start: int, stop: int) -> Stretch:
        first, last = np.searchsorted(before.starts, [start, stop]).tolist()
        if stop == len(before.text):
            last = len(before.ids)
        end = stop + len(after.text) - len(before.text)
        part = after.text[start:end]
        fresh = after.ids[first : last + len(after.ids) - len(before.ids)]
        untrusted = within(after.untrusted, start, end)
        places = self._finder.places(part, fresh, untrusted=untrusted, continuation=start > 0)
        cuts = self.tok.family.cuts(part, continuation=True)
        forged = self.tok.protection.forged(part, untrusted) if untrusted else ()
        return Stretch(start, stop, part, first, last, fresh, places, cuts, untrusted, forged)


def _apart(windows: Iterable[Span]) -> Spans:
    """Ascending windows, where those that overlap are one. One without characters is where some were deleted."""
    found = list[Span]()
    for start, stop in windows:
        if found and start < found[-1][1]:
            found[-1] = found[-1][0], max(stop, found[-1][1])
        else:
            found.append((start, stop))
    return tuple(found)


def _changed(before: _State, after: _State, encoded: Spans, changes: Sequence[Hunk], patch: Patch) -> tuple[Hunk, ...]:
    """Where ids changed, as places ``before.ids[start:stop]`` that became ``after.ids[begin:end]``."""
    stop = patch.start + len(patch.ids)
    found = [Hunk(patch.start, patch.stop, patch.start, stop)]
    if len(encoded) > 1:
        # What lies between two windows was in the text before, as far from here as the changes left of it are long.
        edges = [0, *(edge for span in encoded for edge in span), len(after.text)]
        kept = [_moved(changes, start, stop) for start, stop in zip(edges[::2], edges[1::2], strict=True)]
        found = _between_kept(before, after, kept) or found
    return tuple(place for place in found if place.start < place.stop or place.begin < place.end)


def _moved(changes: Sequence[Hunk], start: int, stop: int) -> tuple[Span, Span]:
    """Where a part of the text was before some changes that lie beside it, and where it is."""
    shift = sum(hunk.end - hunk.begin - (hunk.stop - hunk.start) for hunk in changes if hunk.end <= start > 0)
    return (start - shift, stop - shift), (start, stop)


def _between_kept(before: _State, after: _State, kept: Sequence[tuple[Span, Span]]) -> list[Hunk] | None:
    """The places between parts of the text whose ids were kept; None if they were not."""
    found, old_at, at = list[Hunk](), 0, 0
    for old, new in kept:
        start, stop = np.searchsorted(before.starts, old).tolist()
        begin, end = np.searchsorted(after.starts, new).tolist()
        if not np.array_equal(before.ids[start:stop], after.ids[begin:end]):
            return None
        found.append(_trimmed(before.ids, after.ids, Hunk(old_at, start, at, begin)))
        old_at, at = stop, end
    return [*found, _trimmed(before.ids, after.ids, Hunk(old_at, len(before.ids), at, len(after.ids)))]


def _trimmed(old: Ids, new: Ids, place: Hunk) -> Hunk:
    """A place without the ids at its beginning and its end that are the same."""
    start, stop, begin, end = place
    while start < stop and begin < end and old[start] == new[begin]:
        start, begin = start + 1, begin + 1
    while start < stop and begin < end and old[stop - 1] == new[end - 1]:
        stop, end = stop - 1, end - 1
    return Hunk(start, stop, begin, end)


def replayed(tok: Tokenizer, transcript: Sequence[Request]) -> Recording:
    """Leads a session through a transcript, as ``toktier demo`` does: appends and updates take turns.

    Args:
        tok: The tokenizer.
        transcript: What ``toktier.replay.requests`` gives.

    Returns:
        The recording, with a turn for each request.

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
