"""The load of a front end: distributed as in the field, open-loop, and every answer can be found wrong."""

from __future__ import annotations

import asyncio
import json
import math
import pathlib
import time

import numpy as np
import pytest
from click.testing import CliRunner

from tests import material
from toktier import cli, replay
from toktier.bench import load as loads
from toktier.bench import serve_report, serving
from toktier.bench.load import Call, load
from toktier.bench.serving import LIMITS, FrontEnd, Run, Trial
from toktier.engines.base import Ids

MINI = material.load("toktier-mini")
SOURCE = replay.library_text(400_000)


def test_the_mixture_is_that_of_the_field() -> None:
    made = load(100.0, 40_000, sessions=2_000, available=8_000_000)
    lengths = {call.session: call.length for call in made.before}
    contexts = np.array(list(lengths.values()))
    assert 350_000 <= np.median(contexts) <= 500_000
    assert contexts.max() == 4_000_000
    versions = dict.fromkeys(lengths, 0)
    added, rebuilt = [], 0
    for call in made.calls:
        if call.version != versions[call.session]:
            rebuilt += 1
        else:
            added.append(call.length - lengths[call.session])
        lengths[call.session], versions[call.session] = call.length, call.version
    median, p90, p99 = np.quantile(added, (0.5, 0.9, 0.99))
    assert 1_300 <= median <= 1_500
    assert 7_000 <= p90 <= 14_000
    assert 34_000 <= p99 <= 42_000
    assert 0.02 <= rebuilt / len(made.calls) <= 0.03
    assert all(call.start + call.length <= 8_000_000 for call in made.calls)


@pytest.mark.parametrize("bursts", [False, True])
def test_calls_arrive_at_the_rate_and_are_the_same_for_the_same_seed(bursts: bool) -> None:
    one = load(200.0, 4_000, sessions=50, available=1_000_000, bursts=bursts)
    assert one == load(200.0, 4_000, sessions=50, available=1_000_000, bursts=bursts)
    assert one != load(200.0, 4_000, sessions=50, available=1_000_000, bursts=bursts, seed=1)
    times = [call.at for call in one.calls]
    assert times == sorted(times)
    assert times[-1] == pytest.approx(20.0, rel=0.1)
    gaps = np.diff(times)
    assert (gaps.std() / gaps.mean() > 1.5) == bursts


def test_sessions_make_runs_of_calls_with_pauses_between() -> None:
    made = load(100.0, 5_000, sessions=100, available=1_000_000)
    order = [call.session for call in made.calls]
    gaps = [j - i for i, j in zip(range(len(order)), range(1, len(order)), strict=False) if order[i] == order[j]]
    assert len({*order}) > 80
    assert len(gaps) < len(order) / 2


def trial(**options: float) -> Trial:
    return Trial(MINI, SOURCE, sessions=4, seconds=options.get("seconds", 0.5), steps=1)


async def right(text: str, session: str) -> Ids:
    return MINI.engine("memo").encode(text)


def test_right_answers_are_checked_and_wrong_ones_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serving, "CHECKED", 0.5)
    monkeypatch.setattr(serving, "LIMITS", (0.01, 10.0))  # so that no run is given up on a busy machine

    async def wrong(text: str, session: str) -> Ids:
        ids = MINI.engine("memo").encode(text).copy()
        ids[len(ids) // 2] ^= 1
        return ids

    for answer, is_right in ((right, True), (wrong, False)):
        front_end = FrontEnd("some", answer, remembers=True)
        run = trial().run(front_end, 20.0)
        assert front_end.runs == [run]
        assert run.calls == serving.FEWEST
        assert run.checked > 10
        assert run.wrong == (0 if is_right else run.checked)
        assert 0 < run.p50 <= run.p99


def test_a_front_end_that_stalls_makes_all_wait_that_were_due(monkeypatch: pytest.MonkeyPatch) -> None:
    """Were latencies counted from when a call is begun, one stall would be one slow call."""
    monkeypatch.setattr(serving, "CHECKED", 0.0)
    answered = 0

    async def stalls(text: str, session: str) -> Ids:
        nonlocal answered
        answered += 1
        if answered == 20:
            time.sleep(0.3)  # the event loop, too
        return np.zeros(1, np.uint32)

    run = trial().run(FrontEnd("stalls", stalls, remembers=False), 100.0)
    assert run.p50 > 0.001
    assert run.p99 > 0.25


def test_no_two_calls_of_a_session_are_in_flight(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serving, "CHECKED", 0.0)
    running: set[str] = set()
    together = 0

    async def slow(text: str, session: str) -> Ids:
        nonlocal together
        assert session not in running
        running.add(session)
        together = max(together, len(running))
        await asyncio.sleep(0.02)
        running.remove(session)
        return np.zeros(1, np.uint32)

    run = trial().run(FrontEnd("slow", slow, remembers=False), 100.0)
    assert math.isfinite(run.p99)
    assert together > 1


def test_a_front_end_that_falls_behind_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loads, "PATIENCE", 0.0)

    async def never(text: str, session: str) -> Ids:
        await asyncio.sleep(60)
        return np.zeros(1, np.uint32)

    start = time.monotonic()
    run = trial().run(FrontEnd("never", never, remembers=False), 1_000.0)
    assert math.isinf(run.p99)
    assert time.monotonic() - start < 30


