"""Texts that are normal as they are: the usual case, and told without asking a normalizer.

The reference's normalizers copy the text and keep the interpreter to themselves meanwhile, so that two threads which
ask them take turns.
"""

from __future__ import annotations

from collections.abc import Sequence

from toktier.families.family import finder
from toktier.families.normalization import CHARACTER_WISE, rewriting
from toktier.families.probing import Probe


class Normality:
    r"""Which texts the normalizers of a family certainly leave alone.

    Example:
        >>> normality = Normality(("NFC",), Probe())
        >>> normality.is_sure("caf\u00e9"), normality.is_sure("cafe\u0301")
        (True, False)
    """

    def __init__(self, normalizers: Sequence[str], probe: Probe) -> None:
        self._always = not normalizers
        self._ascii = CHARACTER_WISE.isdisjoint(normalizers)
        # If no character of a text can be other than itself at the end of a normalized one, none is when it is added.
        self._may_change = finder(rewriting(normalizers, probe).ends)

    def is_sure(self, text: str) -> bool:
        """Whether a text is left alone, and each part of it; when not, it may be all the same."""
        return self._always or (self._ascii and text.isascii()) or not self._may_change(text)
