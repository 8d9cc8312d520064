"""What a file is, and which of the files in a directory says what its tokenizer is.

Repositories of models hold one tokenizer in several forms. The first of these counts: ``tokenizer.json``,
``tekken.json``, a rank file, ``vocab.json`` beside ``merges.txt``.
"""

from __future__ import annotations

import enum
import pathlib

from toktier.errors import InvalidDefinition, UnknownTokenizer
from toktier.families.formats.rankfile import is_rank_file
from toktier.families.formats.tekken import is_tekken

DEFINITION, TEKKEN, VOCABULARY, MERGES = "tokenizer.json", "tekken.json", "vocab.json", "merges.txt"
RANKS = ("*.tiktoken", "tiktoken.model", "tokenizer.model")
"""What rank files are called."""

CONFIGURATION = "tokenizer_config.json"
BESIDE = ("config.json", CONFIGURATION, "special_tokens_map.json", "added_tokens.json")
"""Files that say more about the tokenizer beside them."""

FILES = (DEFINITION, TEKKEN, *RANKS, VOCABULARY, MERGES, *BESIDE)
"""All that is worth to be fetched from a repository."""

CONVERTING = (
    "transformers.AutoTokenizer.from_pretrained(FOLDER).save_pretrained(OTHER) writes a tokenizer.json, which can be"
    " loaded"
)
"""What to do with a form that is not read."""


class Kind(enum.Enum):
    """The forms of a tokenizer."""

    DEFINITION = "tokenizer.json"
    TEKKEN = "tekken.json"
    RANKS = "a rank file"
    PAIR = "vocab.json and merges.txt"


def kind_of(file: pathlib.Path, data: bytes) -> Kind:
    r"""What a file is, by its content, which need not have any certain name.

    Args:
        file: Its path. That of a vocabulary or a list of merges stands for both.
        data: Its bytes.

    Raises:
        InvalidDefinition: It is a model of SentencePiece.

    Example:
        >>> kind_of(pathlib.Path("cl100k_base.tiktoken"), b"IQ== 0")
        <Kind.RANKS: 'a rank file'>
        >>> kind_of(pathlib.Path("tokenizer.model"), b"\n\x0e\n\x05<unk>")
        Traceback (most recent call last):
            ...
        toktier.errors.InvalidDefinition: tokenizer.model: a model of SentencePiece, which is not read: ...
    """
    if file.name in (VOCABULARY, MERGES):
        return Kind.PAIR
    if file.name == TEKKEN or is_tekken(data):
        return Kind.TEKKEN
    if file.suffix == ".tiktoken" or is_rank_file(data):
        return Kind.RANKS
    if file.suffix == ".model":
        what = "a model of SentencePiece, which is not read" if b"<unk>" in data[:4096] else "neither ranks nor JSON"
        raise InvalidDefinition(f"{file}: {what}: {CONVERTING}")
    return Kind.DEFINITION


def in_directory(folder: pathlib.Path) -> pathlib.Path:
    """The file of a directory that says what its tokenizer is.

    Raises:
        UnknownTokenizer: There is none, or there are several of one form.
        InvalidDefinition: All that there is is a model of SentencePiece.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     for name in ("merges.txt", "vocab.json", "x.tiktoken"):
        ...         _ = pathlib.Path(folder, name).write_text("")
        ...     in_directory(pathlib.Path(folder)).name
        'x.tiktoken'
    """
    for name in (DEFINITION, TEKKEN):
        if (folder / name).is_file():
            return folder / name
    models = sorted({file for pattern in RANKS for file in folder.glob(pattern) if file.is_file()})
    ranks = [file for file in models if file.suffix == ".tiktoken" or is_rank_file(_begin(file))]
    if len(ranks) > 1:
        names = ", ".join(file.name for file in ranks)
        raise UnknownTokenizer(f"directory {str(folder)!r} has several rank files: load one of {names} by its path")
    if ranks:
        return ranks[0]
    if (folder / VOCABULARY).is_file() and (folder / MERGES).is_file():
        return folder / VOCABULARY
    for file in models:
        kind_of(file, _begin(file))
    raise UnknownTokenizer(
        f"directory {str(folder)!r} has no {DEFINITION}, no {TEKKEN}, no rank file ({', '.join(RANKS)}), and not"
        f" both of {VOCABULARY} and {MERGES}"
    )


def _begin(file: pathlib.Path) -> bytes:
    with file.open("rb") as stream:
        return stream.read(4096)
