"""Text that continues another one, for tokenizers that put a prefix before every text.

Llama 2 encodes ``world`` as if it were ``▁world``; behind a certified cut it has no ``▁``. No library can be asked for
that. But a cut is certified whatever is left of it, so a single character will do: the ids of the text behind it are
those of both together, less those of the character. That is exact with any engine that is exact for whole texts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from toktier.engines.base import Engine, Ids
from toktier.families.family import Family


def encode_continuing(
    family: Family,
    engine: Engine,
    texts: Sequence[str],
    continuing: Sequence[bool],
    encode: Callable[[Sequence[str]], list[Ids]],
) -> list[Ids]:
    """The ids of some texts, of which some continue others.

    Args:
        family: Says whether it makes a difference, and behind what a text may be cut off.
        engine: What encodes.
        texts: The texts.
        continuing: For each, whether it continues another one, from which it was parted at a certified cut.
        encode: How the engine encodes several texts.

    Returns:
        The ids of each, uint32.

    Raises:
        ValueError: A text is to continue another one, and there is no certified cut before its first character.
        TypeError: The engine gave ids for another number of texts.

    Example:
        >>> import tokenizers, toktier
        >>> words = tokenizers.Tokenizer(tokenizers.models.WordLevel({"▁an": 0, "▁other": 1, "other": 2, "?": 3}, "?"))
        >>> words.normalizer = tokenizers.normalizers.Prepend("▁")
        >>> words.pre_tokenizer = tokenizers.pre_tokenizers.Split(" ", "removed")
        >>> tok = toktier.load(words)
        >>> engine = tok.engine("reference")
        >>> encode_continuing(tok.family, engine, ["an", " other"], [False, True], engine.encode_batch)
        [array([0], dtype=uint32), array([2], dtype=uint32)]
        >>> engine.encode("an other"), engine.encode("other")
        (array([0, 2], dtype=uint32), array([1], dtype=uint32))
    """
    if not family.prefixed:
        return encode(texts)
    leads = [lead_of(family, text) if it else "" for text, it in zip(texts, continuing, strict=True)]
    encoded = encode([lead + text for lead, text in zip(leads, texts, strict=True)])
    if len(encoded) != len(texts):
        raise TypeError(f"engine {engine.name!r} gave {len(encoded)} results for {len(texts)} texts")
    sizes = {lead: len(engine.encode(lead)) if lead else 0 for lead in set(leads)}
    return [ids[sizes[lead] :] for lead, ids in zip(leads, encoded, strict=True)]


def lead_of(family: Family, text: str) -> str:
    """What to put before a text that continues another one; empty where that makes no difference.

    Raises:
        ValueError: There is no certified cut before its first character.
    """
    if not family.prefixed:
        return ""
    lead = family.lead(text)
    if lead is None and text:
        raise ValueError(f"there is no certified cut before {text[0]!r}, so it continues nothing")
    return lead or ""
