"""``vocab.json`` and ``merges.txt``: the byte-level BPE of GPT-2, as ``transformers`` builds it.

The two files have the tokens and the order of the merges. Everything else is in a class of ``transformers``, which the
files beside them name; the classes that are known here are written down in :data:`CLASSES`. (Observed with transformers
5.24.)
"""

from __future__ import annotations

import json
import pathlib
from collections.abc import Mapping
from typing import Any

import tokenizers
from attrs import frozen
from tokenizers import processors

from toktier.errors import InvalidDefinition, UnknownTokenizer
from toktier.families.configuration import added_tokens, special_tokens_are_text
from toktier.families.formats.finding import CONFIGURATION, CONVERTING, MERGES, VOCABULARY
from toktier.families.formats.patterns import QWEN
from toktier.families.loading import load_reference

BYTE_LEVEL = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}

END = "<|endoftext|>"


@frozen
class Built:
    """What a class of ``transformers`` adds to a vocabulary and its merges.

    Attributes:
        special: The special tokens that it has unless the files say otherwise.
        normalizer: As a ``tokenizer.json`` has it.
        splits: The pre-tokenizers before that of bytes, which then does not divide.
    """

    special: Mapping[str, str]
    normalizer: Mapping[str, Any] | None = None
    splits: tuple[Mapping[str, Any], ...] = ()


GPT2 = Built({"bos_token": END, "eos_token": END, "unk_token": END})
QWEN2 = Built(
    {"eos_token": END, "unk_token": END, "pad_token": END},
    {"type": "NFC"},
    ({"type": "Split", "pattern": {"Regex": QWEN}, "behavior": "Isolated", "invert": False},),
)

CLASSES = {"GPT2Tokenizer": GPT2, "Qwen2Tokenizer": QWEN2}
"""The classes that are built here, without the ending ``Fast``."""

MODELS = {
    **dict.fromkeys(("gpt2", "gpt_neo", "gptj", "codegen", "opt", "phi", "starcoder2"), "GPT2Tokenizer"),
    **dict.fromkeys(("qwen2", "qwen2_moe", "qwen3", "qwen3_moe"), "Qwen2Tokenizer"),
}
"""The class of a model that names none."""


def read_pair(folder: pathlib.Path) -> tokenizers.Tokenizer:
    """The tokenizer of a directory that has a ``vocab.json`` and a ``merges.txt``.

    Args:
        folder: The directory. What is said in ``config.json``, ``tokenizer_config.json``, ``special_tokens_map.json``
            and ``added_tokens.json`` counts as it does in ``transformers``.

    Raises:
        UnknownTokenizer: One of the two is missing, or they belong to a class that is not built here.
        InvalidDefinition: One of the files is malformed; the message names the file and the line or the field.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     _ = pathlib.Path(folder, "vocab.json").write_text('{"a": 0, "b": 1, "ab": 2}')
        ...     _ = pathlib.Path(folder, "merges.txt").write_text("a b")
        ...     tokenizer = read_pair(pathlib.Path(folder))
        >>> tokenizer.encode("abba<|endoftext|>").ids
        [2, 1, 0, 3]
    """
    for name in (VOCABULARY, MERGES):
        if not (folder / name).is_file():
            raise UnknownTokenizer(f"{str(folder / name)!r} is missing: a vocabulary and its merges count together")
    configuration = _configuration(folder)
    built = _class_of(folder, configuration)
    vocabulary = _vocabulary(folder / VOCABULARY)
    spaced = BYTE_LEVEL | {"add_prefix_space": bool(configuration.get("add_prefix_space"))}
    last = spaced | {"use_regex": not built.splits}
    definition: dict[str, Any] = {
        "version": "1.0",
        "added_tokens": [],
        "normalizer": built.normalizer,
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [*built.splits, last]} if built.splits else last,
        "decoder": BYTE_LEVEL | {"add_prefix_space": True},
        "model": {"type": "BPE", "continuing_subword_prefix": "", "end_of_word_suffix": "", "vocab": vocabulary}
        | {"merges": _merges(folder / MERGES, vocabulary)},
    }
    where = str(folder / VOCABULARY)
    tokenizer = load_reference(json.dumps(definition).encode(), where)
    encoded = json.dumps(dict(built.special) | configuration).encode()
    tokenizer.add_tokens(added_tokens(encoded, str(folder / CONFIGURATION), {}))
    tokenizer.post_processor = _template(dict(built.special) | configuration, tokenizer)
    tokenizer.encode_special_tokens = special_tokens_are_text(encoded)
    return tokenizer


