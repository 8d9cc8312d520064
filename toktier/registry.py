"""From whatever a user has to a :class:`Tokenizer`: loaded once, identified by content and not by path."""

from __future__ import annotations

import hashlib
import os
import pathlib
import re
import threading
from typing import ClassVar, TypeAlias

import tokenizers
from attrs import frozen

from toktier.engines.reference import ReferenceEngine
from toktier.errors import InvalidDefinition, UnknownTokenizer
from toktier.executor import Executor
from toktier.families import mini
from toktier.families.configuration import added_tokens, special_tokens_are_text
from toktier.families.definition import literals_of, load_reference, read
from toktier.families.family import Family
from toktier.families.probing import DiskCache, Probe, default_cache_directory
from toktier.tokenizer import Tokenizer

Source: TypeAlias = "str | os.PathLike[str] | tokenizers.Tokenizer"

BUNDLED = {"toktier-mini": mini.path}
"""The tokenizers that come with toktier, by name."""

CACHE_DIRECTORY = default_cache_directory()
"""Where a registry keeps what it asked the reference library, unless told otherwise."""

HUB_ID = re.compile(r"([\w.-]+/)?[\w.-]+(?<!\.json)")
"""What the hub calls a repository: ``owner/name``, or a name alone for some old ones."""

DEFINITION, CONFIGURATION = "tokenizer.json", "tokenizer_config.json"


@frozen
class _Files:
    """The bytes that a tokenizer is made of."""

    where: str
    definition: bytes
    configured_where: str = ""
    configuration: bytes | None = None
    encode_special_tokens: bool = False


class Registry:
    """Loads tokenizers, each once, and keeps them; safe to share between threads.

    Two sources with one content, however formatted, give one :class:`Tokenizer` with one :class:`Family`.

    Args:
        cache_directory: Where answers of the reference library about its character classes are kept between processes.
            Not given: the platform's cache directory. None: nowhere.

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
        """The registry of this process, which :func:`toktier.load` uses."""
        with cls._default_lock:
            cls._default = cls._default or Registry()
            return cls._default

    def load(self, source: Source) -> Tokenizer:
        """Loads a tokenizer.

        Args:
            source: One of: the path of a ``tokenizer.json``; a directory with one, in which the added tokens
                of a ``tokenizer_config.json`` count too, as ``transformers`` would load them (other files, the padding
                token and ``add_bos_token`` do not count); a bundled name
                (``"toktier-mini"``); the id of a repository on the Hugging Face hub, for which the package
                ``huggingface_hub`` must be installed; or a ``tokenizers.Tokenizer``, as it would be once saved.

        Raises:
            UnknownTokenizer: The source does not lead to a tokenizer.
            InvalidDefinition: It does, but the definition is broken; the message names the field.
            TypeError: The source is nothing of the above.
        """
        files = _files(source)
        key = hashlib.sha256(files.definition).hexdigest()
        if files.configuration is not None:
            key += hashlib.sha256(files.configuration).hexdigest()
        key += "special tokens as text" * files.encode_special_tokens
        with self._lock:
            loading = self._loading.setdefault(key, threading.Lock())
        with loading:
            if key not in self._by_source:
                self._by_source[key] = self._load(files)
            return self._by_source[key]

    def _load(self, files: _Files) -> Tokenizer:
        reference = load_reference(files.definition, files.where)
        reference.encode_special_tokens = files.encode_special_tokens
        earlier = literals_of(reference)
        if files.configuration is not None:
            known = {token.content: token for token in reference.get_added_tokens_decoder().values()}
            reference.add_tokens(added_tokens(files.configuration, files.configured_where, known))
            reference.encode_special_tokens = special_tokens_are_text(files.configuration)
        definition = read(reference, files.definition, files.where, self._cache, earlier)
        family = Family.derive(definition, Probe(self._cache))
        with self._lock:
            tokenizer = Tokenizer(family, ReferenceEngine(reference, family.digest), self._cache, self._executor)
            return self._by_digest.setdefault(family.digest, tokenizer)


def load(source: Source) -> Tokenizer:
    """Loads a tokenizer into the registry of this process: ``Registry.default().load(source)``.

    Args:
        source: A ``tokenizer.json``, a directory with one, a bundled name, an id on the Hugging Face hub, or a
            ``tokenizers.Tokenizer``; see :meth:`Registry.load`.

    Raises:
        UnknownTokenizer: The source does not lead to a tokenizer.
        InvalidDefinition: It does, but the definition is broken; the message names the field.

    Example:
        >>> import toktier
        >>> toktier.load("toktier-mini")
        <toktier.Tokenizer ... (supported)>
    """
    return Registry.default().load(source)


def _files(source: object) -> _Files:
    if isinstance(source, tokenizers.Tokenizer):
        return _copied(source)
    name = os.fspath(source) if isinstance(source, (str, os.PathLike)) else ""
    if not name:
        raise TypeError(
            f"cannot load a tokenizer from {source!r}: give a path, a name or a tokenizers.Tokenizer (what a fast "
            "tokenizer of transformers has as its backend_tokenizer)"
        )
    path = pathlib.Path(name)
    try:
        path = path.expanduser()
        is_directory, is_file = path.is_dir(), path.is_file()
    except (OSError, RuntimeError, ValueError) as error:  # too long, no such home, a NUL
        raise UnknownTokenizer(f"{name!r} cannot be looked for: {error}") from None
    if is_directory:
        if not (path / DEFINITION).is_file():
            raise UnknownTokenizer(f"directory {str(path)!r} has no {DEFINITION}")
        configuration = path / CONFIGURATION
        return _read(path / DEFINITION, configuration if configuration.is_file() else None)
    if is_file:
        return _read(path)
    if name in BUNDLED:
        return _read(BUNDLED[name]())
    if HUB_ID.fullmatch(name):
        return _fetched(name)
    raise UnknownTokenizer(f"no file, directory or bundled tokenizer {name!r} (bundled: {', '.join(BUNDLED)})")


def _copied(source: tokenizers.Tokenizer) -> _Files:
    where = "tokenizers.Tokenizer"
    try:
        files = _Files(where, source.to_str().encode(), encode_special_tokens=source.encode_special_tokens)
    except Exception as error:
        raise InvalidDefinition(f"{where}: cannot be serialised: {error}") from None
    # What was added before the model was replaced has ids that no file can say.
    if load_reference(files.definition, where).get_vocab() != source.get_vocab():
        raise InvalidDefinition(f"{where}: its added tokens have other ids once it is saved and loaded again")
    return files


def _read(definition: pathlib.Path, configuration: pathlib.Path | None = None) -> _Files:
    if configuration is None:
        return _Files(str(definition), definition.read_bytes())
    return _Files(str(definition), definition.read_bytes(), str(configuration), configuration.read_bytes())


def _fetched(name: str) -> _Files:
    """The files of a repository on the Hugging Face hub, or in its local cache."""
    unknown = f"no file, directory or bundled tokenizer {name!r} (bundled: {', '.join(BUNDLED)})"
    try:
        import huggingface_hub
    except ImportError:
        raise UnknownTokenizer(f"{unknown}; to load it from the hub: pip install huggingface_hub") from None
    try:
        folder = huggingface_hub.snapshot_download(name, allow_patterns=[DEFINITION, CONFIGURATION])
    except Exception as error:
        raise UnknownTokenizer(f"{unknown}, and none of that id from the hub: {error}") from error
    return _files(pathlib.Path(folder))
