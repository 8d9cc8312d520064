"""What the commands have in common: how they read, print and fail. Needs click and rich."""

from __future__ import annotations

import pathlib
import sys

import click
from rich.console import Console

from toktier.inspection import shown


class Failure(click.ClickException):
    """An error that the user can do something about: one line, exit status 2."""

    exit_code = 2

    def __init__(self, message: str) -> None:
        super().__init__(shown(" ".join(message.split())))


def plain_console() -> Console:
    """A console that prints a text as it is: what stands in a tokenizer's file is no markup."""
    return Console(markup=False, emoji=False, highlight=False)


def read(file: str | None) -> str:
    """The text of a file or of the standard input, with its line breaks as they are.

    Raises:
        Failure: It is not UTF-8.
        OSError: The file cannot be read.
    """
    data = pathlib.Path(file).read_bytes() if file is not None else sys.stdin.buffer.read()
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise Failure(f"{file or 'standard input'}: not UTF-8: {error.reason} at byte {error.start}") from None


with_pattern = click.option(
    "--pattern", help="For a rank file: how texts are split, by a name such as cl100k_base or as a regular expression."
)
"""The option of commands that take a tokenizer which may not say it itself."""
