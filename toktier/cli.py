"""The command line: ``toktier inspect``, ``toktier encode``, ``toktier demo`` and ``toktier bench``."""

from __future__ import annotations

import io
import json
import math
import pathlib
import sys
import unicodedata
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import IO, Any, NoReturn

import tokenizers
from attrs import asdict, frozen

import toktier
from toktier import replay
from toktier.bench import measuring, plan, plot, report
from toktier.errors import ToktierError
from toktier.families.definition import Literal
from toktier.families.family import Family
from toktier.tokenizer import Report, Tokenizer

try:
    import click
    from rich.cells import cell_len
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text
except ModuleNotFoundError as missing:
    package = str(missing.name).partition(".")[0]
    print(f"the command line needs the package {package}: pip install 'toktier[cli]'", file=sys.stderr)
    raise SystemExit(2) from None

FAMILIAR = "aZzé09½ \t\n\r_.,!'/<中あ한"
"""Characters that make good examples."""

ESCAPES = {" ": " ", "\t": "\\t", "\n": "\\n", "\r": "\\r"}
SURROGATES = range(0xD800, 0xE000)
PICTURES = {" ": "␣", "\t": "␉", "\n": "␊", "\v": "␋", "\f": "␌", "\r": "␍"}


class Failure(click.ClickException):
    """An error that the user can do something about: one line, exit status 2."""

    exit_code = 2

    def __init__(self, message: str) -> None:
        super().__init__(shown(" ".join(message.split())))


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
        except ToktierError as error:
            raise Failure(str(error)) from error
        except OSError as error:
            raise Failure(f"{error.filename}: {error.strerror}" if error.filename else str(error)) from error


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(toktier.__version__, prog_name="toktier")
def main() -> None:
    """Exact stateful tokenization: re-encode what changed, get the ids of a full encode.

    SOURCE is a tokenizer.json, a directory with one, the id of a repository on the Hugging Face hub, or
    the bundled toktier-mini.

    \b
    Where to begin:
      toktier demo                      what it is good for, on this machine
      toktier inspect tokenizer.json    whether your tokenizer is supported, and if not, why
    """  # noqa: D301


def plain_console() -> Console:
    """A console that prints a text as it is: what stands in a tokenizer's file is no markup."""
    return Console(markup=False, emoji=False, highlight=False)


@main.command()
@click.argument("source")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object, with the cuts of every atom.")
@click.option(
    "--compare", is_flag=True, help="Compare engines with the reference first, some seconds each, if not done yet."
)
def inspect(source: str, as_json: bool, compare: bool) -> None:
    """Show what a tokenizer is, and where its texts may be cut.

    A text may be cut between two characters when its ids are always those of the left part followed by
    those of the right part. Which pairs of characters allow that follows from the tokenizer's definition.

    \b
    Examples:
      toktier inspect toktier-mini
      toktier inspect path/to/tokenizer.json
      toktier inspect toktier-mini --json | jq .sync_pairs
      toktier inspect toktier-mini --compare
    """  # noqa: D301
    tok = toktier.load(source)
    report = tok.report(compare=compare)
    if as_json:
        click.echo(json.dumps(inspection(tok, report)))
        return
    console = plain_console()
    console.print(overview(source, tok, report))
    if tok.family.supported:
        console.print("\n✓  every text may be cut between the character on the left and the one on top")
        console.print("+  so many more characters are alike\n")
        console.print(*relation(tok.family, console.width), sep="\n\n")


def inspection(tok: Tokenizer, report: Report) -> dict[str, Any]:
    """Everything that ``inspect`` knows, for machines."""
    family = tok.family
    alphabet = family.alphabet() if family.supported else ()
    firsts = [chr(ranges[0].start) for ranges in alphabet]
    return asdict(report) | {
        "source_digest": family.source_digest,
        "literals": [asdict(literal) for literal in family.definition.literals],
        "alphabet": [
            {
                "examples": [one for one in examples(ranges) if ord(one) not in SURROGATES],
                "characters": sum(map(len, ranges)),
                "cut_before": [i for i, right in enumerate(firsts) if family.is_pair(left, right)],
            }
            for left, ranges in zip(firsts, alphabet, strict=True)
        ],
    }


