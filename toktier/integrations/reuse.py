"""What encodes in the place of a tokenizer of the library ``tokenizers`` as long as that is sure to make no difference.

Everything that is not sure goes to the library: texts that are too short to matter, pairs, truncation and padding that
change something, a tokenizer that is not understood or that was changed in ways that cannot be followed.
"""

from __future__ import annotations

import copy
import functools
import logging
import os
import threading
from collections.abc import Sequence
from typing import Any

import tokenizers
from attrs import frozen

from toktier.engines.base import contained
from toktier.errors import InvalidText, ToktierError
from toktier.integrations.encodings import Affixes, Pending, affixes
from toktier.integrations.lists import Lists
from toktier.integrations.watching import Watch, disagreement, state
from toktier.registry import Registry
from toktier.store import SessionStore
from toktier.tokenizer import Tokenizer

WORTHWHILE = 2048
"""Characters of a text from which on it is looked for in the store: the library takes a millisecond for fewer."""

CHANGES = 8
"""How often a tokenizer may change and be derived anew, which takes seconds. Then the library encodes for good."""

LISTS_SHARE = 16
"""The lists of ids that are kept may hold as much as that part of what the store may."""

PROCESSORS = 8
"""Post-processors of which is remembered what they add."""

LONGEST_READ = 1 << 12
"""Ids from which on truncation does not matter to :func:`disagreement`."""

DENSEST = 8
"""Characters per id beyond which a text is taken to be truncated, and not looked for in the store."""

logger = logging.getLogger(__name__)


@frozen
class FastTokenizer:
    """What :func:`toktier.load` reads of a fast tokenizer of ``transformers``."""

    backend_tokenizer: tokenizers.Tokenizer
    split_special_tokens: bool


