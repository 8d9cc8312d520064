"""Sessions: exact after any program, O(change), stable, atomic."""

from __future__ import annotations

import copy
import json
import pickle
import sys
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
import tokenizers
from hypothesis import given, settings
from hypothesis import strategies as st

import toktier
from tests import material, zoo
from tests.rooms import small_rooms
from toktier import Patch, Session
from toktier.campaign.operations import END, Change, Kind, Operation, shown
from toktier.campaign.programs import run
from toktier.campaign.texts import EVERYWHERE, fragments
from toktier.campaign.watched import Broken, Watched
from toktier.encodedtext import EncodedText
from toktier.engines.base import Engine, Ids
from toktier.families.family import Family
from toktier.planner import CHUNK
from toktier.seams import SPACING

TURN = "<|im_start|>assistant\nI will look at it.<|im_end|>\n<|im_start|>user\n{}<|im_end|>\n"


def programs(tok: toktier.Tokenizer) -> st.SearchStrategy[list[Operation]]:
    """Programs of operations on sessions of one tokenizer."""
    texts = st.lists(st.sampled_from([*fragments(tok), *EVERYWHERE * 5]), max_size=6).map("".join)
    places = st.one_of(st.integers(0, 40), st.integers(-20, -1), st.just(END))
    changes = st.builds(Change, places, places, texts)
    appends = texts.map(lambda text: (Change(END, END, text),))
    few = st.lists(changes, min_size=1, max_size=3).map(tuple)
    one = changes.map(lambda change: (change,))
    rest = {"at": st.integers(0, 2), "look": st.booleans()}
    operation = st.one_of(
        st.builds(Operation, st.just(Kind.APPEND), appends, **rest),
        st.builds(Operation, st.just(Kind.EDIT), one, **rest),
        st.builds(Operation, st.just(Kind.UPDATE), few, **rest),
        st.builds(Operation, st.just(Kind.FORK), st.just(()), **rest),
        st.builds(Operation, st.just(Kind.REFUSED), one, **rest),
    )
    return st.lists(operation, min_size=1, max_size=12)


def check(tok: toktier.Tokenizer, reference: material.Reference, examples: int, engine: Engine | None = None) -> None:
    @settings(max_examples=examples, database=None, report_multiple_bugs=False)
    @given(programs(tok))
    def exact(program: list[Operation]) -> None:
        problem = run(program, tok, reference, engine)
        assert problem is None, f"{problem}\n{shown(program)}"

    with small_rooms():
        exact()


@pytest.mark.parametrize("name", material.available())
def test_any_program_leaves_the_ids_of_a_full_encode(name: str) -> None:
    check(material.load(name), material.reference(name), 60)


@pytest.mark.parametrize("name", ["gaps", "NFC", "NFKD", "lstrip", "single word", "characters", "templated", "anchor"])
def test_any_program_leaves_the_ids_of_a_full_encode_on_small_definitions(name: str) -> None:
    tokenizer = zoo.build(name)
    reference = material.reference_of(tokenizers.Tokenizer.from_str(tokenizer.to_str()))
    check(material.registry().load(tokenizer), reference, 60)


def test_a_session_that_ignores_the_new_neighbours_of_a_seam_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """The control of the programs: a seam that is kept although its pair is new gives other ids."""
    monkeypatch.setattr(Family, "is_pair", lambda self, left, right: True)
    with pytest.raises(AssertionError, match="ids"):
        check(material.load("toktier-mini"), material.reference("toktier-mini"), 300)


def edited_beside_a_seam(start: int, stop: int, text: str) -> None:
    tok = material.load("toktier-mini")
    session = tok.session("a time")
    session.append("1234")
    assert session._served.held.seams.arrays()[0].tolist() == [0, 6]
    session.edit(start, stop, text)
    assert session.tolist() == material.reference("toktier-mini")(session.text)


