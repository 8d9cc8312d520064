"""The command line: ``toktier inspect``, ``encode``, ``view``, ``verify``, ``demo`` and ``bench``; where all begin."""

from __future__ import annotations

import io
import json
import shlex
import sys
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import IO, Any, NoReturn

from attrs import asdict

import toktier
from toktier import replay
from toktier.errors import ToktierError
from toktier.router import GPU
from toktier.tokenizer import Tokenizer

try:
    import click
    from click.core import ParameterSource
    from rich.text import Text

    from toktier.bench import measuring, plan, plot, report, serve_report, serving
    from toktier.campaign.commands import reproduce, verify
    from toktier.inspection import inspection, overview, relation, shown, visible
    from toktier.terminal import (
        INTERRUPTED,
        Failure,
        comparisons_printed,
        load,
        plain_console,
        read,
        with_pattern,
        with_tokenizer,
    )
    from toktier.view.command import view
except ModuleNotFoundError as missing:
    package = str(missing.name).partition(".")[0]
    print(f"the command line needs the package {package}: pip install click rich", file=sys.stderr)
    raise SystemExit(2) from None


class Commands(click.Group):
    """A group whose commands fail with one line in place of a traceback."""

    def invoke(self, ctx: click.Context) -> Any:
        """Runs a command, as the base class does."""
        for stream in (sys.stdout, sys.stderr):
            if isinstance(stream, io.TextIOWrapper):
                stream.reconfigure(errors="backslashreplace")  # for terminals that cannot show everything
        try:
            return super().invoke(ctx)
        except BrokenPipeError:
            raise  # the reader of a pipe has seen enough, which click knows how to take
        except (KeyboardInterrupt, click.Abort):
            click.echo("Stopped.", err=True)
            ctx.exit(INTERRUPTED)  # 1 means that ids differ
        except ToktierError as error:
            raise Failure(str(error)) from error
        except OSError as error:
            raise Failure(f"{error.filename}: {error.strerror}" if error.filename else str(error)) from error


MOST_SHOWN = 100
"""Atoms of a relation that is printed whole."""


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(toktier.__version__, prog_name="toktier")
def main() -> None:
    """Exact stateful tokenization: re-encode what changed, get the ids of a full encode.

    SOURCE is a tokenizer.json, a directory with one, a rank file of tiktoken, the id of a repository on the
    Hugging Face hub, or the bundled toktier-mini.

    \b
    Where to begin:
      toktier demo                      what it is good for, on this machine
      toktier inspect tokenizer.json    whether your tokenizer is supported, and if not, why
      toktier verify tokenizer.json     whether any id differs, on your own machine and texts
      toktier view toktier-mini FILE    the tokens of a text and its cuts, as a page to look at
    """  # noqa: D301


main.add_command(verify)
main.add_command(reproduce)
main.add_command(view)


@main.command(short_help="Show what a tokenizer is, and where texts may be cut.")
@click.argument("source")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object, with the cuts of every atom.")
@click.option(
    "--compare",
    is_flag=True,
    help="Compare engines with the reference first, ten to twenty seconds each, if not done yet.",
)
@with_pattern
def inspect(source: str, as_json: bool, compare: bool, pattern: str | None) -> None:
    """Show what a tokenizer is, and where its texts may be cut.

    A text may be cut between two characters when its ids are always those of the left part followed by
    those of the right part. Which pairs of characters allow that follows from the tokenizer's definition.

    SOURCE is a tokenizer.json, a directory with one, a rank file, the id of a repository on the Hugging Face
    hub, or toktier-mini. Of its engines, the one marked as used is the fastest that is known to be exact.

    \b
    Examples:
      toktier inspect toktier-mini
      toktier inspect path/to/tokenizer.json
      toktier inspect toktier-mini --json | jq .sync_pairs
      toktier inspect toktier-mini --compare
      toktier inspect qwen.tiktoken --pattern qwen
    """  # noqa: D301
    tok = load(source, pattern)
    with comparisons_printed():
        report = tok.report(compare=compare)
    if as_json:
        click.echo(json.dumps(inspection(tok, report)))
        return
    console = plain_console()
    console.print(overview(source, tok, report))
    if tok.family.supported:
        if tok.family.atoms > MOST_SHOWN:
            console.print("\nToo much to be shown: --json has it, and toktier encode --cuts the cuts of a text.")
            return
        console.print("\n✓  every text may be cut between the character on the left and the one on top")
        console.print("+  so many more characters are alike\n")
        console.print(*relation(tok.family, console.width), sep="\n\n")