def overview(source: str, tok: Tokenizer, report: Report) -> Table:
    """The report without the relation: names on the left, values on the right."""
    table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    table.add_row("tokenizer", shown(source))
    table.add_row("digest", report.digest)
    table.add_row("source digest", tok.family.source_digest)
    no = Text.assemble(("no: ", "bold red"), shown(report.reason or ""))
    table.add_row("supported", Text("yes", "bold green") if report.supported else no)
    for i, stage in enumerate(report.stages):
        table.add_row("" if i else "pipeline", shown(stage))
    table.add_row("added tokens", added_tokens(tok.family.definition.literals))
    for name, evidence in report.engines.items():
        used = " (used)" if name == report.auto else ""
        table.add_row("engine", shown(f"{name}{used}, {evidence}"))
    pairs = f"{report.sync_pairs:,} of {report.atoms**2:,} pairs are certified cuts"
    nothing = "no certified cuts: ids are exact all the same, and every call encodes in full"
    table.add_row("relation", f"{report.atoms} atoms, {pairs}" if report.supported else nothing)
    return table


def added_tokens(literals: Sequence[Literal]) -> str:
    """The number of added tokens, how many have each flag, and the first few."""
    flags = ("special", "normalized", "lstrip", "rstrip", "single_word")
    counted = [(sum(getattr(literal, flag) for literal in literals), flag) for flag in flags]
    numbers = [str(len(literals)), *(f"{number} {flag}" for number, flag in counted if number)]
    few = [visible(literal.content) for literal in literals[:6]]
    return "\n".join([", ".join(numbers), " ".join([*few, *["…"] * (len(literals) > len(few))])]).strip()


@frozen
class Kind:
    """Atoms that are alike in the whole relation, with a few examples, the best first."""

    characters: list[range]
    examples: list[str]

    @property
    def symbol(self) -> str:
        """A character that stands for all in a table, one or two cells wide."""
        pictures = (PICTURES.get(example, example) for example in self.examples)
        return next((picture for picture in pictures if plain(picture)), "◌")

    @property
    def order(self) -> tuple[int, int]:
        """Letters, then numbers, then whitespace, then punctuation, then what cannot be seen."""
        best = self.examples[0]
        category = "Z" if best.isspace() else unicodedata.category(best)[0]
        return {"L": 0, "N": 1, "Z": 2, "C": 4}.get(category, 3), ord(best)


def kinds(family: Family) -> list[Kind]:
    """The atoms of a family, those with equal rows and equal columns of the relation together.

    Without lone surrogates, which are in no text.
    """
    atoms = ([each for each in ranges if each.start not in SURROGATES] for ranges in family.alphabet())
    alphabet = [ranges for ranges in atoms if ranges]
    firsts = [chr(ranges[0].start) for ranges in alphabet]
    alike: dict[tuple[bool, ...], list[range]] = {}
    for character, ranges in zip(firsts, alphabet, strict=True):
        row = tuple(family.is_pair(character, other) for other in firsts)
        column = tuple(family.is_pair(other, character) for other in firsts)
        alike.setdefault(row + column, []).extend(ranges)
    return sorted((Kind(ranges, examples(ranges)) for ranges in alike.values()), key=lambda kind: kind.order)


def examples(ranges: Iterable[range]) -> list[str]:
    """Some characters of some ranges: those that everybody knows, then those that can be seen, then the others."""
    ranges = sorted(ranges, key=lambda each: each.start)
    found = [character for character in FAMILIAR if any(ord(character) in each for each in ranges)]
    found += sorted((chr(point) for each in ranges[:64] for point in each[:4]), key=lambda one: not plain(one))
    return list(dict.fromkeys(found))[:8]


