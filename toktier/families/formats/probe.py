"""Asks tiktoken what its character classes contain: its regular expressions follow tables of Unicode of their own.

An encoding of the 256 bytes gives a text back byte by byte, as far as its pattern matches. So with a class for a
pattern, of all characters of Unicode it gives back those that are in the class.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt
import tiktoken
from attrs import define

from toktier.families.pattern import Unsupported, escaped
from toktier.families.probing import CODE_POINTS, Probe, Runs, blocks, boundaries, every_character

BYTES = {bytes((value,)): value for value in range(256)}
"""The ranks of an encoding in which every byte is its own id."""

LOWEST = 0x250
"""Characters that a case-insensitive sequence of ASCII may match one by one stand below this."""


@define
class TiktokenProbe(Probe):
    """The questions about patterns, answered by tiktoken; each once per process and version of it.

    Example:
        >>> from toktier.families.probing import DiskCache
        >>> probe = TiktokenProbe(DiskCache(None))
        >>> probe.members(r"[a-c&&[^b]]").tolist(), probe.members("(?i:s)").tolist()
        ([97, 98, 99, 100], [83, 84, 115, 116, 383, 384])
    """

    def members(self, source: str) -> Runs:
        """The code points that a character class matches.

        Args:
            source: The class as written, in the syntax of ``fancy-regex``.

        Raises:
            Unsupported: The library refuses the class by itself.
        """
        return self._asked("class", f"(?:{source})+", blocks(every_character()))

    def lookalikes(self, sequences: Iterable[str]) -> Runs:
        """Single code points that a case-insensitive sequence of ASCII characters matches: none so far."""
        pattern = "(?i:" + "|".join("".join(map(escaped, sequence)) for sequence in sorted(sequences)) + ")"
        everything = every_character()
        # Apart, so that neighbours of the code space do not form the sequence.
        return self._asked("lookalikes", pattern, ["\n".join(everything[:LOWEST]), *blocks(everything[LOWEST:])])

    def _asked(self, kind: str, pattern: str, texts: Iterable[str]) -> Runs:
        answer = self.cache.get(
            [f"tiktoken {kind}", tiktoken.__version__, pattern],
            lambda: boundaries(_matched_by(pattern, texts)).tolist(),
        )
        return np.array(answer, np.int64)


def _matched_by(pattern: str, texts: Iterable[str]) -> npt.NDArray[np.bool_]:
    """Which characters of some texts are in a match of a pattern; by code point, shape (0x110000,)."""
    try:
        encoding = tiktoken.Encoding("toktier", pat_str=pattern, mergeable_ranks=BYTES, special_tokens={})
    except Exception as error:
        raise Unsupported(f"the library refuses {pattern!r} by itself: {error}") from None
    matched = np.zeros(CODE_POINTS, bool)
    for text in texts:
        found = bytes(encoding.encode_ordinary(text)).decode("utf-8")
        matched[np.frombuffer(found.encode("utf-32-le"), np.uint32)] = True
    return matched
