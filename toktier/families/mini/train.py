"""Train `toktier-mini` again: `python -m toktier.families.mini.train`.

The training text is the one text that every reader has already: the sources of Python's standard library. The same
Python and `tokenizers` versions give the same bytes, so `git diff` shows whether a change here changes the tokenizer.
Writes `tokenizer.json` and `README.md` beside this file.
"""

import hashlib
import platform
import sysconfig
import tokenize
from pathlib import Path
from typing import Final

import tokenizers
from tokenizers import AddedToken, Regex, Tokenizer
from tokenizers.decoders import ByteLevel as ByteLevelDecoder
from tokenizers.models import BPE
from tokenizers.pre_tokenizers import ByteLevel, Sequence, Split
from tokenizers.processors import TemplateProcessing
from tokenizers.trainers import BpeTrainer

__all__ = ["main", "train", "training_files", "training_text"]

VOCABULARY: Final = 4096
"""Tokens in all: 256 bytes, the merges, and the added tokens, which come last."""

PATTERN: Final = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
"""The split pattern of GPT-4, as Llama 3 writes it."""

BEGIN: Final = "<|endoftext|>"
SPECIAL: Final = (BEGIN, "<|im_start|>", "<|im_end|>")
MARKERS: Final = ("<think>", "</think>", "<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>")
"""Added tokens that are not special: text that decoding keeps, as in Qwen."""

# Tests are not prose, encodings are tables, and the rest differs from one installation to the next.
SKIPPED_FOLDERS: Final = {"test", "tests", "idle_test", "encodings", "site-packages", "dist-packages", "__pycache__"}
SKIPPED_PREFIXES: Final = ("_sysconfigdata", "config-", "sitecustomize", "usercustomize")

CHARACTERS_PER_FILE: Final = 65_536
"""Bounds the text, and keeps a few very long files from speaking for all."""

README: Final = """\
# toktier-mini

A demo tokenizer: byte-level BPE, {vocabulary} tokens, the split pattern of Llama 3, ChatML markers. It exists so that
examples and tests run without a download; do not train a model with it.

- **Training text**: the sources of the Python standard library (`*.py`, without tests, `encodings` and
  `site-packages`, at most {limit:,} characters of each file): {count} files, {characters:,} characters,
  SHA-256 `{digest}`.
- **Licence of that text**: PSF-2.0 (Python Software Foundation License Version 2), Copyright (c) 2001 Python Software
  Foundation; All Rights Reserved. `LICENSE.PSF-2.0` beside this file is the agreement in full. Some modules carry
  further notices of their contributors: <https://docs.python.org/3/license.html>. No source text is contained in
  `tokenizer.json`, only the byte sequences that are frequent in it.
- **Made with**: {implementation} {python}, tokenizers {tokenizers}.
- **Command**: `python -m toktier.families.mini.train` writes `tokenizer.json` and this file. The same versions give
  the same bytes.
"""


def training_files(library: Path) -> list[Path]:
    """The Python sources under `library` to train on, in an order that depends on nothing but their names."""

    def wanted(file: Path) -> bool:
        parts = file.relative_to(library).parts
        return SKIPPED_FOLDERS.isdisjoint(parts) and not any(part.startswith(SKIPPED_PREFIXES) for part in parts)

    return sorted(filter(wanted, library.rglob("*.py")), key=lambda file: file.relative_to(library).as_posix())


def training_text(library: Path) -> list[str]:
    """The beginning of every training file, decoded as its own coding line says."""
    texts = []
    for file in training_files(library):
        with tokenize.open(file) as source:
            texts.append(source.read(CHARACTERS_PER_FILE))
    return texts


def train(texts: list[str]) -> Tokenizer:
    """A tokenizer trained on `texts`: no normalizer, a regular-expression split, byte-level BPE, added tokens."""
    tokenizer = Tokenizer(BPE())
    tokenizer.pre_tokenizer = Sequence(
        [Split(Regex(PATTERN), behavior="isolated"), ByteLevel(add_prefix_space=False, use_regex=False)]
    )
    tokenizer.decoder = ByteLevelDecoder()
    trainer = BpeTrainer(
        vocab_size=VOCABULARY - len(SPECIAL) - len(MARKERS),
        initial_alphabet=ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    tokenizer.add_special_tokens([AddedToken(content, normalized=False, special=True) for content in SPECIAL])
    tokenizer.add_tokens([AddedToken(content, normalized=False) for content in MARKERS])
    # Without a template `add_special_tokens=True` would change nothing, and a demo could not show it.
    tokenizer.post_processor = TemplateProcessing(
        single=f"{BEGIN} $A",
        pair=f"{BEGIN} $A {BEGIN} $B",
        special_tokens=[(BEGIN, tokenizer.token_to_id(BEGIN))],
    )
    return tokenizer


def main(folder: Path = Path(__file__).parent) -> None:
    """Train on this Python's standard library and write `tokenizer.json` and `README.md` into `folder`."""
    texts = training_text(Path(sysconfig.get_path("stdlib")))
    tokenizer = train(texts)
    readme = README.format(
        vocabulary=f"{tokenizer.get_vocab_size():,}",
        limit=CHARACTERS_PER_FILE,
        count=len(texts),
        characters=sum(map(len, texts)),
        digest=hashlib.sha256("".join(texts).encode()).hexdigest(),
        implementation=platform.python_implementation(),
        python=platform.python_version(),
        tokenizers=tokenizers.__version__,
    )
    (folder / "tokenizer.json").write_bytes(tokenizer.to_str(pretty=False).encode() + b"\n")
    (folder / "README.md").write_bytes(readme.encode())


if __name__ == "__main__":
    main()
