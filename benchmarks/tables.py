"""The tables and the figures of the pages, as markdown, from the files of figures."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping, Sequence

from benchmarks.all import MEASUREMENTS
from benchmarks.common import Figure, number
from benchmarks.front_end import PLAIN
from benchmarks.results import Results, load
from toktier.bench.report import HUNDRED_THOUSAND, LIBRARY_OF, MILLION, duration, size, times
from toktier.bench.serving import LIMITS

SECONDS = {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1.0}
"""Units of time."""


def table(columns: Sequence[str], rows: Iterable[Sequence[str]], words: Container[int] = range(1)) -> str:
    """A table, without the columns that have nothing in them.

    Args:
        columns: Their names.
        rows: Their cells.
        words: Which columns are words, all others being numbers.
    """
    rows = list(rows)
    filled = [k for k in range(len(columns)) if any(row[k] for row in rows)]
    marks = ["---" if k in words else "--:" for k in range(len(columns))]
    lines = [columns, marks, *rows]
    return "\n".join(f"| {' | '.join(line[k] for k in filled)} |" for line in lines)


def source(results: Results) -> str:
    """Where figures come from."""
    return f"`{results['command']}`, {results['date']}"


def machine_of(results: Results) -> str:
    """On what figures were measured, and with which versions."""
    it = results["machine"]
    versions = ", ".join(f"{package} {version}" for package, version in results["versions"].items() if version)
    return f"{it['processor']}, {it['cpus']} cores, {it['machine']}, {it['system']}; {versions}"


def measured(value: float | None, unit: str) -> str:
    """A figure with its unit."""
    if value is None:
        return ""
    return duration(value * SECONDS[unit]) if unit in SECONDS else f"{number(value)} {unit}".rstrip()


def listed(results: Results, figures: Iterable[Figure]) -> str:
    """Figures one below the other, as their command prints them."""
    rows = [
        (
            it.what,
            it.at,
            measured(it.value, it.unit),
            measured(it.p90, it.unit),
            f"{it.beside}: {measured(it.beside_value, it.unit)}" if it.beside else "",
            "" if it.ratio is None else times(it.ratio),
            "" if it.limit is None else f"≤ {measured(it.limit, it.unit)}" + ", **missed**" * (it.value > it.limit),
        )
        for it in figures
    ]
    columns = ("", "", "measured", "P90", "beside it", "ratio", "target")
    return f"{table(columns, rows, words=range(2))}\n\n{source(results)}"


def whole(name: str) -> Callable[[], str]:
    """The block of a file of which everything is shown."""

    def block() -> str:
        results = load(name)
        return listed(results, results.figures())

    return block


def engines() -> str:
    """Appends and full encodes, by engine."""
    results = load("engines")
    plan = results["plan"]
    turn, contexts = plan["appends"][0]["characters"], plan["contexts"]
    shown = [it for it in contexts if it in (HUNDRED_THOUSAND, MILLION) or it == contexts[-1]]
    medians = {
        (row["operation"], row["side"], row["name"], row["context"]): row["median"]
        for row in results["rows"]
        if row["characters"] == turn
    }
    rows = []
    for engine, library in LIBRARY_OF.items():
        if ("append", "toktier", engine, contexts[-1]) not in medians:
            continue
        appended = [medians["append", "toktier", engine, it] for it in shown]
        full = [medians["encode", "library", library, it] for it in shown]
        ratios = [f"{duration(all_)} ({times(all_ / one)})" for one, all_ in zip(appended, full, strict=True)]
        rows.append((f"`{engine}`", *map(duration, appended), *ratios))
    columns = [f"{results['tokenizer']}, engine", *(f"append to {size(it)}" for it in shown)]
    columns += [f"all again, {size(it)}" for it in shown]
    return f"{table(columns, rows)}\n\n{source(results)}"


def figures() -> str:
    """What is to be known beside the engines, some rows of each."""
    rows = []
    for name, facts in FACTS.items():
        results = load(name)
        rows += [(what, said, f"`{results['command']}`") for what, said in facts(results)]
    return table(("", "", "command"), rows, words=range(3))


Facts = Iterable[tuple[str, str]]


def _session_gigatoken(results: Results) -> Facts:
    found = results.figure("append 1,400 characters, outside the engine", "1,000 K")
    own, inside = measured(found.value, found.unit), measured(found.beside_value, found.unit)
    yield "an append to 1 M characters, outside the engine", f"{own}, and {inside} in `gigatoken`"


def _session(results: Results) -> Facts:
    update = results.figure("update: an answer for the prompt")
    yield "an `update` with all of 1 M characters, an answer for the prompt", f"{percent(update)} of a full encode"
    at_once, pieces = (results.figure(f"state beyond a text {how}") for how in ("given at once", "appended in pieces"))
    held = f"{number(at_once.value)} bytes an id, {number(pieces.value)} if it was appended in pieces"
    yield "what a session holds besides its text", held


def _store(results: Results) -> Facts:
    keyed, compared = results.figure("store, by name"), results.figure("startswith")
    full = next((it for it in results.figures() if it.what.endswith("in full, to the store by name")), None)
    if full is None:
        raise results.without("... in full, to the store by name")
    library = full.what.partition(" ")[0]
    yield (
        "a store that is given 1 M characters, a turn of them new",
        f"{measured(keyed.value, keyed.unit)}, of which comparing the texts {measured(compared.value, compared.unit)};"
        f" all again with the library `{library}` takes {times(full.value)}",
    )


def _front_end(results: Results) -> Facts:
    rows = {(row["rate"], row["server"]): row for row in results["figures"]}
    for rate in dict.fromkeys(rate for rate, _ in rows):
        ours, plain = (_step(rows[rate, name]) for name in ("toktier", PLAIN))
        yield f"tokenizing in a FastAPI front end, {rate:g} calls a second", f"{ours}; with plain `tokenizers` {plain}"


def _step(row: Mapping[str, float]) -> str:
    middle, slow = (row[f"tokenize step, {share}, ms"] / 1e3 for share in ("P50", "P99"))
    return f"{duration(middle)} (99th percentile {duration(slow)})"


def _wrap(results: Results) -> Facts:
    ratios = [f"{times(ratio_of(it))} with `{it.beside}`" for it in results.figures() if _is_longest_call(it)]
    yield "a wrapped tokenizer of transformers, the next turn on 1 M, speed-up over the plain one", ", ".join(ratios)


def _is_longest_call(figure: Figure) -> bool:
    return (figure.what, figure.at) == ("tokenizer(text)", "1 M")


def _derivation(results: Results) -> Facts:
    for how, what in (("cold", "the first time"), ("warm", "from then on")):
        seconds = sorted(it.value for it in results.figures() if f", {how} cache" in it.what)
        yield f"deriving a tokenizer, {what}", f"{duration(seconds[0])} to {duration(seconds[-1])}"


FACTS: Mapping[str, Callable[[Results], Facts]] = {
    "session_gigatoken": _session_gigatoken,
    "session": _session,
    "store": _store,
    "front_end": _front_end,
    "wrap": _wrap,
    "derivation": _derivation,
}


def ratio_of(figure: Figure) -> float:
    """The ratio of a figure that has one."""
    assert figure.ratio is not None
    return figure.ratio


def percent(figure: Figure) -> str:
    """A ratio as a part of a hundred."""
    return f"{100 * ratio_of(figure):.2g} %"


def serve() -> str:
    """The highest rates of front ends."""
    results = load("serve")
    rows = []
    for front_end in results["front_ends"]:
        highest = (front_end["highest"][str(limit)] for limit in LIMITS)
        alone = front_end["alone"]
        rates = (f"{rate:,.0f}" if rate else "none" for rate in highest)
        rows.append((front_end["name"], duration(alone) if alone else "", *rates))
    columns = ("calls a second", "one call alone", *(f"P99 ≤ {duration(limit)}" for limit in LIMITS))
    return f"{table(columns, rows)}\n\n{source(results)}"


def front_end() -> str:
    """The FastAPI example under load."""
    results = load("front_end")
    rows = [
        (
            f"{row['server']}, {row['rate']:g} calls a second",
            *(
                "/".join(duration(row[f"{what}, {share}, ms"] / 1e3) for share in ("P50", "P99"))
                for what in ("tokenize step", "whole call")
            ),
            duration(row["server's time of a core for a call, ms"] / 1e3),
            f"{row['of these exact']:,} of {row['answers compared with the reference']:,}",
        )
        for row in results["figures"]
    ]
    columns = (results["title"], "tokenize, P50/P99", "whole call, P50/P99", "of a core, a call", "answers exact")
    return f"{table(columns, rows)}\n\n{source(results)}"


def wrap() -> str:
    """A tokenizer of transformers, plain and wrapped."""
    results = load("wrap")
    found: dict[str, dict[str, Figure]] = {}
    for it in results.figures():
        if it.at == "1 M":
            found.setdefault(it.what, {})[it.beside] = it
    if not found:
        raise results.without("1 M")
    names = sorted({name for row in found.values() for name in row}, key=list(LIBRARY_OF).index, reverse=True)
    rows = []
    for what, row in found.items():
        plain = next(iter(row.values()))
        wrapped = (f"{measured(row[it].beside_value, plain.unit)} ({times(ratio_of(row[it]))})" for it in names)
        rows.append((f"`{what}`", measured(plain.value, plain.unit), *wrapped))
    columns = ("1 M characters and a turn", "plain", *(f"wrapped, `{name}`" for name in names))
    return f"{table(columns, rows)}\n\n{source(results)}"


def density() -> str:
    """Characters between two cuts."""
    results = load("density")
    rows: dict[str, list[str]] = {}
    corpora = dict.fromkeys(row["texts"] for row in results["figures"])
    for row in results["figures"]:
        rows.setdefault(row["tokenizer"], []).extend(number(row[what]) for what in ("mean", "median", "99 %"))
    columns = [
        "characters between two cuts",
        *(f"{it}: {what}" for it in corpora for what in ("mean", "median", "99 %")),
    ]
    return f"{table(columns, ((name, *row) for name, row in rows.items()))}\n\n{source(results)}"


def machine() -> str:
    """On what everything was measured; several machines if it was not one."""
    found: dict[str, list[str]] = {}
    for measurement in MEASUREMENTS:
        if measurement.page != "benchmarks.md":
            continue
        found.setdefault(machine_of(load(measurement.name)), []).append(measurement.name)
    if len(found) == 1:
        return f"Everything was measured on one machine: {next(iter(found))}."
    return "\n".join(f"- {', '.join(names)}: {words}." for words, names in found.items())


BLOCKS: Mapping[str, Callable[[], str]] = {
    "machine": machine,
    "figures": figures,
    "engines": engines,
    "session": whole("session"),
    "store": whole("store"),
    "serve": serve,
    "front-end": front_end,
    "wrap": wrap,
    "verify": whole("verify"),
    "density": density,
    "derivation": whole("derivation"),
    "memory": whole("memory"),
    "import": whole("import_time"),
    "view": whole("view"),
}
"""What can stand in a page, by its name there."""
