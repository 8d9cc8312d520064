"""Which stored texts may share a long prefix with a new one: found by digests, to be confirmed by comparison.

A text is listed under its prefixes of doubling lengths. The digest of a prefix covers a window at its end and, by way
of the digest of the prefix half as long, those at the ends of all shorter ones: finding candidates costs microseconds.
What confirms one is a comparison, which is a pass over what the two have in common.

Source of the digests: BLAKE2b with a key (RFC 7693).
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Hashable, Iterator
from typing import Generic, TypeVar

SHORTEST = 1024
"""Characters of the shortest prefix under which a text is listed."""

WINDOW = 256
"""Characters before the end of a prefix that its digest covers."""

MOST = 16
"""Texts that are listed under one digest: the latest. All texts with one system prompt share the short prefixes."""

Name = TypeVar("Name", bound=Hashable)


class PrefixIndex(Generic[Name]):
    """Names of texts by digests of their prefixes. Not locked.

    The digests are keyed with a secret of this index, and with what separates tenants: nobody can make up two texts
    that collide, or learn what another tenant has stored.

    Example:
        >>> index = PrefixIndex()
        >>> text = "".join(map(str, range(1000)))
        >>> index.add("one", index.digests(text, "tenant"))
        >>> list(index.candidates(index.digests(text[:2000] + "...", "tenant")))
        ['one']
        >>> list(index.candidates(index.digests(text[:2000] + "...", "another tenant")))
        []
    """

    def __init__(self) -> None:
        self._secret = secrets.token_bytes(32)
        self._names: dict[bytes, dict[Name, None]] = {}

    def digests(self, text: str, salt: str) -> list[bytes]:
        """The 128-bit digests of a text's prefixes of doubling lengths, in ascending order."""
        found = []
        running = hashlib.blake2b(salt.encode("utf-8", "surrogatepass"), digest_size=16, key=self._secret)
        running = hashlib.blake2b(running.digest(), digest_size=16, key=self._secret)  # of one length for any salt
        length = SHORTEST
        while length <= len(text):
            running.update(text[length - WINDOW : length].encode("utf-32-le", "surrogatepass"))
            found.append(running.digest())
            length *= 2
        return found

    def add(self, name: Name, digests: list[bytes]) -> None:
        """Lists a text, or makes it the latest where it is listed already."""
        for digest in digests:
            names = self._names.setdefault(digest, {})
            names.pop(name, None)
            names[name] = None
            if len(names) > MOST:
                del names[next(iter(names))]

    def remove(self, name: Name, digests: list[bytes]) -> None:
        """Lists a text no more under some digests."""
        for digest in digests:
            names = self._names.get(digest)
            if names is not None:
                names.pop(name, None)
                if not names:
                    del self._names[digest]

    def candidates(self, digests: list[bytes]) -> Iterator[Name]:
        """The names of texts that may share a prefix, those with the longest first; each once."""
        met: set[Name] = set()
        for digest in reversed(digests):
            for name in reversed(self._names.get(digest, {})):
                if name not in met:
                    met.add(name)
                    yield name