def test_the_highest_rate_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def run(self: Trial, front_end: FrontEnd, rate: float) -> Run:
        latency = 0.001 / (1 - rate / 130) if rate < 130 else math.inf
        front_end.runs.append(Run(rate, 50, latency, latency, 0, 0))
        return front_end.runs[-1]

    async def at_once(text: str, session: str) -> Ids:
        return np.zeros(1, np.uint32)

    monkeypatch.setattr(Trial, "run", run)
    for first in (8.0, 2_000.0):
        front_end = FrontEnd("synthetic", at_once, remembers=False)
        searched = Trial(MINI, SOURCE, sessions=2, steps=8)
        list(searched.search(front_end, first))
        assert front_end.highest(LIMITS[0]) == pytest.approx(130 * (1 - 1 / 10), rel=0.03)
        assert front_end.highest(LIMITS[1]) == pytest.approx(130 * (1 - 1 / 50), rel=0.03)


def test_what_is_too_slow_without_any_load_is_put_to_none(monkeypatch: pytest.MonkeyPatch) -> None:
    rates: list[float] = []

    def run(self: Trial, front_end: FrontEnd, rate: float) -> None:
        rates.append(rate)
        front_end.runs.append(Run(rate, 50, 1.0, 1.0, 0, 0))

    monkeypatch.setattr(Trial, "run", run)

    async def takes(text: str, session: str) -> Ids:
        await asyncio.sleep(0.06)
        return np.zeros(1, np.uint32)

    hopeless = FrontEnd("hopeless", takes, remembers=False)
    list(trial().search(hopeless, 8.0))
    assert not rates
    assert 0.05 < hopeless.alone < 1
    assert [hopeless.highest(limit) for limit in LIMITS] == [0.0, 0.0]
    monkeypatch.setattr(serving, "LIMITS", (0.01, 0.5))
    list(trial().search(FrontEnd("slow", takes, remembers=False), 8.0))
    assert rates


def test_a_load_that_is_gone_ends_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a glance at it, the front end would wait for ever."""
    monkeypatch.setattr(serving, "GLANCE", 10)
    monkeypatch.setattr(serving, "generate", math.isfinite)  # raises in the other process
    with pytest.raises(RuntimeError, match="exit status 1"):
        trial().run(FrontEnd("some", right, remembers=False), 20.0)


def test_the_command_prints_and_writes_what_was_measured(
    monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path
) -> None:
    runs = [Run(8.0, 50, 0.001, 0.009, 3, 0), Run(16.0, 50, math.inf, math.inf, 2, 0)]
    front_end = FrontEnd("store", right, remembers=True, runs=runs)
    monkeypatch.setattr(serve_report, "watched", lambda trial, max_bytes: [front_end])
    monkeypatch.setattr(replay, "library_text", lambda length: SOURCE)
    file = tmp_path / "out.json"
    result = CliRunner().invoke(cli.main, ["bench", "serve", "--json", str(file)], env={"COLUMNS": "100"})
    assert result.exit_code == 0, result.output
    assert "given up" in result.output
    written = json.loads(file.read_text(encoding="utf-8"))
    assert written["front_ends"][0]["highest"] == {"0.01": 8.0, "0.05": 8.0}
    assert written["front_ends"][0]["runs"][1]["p99"] is None
    front_end.runs.append(Run(4.0, 50, 0.001, 0.002, 3, 1))
    assert CliRunner().invoke(cli.main, ["bench", "serve"]).exit_code == 1


def test_the_text_of_a_call_is_its_own() -> None:
    call = Call(0.0, 3, 1, 10, 20)
    assert call.text(SOURCE) == SOURCE[10:30]
    assert call.text(SOURCE) is not call.text(SOURCE)
    assert call.name == "session 3"
