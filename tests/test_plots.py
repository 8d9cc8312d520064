"""The plots and the tables of the pages are what the files of figures say, and these say how they were made."""

from __future__ import annotations

import getpass
import json
import os
import pathlib
import platform
import re
import shlex
import shutil
import sys
from collections.abc import Callable, Iterable
from typing import Any

import pytest

import toktier
from benchmarks import all as everything
from benchmarks import drawing, marks, pictures, plots, results, support, tables
from benchmarks.all import MEASUREMENTS, Measurement
from benchmarks.drawing import Axis, Line, Lines, Span, Spans
from benchmarks.marks import BadMarks
from benchmarks.results import FOLDER, ROOT, NoFigures
from toktier.bench.heading import command, heading

PAGE = "docs/benchmarks.md"

HELPERS = {"all", "plots", "front_end_plain"}
"""What runs by itself in benchmarks, and measures nothing."""

NOT_KEPT = {"support"}
"""What writes its own page and file of figures, and what only prints."""

ROW = re.compile(r"^\| `python -m benchmarks\.(\w+)` \|", re.MULTILINE)

PARTS = ("title", "command", "date", "machine", "versions")


def benchmarks_of(folder: pathlib.Path) -> set[str]:
    """The modules of a folder that measure something."""
    sources = {file.stem: file.read_text(encoding="utf-8") for file in folder.glob("*.py")}
    return {name for name, source in sources.items() if '\nif __name__ == "__main__":' in source} - HELPERS


def left_out(names: Iterable[str], readme: str, measurements: Iterable[Measurement]) -> set[str]:
    """The benchmarks that are not in the table of the readme, or not among what is measured again."""
    again = {it.module.removeprefix("benchmarks.") for it in measurements} | NOT_KEPT
    return {name for name in names if name not in ROW.findall(readme) or name not in again}


