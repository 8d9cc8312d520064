"""The bundled demo tokenizer `toktier-mini`: small, free of downloads, and shaped like the real ones.

A byte-level BPE of 4,096 tokens with the split pattern of Llama 3, the ChatML markers of chat models, and a
post-processor that puts `<|endoftext|>` in front when `add_special_tokens=True`. The README beside it says what it
was trained on; `python -m toktier.families.mini.train` trains it again.
"""

from pathlib import Path

__all__ = ["path"]


def path() -> Path:
    """The `tokenizer.json` of `toktier-mini`.

    >>> path().name
    'tokenizer.json'
    >>> from tokenizers import Tokenizer
    >>> Tokenizer.from_file(str(path())).encode("Hello world", add_special_tokens=False).tokens
    ['H', 'el', 'lo', 'Ġwor', 'ld']
    """
    return Path(__file__).with_name("tokenizer.json")
