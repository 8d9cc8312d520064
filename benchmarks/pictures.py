"""What the plots of ``docs/benchmarks.md`` show, from the files of figures."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

from benchmarks.drawing import Axis, Line, Lines, Plot, Span, Spans
from benchmarks.front_end import PLAIN
from benchmarks.results import load
from toktier.router import PROCESSOR

COLOR = MappingProxyType({"reference": "tokenizers"})
"""Engines that have another's color; all others have their own."""

RATES = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000)
LATENCIES = (0.0001, 0.001, 0.01, 0.1, 1.0)


def appends() -> Lines:
    """The time of an append with each engine, and of a full encode by each library, against the context."""
    results = load("engines")
    turn = results["plan"]["appends"][0]["characters"]
    lines = []
    for operation, side, label, dashed in (
        ("append", "toktier", "toktier append, {}", False),
        ("encode", "library", "{}, full encode", True),
    ):
        rows = [it for it in results["rows"] if (it["operation"], it["side"]) == (operation, side)]
        for name in dict.fromkeys(row["name"] for row in rows):
            points = {it["context"]: it["median"] for it in rows if it["name"] == name and it["characters"] == turn}
            lines.append(Line(label.format(name), tuple(sorted(points.items())), COLOR.get(name, name), dashed))
    title = f"{results['tokenizer']}: the ids after {turn:,} more characters, median time"
    contexts = tuple(map(float, results["plan"]["contexts"]))
    return Lines(title, Axis("characters of context", "characters", contexts), Axis("", "seconds"), tuple(lines))


def serve() -> Lines:
    """The P99 of front ends against the rate of calls: the store, and each library by itself."""
    results = load("serve")
    lines = []
    for front_end in results["front_ends"]:
        name, _, how = front_end["name"].replace(",", "").partition(" ")
        runs = sorted((run["rate"], run["p99"]) for run in front_end["runs"] if run["p99"] is not None)
        if not runs or how == "stateless":
            continue
        color, label = (how, f"toktier store, {how}") if name == "store" else (name, f"{name}, full encode")
        lines.append(Line(label, tuple(runs), color, dashed=name != "store"))
    return Lines(
        f"{results['tokenizer']}: 99th percentile of a call's latency, {results['sessions']} live sessions",
        Axis("calls a second", "number", _within(RATES, [x for line in lines for x, _ in line.points])),
        Axis("", "seconds", _within(LATENCIES, [y for line in lines for _, y in line.points])),
        tuple(lines),
        ((0.01, "10 ms"), (0.05, "50 ms")),
    )


def _within(ticks: tuple[float, ...], values: list[float]) -> tuple[float, ...]:
    """The ticks between the least and the greatest value."""
    return tuple(tick for tick in ticks if min(values) <= tick <= max(values))


def front_end() -> Spans:
    """P50 to P99 of the FastAPI example, with its store and with plain ``tokenizers``."""
    results = load("front_end")
    groups: dict[str, list[Span]] = {}
    for what in ("tokenize step", "whole call"):
        for row in results["figures"]:
            begin, end = (row[f"{what}, {share}, ms"] / 1e3 for share in ("P50", "P99"))
            plain = row["server"] == PLAIN
            span = Span(row["server"], begin, end, "tokenizers" if plain else "gigatoken", dashed=plain)
            groups.setdefault(f"{what}, {row['rate']:g} calls a second", []).append(span)
    title = f"{results['title']}: median and 99th percentile"
    return Spans(title, Axis("", "seconds"), tuple((name, tuple(rows)) for name, rows in groups.items()))


def density() -> Spans:
    """Characters between two cuts, the mean and the 99th percentile, by tokenizer."""
    groups: dict[str, list[Span]] = {}
    for row in load("density")["figures"]:
        span = Span(row["tokenizer"], row["mean"], row["99 %"], "gigatoken")
        groups.setdefault(row["texts"], []).append(span)
    axis = Axis("", "number", (1, 2, 5, 10, 20))
    named = tuple((name, tuple(rows)) for name, rows in groups.items())
    return Spans("Characters between two certified cuts: mean and 99th percentile", axis, named)


def cores() -> Spans:
    """The time of a long text on one thread and on all cores, by engine."""
    results = load("store")
    rows = []
    for engine in PROCESSOR:
        found = results.figure(f"{engine}, all cores")
        assert found.beside_value is not None
        one, all_cores = found.beside_value / 1e3, found.value / 1e3
        rows.append(Span(engine, one, all_cores, COLOR.get(engine, engine)))
    title = f"{results['tokenizer']}: 4 M characters on one thread, and on {results['machine']['cpus']} cores"
    return Spans(title, Axis("", "seconds"), (("", tuple(rows)),))


def memory() -> Lines:
    """What a process holds while text passes through it."""
    results = load("memory")
    seen, step = results["resident"], results["characters"] / len(results["resident"]) / 1e6
    points = tuple((step * (k + 1), held) for k, held in enumerate(seen))
    return Lines(
        f"{results['title']}: memory of the process",
        Axis("MB of new text that went through", "number", logarithmic=False),
        Axis("", "number", logarithmic=False),
        (Line("resident, MB", points, "gigatoken"),),
    )


PICTURES: Mapping[str, Callable[[], Plot]] = {
    "appends": appends,
    "serve": serve,
    "front-end": front_end,
    "density": density,
    "cores": cores,
    "memory": memory,
}
"""Every plot of that page, by the name of its files."""