@pytest.fixture
def copy(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> pathlib.Path:
    """A folder of the same figures, that may be changed."""
    folder = pathlib.Path(shutil.copytree(FOLDER, tmp_path / "results"))
    monkeypatch.setattr(results, "FOLDER", folder)
    monkeypatch.setattr(everything, "FOLDER", folder)
    return folder


def change(file: pathlib.Path, how: Callable[[dict[str, Any]], object]) -> None:
    content = json.loads(file.read_text(encoding="utf-8"))
    how(content)
    file.write_text(json.dumps(content), encoding="utf-8")


# what is shown is what was measured


def test_no_plot_and_no_page_is_stale() -> None:
    assert list(plots.stale()) == [], "python -m benchmarks.plots"


def test_the_plots_of_the_documentation_are_those_that_are_drawn_and_a_page_shows_each_in_both_themes() -> None:
    drawn = {file.name for name in plots.PICTURES for file in plots.files(name).values()}
    assert {file.name for file in ROOT.glob("docs/_static/benchmark-*.svg")} == drawn
    shown = re.findall(
        r"```\{image\} _static/(benchmark-\S+-(\w+)\.svg)\n:alt: .+\n:class: only-(\w+)\n```",
        "".join(file.read_text(encoding="utf-8") for file in ROOT.glob("docs/*.md")),
    )
    assert {name for name, theme, shown_in in shown if theme == shown_in} == drawn


def test_every_table_stands_where_it_belongs_and_nowhere_else() -> None:
    found = {}
    for file in (ROOT / "README.md", *ROOT.glob("docs/*.md")):
        page = file.relative_to(ROOT).as_posix()
        if places := marks.places(file.read_text(encoding="utf-8"), page):
            found[page] = sorted(place.name for place in places)
    expected = {page: sorted(names) for page, names in plots.PAGES.items()}
    assert found == expected | {"docs/support.md": [support.PLACE]}
    assert {name for names in plots.PAGES.values() for name in names} == set(plots.BLOCKS)


@pytest.mark.parametrize(
    ("name", "how", "expected"),
    [
        (
            "engines",
            lambda it: [row.update(median=1.0) for row in it["rows"]],
            {"benchmark-appends-light.svg", PAGE, "README.md"},
        ),
        ("density", lambda it: it["figures"][0].update(mean=9.9), {"benchmark-density-dark.svg", PAGE}),
        ("memory", lambda it: it["resident"].append(1.0), {"benchmark-memory-dark.svg"}),
        ("session", lambda it: it["figures"][0].update(value=1234.5), {PAGE}),
        ("wrap", lambda it: it.update(date="1999-12-31"), {PAGE}),
        ("store", lambda it: it["machine"].update(processor="an abacus"), {PAGE}),
        (
            "comparison",
            lambda it: [row.update(milliseconds=1.0) for row in it["times"]],
            {"benchmark-comparison-dark.svg", "docs/comparison.md"},
        ),
        ("view", lambda it: it["figures"][0].update(value=1234.5), {"docs/view.md"}),
    ],
)
def test_a_figure_that_changes_makes_stale_what_shows_it(
    copy: pathlib.Path, name: str, how: Callable[[dict[str, Any]], object], expected: set[str]
) -> None:
    change(copy / f"{name}.json", how)
    assert expected <= set(plots.stale())


@pytest.fixture
def house(copy: pathlib.Path, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> pathlib.Path:
    """A copy of the pages and of some plots, that may be changed as well."""
    (tmp_path / "docs" / "_static").mkdir(parents=True)
    for page in plots.PAGES:
        shutil.copy(ROOT / page, tmp_path / page)
    monkeypatch.setattr(plots, "ROOT", tmp_path)
    monkeypatch.setattr(plots, "PICTURES", {name: plots.PICTURES[name] for name in ("density", "memory")})
    return tmp_path


def test_everything_that_was_measured_is_drawn_and_written_whatever_else_was_not(house: pathlib.Path) -> None:
    (house / "results" / "density.json").unlink()
    (house / "docs" / "view.md").write_text("The marks are gone.")
    before = (house / PAGE).read_text(encoding="utf-8")
    by_hand = before.replace("| store, ", "| a shop, ").replace("| toktier-mini | ", "| a mini | ")
    assert "| a shop, " in by_hand
    assert "| a mini | " in by_hand
    (house / PAGE).write_text(by_hand, encoding="utf-8")
    problems = plots.renewed()
    assert set(problems) == {
        "density.json is not there: python -m benchmarks.all --only density",
        "docs/view.md has no place for figures 'view': it needs one <!-- figures: view --> with its end",
    }
    after = (house / PAGE).read_text(encoding="utf-8")
    assert "| a shop, " not in after
    assert "| a mini | " in after
    assert (house / "docs" / "view.md").read_text() == "The marks are gone."
    drawn = {file.name for file in house.glob("docs/_static/*.svg")}
    assert drawn == {"benchmark-memory-light.svg", "benchmark-memory-dark.svg"}


def test_what_is_drawn_and_written_is_not_stale_until_somebody_changes_it(house: pathlib.Path) -> None:
    assert plots.renewed() == []
    assert list(plots.stale()) == []
    text = (house / PAGE).read_text(encoding="utf-8")
    by_hand = text.replace("| `gigatoken` | ", "| `gigatoken` | 0", 1)
    assert by_hand != text
    (house / PAGE).write_text(by_hand, encoding="utf-8")
    plots.files("memory")["dark"].unlink()
    assert list(plots.stale()) == ["benchmark-memory-dark.svg", PAGE]


def test_a_plot_without_a_digest_or_of_other_data_or_drawn_otherwise_is_stale(monkeypatch: pytest.MonkeyPatch) -> None:
    plot = Lines("Two", Axis("x", "number"), Axis("y", "number"), (Line("a", ((1, 1), (2, 2)), "memo"),))
    other = Lines("Two", Axis("x", "number"), Axis("y", "number"), (Line("a", ((1, 1), (2, 3)), "memo"),))
    drawn = drawing.drawn_from(drawing.draw(plot, "light").decode())
    assert drawn == drawing.digest(plot) != drawing.digest(other)
    assert drawing.drawn_from("<svg/>") is None
    monkeypatch.setattr(drawing, "HOW", drawing.HOW + "# otherwise")
    assert drawn != drawing.digest(plot)


def test_figures_that_are_missing_say_what_to_do(copy: pathlib.Path) -> None:
    change(copy / "store.json", lambda it: it.update(figures=[]))
    with pytest.raises(NoFigures, match=r"store.json has no .*: python -m benchmarks.all --only store"):
        pictures.cores()
    (copy / "density.json").unlink()
    with pytest.raises(NoFigures, match=r"density.json is not there: python -m benchmarks.all --only density"):
        tables.density()


# where tables stand


BEGIN, END = "<!-- figures: {} -->", "<!-- end of figures -->"
ONE, TWO = BEGIN.format("one"), BEGIN.format("two")
NEEDS = f"for figures 'one': it needs one {ONE} with its end"


def test_only_what_stands_between_the_marks_is_written_anew() -> None:
    text = f"Before.\n{ONE}\nold\n{END}\nBetween.\n{TWO}{END}\nBehind."
    new = f"Before.\n{ONE}\n\n| new |\n\n{END}\nBetween.\n{TWO}{END}\nBehind."
    assert marks.renewed(text, {"one": "| new |", "two": None}, "a page") == new
    assert marks.renewed(new, {"one": "| new |", "two": None}, "a page") == new


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("Nothing.", f"a page has no place {NEEDS}"),
        (f"{ONE}{END}{ONE}{END}", f"a page has 2 places {NEEDS}"),
        (f"{ONE}{END}{TWO}{END}", "a page has a place for figures 'two'; what belongs there: one"),
        (f"{ONE}\nAll that follows.", "a page: figures 'one' have no end"),
        (f"{ONE}\n{TWO}{END}{END}", "a page, line 2: figures 'two' begin before 'one' have their end"),
        (f"\n\n{END}{ONE}{END}", "a page, line 3: an end of figures, and none have begun"),
        (f"<!-- figures:one -->{END}", "a page, line 1: an end of figures, and none have begun"),
    ],
)
def test_a_mark_that_is_missing_or_in_the_wrong_place_is_an_error(text: str, problem: str) -> None:
    with pytest.raises(BadMarks) as raised:
        marks.renewed(text, {"one": "new"}, "a page")
    assert str(raised.value) == problem


