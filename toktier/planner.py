"""Long texts: cut into chunks at certified cuts, and encoded on several cores.

Because the cuts are certified, the ids of a text are those of its chunks, one after the other: nothing is matched or
repaired where two of them meet, and a character on which an engine differs sends one chunk to the reference.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence

import numpy as np

from toktier.engines.base import Engine, Ids
from toktier.engines.continuing import encode_continuing
from toktier.executor import Executor
from toktier.families.family import Family

CHUNK = 1 << 15
"""Characters of a chunk, about. Sessions keep the places between chunks as seams, and the first edit at a place encodes
as much as that."""

REACH = 1 << 10
"""Characters that are looked at for a cut before each target; in real text it takes a handful."""

LONG = 1 << 17
"""Characters from which on a text is worth more than one thread, whatever the engine."""


class CutPlanner:
    """Cuts the texts of one family, and has the chunks of long ones encoded in parallel. Safe to share between threads.

    A tokenizer has one: ``tok.planner``.

    Args:
        family: Says where texts may be cut.
        executor: Encodes the chunks of long texts.

    Attributes:
        family: The family.

    Example:
        >>> import toktier
        >>> planner = toktier.load("toktier-mini").planner
        >>> planner.cuts("Cuts near evenly spaced targets.", size=8)
        [4, 16, 23]
    """

    def __init__(self, family: Family, executor: Executor) -> None:
        self.family = family
        self._executor = executor

    def cuts(self, text: str, size: int = CHUNK) -> list[int]:
        """Where to cut a text into chunks of about a size.

        Looks back from targets that are evenly spaced. One without a cut within REACH is passed over, so that a
        chunk is longer: a text without cuts is one chunk.

        Args:
            text: The text.
            size: Characters between two targets, 1 or more.

        Returns:
            Certified cuts, as positions in characters, ascending.

        Example:
            >>> import toktier
            >>> planner = toktier.load("toktier-mini").planner
            >>> planner.cuts("word " * 10, size=20), planner.cuts("w" * 50, size=20)
            ([19], [])
        """
        found: list[int] = []
        previous = 0
        for target in range(size, len(text) - size // 2, size):
            floor = max(previous, target - min(size, REACH))
            if (at := self.family.last_cut(text, floor, target)) > floor:
                found.append(at)
                previous = at
        return found

    def encode(self, text: str, engine: Engine) -> Ids:
        """The ids of a text, with an engine; uint32, shape (tokens,).

        A text of 131,072 characters or more is cut into chunks, which are encoded on several cores.

        Args:
            text: A valid text.
            engine: What encodes. What it raises is raised here.

        Example:
            >>> import toktier
            >>> tok = toktier.load("toktier-mini")
            >>> tok.planner.encode("Hello world", tok.engine("memo")).tolist()
            [39, 523, 323, 3241, 1151]
        """
        if len(text) < LONG:
            return engine.encode(text)
        return self.encode_batch([text], engine)[0]

    def encode_batch(self, texts: Sequence[str], engine: Engine) -> list[Ids]:
        """The ids of several texts, with an engine: an array for each, uint32, shape (tokens,).

        Args:
            texts: Valid texts; where they have 131,072 characters together, they are encoded on several cores.
            engine: What encodes. What it raises is raised here.

        Example:
            >>> import toktier
            >>> tok = toktier.load("toktier-mini")
            >>> [ids.tolist() for ids in tok.planner.encode_batch(["Hello", " world"], tok.engine("memo"))]
            [[39, 523, 323], [3241, 1151]]
        """
        if sum(map(len, texts)) < LONG:
            return engine.encode_batch(texts)
        divided = [parts(text, self.cuts(text)) for text in texts]
        chunks = [chunk for some in divided for chunk in some]
        continuing = [i > 0 for some in divided for i in range(len(some))]
        run = functools.partial(self._executor.encode, engine)
        encoded = iter(encode_continuing(self.family, engine, chunks, continuing, run))
        # Copies, also of what is one chunk: it may be a part of an array with the ids of all.
        return [np.concatenate([next(encoded) for _ in some]) for some in divided]

    def encode_parts(self, texts: Sequence[str], engine: Engine, *, continuation: bool) -> list[Ids]:
        """The ids of each of some parts that a text was cut into.

        Args:
            texts: The parts, in order.
            engine: What encodes. What it raises is raised here.
            continuation: Whether there is more text before the first.

        Returns:
            An array for each part, uint32, shape (tokens,).

        Example:
            >>> import toktier
            >>> tok = toktier.load("toktier-mini")
            >>> encoded = tok.planner.encode_parts(["Hello", " world"], tok.engine("memo"), continuation=False)
            >>> [ids.tolist() for ids in encoded]
            [[39, 523, 323], [3241, 1151]]
        """
        long = len(texts) > 1 and sum(map(len, texts)) >= LONG
        run = functools.partial(self._executor.encode, engine) if long else engine.encode_batch
        if not self.family.prefixed:
            return run(texts)
        return encode_continuing(self.family, engine, texts, [continuation or i > 0 for i in range(len(texts))], run)


def parts(text: str, cuts: Sequence[int]) -> list[str]:
    """What is between the cuts of a text.

    >>> parts("one two", [3])
    ['one', ' two']
    """
    found, start = [], 0
    for cut in cuts:
        found.append(text[start:cut])
        start = cut
    found.append(text[start:])
    return found
