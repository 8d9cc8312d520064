"""Engines that are demoted in the worst moment: what they gave is not resumed, not saved, and in nobody's copy."""

from __future__ import annotations

import asyncio
import contextlib
import pathlib
import threading
from collections.abc import Callable, Iterator, Sequence
from unittest import mock

import pytest

import toktier
from tests import material
from tests.faults import FAULTS, MARK, faulty_class
from toktier import Session, SessionStore, Tokenizer, router
from toktier.engines.base import Engine, Ids
from toktier.engines.reference import ReferenceEngine
from toktier.errors import EngineFailure
from toktier.route import Route
from toktier.untrusted import Spans

REFERENCE = material.reference("toktier-mini")
TEXT = f"a {MARK}uick text, " * 100
"""One for which the engine gives wrong ids."""


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    return tmp_path_factory.mktemp("cache")


@pytest.fixture
def tok(cache: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Tokenizer]:
    """A tokenizer whose ``memo`` is wrong, until it is demoted."""
    monkeypatch.setattr(router, "MemoEngine", faulty_class(FAULTS["substituted"]))
    tok = toktier.Registry(cache).load("toktier-mini")
    assert tok.engine("memo").encode(TEXT).tolist() != REFERENCE(TEXT)
    yield tok
    tok.restore("memo")


@pytest.fixture
def path(tok: Tokenizer, tmp_path: pathlib.Path) -> pathlib.Path:
    """A file with a session that has wrong ids."""
    with SessionStore(tok, engine="memo", path=tmp_path / "sessions") as store:
        store.encode(TEXT, session="a")
    return tmp_path / "sessions"


def on_disk(store: SessionStore, tok: Tokenizer, name: str = "a") -> list[int] | None:
    """The ids of a session as the file has them."""
    assert store._saver is not None
    data = store._saver._archive.get(b"", name)
    return None if data is None else Session.from_bytes(tok, data, engine="reference").tolist()


def demote_and_clear(store: SessionStore, tok: Tokenizer) -> None:
    """Demotes the engine, and makes a call that has the disk cleared."""
    tok.demote("memo", "as planned")
    store.encode("something else", session="another one")


# The disk


def test_what_was_packed_before_a_demotion_is_not_saved_after_it(tok: Tokenizer, tmp_path: pathlib.Path) -> None:
    to_bytes = Session.to_bytes
    with SessionStore(tok, engine="memo", path=tmp_path / "sessions") as store:
        store.encode(TEXT, session="a")

        def demoted_meanwhile(session: Session) -> bytes:
            data = to_bytes(session)
            with mock.patch.object(Session, "to_bytes", to_bytes):
                demote_and_clear(store, tok)
            return data

        with mock.patch.object(Session, "to_bytes", demoted_meanwhile), contextlib.suppress(OSError):
            store.flush()
        assert on_disk(store, tok) is None
        store.flush()
        assert on_disk(store, tok) == REFERENCE(TEXT)


def test_what_was_read_before_the_disk_was_cleared_is_not_resumed(tok: Tokenizer, path: pathlib.Path) -> None:
    """Another call has it cleared in the meantime, so that there is no difference afterwards."""
    with SessionStore(tok, engine="memo", path=path) as store:
        assert store._saver is not None
        archive = store._saver._archive
        get = archive.get

        def cleared_meanwhile(salt: bytes, key: str) -> bytes | None:
            data = get(salt, key)
            with mock.patch.object(archive, "get", get):
                demote_and_clear(store, tok)
            return data

        with mock.patch.object(archive, "get", cleared_meanwhile):
            store.encode(TEXT, session="a")
        assert store.encode(TEXT, session="a").tolist() == REFERENCE(TEXT)
        assert store.usage().resumed == 0


def test_nothing_is_resumed_while_a_demotion_is_under_way(tok: Tokenizer, path: pathlib.Path) -> None:
    """The session would begin with an engine that is trusted by then, and with ids of before."""
    demote = Route.demote
    with SessionStore(tok, engine="memo", path=path) as store:

        def used_meanwhile(route: Route, why: str) -> None:
            demote(route, why)
            store.encode(TEXT, session="a")

        with mock.patch.object(Route, "demote", used_meanwhile):
            tok.demote("memo", "as planned")
        assert store.encode(TEXT, session="a").tolist() == REFERENCE(TEXT)
        assert store.usage().resumed == 0


def test_what_is_saved_while_a_demotion_is_under_way_is_not_kept(tok: Tokenizer, path: pathlib.Path) -> None:
    """The disk is cleared already when it comes, of an engine that is trusted still."""
    demote = Route.demote
    with SessionStore(tok, engine="memo", path=path) as store:
        store.encode(TEXT, session="b")

        def saved_meanwhile(route: Route, why: str) -> None:
            store.encode("something else", session="another one")
            with contextlib.suppress(OSError):
                store.flush()
            demote(route, why)

        with mock.patch.object(Route, "demote", saved_meanwhile):
            tok.demote("memo", "as planned")
        assert on_disk(store, tok, "b") is None


def test_what_the_disk_was_cleared_of_is_saved_again(tok: Tokenizer, tmp_path: pathlib.Path) -> None:
    with SessionStore(tok, engine="memo", path=tmp_path / "sessions") as store:
        store.encode(TEXT, session="a")
        store.flush()
        demote_and_clear(store, tok)
        assert store.usage().unsaved == 2
        store.flush()
        assert on_disk(store, tok) == REFERENCE(TEXT)


