"""A tokenizer of ``transformers`` and the same one wrapped, and everything that can be seen of their results."""

from collections.abc import Callable
from typing import Any

import numpy as np
import tokenizers
from transformers import BatchEncoding, PreTrainedTokenizerFast

from tests import material
from toktier.integrations.transformers import REUSE

CHATML = (
    "{% for message in messages %}<|im_start|>{{ message.role }}\n{% generation %}{{ message.content }}"
    "{% endgeneration %}<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
LONG = "The cat sat on the mat. <|im_end|>\tdef f(x):\n    return 'Ünïcödé' * 42 世界\n" * 32
Pair = tuple[Any, Any]
"""A tokenizer, and the same one wrapped."""


def plain(name: str = "toktier-mini", **settings: Any) -> Any:
    settings = {"pad_token": "!", "chat_template": CHATML} | settings
    kind: Any = PreTrainedTokenizerFast
    return kind(tokenizer_file=str(material.file(name)), **settings)


def sessions(wrapped: Any) -> int:
    """How many texts the store of a wrapped tokenizer has."""
    served = vars(wrapped)[REUSE]._served
    return 0 if served is None or served.store is None else len(served.store)


def calls(wrapped: Any) -> int:
    """How many texts that store has encoded."""
    served = vars(wrapped)[REUSE]._served
    return 0 if served is None or served.store is None else sum(served.store.lookups().values())


def facts(result: Any) -> Any:
    """Everything that can be seen of a result: types, order, values, and the encodings."""
    if isinstance(result, BatchEncoding):
        found = [(key, facts(value)) for key, value in result.items()]
        encodings = result.encodings
        assert encodings is None or all(type(each) is tokenizers.Encoding for each in encodings)
        return found, result.is_fast, result.n_sequences, [seen(each) for each in encodings or ()]
    if isinstance(result, np.ndarray):
        return result.dtype.name, result.shape, facts(result.tolist())
    if isinstance(result, list | tuple):
        kinds = {type(each) for each in result}
        return type(result), kinds, [facts(each) for each in result] if kinds - {int} else result
    return type(result), result


def seen(encoding: tokenizers.Encoding) -> Any:
    names = (
        "ids",
        "tokens",
        "offsets",
        "word_ids",
        "sequence_ids",
        "type_ids",
        "attention_mask",
        "special_tokens_mask",
    )
    return [getattr(encoding, name) for name in names], [seen(each) for each in encoding.overflowing]


def seen_whole(result: Any) -> Any:
    """What is left of a result that was pickled."""
    return result.data, [seen(each) for each in result.encodings]


def outcome(call: Callable[[], Any]) -> Any:
    """What a call gives, or how it fails."""
    try:
        return facts(call())
    except BaseException as error:
        return type(error), str(error)


def assert_equal(pair: Pair, call: Callable[[Any], Any]) -> None:
    one, other = pair
    assert outcome(lambda: call(other)) == outcome(lambda: call(one))
