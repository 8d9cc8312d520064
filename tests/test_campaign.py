"""``toktier verify``: whatever an engine gets wrong is found, made small, saved, and seen again with one command."""

from __future__ import annotations

import io
import itertools
import json
import pathlib
import shlex
import time
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import pytest
from click.testing import CliRunner, Result
from rich.console import Console

from tests import material, zoo
from tests.faults import FAULTS, MARK, Fault, Faulty, raising
from toktier import cli, router
from toktier.campaign import report, verification
from toktier.campaign.checks import Check, checks, tally, turns
from toktier.campaign.operations import Kind, Operation, Program, append, cut, encode, plan
from toktier.campaign.programs import Problem, reference_ids, run
from toktier.campaign.reproduction import Reproduction
from toktier.campaign.shrinking import shrink, shrink_program
from toktier.campaign.verification import Campaign, Subject
from toktier.engines.base import Ids
from toktier.engines.memo import MemoEngine
from toktier.errors import EngineFailure
from toktier.families.family import Family
from toktier.router import Router

MINI = material.load("toktier-mini")


def plant(fault: Callable[[], Fault], patch: pytest.MonkeyPatch) -> None:
    """Every new engine ``memo`` has the fault."""
    route = Router.route
    patch.setattr(
        Router, "route", lambda self, name: Faulty(route(self, name), fault()) if name == "memo" else route(self, name)
    )


def command(*arguments: str) -> Result:
    return CliRunner().invoke(cli.main, arguments)


def verify(folder: pathlib.Path, *arguments: str) -> Result:
    return command("verify", "toktier-mini", "--quarantine", str(folder), "--seconds", "20", *arguments)


def saved(folder: pathlib.Path) -> pathlib.Path:
    (file,) = folder.glob("reproduction-*.json")
    return file


# Planted faults


