"""The split patterns of well-known rank files, by name: such a file does not say how texts are split.

They are written as the libraries write them, since a pattern is a part of what a tokenizer is. Sources: ``tiktoken``
0.14 (``tiktoken_ext/openai_public.py``), and the tokenizer modules in the repositories of Llama 3 and 4, Qwen, GLM 4,
Kimi and Whisper.
"""

from __future__ import annotations

import re

from toktier.errors import InvalidDefinition

R50K_BASE = r"'(?:[sdmt]|ll|ve|re)| ?\p{L}++| ?\p{N}++| ?[^\s\p{L}\p{N}]++|\s++$|\s+(?!\S)|\s"

CL100K_BASE = (
    r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+|\s++$|\s*[\r\n]"
    r"|\s+(?!\S)|\s"
)

O200K_BASE = (
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
    r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
    r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)

LLAMA3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
    r"|\s+(?!\S)|\s+"
)

QWEN = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
    r"|\s+(?!\S)|\s+"
)

KIMI = (
    r"[\p{Han}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+"
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
    r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*"
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
    r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)

WHISPER = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"

PATTERNS = {
    **dict.fromkeys(("gpt2", "r50k_base", "p50k_base", "p50k_edit"), R50K_BASE),
    "cl100k_base": CL100K_BASE,
    **dict.fromkeys(("o200k_base", "o200k_harmony", "llama4"), O200K_BASE),
    **dict.fromkeys(("llama3", "glm4"), LLAMA3),
    "qwen": QWEN,
    "kimi": KIMI,
    "whisper": WHISPER,
}
"""The patterns that have a name."""

_NAME = re.compile(r"[\w.-]*")


def pattern_of(given: str) -> str:
    r"""The pattern that is meant by a name, or by a regular expression.

    Args:
        given: One of :data:`PATTERNS`, or a pattern. What could be a name and is none is not taken for a pattern, which
            would keep that word and drop everything else.

    Raises:
        InvalidDefinition: There is no pattern of that name.

    Example:
        >>> pattern_of("qwen") == QWEN, pattern_of(r"\s+|\S+")
        (True, '\\s+|\\S+')
        >>> pattern_of("cl100k")
        Traceback (most recent call last):
            ...
        toktier.errors.InvalidDefinition: no pattern 'cl100k': use a regular expression or one of gpt2, r50k_base, ...
    """
    if given in PATTERNS:
        return PATTERNS[given]
    if _NAME.fullmatch(given):
        raise InvalidDefinition(f"no pattern {given!r}: use a regular expression or one of {', '.join(PATTERNS)}")
    return given
