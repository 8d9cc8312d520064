"""From whatever a user has to a :class:`Tokenizer`: loaded once, identified by content and not by path."""

from __future__ import annotations

import functools
import hashlib
import os
import pathlib
import re
import threading
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias

import tokenizers
from attrs import frozen

from toktier.engines.reference import ReferenceEngine
from toktier.errors import InvalidDefinition, UnknownTokenizer
from toktier.executor import Executor
from toktier.families import mini
from toktier.families.definition import literals_of, read
from toktier.families.family import Family
from toktier.families.formats.finding import CONFIGURATION, FILES, Kind, in_directory, kind_of
from toktier.families.formats.objects import backend_of
from toktier.families.loading import load_reference
from toktier.families.probing import DiskCache, Probe, default_cache_directory
from toktier.tokenizer import Tokenizer

if TYPE_CHECKING:
    import tiktoken

    from toktier.families.formats.ranked import RankedBPE

Source: TypeAlias = "str | os.PathLike[str] | tokenizers.Tokenizer | tiktoken.Encoding | Any"
"""What can be loaded; ``Any`` is a fast tokenizer of ``transformers``, which need not be installed."""

BUNDLED = {"toktier-mini": mini.path}
"""The tokenizers that come with toktier, by name."""

CACHE_DIRECTORY = default_cache_directory()
"""Where a registry keeps what it asked the reference library, unless told otherwise."""

HUB_ID = re.compile(r"([\w.-]+/)?[\w.-]+(?<!\.json)(?<!\.tiktoken)(?<!\.model)(?<!\.txt)")
"""What the hub calls a repository: ``owner/name``, or a name alone for some old ones."""


@frozen
class _Files:
    """The bytes that a tokenizer of the library ``tokenizers`` is made of."""

    where: str
    definition: bytes
    configured_where: str = ""
    configuration: bytes | None = None
    encode_special_tokens: bool = False
    vocabulary: Callable[[], dict[str, int]] | None = None
    """Gives the ids that tokens have in the object from which the bytes are, if they are from one."""

    @property
    def key(self) -> str:
        """What tells these bytes from all others."""
        key = hashlib.sha256(self.definition).hexdigest()
        if self.configuration is not None:
            key += hashlib.sha256(self.configuration).hexdigest()
        return key + "special tokens as text" * self.encode_special_tokens

    def compare(self, loaded: Tokenizer) -> None:
        """Makes sure that what was loaded from the bytes has the ids of the object from which they are.

        Raises:
            InvalidDefinition: What was added to it before its model was replaced has ids that no file can say.
        """
        if self.vocabulary is not None and loaded.reference.tokenizer.get_vocab() != self.vocabulary():
            raise InvalidDefinition(f"{self.where}: its added tokens have other ids once it is saved and loaded again")


@frozen
class _Ranks:
    """What a tokenizer of the library ``tiktoken`` is made of, read only if it was not loaded before."""

    key: str
    source_digest: str
    read: Callable[[], RankedBPE]


@frozen
class _Keywords:
    """What a user says about a rank file, which does not say it itself."""

    pattern: str | None
    special_tokens: Mapping[str, int] | None

    def refuse(self, what: str) -> None:
        """Makes sure that nothing is said about what says it itself.

        Raises:
            TypeError: Something is.
        """
        for name in ("pattern", "special_tokens"):
            if getattr(self, name) is not None:
                raise TypeError(f"{name}= is for rank files, which do not say it; {what} does")