@pytest.mark.parametrize("fault", FAULTS)
def test_a_planted_fault_is_found_made_small_and_replayed_with_one_command(
    fault: str, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "with spaces"
    monkeypatch.setattr(verification, "SHRINKING", 2.0)
    with monkeypatch.context() as patch:
        plant(FAULTS[fault], patch)
        result = verify(folder, "--engine", "memo")
        assert result.exit_code == 1, result.output
        replayed = next(line for line in result.output.splitlines() if "toktier reproduce" in line)
        again = command(*shlex.split(replayed)[1:])
        assert again.exit_code == 1, again.output
    kept = Reproduction.load(saved(folder))
    assert kept.engine == "memo"
    texts = [change.new for operation in kept.operations for change in operation.changes]
    if fault == "forgetful":
        assert sum(map(len, texts)) < 3 * 4096
    else:
        assert len(texts) <= 2
        assert sum(map(len, texts)) <= 60
    # Without the fault: the same command says so.
    assert command("reproduce", str(saved(folder))).exit_code == 0


def test_without_a_fault_nothing_is_found_and_what_was_done_is_counted(tmp_path: pathlib.Path) -> None:
    text = tmp_path / "text"
    text.write_text("Some text of mine, twice. " * 2, encoding="utf-8")
    numbers = tmp_path / "numbers.json"
    result = verify(tmp_path / "none", str(text), "--seconds", "0", "--json", str(numbers))
    assert result.exit_code == 0, result.output
    assert "No difference" in result.output
    assert not (tmp_path / "none").exists()
    found = json.loads(numbers.read_text())
    counted = {(row["check"], row["engine"]): row for row in found["checks"]}
    engines = [name for name in ("gpu", "gigatoken", "tiktoken", "memo", "reference") if name not in found["left_out"]]
    for engine in engines:
        assert counted["sessions", engine]["operations"] >= counted["sessions", engine]["programs"] >= 1
        assert counted["file sessions", engine]["programs"] == 1
    assert counted["files", None]["characters"] == len(text.read_text())
    assert counted["files", None]["cuts"] == len(MINI.family.cuts(text.read_text()))
    assert counted["texts", None]["texts"] == 1000  # one turn, and no other since there is no time
    assert found["digest"] == MINI.family.digest
    assert found["difference"] is found["reproduction"] is found["exhaustive"] is None


def test_a_relation_that_is_wrong_is_found(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(Family, "cuts", lambda self, text, **_: np.arange(1, len(text)))
        result = verify(tmp_path, "--engine", "reference")
        assert result.exit_code == 1, result.output
        assert command("reproduce", str(saved(tmp_path))).exit_code == 1
    kept = Reproduction.load(saved(tmp_path))
    assert kept.engine is None
    assert kept.expected is not None
    assert kept.got is not None
    (operation,) = kept.operations
    assert operation.kind is Kind.CUT
    assert len(operation.changes[0].new) == 2


def test_a_session_that_is_wrong_is_found(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(Family, "is_pair", lambda self, left, right: True)
        assert verify(tmp_path, "--engine", "reference").exit_code == 1
        assert command("reproduce", str(saved(tmp_path))).exit_code == 1
    assert len(Reproduction.load(saved(tmp_path)).operations) <= 3


def test_an_engine_that_fails_on_its_leash_is_right_and_counted(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The route has the reference answer: no difference, but a number that says how often."""

    class Failing(MemoEngine):
        def encode_batch(self, texts: Sequence[str], *, continuation: bool = False) -> list[Ids]:
            if any(MARK in text for text in texts):
                raise RuntimeError("planted")
            return super().encode_batch(texts, continuation=continuation)

    monkeypatch.setattr(router, "MemoEngine", Failing)
    numbers, text = tmp_path / "numbers.json", tmp_path / "text"
    text.write_text("quite a quick text", encoding="utf-8")
    arguments = [str(text), "--engine", "memo", "--seconds", "0", "--json", str(numbers)]
    assert verify(tmp_path, *arguments).exit_code == 0
    assert json.loads(numbers.read_text())["encoded_by_the_reference"]["memo"] > 0


def test_a_text_that_the_reference_cannot_encode_is_neither_right_nor_wrong() -> None:
    def reference(text: str) -> list[int]:
        if MARK in text:
            raise EngineFailure("beyond the library's limit")
        return reference_ids(MINI)(text)

    engine = Faulty(MINI.engine("memo"), raising)
    assert run([encode(MARK)], MINI, reference, engine) is None
    assert run([append(MARK)], MINI, reference, engine) is None
    for operation in (encode(MARK), append(MARK)):  # the control: it can encode it
        problem = run([operation], MINI, reference_ids(MINI), engine)
        assert problem is not None
        assert problem.message == "RuntimeError: planted"


# Of engines that remember


def test_what_it_takes_of_the_engines_past_becomes_part_of_the_program() -> None:
    """An engine that is wrong because of a text long ago, of which the program that found it says nothing."""

    def poisoned() -> Fault:
        seen: set[str] = set()

        def after(text: str, ids: Ids) -> Ids:
            seen.add(text)
            return ids[:-1] if "the first" in seen and text == "the last" else ids

        return after

    with pytest.MonkeyPatch.context() as patch:
        plant(poisoned, patch)
        tok = MINI.renewed()
        subject = Subject(tok, "memo", tok.engine("memo"))
        program = [encode("the last")]
        before = [encode("one"), encode("the first"), encode("another")]
        assert run(before, tok, reference_ids(tok), subject) is None
        problem = run(program, tok, reference_ids(tok), subject)
        assert problem is not None
        found = verification.smallest(tok, "memo", program, problem, subject.seen)
        assert found.operations == (encode("the first"), encode("the last"))
        assert found.replay(tok) is not None


def test_what_does_not_happen_again_is_kept_all_the_same() -> None:
    problem = Problem(1, Kind.ENCODE, "once", (1,), (2,))
    found = verification.smallest(MINI, "memo", [encode("text")], problem, ["before"])
    assert found.operations == (encode("text"),)
    assert found.message == f"{problem}; not when it was done again"


def test_an_engine_that_has_seen_much_is_replaced_by_a_new_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verification, "SEEN", 10)
    first = MINI.renewed().engine("memo")
    subject = Subject(MINI, "memo", first)
    subject.encode("0123456789")
    subject.renew()
    assert subject.engine is first
    subject.encode("a")
    subject.renew()
    assert subject.engine is not first
    assert (subject.seen, subject.characters) == ([], 0)


# Time, order, and what a seed decides


def test_the_time_limit_is_kept() -> None:
    campaign = Campaign(MINI, ["Some text. " * 1000], ["memo", "reference"])
    began = time.monotonic()
    steps = list(campaign.steps(1.0))
    assert 1.0 <= time.monotonic() - began < 4.0
    assert len(steps) > len(campaign.counts)


def test_all_kinds_of_checks_take_turns() -> None:
    names = ["memo", "reference"]
    all_checks = checks(MINI, ["Some text."], names, 0)
    first = list(itertools.islice(turns(all_checks), 200))
    assert {(check.name, check.engine) for check, _ in first} == {(check.name, check.engine) for check in all_checks}
    kinds = {operation.kind for _, program in first for operation in program}
    assert kinds == set(Kind)


def programs_of(seed: int) -> list[Program]:
    text = "Some text of mine. " * 100
    return [program for _, program in itertools.islice(turns(checks(MINI, [text], ["memo"], seed)), 40)]


def test_a_seed_decides_all_texts_and_programs() -> None:
    assert programs_of(1) == programs_of(1)
    assert programs_of(1) != programs_of(2)


def test_engines_have_seen_long_beginnings_of_long_texts() -> None:
    check = next(check for check in checks(MINI, ["x"], ["memo"], 0) if check.engine and check.name == "texts")
    texts = [operation.changes[0].new for operation in next(check.programs)]
    pairs = list(zip(texts[::2], texts[1::2], strict=True))
    assert all(text.startswith(beginning) for beginning, text in pairs)
    assert any(len(beginning) >= 4096 for beginning, _ in pairs)


def test_a_check_without_an_end_does_not_keep_others_from_theirs() -> None:
    endless = Check("endless", None, itertools.repeat([append("a")]), turn=3)
    ending = Check("ending", None, iter([[append("b")]] * 2))
    names = [check.name for check, _ in itertools.islice(turns([endless, ending]), 12)]
    assert names == ["endless"] * 3 + ["ending"] + ["endless"] * 3 + ["ending"] + ["endless"] * 4


def test_a_tally_counts_what_a_program_checks() -> None:
    program = [cut("Cut me, please!"), encode("Hi"), plan("Ho"), append("And me."), Operation(Kind.FORK)]
    assert tally(MINI, program) == {"texts": 3, "characters": 26, "cuts": 4, "programs": 1, "operations": 2}


# Shrinking


def test_shrinking_ends_when_its_time_is_up() -> None:
    def fails(kept: Sequence[int]) -> bool:
        time.sleep(0.01)
        return sum(kept) > 1000

    items = [1] * 100_000
    began = time.monotonic()
    assert sum(shrink(items, fails, until=began + 0.2)) > 1000
    assert time.monotonic() - began < 2


def test_a_beginning_stays_one_while_the_text_becomes_smaller() -> None:
    text = "".join(map(chr, range(0x4E00, 0x4E00 + 300)))

    def fails(program: Program) -> bool:
        texts = [operation.changes[0].new for operation in program]
        return len(texts) == 2 and len(texts[0]) >= 5 and texts[1].startswith(texts[0]) and len(texts[1]) >= 8

    small = shrink_program([encode(text[:200]), encode(text)], fails)
    assert [len(operation.changes[0].new) for operation in small] == [5, 8]


# The command


def test_exhaustive_shows_strings_cuts_failures_and_what_is_left(tmp_path: pathlib.Path) -> None:
    numbers = tmp_path / "numbers.json"
    result = verify(tmp_path, "--engine", "memo", "--seconds", "0", "--exhaustive", "2", "--json", str(numbers))
    assert result.exit_code == 0, result.output
    found = json.loads(numbers.read_text())["exhaustive"]
    assert found["length"] == 2
    assert found["failed"] == 0
    for number in (found["strings"], found["cuts"], found["certified"], len(found["left"])):
        assert f"{number:,}" in result.output


def test_a_counterexample_of_the_enumeration_is_saved_and_replayed(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(Family, "is_pair", lambda self, left, right: left + right == "th" or left == " ")
        patch.setattr(Family, "cuts", lambda self, text, **_: np.arange(1, len(text)))
        result = verify(tmp_path, "--engine", "memo", "--seconds", "0", "--exhaustive", "2")
        assert result.exit_code == 1, result.output
        shown = next(line for line in result.output.splitlines() if "toktier reproduce" in line)
        assert command(*shlex.split(shown)[1:]).exit_code == 1
    assert command(*shlex.split(shown)[1:]).exit_code == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--engine", "none"], "none"),
        (["no such file"], "no such file"),
        (["--seconds", "-1"], "--seconds"),
        (["--seconds", "0", "--exhaustive", "1"], "2 or more"),
    ],
)
def test_wrong_usage_has_exit_status_2(arguments: list[str], message: str, tmp_path: pathlib.Path) -> None:
    result = verify(tmp_path, *arguments)
    assert result.exit_code == 2
    assert message in result.output


def test_empty_files_are_refused(tmp_path: pathlib.Path) -> None:
    (tmp_path / "empty").touch()
    assert verify(tmp_path, str(tmp_path / "empty")).exit_code == 2


def test_a_tokenizer_without_cuts_is_verified_by_its_sessions(tmp_path: pathlib.Path) -> None:
    file = tmp_path / "tokenizer.json"
    zoo.build("anchor").save(str(file))
    result = command("verify", str(file), "--seconds", "0", "--quarantine", str(tmp_path))
    assert result.exit_code == 0, result.output
    assert "Sessions encode in full" in result.output
    assert command("verify", str(file), "--seconds", "0", "--exhaustive", "2").exit_code == 2


def test_a_difference_that_cannot_be_saved_is_shown_all_the_same(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    plant(FAULTS["substituted"], monkeypatch)
    result = verify(tmp_path / "file" / "folder")
    assert result.exit_code == 1, result.output
    assert "cannot be saved" in result.stderr
    assert "DIFFERENT: memo" in result.stdout
    assert "saved to" not in result.stdout


def test_reproduce_says_what_is_not_as_it_was(tmp_path: pathlib.Path) -> None:
    found = Reproduction.of(MINI, "memo", [encode("text")], Problem(1, Kind.ENCODE, "was wrong"))
    found.versions["tokenizers"] = "0.0.1"
    file = found.save(tmp_path)
    result = command("reproduce", str(file), "--tokenizer", "toktier-mini")
    assert result.exit_code == 0
    assert "tokenizers 0.0.1 then" in result.output
    assert "was wrong" in result.output


def test_reproduce_says_what_cannot_be_told(tmp_path: pathlib.Path) -> None:
    problem = Problem(1, Kind.ENCODE, "was wrong")
    file = verification.not_made_again(MINI, "memo", [encode("text")], problem).save(tmp_path)
    result = command("reproduce", str(file))
    assert result.exit_code == 2
    assert "which says nothing" in result.output
    other = tmp_path / "tokenizer.json"
    zoo.build("gpt4").save(str(other))
    result = command("reproduce", str(file), "--tokenizer", str(other))
    assert result.exit_code == 2
    assert f"is of tokenizer {MINI.family.digest[:12]}" in result.output


def test_reproduce_refuses_what_is_no_reproduction(tmp_path: pathlib.Path) -> None:
    file = tmp_path / "other.json"
    file.write_text("{}")
    result = command("reproduce", str(file))
    assert result.exit_code == 2
    assert "not a reproduction" in result.output


def test_the_table_fits_a_terminal() -> None:
    campaign = Campaign(MINI, ["Some text."], ["memo", "reference"])
    for counts in campaign.counts.values():
        counts.update(texts=999_999, characters=99_999_999, cuts=9_999_999, programs=99_999, operations=999_999)
    outcome = report.Outcome("source", "digest", 0, 1.0, campaign.counts, campaign.fallen_back, {})
    with io.StringIO() as stream:
        Console(width=80, file=stream).print(report.table(outcome))
        assert "799,999,992" in stream.getvalue()
        assert "…" not in stream.getvalue()


def test_what_was_checked_before_ctrl_c_is_printed(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def steps(self: Campaign, seconds: float) -> Iterator[str]:
        yield "one"
        raise KeyboardInterrupt

    monkeypatch.setattr(Campaign, "steps", steps)
    numbers = tmp_path / "numbers.json"
    result = verify(tmp_path / "none", "--engine", "memo", "--json", str(numbers))
    assert result.exit_code == 130
    assert "stopped before its time was up" in result.output
    assert json.loads(numbers.read_text())["stopped"] is True


def test_a_difference_is_shown_if_ctrl_c_comes_while_it_is_made_smaller(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*arguments: object) -> None:
        raise KeyboardInterrupt

    plant(FAULTS["substituted"], monkeypatch)
    monkeypatch.setattr(Campaign, "_smallest", interrupted)
    result = verify(tmp_path / "kept", "--engine", "memo")
    assert result.exit_code == 1, result.output
    assert "DIFFERENT: memo" in result.output
    assert saved(tmp_path / "kept").is_file()


def test_it_says_how_much_of_the_files_there_was_no_time_for(tmp_path: pathlib.Path) -> None:
    text = tmp_path / "text"
    text.write_text("Some text of mine. " * 20_000, encoding="utf-8")
    result = verify(tmp_path / "none", str(text), "--seconds", "0", "--engine", "memo")
    assert result.exit_code == 0, result.output
    assert "17% of the files" in result.output


@pytest.mark.parametrize(("option", "value"), [("--seconds", "nan"), ("--seconds", "inf"), ("--quarantine", __file__)])
def test_arguments_are_looked_at_before_anything_is_checked(option: str, value: str, tmp_path: pathlib.Path) -> None:
    result = verify(tmp_path / "none", option, value)
    assert result.exit_code == 2
    assert option in result.output
