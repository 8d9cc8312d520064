"""A difference, kept so that anybody can see it again: what was done, what came of it, and the tokenizer itself.

A reproduction is one JSON file; beside it lies the definition of its tokenizer, so that the folder is all that is
needed. The command: ``toktier reproduce FILE``.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import lzma
import os
import pathlib
import platform
import tempfile
from collections.abc import Mapping
from typing import Any

from attrs import asdict, field, frozen

import toktier
from toktier.campaign.operations import Change, Kind, Operation, Program
from toktier.campaign.programs import Problem, first_difference, reference_ids, run
from toktier.engines.base import Engine
from toktier.errors import InvalidReproduction
from toktier.families.formats.ranked import RANKED, restored
from toktier.families.loading import load_reference
from toktier.registry import load
from toktier.tokenizer import Tokenizer

FORMAT = 1
"""Raised when files of before cannot be read any more."""

PACKAGES = ("tokenizers", "tiktoken", "gigatoken")
"""Whose versions are kept."""

PRESET = 0
"""How hard definitions are compressed: the next steps take many times as long for a few per cent."""


@frozen
class Reproduction:
    """What went wrong, and how to see it again: ``toktier reproduce FILE``.

    Made small first, by delta debugging (A. Zeller and R. Hildebrandt, "Simplifying and isolating failure-inducing
    input", 2002); ``toktier.campaign.shrinking`` does it.

    Attributes:
        digest: The family's, SHA-256, hexadecimal.
        encode_special_tokens: Whether the tokenizer encodes its special tokens as text, which its file does not say.
        engine: The name of the engine; None when the relation itself is wrong.
        versions: Of everything that takes part; None for what is not installed.
        operations: What was done.
        message: What was wrong then, in words.
        expected: The reference's ids, if it is ids that differ.
        got: The ids in their place.
        position: The index of the first id in which the two differ; None where it is not ids that differ.
        tokenizer: Whose definition :meth:`save` keeps; None when the reproduction comes from a file.

    Example:
        >>> import tempfile, toktier
        >>> from toktier.campaign.operations import encode
        >>> tok = toktier.load("toktier-mini")
        >>> problem = Problem(1, Kind.ENCODE, "2 ids where the reference has 1", (39, 523), (39,))
        >>> found = Reproduction.of(tok, "memo", [encode("Hel")], problem)
        >>> found.position
        1
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     kept = Reproduction.load(found.save(folder))
        >>> kept == found
        True
        >>> print(kept.replay(tok))  # no difference (any more)
        None
    """

    digest: str
    encode_special_tokens: bool
    engine: str | None
    versions: dict[str, str | None]
    operations: tuple[Operation, ...]
    message: str
    expected: tuple[int, ...] | None = field(default=None, repr=False)
    got: tuple[int, ...] | None = field(default=None, repr=False)
    position: int | None = None
    tokenizer: Tokenizer | None = field(default=None, eq=False, repr=False)

    @classmethod
    def of(cls, tok: Tokenizer, engine: str | None, program: Program, problem: Problem) -> Reproduction:
        """The reproduction of what went wrong in a program.

        Args:
            tok: The tokenizer.
            engine: The name of the engine that encoded; None when none took part.
            program: What was done.
            problem: What went wrong.

        Example:
            >>> import toktier
            >>> from toktier.campaign.operations import append
            >>> tok, problem = toktier.load("toktier-mini"), Problem(1, Kind.APPEND, "another text")
            >>> print(Reproduction.of(tok, "memo", [append("Hello")], problem).message)
            operation 1, append: another text
        """
        expected, got = problem.expected, problem.got
        differ = expected is not None and got is not None
        return cls(
            digest=tok.family.digest,
            encode_special_tokens=encodes_special_tokens(tok),
            engine=engine,
            versions=versions(),
            operations=tuple(program),
            message=str(problem),
            expected=expected,
            got=got,
            position=first_difference(expected or (), got or ()) if differ else None,
            tokenizer=tok,
        )

    def save(self, folder: str | os.PathLike[str]) -> pathlib.Path:
        """Writes it into a folder, which is made if it is not there; once, if it is there already.

        The definition of the tokenizer is written beside it. Both are there as a whole, or not at all.

        Args:
            folder: The folder.

        Returns:
            The file.

        Raises:
            OSError: Something cannot be written.

        Example:
            >>> import tempfile, toktier
            >>> from toktier.campaign.operations import encode
            >>> problem = Problem(1, Kind.ENCODE, "an example")
            >>> found = Reproduction.of(toktier.load("toktier-mini"), "memo", [encode("Hello")], problem)
            >>> with tempfile.TemporaryDirectory() as folder:
            ...     file = found.save(folder)
            ...     sorted(path.suffix for path in pathlib.Path(folder).iterdir())
            ['.json', '.xz']
        """
        where = pathlib.Path(folder)
        where.mkdir(parents=True, exist_ok=True)
        definition = _definition(where, self.digest)
        if self.tokenizer is not None and not definition.exists():
            text = self.tokenizer.reference.saved()
            _write(definition, lzma.compress(text.encode(), preset=PRESET))
        content = _content(self)
        same = {name: value for name, value in content.items() if name != "versions"}
        name = hashlib.sha256(json.dumps(same, sort_keys=True).encode()).hexdigest()
        file = where / f"reproduction-{self.digest[:12]}-{name[:16]}.json"
        if not file.exists():
            _write(file, f"{json.dumps(content)}\n".encode())
        return file

    @classmethod
    def load(cls, file: str | os.PathLike[str]) -> Reproduction:
        """Reads what :meth:`save` wrote.

        Args:
            file: The JSON file.

        Returns:
            The reproduction, without the tokenizer; :meth:`load_tokenizer` reads that.

        Raises:
            InvalidReproduction: The file is something else, or of another version; the message says which.
            OSError: The file cannot be read.

        Example:
            >>> import tempfile, toktier
            >>> from toktier.campaign.operations import encode
            >>> problem = Problem(1, Kind.ENCODE, "an example")
            >>> found = Reproduction.of(toktier.load("toktier-mini"), "memo", [encode("Hello")], problem)
            >>> with tempfile.TemporaryDirectory() as folder:
            ...     Reproduction.load(found.save(folder)) == found
            True
        """
        where = os.fspath(file)
        try:
            content = json.loads(pathlib.Path(file).read_bytes())
            if content["format"] != FORMAT:
                raise InvalidReproduction(
                    f"{where}: of format {content['format']!r}, where this version of toktier reads {FORMAT}"
                )
            return _reproduction(content)
        except InvalidReproduction:
            raise
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
            raise InvalidReproduction(
                f"{where}: not a reproduction, or a damaged one ({type(error).__name__}: {error})"
            ) from None

    def load_tokenizer(self, folder: str | os.PathLike[str]) -> Tokenizer:
        """The tokenizer whose definition was saved into a folder together with this.

        Args:
            folder: The folder.

        Raises:
            InvalidReproduction: It is not there, or damaged.
            InvalidDefinition: This version of the reference library refuses it.

        Example:
            >>> import tempfile, toktier
            >>> from toktier.campaign.operations import encode
            >>> tok, problem = toktier.load("toktier-mini"), Problem(1, Kind.ENCODE, "an example")
            >>> found = Reproduction.of(tok, "memo", [encode("Hello")], problem)
            >>> with tempfile.TemporaryDirectory() as folder:
            ...     file = found.save(folder)
            ...     found.load_tokenizer(folder) is tok
            True
        """
        file = _definition(pathlib.Path(folder), self.digest)
        try:
            text = lzma.decompress(file.read_bytes()).decode()
        except FileNotFoundError:
            raise InvalidReproduction(f"{file}: not there; name the tokenizer, with --tokenizer") from None
        except (OSError, EOFError, lzma.LZMAError, UnicodeDecodeError) as error:
            raise InvalidReproduction(f"{file}: damaged ({error}); name the tokenizer, with --tokenizer") from None
        if text.startswith(RANKED):
            try:
                encoding = restored(text)
            except Exception as error:  # whatever the library makes of it
                raise InvalidReproduction(f"{file}: damaged ({error}); name the tokenizer, with --tokenizer") from None
            return load(encoding)
        definition = load_reference(text.encode(), str(file))
        definition.encode_special_tokens = self.encode_special_tokens
        return load(definition)

    def replay(self, tok: Tokenizer, engine: Engine | None = None) -> Problem | None:
        """Does again what was done, and says what is wrong now.

        Args:
            tok: The tokenizer.
            engine: What encodes. Not given: a new engine of the same name, which has seen nothing.

        Returns:
            What is wrong; None when nothing is.

        Raises:
            UnknownEngine: There is no engine of that name, or it does not serve the tokenizer.

        Example:
            >>> import toktier
            >>> from toktier.campaign.operations import encode
            >>> tok, problem = toktier.load("toktier-mini"), Problem(1, Kind.ENCODE, "an example")
            >>> print(Reproduction.of(tok, "memo", [encode("Hello")], problem).replay(tok))
            None
        """
        encoding = engine or tok.renewed().engine(self.engine or "reference")
        return run(self.operations, tok, reference_ids(tok), encoding)


def encodes_special_tokens(tok: Tokenizer) -> bool:
    """Whether special tokens in a text are encoded like any other text. Tiktoken is never asked to do that here."""
    return tok.reference.special_is_text


def versions() -> dict[str, str | None]:
    """The versions of everything that takes part in an encode; None for what is not installed."""
    own = {"toktier": toktier.__version__, "python": platform.python_version()}
    return own | {name: _version(name) for name in PACKAGES}


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _definition(folder: pathlib.Path, digest: str) -> pathlib.Path:
    return folder / f"tokenizer-{digest}.json.xz"


def _write(file: pathlib.Path, content: bytes) -> None:
    """Writes a file that is there as a whole or not at all."""
    descriptor, draft = tempfile.mkstemp(dir=file.parent, prefix=f".{file.name}-")
    try:
        with open(descriptor, "wb") as stream:
            stream.write(content)
        os.replace(draft, file)
    except BaseException:
        os.unlink(draft)
        raise


def _content(it: Reproduction) -> dict[str, Any]:
    """A reproduction as JSON has it."""
    content = {"format": FORMAT} | asdict(it, recurse=False)
    del content["tokenizer"]
    return content | {"operations": [_written(operation) for operation in it.operations]}


def _written(operation: Operation) -> dict[str, Any]:
    changes = [[change.start, change.stop, change.new] for change in operation.changes]
    return {"kind": operation.kind.name, "changes": changes, "at": operation.at, "look": operation.look}


def _reproduction(content: Mapping[str, Any]) -> Reproduction:
    """What :func:`_content` was made of; anything may be raised for something else."""
    digest = bytes.fromhex(content["digest"])
    expected, got = (None if content[name] is None else tuple(map(int, content[name])) for name in ("expected", "got"))
    engine, position = content["engine"], content["position"]
    return Reproduction(
        digest=digest.hex(),
        encode_special_tokens=bool(content["encode_special_tokens"]),
        engine=None if engine is None else str(engine),
        versions=dict(content["versions"]),
        operations=tuple(_read(entry) for entry in content["operations"]),
        message=str(content["message"]),
        expected=expected,
        got=got,
        position=None if position is None else int(position),
    )


def _read(entry: Mapping[str, Any]) -> Operation:
    changes = tuple(Change(int(start), int(stop), _text(new)) for start, stop, new in entry["changes"])
    kind = Kind[entry["kind"]]
    if not changes and kind is not Kind.FORK:
        raise ValueError(f"{kind.value}: nothing is changed")
    return Operation(kind, changes, int(entry["at"]), bool(entry["look"]))


def _text(new: object) -> str:
    if not isinstance(new, str):
        raise TypeError(f"a text is {type(new).__name__}")
    return new