def relation(family: Family, width: int) -> list[Table]:
    """The pairs as a table with a row for what may stand left of a cut and a column for what may stand right of it.

    Where the columns do not fit side by side, they are divided among several tables.
    """
    all_kinds = kinds(family)
    most = max(1, (width - 22) // 2)
    blocks = math.ceil(len(all_kinds) / most)
    size = math.ceil(len(all_kinds) / blocks)
    room = max(12, min(44, width - 6 - 2 * size))
    return [grid(family, all_kinds, all_kinds[start : start + size], room) for start in range(0, len(all_kinds), size)]


def grid(family: Family, lefts: Sequence[Kind], rights: Sequence[Kind], room: int) -> Table:
    """One table of the relation, with ``room`` cells for examples."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column()
    table.add_column("left ╲ right", width=room, no_wrap=True, style="dim", header_style="dim")
    symbols = (right.symbol for right in rights)
    table.add_column("".join(symbol + " " * (2 - cell_len(symbol)) for symbol in symbols), no_wrap=True)
    for left in lefts:
        marks = Text()
        for right in rights:
            marks.append(*(("✓ ", "green") if family.is_pair(left.examples[0], right.examples[0]) else ("· ", "dim")))
        table.add_row(Text(left.symbol, "bold"), listed(left, room), marks)
    return table


def listed(kind: Kind, room: int) -> str:
    """As many examples of a kind as there is room for, and how many more characters it has."""
    total = sum(map(len, kind.characters))
    text, count = "", 0
    for example in kind.examples:
        longer = f"{text} {visible(example)}".lstrip()
        rest = f" +{total - count - 1:,}" if total > count + 1 else ""
        if text and cell_len(longer + rest) > room:
            break
        text, count = longer, count + 1
    return f"{text} +{total - count:,}" if total > count else text


def plain(character: str) -> bool:
    """Whether a character can be shown as it is: it has a width, joins no other, and leaves the direction alone."""
    apart = unicodedata.category(character)[0] not in "CMZ" and cell_len(character) > 0
    return apart and unicodedata.bidirectional(character) not in ("R", "AL")


def shown(text: str) -> str:
    r"""A text in one line, with everything escaped that does not show itself: controls, combining marks, and the like.

    >>> shown("a\tb"), shown("e\u0301\x1b[0m"), shown("\u0301")
    ('a\\tb', 'e<U+0301><U+001B>[0m', 'U+0301')
    """
    if len(text) == 1 and not plain(text) and text not in ESCAPES:
        return f"U+{ord(text):04X}"
    return "".join(c if plain(c) else ESCAPES.get(c, f"<U+{ord(c):04X}>") for c in text)


def visible(text: str) -> str:
    """The same, with spaces that can be seen."""
    return shown(text).replace(" ", "␣")


@main.command()
@click.argument("source")
@click.argument("text", required=False)
@click.option("--file", "-f", help="Read the text from this file, UTF-8.")
@click.option("--ids/--pieces", "as_ids", default=True, help="Print ids, or each piece of the text with its ids.")
@click.option("--cuts", is_flag=True, help="Begin a new line, with --pieces a new paragraph, at each certified cut.")
@click.option("--add-special-tokens", is_flag=True, help="Apply the tokenizer's post-processor: BOS, EOS, template.")
def encode(
    source: str, text: str | None, *, file: str | None, as_ids: bool, cuts: bool, add_special_tokens: bool
) -> None:
    """Encode TEXT, a file, or what comes in on the standard input.

    The text is taken as it is: a line break at its end counts. Pieces show a space as ␣.

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
    tok = toktier.load(source)
    text = read(file) if text is None else text
    if add_special_tokens:
        parts = [tok.encode(text, add_special_tokens=True)]
    else:
        edges = [0, *(tok.family.cuts(text).tolist() if cuts else ()), len(text)]
        parts = tok.encode_batch([text[i:j] for i, j in pairwise(edges)])
    if cuts and not tok.family.supported:
        click.echo(shown(f"No certified cuts: {tok.family.reason}"), err=True)
    for number, ids in enumerate(part.tolist() for part in parts):
        if as_ids:
            click.echo(" ".join(map(str, ids)))
            continue
        if number:
            click.echo()
        for members, piece in pieces(tok, ids):
            click.echo(f"{' '.join(map(str, members)):>8}  {visible(piece)}")


def read(file: str | None) -> str:
    """The text of a file or of the standard input, with its line breaks as they are."""
    data = pathlib.Path(file).read_bytes() if file is not None else sys.stdin.buffer.read()
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise Failure(f"{file or 'standard input'}: not UTF-8: {error.reason} at byte {error.start}") from None


def pieces(tok: Tokenizer, ids: Sequence[int]) -> list[tuple[list[int], str]]:
    """Ids with their texts; several together where a character is divided among them."""
    tokenizer = replay.reference_of(tok)
    stream = tokenizers.decoders.DecodeStream(skip_special_tokens=False)
    found: list[tuple[list[int], str]] = []
    waiting: list[int] = []
    for id in ids:
        waiting.append(id)
        if (piece := stream.step(tokenizer, id)) is not None:
            found.append((waiting, piece))
            waiting = []
    return [*found, (waiting, tok.decode(waiting, skip_special_tokens=False))] if waiting else found


@main.command()
@click.option(
    "--tokenizer", "source", default="toktier-mini", show_default=True, metavar="SOURCE", help="Encode with this."
)
@click.option("--session", "file", metavar="FILE", help="Replay the sessions of this JSONL file.")
@click.option(
    "--characters",
    type=click.IntRange(min=1),
    help=f"Stop when the text of a session is that long.  [default: {replay.CHARACTERS}; with --session: its end]",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object; times are in seconds.")
def demo(source: str, file: str | None, characters: int | None, as_json: bool) -> None:
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
    tok = toktier.load(source)
    sessions = replay.sessions(file, characters)
    turns = replay.watched(tok, sessions)
    rows = replay.summarize(turns)
    mismatches = sum(row.mismatches for row in rows)
    if as_json:
        facts = {"tokenizer": source, "digest": tok.family.digest, "reason": tok.family.reason}
        numbers = {"sessions": len(sessions), "turns": len(turns), "mismatches": mismatches}
        click.echo(json.dumps(facts | numbers | {"rows": [asdict(row) for row in rows]}))
    else:
        console = plain_console()
        console.print(replay.measurements(rows))
        differ = f"{mismatches} of {len(turns)} turns differ from a full encode: please report this."
        same = f"{len(turns)} turns, each with exactly the ids of a full encode."
        console.print(Text(differ, "bold red") if mismatches else Text(same, "green"))
        if not tok.family.supported:
            console.print(shown(f"Every turn was a full encode, as there are no certified cuts: {tok.family.reason}"))
    sys.exit(1 if mismatches else 0)


@main.command()
@click.option(
    "--tokenizer", "source", default="toktier-mini", show_default=True, metavar="SOURCE", help="Encode with this."
)
@click.option("--text", "file", metavar="FILE", help="Measure on this text, UTF-8.  [default: as in the demo]")
@click.option("--quick", is_flag=True, help="A first look in under a minute: contexts up to a million characters.")
@click.option("--json", "as_json", type=click.File("w", lazy=False), help="Write everything there; times in seconds.")
@click.option("--plot", "as_plot", type=click.File("w", "utf-8", lazy=False), help="Draw a plot there, SVG.")
def bench(source: str, file: str | None, quick: bool, as_json: IO[str] | None, as_plot: IO[str] | None) -> None:
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
    """  # noqa: D301
    if as_plot:
        plot.new_figure(1, 1)  # before minutes are spent
    wanted = plan.QUICK if quick else plan.FULL
    text = plan.library_text(wanted.contexts[-1] + wanted.fresh) if file is None else read(file)
    measure(source, toktier.load(source), text, wanted, as_json=as_json, as_plot=as_plot)


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