class Registry:
    """Loads tokenizers, each once, and keeps them; safe to share between threads.

    Two sources with one content, however formatted, give one :class:`Tokenizer` with one :class:`Family`.

    Args:
        cache_directory: Where answers of the reference library about its character classes, and the evidence for
            engines, are kept between processes. Not given: the platform's cache directory. None: nowhere, so that every
            process derives anew, which takes some seconds.

    Example:
        >>> import tokenizers, toktier
        >>> registry = toktier.Registry()
        >>> tok = registry.load("toktier-mini")
        >>> again = registry.load(tokenizers.Tokenizer.from_file(str(BUNDLED["toktier-mini"]())))
        >>> tok is again
        True
    """

    _default: ClassVar[Registry | None] = None
    _default_lock = threading.Lock()

    def __init__(self, cache_directory: str | os.PathLike[str] | None = CACHE_DIRECTORY) -> None:
        self._cache = DiskCache(None if cache_directory is None else pathlib.Path(cache_directory))
        self._executor = Executor()
        self._lock = threading.Lock()
        self._loading: dict[str, threading.Lock] = {}
        self._by_source: dict[str, Tokenizer] = {}
        self._by_digest: dict[str, Tokenizer] = {}

    @classmethod
    def default(cls) -> Registry:
        """The registry of this process, which :func:`toktier.load` uses.

        Example:
            >>> import toktier
            >>> Registry.default().load("toktier-mini") is toktier.load("toktier-mini")
            True
        """
        with cls._default_lock:
            cls._default = cls._default or Registry()
            return cls._default

    def load(
        self, source: Source, *, pattern: str | None = None, special_tokens: Mapping[str, int] | None = None
    ) -> Tokenizer:
        r"""Loads a tokenizer.

        Args:
            source: One of:

                * the path of a ``tokenizer.json``; of a ``tekken.json``; of a rank file, such as
                  ``cl100k_base.tiktoken`` or the ``tokenizer.model`` of Llama 3, which needs a ``pattern``; of a
                  ``vocab.json`` or a ``merges.txt`` that lie side by side;
                * a directory with one of them, of which the first in this order counts. Beside a ``tokenizer.json``,
                  the added tokens of a ``tokenizer_config.json`` count too, as ``transformers`` would load them (other
                  files, the padding token and ``add_bos_token`` do not count);
                * a bundled name (``"toktier-mini"``);
                * the id of a repository on the Hugging Face hub, for which the package ``huggingface_hub`` must be
                  installed;
                * a ``tokenizers.Tokenizer``, as it would be once saved, or a fast tokenizer of ``transformers``;
                * a ``tiktoken.Encoding``, as it would be once pickled.
            pattern: How texts are split, for rank files: a name such as ``"cl100k_base"``, ``"o200k_base"``,
                ``"llama3"``, ``"qwen"`` or ``"kimi"``, or a regular expression.
            special_tokens: The special tokens of a rank file with their ids. Not given: those that the
                ``tokenizer_config.json`` beside it has in its ``added_tokens_decoder``, if there is one.

        Returns:
            The tokenizer, which is the same object for the same content.

        Raises:
            UnknownTokenizer: The source does not lead to a tokenizer.
            InvalidDefinition: It does, but the definition is broken, or a rank file comes without a pattern; the
                message names the field or the line.
            TypeError: The source is nothing of the above, or something is said about it that it says itself.
            OSError: A file cannot be read.

        Example:
            >>> import pathlib, tempfile
            >>> with tempfile.TemporaryDirectory() as folder:
            ...     file = pathlib.Path(folder, "tiny.tiktoken")
            ...     _ = file.write_text("YQ== 0\nYg== 1\nYWI= 2\n")
            ...     tok = Registry().load(file, pattern="gpt2", special_tokens={"<s>": 3})
            >>> tok.encode("ab<s>ba").tolist()
            [2, 3, 1, 0]
        """
        if not isinstance(pattern, str | None):
            raise TypeError(f"pattern must be str, not {type(pattern).__name__}")
        files = _files(source, _Keywords(pattern, special_tokens))
        key = files.key
        with self._lock:
            loading = self._loading.setdefault(key, threading.Lock())
        with loading:
            if key not in self._by_source:
                self._by_source[key] = self._load(files) if isinstance(files, _Files) else self._load_ranks(files)
            loaded = self._by_source[key]
        if isinstance(files, _Files):
            files.compare(loaded)
        return loaded

    def _load_ranks(self, files: _Ranks) -> Tokenizer:
        from toktier.engines.tiktoken_reference import TiktokenReference
        from toktier.families.formats.probe import TiktokenProbe

        ranked = files.read()
        family = Family.derive(ranked.definition(files.source_digest), TiktokenProbe(self._cache))
        with self._lock:
            reference = TiktokenReference(ranked.encoding, ranked.literals, family)
            tokenizer = Tokenizer(family, reference, self._cache, self._executor)
            return self._by_digest.setdefault(family.digest, tokenizer)

    def _load(self, files: _Files) -> Tokenizer:
        reference = load_reference(files.definition, files.where)
        reference.encode_special_tokens = files.encode_special_tokens
        earlier = literals_of(reference)
        if files.configuration is not None:
            from toktier.families.configuration import added_tokens, special_tokens_are_text

            known = {token.content: token for token in reference.get_added_tokens_decoder().values()}
            reference.add_tokens(added_tokens(files.configuration, files.configured_where, known))
            reference.encode_special_tokens = special_tokens_are_text(files.configuration)
        definition = read(reference, files.definition, files.where, self._cache, earlier)
        family = Family.derive(definition, Probe(self._cache))
        with self._lock:
            tokenizer = Tokenizer(family, ReferenceEngine(reference, family), self._cache, self._executor)
            return self._by_digest.setdefault(family.digest, tokenizer)


