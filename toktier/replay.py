"""An agent session replayed turn by turn, as a serving front end meets it: timed, and every turn checked.

Before each answer the front end has the whole transcript, rendered as ChatML, with a prompt at its end that makes the
model begin to answer. It needs the ids, and has two ways to get them from a session, which take turns here:

- ``append``: the reasoning that the prompt opened stays in the transcript, so all that is new comes at the end.
- ``update``: the reasoning is dropped. The answer takes the place of the prompt, and the session is given the whole
  text and finds out itself what changed.
"""

from __future__ import annotations

import itertools
import json
import os
import pathlib
import statistics
import sys
import sysconfig
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from attrs import evolve, frozen

from toktier.errors import InvalidTranscript
from toktier.tokenizer import Tokenizer

if TYPE_CHECKING:
    from rich.table import Table

Read = TypeVar("Read")

PROMPT = "<|im_start|>assistant\n<think>\n"
"""What makes the model begin to answer. The next turn may have the answer in its place."""

PORTION = 1100
"""Characters of a file that a tool result of :func:`library_session` has at least; a turn adds about 300 more."""

CHARACTERS = 256_000
"""How long a demo's text becomes: its time grows with the square of that, and is to be about 10 seconds."""

MOST_ROWS = 7


@frozen
class Message:
    """One message of a transcript."""

    role: str
    content: str

    def chatml(self) -> str:
        r"""The message as front ends render it.

        >>> Message("user", "Hi").chatml()
        '<|im_start|>user\nHi<|im_end|>\n'
        """
        return f"<|im_start|>{self.role}\n{self.content}<|im_end|>\n"


@frozen
class Request:
    """What a transcript gained between two calls of the model.

    Attributes:
        answer: What the model said in the call before; None in the first request.
        rest: The messages that followed it, rendered.
    """

    answer: str | None
    rest: str

    @property
    def characters(self) -> int:
        """About how many characters the request adds to the text."""
        return len(self.rest) + (0 if self.answer is None else len(Message("assistant", self.answer).chatml()))


@frozen
class Turn:
    """One request, measured and checked.

    Attributes:
        operation: ``"open"`` for the first, then ``"append"`` or ``"update"``.
        characters: The length of the text after it.
        new: How many of these it added.
        ids: The number of ids after it.
        seconds: The operation, with its patch applied to the front end's own list of ids.
        full_seconds: The reference library encoding the whole text into a list of ids.
        exact: Whether the two lists are equal.
        engine: What encoded.
    """

    operation: str
    characters: int
    new: int
    ids: int
    seconds: float
    full_seconds: float
    exact: bool
    engine: str


@frozen
class Row:
    """Turns of about one context size: medians, or None where there is nothing to take one of.

    Attributes:
        characters: The length of the text.
        ids: The number of its ids.
        turns: The number of turns.
        new: Characters that a turn added.
        append: Seconds of an ``append``.
        update: Seconds of an ``update``.
        full: Seconds of a full encode by the reference library.
        mismatches: The number of turns whose ids differed from the reference's.
    """

    characters: int
    ids: int
    turns: int
    new: int
    append: float | None
    update: float | None
    full: float
    mismatches: int


def requests(messages: Iterable[Message]) -> Iterator[Request]:
    """The calls of the model in a transcript: one before each answer, and one at the end if that is not an answer.

    >>> talk = [Message("user", "Hi"), Message("assistant", "Hello"), Message("user", "Bye")]
    >>> list(requests(talk)) == [Request(None, talk[0].chatml()), Request("Hello", talk[2].chatml())]
    True
    """
    answer: str | None = None
    rest = ""
    for message in messages:
        if message.role != "assistant":
            rest += message.chatml()
            continue
        if rest or answer is not None:
            yield Request(answer, rest)
        answer, rest = message.content, ""
    if rest:
        yield Request(answer, rest)


def within(transcript: Iterable[Request], characters: int) -> list[Request]:
    """The requests until the text has that many characters, or all there are.

    >>> len(within([Request(None, "abc"), Request("d", "ef"), Request("g", "hi")], 4))
    2
    """
    total, taken = 0, []
    for request in transcript:
        taken.append(request)
        total += request.characters
        if total >= characters:
            break
    return taken