@main.command(short_help="Print the ids or the pieces of a text.")
@click.argument("source")
@click.argument("text", required=False)
@click.option("--file", "-f", metavar="FILE", help="Read the text from this file, UTF-8.")
@click.option(
    "--ids/--pieces",
    "as_ids",
    default=True,
    show_default=True,
    help="Print ids, or each piece of the text with its ids.",
)
@click.option("--cuts", is_flag=True, help="Begin a new line, with --pieces a new paragraph, at each certified cut.")
@click.option("--add-special-tokens", is_flag=True, help="Apply the tokenizer's post-processor: BOS, EOS, template.")
@with_pattern
def encode(
    source: str,
    text: str | None,
    *,
    file: str | None,
    as_ids: bool,
    cuts: bool,
    add_special_tokens: bool,
    pattern: str | None,
) -> None:
    """Encode TEXT, a file, or what comes in on the standard input (no TEXT, or -).

    The text is taken as it is: a line break at its end counts. Pieces show a space as ␣. SOURCE is a
    tokenizer.json, a directory with one, a rank file, the id of a repository on the Hugging Face hub, or
    toktier-mini.

    \b
    Examples:
      toktier encode toktier-mini "Hello world"
      toktier encode toktier-mini "Hello world" --pieces --cuts
      toktier encode tokenizer.json --file README.md | wc -w
      git diff | toktier encode toktier-mini
    """  # noqa: D301
    if text is not None and file is not None:
        raise click.UsageError("give either TEXT or --file")
    if cuts and add_special_tokens:
        raise click.UsageError("--add-special-tokens is for a whole text, --cuts for its parts: give one of them")
    tok = load(source, pattern)
    text = read(file) if text is None or text == "-" else text
    if add_special_tokens:
        parts = [tok.encode(text, add_special_tokens=True)]
    else:
        edges = [0, *(tok.family.cuts(text, continuation=True).tolist() if cuts else ()), len(text)]
        parts = tok.planner.encode_parts([text[i:j] for i, j in pairwise(edges)], tok.engine(), continuation=False)
    if cuts and not tok.family.supported:
        click.echo(shown(f"No certified cuts: {tok.family.reason}"), err=True)
    step = tok.reference.stream()
    for number, ids in enumerate(part.tolist() for part in parts):
        if as_ids:
            click.echo(" ".join(map(str, ids)))
            continue
        if number:
            click.echo()
        for members, piece in pieces(tok, ids, step):
            click.echo(f"{' '.join(map(str, members)):>8}  {visible(piece)}")


def pieces(tok: Tokenizer, ids: Sequence[int], step: Callable[[int], str | None]) -> list[tuple[list[int], str]]:
    """Ids with their texts, by what takes one after the other; several where a character is divided among them."""
    found: list[tuple[list[int], str]] = []
    waiting: list[int] = []
    for id in ids:
        waiting.append(id)
        if (piece := step(id)) is not None:
            found.append((waiting, piece))
            waiting = []
    return [*found, (waiting, tok.decode(waiting, skip_special_tokens=False))] if waiting else found


