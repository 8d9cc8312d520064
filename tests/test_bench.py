"""The benchmark: that it notices wrong ids wherever they come from, measures no text twice, and writes what it says."""

from __future__ import annotations

import itertools
import json
import pathlib
import sys
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import pytest
import tokenizers
from attrs import evolve
from click.testing import CliRunner, Result
from rich.cells import cell_len

import toktier
from tests import builders, zoo
from toktier import cli, replay, router, terminal
from toktier.bench import contenders, measuring, plan, plot, report
from toktier.bench.measuring import Bench, Row, Subject
from toktier.bench.plan import Appends, NotMeasurable, Plan
from toktier.engines.base import Engine, Ids
from toktier.errors import UnknownEngine

TINY = Plan(
    contexts=(2_000, 5_000), rounds=4, appends=(Appends(200, 2, 1.0), Appends(600, 1, 0.5)), updates=0.5, whole=20_000
)

ENGINES = router.PROCESSOR


class Wrong:
    """The reference as an engine that gives another id now and then."""

    name = "wrong"

    def __init__(self, tok: toktier.Tokenizer, when: Callable[[str], bool]) -> None:
        self.engine = tok.engine("reference")
        self.when = when

    def encode(self, text: str, *, continuation: bool = False) -> Ids:
        ids = self.engine.encode(text).copy()
        if self.when(text):
            ids[-1] ^= 1
        return ids

    def encode_batch(self, texts: Sequence[str], *, continuation: bool = False) -> list[Ids]:
        return [self.encode(text) for text in texts]


@pytest.fixture
def tok() -> toktier.Tokenizer:
    return toktier.load("toktier-mini")


@pytest.fixture(autouse=True)
def tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plan, "QUICK", TINY)
    # The others are compared with the reference when they are asked for, which takes its time.
    monkeypatch.setattr(measuring, "PROCESSOR", ("memo", "reference"))


def bench(*arguments: str) -> Result:
    return CliRunner().invoke(cli.main, ["bench", "--quick", *arguments], env={"COLUMNS": "80"})


def measured(tok: toktier.Tokenizer) -> measuring.Result:
    bench = Bench(tok, replay.library_text(TINY.contexts[-1] + TINY.fresh), TINY)
    assert len(list(bench.steps())) == len(bench)
    return bench.result()


def with_engines(monkeypatch: pytest.MonkeyPatch, **engines: Wrong) -> None:
    """These engines and the reference, and no others."""
    right = toktier.Tokenizer.engine

    def engine(self: toktier.Tokenizer, name: str = "auto") -> Engine:
        if name in engines:
            return engines[name]
        if name == "reference":
            return right(self, name)
        raise UnknownEngine(f"no engine {name!r} here")

    monkeypatch.setattr(toktier.Tokenizer, "engine", engine)


# what is measured


def test_everything_is_measured_as_often_as_planned_and_is_right(tok: toktier.Tokenizer) -> None:
    result = measured(tok)
    assert result.engines == ("memo", "reference")
    assert {"tokenizers", "tiktoken"} <= set(result.libraries)
    samples: dict[tuple[str, int], set[int]] = {}
    for subject, row in result.rows.items():
        assert 0 < row.median <= row.p90 <= row.p99
        if subject.side == "toktier" or subject.name in ("tokenizers", "tiktoken"):
            assert row.mismatches == 0
        samples.setdefault((subject.operation, subject.characters), set()).add(row.samples)
    assert samples == {
        ("append", 200): {8},
        ("append", 600): {2},
        ("first append", 200): {4},
        ("first append", 600): {2},
        ("append again", 200): {8},
        ("append again", 600): {2},
        ("encode alone", 600): {2},
        ("update", 200): {2},
        ("encode", 200): {4},
    }


def test_no_text_is_appended_twice_and_none_that_an_engine_has_in_a_context(tok: toktier.Tokenizer) -> None:
    text = replay.library_text(TINY.contexts[-1] + TINY.fresh)
    pieces: list[str] = []

    class Noting(Bench):
        def _fresh(self, of: Appends) -> list[str]:
            pieces.extend(found := super()._fresh(of))
            return found

    list(Noting(tok, text, TINY).steps())
    assert "".join(pieces) == text[TINY.contexts[-1] :]


def test_the_text_of_the_library_is_a_transcript_of_the_length_asked_for() -> None:
    assert replay.library_text(30_000).startswith("<|im_start|>system\n")
    assert len(replay.library_text(30_000)) == 30_000


# control: wrong ids are noticed


