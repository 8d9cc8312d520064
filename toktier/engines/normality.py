"""Texts that are normal as they are: the usual case, and told without asking a normalizer.

The reference's normalizers copy the text and keep the interpreter to themselves meanwhile, so that two threads which
ask them take turns.
"""

from __future__ import annotations

from collections.abc import Sequence

from toktier.engines.base import Inapplicable
from toktier.families.definition import Definition
from toktier.families.family import finder
from toktier.families.normalization import rewriting
from toktier.families.probing import Probe, code_points_of
from toktier.families.stages import CharacterMap, Form, Normalizer


def refuse_other_rewriting(definition: Definition) -> None:
    """Makes sure that a normal text is one that no normalizer changes, so that there are any.

    Raises:
        Inapplicable: A normalizer inserts or drops something, or looks further than at characters and their marks.
    """
    if not all(isinstance(stage, CharacterMap | Form) for stage in definition.normalizers):
        raise Inapplicable("a normalizer does more than map characters")


class Normality:
    r"""Which texts the normalizers of a family certainly leave alone.

    Args:
        normalizers: Those that :func:`refuse_other_rewriting` lets pass.
        probe: Where the reference library is asked.

    Example:
        >>> normality = Normality([Form("NFC")], Probe())
        >>> normality.is_sure("caf\u00e9"), normality.is_sure("cafe\u0301")
        (True, False)
    """

    def __init__(self, normalizers: Sequence[Normalizer], probe: Probe) -> None:
        # If no character of a text can be other than itself at the end of a normalized one, none is when it is added.
        stages = [stage for stage in normalizers if isinstance(stage, CharacterMap | Form)]
        rewritings = [rewriting(stage, probe) for stage in stages]
        changing = {c for each in rewritings for c in (*each.ends, *code_points_of(each.lost))}
        self._always = not normalizers
        self._ascii = all(c >= 0x80 for c in changing)
        self._may_change = finder(changing)

    def is_sure(self, text: str) -> bool:
        """Whether a text is left alone, and each part of it; when not, it may be all the same."""
        return self._always or (self._ascii and text.isascii()) or not self._may_change(text)
