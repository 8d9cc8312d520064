"""Texts that are normal as they are: the usual case, and told without asking a normalizer.

The reference's normalizers copy the text and keep the interpreter to themselves meanwhile, so that two threads which
ask them take turns.
"""

from __future__ import annotations

from collections.abc import Sequence

from toktier.families.family import finder
from toktier.families.normalization import rewriting
from toktier.families.probing import Probe
from toktier.families.stages import CharacterMap, Form, Normalizer


class Normality:
    r"""Which texts the normalizers of a family certainly leave alone.

    Example:
        >>> normality = Normality([Form("NFC")], Probe())
        >>> normality.is_sure("caf\u00e9"), normality.is_sure("cafe\u0301")
        (True, False)
    """

    def __init__(self, normalizers: Sequence[Normalizer], probe: Probe) -> None:
        understood = [stage for stage in normalizers if isinstance(stage, CharacterMap | Form)]
        # If no character of a text can be other than itself at the end of a normalized one, none is when it is added.
        changing = {c for stage in understood for c in rewriting(stage, probe).ends}
        self._always = not normalizers
        self._never = len(understood) < len(normalizers)
        self._ascii = not self._never and all(c >= 0x80 for c in changing)
        self._may_change = finder(changing)

    def is_sure(self, text: str) -> bool:
        """Whether a text is left alone, and each part of it; when not, it may be all the same."""
        return self._always or (self._ascii and text.isascii()) or not (self._never or self._may_change(text))
