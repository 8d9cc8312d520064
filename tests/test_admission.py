"""What the comparison with the reference finds, and what becomes of an engine of which it finds something."""

from __future__ import annotations

import pathlib
import re
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any, ClassVar

import numpy as np
import pytest
import tokenizers

import toktier
from tests import material
from toktier import router
from toktier.engines import battery, gigatoken
from toktier.engines.admission import Comparison, Evidence, Interrupted, Suspect, compared
from toktier.engines.base import Ids, Inapplicable
from toktier.engines.memo import MemoEngine
from toktier.engines.reference import ReferenceEngine
from toktier.engines.tiktoken import TiktokenEngine
from toktier.errors import EngineFailure
from toktier.families.family import Family
from toktier.families.probing import DiskCache, Probe, every_character
from toktier.route import FAILURES, Route
from toktier.router import Router

RARE = "\u1ecb"
OTHER = np.array([0], np.uint32)
TOGETHER = re.compile("[\u0300-\u0320][\u0321-\u0340]")


class Planted(TiktokenEngine):
    """An engine with a fault, each under a name of its own."""

    def __init_subclass__(cls) -> None:
        cls.name = cls.__name__


class Faultless(Planted):
    """The control of them all."""


class WrongForOneCharacter(Planted):
    """One rare code point gets other ids."""

    def encode(self, text: str, *, continuation: bool = False) -> Ids:
        ids = super().encode(text, continuation=continuation)
        return np.append(ids, OTHER) if RARE in text else ids


class WrongInASCII(Planted):
    """A rare pair of ASCII characters gets other ids."""

    def encode(self, text: str, *, continuation: bool = False) -> Ids:
        ids = super().encode(text, continuation=continuation)
        return np.append(ids, OTHER) if "(\t" in text else ids


class WrongForTwoTogether(Planted):
    """Two marks get other ids where they meet, as where one library composes or orders what another does not."""

    def encode(self, text: str, *, continuation: bool = False) -> Ids:
        ids = super().encode(text, continuation=continuation)
        return np.append(ids, OTHER) if TOGETHER.search(text) else ids


