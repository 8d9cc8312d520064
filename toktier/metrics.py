"""What tokenizers, stores and verifiers did so far, in numbers: as plain objects, and for Prometheus.

>>> import toktier
>>> from toktier.metrics import collect
>>> tok = toktier.Registry().load("toktier-mini")
>>> patch = tok.session("Once upon a time", engine="memo").append(" there was")
>>> metrics = {metric.name: metric for metric in collect(tok)}
>>> [(sample.labels["path"], sample.value) for sample in metrics["toktier_calls_total"].samples]
[('full', 1), ('append', 1)]
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import TYPE_CHECKING, Literal, TypeAlias

from attrs import frozen

from toktier.errors import MissingPackage
from toktier.meter import Calls
from toktier.store import SessionStore
from toktier.tokenizer import Tokenizer
from toktier.verify import ShadowVerifier

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry
    from prometheus_client.metrics_core import Metric as Exported

Source: TypeAlias = Tokenizer | SessionStore | ShadowVerifier
"""What has metrics."""

Kind: TypeAlias = Literal["counter", "gauge", "histogram"]

SHORTEST = 10
"""The first bucket of an exported histogram ends at ``2**SHORTEST`` nanoseconds, a microsecond."""


@frozen
class Histogram:
    """How often something took how long.

    Attributes:
        bounds: Upper bounds in seconds, ascending; the last one is infinite.
        counts: How many were below each bound, those below the bounds before it included.
        total: Seconds of all together.

    Example:
        >>> import toktier
        >>> tok = toktier.Registry().load("toktier-mini")
        >>> ids = tok.engine("memo").encode("not counted"), tok.encode("counted")
        >>> (sample,) = next(metric for metric in collect(tok) if metric.kind == "histogram").samples
        >>> sample.value.bounds[0], sample.value.bounds[-1], sample.value.counts[-1]
        (1.024e-06, inf, 1)
    """

    bounds: tuple[float, ...]
    counts: tuple[int, ...]
    total: float


@frozen
class Sample:
    """One value of a metric.

    Attributes:
        labels: What it is of, by the names of the labels.
        value: The number; of latencies, how they are distributed.

    Example:
        >>> import toktier
        >>> collect(toktier.SessionStore(toktier.load("toktier-mini")))[-1].samples[0]
        Sample(labels={'store': '0'}, value=0)
    """

    labels: dict[str, str]
    value: int | Histogram


@frozen
class Metric:
    """A metric, named as Prometheus has it.

    Attributes:
        name: With its unit; what only grows ends with ``_total``.
        kind: What it is to Prometheus: a counter, a gauge or a histogram.
        help: What it is, in a sentence.
        samples: Its values.

    Example:
        >>> import toktier
        >>> collect(toktier.SessionStore(toktier.load("toktier-mini")))[-1]
        Metric(name='toktier_store_bytes', kind='gauge', help='Bytes that the store holds.', samples=(Sample(...),))
    """

    name: str
    kind: Kind
    help: str
    samples: tuple[Sample, ...]


def collect(*sources: Source) -> list[Metric]:
    """All metrics of some sources, as they are now.

    Args:
        sources: Tokenizers, stores and verifiers. What sessions do is counted by their tokenizer.

    Raises:
        TypeError: A source is something else.

    Example:
        >>> import toktier
        >>> store = toktier.SessionStore(toktier.load("toktier-mini"))
        >>> [metric.name for metric in collect(store)]
        ['toktier_lookups_total', 'toktier_sessions_gone_total', 'toktier_sessions', ...]
    """
    found: dict[str, Metric] = {}
    numbers = Counter[type]()
    for source in dict.fromkeys(sources):
        number = numbers[type(source)]
        numbers[type(source)] += 1
        for metric in _of(source, number):
            known = found.get(metric.name)
            samples = metric.samples if known is None else known.samples + metric.samples
            found[metric.name] = Metric(metric.name, metric.kind, metric.help, samples)
    return list(found.values())


def _of(source: Source, number: int) -> Iterator[Metric]:
    if isinstance(source, Tokenizer):
        return _of_tokenizer(source, number)
    if isinstance(source, SessionStore):
        return _of_store(source, {"store": str(number)})
    if isinstance(source, ShadowVerifier):
        return _of_verifier(source, {"verifier": str(number)})
    raise TypeError(f"{source!r} has no metrics: give a Tokenizer, a SessionStore or a ShadowVerifier")


def _of_tokenizer(tok: Tokenizer, number: int) -> Iterator[Metric]:
    family = {"tokenizer": tok.family.digest[:12], "number": str(number)}
    calls = [({**family, "path": path, "engine": engine}, c) for (path, engine), c in tok.meter.calls().items()]

    def each(name: str, what: str, value: str) -> Metric:
        return Metric(name, "counter", what, tuple(Sample(labels, getattr(c, value)) for labels, c in calls))

    yield each("toktier_calls_total", "Calls, by what was called and the engine.", "calls")
    yield each("toktier_characters_served_total", "Characters of the texts whose ids were asked for.", "served")
    yield each("toktier_characters_encoded_total", "Characters that engines were given for that.", "encoded")
    yield each("toktier_characters_reused_total", "Characters whose ids were known already.", "reused")
    histograms = tuple(Sample(labels, _histogram(c)) for labels, c in calls)
    yield Metric("toktier_latency_seconds", "histogram", "How long calls took.", histograms)
    routes = [({**family, "engine": route.name}, route) for route in tok.routes()]
    fallbacks = [
        Sample({**labels, "reason": reason}, count)
        for labels, route in routes
        for reason, count in (("guard", route.guarded), ("raised", route.failed), ("demoted", route.replaced))
    ]
    what = "Texts that the reference encoded in an engine's place."
    yield Metric("toktier_fallbacks_total", "counter", what, tuple(fallbacks))
    demoted = tuple(Sample(labels, int(route.demoted)) for labels, route in routes)
    what = "Whether the reference answers in an engine's place, 0 or 1."
    yield Metric("toktier_engine_demoted", "gauge", what, demoted)


def _of_store(store: SessionStore, which: dict[str, str]) -> Iterator[Metric]:
    usage, lookups = store.usage(), store.lookups()
    yield Metric(
        "toktier_lookups_total",
        "counter",
        "Calls for the store, by what was looked for and what was found.",
        tuple(Sample({**which, "kind": kind, "result": result}, count) for (kind, result), count in lookups.items()),
    )
    gone = (("evicted", usage.evicted), ("expired", usage.expired))
    yield Metric(
        "toktier_sessions_gone_total",
        "counter",
        "Sessions that went, to make room or because they were not used.",
        tuple(Sample({**which, "reason": reason}, count) for reason, count in gone),
    )
    for name, what, value in (
        ("toktier_sessions", "Sessions in memory.", usage.sessions),
        ("toktier_sessions_unsaved", "Named sessions that the disk does not have as they are.", usage.unsaved),
        ("toktier_store_bytes", "Bytes that the store holds.", usage.nbytes),
    ):
        yield Metric(name, "gauge", what, (Sample(which, value),))


def _of_verifier(verifier: ShadowVerifier, which: dict[str, str]) -> Iterator[Metric]:
    checks = verifier.checks()
    results = (("checked", checks.checked), ("mismatched", checks.mismatched), ("dropped", checks.dropped))
    samples = tuple(Sample({**which, "result": result}, count) for result, count in results)
    yield Metric("toktier_verified_total", "counter", "Answers compared with the reference, or dropped.", samples)


def _histogram(calls: Calls) -> Histogram:
    counts = list(accumulate(calls.histogram))
    bounds = [2.0**k / 1e9 for k in range(SHORTEST, len(counts) - 1)]
    return Histogram((*bounds, float("inf")), tuple(counts[SHORTEST:]), calls.seconds)


class Collector:
    """Some sources, for ``prometheus_client``: collected anew whenever somebody asks.

    Args:
        sources: Tokenizers, stores and verifiers.

    Raises:
        TypeError: A source is something else.

    Example:
        >>> import toktier
        >>> from prometheus_client import CollectorRegistry, generate_latest
        >>> registry = CollectorRegistry()
        >>> store = toktier.SessionStore(toktier.load("toktier-mini"))
        >>> registry.register(Collector(store))
        >>> b'toktier_sessions{store="0"} 0.0' in generate_latest(registry)
        True
    """

    def __init__(self, *sources: Source) -> None:
        collect(*sources)  # says what is wrong with them
        self._sources = sources

    def collect(self) -> Iterator[Exported]:
        """The metrics as ``prometheus_client`` has them, which calls this.

        Example:
            >>> import toktier
            >>> store = toktier.SessionStore(toktier.load("toktier-mini"))
            >>> [metric.type for metric in Collector(store).collect()]
            ['counter', 'counter', 'gauge', 'gauge', 'gauge']
        """
        return map(_exported, collect(*self._sources))


def register(*sources: Source, registry: CollectorRegistry | None = None) -> None:
    """Has ``prometheus_client`` export some sources, in its usual registry unless another one is given.

    Once for all of them: stores, verifiers and tokenizers are told apart by their number, in the order given here.

    Args:
        sources: Tokenizers, stores and verifiers.
        registry: The registry of ``prometheus_client``. Not given: its usual one, ``REGISTRY``.

    Raises:
        MissingPackage: The package ``prometheus_client`` is not installed.
        TypeError: A source is something else.
        ValueError: The registry has such metrics already, and looks for that, as its usual one does.

    Example:
        >>> import toktier
        >>> from prometheus_client import CollectorRegistry
        >>> registry = CollectorRegistry()
        >>> register(toktier.SessionStore(toktier.load("toktier-mini")), registry=registry)
        >>> registry.get_sample_value("toktier_sessions", {"store": "0"})
        0
    """
    try:
        from prometheus_client import REGISTRY
    except ModuleNotFoundError:
        raise MissingPackage("metrics are exported by the package prometheus_client: pip install it") from None

    (registry or REGISTRY).register(Collector(*sources))


def _exported(metric: Metric) -> Exported:
    from prometheus_client import core

    labels = list(metric.samples[0].labels) if metric.samples else []
    if metric.kind == "histogram":
        family = core.HistogramMetricFamily(metric.name, metric.help, labels=labels)
        for sample in metric.samples:
            assert isinstance(sample.value, Histogram)
            family.add_metric(list(sample.labels.values()), _buckets(sample.value), sample.value.total)
        return family
    kind = core.CounterMetricFamily if metric.kind == "counter" else core.GaugeMetricFamily
    numbers = kind(metric.name, metric.help, labels=labels)
    for sample in metric.samples:
        assert isinstance(sample.value, int)
        numbers.add_metric(list(sample.labels.values()), sample.value)
    return numbers


def _buckets(histogram: Histogram) -> Sequence[tuple[str, float]]:
    return [
        ("+Inf" if bound == float("inf") else repr(bound), count)
        for bound, count in zip(histogram.bounds, histogram.counts, strict=True)
    ]
