"""The protocol that every engine answers to."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, TypeAlias, runtime_checkable

import numpy as np
import numpy.typing as npt

from toktier.errors import EngineFailure

Ids: TypeAlias = npt.NDArray[np.uint32]
"""Token ids, uint32, shape (tokens,)."""


class Inapplicable(Exception):
    """An engine cannot serve a family. The message is the reason that the user is shown."""


class Unavailable(Exception):
    """An engine cannot work at present, whatever the text is. The message says why."""


@runtime_checkable
class Engine(Protocol):
    """Maps texts to the ids of one tokenizer.

    An engine recognises added tokens, adds nothing of its own (no BOS, no template), keeps no state that can change an
    answer, and bounds its memory. Any object with these members can be passed to ``Session(tok, engine=...)``. One may
    also have ``call_size``: how many characters of a long text are worth a call, where a chunk is too few. Several
    threads may call it at once, for the chunks of long texts.

    Attributes:
        name: What reports call it.

    Example:
        >>> import toktier
        >>> tok = toktier.load("toktier-mini")
        >>> class Counting:
        ...     name, characters = "counting", 0
        ...
        ...     def encode(self, text, *, continuation=False):
        ...         self.characters += len(text)
        ...         return tok.engine("reference").encode(text)
        ...
        ...     def encode_batch(self, texts, *, continuation=False):
        ...         return [self.encode(text) for text in texts]
        >>> engine = Counting()
        >>> session = toktier.Session(tok, "The quick brown fox", engine=engine)
        >>> patch = session.append(" jumps")
        >>> isinstance(engine, Engine), engine.characters
        (True, 25)
    """

    name: str

    def encode(self, text: str, *, continuation: bool = False) -> Ids:
        """The ids of a text.

        Args:
            text: Any text without lone surrogates.
            continuation: The text continues another one, from which it was parted at a certified cut. It makes a
                difference only to definitions that put a prefix before a text, and what stands before the engines sees
                to that (``toktier.engines.continuing``): an engine itself is asked for whole texts, and may ignore
                it.

        Returns:
            uint32, shape (tokens,).

        Example:
            >>> import toktier
            >>> toktier.load("toktier-mini").engine("memo").encode("Hello world")
            array([  39,  523,  323, 3241, 1151], dtype=uint32)
        """
        ...

    def encode_batch(self, texts: Sequence[str], *, continuation: bool = False) -> list[Ids]:
        """The ids of several texts, as :meth:`encode` gives them for each.

        Args:
            texts: Texts without lone surrogates.
            continuation: As for :meth:`encode`, of all of them.

        Returns:
            An array for each text, uint32, shape (tokens,).

        Example:
            >>> import toktier
            >>> [ids.tolist() for ids in toktier.load("toktier-mini").engine("memo").encode_batch(["Hello", " world"])]
            [[39, 523, 323], [3241, 1151]]
        """
        ...


UINT32 = np.dtype(np.uint32)


def checked(engine: Engine, ids: Any) -> Ids:
    """What an engine gave, which may be anybody's: a row of uint32 and nothing else.

    Raises:
        TypeError: It is something else.
    """
    if getattr(ids, "dtype", None) != UINT32:
        kind = getattr(ids, "dtype", type(ids).__name__)
        raise TypeError(f"engine {engine.name!r} gave ids of type {kind}, not uint32")
    if ids.ndim != 1:
        raise TypeError(f"engine {engine.name!r} gave ids of shape {ids.shape}, not (tokens,)")
    return ids  # type: ignore[no-any-return]


def failure(library: str, error: BaseException, size: int) -> BaseException:
    """What to raise where a library has raised on a text of so many characters."""
    # Too little memory is not a matter of the text.
    if not contained(error) or isinstance(error, MemoryError):
        return error
    return EngineFailure(f"{library} cannot encode a text of {size} characters: {error}")


def is_panic(error: BaseException) -> bool:
    """Whether an error is a panic of a library in Rust, which is no ``Exception``."""
    return type(error).__name__ == "PanicException"


def contained(error: BaseException) -> bool:
    """Whether an error is an engine's own, so that the reference can answer in its place."""
    return isinstance(error, Exception) or is_panic(error)