def test_a_library_that_gives_a_wrong_id_is_reported_and_is_no_failure_of_ours(
    monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path
) -> None:
    def almost(reference: tokenizers.Tokenizer) -> contenders.Encode:
        right = contenders.LOADERS["tokenizers"](reference)
        return lambda text: [*right(text)[:-1], 0]

    monkeypatch.setitem(contenders.LOADERS, "fastokens", almost)
    file = tmp_path / "bench.json"
    result = bench("--json", str(file))
    assert result.exit_code == 0
    rows = [row for row in json.loads(file.read_text())["rows"] if row["name"] == "fastokens"]
    assert [row["mismatches"] for row in rows] == [row["samples"] for row in rows] == [4, 4]
    assert [line.split()[-1] for line in result.stdout.splitlines() if "fastokens*" in line] == ["8"]


@pytest.mark.parametrize(
    ("when", "operations"),
    [
        (lambda text: len(text) > 4_000, {"encode"}),
        (lambda text: len(text) == 600, {"encode alone"}),
        (lambda text: 190 < len(text) < 300, {"append", "update"}),
        (lambda text: 550 < len(text) < 599, {"append", "append again"}),
    ],
)
def test_an_engine_that_gives_a_wrong_id_is_found_out_where_it_does(
    tok: toktier.Tokenizer, monkeypatch: pytest.MonkeyPatch, when: Callable[[str], bool], operations: set[str]
) -> None:
    with_engines(monkeypatch, memo=Wrong(tok, when))
    result = measured(tok)
    wrong = {(subject.name, subject.operation) for subject, row in result.rows.items() if row.mismatches}
    assert {("memo", operation) for operation in operations} <= wrong
    assert {name for name, _ in wrong} == {"memo"}


