"""The commands ``toktier verify`` and ``toktier reproduce``."""

from __future__ import annotations

import json
import math
import pathlib
import sys
import time
from collections.abc import Sequence
from typing import IO

import click
from attrs import evolve
from rich.text import Text

from toktier import replay
from toktier.campaign import exhaustive, report
from toktier.campaign.reproduction import Reproduction, encodes_special_tokens, versions
from toktier.campaign.verification import ONLY_ONCE, Campaign, admitted, counterexample
from toktier.inspection import shown
from toktier.router import NAMES
from toktier.terminal import INTERRUPTED, Failure, comparisons_printed, load, plain_console, read, with_pattern
from toktier.tokenizer import Tokenizer

CHARACTERS = 1_000_000
"""Of the text that is taken when no files are given."""

QUARANTINE = "toktier-reproductions"


@click.command(short_help="Look for a difference from the reference.")
@click.argument("source")
@click.argument("files", nargs=-1)
@click.option("--seconds", default=60.0, show_default=True, type=click.FloatRange(0), help="For how long to check.")
@click.option("--seed", default=0, show_default=True, help="Another one gives other texts and programs.")
@click.option("--engine", "engines", multiple=True, type=click.Choice(NAMES), help="Check this one; may be repeated.")
@click.option("--quarantine", default=QUARANTINE, show_default=True, metavar="DIR", help="Save a difference there.")
@click.option(
    "--exhaustive",
    "length",
    is_flag=False,
    flag_value=0,
    type=click.IntRange(0),
    metavar="[L]",
    help="Also cut every string of up to L atoms; 0, or nothing at the end of the line: as many as minutes allow.",
)
@click.option("--json", "as_json", type=click.File("w", lazy=False), help="Write everything there.")
@with_pattern
def verify(
    source: str,
    files: Sequence[str],
    *,
    seconds: float,
    seed: int,
    engines: Sequence[str],
    quarantine: str,
    length: int | None,
    as_json: IO[str] | None,
    pattern: str | None,
) -> None:
    """Look for a text or an operation for which the ids are not those of the reference.

    Checks the tokenizer's relation and engines with adversarial texts made from its own atoms and added tokens, with
    FILES (UTF-8; without any, with the text of the demo), and with sessions led through random operations. All of
    them take turns until the time is up, one turn at least. Engines that were never compared with the reference on
    this machine are compared before that, ten to twenty seconds each, which is not part of --seconds.

    In the table, what fell back are texts that an engine left to the reference: their ids are right, and took longer.

    The first difference is made as small as it can be, and saved together with the tokenizer, to be replayed by
    toktier reproduce. The exit status is then 1. After Ctrl-C it is 130, and what was checked so far is printed.
    The time of --exhaustive comes on top.

    \b
    Examples:
      toktier verify path/to/tokenizer.json transcripts/*.txt
      toktier verify toktier-mini --seconds 10 --engine gigatoken
      toktier verify path/to/tokenizer.json --seconds 600 --seed 1 --json verified.json
      toktier verify toktier-mini --exhaustive 3
    """  # noqa: D301
    if not math.isfinite(seconds):
        raise click.UsageError("--seconds: give a number of seconds")
    if pathlib.Path(quarantine).exists() and not pathlib.Path(quarantine).is_dir():
        raise click.UsageError(f"--quarantine: {quarantine} is no folder")
    texts = [text for file in files if (text := read(file))] if files else [replay.library_text(CHARACTERS)]
    if not texts:
        raise click.UsageError(f"there is no text in {', '.join(files)}")
    if length == 1:
        raise click.UsageError("--exhaustive: a string can be cut from 2 characters on, so give 2 or more")
    tok = load(source, pattern)
    if length is not None and not tok.family.supported:
        raise Failure(f"--exhaustive: there are no certified cuts, since {tok.family.reason}")
    with comparisons_printed():
        names, left_out = (list(engines), dict[str, str]()) if engines else admitted(tok)
        campaign = Campaign(tok, texts, names, seed)
    outcome = _checked(source, tok, campaign, seconds=seconds, seed=seed, quarantine=quarantine)
    outcome = evolve(outcome, left_out=left_out, given=sum(map(len, texts)))
    if length is not None and outcome.difference is None and not outcome.stopped:
        outcome = _enumerated(outcome, tok, length, quarantine)
    _print(outcome, tok)
    if as_json:
        print(json.dumps(report.as_json(outcome), indent=2), file=as_json)
    sys.exit(1 if outcome.difference is not None else INTERRUPTED if outcome.stopped else 0)


