"""``vocab.json`` and ``merges.txt``, and tokenizer objects of ``transformers``: as that library would have it.

What is expected is what ``GPT2Tokenizer`` and ``Qwen2Tokenizer`` of transformers 5.24 give; where the package is
installed, it is asked as well.
"""

from __future__ import annotations

import functools
import json
import pathlib
from itertools import pairwise
from typing import Any

import pytest
import tokenizers
from tokenizers import models

from tests import material, zoo
from toktier import InvalidDefinition, Registry, Tokenizer, UnknownTokenizer
from toktier.families import mini
from toktier.families.stages import Form

Json = Any
END = "<|endoftext|>"
TEXT = f"It's 12 naïve straße\n\n  ½{END} <|im_end|><x>\t中文 <new>."


@functools.cache
def model() -> Json:
    return json.loads(mini.path().read_bytes())["model"]


def folder(path: pathlib.Path, **files: Json) -> pathlib.Path:
    """A directory with the vocabulary and merges of the bundled tokenizer, and other files as they are given."""
    merges = "".join(f"{left} {right}\n" for left, right in model()["merges"])
    contents = {"vocab.json": model()["vocab"], "merges.txt": f"#version: 0.2\n{merges}"}
    for name, content in (contents | {f"{name}.json": content for name, content in files.items()}).items():
        (path / name).write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
    return path


def load(path: pathlib.Path) -> Tokenizer:
    return material.registry().load(path)


def added(tok: Tokenizer) -> dict[str, tuple[int, bool, bool]]:
    """The id of each added token, and whether it is special and normalized."""
    literals = tok.family.definition.literals
    return {literal.content: (literal.id, literal.special, literal.normalized) for literal in literals}


def token(content: str, **more: Json) -> Json:
    flags = {"lstrip": False, "rstrip": False, "single_word": False, "normalized": False, "special": True}
    return {"content": content} | flags | more