def _class_of(folder: pathlib.Path, configuration: Mapping[str, Any]) -> Built:
    model = _object(folder / "config.json")
    named = configuration.get("tokenizer_class") or model.get("tokenizer_class")
    if named is None:
        kind = model.get("model_type")
        named = "GPT2Tokenizer" if kind is None else MODELS.get(kind, f"the one of model_type {kind!r}")
    built = CLASSES.get(str(named).removesuffix("Fast"))
    if built is None:
        raise UnknownTokenizer(
            f"{str(folder)!r} has {VOCABULARY} and {MERGES} for the class {named}, where only {' and '.join(CLASSES)}"
            f" are built: {CONVERTING}"
        )
    return built


def _configuration(folder: pathlib.Path) -> dict[str, Any]:
    """What all files together configure: the old ones count where no ``added_tokens_decoder`` has taken their place."""
    configuration = _object(folder / CONFIGURATION)
    if "added_tokens_decoder" in configuration:
        return configuration
    for key, value in _object(folder / "special_tokens_map.json").items():
        configuration[key] = value | {"special": True} if isinstance(value, dict) else value
    listed = _object(folder / "added_tokens.json")
    if listed:
        tokens = (value.get("content") if isinstance(value, dict) else value for value in configuration.values())
        special = {token for token in tokens if isinstance(token, str)}
        for name in ("extra_special_tokens", "additional_special_tokens"):
            special.update(map(str, configuration.get(name) or ()))
        if not all(isinstance(id, int) for id in listed.values()):
            raise InvalidDefinition(f"{folder / 'added_tokens.json'}: an id is no number")
        configuration["added_tokens_decoder"] = {
            str(id): {"content": content, "special": content in special, "normalized": content not in special}
            for content, id in listed.items()
        }
    return configuration


def _template(configuration: Mapping[str, Any], tokenizer: tokenizers.Tokenizer) -> processors.PostProcessor:
    """What is put before and behind a text: the beginning and the end, where the configuration says so."""
    ends: list[str] = []
    for switch, name in (("add_bos_token", "bos_token"), ("add_eos_token", "eos_token")):
        token = configuration.get(name) if configuration.get(switch) is True else None
        content = token.get("content") if isinstance(token, dict) else token
        ends.append(str(content) if content else "")
    bos, eos = ends
    template = [*([f"{bos}:0"] if bos else []), "$A:0", *([f"{eos}:0"] if eos else [])]
    second = [*([f"{bos}:1"] if bos else []), "$B:1", *([f"{eos}:1"] if eos else [])]
    special = [(token, tokenizer.token_to_id(token)) for token in dict.fromkeys(filter(None, ends))]
    return processors.TemplateProcessing(single=template, pair=template + second, special_tokens=special)


def _object(file: pathlib.Path) -> dict[str, Any]:
    """A JSON object in a file; nothing, where there is none."""
    try:
        value = json.loads(file.read_bytes())
    except FileNotFoundError:
        return {}
    except (ValueError, RecursionError) as error:
        raise InvalidDefinition(f"{file}: not JSON: {error}") from None
    if not isinstance(value, dict):
        raise InvalidDefinition(f"{file}: not a JSON object")
    return value


def _vocabulary(file: pathlib.Path) -> dict[str, int]:
    vocabulary = _object(file)
    for token, id in vocabulary.items():
        if not isinstance(id, int) or isinstance(id, bool) or not 0 <= id < 2**32:
            raise InvalidDefinition(f"{file}: token {token!r}: its id {id!r} is not one")
    return vocabulary


def _merges(file: pathlib.Path, vocabulary: Mapping[str, int]) -> list[list[str]]:
    merges: list[list[str]] = []
    try:
        text = file.read_bytes().decode("utf-8")
    except UnicodeDecodeError as error:
        raise InvalidDefinition(f"{file}: not UTF-8: {error}") from None
    for number, line in enumerate(text.removesuffix("\n").split("\n"), 1):
        merge = line.removesuffix("\r")
        if merge.startswith("#version"):
            continue
        parts = merge.split(" ")
        if len(parts) != 2:
            raise InvalidDefinition(f"{file}: line {number}: {merge[:60]!r} is not two tokens and a space")
        for token in (*parts, "".join(parts)):
            if token not in vocabulary:
                raise InvalidDefinition(f"{file}: line {number}: token {token!r} is not in {VOCABULARY}")
        merges.append(parts)
    return merges