class WrongAfterAPrefix(Planted):
    """What a text begins with was seen before: then one id too many comes back."""

    def __init__(self, family: Family, reference: ReferenceEngine, probe: Probe) -> None:
        super().__init__(family, reference, probe)
        self.seen: set[str] = set()

    def encode(self, text: str, *, continuation: bool = False) -> Ids:
        ids = super().encode(text, continuation=continuation)
        prefix = text[: len(text) // 3]
        # So long that no text of the battery is by chance the beginning of another: that has to be tried on purpose.
        if len(prefix) > 300 and prefix in self.seen:
            return np.append(ids, OTHER)
        self.seen.add(text)
        return ids


class RaisesForOneCharacter(Planted):
    """One rare code point is too much for it."""

    def encode(self, text: str, *, continuation: bool = False) -> Ids:
        if RARE in text:
            raise RuntimeError("too rare")
        return super().encode(text, continuation=continuation)


class Undone(Planted):
    """Says at once that it serves nothing."""

    @staticmethod
    def check(family: Family, reference: ReferenceEngine) -> None:
        raise Inapplicable("not done")


class RaisesAlways(Planted):
    """It cannot encode anything."""

    def encode(self, text: str, *, continuation: bool = False) -> Ids:
        raise RuntimeError("no")


class RaisesInService(Planted):
    """It fails only when it is too late for a comparison."""

    serving: ClassVar[bool] = False

    def encode(self, text: str, *, continuation: bool = False) -> Ids:
        if self.serving:
            raise RuntimeError("out of order")
        return super().encode(text, continuation=continuation)


@pytest.fixture
def tok() -> toktier.Tokenizer:
    return material.load("toktier-mini")


@pytest.fixture
def reference() -> ReferenceEngine:
    return ReferenceEngine(tokenizers.Tokenizer.from_buffer(material.definition("toktier-mini")))


class WithoutEvidence(DiskCache):
    """New for what a comparison keeps; what the library says of its classes is the same for all tests."""

    def get(self, question: list[Any], compute: Callable[[], Any]) -> Any:
        is_new = question[0] in ("admission", "battery")
        return super().get(question, compute) if is_new else material.registry()._cache.get(question, compute)


@pytest.fixture
def cache(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> DiskCache:
    """A new one, a small code space and fewer random texts: what is compared takes some tenths of a second."""
    monkeypatch.setattr(battery, "every_character", lambda: every_character()[:0x2000])
    monkeypatch.setattr(battery, "RANDOM_TEXTS", 400)
    monkeypatch.setattr(battery, "LONG", 30_000)
    return WithoutEvidence(tmp_path)


def evidence_of(
    suspect: type[Suspect], tok: toktier.Tokenizer, reference: ReferenceEngine, cache: DiskCache
) -> Evidence:
    return compared(suspect, tok.family, reference, cache)


# Planted faults: caught by admission


def test_an_engine_without_a_fault_is_admitted(tok: Any, reference: Any, cache: DiskCache) -> None:
    evidence = evidence_of(Faultless, tok, reference, cache)
    assert (evidence.refused, evidence.guard) == (None, ())
    assert "no difference" in str(evidence)


def test_all_of_unicode_is_compared(tok: Any, reference: Any) -> None:
    class WrongForTheLast(Planted):
        def encode(self, text: str, *, continuation: bool = False) -> Ids:
            ids = super().encode(text, continuation=continuation)
            return np.append(ids, OTHER) if "\U0010ffff" in text else ids

    evidence = evidence_of(WrongForTheLast, tok, reference, material.registry()._cache)
    assert (evidence.refused, evidence.guard) == (None, ((0x10FFFF, 0x10FFFF),))
    assert evidence.characters > 10_000_000


@pytest.mark.parametrize("suspect", [WrongForOneCharacter, RaisesForOneCharacter])
def test_one_rare_code_point_becomes_the_guard(
    suspect: type[Planted], tok: Any, reference: Any, cache: DiskCache
) -> None:
    evidence = evidence_of(suspect, tok, reference, cache)
    assert (evidence.refused, evidence.guard) == (None, ((ord(RARE), ord(RARE)),))
    assert "1 code point differs and goes to the reference: U+1ECB" in str(evidence)
    route = Route(suspect(tok.family, reference, Probe(cache)), reference, str(evidence), evidence)
    for text in (f"so {RARE} is", "and so is this", f"{RARE}"):
        assert route.encode(text).tolist() == reference.encode(text).tolist()
    assert [ids.tolist() for ids in route.encode_batch(["a", RARE])] == [
        reference.encode(t).tolist() for t in ("a", RARE)
    ]
    assert (route.guarded, route.failed) == (3, 0)


@pytest.mark.parametrize(
    ("suspect", "reason"),
    [
        (WrongInASCII, "other ids for"),
        (WrongForTwoTogether, "other ids for"),
        (WrongAfterAPrefix, "other ids for"),
        (RaisesAlways, "other ids for"),
    ],
)
def test_what_no_code_point_explains_refuses_an_engine(
    suspect: type[Planted], reason: str, tok: Any, reference: Any, cache: DiskCache
) -> None:
    evidence = evidence_of(suspect, tok, reference, cache)
    assert evidence.refused is not None
    assert reason in evidence.refused
    assert str(evidence).startswith("refused: ")


# Planted faults: contained by the route


def test_an_engine_that_raises_in_service_is_answered_for_by_the_reference(
    tok: Any, reference: Any, cache: DiskCache, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    evidence = evidence_of(RaisesInService, tok, reference, cache)
    assert evidence.refused is None
    monkeypatch.setattr(RaisesInService, "serving", True)
    route = Route(RaisesInService(tok.family, reference, Probe(cache)), reference, str(evidence), evidence)
    session = toktier.Session(tok, "one two", engine=route)
    session.append(" three, and four")
    assert session.tolist() == reference.encode(session.text).tolist()
    assert (route.guarded, route.failed) == (0, 4)
    assert "out of order" in caplog.text


def test_an_engine_that_raises_again_and_again_is_given_no_more(tok: Any, reference: Any) -> None:
    engine = RaisesAlways(tok.family, reference, Probe(DiskCache(None)))
    route = Route(engine, reference, "")
    for _ in range(2 * FAILURES):
        assert route.encode("some text").tolist() == reference.encode("some text").tolist()
    assert route.failed == FAILURES
    assert "given no more texts" in route.reason


class RaisesOnOne(ReferenceEngine):
    """Raises on a text, and so on every batch that has it."""

    def encode(self, text: str, *, continuation: bool = False) -> Ids:
        if text == "bad":
            raise OSError("as planned")
        return super().encode(text)

    def encode_batch(self, texts: Sequence[str], *, continuation: bool = False) -> list[Ids]:
        return [self.encode(text) for text in texts]


def test_of_a_batch_only_the_texts_on_which_an_engine_raises_are_its_failures(reference: Any) -> None:
    route = Route(RaisesOnOne(reference.tokenizer), reference, "")
    texts = ["good"] * (2 * FAILURES) + ["bad"]
    assert [ids.tolist() for ids in route.encode_batch(texts)] == [reference.encode(text).tolist() for text in texts]
    assert (route.failed, route.demoted) == (1, False)


def test_a_batch_that_fails_though_none_of_its_texts_does_is_one_failure(reference: Any) -> None:
    class NoBatches(ReferenceEngine):
        def encode_batch(self, texts: Sequence[str], *, continuation: bool = False) -> list[Ids]:
            raise OSError("as planned")

    route = Route(NoBatches(reference.tokenizer), reference, "")
    for _ in range(FAILURES):
        assert len(route.encode_batch(["one", "two"])) == 2
    assert (route.failed, route.demoted) == (FAILURES, True)


def test_what_the_reference_encodes_in_the_batch_in_which_an_engine_is_given_up_is_counted(
    tok: Any, reference: Any
) -> None:
    route = Route(RaisesAlways(tok.family, reference, Probe(DiskCache(None))), reference, "")
    assert len(route.encode_batch(["text"] * 500)) == 500
    assert (route.texts, route.failed, route.replaced) == (500, FAILURES, 500 - FAILURES)
    route.restore()
    assert (route.failed, route.replaced, route.demoted) == (FAILURES, 500 - FAILURES, False), "counters never fall"
    route.encode("text")
    assert not route.demoted


def test_what_the_reference_cannot_encode_either_is_no_failure_of_an_engine(reference: Any) -> None:
    class Unable(ReferenceEngine):
        def encode(self, text: str, *, continuation: bool = False) -> Ids:
            raise EngineFailure("it backtracks for too long")

    route = Route(Unable(reference.tokenizer), Unable(reference.tokenizer), "")
    for _ in range(2 * FAILURES):
        with pytest.raises(EngineFailure):
            route.encode("some text")
    assert (route.failed, route.demoted) == (0, False)


def test_auto_goes_on_with_another_engine_and_restoring_gives_the_first_another_chance(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tok = toktier.Registry(cache_directory=None).load("toktier-mini")
    route = tok.engine("memo")
    assert isinstance(route, Route)
    assert tok.engine() is route
    with monkeypatch.context() as patch:
        patch.setattr(MemoEngine, "encode", RaisesAlways.encode)
        for _ in range(FAILURES + 3):
            tok.engine("memo").encode("some text")
    assert (route.demoted, route.replaced, tok.engine().name) == (True, 3, "reference")
    tok.restore("memo")
    assert (route.demoted, tok.engine().name) == (False, "memo")


def test_what_comes_from_outside_is_not_contained(tok: Any, reference: Any) -> None:
    class Interrupting(ReferenceEngine):
        def encode(self, text: str, *, continuation: bool = False) -> Ids:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        Route(Interrupting(reference.tokenizer), reference, "").encode("text")


@pytest.mark.parametrize("name", ["gigatoken", "tiktoken", "memo", "reference"])
def test_what_is_no_text_is_no_failure_of_an_engine(name: str, tok: toktier.Tokenizer) -> None:
    engine = tok.engine(name)
    failed = getattr(engine, "failed", 0)
    for _ in range(2 * FAILURES):
        with pytest.raises(toktier.InvalidText, match="position 1"):
            engine.encode("a\ud800")
        with pytest.raises(toktier.InvalidText, match="position 1"):
            engine.encode_batch(["a", "a\ud800"])
    with pytest.raises(TypeError, match="text must be str, not bytes"):
        engine.encode(b"a")  # type: ignore[arg-type]
    assert getattr(engine, "failed", 0) == failed
    assert engine.encode("a").tolist() == material.reference("toktier-mini")("a")


# The evidence


def test_evidence_is_kept_for_as_long_as_nothing_changes(
    tok: Any, reference: Any, cache: DiskCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = evidence_of(WrongForOneCharacter, tok, reference, cache)
    again = DiskCache(cache.directory)
    monkeypatch.setattr(Comparison, "run", lambda self: pytest.fail("compared again"))
    assert evidence_of(WrongForOneCharacter, tok, reference, again) == first
    monkeypatch.setattr(Planted, "version", staticmethod(lambda: "2"))
    with pytest.raises(pytest.fail.Exception, match="compared again"):
        evidence_of(WrongForOneCharacter, tok, reference, again)


def test_a_comparison_that_is_interrupted_leaves_nothing(tok: Any, reference: Any, cache: DiskCache) -> None:
    steps = iter(range(1000))
    with pytest.raises(Interrupted):
        compared(RaisesAlways, tok.family, reference, cache, lambda: next(steps, None) is not None and next(steps) < 10)
    with pytest.raises(Interrupted):
        compared(RaisesAlways, tok.family, reference, cache, lambda: False)


def test_the_battery_has_every_code_point_and_every_token(tok: toktier.Tokenizer) -> None:
    blocks = [*battery.code_point_blocks(Probe(material.registry()._cache))]
    characters = "".join(characters for template, characters in blocks if template == battery.TEMPLATE)
    assert len(set(characters)) == len(characters) == 0x110000 - 0x800
    texts = "".join(battery.added_tokens(tok.family.definition))
    assert all(f"{t.content}1" in texts for t in tok.family.definition.literals)
    assert max(map(len, battery.vocabulary(tok.engine("reference"), tok.family.definition))) > gigatoken.LONG  # type: ignore[arg-type]


def test_a_difference_is_shortened_to_what_makes_it(tok: Any, reference: Any, cache: DiskCache) -> None:
    engine = WrongForOneCharacter(tok.family, reference, Probe(cache))
    comparison = Comparison(engine, tok.family, reference, Probe(cache))
    assert comparison.smallest(f"some words {RARE} and some more") == RARE


# The router


class Waiting(Planted):
    """Being made takes it until it is told."""

    go: ClassVar[threading.Event] = threading.Event()

    def __init__(self, family: Family, reference: ReferenceEngine, probe: Probe) -> None:
        self.go.wait(60)
        super().__init__(family, reference, probe)


class Broken(Planted):
    """It cannot be made, for a reason that nobody has thought of."""

    def __init__(self, family: Family, reference: ReferenceEngine, probe: Probe) -> None:
        raise OSError("half installed")


class Nameless(Planted):
    """Its library does not know its own version."""

    @staticmethod
    def version() -> str:
        raise ModuleNotFoundError("no metadata")


def suspects(*engines: type[Planted]) -> dict[str, Callable[[], type[Planted]]]:
    """What the router has in the place of its engines that need evidence."""

    def giving(engine: type[Planted]) -> Callable[[], type[Planted]]:
        return lambda: engine

    return dict(zip(router.SUSPECTS, map(giving, engines), strict=True))


@pytest.mark.parametrize("suspect", [Broken, Nameless])
def test_an_engine_that_cannot_be_made_is_no_reason_to_fail(
    suspect: type[Planted], tok: Any, reference: Any, cache: DiskCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(router, "SUSPECTS", suspects(Undone, suspect, Faultless))
    unlucky = Router(tok.family, reference, cache)
    assert unlucky.auto().name in ("memo", "Faultless")
    assert unlucky.reasons(compare=True)["gigatoken"].startswith("cannot be made: ")
    assert unlucky.auto().name == "Faultless"


@pytest.fixture
def fresh(tok: Any, reference: Any, cache: DiskCache, monkeypatch: pytest.MonkeyPatch) -> Iterator[Router]:
    """A router that knows nothing yet of one engine that needs evidence."""
    monkeypatch.setattr(router, "SUSPECTS", suspects(Undone, RaisesAlways, Faultless))
    yield Router(tok.family, reference, cache)
    for thread in threading.enumerate():
        if thread.name == "toktier comparison":
            thread.join()


def test_auto_is_memo_until_there_is_evidence(fresh: Router) -> None:
    assert fresh.auto().name == "memo"
    assert "not compared" in fresh.reasons(compare=False)["tiktoken"]
    assert isinstance(fresh.route("tiktoken"), Route)
    assert fresh.auto() is fresh.route("tiktoken")


def test_auto_is_the_fastest_that_is_admitted(fresh: Router) -> None:
    reasons = fresh.reasons(compare=True)
    assert [*reasons] == ["gpu", "gigatoken", "tiktoken", "memo", "reference"]
    given = [reason.split(":")[0] for reason in reasons.values()]
    assert given == ["not done", "refused", "admitted", "admitted", "admitted"]
    assert fresh.auto().name == "Faultless"


def test_an_engine_that_was_refused_is_not_to_be_had(fresh: Router) -> None:
    with pytest.raises(toktier.UnknownEngine, match=r"'gigatoken' does not serve this tokenizer: refused: other ids"):
        fresh.route("gigatoken")


def test_a_tokenizer_in_use_has_its_engines_compared(fresh: Router, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(router, "BUSY", 3)
    monkeypatch.setattr(Waiting, "go", threading.Event())
    monkeypatch.setitem(router.SUSPECTS, "gigatoken", lambda: Waiting)
    fresh.auto().encode_batch(["a", "b"])
    assert fresh.auto().name == "memo"
    assert "toktier comparison" not in {thread.name for thread in threading.enumerate()}
    fresh.auto().encode_batch(["a", "b"])
    fresh.auto()
    (thread,) = (thread for thread in threading.enumerate() if thread.name == "toktier comparison")
    assert fresh.auto().name == "memo"  # nobody waits
    Waiting.go.set()
    thread.join()
    assert fresh.auto().name == "Waiting"
    assert "not compared" in fresh.reasons(compare=False)["tiktoken"]  # one that serves is enough


def test_a_family_without_cuts_is_for_the_reference(cache: DiskCache) -> None:
    tok = material.load("toktier-mini")
    lookbehind = tokenizers.Tokenizer.from_buffer(material.definition("toktier-mini"))
    lookbehind.pre_tokenizer = tokenizers.pre_tokenizers.Split(tokenizers.Regex("(?<=a)b"), "isolated")
    unsupported = toktier.Registry(cache.directory).load(lookbehind)
    assert unsupported.engine().name == "reference"
    assert "lookbehind" in unsupported.report().engines["memo"]
    assert tok.engine().name != "reference"


def test_a_report_says_which_engine_serves_and_why(tok: toktier.Tokenizer) -> None:
    tok.engine("tiktoken"), tok.engine("gigatoken")
    report = tok.report(compare=True)
    assert report.auto == tok.session("a").engine.name == "gigatoken"
    assert "code points differ and go to the reference" in report.engines["gigatoken"]
    assert "auto       gigatoken" in str(report)
