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

    Example:
        >>> import toktier
        >>> tok = toktier.load("toktier-mini")
        >>> engine = tok.engine()
        >>> for ids in encode_continuing(tok.family, engine, ["Hello", " world"], [False, True], engine.encode_batch):
        ...     print(ids)
        [ 39 523 323]
        [3241 1151]
    """
    if not family.prefixed:
        return encode(texts)
    leads = [family.lead(text) if it and text else "" for text, it in zip(texts, continuing, strict=True)]
    encoded = encode([lead + text for lead, text in zip(leads, texts, strict=True)])
    sizes = {lead: len(engine.encode(lead)) if lead else 0 for lead in set(leads)}
    return [ids[sizes[lead] :] for lead, ids in zip(leads, encoded, strict=True)]
