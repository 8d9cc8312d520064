"""The command ``toktier view``."""

from __future__ import annotations

import os
import pathlib
import sys
import webbrowser
from collections.abc import Sequence

import click

from toktier import replay
from toktier.chat import ChatTemplate
from toktier.errors import InvalidTranscript, ToktierError
from toktier.inspection import shown
from toktier.terminal import load, read, with_pattern, without_folder
from toktier.tokenizer import Tokenizer
from toktier.untrusted import Special
from toktier.view.chats import conversations, conversed
from toktier.view.turns import Recording, replayed
from toktier.view.writing import page


@click.command(short_help="Make a page of the tokens of a text or a session.")
@click.argument("source")
@click.argument("file", required=False)
@click.option("--session", "transcript", metavar="FILE", help="Replay the longest session of this JSONL file.")
@click.option(
    "--template",
    metavar="PATH",
    help="Render the session with this chat template: a model's directory, or a file. [default: as ChatML]",
)
@click.option(
    "--special",
    type=click.Choice(["token", "text"]),
    default="token",
    show_default=True,
    help="What special tokens are in FILE, or in the messages of the session: tokens, or text.",
)
@click.option(
    "--output",
    "-o",
    default="view.html",
    show_default=True,
    metavar="FILE",
    help="Write the page there; - is the standard output.",
)
@click.option("--open", "is_opened", is_flag=True, help="Open the page in the browser.")
@with_pattern
def view(
    source: str,
    file: str | None,
    *,
    transcript: str | None,
    template: str | None,
    special: Special,
    output: str,
    is_opened: bool,
    pattern: str | None,
) -> None:
    """Make a page that shows the tokens of FILE, or of what comes in on the standard input (no FILE, or -).

    The page is one file of HTML that needs no server and no network. It shows each token with its id, bytes and
    place, and the certified cuts; its own help tells the keys and the signs. FILE is UTF-8.

    SOURCE is a tokenizer.json, a directory with one, a rank file, the id of a repository on the Hugging Face
    hub, or toktier-mini.

    With --session it shows a conversation each time the model is called, and which ids each call kept, encoded again
    and replaced. Each line of the file is {"messages": [{"role": "user", "content": "Hi"}, ...]}. It is rendered as
    ChatML, and appends and updates take turns, as in toktier demo; with --template as the model renders it, "tools" of
    the line included.

    With --special text nothing in FILE, or in the messages, is trusted: the page shows where somebody wrote a special
    token that is text now. What the template itself writes counts.

    \b
    Examples:
      toktier view toktier-mini README.md --open
      toktier view path/to/tokenizer.json --session transcripts.jsonl --output session.html
      toktier view path/to/model --session transcripts.jsonl --template path/to/model --special text
      git diff | toktier view toktier-mini
    """  # noqa: D301
    if file is not None and transcript is not None:
        raise click.UsageError("give either FILE or --session")
    if template is not None and transcript is None:
        raise click.UsageError("--template renders messages: give a file of them with --session")
    if transcript is not None and template is None and special == "text":
        raise click.UsageError("--special text needs --template, which tells what is whose in a session")
    if output != "-" and any(_is_same(output, given) for given in (file, transcript, template, source)):
        raise click.UsageError(f"--output: {output} is what is read: give another name")
    tok = load(source, pattern)
    file = None if file == "-" else file
    if transcript is None:
        recording = Recording(tok)
        recording.append(read(file), special=special)
    elif template is None:
        recording = replayed(tok, max(replay.sessions(transcript), key=_characters))
    else:
        recording = _conversed(tok, template, transcript, special)
    # Where files lie is nobody's business to whom the page is sent.
    title = f"{without_folder(transcript or file or 'standard input')}, {without_folder(source)}"
    written = page(recording, title).encode()
    to_stdout = output == "-"
    if to_stdout:
        sys.stdout.buffer.write(written)
    else:
        pathlib.Path(output).write_bytes(written)
    last = recording.turns[-1]
    number = len(recording.turns)
    turns = f"{number:,} {'turn' if number == 1 else 'turns'}, " if transcript is not None else ""
    size = f"{len(written) / 1e3:,.0f} kB"
    click.echo(shown(f"{output}: {turns}{last.characters:,} characters, {last.ids:,} ids, {size}"), err=to_stdout)
    if not tok.family.supported:
        click.echo(shown(f"No certified cuts: {tok.family.reason}"), err=True)
    if is_opened and not to_stdout and not webbrowser.open(pathlib.Path(output).absolute().as_uri()):
        click.echo(shown(f"No browser was found: open {output} with one"), err=True)


def _is_same(output: str, given: str | None) -> bool:
    """Whether what is written is a file that was given to be read."""
    return given is not None and os.path.exists(output) and os.path.exists(given) and os.path.samefile(output, given)


def _conversed(tok: Tokenizer, template: str, transcript: str, special: Special) -> Recording:
    conversation = max(conversations(transcript), key=lambda conversation: conversation.characters)
    try:
        recording = conversed(tok, ChatTemplate.load(template), conversation, special=special)
    except ToktierError:
        raise
    except (TypeError, ValueError) as error:
        raise InvalidTranscript(f"{transcript}: its longest session cannot be rendered: {error}") from error
    if not recording.turns:
        raise InvalidTranscript(f"{transcript}: its longest session begins with an answer, and has nothing else")
    return recording


def _characters(transcript: Sequence[replay.Request]) -> int:
    """About how long the text of a session becomes."""
    return sum(request.characters for request in transcript)
