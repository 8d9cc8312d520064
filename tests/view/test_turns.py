from __future__ import annotations

import functools

import numpy as np
import numpy.typing as npt
import pytest
from attrs import evolve
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import normalizers

import toktier
from tests import builders, material, zoo
from toktier import replay
from toktier.engines.base import Ids
from toktier.errors import EngineFailure
from toktier.untrusted import Spans, Special
from toktier.view import Recording, replayed
from toktier.view.tokens import Finder, OtherIds, Places, Positions
from toktier.view.turns import Turn

NAMES = ("toktier-mini", "Llama 2", "NFC", "BERT", "lookbehind")
PARTS = st.lists(st.sampled_from(["a", "é", "e", "\u0301", "中", "👍🏽", " ", "\n", "the ", "<|im_end|>", "\x00"])).map(
    "".join
)
SPECIAL: tuple[Special, ...] = ("token", "text")
OPERATIONS = st.lists(
    st.tuples(st.sampled_from(["append", "edit", "update"]), PARTS, st.sampled_from(SPECIAL), st.data()),
    min_size=1,
    max_size=6,
)


@functools.cache
def load(name: str) -> toktier.Tokenizer:
    return toktier.load(name) if name == "toktier-mini" else material.registry().load(zoo.build(name))


NEW = (f"<{'fourteen' * 500}>", "", "<thirty-three>")
"""What an update with three changes brings."""


class Copy:
    """What a page makes of the stretches: the text, its ids, where they stand, and the cuts."""

    def __init__(self) -> None:
        self.text = ""
        self.ids = self.starts = self.stops = self.cuts = np.zeros(0, np.int64)
        self.untrusted = np.zeros(0, bool)
        self.forged = np.zeros(0, bool)

    def take(self, turn: Turn) -> None:
        stretch = turn.stretch
        shift = len(stretch.text) - (stretch.stop - stretch.start)
        self.text = self.text[: stretch.start] + stretch.text + self.text[stretch.stop :]
        self.ids = self._replaced(self.ids, turn, stretch.ids, 0)
        self.starts = self._replaced(self.starts, turn, stretch.places.starts + stretch.start, shift)
        self.stops = self._replaced(self.stops, turn, stretch.places.stops + stretch.start, shift)
        behind = self.cuts[self.cuts >= max(stretch.stop, stretch.start + 1)] + shift
        self.cuts = np.concatenate([self.cuts[self.cuts <= stretch.start], stretch.cuts + stretch.start, behind])
        for name in ("untrusted", "forged"):
            old: npt.NDArray[np.bool_] = getattr(self, name)
            fresh = marked(getattr(stretch, name), len(stretch.text))
            setattr(self, name, np.concatenate([old[: stretch.start], fresh, old[stretch.stop :]]))

    @staticmethod
    def _replaced(old: Positions, turn: Turn, fresh: Ids | Positions, shift: int) -> Positions:
        stretch = turn.stretch
        return np.concatenate([old[: stretch.first], fresh, old[stretch.last :] + shift])


def marked(spans: Spans, length: int) -> npt.NDArray[np.bool_]:
    """For each character of a text, whether it lies in one of some spans."""
    found = np.zeros(length, bool)
    for start, stop in spans:
        found[start:stop] = True
    return found


def check_turn(copy: Copy, recording: Recording) -> None:
    tok, text, untrusted = recording.tok, recording.session.text, recording.session.untrusted
    ids = tok.encode(text, untrusted=untrusted)
    finder = recording.finder
    places = finder.places(text, ids, untrusted=untrusted)
    assert copy.untrusted.tolist() == marked(untrusted, len(text)).tolist()
    assert (
        copy.forged.tolist()
        == marked((tok.protection.forged(text, untrusted) if untrusted else ()), len(text)).tolist()
    )
    assert copy.text == text
    assert copy.ids.tolist() == ids.tolist() == recording.session.tolist()
    assert copy.starts.tolist() == places.starts.tolist()
    assert copy.stops.tolist() == places.stops.tolist()
    assert copy.cuts.tolist() == tok.family.cuts(text, continuation=True).tolist()
    turn = recording.turns[-1]
    assert (turn.characters, turn.ids) == (len(text), len(ids))
    for start, stop in turn.encoded:
        assert 0 <= start <= stop <= len(text)


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=30)
@given(operations=OPERATIONS)
def test_stretches_make_each_text_with_its_ids_places_and_cuts(
    name: str, operations: list[tuple[str, str, Special, st.DataObject]]
) -> None:
    recording, copy = Recording(load(name)), Copy()
    protects = name != "Llama 2"  # whose model may give the special tokens of this definition by itself
    for operation, part, how, data in operations:
        before, special = recording.session.tolist(), how if protects else "token"
        text = recording.session.text
        if operation == "append":
            recording.append(part, special=special)
        else:
            start = data.draw(st.integers(0, len(text)))
            stop = data.draw(st.integers(start, len(text)))
            if operation == "edit":
                recording.edit(start, stop, part, special=special)
            else:
                untrusted = (
                    [(start, min(start + 20, len(text) - stop + start + len(part)))] if special == "text" else []
                )
                recording.update(text[:start] + part + text[stop:], untrusted=untrusted)
        turn = recording.turns[-1]
        assert turn.operation == operation
        check_changes(turn, before, recording.session.tolist())
        copy.take(turn)
        check_turn(copy, recording)