@pytest.mark.parametrize(("start", "stop", "text"), [(2, 6, "7"), (5, 6, "2"), (6, 8, "d"), (6, 10, "s"), (2, 8, "x")])
def test_an_edit_at_a_seam_goes_by_the_characters_that_meet_there_now(start: int, stop: int, text: str) -> None:
    edited_beside_a_seam(start, stop, text)


def test_an_edit_that_keeps_the_seam_behind_it_whatever_meets_there_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(EncodedText, "_may_stand_behind", lambda *_: True)
    with pytest.raises(AssertionError):
        edited_beside_a_seam(2, 6, "7")


PREFIXED = ["Llama 2", "Metaspace first", "Metaspace and literals", "prefix space", "prefix, and a line end alone"]


@pytest.mark.parametrize("name", PREFIXED)
def test_what_comes_to_stand_at_the_begin_of_a_text_has_its_prefix_and_what_no_longer_does_has_none(name: str) -> None:
    tokenizer = zoo.build(name)
    reference = material.reference_of(tokenizers.Tokenizer.from_str(tokenizer.to_str()))
    tok = material.registry().load(tokenizer)
    assert tok.family.prefixed
    text = "the quick brown fox\n" * 400
    session = Session(tok, text)
    (seam, _), *_ = [session._served.held.seams[k] for k in range(1, len(session._served.held.seams))]
    for start, stop, new in [(0, seam, ""), (0, 0, "a\n"), (0, 2, ""), (0, len(text), ""), (0, 0, text), (0, 0, "\n")]:
        session.edit(start, min(stop, len(session.text)), new)
        assert session.tolist() == reference(session.text)
    check(tok, reference, 30)


def test_without_looking_at_the_begin_it_does_not(monkeypatch: pytest.MonkeyPatch) -> None:
    """The control: ids behind a seam are kept although the text before it is gone."""
    monkeypatch.setattr(
        EncodedText,
        "_may_stand_behind",
        lambda self, before, after, _: not before or self._family.is_pair(before, after),
    )
    for name in PREFIXED[:1]:
        with pytest.raises(AssertionError):
            test_what_comes_to_stand_at_the_begin_of_a_text_has_its_prefix_and_what_no_longer_does_has_none(name)


@pytest.mark.parametrize("name", material.available())
def test_a_replayed_agent_session_is_exact_at_every_turn(name: str) -> None:
    tok, reference = material.load(name), material.reference(name)
    prompt = "<|im_start|>assistant\n<think>\n"
    messages = min(material.agent_sessions(), key=lambda session: sum(len(m["content"]) for m in session))
    appended, updated = Session(tok), Session(tok)
    for turn in range(1, len(messages) + 1):
        appended.append(material.chatml(messages[turn - 1 : turn]))
        text = material.chatml(messages[:turn])
        updated.update(text + prompt)
        assert appended.tolist() == reference(text)
        assert updated.tolist() == reference(text + prompt)


# O(change): what the engine is given


@pytest.fixture
def watched() -> Watched:
    return Watched(material.load("toktier-mini").engine())


@pytest.fixture
def long_text() -> str:
    return "".join(TURN.format(text) for text in material.corpus()[:1] * 40)[:400_000]


def test_append_encodes_the_new_text_and_the_few_characters_back_to_the_last_cut(
    watched: Watched, long_text: str
) -> None:
    tok = material.load("toktier-mini")
    session = Session(tok, long_text, engine=watched)
    for i in range(50):
        text = session.text
        tail = len(text) - tok.family.last_cut(text, 0, len(text) - 1)
        watched.characters = 0
        session.append(long_text[i * 100 : i * 100 + 1400])
        assert watched.characters <= 1400 + tail


def test_append_where_two_texts_are_a_cut_encodes_the_new_text_alone(watched: Watched) -> None:
    session = Session(material.load("toktier-mini"), "one", engine=watched)
    watched.characters = 0
    session.append(" two")
    assert watched.characters == 4


