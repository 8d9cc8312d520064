"""Metrics: every call is counted once, by whichever thread it was made; Prometheus sees the same numbers."""

from __future__ import annotations

import pathlib
import threading

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

import toktier
from toktier import SessionStore, Tokenizer
from toktier.meter import BUCKETS, Meter
from toktier.metrics import Histogram, Metric, collect, register
from toktier.planner import LONG
from toktier.verify import ShadowVerifier


@pytest.fixture
def tok(tmp_path: pathlib.Path) -> Tokenizer:
    return toktier.Registry(tmp_path / "cache").load("toktier-mini")


def value(metrics: list[Metric], name: str, **labels: str) -> int | Histogram:
    (metric,) = [metric for metric in metrics if metric.name == name]
    (found,) = [s.value for s in metric.samples if labels.items() <= s.labels.items()]
    return found


def test_calls_are_counted_by_path_and_engine_with_their_characters(tok: Tokenizer) -> None:
    session = tok.session("Once upon a time ", engine="memo")
    for _ in range(3):
        session.append("there was ")
    session.edit(0, 4, "Twice")
    session.update(session.text + "a fox")
    tok.encode("full")
    tok.encode_batch(["two", "texts"])
    tok.encode("long " * LONG)
    counted = tok.meter.calls()
    auto = tok.engine().name
    assert counted["append", "memo"].calls == 3
    assert counted["append", "memo"].served == 27 + 37 + 47
    assert 30 <= counted["append", "memo"].encoded <= 30 + 3 * 20
    assert (counted["edit", "memo"].calls, counted["update", "memo"].calls) == (1, 1)
    assert counted["planned", auto].encoded == 5 * LONG
    assert counted["full", auto].calls == (3 if auto == "memo" else 2)
    for calls in counted.values():
        assert sum(calls.histogram) == calls.calls
        assert calls.seconds > 0
        assert calls.reused == max(calls.served - calls.encoded, 0)


def test_no_count_is_lost_between_threads_nor_with_them() -> None:
    meter = Meter()

    def work() -> None:
        for number in range(20_000):
            meter.count("append", "memo", 10, 2, 1 << (number % 50))

    for _ in range(3):  # the threads of one round are gone in the next
        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    calls = meter.calls()["append", "memo"]
    assert (calls.calls, calls.served, calls.encoded) == (240_000, 2_400_000, 480_000)
    assert sum(calls.histogram) == 240_000
    assert len(calls.histogram) == BUCKETS
    assert len(meter._threads) <= 4


def test_a_store_and_a_verifier_say_what_they_did(tok: Tokenizer) -> None:
    store = SessionStore(tok, max_bytes=60_000, engine="memo")
    text = "A transcript of some length. " * 60
    with ShadowVerifier(tok, sample=1.0, quarantine=None) as verifier:
        for end in (1200, 1300):
            store.encode(text[:end], session="a")
            store.encode(text[:end])
            store.encode("short")
        for number in range(9):
            store.encode(str(number) + text, session=str(number))
        assert verifier.drain(30)
        metrics = collect(tok, store, verifier)
    assert value(metrics, "toktier_lookups_total", kind="session", result="continued") == 1
    assert value(metrics, "toktier_lookups_total", kind="session", result="started") == 10
    assert value(metrics, "toktier_lookups_total", kind="content", result="shared") == 2
    assert value(metrics, "toktier_lookups_total", kind="text", result="repeated") == 1
    assert value(metrics, "toktier_sessions_gone_total", reason="evicted") == store.usage().evicted > 0
    assert value(metrics, "toktier_store_bytes") == store.usage().nbytes
    assert value(metrics, "toktier_verified_total", result="checked") == verifier.checks().checked > 10
    assert value(metrics, "toktier_verified_total", result="mismatched") == 0


def test_guarded_texts_and_demotion_are_seen(tok: Tokenizer) -> None:
    tok.engine("memo")
    (route,) = tok.routes()
    route._is_guarded = lambda text: "\u00e9" in text
    tok.session("caf\u00e9", engine="memo")
    assert value(collect(tok), "toktier_fallbacks_total", engine="memo", reason="guard") == 1
    assert value(collect(tok), "toktier_engine_demoted", engine="memo") == 0
    tok.demote("memo", "a test")
    assert value(collect(tok), "toktier_engine_demoted", engine="memo") == 1
    tok.restore("memo")


def test_prometheus_sees_the_same_numbers(tok: Tokenizer) -> None:
    session = tok.session("Once upon a time ", engine="memo")
    session.append("there was ")
    registry = CollectorRegistry()
    with ShadowVerifier(tok, quarantine=None) as verifier:
        register(tok, SessionStore(tok), verifier, registry=registry)
        exported = generate_latest(registry).decode()
    families = {family.name: family for family in text_string_to_metric_families(exported)}
    (calls,) = [s.value for s in families["toktier_calls"].samples if s.labels.get("path") == "append"]
    assert calls == 1
    buckets = [
        s.value
        for s in families["toktier_latency_seconds"].samples
        if s.name.endswith("_bucket") and s.labels["path"] == "append"
    ]
    assert buckets == sorted(buckets)
    assert buckets[-1] == 1
    assert families["toktier_sessions"].samples[0].value == 0
    assert families["toktier_verified"].type == "counter"


def test_what_has_no_metrics_is_named() -> None:
    with pytest.raises(TypeError, match="has no metrics"):
        collect("tok")  # type: ignore[arg-type]
