"""The shadow verifier: every kind of fault is caught, kept and contained; nothing right is taken for wrong."""

from __future__ import annotations

import logging
import os
import pathlib
import random
import shlex
import statistics
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any, ClassVar
from unittest import mock

import numpy as np
import pytest
from attrs import frozen
from click.testing import CliRunner

import toktier
from tests import material
from tests.faults import FAULTS, MARK, faulty_class
from toktier import Session, SessionStore, Tokenizer, cli, router, verify
from toktier.campaign import verification
from toktier.campaign.texts import EVERYWHERE, fragments
from toktier.engines.base import Engine, Ids
from toktier.verify import Checks, Mismatch, ShadowVerifier

MINI = material.load("toktier-mini")
REFERENCE = material.reference("toktier-mini")
WRONG_IDS = [name for name in FAULTS if name != "raising"]
WITH_A_PAST = ("stale", "forgetful")
LONG = "A text that is long. " * 400


@pytest.fixture
def tok(tmp_path: pathlib.Path) -> Iterator[Tokenizer]:
    """A tokenizer whose engines have seen nothing; whoever is demoted here is so no longer than the test."""
    tok = toktier.Registry(tmp_path / "cache").load("toktier-mini")
    yield tok
    tok.restore("memo")


def plant(name: str, patch: pytest.MonkeyPatch) -> None:
    patch.setattr(router, "MemoEngine", faulty_class(FAULTS[name]))
    patch.setattr(verification, "SHRINKING", 2.0)
    patch.setattr("toktier.verify.SHRINKING", 2.0)


def serve(tok: Tokenizer) -> None:
    """Some calls of all kinds, of which a part meets a planted fault."""
    session = tok.session("Once upon a time there was a fox, and it was", engine="memo")
    for number in range(6):
        session.append(f" quick {number}, ")
        session.edit(5, 9, "on" * number)
        session.update(session.text + " and so on")