RENDERINGS: dict[str, Callable[[str], str]] = {
    "nothing changed": lambda text: text,
    "a turn was added": lambda text: text + TURN.format("Thanks."),
    "the generation prompt was replaced": lambda text: text.removesuffix("<think>\n") + "Done.<|im_end|>\n<think>\n",
    "reasoning was stripped from an old turn": lambda text: text[:200_000] + text[203_000:],
    "reasoning was stripped from many old turns": lambda text: "".join(
        text[i : i + 18_000] for i in range(0, len(text), 20_000)
    ),
    "an old tool result was shortened": lambda text: text[:100_000] + "[... 2000 characters]" + text[102_000:],
    "many old tool results were shortened": lambda text: "".join(
        text[i : i + 19_000] + "[... 1000 characters]" for i in range(0, len(text), 20_000)
    ),
    "the history was compacted": lambda text: text[:1000] + "Summary: it went well." + text[-50_000:],
    "the system prompt was changed": lambda text: "Another one. " + text[20:],
}


def grown(tok: toktier.Tokenizer, text: str, engine: Engine) -> Session:
    """A session that was given its text turn by turn."""
    session = Session(tok, engine=engine)
    for i in range(0, len(text), 1400):
        session.append(text[i : i + 1400])
    return session


@pytest.mark.parametrize("rendering", RENDERINGS)
def test_update_costs_what_a_front_end_changed(rendering: str, watched: Watched, long_text: str) -> None:
    tok = material.load("toktier-mini")
    old = long_text + "<think>\n"
    new = RENDERINGS[rendering](old)
    session = grown(tok, old, watched)
    ids = session.tolist()
    watched.characters = 0
    session.update(new).apply(ids)
    seen = watched.characters
    assert ids == session.tolist() == tok.encode(new).tolist()
    changes = 20 if "many" in rendering else 1
    assert seen <= changes * (100 + 4 * SPACING)


def test_many_small_appends_leave_few_seams() -> None:
    session = Session(material.load("toktier-mini"))
    for _ in range(5_000):
        session.append(" foo bar")
    assert len(session._served.held.seams) < 4 + 3 * len(session.text) / SPACING


@pytest.mark.parametrize("at_once", [False, True])
def test_a_long_text_has_few_seams_until_it_is_edited(at_once: bool, watched: Watched, long_text: str) -> None:
    text = "A beginning. " + long_text[:200_000]
    session = Session(material.load("toktier-mini"), text if at_once else text[:13], engine=watched)
    session.append("" if at_once else text[13:])
    assert len(session._served.held.seams) < 15
    watched.characters = 0
    session.update(text[:-20] + "another prompt")
    assert watched.characters <= 4 * SPACING
    seen = []
    for _ in range(3):
        watched.characters = 0
        session.edit(100_000, 100_003, "new")
        seen.append(watched.characters)
    assert seen[0] <= 3 * CHUNK
    assert max(seen[1:]) <= 4 * SPACING
    assert session.tolist() == material.reference("toktier-mini")(session.text)


def test_an_edit_in_the_middle_encodes_no_more_than_the_seams_around_it(watched: Watched, long_text: str) -> None:
    session = grown(material.load("toktier-mini"), long_text, watched)
    for place in range(1000, len(long_text), 50_000):
        watched.characters = 0
        session.edit(place, place + 3, "new")
        assert watched.characters <= 4 * SPACING


def test_seams_are_certified_and_count_the_ids_to_their_left(long_text: str) -> None:
    tok = material.load("toktier-mini")
    session = Session(tok, long_text[:20_000])
    for i in range(200):
        session.append(long_text[i * 7 : i * 7 + 5])
    text = session.text
    seams = [session._served.held.seams[k] for k in range(len(session._served.held.seams))]
    assert seams[0] == (0, 0)
    assert seams == sorted(set(seams))
    assert len(seams) < 4 + 3 * len(text) / SPACING
    for position, count in seams[1:]:
        assert tok.family.is_cut(text, position, continuation=True)
        assert len(tok.encode(text[:position])) == count