# how plots are drawn


@pytest.mark.parametrize(
    "plot",
    [
        Lines(
            "Lines",
            Axis("x", "characters", (1000, 2000)),
            Axis("", "seconds"),
            (Line("a", ((1e3, 1), (2e3, 2)), "memo"),),
        ),
        Spans(
            "Rows",
            Axis("x", "times", logarithmic=False),
            (("group", (Span("row", 1.0, 2.0, "memo", dashed=True), Span("one value", 3.0, None, "memo"))),),
        ),
    ],
    ids=lambda plot: plot.title,
)
def test_the_same_plot_is_the_same_bytes_and_has_no_background_and_no_date(plot: Lines | Spans) -> None:
    light, dark = (drawing.draw(plot, theme) for theme in drawing.THEMES)
    assert drawing.draw(plot, "light") == light
    assert re.findall(rb">[^<]+</text>", light) == re.findall(rb">[^<]+</text>", dark)
    assert light != dark
    assert b"<dc:date>" not in light
    assert b"fill: #ffffff" not in light
    assert f">{plot.title}</text>".encode() in light


def contrast(one: str, other: str) -> float:
    """How well two colors can be told apart, as WCAG 2 defines it."""

    def luminance(color: str) -> float:
        channels = (int(color[i : i + 2], 16) / 255 for i in (1, 3, 5))
        linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    dark, light = sorted(map(luminance, (one, other)))
    return (light + 0.05) / (dark + 0.05)


@pytest.mark.parametrize(("theme", "page"), [("light", "#ffffff"), ("dark", "#131416")])
def test_every_text_of_a_plot_can_be_read_on_its_page(theme: str, page: str) -> None:
    colors = drawing.THEMES[theme]
    assert {name for name, color in colors.items() if contrast(color, page) < 4.5} == {"grid"}


# every benchmark


def test_every_benchmark_is_in_the_table_and_is_measured_again() -> None:
    readme = (ROOT / "benchmarks" / "README.md").read_text(encoding="utf-8")
    names = benchmarks_of(ROOT / "benchmarks")
    assert {"engines", "density", "gpu"} <= names
    assert left_out(names, readme, MEASUREMENTS) == set()
    assert set(ROW.findall(readme)) - HELPERS <= names


def test_a_benchmark_that_is_in_one_place_only_is_noticed(tmp_path: pathlib.Path) -> None:
    (tmp_path / "fresh.py").write_text('def main(): ...\n\n\nif __name__ == "__main__":\n    main()\n')
    (tmp_path / "helper.py").write_text("def helps(): ...\n")
    names = benchmarks_of(tmp_path)
    assert names == {"fresh"}
    row, measurement = "| `python -m benchmarks.fresh` | much | 1 s |\n", Measurement("fresh", "benchmarks.fresh")
    assert left_out(names, row, [measurement]) == set()
    assert left_out(names, "", [measurement]) == left_out(names, row, []) == names


