"""The engine around the kernels: requests, buckets, what is left to the processor, and which texts go where."""

from __future__ import annotations

import logging
import os
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

import toktier
from tests import material, zoo
from tests.gpu import comparing, host
from tests.gpu.comparing import engine_of
from toktier import router
from toktier.engines.admission import Evidence, Suspect, compared
from toktier.engines.base import Ids, Inapplicable, Unavailable
from toktier.engines.reference import ReferenceEngine
from toktier.families.probing import DiskCache
from toktier.gpu import encoder, engine, hashing, pool, vocabulary
from toktier.gpu.encoder import Bucket, TooMuch
from toktier.gpu.engine import GpuEngine, OnDevice
from toktier.gpu.offload import LEAST, PATIENCE, Offload, measured_threshold
from toktier.route import Demotions, Route

pytestmark = pytest.mark.skipif(not host.available(), reason="there is no C++ compiler")

TEXTS = ["Hello world", "", "<|im_start|>user\nHi<|im_end|>\n", "naïve 中文 1234", " ", "don't" * 50]


@pytest.fixture(scope="module")
def tok() -> toktier.Tokenizer:
    return material.load("toktier-mini")


@pytest.fixture(scope="module")
def gpu(tok: toktier.Tokenizer) -> GpuEngine:
    return engine_of(tok, comparing.device())


def expected(tok: toktier.Tokenizer, texts: list[str]) -> list[list[int]]:
    return [ids.tolist() for ids in tok.engine("reference").encode_batch(texts)]


def lists(encoded: list[Ids]) -> list[list[int]]:
    assert all(ids.dtype == np.uint32 and ids.ndim == 1 for ids in encoded)
    return [ids.tolist() for ids in encoded]


def on_device(there: OnDevice) -> list[list[int]]:
    assert len(there.ids.values) == there.ends[-1]
    return lists(np.split(there.ids.values, there.ends[:-1]))


def test_a_batch_is_given_in_its_order(tok: toktier.Tokenizer, gpu: GpuEngine) -> None:
    assert lists(gpu.encode_batch(TEXTS)) == expected(tok, TEXTS)
    assert gpu.encode_batch([]) == []
    assert gpu.encode_batch(["", ""])[1].tolist() == []


def test_ids_are_the_callers_own(tok: toktier.Tokenizer, gpu: GpuEngine) -> None:
    first = gpu.encode("Hello world")
    gpu.encode("something else")
    assert first.tolist() == tok.encode("Hello world").tolist()


def test_a_batch_of_many_requests(tok: toktier.Tokenizer, gpu: GpuEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "WAVE", 4 * encoder.TEXT_BYTES)
    texts = [f"{i} {text}" for i in range(7) for text in TEXTS]
    assert lists(gpu.encode_batch(texts)) == expected(tok, texts)


def test_a_text_that_is_too_long_is_the_processors(
    tok: toktier.Tokenizer, gpu: GpuEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine, "WAVE", 1 << 10)
    monkeypatch.setattr(engine, "LARGEST", 1 << 11)
    texts = ["a b" * 10, "longer " * 1000, "c d" * 10]
    assert lists(gpu.encode_batch(texts)) == expected(tok, texts)
    assert on_device(gpu.encode_on_device(texts)) == expected(tok, texts)


def test_ids_on_the_device(tok: toktier.Tokenizer, gpu: GpuEngine) -> None:
    assert on_device(gpu.encode_on_device(TEXTS)) == expected(tok, TEXTS)
    assert on_device(gpu.encode_on_device([""])) == [[]]
    empty = gpu.encode_on_device([])
    assert (empty.ids.values.tolist(), empty.ends.tolist()) == ([], [])


@pytest.fixture(scope="module")
def composing() -> toktier.Tokenizer:
    """One with a normalizer that composes, so that the device leaves segments to the processor."""
    return material.registry().load(zoo.build("NFC"))


def bucket_of(tok: toktier.Tokenizer, capacity: int = encoder.SMALLEST) -> Bucket:
    return engine_of(tok, comparing.device())._pool._make(capacity)


def test_the_processor_encodes_segments_that_may_change(composing: toktier.Tokenizer) -> None:
    bucket = bucket_of(composing)
    texts = ["no mark here", "cafe\u0301 au lait", "", "\u0301", "one\u0301 two three o\u0301ne"]
    bucket.begin([text.encode() for text in texts])
    result = bucket.finish()
    assert lists(np.split(result.staged, result.ends[:-1])) == expected(composing, texts)
    assert result.host_segments == 4
    assert 0 < result.host_bytes < sum(len(text.encode()) for text in texts) / 2


