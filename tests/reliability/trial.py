"""One trial of a definition: it is loaded, and its ids are compared with the reference's, or its error is clear.

``python -m tests.reliability.trial FILE CACHE SECONDS MEGABYTES`` does that in a process of its own, which dies when it
takes more processor time or address space than that.
"""

from __future__ import annotations

import json
import pathlib
import resource
import signal
import subprocess
import sys
from collections.abc import Callable, Iterable

import tokenizers
from attrs import frozen

import toktier
from tests import material
from toktier import Session, ToktierError

TEXTS = (
    "",
    "The it's  \n12 ab",
    "aaaaaaaaaab aab xxxxxy",
    "<|im_start|>hi<|im_end|>e\u0301\u00e9 \u4e2d\u6587 \U0001f600 <|im_st",
    "abcabc aaa  \t\nbc\x00\n \n",
)
SIZES = (1, 3, 2, 5, 1, 7)
"""Characters of the appends to a session, in turn."""


class Wrong(AssertionError):
    """A tokenizer with other ids than the reference's, or an error that is not one of toktier's own."""


@frozen
class Outcome:
    """What a trial came to.

    Attributes:
        error: What :func:`toktier.load` said; None when it gave a tokenizer.
        reason: Why the tokenizer is not supported, if it is not.
        refused: How many texts neither the reference nor toktier could encode.
    """

    error: str | None
    reason: str | None = None
    refused: int = 0


def tried(file: pathlib.Path, registry: toktier.Registry, texts: Iterable[str] = TEXTS) -> Outcome:
    """Loads a file and compares with the reference.

    Raises:
        Wrong: The ids differ, or what was raised is no error of toktier's that names the file.
    """
    try:
        tok = registry.load(file)
    except ToktierError as error:
        message = str(error)
        if not message.startswith(f"{file}: ") or "\nTraceback" in message:
            raise Wrong(f"an error that does not begin with the file: {message[:300]}") from None
        return Outcome(message.removeprefix(f"{file}: "))
    except BaseException as error:
        raise _escaped("load", error) from error
    reference = material.reference_of(tokenizers.Tokenizer.from_file(str(file)))
    refused = sum(not _agrees(tok, reference, text) for text in texts)
    return Outcome(None, tok.family.reason, refused)


def _agrees(tok: toktier.Tokenizer, reference: material.Reference, text: str) -> bool:
    """Compares one text; False when both refuse it."""
    expected = _ids(lambda: reference(text))
    got = _own_ids("encode", lambda: tok.encode(text).tolist())
    appended = _own_ids("append", lambda: _appended(tok, text))
    for how, ids in (("encode", got), ("appends", appended)):
        if ids != expected:
            raise Wrong(f"{how} {text!r}: {ids} where the reference has {expected}")
    return expected is not None


def _appended(tok: toktier.Tokenizer, text: str) -> list[int]:
    session, at = Session(tok), 0
    while at < len(text):
        for size in SIZES:
            before = session.text, session.tolist()
            try:
                session.append(text[at : at + size])
            except ToktierError:
                if (session.text, session.tolist()) != before:
                    raise Wrong(f"an append that raised changed the session: {text[: at + size]!r}") from None
                raise
            at += size
    return session.tolist()


def _ids(encode: Callable[[], list[int]]) -> list[int] | None:
    """The reference's ids; None where it fails, however."""
    try:
        return encode()
    except BaseException as error:  # a panic of the library is no Exception
        if isinstance(error, (KeyboardInterrupt, SystemExit)):
            raise
        return None


def _own_ids(what: str, encode: Callable[[], list[int]]) -> list[int] | None:
    """toktier's ids; None where it says that the text cannot be encoded."""
    try:
        return encode()
    except (ToktierError, Wrong) as error:
        if isinstance(error, Wrong):
            raise
        return None
    except BaseException as error:
        raise _escaped(what, error) from error


def _escaped(what: str, error: BaseException) -> Wrong:
    if isinstance(error, (KeyboardInterrupt, SystemExit)):
        raise error
    return Wrong(f"{what}: {type(error).__name__} got out: {str(error)[:300]}")


@frozen
class Limits:
    """What a trial may take, the start of its process included."""

    seconds: int = 3
    megabytes: int = 2048


def tried_apart(file: pathlib.Path, cache: pathlib.Path, limits: Limits) -> Outcome:
    """The same in a process of its own, under limits.

    Raises:
        Wrong: The trial says so, or the process died: it took too much, or a library ended it.
    """
    command = [sys.executable, "-m", __name__, str(file), str(cache), str(limits.seconds), str(limits.megabytes)]
    run = subprocess.run(command, capture_output=True, text=True, timeout=limits.seconds * 6 + 60, check=False)
    if run.returncode in (-signal.SIGXCPU, -signal.SIGKILL):
        raise Wrong(f"it took more than {limits.seconds} seconds of processor time")
    if run.returncode:
        raise Wrong(f"the process ended with {run.returncode}: {run.stderr[-1500:]}")
    told = json.loads(run.stdout)
    if "wrong" in told:
        raise Wrong(told["wrong"])
    return Outcome(**told)


def main() -> None:
    file, cache, seconds, megabytes = sys.argv[1:]
    resource.setrlimit(resource.RLIMIT_CPU, (int(seconds), int(seconds)))
    resource.setrlimit(resource.RLIMIT_AS, (int(megabytes) << 20, int(megabytes) << 20))
    try:
        outcome = tried(pathlib.Path(file), toktier.Registry(cache))
        print(json.dumps({"error": outcome.error, "reason": outcome.reason, "refused": outcome.refused}))
    except Wrong as wrong:
        print(json.dumps({"wrong": str(wrong)}))


if __name__ == "__main__":
    main()