class Listening:
    """An engine that keeps what it is given, each time."""

    name = "listening"

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.texts: list[str] = []

    def encode(self, text: str, *, continuation: bool = False) -> Ids:
        self.texts.append(text)
        return self.engine.encode(text, continuation=continuation)

    def encode_batch(self, texts: Sequence[str], *, continuation: bool = False) -> list[Ids]:
        self.texts.append("".join(texts))
        return self.engine.encode_batch(texts, continuation=continuation)


def listened(session: Session) -> None:
    """Asserts that the windows of the last operation are where the text is that the engine was given for it."""
    engine, windows = session.engine, session.explain()["windows"]
    assert isinstance(engine, Listening)
    text = session.text
    assert sorted(windows) == windows == json.loads(json.dumps(windows))
    assert sorted(engine.texts) == sorted(text[start:stop] for start, stop in windows)
    engine.texts.clear()


def test_the_windows_of_an_explanation_are_where_the_engine_was_at_work(long_text: str) -> None:
    tok = material.load("toktier-mini")
    session = Session(tok, long_text[:40_000], engine=Listening(tok.engine("memo")))
    listened(session)
    session.append(long_text[:700])
    listened(session)
    session.edit(20_000, 20_300, "Shorter.")
    listened(session)
    text = session.text
    session.update(text[:300] + "Anew." + text[400:15_000] + text[15_500:30_000] + "[...]" + text[32_000:] + "<think>")
    assert len(session.explain()["windows"]) == 4
    listened(session)
    session.update(session.text)
    assert session.explain()["windows"] == []


def test_state_beyond_the_text_is_at_most_five_bytes_an_id() -> None:
    """On a million characters that came in as appends of a turn each, the way sessions grow."""
    session = Session(material.load("toktier-mini"))
    source = "".join(material.corpus()[:12])
    for i in range(720):
        session.append(source[i * 50 : i * 50 + 1400])
    state = (
        session._served.held.ids.nbytes
        + session._served.held.table.nbytes_overhead()
        + session._served.held.seams.nbytes
    )
    assert state <= 5 * len(session)


def test_the_bytes_of_a_session_are_those_of_all_its_parts() -> None:
    session = Session(material.load("toktier-mini"), "The quick brown fox")
    parts = (session, session._served, session._served.held)
    held = session._served.held
    filled = held.table.nbytes + held.ids.nbytes + held.seams.nbytes + held.untrusted.nbytes
    assert session.nbytes == sum(map(sys.getsizeof, parts)) + filled


# Patches


def test_a_patch_is_as_small_as_the_change() -> None:
    tok = material.load("toktier-mini")
    session = Session(tok, "one two three four five six seven")
    patch = session.edit(8, 13, "3")
    assert tok.decode(patch.ids) == " 3"
    assert patch.stop - patch.start == len(tok.encode(" three"))


def test_a_patch_of_nothing_is_empty() -> None:
    session = Session(material.load("toktier-mini"), "same")
    for patch in (session.append(""), session.update("same"), session.edit(2, 2, ""), session.edit(0, 4, "same")):
        assert patch.start == patch.stop
        assert len(patch.ids) == 0


def test_a_patch_applies_to_lists_in_place_and_to_arrays_as_new_ones() -> None:
    session = Session(material.load("toktier-mini"), "Once upon a ti")
    listed, array = session.tolist(), session.ids
    patch = session.append("me")
    assert patch.apply(listed) is listed
    assert listed == session.tolist() == patch.apply(array).tolist()
    assert patch.apply(array).dtype == np.uint32


# Stable


