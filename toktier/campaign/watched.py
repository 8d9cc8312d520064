"""Engines that say what they are given."""

from __future__ import annotations

from collections.abc import Sequence

from attrs import define

from toktier.engines.base import Engine, Ids


class Broken(Exception):
    """What an engine raises that was told to fail."""


@define
class Watched:
    """An engine that counts the characters it is given, and fails when it is told to."""

    engine: Engine
    characters: int = 0
    fails: bool = False
    name: str = "watched"

    def encode(self, text: str, *, continuation: bool = False) -> Ids:
        """The ids of a text."""
        self._meet(text)
        return self.engine.encode(text, continuation=continuation)

    def encode_batch(self, texts: Sequence[str], *, continuation: bool = False) -> list[Ids]:
        """The ids of several texts."""
        self._meet(*texts)
        return self.engine.encode_batch(texts, continuation=continuation)

    @property
    def call_size(self) -> int:
        """The engine's."""
        size: int = getattr(self.engine, "call_size", 0)
        return size

    def _meet(self, *texts: str) -> None:
        if self.fails:
            raise Broken
        self.characters += sum(map(len, texts))
