"""The command ``toktier view``."""

from __future__ import annotations

import pathlib
import webbrowser
from collections.abc import Sequence

import click

from toktier import load, replay
from toktier.inspection import shown
from toktier.terminal import read, with_pattern
from toktier.view.turns import Recording, replayed
from toktier.view.writing import page


@click.command()
@click.argument("source")
@click.argument("file", required=False)
@click.option("--session", "transcript", metavar="FILE", help="Replay the longest session of this JSONL file.")
@click.option("--output", "-o", default="view.html", show_default=True, metavar="FILE", help="Write the page there.")
@click.option("--open", "is_opened", is_flag=True, help="Open the page in the browser.")
@with_pattern
def view(
    source: str, file: str | None, *, transcript: str | None, output: str, is_opened: bool, pattern: str | None
) -> None:
    """Make a page that shows the tokens of FILE, or of what comes in on the standard input.

    The page is one file of HTML that needs no server and no network. It shows each token with its id, bytes and
    place, and the certified cuts. With --session it shows a coding-agent session after each turn, replayed as
    toktier demo does, and which ids each turn kept, encoded again and replaced.

    \b
    Examples:
      toktier view toktier-mini README.md --open
      toktier view path/to/tokenizer.json --session transcripts.jsonl --output session.html
      git diff | toktier view toktier-mini
    """  # noqa: D301
    if file is not None and transcript is not None:
        raise click.UsageError("give either FILE or --session")
    tok = load(source, pattern=pattern)
    if transcript is not None:
        recording = replayed(tok, max(replay.sessions(transcript), key=_characters))
    else:
        recording = Recording(tok)
        recording.append(read(file))
    written = page(recording, f"{transcript or file or 'standard input'}, {source}").encode()
    pathlib.Path(output).write_bytes(written)
    last = recording.turns[-1]
    turns = f"{len(recording.turns):,} turns, " if transcript is not None else ""
    size = f"{len(written) / 1e6:,.1f} MB"
    click.echo(shown(f"{output}: {turns}{last.characters:,} characters, {last.ids:,} ids, {size}"))
    if not tok.family.supported:
        click.echo(shown(f"No certified cuts: {tok.family.reason}"), err=True)
    if is_opened:
        webbrowser.open(pathlib.Path(output).absolute().as_uri())


def _characters(transcript: Sequence[replay.Request]) -> int:
    """About how long the text of a session becomes."""
    return sum(request.characters for request in transcript)