class Served:
    """A tokenizer as it was at some time, and the store that encodes for it.

    Args:
        backend: The tokenizer.
        split: Whether special tokens in a text are encoded like any other text.

    Attributes:
        split: The same.
        store: Encodes; None if the library has to.
        lists: Makes lists of ids.
        has_warned: Whether it was said that the store could not encode something.
    """

    def __init__(self, backend: tokenizers.Tokenizer, *, split: bool) -> None:
        self._watch = Watch(backend)
        self._plain: tokenizers.Tokenizer | None = None
        self.split = split
        self.store: SessionStore | None = None
        self.lists = Lists(0)
        self.has_warned = False

    def by(self, store: SessionStore) -> Served:
        """The same, encoded for by a store."""
        self.store = store
        self.lists = Lists(store.max_bytes // LISTS_SHARE)
        return self

    def of_copy(self, backend: tokenizers.Tokenizer) -> Served | None:
        """The same for a copy of the tokenizer; None if that differs from what it was."""
        other = Served(backend, split=self.split)
        if not other._watch.saw_the_same(self._watch):
            return None
        other.store, other.lists = self.store, self.lists
        return other

    def is_still(self, backend: tokenizers.Tokenizer, *, split: bool) -> bool:
        """Whether that is the tokenizer, as it was."""
        return split == self.split and self._watch.sees_no_change(backend)

    def plain(self) -> tokenizers.Tokenizer:
        """A copy of the tokenizer as it was, without post-processor, truncation and padding."""
        if self._plain is None:
            assert self.store is not None
            library = tokenizers.Tokenizer.from_str(self.store.tokenizer.reference.tokenizer.to_str())
            library.encode_special_tokens = self.split
            library.post_processor = None
            self._plain = library
        return self._plain


@frozen
class Added:
    """A post-processor that nobody else can change, and what it adds without and with special tokens."""

    processor: Any
    affixes: tuple[Affixes | None, Affixes | None]

    @classmethod
    def by(cls, processor: Any) -> Added:
        """What a post-processor adds."""
        own = copy.deepcopy(processor)
        return cls(own, (affixes(own, add_special_tokens=False), affixes(own, add_special_tokens=True)))


@frozen
class Limits:
    """Truncation and padding that a tokenizer of the library has at the moment, as far as they change no single text.

    Attributes:
        most: Ids beyond which a text is truncated.
        least: Ids below which it is padded.
        multiple: It is padded to a multiple of that many.
    """

    most: int | None
    least: int
    multiple: int

    @classmethod
    def of(cls, backend: tokenizers.Tokenizer) -> Limits | None:
        """Those of a tokenizer, if it has any."""
        truncation, padding = backend.truncation, backend.padding
        if truncation is None and padding is None:
            return None
        padding = padding or {}
        most = None if truncation is None else truncation["max_length"]
        return cls(most, padding.get("length") or 0, padding.get("pad_to_multiple_of") or 1)

    def may_allow(self, texts: Sequence[str]) -> bool:
        """Whether it makes sense to look how many ids there are: not for several, of which the longest pads all."""
        return len(texts) == 1 and (self.most is None or len(texts[0]) <= DENSEST * self.most)

    def allow(self, size: int) -> bool:
        """Whether a text of so many ids stays what it is."""
        return (self.most is None or size <= self.most) and size >= self.least and size % self.multiple == 0


def is_bare(backend: tokenizers.Tokenizer, *, split: bool) -> bool:
    """Whether a tokenizer gives all ids of a text, with special tokens as they are encoded by default."""
    return backend.encode_special_tokens == split and backend.truncation is None and backend.padding is None


def is_readable(backend: tokenizers.Tokenizer, *, split: bool) -> bool:
    """Whether a tokenizer gives all ids of what is read to find out what it is."""
    truncation = backend.truncation
    return backend.encode_special_tokens == split and (truncation is None or truncation["max_length"] >= LONGEST_READ)


def is_same(stored: Tokenizer, tok: Tokenizer, source: FastTokenizer) -> bool:
    """Whether two tokenizers differ in post-processor and decoder at most, which neither of them uses.

    Args:
        stored: One of them.
        tok: The other one.
        source: What the other one was loaded from.
    """
    if stored.family.digest == tok.family.digest:
        return True
    reference = stored.reference.tokenizer
    library = tokenizers.Tokenizer.from_str(source.backend_tokenizer.to_str())
    library.post_processor, library.decoder = reference.post_processor, reference.decoder
    return Registry().load(FastTokenizer(library, source.split_special_tokens)).family.digest == stored.family.digest


class Reuse:
    """The store of one wrapped tokenizer, and whether it may answer. Safe to share between threads.

    Args:
        store: The store that was given; not given, there is one for each state that the tokenizer is found in.
    """

    def __init__(self, store: SessionStore | None = None) -> None:
        self._given = store
        self._served: Served | None = None
        self._changes = 0
        self._added: dict[bytes | None, Added] = {}
        self._lock = threading.Lock()
        self._process = os.getpid()

    def __copy__(self) -> Reuse:
        """For a copy of the tokenizer, which goes on with the same store as long as it is the same tokenizer."""
        other = Reuse(self._given)
        other._served = self._served
        return other

    def of_copy(self, backend: tokenizers.Tokenizer) -> Reuse:
        """For a copy of the tokenizer that has a copy of the library's: servers make one for each of their threads."""
        other, served = Reuse(self._given), self._served
        if served is not None and served.store is not None:
            other._served = served.of_copy(backend)
        return other

    def start(self, backend: tokenizers.Tokenizer, *, split: bool) -> None:
        """Derives the tokenizer, so that no call has to wait for it.

        Raises:
            ValueError: The store that was given is another tokenizer's.
        """
        if is_readable(backend, split=split):
            self._current(backend, split=split)

    def encode(
        self, backend: tokenizers.Tokenizer, texts: Sequence[str], *, add_special_tokens: bool, split: bool
    ) -> list[Pending] | None:
        """What the library would give for some texts, each by itself, but padding.

        Args:
            backend: The library's tokenizer.
            texts: The texts.
            add_special_tokens: Whether its post-processor is to add special tokens.
            split: Whether the tokenizer of ``transformers`` has special tokens encoded like any other text.

        Returns:
            One for each text; None if the library has to be asked.
        """
        if os.getpid() != self._process or backend.encode_special_tokens != split:
            return None  # after a fork, other threads may have left the store in the middle of something
        try:
            served = self._current(backend, split=split)
            if served is None or served.store is None:
                return None
            added = self._adds(backend)
            around = added.affixes[add_special_tokens]
            if around is None:
                return None
            pending = []
            for text in texts:
                ids = served.store.encode(text)
                resolve = functools.partial(self._resolve, backend, served, added, text, add_special_tokens)
                pending.append(Pending(ids, around, served.lists, resolve))
            return pending
        except InvalidText:
            return None  # the library says what it thinks of it
        except BaseException as error:
            if not contained(error):
                raise
            self._warn(error)
            return None

    def _current(self, backend: tokenizers.Tokenizer, *, split: bool) -> Served | None:
        """The tokenizer as it is; None if it has to be derived, and that cannot be done now."""
        served = self._served
        if served is not None and served.is_still(backend, split=split):
            return served
        if not is_readable(backend, split=split) or not self._lock.acquire(blocking=False):
            return None
        try:
            self._served = served = self._derived(backend, split=split)
            return served
        finally:
            self._lock.release()

    def _derived(self, backend: tokenizers.Tokenizer, *, split: bool) -> Served:
        before, served = self._served, Served(backend, split=split)
        self._changes += 1
        if self._changes > CHANGES:
            logger.warning("a wrapped tokenizer changes too often to be followed: the library encodes from now on")
            return served
        # The registry of the process keeps all that it loads. What a tokenizer becomes is nobody else's.
        registry = Registry.default() if before is None else Registry()
        source = FastTokenizer(backend, split)
        try:
            tok = registry.load(source)
        except ToktierError as error:
            logger.warning("the library encodes for a wrapped tokenizer, since it cannot be loaded: %s", error)
            return served
        if (reason := tok.family.reason or disagreement(backend, tok)) is not None:
            logger.warning("the library encodes for a wrapped tokenizer: %s", reason)
            return served
        if self._given is not None:
            if is_same(self._given.tokenizer, tok, source):
                return served.by(self._given)
            if before is None:
                raise ValueError(
                    f"the store is another tokenizer's: it has {self._given.tokenizer!r}, and this one is {tok!r};"
                    " make it with toktier.SessionStore(toktier.load(tokenizer))"
                )
            logger.warning("a wrapped tokenizer has changed, and is not the one of its store: the library encodes")
            return served
        if (
            before is not None
            and before.store is not None
            and before.store.tokenizer.family.digest == tok.family.digest
        ):
            return served.by(before.store)
        return served.by(SessionStore(tok))

    def _adds(self, backend: tokenizers.Tokenizer) -> Added:
        """What the post-processor adds that the tokenizer has at the moment."""
        processor = backend.post_processor
        key = state(processor)
        added = self._added.get(key)
        if added is None or key == b"":
            added = Added.by(processor)
            if len(self._added) >= PROCESSORS:
                self._added = {}
            self._added[key] = added
        return added

    def _resolve(
        self, backend: tokenizers.Tokenizer, served: Served, added: Added, text: str, add_special_tokens: bool
    ) -> tokenizers.Encoding:
        """The ``Encoding`` of a text, as it would have been when its ids were asked for."""
        same = is_bare(backend, split=served.split) and state(backend.post_processor) == state(added.processor)
        if same and served.is_still(backend, split=served.split):
            return backend.encode_batch([text], add_special_tokens=add_special_tokens)[0]
        encoding = served.plain().encode_batch([text], add_special_tokens=False)[0]
        if added.processor is not None:
            encoding = added.processor.process(encoding, None, add_special_tokens)
        return encoding

    def _warn(self, error: BaseException) -> None:
        served = self._served
        if served is None or not served.has_warned:
            logger.warning("the library encodes for a wrapped tokenizer, since its store could not: %r", error)
        if served is not None:
            served.has_warned = True


class Backend:
    """A tokenizer of the library, but for how it encodes a batch of texts. Everything else is the library's.

    Args:
        library: The tokenizer.
        reuse: What encodes long texts.
        split: Whether the tokenizer of ``transformers`` has special tokens encoded like any other text.
    """

    __slots__ = ("_library", "_reuse", "_split")

    def __init__(self, library: tokenizers.Tokenizer, reuse: Reuse, *, split: bool) -> None:
        object.__setattr__(self, "_library", library)
        object.__setattr__(self, "_reuse", reuse)
        object.__setattr__(self, "_split", split)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._library, name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self._library, name, value)

    def encode_batch(
        self, input: Sequence[Any], is_pretokenized: bool = False, add_special_tokens: bool = True
    ) -> Sequence[tokenizers.Encoding | Pending]:
        """What the library gives, or what stands for it."""
        library: tokenizers.Tokenizer = self._library
        ask = functools.partial(
            library.encode_batch, is_pretokenized=is_pretokenized, add_special_tokens=add_special_tokens
        )
        long = [at for at, text in enumerate(input) if type(text) is str and len(text) >= WORTHWHILE]
        limits = Limits.of(library)
        if is_pretokenized or not long or not (limits is None or limits.may_allow(input)):
            return ask(input)
        pending = self._reuse.encode(
            library, [input[at] for at in long], add_special_tokens=add_special_tokens, split=self._split
        )
        if pending is None or not (limits is None or limits.allow(len(pending[0]))):
            return ask(input)
        if len(long) == len(input):
            return [*pending]
        places = dict(zip(long, pending, strict=True))
        others = iter(ask([text for at, text in enumerate(input) if at not in places]))
        return [places[at] if at in places else next(others) for at in range(len(input))]