def _checked(
    source: str, tok: Tokenizer, campaign: Campaign, *, seconds: float, seed: int, quarantine: str
) -> report.Outcome:
    began = time.monotonic()
    stopped = not report.watched(campaign, seconds)
    took, digest = time.monotonic() - began, tok.family.digest
    outcome = report.Outcome(source, digest, seed, took, campaign.counts, campaign.fallen_back, {}, stopped=stopped)
    return outcome if campaign.difference is None else _saved(outcome, campaign.difference, quarantine)


def _enumerated(outcome: report.Outcome, tok: Tokenizer, length: int, quarantine: str) -> report.Outcome:
    try:
        found = report.enumerated(lambda proceed: exhaustive.enumerate_strings(tok, length or None, proceed=proceed))
    except KeyboardInterrupt:
        return evolve(outcome, stopped=True)
    outcome = evolve(outcome, enumeration=found)
    for failure in reversed(found.failures):  # the shortest is the one that is shown
        difference = counterexample(tok, failure.text, failure.expected, failure.got)
        outcome = _saved(outcome, difference, quarantine)
    return outcome


def _saved(outcome: report.Outcome, difference: Reproduction, quarantine: str) -> report.Outcome:
    try:
        file = difference.save(quarantine)
    except OSError as error:
        click.echo(shown(f"the difference cannot be saved: {error}"), err=True)
        file = None
    return evolve(outcome, difference=_described(difference), file=file)


def _described(difference: Reproduction) -> str:
    return f"{difference.engine or report.RELATION}: {difference.message}"


def _print(outcome: report.Outcome, tok: Tokenizer) -> None:
    console = plain_console()
    console.print(report.table(outcome))
    if outcome.enumeration:
        console.print(report.enumeration_table(outcome.enumeration))
        console.print(report.left_on_the_table(outcome.enumeration))
    for name, why in outcome.left_out.items():
        console.print(shown(f"{name} left out: {why}"))
    if not tok.family.supported:
        console.print(shown(f"Sessions encode in full, as there are no certified cuts: {tok.family.reason}"))
    style = "green" if outcome.difference is None else "bold red"
    console.print(Text(report.summary(outcome), style), soft_wrap=True)


@click.command(short_help="Replay a difference that was saved.")
@click.argument("file")
@click.option("--tokenizer", "source", metavar="SOURCE", help="The tokenizer.  [default: the one saved beside FILE]")
def reproduce(file: str, source: str | None) -> None:
    """Replay a difference that was saved, and say whether there is one still.

    It is replayed with a new engine, which has seen nothing, and compared with the reference again. The exit status is
    1 if it still differs, 0 if not, and 2 if that cannot be told: the tokenizer is another one, or the difference
    did not come up again right after it was found either.

    \b
    Examples:
      toktier reproduce toktier-reproductions/reproduction-0123456789ab-0123456789abcdef.json
      toktier reproduce reproduction-0123456789ab-0123456789abcdef.json --tokenizer tokenizer.json
    """  # noqa: D301
    reproduction = Reproduction.load(file)
    tok = load(source) if source else reproduction.load_tokenizer(pathlib.Path(file).parent)
    if tok.family.digest != reproduction.digest:
        other = source or "the definition saved beside it"
        raise Failure(f"{file} is of tokenizer {reproduction.digest[:12]}, and {other} is {tok.family.digest[:12]}")
    console = plain_console()
    for line in _circumstances(reproduction, tok):
        console.print(shown(line), soft_wrap=True)
    problem = reproduction.replay(tok)
    console.print(shown(f"then  {_described(reproduction)}"), soft_wrap=True)
    if problem is None and reproduction.message.endswith(ONLY_ONCE):
        raise Failure("no difference now, which says nothing: there was none either when it was done again then")
    if problem is None:
        console.print(Text("now   no difference from the reference", "green"))
        return
    console.print(Text(shown(f"now   {problem}"), "bold red"), soft_wrap=True)
    sys.exit(1)


def _circumstances(reproduction: Reproduction, tok: Tokenizer) -> list[str]:
    """What is not as it was."""
    now = versions()
    found = [
        f"{name} {version or 'not installed'} then, {now.get(name) or 'not installed'} now"
        for name, version in reproduction.versions.items()
        if version != now.get(name)
    ]
    if reproduction.encode_special_tokens != encodes_special_tokens(tok):
        found.append("special tokens are encoded as text now, or were then")
    return found