@pytest.mark.parametrize("name", WRONG_IDS)
def test_every_kind_of_fault_is_caught_kept_and_contained(
    name: str, tok: Tokenizer, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found: list[Mismatch] = []
    with monkeypatch.context() as patch:
        plant(name, patch)
        with ShadowVerifier(tok, sample=1.0, quarantine=tmp_path / "kept", on_mismatch=found.append) as verifier:
            if name in WITH_A_PAST:
                tok.encode(LONG[:5000])
                tok.encode(LONG)
            else:
                serve(tok)
            assert verifier.drain(60)
            assert verifier.checks().mismatched == len(found) > 0
            assert tok.engine("memo").reason.startswith("demoted: other ids")  # type: ignore[attr-defined]
            file = found[0].file
            assert file is not None
            assert file.parent == tmp_path / "kept"
            # One command, in which a new engine goes wrong as this one did.
            again = CliRunner().invoke(cli.main, shlex.split(f"reproduce {shlex.quote(str(file))}"))
            assert again.exit_code == 1, again.output
            if name not in WITH_A_PAST:
                texts = [change.new for operation in found[0].reproduction.operations for change in operation.changes]
                assert sum(map(len, texts)) <= 60
    without = CliRunner().invoke(cli.main, ["reproduce", str(file)])
    assert without.exit_code == 0, without.output


def test_an_engine_that_raises_is_contained_and_no_mismatch(tok: Tokenizer, monkeypatch: pytest.MonkeyPatch) -> None:
    plant("raising", monkeypatch)
    with ShadowVerifier(tok, sample=1.0, quarantine=None) as verifier:
        serve(tok)
        assert verifier.drain(60)
        assert verifier.checks() == Checks(checked=19)
    assert tok.routes()[0].failed > 0


@frozen
class Delayed:
    """The reference, which waits until it may go."""

    go: threading.Event
    name: ClassVar[str] = "reference"

    def encode(self, text: str, *, continuation: bool = False) -> Ids:
        assert self.go.wait(30)
        return MINI.reference.encode(text)


def test_what_a_caller_does_with_its_ids_is_no_fault_of_the_engine(tok: Tokenizer) -> None:
    go = threading.Event()
    with ShadowVerifier(tok, sample=1.0, quarantine=None) as verifier:
        verifier._reference = Delayed(go)  # type: ignore[assignment]
        for ids in (tok.encode("Some ids"), *tok.encode_batch(["of a batch", "of texts"])):
            ids[:] = 0
        go.set()
        assert verifier.drain(30)
        assert verifier.checks() == Checks(checked=3)


@pytest.mark.parametrize("rate", [0.05, 0.10])
def test_the_delay_of_detection_is_geometric(rate: float) -> None:
    """How many calls go by before one is looked at: compared with the distribution by Kolmogorov and Smirnov."""
    delays = []
    for seed in range(2_000):
        with ShadowVerifier(MINI, sample=rate, seed=seed, quarantine=None) as verifier:
            delays.append(next(calls for calls in range(1, 10_000) if verifier.is_due(1)))
    most = max(
        abs(np.mean(np.array(delays) <= calls) - (1 - (1 - rate) ** calls)) for calls in range(1, max(delays) + 1)
    )
    assert most < 1.63 / len(delays) ** 0.5  # more than that has a probability of one in a hundred
    assert statistics.mean(delays) == pytest.approx(1 / rate, rel=0.1)


@pytest.mark.parametrize("rate", [0.05, 0.10])
def test_a_fault_is_found_after_as_many_calls_as_the_rate_says(rate: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """The whole way: wrong ids in a session, until a mismatch is reported."""
    monkeypatch.setattr(verification, "SHRINKING", 0.0)
    monkeypatch.setattr("toktier.verify.SHRINKING", 0.0)
    engine = faulty_class(FAULTS["substituted"])(MINI.family, MINI.reference)
    engine.name = "planted"  # an engine of one's own, which cannot be demoted
    delays = []
    for seed in range(100):
        with ShadowVerifier(MINI, sample=rate, seed=seed, quarantine=None) as verifier:
            calls = 0
            while not verifier.checks().mismatched:
                Session(MINI, MARK + " text", engine=engine)
                calls += 1
                assert verifier.drain(30)
            delays.append(calls)
    deviation = (1 - rate) ** 0.5 / rate / len(delays) ** 0.5
    assert abs(statistics.mean(delays) - 1 / rate) < 3 * deviation


def test_there_is_no_false_alarm_in_a_hundred_thousand_clean_operations() -> None:
    source, pool = random.Random(0), [*fragments(MINI), *EVERYWHERE * 20]
    total = 100_000
    with ShadowVerifier(MINI, sample=1.0, quarantine=None) as verifier:
        sessions = [MINI.session(engine=name) for name in ("memo", "reference")]
        for number in range(total):
            session = sessions[number % 2]
            if len(session._served.held.table) > 60:
                session.update("")
            elif number % 3:
                session.append("".join(source.choices(pool, k=2)))
            else:
                at = source.randrange(len(session._served.held.table) + 1)
                session.edit(at, min(at + 3, len(session._served.held.table)), source.choice(pool))
            if number % 32 == 0:
                assert verifier.drain(30)
        assert verifier.drain(30)
        assert verifier.checks() == Checks(checked=total)


def sampled(seed: int) -> list[str]:
    looked_at: list[str] = []
    with ShadowVerifier(MINI, sample=0.2, seed=seed, quarantine=None) as verifier:
        verifier.offer = lambda *answer, **how: looked_at.append(answer[3]())  # type: ignore[method-assign]
        for number in range(200):
            MINI.encode(f"text {number}")
    return looked_at


def test_the_same_seed_looks_at_the_same_calls() -> None:
    assert sampled(1) == sampled(1) != sampled(2)
    assert 20 < len(sampled(1)) < 60


def test_callers_never_wait_and_what_does_not_fit_is_dropped_and_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    go = threading.Event()
    with ShadowVerifier(MINI, sample=1.0, quarantine=None) as verifier:
        verifier._reference = Delayed(go)  # type: ignore[assignment]
        for number in range(200):
            MINI.encode(f"text {number}")
        assert not verifier.drain(0.01)
        assert verifier.checks() == Checks(dropped=200 - 64)
        go.set()
        assert verifier.drain(30)
        assert verifier.checks() == Checks(checked=64, dropped=200 - 64)


def test_characters_that_wait_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("toktier.verify.CHARACTERS", 100)
    with ShadowVerifier(MINI, sample=1.0, quarantine=None) as verifier:
        go = threading.Event()
        verifier._look_at = lambda answer: go.wait(30)  # type: ignore[assignment,method-assign]
        for length in (200, 60, 1):  # one that is too long by itself has its turn when nothing else waits
            MINI.encode("x" * length)
        assert verifier.checks() == Checks(dropped=2)
        go.set()
        assert verifier.drain(30)
        MINI.encode("x")
        assert verifier.checks() == Checks(dropped=2)


def test_one_tokenizer_has_one_verifier_until_it_is_closed() -> None:
    with (
        ShadowVerifier(MINI, quarantine=None),
        pytest.raises(ValueError, match="has a verifier already"),
    ):
        ShadowVerifier(MINI, quarantine=None)
    ShadowVerifier(MINI, quarantine=None).close()
    assert MINI.meter.watcher is None
    for share in (0, 1.5, -1, float("nan")):
        with pytest.raises(ValueError, match="a share of all calls"):
            ShadowVerifier(MINI, sample=share)


# Demotion


def test_a_demoted_engine_serves_nobody_of_its_family_and_what_it_gave_is_not_trusted(
    tok: Tokenizer, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant("substituted", monkeypatch)
    other = toktier.Registry(tmp_path / "other").load("toktier-mini")
    texts = [f"a {MARK}uick text", f"an {MARK}uite other one"]
    sessions = [it.session(texts[0], engine="memo") for it in (tok, other)]
    store = SessionStore(tok, engine="memo", path=tmp_path / "sessions")
    store.encode(texts[0], session="a")
    store.encode(texts[0])
    assert all(session.tolist() != REFERENCE(texts[0]) for session in sessions)
    tok.demote("memo", "as planned")
    for session, operate in zip(sessions * 2, OPERATIONS, strict=True):
        before = session.tolist()
        patch = operate(session)
        assert session.tolist() == REFERENCE(session.text) == patch.apply(before)
    assert store.encode(texts[0]).tolist() == REFERENCE(texts[0])
    assert store.encode(texts[1], session="a").tolist() == REFERENCE(texts[1])
    assert store.encode(texts[0], session="new").tolist() == REFERENCE(texts[0])
    late = toktier.Registry(tmp_path / "late").load("toktier-mini")
    assert late.session(texts[0], engine="memo").tolist() == REFERENCE(texts[0])
    assert "the reference in its place: demoted: as planned" in str(late.session(texts[0], engine="memo").explain())
    tok.restore("memo")
    assert late.session(texts[0], engine="memo").tolist() != REFERENCE(texts[0])
    store.close()


OPERATIONS: tuple[Callable[[Session], toktier.Patch], ...] = (
    lambda session: session.append(" more"),
    lambda session: session.edit(1, 3, "new"),
    lambda session: session.update(session.text + "."),
    lambda session: session.edit(0, 0, ""),
)


def test_what_a_demoted_engine_gave_is_not_resumed_from_disk(
    tok: Tokenizer, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant("substituted", monkeypatch)
    text = f"a {MARK}uick text"
    with SessionStore(tok, engine="memo", path=tmp_path / "sessions") as store:
        store.encode(text, session="a")
    with SessionStore(tok, engine="memo", path=tmp_path / "sessions") as store:
        store.encode(text, session="b")
        tok.demote("memo", "as planned")
        assert store.encode(text, session="a").tolist() == REFERENCE(text)
        assert store.usage().resumed == 0
    # The one that nobody used was made right before it was saved.
    with SessionStore(tok, engine="reference", path=tmp_path / "sessions") as store:
        assert store.encode(text, session="b").tolist() == REFERENCE(text)
        assert store.usage().resumed == 1


def test_only_engines_that_are_there_are_demoted() -> None:
    for name in ("reference", "none"):
        with pytest.raises(toktier.UnknownEngine, match="cannot be demoted"):
            MINI.demote(name, "")


def test_by_policy_an_engine_serves_on(tok: Tokenizer, monkeypatch: pytest.MonkeyPatch) -> None:
    plant("deleted", monkeypatch)
    with ShadowVerifier(tok, sample=1.0, quarantine=None, demote=False) as verifier:
        serve(tok)
        assert verifier.drain(60)
        assert verifier.checks().mismatched > 1
    assert not tok.routes()[0].demoted


class Sometimes:
    """An engine of one's own that is wrong once, so that nothing shows it again."""

    name = "sometimes"

    def __init__(self) -> None:
        self.engine: Engine = MINI.engine("reference")
        self.calls = 0

    def encode(self, text: str, *, continuation: bool = False) -> Ids:
        self.calls += 1
        ids = self.engine.encode(text)
        return ids[:-1] if self.calls == 1 else ids

    def encode_batch(self, texts: Sequence[str], *, continuation: bool = False) -> list[Ids]:
        return [self.encode(text) for text in texts]


def test_what_cannot_be_made_again_is_kept_as_it_was(tmp_path: pathlib.Path) -> None:
    found: list[Mismatch] = []
    with ShadowVerifier(MINI, sample=1.0, quarantine=tmp_path, on_mismatch=found.append) as verifier:
        Session(MINI, "some text", engine=Sometimes())
        assert verifier.drain(30)
    (mismatch,) = found
    assert "not when it was done again" in mismatch.reproduction.message
    assert mismatch.reproduction.expected == tuple(REFERENCE("some text"))
    assert mismatch.reproduction.got is not None
    assert len(mismatch.reproduction.got) == len(mismatch.reproduction.expected) - 1
    assert mismatch.file is not None


def test_a_quarantine_that_cannot_be_written_is_no_error(
    tmp_path: pathlib.Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").write_text("")
    found: list[Mismatch] = []
    with ShadowVerifier(MINI, sample=1.0, quarantine=tmp_path / "file", on_mismatch=found.append) as verifier:
        Session(MINI, "some text", engine=Sometimes())
        assert verifier.drain(30)
    assert found[0].file is None
    assert "cannot be saved" in caplog.text


def test_an_engine_that_gave_up_before_is_demoted_all_the_same(tok: Tokenizer, monkeypatch: pytest.MonkeyPatch) -> None:
    plant("substituted", monkeypatch)
    session = tok.session(f"a {MARK}uick text", engine="memo")
    (route,) = tok.routes()
    route._engine = route._reference  # as after a hundred failures
    tok.demote("memo", "as planned")
    session.append(" more")
    assert session.tolist() == REFERENCE(session.text)


@pytest.mark.parametrize("operate", range(4))
def test_a_stale_session_is_right_whoever_looks_at_it(
    operate: int, tok: Tokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant("substituted", monkeypatch)
    session = tok.session(f"a {MARK}uick text", engine="memo")
    before = session.tolist()
    fork = session.fork()
    tok.demote("memo", "as planned")
    expected = REFERENCE(session.text)
    assert session.tolist() == session.ids.tolist() == expected != before
    patch = OPERATIONS[operate](session)
    assert patch.apply(before) == session.tolist() == REFERENCE(session.text)
    assert Session.from_bytes(tok, fork.to_bytes()).tolist() == expected == fork.tolist()


def test_a_call_that_is_under_way_gives_the_right_ids(tok: Tokenizer, monkeypatch: pytest.MonkeyPatch) -> None:
    """The engine is demoted while it encodes: what it gave is not what the call returns."""
    plant("substituted", monkeypatch)
    session = tok.session("some text", engine="memo")
    (route,) = tok.routes()
    encode_batch = route._engine.encode_batch

    def demoted_meanwhile(texts: Sequence[str], *, continuation: bool = False) -> list[Ids]:
        encoded = encode_batch(texts, continuation=continuation)
        tok.demote("memo", "as planned")
        return encoded

    monkeypatch.setattr(route._engine, "encode_batch", demoted_meanwhile)
    before = session.tolist()
    patch = session.append(f" {MARK}uick")
    assert patch.apply(before) == session.tolist() == REFERENCE(session.text)


def test_a_relation_that_is_wrong_is_named(tok: Tokenizer, monkeypatch: pytest.MonkeyPatch) -> None:
    found: list[Mismatch] = []
    monkeypatch.setattr(type(tok.family), "is_pair", lambda self, left, right: True)
    monkeypatch.setattr(type(tok.family), "cuts", lambda self, text, **_: np.arange(1, len(text)))
    with ShadowVerifier(tok, sample=1.0, quarantine=None, on_mismatch=found.append) as verifier:
        tok.session("Once upon a ti", engine="reference").append("me")
        assert verifier.drain(30)
    assert found[0].reproduction.engine is None


def test_after_a_demotion_auto_is_the_next_engine(tok: Tokenizer) -> None:
    assert tok.engine().name == "memo"
    tok.demote("memo", "as planned")
    assert tok.engine().name == "reference"
    tok.restore("memo")
    assert tok.engine().name == "memo"


def test_a_callback_that_raises_or_waits_is_no_end(tok: Tokenizer, caplog: pytest.LogCaptureFixture) -> None:
    def wait(mismatch: Mismatch) -> None:
        verifier.drain()

    with ShadowVerifier(tok, sample=1.0, quarantine=None, on_mismatch=wait) as verifier:
        Session(tok, "some text", engine=Sometimes())
        Session(tok, "some text", engine="reference")
        assert verifier.drain(30)
    assert verifier.checks().checked == 2
    assert "on_mismatch raised" in caplog.text
    assert "cannot wait" in caplog.text


@pytest.mark.skipif(sys.platform == "win32", reason="there is no fork")
def test_a_forked_process_verifies_by_itself() -> None:
    with ShadowVerifier(MINI, sample=1.0, quarantine=None) as verifier:
        MINI.encode("before")
        assert verifier.drain(30)
        child = os.fork()
        if child == 0:
            MINI.encode("after")
            os._exit(0 if verifier.drain(20) and verifier.checks() == Checks(checked=1) else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_nothing_is_resumed_before_the_disk_has_forgotten(
    tok: Tokenizer, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another process keeps the file busy: what the demoted engine gave is there still."""
    plant("substituted", monkeypatch)
    text = f"a {MARK}uick text"
    with SessionStore(tok, engine="memo", path=tmp_path / "sessions") as store:
        store.encode(text, session="a")
    with SessionStore(tok, engine="memo", path=tmp_path / "sessions") as store:
        assert store._saver is not None
        tok.demote("memo", "as planned")
        monkeypatch.setattr(store._saver._archive, "clear", lambda: False)
        assert store.encode(text, session="a").tolist() == REFERENCE(text)
        assert store.usage().resumed == 0


class BadFilter(logging.Filter):
    """One that raises on every record, which logging lets through to whoever logs."""

    def filter(self, record: logging.LogRecord) -> bool:
        raise RuntimeError("planted")


def test_logging_that_raises_is_no_end_and_prevents_no_demotion(
    tok: Tokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant("substituted", monkeypatch)
    bad = BadFilter()
    with ShadowVerifier(tok, sample=1.0, quarantine=None) as verifier:
        verify.logger.addFilter(bad)
        try:
            tok.session(f"a {MARK}uick text", engine="memo")
            assert verifier.drain(10)
            assert tok.routes()[0].demoted
            tok.session("another text", engine="memo")
            assert verifier.drain(10)
        finally:
            verify.logger.removeFilter(bad)
        assert verifier.checks() == Checks(checked=2, mismatched=1)


@pytest.mark.parametrize("where", ["before it is put", "after it is put"])
def test_an_answer_that_a_signal_met_on_its_way_keeps_nobody_waiting(where: str) -> None:
    class Interrupt(BaseException):
        """What a signal handler raises."""

    with ShadowVerifier(MINI, sample=1.0, quarantine=None) as verifier:
        put = verifier._queue.put

        def put_and_interrupted(answer: Any) -> None:
            put(answer)
            raise Interrupt

        queue = mock.Mock(wraps=verifier._queue)
        queue.put.side_effect = put_and_interrupted
        made = mock.patch("toktier.verify._Answer", side_effect=Interrupt)
        late = mock.patch.object(verifier, "_queue", queue)
        with made if where == "before it is put" else late, pytest.raises(Interrupt):
            MINI.encode("some text")
        assert verifier.drain(10)
        for number in range(3):
            MINI.encode(f"text {number}")
        assert verifier.drain(10)
        assert verifier.checks().checked >= 3
        with verifier._lock:
            assert (verifier._taken, verifier._characters) == (verifier._finished, 0)
