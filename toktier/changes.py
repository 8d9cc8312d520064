"""What a full text changes of one that is held: the differences between the two, as changes to make of its ids."""

from __future__ import annotations

from toktier.difference import Hunk, hunks, single_hunk
from toktier.encodedtext import Change, EncodedText
from toktier.families.family import valid_text
from toktier.untrusted import Spans, within


def changes_to(full_text: str, spans: Spans, held: EncodedText) -> list[Change]:
    """What makes a text of the one that is held, in ascending order and apart from one another.

    Args:
        full_text: The whole text.
        spans: Its untrusted characters.
        held: What there is.

    Raises:
        InvalidText: What is new has a lone surrogate.

    Example:
        >>> import toktier
        >>> tok = toktier.load("toktier-mini")
        >>> held = EncodedText(tok, tok.engine("memo"))
        >>> patch = held.append("The quick brown fox")
        >>> changes_to("The slow brown fox", (), held)
        [Change(start=4, stop=9, text='slow', untrusted=())]
    """
    found: list[Hunk] = []
    for hunk in _differing(hunks(held.table, full_text), full_text, spans, held):
        # Without a seam between two of them they would be encoded together, twice.
        if found and held.seams.find(found[-1].stop + 1) == held.seams.find(hunk.start):
            hunk = Hunk(found[-1].start, hunk.stop, found.pop().begin, hunk.end)  # noqa: PLW2901
        found.append(hunk)
    return [_change_of(hunk, full_text, spans) for hunk in found]


def small_changes_to(full_text: str, spans: Spans, held: EncodedText, most: int) -> list[Change] | None:
    """The same, if there is at most one change and few characters would be encoded for it; None if that is more.

    Args:
        full_text: The whole text.
        spans: Its untrusted characters.
        held: What there is.
        most: How many characters may be encoded.

    Raises:
        InvalidText: As for all changes.
    """
    single = single_hunk(held.table, full_text)
    found = _differing([] if single is None else [single], full_text, spans, held)
    if not found:
        return []
    hunk = found[0]
    if len(found) > 1:
        return None
    seams = held.seams
    left = seams[max(seams.find(hunk.start) - 1, 0)][0]
    behind = seams.find(hunk.stop + 1)
    right = seams[behind][0] if behind < len(seams) else len(held.table)
    if hunk.end - hunk.begin + right - left > most:
        return None
    return [_change_of(hunk, full_text, spans)]


def _differing(found: list[Hunk], full_text: str, spans: Spans, held: EncodedText) -> list[Hunk]:
    """The hunks of a text, with what is the same and is trusted in another way."""
    if not spans and not held.untrusted:
        return found
    return held.untrusted.differing(spans, found, len(held.table), len(full_text))


def _change_of(hunk: Hunk, full_text: str, spans: Spans) -> Change:
    text = valid_text(full_text[hunk.begin : hunk.end], before=hunk.begin)
    return Change(hunk.start, hunk.stop, text, within(spans, hunk.begin, hunk.end) if spans else ())
