"""What stands for an ``Encoding`` of the library ``tokenizers`` while only its ids are asked for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tokenizers
from attrs import frozen
from tokenizers import models, pre_tokenizers

from toktier.engines.base import Ids
from toktier.integrations.lists import Lists

CONTENT = [4_294_967_291, 4_294_967_292]
"""Two ids that no tokenizer has, by which the content of a sequence is told from what was put around it."""


@frozen
class Affixes:
    """What a post-processor makes of the ids of any single text.

    Attributes:
        before: The ids that it puts before them.
        behind: The ids that it puts behind them.
        types_before: The token types of the former.
        types_behind: The token types of the latter.
        type: The token type of the text's own ids.
    """

    before: list[int]
    behind: list[int]
    types_before: list[int]
    types_behind: list[int]
    type: int

    @property
    def size(self) -> int:
        """How many ids it adds."""
        return len(self.before) + len(self.behind)


def affixes(processor: Any | None, *, add_special_tokens: bool) -> Affixes | None:
    """What a post-processor puts around any text, found out by giving it two that are not the tokenizer's.

    Args:
        processor: The post-processor; no post-processor adds nothing.
        add_special_tokens: Whether special tokens are wanted; the token types count in any case.

    Returns:
        What it adds; nothing if that is not the same for both, or something else is done to them.

    Example:
        >>> processor = tokenizers.processors.BertProcessing(("[SEP]", 102), ("[CLS]", 101))
        >>> affixes(processor, add_special_tokens=True)
        Affixes(before=[101], behind=[102], types_before=[0], types_behind=[0], type=0)
    """
    if processor is None:
        return Affixes([], [], [], [], 0)
    one, other = CONTENT
    library = tokenizers.Tokenizer(models.WordLevel({"a": one, "b": other}, unk_token="a"))
    library.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    found = []
    for text, own in (("a", [one]), ("b a b a", [other, one, other, one])):
        encoding = processor.process(library.encode(text), None, add_special_tokens)
        ids, types = encoding.ids, encoding.type_ids
        start = next((at for at, each in enumerate(ids) if each in CONTENT), 0)
        stop = start + len(own)
        before, behind = ids[:start], ids[stop:]
        is_plain = encoding.attention_mask == [1] * len(ids) and not encoding.overflowing
        if ids[start:stop] != own or set(behind) & set(CONTENT) or len(set(types[start:stop])) != 1 or not is_plain:
            return None
        found.append(Affixes(before, behind, types[:start], types[stop:], types[start]))
    return found[0] if found[0] == found[1] else None


class Pending:
    """An ``Encoding`` of which only the ids are known. What else is asked for is asked of the library, once.

    Args:
        ids: The ids of the text itself.
        around: What the post-processor puts around them.
        lists: Makes a list of them.
        resolve: Makes the ``Encoding``.
    """

    __slots__ = ("_around", "_encoding", "_ids", "_lists", "_resolve")

    n_sequences = 1

    def __init__(self, ids: Ids, around: Affixes, lists: Lists, resolve: Callable[[], tokenizers.Encoding]) -> None:
        self._ids: Ids | None = ids
        self._around = around
        self._lists = lists
        self._resolve = resolve
        self._encoding: tokenizers.Encoding | None = None

    def __len__(self) -> int:
        return len(self.encoding()) if self._ids is None else len(self._ids) + self._around.size

    def __getattr__(self, name: str) -> Any:
        return getattr(self.encoding(), name)

    @property
    def ids(self) -> list[int]:
        """The ids, with what the post-processor puts around them."""
        if self._ids is None:
            return self.encoding().ids
        listed = self._lists.of(self._ids)
        listed[:0] = self._around.before
        listed += self._around.behind
        return listed

    @property
    def type_ids(self) -> list[int]:
        """The token type of each id."""
        own = len(self) - self._around.size
        return [*self._around.types_before, *[self._around.type] * own, *self._around.types_behind]

    @property
    def attention_mask(self) -> list[int]:
        """1 for each id: nothing was padded."""
        return [1] * len(self)

    def encoding(self) -> tokenizers.Encoding:
        """The ``Encoding`` itself, made by the library when it is asked for."""
        if self._encoding is None:
            self._encoding = self._resolve()
        return self._encoding

    def forget_ids(self) -> None:
        """Lets go of the ids, which a store would have to copy as long as somebody can look at them."""
        self._ids = None