def replay(tok: Tokenizer, transcript: Sequence[Request]) -> Iterator[Turn]:
    """Leads a session through a transcript, and encodes the whole text anew at each turn to compare.

    Args:
        tok: The tokenizer; its reference is what the session is compared with.
        transcript: What :func:`requests` gives.
    """
    session = tok.session()
    ids: list[int] = []  # the front end's own, which it hands to the model
    text = ""
    turn: Turn | None = None
    for number, request in enumerate(transcript):
        if turn is not None:
            yield turn
        before = text
        operation = "open" if request.answer is None else ("append", "update")[number % 2]
        text = rendered(before, operation, request)
        addition = text[len(before) :]

        start = time.perf_counter()
        patch = session.update(text) if operation == "update" else session.append(addition)
        patch.apply(ids)
        done = time.perf_counter()
        expected = tok.reference.listed(text)
        end = time.perf_counter()

        new = len(text) - len(before)
        turn = Turn(
            operation, len(text), new, len(expected), done - start, end - done, ids == expected, session.engine.name
        )
    if turn is not None:
        # Reading session.ids at every turn would make the next one copy them, which this front end has no use for.
        yield evolve(turn, exact=turn.exact and session.text == text and session.ids.tolist() == ids)


def rendered(before: str, operation: str, request: Request) -> str:
    """The text of a request, given the one of the request before, which ends with the prompt."""
    if request.answer is None:
        return request.rest + PROMPT
    if operation == "append":
        return f"{before}\n</think>\n\n{request.answer}<|im_end|>\n{request.rest}{PROMPT}"
    return before.removesuffix(PROMPT) + Message("assistant", request.answer).chatml() + request.rest + PROMPT