@main.command(short_help="Replay an agent session, and check every turn.")
@with_tokenizer
@click.option("--session", "file", metavar="FILE", help="Replay the sessions of this JSONL file.")
@click.option(
    "--characters",
    type=click.IntRange(min=1),
    help=f"Stop when the text of a session is that long.  [default: {replay.CHARACTERS}; with --session: its end]",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object; times are in seconds.")
@with_pattern
def demo(source: str, *, file: str | None, characters: int | None, as_json: bool, pattern: str | None) -> None:
    """Replay a coding-agent session, and check every turn against a full encode.

    Each turn, the transcript gains an answer and a tool result, and the ids of all of it are needed. Turns
    alternate between session.append, for a front end that knows what is new, and session.update, for one
    that renders everything again and replaces the prompt of the turn before by the answer. The times
    include bringing the front end's list of ids up to date. Between any two turns the reference encodes the
    whole text, so a session never finds its data in the processor's caches.

    Without --session, the agent reads its way through Python's standard library. A line of FILE is one
    session: {"messages": [{"role": "user", "content": "Hi"}, ...]}.

    The exit status is 1 if the ids of any turn are not exactly those of the full encode.

    \b
    Examples:
      toktier demo
      toktier demo --tokenizer path/to/tokenizer.json --characters 1000000
      toktier demo --session transcripts.jsonl --json | jq .mismatches
    """  # noqa: D301
    tok = load(source, pattern)
    sessions = replay.sessions(file, characters)
    turns = replay.watched(tok, sessions)
    rows = replay.summarize(turns)
    mismatches, engines = sum(row.mismatches for row in rows), sorted({turn.engine for turn in turns})
    if as_json:
        facts = {"tokenizer": source, "digest": tok.family.digest, "reason": tok.family.reason, "engines": engines}
        numbers = {"sessions": len(sessions), "turns": len(turns), "mismatches": mismatches}
        click.echo(json.dumps(facts | numbers | {"rows": [asdict(row) for row in rows]}))
    else:
        console = plain_console()
        console.print(replay.measurements(rows))
        differ = f"{mismatches} of {len(turns)} turns differ from a full encode: please report this."
        same = f"{len(turns)} turns, each with exactly the ids of a full encode, by {' and '.join(engines)}."
        console.print(Text(differ, "bold red") if mismatches else Text(same, "green"))
        reasons = tok.report().engines.items()
        if waiting := [name for name, why in reasons if why.startswith("not compared") and name != GPU]:
            told = [source, "--compare", *(("--pattern", pattern) if pattern else ())]
            console.print(shown(f"Faster, once compared ({' and '.join(waiting)}): toktier inspect {shlex.join(told)}"))
        if not tok.family.supported:
            console.print(shown(f"Every turn was a full encode, as there are no certified cuts: {tok.family.reason}"))
    sys.exit(1 if mismatches else 0)


@main.group(invoke_without_command=True, short_help="Measure sessions beside full encodes.")
@with_tokenizer
@click.option("--text", "file", metavar="FILE", help="Measure on this text, UTF-8.  [default: as in the demo]")
@click.option("--quick", is_flag=True, help="A first look in under a minute: contexts up to a million characters.")
@click.option("--json", "as_json", type=click.File("w", lazy=False), help="Write everything there; times in seconds.")
@click.option("--plot", "as_plot", type=click.File("w", "utf-8", lazy=False), help="Draw a plot there, SVG.")
@with_pattern
@click.pass_context
def bench(
    context: click.Context,
    *,
    source: str,
    file: str | None,
    quick: bool,
    as_json: IO[str] | None,
    as_plot: IO[str] | None,
    pattern: str | None,
) -> None:
    """Measure sessions with every engine beside the libraries that encode everything again.

    All in one process, in turns and on the same texts; no text is appended twice. The ids of every call are
    compared with those of the reference. Libraries that remember what they encoded are given each text once
    before they are timed. Without --quick it takes some minutes.

    The exit status is 1 if any ids of toktier differ from the reference's.

    \b
    Examples:
      toktier bench --quick
      toktier bench --tokenizer path/to/tokenizer.json --json bench.json --plot bench.svg
      toktier bench --text transcript.txt
      toktier bench serve --quick
    """  # noqa: D301
    if context.invoked_subcommand is not None:
        given = {name for name in context.params if context.get_parameter_source(name) == ParameterSource.COMMANDLINE}
        if given:
            raise click.UsageError(f"options go behind {context.invoked_subcommand}: toktier bench serve --help")
        return
    if as_plot:
        plot.new_figure(1, 1)  # before minutes are spent
    wanted = plan.QUICK if quick else plan.FULL
    text = replay.library_text(wanted.contexts[-1] + wanted.fresh) if file is None else read(file)
    measure(source, load(source, pattern), text, wanted, as_json=as_json, as_plot=as_plot)


@bench.command(short_help="Load front ends with the calls of coding agents.")
@with_tokenizer
@click.option("--sessions", default=100, show_default=True, type=click.IntRange(1), help="Live sessions.")
@click.option("--bursts", is_flag=True, help="Calls arrive in bursts, and not as a Poisson process.")
@click.option("--quick", is_flag=True, help="Shorter runs, and fewer of them.")
@click.option("--json", "as_json", type=click.File("w", lazy=False), help="Write everything there; times in seconds.")
@with_pattern
def serve(
    source: str, sessions: int, *, bursts: bool, quick: bool, as_json: IO[str] | None, pattern: str | None
) -> None:
    """Load front ends with the calls of coding agents: the store, and those that encode everything again.

    Looks for the highest rate at which one call in a hundred takes longer than 10 ms, and than 50 ms. The calls
    are sent when they are due, whatever became of those before, by a process of their own. One in twenty answers
    is compared with a full encode by the reference, at most 16 a run; the exit status is 1 if any differs.

    \b
    Examples:
      toktier bench serve --tokenizer path/to/tokenizer.json
      toktier bench serve --quick --bursts
    """  # noqa: D301
    text = replay.library_text(8_000_000)
    offer(source, load(source, pattern), text, sessions, bursts=bursts, quick=quick, as_json=as_json)


def offer(
    name: str, tok: Tokenizer, text: str, sessions: int, *, bursts: bool, quick: bool, as_json: IO[str] | None
) -> NoReturn:
    """Measures, prints and writes what ``bench serve`` promises."""
    trial = serving.Trial(tok, text, sessions, seconds=1.5 if quick else 4.0, bursts=bursts, steps=0 if quick else 2)
    measured = serve_report.watched(trial, 1 << 31)
    plain_console().print(*serve_report.tables(measured), sep="\n")
    if as_json:
        json.dump(serve_report.as_json(name, trial, measured), as_json, indent=2)
    sys.exit(1 if any(run.wrong for front_end in measured for run in front_end.runs) else 0)


def measure(
    name: str, tok: Tokenizer, text: str, wanted: plan.Plan, *, as_json: IO[str] | None, as_plot: IO[str] | None
) -> NoReturn:
    """Measures, prints and writes what ``bench`` promises."""
    result = report.watched(measuring.Bench(tok, text, wanted.fitted(len(text))))
    notes = report.notes(result, text, wanted)
    plain_console().print(*report.tables(result), *map(shown, notes), sep="\n")
    if as_json:
        json.dump(report.as_json(name, tok, text, result, notes), as_json, indent=2)
    if as_plot:
        plot.plot(result, name, as_plot)
    sys.exit(1 if result.mismatches else 0)


if __name__ == "__main__":
    main()