@pytest.mark.parametrize("measurement", MEASUREMENTS, ids=lambda it: it.name)
def test_figures_say_how_they_were_made_and_it_is_as_they_would_be_made_again(measurement: Measurement) -> None:
    file = results.file_of(measurement.name)
    if measurement.when_asked and not file.is_file():
        return
    again = f"python -m benchmarks.all --only {measurement.name}"
    assert file.is_file(), again
    content = json.loads(file.read_text(encoding="utf-8"))
    assert tuple(content)[: len(PARTS)] == PARTS
    words = ["python", "-m", measurement.module]
    words += ["--tokenizer", "qwen3"] if measurement.tokenizer else []
    assert shlex.split(content["command"]) == [*words, *measurement.arguments], again


# the command that measures everything


GOOD = "import pathlib, sys; pathlib.Path(sys.argv[-1]).write_text('{\"new\": 1}')"


@pytest.fixture
def made_up(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str, str], Measurement]:
    """Makes a module that can be run, and its measurement."""
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")]))

    def make(name: str, source: str) -> Measurement:
        (tmp_path / f"made_up_{name}.py").write_text(source)
        return Measurement(name, f"made_up_{name}", ("--rounds", "1"))

    return make


def test_what_fails_keeps_its_old_figures_and_the_others_run(
    copy: pathlib.Path, made_up: Callable[[str, str], Measurement]
) -> None:
    measurements = [
        made_up("first", GOOD),
        made_up("fails", f"{GOOD}; sys.exit(3)"),
        made_up("silent", ""),
        made_up("last", f"{GOOD}; assert sys.argv[1:5] == ['--tokenizer', 'toktier-mini', '--rounds', '1'], sys.argv"),
    ]
    for name in ("first", "fails", "silent"):
        (copy / f"{name}.json").write_text("old")
    outcomes = everything.measured(measurements, "toktier-mini")
    assert [it.problem for it in outcomes] == ["", "failed, exit status 3", "wrote no figures", ""]
    written = {it.name: (copy / f"{it.name}.json").read_text() for it in outcomes}
    assert written == {"first": '{"new": 1}', "fails": "old", "silent": "old", "last": '{"new": 1}'}


@pytest.mark.parametrize(("only", "status"), [(["first"], 0), (["first", "fails"], 1), ([], 0)])
@pytest.mark.usefixtures("copy")
def test_the_exit_status_says_whether_all_went_well(
    made_up: Callable[[str, str], Measurement],
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    only: list[str],
    status: int,
) -> None:
    fails = made_up("fails", "import sys; sys.exit(3)")
    when_asked = Measurement(fails.name, fails.module, when_asked="it fails")
    monkeypatch.setattr(everything, "MEASUREMENTS", (made_up("first", GOOD), when_asked))
    monkeypatch.setattr(sys, "argv", ["all", *(["--only", *only] if only else [])])
    assert everything.main() == status
    assert ("exit status 3" in capfd.readouterr().out) == bool(status)


# the head of a file


def test_a_head_says_what_it_was_made_with_and_not_where_or_by_whom() -> None:
    head = heading("Some figures")
    assert tuple(head) == PARTS
    assert head["versions"]["toktier"] == toktier.__version__
    assert head["machine"]["processor"]
    said = json.dumps(head)
    for private in (platform.node(), str(pathlib.Path.home()), str(ROOT), os.getcwd()):
        assert private in ("", "/") or private not in said
    assert f"/{getpass.getuser()}/" not in said


@pytest.mark.parametrize(
    ("words", "module", "expected"),
    [
        (["/a/toktier", "bench", "--quick", "--json", "/b/c.json"], None, "toktier bench --quick"),
        (["/a/__main__.py", "bench", "--plot=/b/c.svg"], "toktier.__main__", "python -m toktier bench"),
        (
            ["x", "--tokenizer", "/a/my tokenizer.json"],
            "benchmarks.x",
            "python -m benchmarks.x --tokenizer 'my tokenizer.json'",
        ),
        (["x", "--text=/a/b.txt", "--rate", "20"], "benchmarks.x", "python -m benchmarks.x --text=b.txt --rate 20"),
        (["x", "--tokenizer", "Qwen/Qwen3-8B"], "benchmarks.x", "python -m benchmarks.x --tokenizer Qwen/Qwen3-8B"),
        (["x", "--json"], "benchmarks.x", "python -m benchmarks.x"),
    ],
)
def test_a_command_is_told_without_what_it_wrote_and_without_folders(
    words: list[str], module: str | None, expected: str
) -> None:
    assert command(words, module) == expected


def test_a_file_that_is_there_is_named_without_its_folder(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    pathlib.Path("models").mkdir()
    pathlib.Path("models/tokenizer.json").touch()
    assert command(["x", "models/tokenizer.json"], "x") == "python -m x tokenizer.json"