def check_changes(turn: Turn, before: list[int], after: list[int]) -> None:
    """What a turn says to have changed makes the ids after it of those before, and was looked at by the engine."""
    made, at = list[int](), 0
    for start, stop, begin, end in turn.changes:
        assert (start, begin) != (stop, end)
        made += before[at:start]
        assert len(made) == begin
        made += after[begin:end]
        at = stop
    assert made + before[at:] == after
    assert turn.replaced.tolist() == [id for place in turn.changes for id in before[place.start : place.stop]]


def test_what_was_encoded_is_where_it_stands_after_changes_in_many_places() -> None:
    recording = Recording(load("toktier-mini"))
    recording.append(filler := "Nothing changes here at all. " * 600)
    for part in ("<one>", filler, "<two>", filler, "<three>", filler):
        recording.append(part)  # not at once, or there would be no seam between two of them
    recording.update(f"{filler}{NEW[0]}{filler}{NEW[1]}{filler}{NEW[2]}{filler}")
    turn, text = recording.turns[-1], recording.session.text
    assert len(turn.encoded) == len(turn.changes) == 3
    assert sum(end - begin for _, _, begin, end in turn.changes) < len(turn.patch.ids) / 2
    ids = recording.session.tolist()
    for place, new in zip(turn.changes, ("fourteen" * 500, "", "thirty"), strict=True):
        assert new in recording.tok.decode(ids[place.begin : place.end])
    for (start, stop), new in zip(turn.encoded, NEW, strict=True):
        at = 2 * len(filler) + len(NEW[0]) if new == "" else text.index(new)
        assert start <= at <= at + len(new) <= stop


def test_what_was_encoded_twice_for_one_operation_is_told_once() -> None:
    recording = Recording(load("BERT"))
    recording.append("a", special="text")
    recording.update("éa")
    assert len(recording.session.explain()["windows"]) == 2  # of the new character, and of the one that is trusted now
    assert recording.turns[-1].encoded == ((0, 2),)
    assert recording.turns[-1].replaced.tolist() == load("BERT").encode("a").tolist()


def test_a_stretch_is_what_changed_and_a_few_characters() -> None:
    recording = Recording(load("toktier-mini"))
    recording.append("Some words that stay. " * 500)
    recording.append("And a few more.")
    recording.edit(5_000, 5_003, "new")
    for turn in recording.turns[1:]:
        assert len(turn.stretch.text) < 60
        assert turn.stretch.start > 4_000


def test_without_cuts_a_stretch_is_the_whole_text() -> None:
    recording = Recording(load("lookbehind"))
    assert not recording.tok.family.supported
    recording.append("aba")
    recording.append("b")
    assert (recording.turns[-1].stretch.start, recording.turns[-1].stretch.text) == (0, "abab")


def test_an_operation_that_changes_nothing_is_a_turn_too() -> None:
    recording = Recording(load("toktier-mini"))
    recording.append("")
    recording.append("Hi")
    recording.update("Hi")
    copy = Copy()
    for turn in recording.turns:
        copy.take(turn)
    check_turn(copy, recording)
    assert recording.turns[-1].encoded == ()
    assert len(recording.turns[-1].patch.ids) == len(recording.turns[-1].replaced) == 0
    assert recording.turns[-1].changes == ()


def test_a_replay_does_what_the_demo_does() -> None:
    tok = load("toktier-mini")
    messages = [replay.Message(m["role"], m["content"]) for m in material.agent_sessions()[0]][:12]
    transcript = list(replay.requests(messages))
    recording = replayed(tok, transcript)
    shown = list(replay.replay(tok, transcript))
    assert [turn.characters for turn in recording.turns] == [turn.characters for turn in shown]
    assert [turn.ids for turn in recording.turns] == [turn.ids for turn in shown]
    assert [turn.operation for turn in recording.turns[1:]] == [turn.operation for turn in shown[1:]]
    assert recording.turns[-1].encoded[0][0] > 0


def test_where_a_part_has_other_ids_than_the_whole_the_whole_is_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    recording, copy = Recording(load("Llama 2")), Copy()
    recording.append("The THE  it")
    copy.take(recording.turns[-1])
    places = Finder.places

    def refusing(self: Finder, text: str, ids: Ids, *, untrusted: Spans = (), continuation: bool = False) -> Places:
        if continuation:
            raise OtherIds
        return places(self, text, ids, untrusted=untrusted)

    monkeypatch.setattr(Finder, "places", refusing)
    recording.append("'s")
    assert recording.turns[-1].stretch.start == 0
    copy.take(recording.turns[-1])
    check_turn(copy, recording)


def test_a_model_that_gives_other_ids_each_time_is_an_error() -> None:
    recording = Recording(toktier.load(builders.byte_level(dropout=0.9, normalizer=normalizers.Lowercase())))
    with pytest.raises(EngineFailure, match="dropout gives other ids each time"):
        recording.append(builders.WORDS * 20)


def test_what_was_handed_out_does_not_change() -> None:
    recording = Recording(load("toktier-mini"))
    recording.append("One")
    turn = recording.turns[0]
    ids = turn.stretch.ids.tolist()
    recording.append("ness")
    assert turn.stretch.ids.tolist() == ids
    assert evolve(turn).stretch is turn.stretch