CASES: dict[str, tuple[dict[str, Json], dict[str, tuple[int, bool, bool]]]] = {
    "nothing beside them": ({}, {END: (4087, True, False)}),
    "the class": ({"tokenizer_config": {"tokenizer_class": "GPT2TokenizerFast"}}, {END: (4087, True, False)}),
    "the model": ({"config": {"model_type": "gpt_neo"}}, {END: (4087, True, False)}),
    "named tokens": (
        {"tokenizer_config": {"eos_token": "<|im_end|>", "pad_token": "<x>", "bos_token": None, "unk_token": None}},
        {"<|im_end|>": (4087, True, False), "<x>": (4088, True, False)},
    ),
    "special_tokens_map.json": (
        {
            "special_tokens_map": {"eos_token": "<|im_end|>", "additional_special_tokens": ["<x>"]},
            "tokenizer_config": {"eos_token": END},
        },
        {END: (4087, True, False), "<|im_end|>": (4088, True, False), "<x>": (4089, True, False)},
    ),
    "added_tokens.json": (
        {"added_tokens": {"<new>": 4500, "<x>": 4200}},
        {"<x>": (4087, False, True), "<new>": (4088, False, True), END: (4089, True, False)},
    ),
    "added_tokens.json with a special one": (
        {"added_tokens": {"<new>": 4500, "<x>": 4200}, "special_tokens_map": {"pad_token": token("<x>")}},
        {"<x>": (4087, True, False), "<new>": (4088, False, True), END: (4089, True, False)},
    ),
    "added_tokens_decoder": (
        {
            "tokenizer_config": {"added_tokens_decoder": {"5000": token("<x>")}},
            "added_tokens": {"<new>": 4500},
            "special_tokens_map": {"eos_token": "<|im_end|>"},
        },
        {"<x>": (4087, True, False), END: (4088, True, False)},
    ),
    "the end of text is in the vocabulary": (
        {"tokenizer_config": {"eos_token": "the", "bos_token": "the", "unk_token": "the"}},
        {"the": (model()["vocab"]["the"], True, False)},
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_added_tokens_are_numbered_as_by_transformers(tmp_path: pathlib.Path, case: str) -> None:
    files, expected = CASES[case]
    tok = load(folder(tmp_path, **files))
    assert added(tok) == expected
    for name in ("vocab.json", "merges.txt"):
        assert load(tmp_path / name) is tok


def theirs(path: pathlib.Path, name: str = "GPT2Tokenizer") -> Any:
    transformers = pytest.importorskip("transformers")
    return getattr(transformers, name).from_pretrained(path)


SWITCHES: dict[str, Json] = {
    "prefix space": {"tokenizer_config": {"add_prefix_space": True}},
    "begin": {"tokenizer_config": {"add_bos_token": True, "bos_token": "<x>"}},
    "both": {"tokenizer_config": {"add_bos_token": True, "add_eos_token": True, "eos_token": "<|im_end|>"}},
    "as text": {"tokenizer_config": {"split_special_tokens": True}},
}


@pytest.mark.parametrize("case", [*CASES, *SWITCHES])
def test_ids_are_those_of_transformers_where_it_is_installed(tmp_path: pathlib.Path, case: str) -> None:
    files = CASES[case][0] if case in CASES else SWITCHES[case]
    tok, other = load(folder(tmp_path, **files)), theirs(folder(tmp_path, **files))
    for text in (TEXT, "", " ", *(text[:3_000] for text in material.corpus()[:60])):
        assert tok.encode(text).tolist() == other(text, add_special_tokens=False)["input_ids"]
        assert tok.encode(text, add_special_tokens=True).tolist() == other(text)["input_ids"]
    assert material.registry().load(other) is tok, "one content, two sources"


def test_qwen_is_built_with_its_normalizer_and_pattern(tmp_path: pathlib.Path) -> None:
    tok = load(folder(tmp_path, tokenizer_config={"tokenizer_class": "Qwen2Tokenizer", "pad_token": "<x>"}))
    assert tok.family.definition.normalizers == (Form("NFC"),)
    assert added(tok) == {END: (4087, True, False), "<x>": (4088, True, False)}
    other = theirs(tmp_path, "Qwen2Tokenizer")
    for text in (TEXT, "e\u0301 12345", *(text[:3_000] for text in material.corpus()[:60])):
        assert tok.encode(text).tolist() == other(text)["input_ids"]


def test_cuts_hold_and_engines_serve(tmp_path: pathlib.Path) -> None:
    tok = load(folder(tmp_path))
    assert tok.family.supported
    reference = tok.engine("reference")
    for text in (TEXT, *(text[:3_000] for text in material.corpus()[:60])):
        edges = [0, *tok.family.cuts(text).tolist(), len(text)]
        parts = [id for start, stop in pairwise(edges) for id in reference.encode(text[start:stop]).tolist()]
        assert parts == reference.encode(text).tolist() == tok.engine("memo").encode(text).tolist()


# Errors


@pytest.mark.parametrize(
    "files",
    [
        {"tokenizer_config": {"tokenizer_class": "CLIPTokenizer"}},
        {"tokenizer_config": {"tokenizer_class": "RobertaTokenizerFast"}},
        {"config": {"model_type": "roberta"}},
        {"config": {"tokenizer_class": "BartTokenizer"}},
    ],
    ids=str,
)
def test_a_class_that_is_built_otherwise_is_refused(tmp_path: pathlib.Path, files: Json) -> None:
    with pytest.raises(
        UnknownTokenizer, match=r"only GPT2Tokenizer and Qwen2Tokenizer are built.*save_pretrained"
    ) as error:
        load(folder(tmp_path, **files))
    assert str(next(iter(next(iter(files.values())).values()))) in str(error.value)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("vocab.json", "{", r"vocab\.json: not JSON"),
        ("vocab.json", "[]", r"vocab\.json: not a JSON object"),
        ("vocab.json", '{"a": "1"}', r"vocab\.json: token 'a': its id '1' is not one"),
        ("vocab.json", '{"a": -1}', r"vocab\.json: token 'a': its id -1 is not one"),
        ("merges.txt", "#version: 0.2\nt h\nt h e\n", r"merges\.txt: line 3: 't h e' is not two tokens and a space"),
        ("merges.txt", "t h\n\nh e\n", r"merges\.txt: line 2: ''"),
        ("merges.txt", "t h\nt 😀\n", r"merges\.txt: line 2: token '😀' is not in vocab\.json"),
        ("merges.txt", "q z\n", r"merges\.txt: line 1: token 'qz' is not in vocab\.json"),
        ("tokenizer_config.json", "[]", r"tokenizer_config\.json: not a JSON object"),
        ("tokenizer_config.json", '{"eos_token": 3}', r"tokenizer_config\.json: field 'eos_token'"),
        ("special_tokens_map.json", "{", r"special_tokens_map\.json: not JSON"),
        ("added_tokens.json", '{"<x>": "a"}', r"added_tokens\.json: an id is no number"),
    ],
)
def test_a_malformed_file_is_refused_with_its_name_and_line(
    tmp_path: pathlib.Path, name: str, content: str, message: str
) -> None:
    (folder(tmp_path) / name).write_text(content, encoding="utf-8")
    with pytest.raises(InvalidDefinition, match=message):
        load(tmp_path)