def load(source: Source, *, pattern: str | None = None, special_tokens: Mapping[str, int] | None = None) -> Tokenizer:
    r"""Loads a tokenizer into the registry of this process: ``Registry.default().load(source)``.

    Args:
        source: A ``tokenizer.json``, a ``tekken.json``, a rank file, a ``vocab.json`` beside a ``merges.txt``, a
            directory with one of them, a bundled name, an id on the Hugging Face hub, or an object: a
            ``tokenizers.Tokenizer``, a fast tokenizer of ``transformers``, a ``tiktoken.Encoding``; see
            :meth:`Registry.load`.
        pattern: For rank files: how texts are split, by name or as a regular expression.
        special_tokens: For rank files: the special tokens with their ids.

    Returns:
        The tokenizer, which is the same object for the same content.

    Raises:
        UnknownTokenizer: The source does not lead to a tokenizer.
        InvalidDefinition: It does, but the definition is broken, or a rank file comes without a pattern.
        TypeError: The source is nothing of the above, or something is said about it that it says itself.
        OSError: A file cannot be read.

    Example:
        >>> import tiktoken, toktier
        >>> toktier.load("toktier-mini")
        <toktier.Tokenizer ... (supported)>
        >>> ranks = {bytes((value,)): value for value in range(256)}
        >>> encoding = tiktoken.Encoding("bytes", pat_str=r"\w+|\W", mergeable_ranks=ranks, special_tokens={})
        >>> toktier.load(encoding)
        <toktier.Tokenizer ... (supported)>
    """
    return Registry.default().load(source, pattern=pattern, special_tokens=special_tokens)


def _files(source: object, said: _Keywords) -> _Files | _Ranks:
    if not isinstance(source, (str, os.PathLike)):
        return _files_of_object(source, said)
    name = os.fspath(source)
    if not name:
        raise TypeError("cannot load a tokenizer from '': give a path, a name or a tokenizer object")
    path = pathlib.Path(name)
    try:
        path = path.expanduser()
        is_directory, is_file = path.is_dir(), path.is_file()
    except (OSError, RuntimeError, ValueError) as error:  # too long, no such home, a NUL
        raise UnknownTokenizer(f"{name!r} cannot be looked for: {error}") from None
    if is_directory:
        file, configuration = in_directory(path), path / CONFIGURATION
        return _read(file, said, configuration if configuration.is_file() else None)
    if is_file:
        return _read(path, said)
    if name in BUNDLED:
        return _read(BUNDLED[name](), said)
    if HUB_ID.fullmatch(name):
        return _fetched(name, said)
    raise UnknownTokenizer(f"no file, directory or bundled tokenizer {name!r} (bundled: {', '.join(BUNDLED)})")