def test_what_was_handed_out_never_changes() -> None:
    session = Session(material.load("toktier-mini"), "The first word")
    ids, listed, text = session.ids, session.tolist(), session.text
    kept = ids.copy(), listed.copy(), text
    patch = session.append("s are the hardest")
    patch_ids = patch.ids.copy()
    session.edit(0, 3, "Any")
    session.update("Other words")
    assert np.array_equal(ids, kept[0])
    assert (listed, text) == kept[1:]
    assert np.array_equal(patch.ids, patch_ids)


def test_ids_are_read_only() -> None:
    session = Session(material.load("toktier-mini"), "text")
    with pytest.raises(ValueError, match="read-only"):
        session.ids[0] = 1


def test_the_ids_of_a_patch_cannot_be_written_to() -> None:
    session = Session(material.load("toktier-mini"), "two words")
    patches = [
        session.append(" and more" * 2000),
        session.edit(0, 3, "three"),
        session.update("Three" + session.text[5:-4] + "less"),
        session.append(""),
    ]
    for patch in patches:
        with pytest.raises(ValueError, match="read-only"):
            patch.ids[:] = 0


def test_what_a_caller_does_to_a_list_does_not_reach_the_session() -> None:
    session = Session(material.load("toktier-mini"), "Some text")
    ids = session.tolist()
    session.tolist().clear()
    assert session.tolist() == ids


def test_forks_are_independent() -> None:
    tok = material.load("toktier-mini")
    session = Session(tok, "A common begin")
    fork = session.fork()
    session.append("ning")
    fork.append(" and another end")
    assert session.tolist() == tok.encode("A common beginning").tolist()
    assert fork.tolist() == tok.encode("A common begin and another end").tolist()


def test_copies_are_forks() -> None:
    session = Session(material.load("toktier-mini"), "ab gh ab")
    session.tolist()
    for other in (copy.copy(session), copy.deepcopy(session)):
        session.edit(1, 4, "ab")
        other.append(" g")
        assert other.tolist() == other.ids.tolist() == material.reference("toktier-mini")(other.text)
        assert session.tolist() == material.reference("toktier-mini")(session.text)


def test_what_is_sent_in_place_of_a_session_is_told() -> None:
    with pytest.raises(TypeError, match=r"send its to_bytes\(\)"):
        pickle.dumps(Session(material.load("toktier-mini"), "ab"))


# Atomic: an operation that raises leaves the session as it was

BAD_CALLS: dict[str, tuple[Callable[[Any], object], type[Exception], str]] = {
    "append a surrogate": (lambda s: s.append("ab\ud800"), toktier.InvalidText, "position 2"),
    "edit in a surrogate": (lambda s: s.edit(0, 1, "\udfff"), toktier.InvalidText, "position 0"),
    "update to a surrogate": (lambda s: s.update(s.text + "\ud800"), toktier.InvalidText, "position 9"),
    "append bytes": (lambda s: s.append(b"ab"), TypeError, "must be str, not bytes"),
    "update to None": (lambda s: s.update(None), TypeError, "must be str, not NoneType"),
    "edit a number in": (lambda s: s.edit(0, 0, 7), TypeError, "must be str, not int"),
    "edit behind the end": (lambda s: s.edit(0, 10, ""), IndexError, "9 characters"),
    "edit before the beginning": (lambda s: s.edit(-1, 0, ""), IndexError, "out of range"),
    "edit backwards": (lambda s: s.edit(3, 2, ""), IndexError, "out of range"),
    "edit at a fraction": (lambda s: s.edit(0.5, 1, ""), TypeError, "float"),
}


@pytest.mark.parametrize("call", BAD_CALLS)
def test_a_bad_call_raises_what_is_promised_and_changes_nothing(call: str) -> None:
    session = Session(material.load("toktier-mini"), "Some text")
    before = session.text, session.tolist()
    operation, error, message = BAD_CALLS[call]
    with pytest.raises(error, match=message):
        operation(session)
    assert (session.text, session.tolist()) == before
    session.append(" more")
    assert session.tolist() == material.reference("toktier-mini")("Some text more")