def summarize(turns: Sequence[Turn]) -> list[Row]:
    """Turns by context size, in ascending order: each row has contexts about twice as long as those of the row before.

    >>> turns = [Turn("append", 100 * n, 100, 30 * n, 1e-5, 1e-4 * n, True, "memo") for n in range(1, 9)]
    >>> [(row.characters, row.turns) for row in summarize(turns)]
    [(100, 1), (200, 1), (350, 2), (650, 4)]
    """
    largest = max((turn.characters for turn in turns), default=0)
    groups: dict[int, list[Turn]] = {}
    for turn in turns:
        halvings = (largest // max(turn.characters, 1)).bit_length() - 1
        groups.setdefault(min(halvings, MOST_ROWS - 1), []).append(turn)
    return [medians(groups[halvings]) for halvings in sorted(groups, reverse=True)]


def medians(turns: Sequence[Turn]) -> Row:
    """One row for some turns, at least one. What opens a session is no append, and no update either."""
    appends = [turn.seconds for turn in turns if turn.operation == "append"]
    updates = [turn.seconds for turn in turns if turn.operation == "update"]
    return Row(
        characters=round(statistics.median(turn.characters for turn in turns)),
        ids=round(statistics.median(turn.ids for turn in turns)),
        turns=len(turns),
        new=round(statistics.median(turn.new for turn in turns)),
        append=statistics.median(appends) if appends else None,
        update=statistics.median(updates) if updates else None,
        full=statistics.median(turn.full_seconds for turn in turns),
        mismatches=sum(not turn.exact for turn in turns),
    )


def watched(tok: Tokenizer, sessions: Sequence[Sequence[Request]]) -> list[Turn]:
    """Replays sessions one after the other, with a progress bar on the standard error stream."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

    # A turn takes about as long as its text, which is encoded in full.
    texts = (itertools.accumulate(request.characters for request in session) for session in sessions)
    columns = TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeRemainingColumn()
    turns: list[Turn] = []
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("", total=sum(map(sum, texts)))
        for turn in itertools.chain.from_iterable(replay(tok, session) for session in sessions):
            turns.append(turn)
            state = f"turn {len(turns)}, {turn.characters:,} characters"
            progress.update(task, advance=turn.characters, description=state)
    return turns


def measurements(rows: Iterable[Row]) -> Table:
    """What was measured, by context size."""
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=0)
    names = "context characters", "ids", "turns", "new", "append ms", "ratio", "update ms", "ratio"
    for name in (*names, "full encode ms", "mis- matches"):
        style = "cyan" if name == "ratio" else ""
        table.add_column(name.replace(" ", "\n"), justify="right", no_wrap=True, style=style)
    for row in rows:
        table.add_row(
            *(f"{number:,}" for number in (row.characters, row.ids, row.turns, row.new)),
            *(cell for seconds in (row.append, row.update) for cell in _compared(seconds, row.full)),
            f"{1e3 * row.full:.2f}",
            str(row.mismatches),
            style="bold red" if row.mismatches else "",
        )
    return table


def _compared(seconds: float | None, full: float) -> tuple[str, str]:
    """A time in milliseconds, and how many times as long a full encode takes."""
    if not seconds:
        return "", ""
    ratio = full / seconds
    return f"{1e3 * seconds:.2f}", f"{ratio:,.{0 if ratio >= 10 else 1}f}×"


def read_transcripts(file: str | os.PathLike[str]) -> list[list[Message]]:
    """The transcripts of a file, one a line: ``{"messages": [{"role": "user", "content": "Hi"}, ...]}``.

    No ``content``, as in a message that only calls tools, is an empty one; other keys are ignored.

    Raises:
        InvalidTranscript: A line is something else; the error names it.
        OSError: The file cannot be read.
    """
    form = '{"messages": [{"role": ..., "content": ...}, ...]} with text for each content'
    return read_lines(file, lambda entry: [_message(message) for message in entry["messages"]], form)


def read_lines(file: str | os.PathLike[str], read: Callable[[dict[str, Any]], Read], form: str) -> list[Read]:
    """What is read of each line of a file of transcripts that has something in it.

    Args:
        file: A file with a JSON object on each line.
        read: Takes the object of a line; what is not of the form makes it raise, with a ValueError if it says why.
        form: What a line has to be, in an error.

    Raises:
        InvalidTranscript: A line is something else; the error names it.
        OSError: The file cannot be read.
    """
    found = []
    for number, line in enumerate(pathlib.Path(file).read_bytes().splitlines(), 1):
        if line.strip():
            try:
                found.append(read(json.loads(line)))
            except UnicodeDecodeError as error:
                wrong = f"UTF-8: {error.reason}"
            except json.JSONDecodeError as error:
                wrong = f"JSON: {error.msg} at character {error.pos}; each line is a session"
            except ValueError as error:  # of the reader
                wrong = f"{form}: {error}"
            except KeyError as error:
                wrong = f"{form}: there is no {error}"
            except (TypeError, AttributeError, RecursionError):
                wrong = form
            else:
                continue
            raise InvalidTranscript(f"{os.fspath(file)}: line {number} is not {wrong}")
    return found


def _message(entry: dict[str, object]) -> Message:
    role, content = entry["role"], entry.get("content") or ""
    if not isinstance(role, str) or not isinstance(content, str):
        raise ValueError(f"role is {type(role).__name__}, content is {type(content).__name__}")
    return Message(role, content)


def sessions(file: str | os.PathLike[str] | None = None, characters: int | None = None) -> list[list[Request]]:
    """What to replay: the transcripts of a file, or one :func:`library_session`.

    Args:
        file: As for :func:`read_transcripts`.
        characters: The length of text at which a session stops. Not given: its end, or ``CHARACTERS`` without a file.

    Raises:
        InvalidTranscript: There is nothing to replay.
        OSError: The file cannot be read.
    """
    transcripts = [library_session()] if file is None else read_transcripts(file)
    limit = characters or (CHARACTERS if file is None else sys.maxsize)
    found = [within(requests(messages), limit) for messages in transcripts]
    if not any(found):
        raise InvalidTranscript(f"{os.fspath(file or 'the standard library')}: no messages to replay")
    return found


def library_session() -> Iterator[Message]:
    """A made-up coding agent that reads its way through Python's standard library: real text on every machine."""
    yield Message("system", "You are a coding agent. You read files with the tool read_file and answer briefly.")
    yield Message("user", "Read the standard library, and tell me which modules could be written better, and why.")
    for file, line, portion in _portions(pathlib.Path(sysconfig.get_paths()["stdlib"])):
        last = line + portion.count("\n") - 1
        call = json.dumps({"name": "read_file", "arguments": {"path": file, "first": line, "last": last}})
        yield Message("assistant", f"Next I read {file} from line {line} on.\n<tool_call>\n{call}\n</tool_call>")
        yield Message("user", f"<tool_response>\n{portion}</tool_response>")


def library_text(length: int) -> str:
    """The transcript of :func:`library_session`, up to some length; shorter if there is no more."""
    parts, total = [], 0
    for message in library_session():
        parts.append(message.chatml())
        total += len(parts[-1])
        if total >= length:
            break
    return "".join(parts)[:length]


def _portions(folder: pathlib.Path) -> Iterator[tuple[str, int, str]]:
    """The Python files below a folder in portions of some 30 lines: the name, the first line's number, the lines."""
    for file in itertools.chain(sorted(folder.glob("*.py")), sorted(folder.glob("[a-z]*/*.py"))):
        try:
            lines = file.read_text(encoding="utf-8").splitlines(keepends=True)
        except (OSError, UnicodeDecodeError):
            continue
        first, length = 0, 0
        for i, line in enumerate(lines):
            length += len(line)
            if length >= PORTION:
                yield file.relative_to(folder).as_posix(), first + 1, "".join(lines[first : i + 1])
                first, length = i + 1, 0
