from __future__ import annotations

import functools

import numpy as np
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
from toktier.view import Recording, replayed
from toktier.view.tokens import Finder, OtherIds, Places, Positions
from toktier.view.turns import Turn

NAMES = ("toktier-mini", "Llama 2", "NFC", "BERT", "lookbehind")
PARTS = st.lists(st.sampled_from(["a", "é", "e", "\u0301", "中", "👍🏽", " ", "\n", "the ", "<|im_end|>", "\x00"])).map(
    "".join
)
OPERATIONS = st.lists(
    st.tuples(st.sampled_from(["append", "edit", "update"]), PARTS, st.data()), min_size=1, max_size=6
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

    def take(self, turn: Turn) -> None:
        stretch = turn.stretch
        shift = len(stretch.text) - (stretch.stop - stretch.start)
        self.text = self.text[: stretch.start] + stretch.text + self.text[stretch.stop :]
        self.ids = self._replaced(self.ids, turn, stretch.ids, 0)
        self.starts = self._replaced(self.starts, turn, stretch.places.starts + stretch.start, shift)
        self.stops = self._replaced(self.stops, turn, stretch.places.stops + stretch.start, shift)
        behind = self.cuts[self.cuts >= max(stretch.stop, stretch.start + 1)] + shift
        self.cuts = np.concatenate([self.cuts[self.cuts <= stretch.start], stretch.cuts + stretch.start, behind])

    @staticmethod
    def _replaced(old: Positions, turn: Turn, fresh: Ids | Positions, shift: int) -> Positions:
        stretch = turn.stretch
        return np.concatenate([old[: stretch.first], fresh, old[stretch.last :] + shift])


def check_turn(copy: Copy, recording: Recording) -> None:
    tok, text = recording.tok, recording.session.text
    ids = tok.encode(text)
    places = Finder(tok).places(text, ids)
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
    name: str, operations: list[tuple[str, str, st.DataObject]]
) -> None:
    recording, copy = Recording(load(name)), Copy()
    for operation, part, data in operations:
        before = recording.session.tolist()
        length = len(recording.session.text)
        if operation == "append":
            recording.append(part)
        else:
            start = data.draw(st.integers(0, length))
            stop = data.draw(st.integers(start, length))
            text = recording.session.text
            if operation == "edit":
                recording.edit(start, stop, part)
            else:
                recording.update(text[:start] + part + text[stop:])
        turn = recording.turns[-1]
        assert turn.operation == operation
        assert turn.replaced.tolist() == before[turn.patch.start : turn.patch.stop]
        copy.take(turn)
        check_turn(copy, recording)


def test_what_was_encoded_is_where_it_stands_after_changes_in_many_places() -> None:
    recording = Recording(load("toktier-mini"))
    recording.append(filler := "Nothing changes here at all. " * 600)
    for part in ("<one>", filler, "<two>", filler, "<three>", filler):
        recording.append(part)  # not at once, or there would be no seam between two of them
    recording.update(f"{filler}{NEW[0]}{filler}{NEW[1]}{filler}{NEW[2]}{filler}")
    turn, text = recording.turns[-1], recording.session.text
    assert len(turn.encoded) == 3
    for (start, stop), new in zip(turn.encoded, NEW, strict=True):
        at = 2 * len(filler) + len(NEW[0]) if new == "" else text.index(new)
        assert start <= at <= at + len(new) <= stop


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

    def refusing(self: Finder, text: str, ids: Ids, *, continuation: bool = False) -> Places:
        if continuation:
            raise OtherIds
        return places(self, text, ids)

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