def _files_of_object(source: object, said: _Keywords) -> _Files | _Ranks:
    import tiktoken

    if not isinstance(source, tiktoken.Encoding):
        said.refuse("a tokenizer object")
        return _copied(*backend_of(source))
    from toktier.families.formats.ranked import of_encoding

    said.refuse("a tiktoken.Encoding")
    ranked = of_encoding(source)
    return _Ranks(ranked.digest, ranked.digest, lambda: ranked)


def _copied(source: tokenizers.Tokenizer, where: str, encode_special_tokens: bool) -> _Files:
    try:
        definition = source.to_str().encode()
    except Exception as error:
        raise InvalidDefinition(f"{where}: cannot be serialised: {error}") from None
    return _Files(where, definition, encode_special_tokens=encode_special_tokens, vocabulary=source.get_vocab)


def _read(file: pathlib.Path, said: _Keywords, configuration: pathlib.Path | None = None) -> _Files | _Ranks:
    data, where = file.read_bytes(), str(file)
    kind = kind_of(file, data)
    if kind is Kind.RANKS:
        return _read_ranks(data, where, said, configuration)
    said.refuse(where)
    if kind is Kind.TEKKEN:
        from toktier.families.formats.tekken import read_tekken

        digest = hashlib.sha256(data).hexdigest()
        return _Ranks(f"tekken {digest}", digest, functools.partial(read_tekken, data, where))
    if kind is Kind.PAIR:
        from toktier.families.formats.pair import read_pair

        built = read_pair(file.parent)
        return _copied(built, where, built.encode_special_tokens)
    if configuration is None:
        return _Files(where, data)
    return _Files(where, data, str(configuration), configuration.read_bytes())


def _read_ranks(data: bytes, where: str, said: _Keywords, configuration: pathlib.Path | None) -> _Ranks:
    from toktier.families.formats.patterns import PATTERNS, pattern_of
    from toktier.families.formats.ranked import RankedBPE
    from toktier.families.formats.rankfile import read_ranks, special_tokens_beside

    if said.pattern is None:
        raise InvalidDefinition(
            f"{where}: a rank file does not say by which pattern texts are split: give pattern=, a regular expression"
            f" or one of {', '.join(PATTERNS)}"
        )
    pattern, special = pattern_of(said.pattern), said.special_tokens
    if special is None:
        special = {} if configuration is None else special_tokens_beside(configuration)
    digest = hashlib.sha256(data).hexdigest()
    if not isinstance(special, Mapping):
        raise TypeError(f"special_tokens must map texts to ids, not be {special!r}")
    key = f"{digest} {pattern!r} {list(special.items())!r}"
    return _Ranks(key, digest, lambda: RankedBPE(where, pattern, read_ranks(data, where), dict(special)))


def _fetched(name: str, said: _Keywords) -> _Files | _Ranks:
    """The files of a repository on the Hugging Face hub, or in its local cache."""
    unknown = f"no file, directory or bundled tokenizer {name!r} (bundled: {', '.join(BUNDLED)})"
    try:
        import huggingface_hub
    except ImportError:
        raise UnknownTokenizer(f"{unknown}; to load it from the hub: pip install huggingface_hub") from None
    try:
        folder = huggingface_hub.snapshot_download(name, allow_patterns=list(FILES))
    except Exception as error:
        raise UnknownTokenizer(f"{unknown}, and {_hub_says(name, error)}") from error
    return _files(pathlib.Path(folder), said)


def _hub_says(name: str, error: Exception) -> str:
    """Why the hub gives no repository of a name, in one line, and what to do about it."""
    # By the names of their classes, which have moved between the hub's modules, while those did not change.
    kinds = {kind.__name__ for kind in type(error).__mro__}
    if "LocalEntryNotFoundError" in kinds:
        return "the hub cannot be reached, where its id would be looked up: give a file or a directory, or connect"
    if "GatedRepoError" in kinds:
        return f"on the hub it is gated: ask for access at huggingface.co/{name}, and log in with: hf auth login"
    if "RepositoryNotFoundError" in kinds:
        return "none of that id on the hub; a private one needs a login: hf auth login"
    return f"none of that id from the hub: {str(error).strip().partition(chr(10))[0]}"
