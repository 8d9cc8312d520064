"""The protocol that every engine answers to."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypeAlias, runtime_checkable

import numpy as np
import numpy.typing as npt

Ids: TypeAlias = npt.NDArray[np.uint32]
"""Token ids, uint32, shape (tokens,)."""


@runtime_checkable
class Engine(Protocol):
    """Maps texts to the ids of one tokenizer.

    An engine recognises added tokens, adds nothing of its own (no BOS, no template), keeps no state that can change an
    answer, and bounds its memory. Any object with these members can be passed to ``Session(tok, engine=...)``.

    Attributes:
        name: What reports call it.
    """

    name: str

    def encode(self, text: str, *, continuation: bool = False) -> Ids:
        """The ids of a text.

        Args:
            text: Any text without lone surrogates.
            continuation: The text continues another one, from which it was parted at a certified cut. It makes a
                difference only to definitions that put a prefix before a text.

        Returns:
            uint32, shape (tokens,).
        """
        ...

    def encode_batch(self, texts: Sequence[str], *, continuation: bool = False) -> list[Ids]:
        """The ids of several texts; ``continuation`` holds for the first, each other one continues the one before."""
        ...