def test_more_segments_than_come_with_the_counts(composing: toktier.Tokenizer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(encoder, "LISTED", 3)
    bucket = bucket_of(composing)
    text = "a\u0301 word, " * 40
    bucket.begin([text.encode()])
    result = bucket.finish()
    assert result.host_segments > 3
    assert [result.staged.tolist()] == expected(composing, [text])


def test_too_many_segments_for_the_device_are_no_difference(composing: toktier.Tokenizer) -> None:
    text = "a\u0301 " * (encoder.SMALLEST // 6)
    bucket = bucket_of(composing)
    bucket.begin([text.encode()])
    with pytest.raises(TooMuch, match="no room for what came of a text"):
        bucket.finish()
    gpu = engine_of(composing, comparing.device())
    assert lists(gpu.encode_batch([text])) == expected(composing, [text])
    assert on_device(gpu.encode_on_device([text])) == expected(composing, [text])


def test_no_piece_runs_on_through_segments_for_which_there_was_no_room(composing: toktier.Tokenizer) -> None:
    text = " a\u0301" * 8400 + " zqxjkvw" + " a\u0301" * 4000
    assert lists(engine_of(composing, comparing.device()).encode_batch([text])) == expected(composing, [text])


def test_too_little_room_for_a_rewritten_text(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(encoder, "EXPANSION", 1)
    tok = material.registry().load(zoo.build("Llama 2"))
    text = "a b " * (encoder.SMALLEST // 4)
    assert lists(engine_of(tok, comparing.device()).encode_batch([text])) == expected(tok, [text])


def test_threads_take_turns_in_buckets(tok: toktier.Tokenizer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool, "MOST", 2)
    monkeypatch.setattr(engine, "WAVE", 4 * encoder.TEXT_BYTES)
    gpu = engine_of(tok, comparing.device())
    texts = [f"{i} {text}" for i in range(2) for text in TEXTS]
    with ThreadPoolExecutor(8) as threads:
        found = [*threads.map(lambda _: lists(gpu.encode_batch(texts)), range(24))]
    assert found == [expected(tok, texts)] * 24
    assert sum(map(len, gpu._pool._there.values())) <= 2


def test_words_with_the_same_hash_are_told_apart(tok: toktier.Tokenizer, monkeypatch: pytest.MonkeyPatch) -> None:
    def planted(words: dict[bytes, int], continuing: dict[bytes, int]) -> Any:
        table, pool = hashing.word_table(words | {b"Hello": 7}, continuing)
        return table, np.frombuffer(pool.tobytes().removesuffix(b"Hello") + b"Jello", np.uint8)

    monkeypatch.setattr(vocabulary, "word_table", planted)
    assert lists([engine_of(tok, comparing.device()).encode("Hello")]) == expected(tok, ["Hello"])


class Failing:
    """Stands before a device, and has its queues fail."""

    def __init__(self, device: Any) -> None:
        self._device = device
        self.fails = threading.Event()
        self.queues: list[FailingQueue] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._device, name)

    def queue(self) -> Any:
        self.queues.append(FailingQueue(self._device.queue(), self.fails))
        return self.queues[-1]


class FailingQueue:
    def __init__(self, queue: Any, fails: threading.Event) -> None:
        self._queue, self._fails = queue, fails
        self.waited = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._queue, name)

    def wait(self) -> None:
        self.waited += 1
        if self._fails.is_set():
            raise RuntimeError("an illegal memory access was encountered")
        self._queue.wait()


@pytest.fixture
def failing() -> Any:
    return Failing(comparing.device())


def test_nothing_is_lost_when_the_device_fails(
    tok: toktier.Tokenizer, failing: Any, caplog: pytest.LogCaptureFixture
) -> None:
    gpu = engine_of(tok, failing)
    offload = Offload(gpu, gpu.host, threshold=0)
    assert lists(offload.encode_batch(TEXTS)) == expected(tok, TEXTS)
    assert (offload.offloaded, offload.trouble) == (1, None)
    failing.fails.set()
    with caplog.at_level(logging.WARNING):
        for _ in range(PATIENCE):
            assert lists(offload.encode_batch(TEXTS)) == expected(tok, TEXTS)
    with pytest.raises(toktier.EngineFailure, match="illegal memory access"):
        offload.encode_on_device(TEXTS)
    assert offload.trouble is not None
    assert "illegal memory access" in offload.trouble
    assert "the processor encodes in its place" in caplog.text
    failing.fails.clear()
    assert lists(offload.encode_batch(TEXTS)) == expected(tok, TEXTS)
    assert offload.offloaded == 1  # it is given no more


def test_a_failure_that_passes_is_forgiven(tok: toktier.Tokenizer, failing: Any) -> None:
    gpu = engine_of(tok, failing)
    offload = Offload(gpu, gpu.host, threshold=0)
    for _ in range(3 * PATIENCE):
        failing.fails.set()
        assert lists([offload.encode("Hello world")]) == expected(tok, ["Hello world"])
        failing.fails.clear()
        assert lists([offload.encode("Hello world")]) == expected(tok, ["Hello world"])
    assert offload.trouble is None


def test_what_is_no_text_is_no_failure_of_the_device(tok: toktier.Tokenizer, gpu: GpuEngine) -> None:
    offload = Offload(gpu, gpu.host, threshold=0)
    for _ in range(2 * PATIENCE):
        with pytest.raises(toktier.InvalidText, match="position 1"):
            offload.encode_batch(["fine", "a\ud800"])
    assert offload.trouble is None
    assert lists([offload.encode("Hello")]) == expected(tok, ["Hello"])


def test_a_bucket_that_meets_an_error_is_waited_for_and_gone(
    tok: toktier.Tokenizer, failing: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    gpu = engine_of(tok, failing)
    monkeypatch.setattr(engine, "WAVE", encoder.TEXT_BYTES)
    for _ in range(2 * pool.MOST):
        with pytest.raises(toktier.InvalidText):
            gpu.encode_batch(["begun, and not finished", "neither", "a\ud800"])
        assert failing.queues[-1].waited
        assert sum(map(len, gpu._pool._there.values())) == 0
    monkeypatch.setattr(gpu, "uploaded", None)
    monkeypatch.setattr(encoder, "_refuse_overflow", too_much)
    for _ in range(2 * pool.MOST):
        with pytest.raises(TypeError):
            gpu.encode_on_device(TEXTS)


def too_much(counter: Any) -> None:
    raise TooMuch


def test_a_bucket_that_was_given_back_is_not_dropped_for_an_error_of_the_host(
    tok: toktier.Tokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    gpu = engine_of(tok, comparing.device())
    monkeypatch.setattr(encoder, "_refuse_overflow", too_much)
    monkeypatch.setattr(gpu, "host", None)
    for _ in range(2 * pool.MOST):
        with pytest.raises(AttributeError):
            gpu.encode_batch(TEXTS)
        assert sum(map(len, gpu._pool._there.values())) == len(gpu._pool._free) == 1


def test_without_memory_the_processor_encodes(
    tok: toktier.Tokenizer, failing: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    gpu = engine_of(tok, failing)
    assert lists(gpu.encode_batch(TEXTS)) == expected(tok, TEXTS)
    long = ["word " * 20_000]
    monkeypatch.setattr(failing, "queue", no_memory)
    assert lists(gpu.encode_batch(long)) == expected(tok, long)
    assert gpu._pool._free == []
    assert Offload(gpu, gpu.host, threshold=0).trouble is None


def no_memory() -> Any:
    raise MemoryError


def test_buckets_that_nobody_uses_are_given_up(tok: toktier.Tokenizer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool, "KEPT", 2 * encoder.SMALLEST)
    gpu = engine_of(tok, comparing.device())
    for size in (1, 2, 1):
        text = "word " * (size * encoder.SMALLEST // 5)
        assert lists(gpu.encode_batch([text])) == expected(tok, [text])
    assert [bucket.capacity for bucket in gpu._pool._free] == [encoder.SMALLEST]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_child_after_a_fork_uses_the_processor(tok: toktier.Tokenizer, gpu: GpuEngine) -> None:
    offload = Offload(gpu, gpu.host, threshold=0)
    ids = lists([offload.encode("Hello world")])
    with offload._lock:  # as if another thread had it
        child = os.fork()
        if child == 0:
            same = lists([offload.encode("Hello world")]) == ids
            os._exit(0 if same and "after a fork" in str(offload.trouble) else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert offload.trouble is None


def test_short_texts_stay_here(tok: toktier.Tokenizer, gpu: GpuEngine) -> None:
    offload = Offload(gpu, gpu.host, threshold=20)
    assert lists([offload.encode("a" * 19), offload.encode("a" * 20)]) == expected(tok, ["a" * 19, "a" * 20])
    assert offload.offloaded == 1
    assert lists(offload.encode_batch(["a" * 10, "b" * 10])) == expected(tok, ["a" * 10, "b" * 10])
    assert offload.offloaded == 2


def test_with_too_much_before_it_the_device_is_given_no_more(tok: toktier.Tokenizer, gpu: GpuEngine) -> None:
    class Slow:
        def encode_batch(self, texts: list[str]) -> list[Ids]:
            begun.set()
            assert go_on.wait(10)
            return gpu.encode_batch(texts)

    begun, go_on = threading.Event(), threading.Event()
    slow: Any = Slow()
    offload = Offload(slow, gpu.host, threshold=0, backlog=100)
    with ThreadPoolExecutor(1) as threads:
        first = threads.submit(offload.encode, "long " * 100)  # by itself, it may be longer
        assert begun.wait(10)
        assert lists([offload.encode("Hello world")]) == expected(tok, ["Hello world"])
        assert (offload.declined, offload.offloaded) == (1, 0)
        go_on.set()
        assert lists([first.result()]) == expected(tok, ["long " * 100])
    offload.encode("Hello world")
    assert offload.offloaded == 2


def test_the_threshold_is_measured(gpu: GpuEngine) -> None:
    assert measured_threshold(gpu, gpu.host) >= LEAST


@pytest.fixture
def with_a_device(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine with a device that has passed its comparison."""

    def passed(suspect: type[Suspect], *rest: Any) -> Evidence:
        return Evidence("gpu", (), None, 1) if suspect is GpuEngine else compared(suspect, *rest)

    monkeypatch.setattr(engine, "default_device", comparing.device)
    monkeypatch.setattr(router, "compared", passed)


def test_a_machine_with_a_device_uses_it(with_a_device: None) -> None:
    tok = material.load("toktier-mini").renewed()
    assert tok.engine().name != "gpu"  # nobody has asked for it
    route = tok.engine("gpu")
    assert tok.engine() is route
    assert isinstance(route, Route)
    offload = route.engine
    assert isinstance(offload, Offload)
    assert offload.threshold == 0  # on trial
    offload.threshold, offload.offloaded = 1000, 0
    text = "A transcript of some length.\n" * 10_000
    session = tok.session(text)
    assert session.ids.tolist() == tok.engine("reference").encode(text).tolist()
    assert offload.offloaded == 1  # all chunks of it in one request
    session.append("More.")
    assert offload.offloaded == 1
    session.append("More. " * 1000)
    assert offload.offloaded == 2
    assert session.ids.tolist() == tok.engine("reference").encode(session.text).tolist()
    assert on_device(tok.encode_on_device(TEXTS)) == expected(tok, TEXTS)
    offload.trouble = "the GPU is given no more texts"
    assert tok.report().engines["gpu"].endswith("; the GPU is given no more texts")


def test_an_engine_beside_it_that_is_demoted_is_trusted_no_more(with_a_device: None) -> None:
    tok = material.load("toktier-mini").renewed()
    route = tok.engine("gpu")
    assert isinstance(route, Route)
    assert route.beside in ("memo", "gigatoken", "tiktoken")  # whichever is known by now to be the fastest
    beside = tok.engine(route.beside)
    assert isinstance(beside, Route)
    demotions = Demotions()
    demotions.watch(route)
    demotions.watch(beside)
    demotions.demote(tok.family.digest, beside.name, "an example")
    assert (route.demoted, route.epoch) == (False, 1)
    assert beside.demoted


def test_a_device_that_fails_during_the_comparison_is_not_refused_for_good(
    tok: toktier.Tokenizer, failing: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    failing.fails.set()
    monkeypatch.setattr(engine, "default_device", lambda: failing)
    cache = DiskCache(material.cache())  # which has what the reference gives for every code point, or gets it here
    reference = tok.engine("reference")
    assert isinstance(reference, ReferenceEngine)
    with pytest.raises(Unavailable, match="illegal memory access"):
        compared(GpuEngine, tok.family, reference, cache)
    assert not any(key for key in cache._answers if "admission" in key)


def test_what_is_not_trusted_to_the_device_is_copied_there(with_a_device: None) -> None:
    tok = material.load("toktier-mini").renewed()
    route = tok.engine("gpu")
    assert isinstance(route, Route)
    route.demote("an example")
    route.engine.gpu.encode_on_device = None  # type: ignore[attr-defined]
    assert on_device(tok.encode_on_device(TEXTS)) == expected(tok, TEXTS)
    assert tok.meter.calls()["full", "gpu"].calls == 1
    route.engine.trouble = "the device is lost"  # type: ignore[attr-defined]
    with pytest.raises(toktier.EngineFailure, match="lost"):
        tok.encode_on_device(TEXTS)
    with pytest.raises(TypeError, match="not one str"):
        tok.encode_on_device("text")
    with pytest.raises(toktier.InvalidText, match=r"texts\[1\]"):
        tok.encode_on_device(["fine", "a\ud800"])


def test_a_machine_without_one_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    def none() -> Any:
        raise Inapplicable("there is no NVIDIA driver")

    monkeypatch.setattr(engine, "default_device", none)
    tok = material.load("toktier-mini").renewed()
    with pytest.raises(
        toktier.UnknownEngine, match="engine 'gpu' does not serve this tokenizer: there is no NVIDIA driver"
    ):
        tok.engine("gpu")
    assert tok.engine().name != "gpu"
    assert tok.report().engines["gpu"] == "there is no NVIDIA driver"


def test_structures_are_filled_by_name() -> None:
    with pytest.raises(KeyError, match="Work has no nothing"):
        encoder.packed("Work", comparing.device(), {"nothing": 1})