def test_wrong_ids_of_ours_make_the_command_fail(tok: toktier.Tokenizer, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = itertools.count()
    with_engines(monkeypatch, memo=Wrong(tok, lambda text: next(calls) == 20))
    assert bench().exit_code == 1


def test_a_session_that_holds_other_ids_than_its_patches_say_makes_it_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(toktier.Session, "ids", property(lambda self: np.zeros(len(self), np.uint32)))
    assert bench().exit_code == 1


# what is left out


def test_engines_that_may_not_serve_are_left_out_with_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    with_engines(monkeypatch)
    result = bench()
    assert result.exit_code == 0
    assert "memo left out as an engine: no engine 'memo' here" in result.stdout


def test_libraries_that_are_not_installed_are_left_out_with_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("gigatoken", "fastokens"):
        monkeypatch.setitem(sys.modules, name, None)
    output = bench().stdout
    assert "fastokens left out as a library: not installed: pip install fastokens" in output
    assert "gigatoken left out as a library" in output


def test_a_library_that_cannot_load_the_tokenizer_is_left_out_with_what_it_says() -> None:
    two = builders.byte_level(builders.split(r"\d"), builders.split(r"\s+|\S+"))
    found, left_out = contenders.contenders(two)
    assert "tokenizers" in [contender.name for contender in found]
    assert left_out["tiktoken"].startswith("cannot load the tokenizer: it is not one split pattern")


def test_a_copy_of_a_tokenizer_reads_special_tokens_as_the_original_does(tok: toktier.Tokenizer) -> None:
    original = tokenizers.Tokenizer.from_str(tok.reference.tokenizer.to_str())
    original.encode_special_tokens = True
    text = "<|im_start|>"
    assert contenders.copy_of(original).encode(text).ids == original.encode(text).ids != tok.encode(text).tolist()


# the plan


@pytest.mark.parametrize("length", [400_000, 1_000_000, 5_000_000, 9_000_000, 17_000_000, 40_000_000])
def test_a_plan_fits_the_text_and_keeps_the_longest_context_there_is_room_for(length: int) -> None:
    fitted = plan.FULL.fitted(length)
    room = length - fitted.fresh
    assert list(fitted.contexts) == sorted(set(fitted.contexts))
    assert fitted.contexts[-1] <= room
    assert fitted.contexts[-1] == plan.FULL.contexts[-1] or room < 1.3 * fitted.contexts[-1] + fitted.each


def test_too_short_a_text_is_refused_and_a_shorter_one_is_told(tmp_path: pathlib.Path) -> None:
    file = tmp_path / "text"
    file.write_text(replay.library_text(3_000), encoding="utf-8")
    result = bench("--text", str(file))
    assert result.exit_code == 2
    assert "a text of 3,000 characters is too short" in result.stderr
    file.write_text(replay.library_text(8_000), encoding="utf-8")
    result = bench("--text", str(file))
    assert result.exit_code == 0
    told = " ".join(result.stdout.split())
    assert "The text has 8,000 characters, and nothing is appended twice" in told


def test_rounds_share_out_what_is_due_evenly() -> None:
    for times in range(1, 13):
        due = [number for number in range(12) if Plan((1,), 12).is_due(number, times)]
        assert len(due) == times
        assert max(np.diff([-1, *due, 12])) <= 12 // times + 1


def test_without_cuts_there_is_nothing_to_measure() -> None:
    with pytest.raises(NotMeasurable, match="no cuts: pre-tokenizer Split"):
        Bench(toktier.load(zoo.build("lookbehind")), "", TINY)


# what is shown


def synthetic(seconds: float = 12.345, mismatches: int = 0) -> measuring.Result:
    """Every engine and every library, each with the widest figures, or with some that meet the bars."""

    def rows() -> Iterator[Row]:
        for context in plan.FULL.contexts:
            for of in plan.FULL.appends:
                for engine in ENGINES:
                    for operation in ("append", "first append", "append again", "encode alone"):
                        subject = Subject(operation, "toktier", engine, context, of.characters)
                        yield Row(subject, 200, seconds, 1.44 * seconds, 12.25 * seconds, mismatches)
            for operation, side, names in (
                ("update", "toktier", ENGINES),
                ("encode", "toktier", ENGINES),
                ("encode", "library", contenders.LOADERS),
            ):
                for name in names:
                    slow = 1 + context / 1000 * (side == "library")
                    yield Row(Subject(operation, side, name, context, 1400), 3, slow * seconds, 0.1, 0.1, mismatches)

    found = {row.subject: row for row in rows()}
    return measuring.Result(plan.FULL, ENGINES, tuple(contenders.LOADERS), {}, found)


@pytest.mark.parametrize("seconds", [0.000_986, 0.000_099_9, 0.123, 12.345])
def test_the_tables_fit_a_terminal_in_full(capsys: pytest.CaptureFixture[str], seconds: float) -> None:
    console = terminal.plain_console()
    console.width = 80
    console.print(*report.tables(synthetic(seconds)))
    output = capsys.readouterr().out
    assert max(map(cell_len, output.splitlines())) <= 80
    assert "…" not in output
    assert len(output.splitlines()) == 94  # nothing is wrapped
    for name in (*ENGINES, *contenders.LOADERS):
        assert name in output


def test_bars_are_met_or_missed_by_what_was_measured() -> None:
    result = synthetic()
    found = {(bar.engine, bar.what): bar for bar in report.bars(result)}
    assert len(found) == len(report.bars(result)) == 21
    bar = found["gigatoken", "gigatoken in full ÷ append to 100 K"]
    assert bar.value == pytest.approx(101)
    assert bar.limit == 20
    assert bar.met
    assert found["gigatoken", "append 100 K to 1 M ÷ these alone"].met
    assert found["memo", "append to 8 M ÷ append to 100 K"].met
    slower = Subject("append", "toktier", "memo", 8_000_000, 1_400)
    result.rows[slower] = evolve(result.rows[slower], median=20.0)
    missed = [bar for bar in report.bars(result) if not bar.met]
    assert [(bar.engine, bar.what, bar.at_least) for bar in missed] == [
        ("memo", "append to 8 M ÷ append to 100 K", False)
    ]


def test_the_command_writes_what_it_measured_and_a_plot(tmp_path: pathlib.Path) -> None:
    as_json, as_plot = tmp_path / "bench.json", tmp_path / "bench.svg"
    result = bench("--json", str(as_json), "--plot", str(as_plot))
    assert result.exit_code == 0, result.output
    assert max(map(cell_len, result.stdout.splitlines())) <= 80
    written = json.loads(as_json.read_text())
    assert written["versions"]["tokenizers"] == tokenizers.__version__
    assert written["versions"]["toktier"] == toktier.__version__
    assert written["machine"]["cpus"] > 0
    assert written["plan"]["contexts"] == list(TINY.contexts)
    assert {row["operation"] for row in written["rows"]} >= {"append", "update", "encode"}
    assert all(bar.keys() >= {"engine", "what", "value", "limit", "met"} for bar in written["bars"])
    drawn = as_plot.read_text(encoding="utf-8")
    assert drawn.startswith("<?xml")
    for label in ("toktier append, reference", "tokenizers, full encode", "tiktoken, full encode", "5 K", "1 ms"):
        assert label in drawn


def test_without_matplotlib_a_plot_is_refused_before_anything_is_measured(
    monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    monkeypatch.setattr(measuring, "Bench", None)
    result = bench("--plot", str(tmp_path / "bench.svg"))
    assert result.exit_code == 2
    assert result.stderr == "Error: a plot needs the package matplotlib: pip install matplotlib\n"


def test_labels_are_moved_apart_no_further_than_needed() -> None:
    heights = plot.apart([0.0, 0.01, 0.02, 0.5, 0.52, 1.0], 0.05)
    assert heights == sorted(heights)
    assert min(np.diff(heights)) >= 0.05 - 1e-6
    assert (heights[1], heights[-1]) == (0.01, 1.0)
