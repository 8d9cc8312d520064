"""What a full text changes of one that is held: the differences between the two, as changes to make of its ids."""

from __future__ import annotations

from toktier.difference import Hunk, hunks, single_hunk
from toktier.encodedtext import Change, EncodedText
from toktier.families.family import valid_text
from toktier.untrusted import Spans, Untrusted, within


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


def trusted_otherwise(old: Untrusted, spans: Spans, found: list[Hunk], length: int, new_length: int) -> list[Hunk]:
    """The hunks of a text, and the stretches between them that are trusted in another way from now on.

    Args:
        old: What was untrusted in the old text.
        spans: What is untrusted in the new one.
        found: Where the two differ, in order.
        length: Characters of the old text.
        new_length: Characters of the new one.

    Example:
        >>> trusted_otherwise(Untrusted(((0, 4),)), ((0, 2), (5, 6)), [Hunk(4, 6, 4, 5)], 8, 7)
        [Hunk(start=2, stop=4, begin=2, end=4), Hunk(start=4, stop=6, begin=4, end=5), Hunk(start=6, stop=7, ...)]
    """
    everything: list[Hunk] = []
    at, new_at = 0, 0
    for hunk in (*found, Hunk(length, length, new_length, new_length)):
        before, after = old.within(at, hunk.start), within(spans, new_at, hunk.begin)
        if before != after:
            # Where an odd number of edges lies to the left, one of the two is trusted and the other is not.
            edges = sorted({e for span in before for e in span} ^ {e for span in after for e in span})
            pairs = zip(edges[::2], edges[1::2], strict=True)
            everything += [Hunk(at + a, at + b, new_at + a, new_at + b) for a, b in pairs]
        everything.append(hunk)
        at, new_at = hunk.stop, hunk.end
    return everything[:-1]


def _differing(found: list[Hunk], full_text: str, spans: Spans, held: EncodedText) -> list[Hunk]:
    """The hunks of a text, with what is the same and is trusted in another way."""
    if not spans and not held.untrusted:
        return found
    return trusted_otherwise(held.untrusted, spans, found, len(held.table), len(full_text))


def _change_of(hunk: Hunk, full_text: str, spans: Spans) -> Change:
    text = valid_text(full_text[hunk.begin : hunk.end], before=hunk.begin)
    return Change(hunk.start, hunk.stop, text, within(spans, hunk.begin, hunk.end) if spans else ())
