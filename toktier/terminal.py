"""What the commands have in common: how they read, print and fail. Needs click and rich."""

from __future__ import annotations

import codecs
import contextlib
import logging
import os
import pathlib
import sys
from collections.abc import Iterator

import click
from rich.console import Console

import toktier
from toktier.engines import admission
from toktier.errors import InvalidDefinition
from toktier.inspection import shown
from toktier.tokenizer import Tokenizer

INTERRUPTED = 130
"""The exit status after Ctrl-C, as of shells."""


class Failure(click.ClickException):
    """An error that the user can do something about: one line, exit status 2."""

    exit_code = 2

    def __init__(self, message: str) -> None:
        super().__init__(shown(" ".join(message.split())))


def plain_console() -> Console:
    """A console that prints a text as it is: what stands in a tokenizer's file is no markup."""
    return Console(markup=False, emoji=False, highlight=False)


def load(source: str, pattern: str | None = None) -> Tokenizer:
    """The tokenizer that somebody names on the command line.

    Args:
        source: What they name.
        pattern: What they say about a rank file.

    Raises:
        Failure: It cannot be loaded like that; the message says what to do, in options of the command line.
        ToktierError: As for :func:`toktier.load`.
        OSError: A file cannot be read.
    """
    if not source:
        raise Failure("SOURCE is empty: give a path, a name such as toktier-mini, or an id of the Hugging Face hub")
    try:
        return toktier.load(source, pattern=pattern)
    except InvalidDefinition as error:
        raise Failure(str(error).replace("give pattern=, a", "give --pattern, a")) from error
    except TypeError as error:
        if not str(error).startswith("pattern= is for rank files"):
            raise
        raise Failure(f"--{str(error).replace('=', '', 1)}") from error


class _Printed(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        try:
            click.echo(shown(f"{record.getMessage()} ..."), err=True)
        except Exception:  # whatever it is, it is no fault of the engine that is compared
            self.handleError(record)


@contextlib.contextmanager
def comparisons_printed() -> Iterator[None]:
    """Prints each comparison of an engine that begins meanwhile, on the standard error stream."""
    logger, handler = logging.getLogger(admission.__name__), _Printed(logging.INFO)
    level = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    try:
        yield
    finally:
        logger.setLevel(level)
        logger.removeHandler(handler)


def read(file: str | None) -> str:
    """The text of a file or of the standard input, with its line breaks as they are.

    Args:
        file: Its name; ``-`` or none for the standard input.

    Raises:
        Failure: It is not UTF-8.
        OSError: The file cannot be read.
    """
    if file == "-":
        file = None
    data = pathlib.Path(file).read_bytes() if file is not None else sys.stdin.buffer.read()
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        utf_16 = data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
        like = "UTF-16" if utf_16 else "the encoding it has, such as LATIN1"
        raise Failure(
            f"{file or 'standard input'}: not UTF-8: {error.reason} at byte {error.start}; convert it first, with iconv"
            f" -f {like} -t UTF-8"
        ) from None


def without_folder(word: str) -> str:
    """A word; of one that is a path, the last part.

    Example:
        >>> without_folder("/home/me/tokenizer.json"), without_folder("Qwen/Qwen3-8B")
        ('tokenizer.json', 'Qwen/Qwen3-8B')
    """
    is_path = os.path.isabs(word) or os.path.exists(word)
    return (is_path and pathlib.PurePath(word).name) or word


with_pattern = click.option(
    "--pattern", help="For a rank file: how texts are split, by a name such as cl100k_base or as a regular expression."
)
"""The option of commands that take a tokenizer which may not say it itself."""

with_tokenizer = click.option(
    "--tokenizer",
    "source",
    default="toktier-mini",
    show_default=True,
    metavar="SOURCE",
    help="Encode with this: a tokenizer.json, a directory with one, a rank file, the id of a repository on the"
    " Hugging Face hub, or toktier-mini.",
)
"""The option of commands that begin without a tokenizer of one's own."""