def test_merges_that_are_no_text_are_refused(tmp_path: pathlib.Path) -> None:
    (folder(tmp_path) / "merges.txt").write_bytes(b"t h\n\xff \xfe\n")
    with pytest.raises(InvalidDefinition, match=r"merges\.txt: not UTF-8"):
        load(tmp_path)


@pytest.mark.parametrize("missing", ["vocab.json", "merges.txt"])
def test_one_of_the_two_is_not_enough(tmp_path: pathlib.Path, missing: str) -> None:
    (folder(tmp_path) / missing).unlink()
    (present,) = {"vocab.json", "merges.txt"} - {missing}
    with pytest.raises(UnknownTokenizer, match=f"{missing}' is missing"):
        load(tmp_path / present)
    with pytest.raises(UnknownTokenizer, match="not both of"):
        load(tmp_path)


def test_merges_are_read_as_the_library_reads_them(tmp_path: pathlib.Path) -> None:
    folder(tmp_path)
    text = (tmp_path / "merges.txt").read_text()
    read = models.BPE.from_file(str(tmp_path / "vocab.json"), str(tmp_path / "merges.txt"))
    for written in (text, text.removesuffix("\n"), text.replace("\n", "\r\n"), text.partition("\n")[2]):
        (tmp_path / "merges.txt").write_text(written, newline="")
        tok = load(tmp_path)
        bare = tokenizers.Tokenizer(read)
        bare.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
        assert tok.encode("The quick brown fox").tolist() == bare.encode("The quick brown fox").ids


# Objects of transformers


def test_a_fast_tokenizer_of_transformers_is_loaded_with_its_switch() -> None:
    transformers = pytest.importorskip("transformers")
    backend = tokenizers.Tokenizer.from_str(zoo.build("gpt4").to_str())
    text = "a<|im_end|>\n<|im_start|>b"
    given = {}
    for as_text in (False, True):
        fast = transformers.PreTrainedTokenizerFast(tokenizer_object=backend, split_special_tokens=as_text)
        given[as_text] = fast(text, add_special_tokens=False)["input_ids"]
        assert material.registry().load(fast).encode(text).tolist() == given[as_text]
    assert given[False] != given[True]
    fast.split_special_tokens = False  # the library is told on the next call only
    assert material.registry().load(fast).encode(text).tolist() == given[False]


class Slow:
    """What a tokenizer of transformers that is written in Python has."""

    def convert_tokens_to_ids(self, tokens: list[str]) -> list[int]:
        return [0 for _ in tokens]


class Fast:
    """What one that wraps the library has, so that the package need not be there."""

    split_special_tokens = True

    def __init__(self, backend: tokenizers.Tokenizer) -> None:
        self.backend_tokenizer = backend


def test_objects_are_told_by_what_they_have() -> None:
    backend = tokenizers.Tokenizer.from_str(zoo.build("gpt4").to_str())
    tok = Registry(None).load(Fast(backend))
    assert tok.encode("<|im_end|>").size > 1
    assert not backend.encode_special_tokens, "the object is left as it was"
    with pytest.raises(TypeError, match=r"a Slow, a slow tokenizer of transformers.*load its fast form"):
        material.registry().load(Slow())