def test_an_engine_that_raises_changes_nothing(watched: Watched, long_text: str) -> None:
    session = Session(material.load("toktier-mini"), long_text, engine=watched)
    shortened = RENDERINGS["many old tool results were shortened"](long_text)
    operations: list[Callable[[], Patch]] = [
        lambda: session.append("x"),
        lambda: session.edit(100, 200, "x"),
        lambda: session.update(shortened),
    ]
    ids = session.tolist()
    for operation in operations:
        watched.fails = True
        with pytest.raises(Broken):
            operation()
        watched.fails = False
        assert session.text == long_text
        assert session.tolist() == ids
    for operation in operations:
        operation()
    assert session.tolist() == material.reference("toktier-mini")(shortened)


def test_a_string_that_adds_up_differently_is_taken_for_its_characters() -> None:
    """Templates with auto-escaping give strings of a class that escapes whatever is added to them."""

    class Markup(str):
        def __add__(self, other: str) -> str:
            return f"{self!s}&lt;escaped&gt;"

        __radd__ = __add__

    tok = material.load("toktier-mini")
    session = Session(tok, Markup("<b>"))
    session.append(Markup("<i>"))
    session.edit(1, 2, Markup("c"))
    assert session.text == "<c><i>"
    session.update(Markup("<c><i>!"))
    assert type(session.text) is str
    assert session.tolist() == tok.encode("<c><i>!").tolist()


def test_an_unknown_engine_is_named() -> None:
    with pytest.raises(toktier.UnknownEngine, match=r"'warp'.*'reference'"):
        Session(material.load("toktier-mini"), engine="warp")


# Guards against what would give other ids in silence


class Careless:
    """An engine that forgets the last of several texts, or gives ids in another form."""

    name = "careless"

    def __init__(self, form: Callable[[Ids], object], *, forgets: bool = False) -> None:
        self.form, self.forgets = form, forgets
        self.engine = material.load("toktier-mini").engine()

    def encode(self, text: str, *, continuation: bool = False) -> Any:
        return self.form(self.engine.encode(text))

    def encode_batch(self, texts: Sequence[str], *, continuation: bool = False) -> Any:
        return [self.encode(text) for text in texts][: -1 if self.forgets else None]


@pytest.mark.parametrize(
    ("engine", "message"),
    [
        (Careless(lambda ids: ids, forgets=True), "1 results for 2 texts"),
        (Careless(lambda ids: ids.astype(np.int64)), "int64, not uint32"),
        (Careless(lambda ids: ids.tolist()), "list, not uint32"),
        (Careless(lambda ids: ids[:, None]), r"shape \(\d+, 1\), not \(tokens,\)"),
    ],
    ids=["too few results", "another type", "a list", "a column"],
)
def test_what_an_engine_must_not_give_is_refused(engine: Careless, message: str) -> None:
    with pytest.raises(TypeError, match=message):
        Session(material.load("toktier-mini"), "two words", engine=engine)


def test_an_engine_may_give_any_array_of_ids() -> None:
    tok = material.load("toktier-mini")
    strided = Careless(lambda ids: np.repeat(ids, 2)[::2])
    session = Session(tok, "two words", engine=strided)
    session.append(" and more")
    assert session.tolist() == tok.encode("two words and more").tolist()


def test_a_patch_after_a_missing_one_is_refused() -> None:
    session = Session(material.load("toktier-mini"), "abc def")
    ids = session.tolist()
    session.append(" ghi jkl mno")
    with pytest.raises(ValueError, match="is for 10 ids, not 2"):
        session.append(" pqr").apply(ids)


def test_what_is_no_tokenizer_and_no_engine_is_named() -> None:
    with pytest.raises(TypeError, match=r"toktier\.load\(\) makes one"):
        Session("toktier-mini")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="engine must be a name"):
        Session(material.load("toktier-mini"), engine=None)  # type: ignore[arg-type]