@pytest.mark.parametrize("end", [SessionStore.flush, SessionStore.close])
def test_nothing_of_a_demoted_engine_is_left_for_the_next_process(
    end: Callable[[SessionStore], None], tok: Tokenizer, path: pathlib.Path
) -> None:
    """Also where no call came after the demotion that would have looked for it."""
    store = SessionStore(tok, engine="memo", path=path)
    store.encode(TEXT, session="b")
    store.flush()
    tok.demote("memo", "as planned")
    end(store)
    with SessionStore(tok, engine="reference", path=path) as following:
        assert on_disk(following, tok) is None
        assert following.encode(TEXT, session="b").tolist() == REFERENCE(TEXT)
        assert following.usage().resumed == 1
    store.close()


def test_a_short_text_does_not_wait_for_the_disk(tok: Tokenizer, path: pathlib.Path) -> None:
    short, waited = f"a {MARK}uick text", list[threading.Thread]()
    with SessionStore(tok, engine="memo", path=path) as store:
        assert store._saver is not None
        asyncio.run(store.encode_async(short))
        tok.demote("memo", "as planned")
        clear = mock.Mock(side_effect=lambda: waited.append(threading.current_thread()))
        with mock.patch.object(store._saver._archive, "clear", clear):
            assert asyncio.run(store.encode_async(short)).tolist() == REFERENCE(short)
        assert threading.current_thread() not in waited


# Patches


def test_saving_a_stale_session_leaves_the_patch_that_replaces_all_ids_to_the_next_operation(tok: Tokenizer) -> None:
    session = tok.session(TEXT, engine="memo")
    copy = session.tolist()
    tok.demote("memo", "as planned")
    assert Session.from_bytes(tok, session.to_bytes()).tolist() == REFERENCE(TEXT)
    assert session.append("And more.").apply(copy) == REFERENCE(session.text) == session.tolist()


def test_a_flush_leaves_it_too(tok: Tokenizer, tmp_path: pathlib.Path) -> None:
    with SessionStore(tok, engine="memo", path=tmp_path / "sessions") as store:
        copy = store.encode(TEXT, session="a").tolist()
        tok.demote("memo", "as planned")
        store.flush()
        ids, patch = store.encode(TEXT + "And more.", session="a", patch=True)
        assert patch.apply(copy) == ids.tolist() == REFERENCE(TEXT + "And more.")


class Demoting:
    """A watcher that has the engine demoted as soon as it has answered."""

    def __init__(self, tok: Tokenizer) -> None:
        self.tok = tok

    def is_due(self, size: int) -> bool:
        return True

    def offer(
        self, path: str, engine: Engine, size: int, text: Callable[[], str], ids: Ids, *, untrusted: Spans = ()
    ) -> None:
        self.tok.demote("memo", "as planned")


@pytest.mark.parametrize("name", ["a", "new"])
def test_ids_and_patch_of_one_call_belong_together(name: str, tok: Tokenizer) -> None:
    store = SessionStore(tok, engine="memo")
    copy = store.encode(TEXT, session="a").tolist()
    tok.meter.watcher = Demoting(tok)
    ids, patch = store.encode(TEXT + "And more.", session=name, patch=True)
    assert patch.apply(copy) == ids.tolist() == REFERENCE(TEXT + "And more.")
    ids, patch = store.encode(TEXT + "And more.", session=name, patch=True)
    assert patch.apply(copy) == ids.tolist() == REFERENCE(TEXT + "And more.")


# What cannot be encoded anew


@contextlib.contextmanager
def broken_reference() -> Iterator[None]:
    """The reference fails on long texts."""
    encode_batch = ReferenceEngine.encode_batch

    def failing(engine: ReferenceEngine, texts: Sequence[str], *, continuation: bool = False) -> list[Ids]:
        if sum(map(len, texts)) > 1000:
            raise EngineFailure("planted")
        return encode_batch(engine, texts, continuation=continuation)

    with mock.patch.object(ReferenceEngine, "encode_batch", failing):
        yield


OPERATIONS: dict[str, Callable[[Session], toktier.Patch]] = {
    "append": lambda session: session.append("And more."),
    "edit": lambda session: session.edit(5, 9, "other"),
    "update": lambda session: session.update("One. " + TEXT[50:] + "Two."),
}


@pytest.mark.parametrize("name", OPERATIONS)
def test_an_operation_that_raises_for_a_demotion_changes_nothing(name: str, tok: Tokenizer) -> None:
    session = tok.session(TEXT, engine="memo")
    copy = session.tolist()
    tok.demote("memo", "as planned")
    with broken_reference(), pytest.raises(EngineFailure):
        OPERATIONS[name](session)
    assert session.text == TEXT
    assert session.tolist() == REFERENCE(TEXT)
    patch = OPERATIONS[name](session)
    assert patch.apply(copy) == session.tolist() == REFERENCE(session.text)


@pytest.mark.parametrize("name", OPERATIONS)
def test_what_is_demoted_during_an_operation_and_not_encoded_anew_is_so_later(name: str, tok: Tokenizer) -> None:
    session = tok.session(TEXT, engine="memo")
    expected = tok.session(TEXT, engine="reference")
    OPERATIONS[name](expected)
    copy, (route,) = session.tolist(), tok.routes()
    encode_batch = route._engine.encode_batch

    def demoted_meanwhile(texts: Sequence[str], *, continuation: bool = False) -> list[Ids]:
        tok.demote("memo", "as planned")
        return encode_batch(texts)

    with broken_reference(), mock.patch.object(route._engine, "encode_batch", demoted_meanwhile):
        OPERATIONS[name](session).apply(copy)
    assert session.text == expected.text
    assert session.tolist() == session.ids.tolist() == REFERENCE(expected.text)
    assert session.append("").apply(copy) == session.tolist() == REFERENCE(expected.text)


def test_the_ids_of_a_stale_session_cannot_be_written_to(tok: Tokenizer) -> None:
    session = tok.session(TEXT, engine="memo")
    tok.demote("memo", "as planned")
    assert not session.ids.flags.writeable
