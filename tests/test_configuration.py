"""Added tokens of a ``tokenizer_config.json``: in the order, with the ids and the flags that ``transformers`` gives.

What is expected is what ``PreTrainedTokenizerFast.from_pretrained`` of transformers 5.24 gave for each of the cases.
"""

from __future__ import annotations

import functools
import json
import pathlib
from typing import Any

import pytest
import tokenizers
from attrs import asdict
from tokenizers import AddedToken, normalizers

import toktier
from tests import builders, material
from toktier.errors import InvalidDefinition

Json = Any
DECODER = "added_tokens_decoder"


@functools.cache
def definition() -> str:
    """Four added tokens: two special ones, one that strips, one that is matched as it stands."""
    added = [AddedToken("<strips>", lstrip=True), AddedToken("<Plain>", normalized=False)]
    return builders.byte_level(builders.split(builders.GPT4), normalizer=normalizers.Lowercase(), added=added).to_str()


IN_FILE = {
    "<|im_start|>": {"special"},
    "<|im_end|>": {"special"},
    "<strips>": {"lstrip", "normalized"},
    "<Plain>": set[str](),
}
"""The added tokens of the file, each with its flags."""


def token(content: str, **more: Json) -> Json:
    return {"content": content, **more}


def named(content: str, **more: Json) -> Json:
    return token(content, **more) | {"__type": "AddedToken"}


CASES: dict[str, tuple[Json, dict[str, set[str]]]] = {
    "nothing": ({}, {}),
    "fields of other kinds": (
        {"add_bos_token": True, "model_max_length": 10, "chat_template": "x", "eos_token": None},
        {},
    ),
    "what the file has": ({DECODER: {"3000": token("<|im_start|>", special=True)}, "bos_token": "<|im_end|>"}, {}),
    # The entries by id
    "an entry": ({DECODER: {"3004": token("<a>")}}, {"<a>": {"normalized"}}),
    "a special entry": ({DECODER: {"3004": token("<a>", special=True)}}, {"<a>": {"special"}}),
    "flags": (
        {DECODER: {"3004": token("<a>", lstrip=True, rstrip=True, single_word=True, normalized=False)}},
        {"<a>": {"lstrip", "rstrip", "single_word"}},
    ),
    "special and normalized": (
        {DECODER: {"3004": token("<a>", special=True, normalized=True)}},
        {"<a>": {"special", "normalized"}},
    ),
    "entries by id, not as listed": (
        {DECODER: {"3010": token("<a>"), "3009": token("<b>"), "401": token("<c>")}},
        {"<c>": {"normalized"}, "<b>": {"normalized"}, "<a>": {"normalized"}},
    ),
    "a token of the model": ({DECODER: {"7": token("the", normalized=False)}}, {"the": set()}),
    "other flags for a token of the file": (
        {DECODER: {"3002": token("<strips>", rstrip=True, special=True)}},
        {"<strips>": {"rstrip", "special"}},
    ),
    # The special tokens by name
    "a name": ({"bos_token": "<a>"}, {"<a>": {"special"}}),
    "names in their order": (
        {"mask_token": "<a>", "pad_token": "<b>", "sep_token": "<c>", "bos_token": "<d>", "cls_token": "<e>"},
        {"<d>": {"special"}, "<c>": {"special"}, "<b>": {"special"}, "<e>": {"special"}, "<a>": {"special"}},
    ),
    "one token for two names": ({"eos_token": "<a>", "pad_token": "<a>"}, {"<a>": {"special"}}),
    "a name of an entry": (
        {DECODER: {"9": token("<a>", lstrip=True)}, "eos_token": "<a>"},
        {"<a>": {"lstrip", "special"}},
    ),
    "a name as an object": ({"eos_token": named("<a>", rstrip=True)}, {"<a>": {"special", "rstrip"}}),
    "a name as an object that is normalized": (
        {"eos_token": named("<a>", normalized=True)},
        {"<a>": {"special", "normalized"}},
    ),
    "a name for a token of the file": ({"eos_token": "<strips>"}, {"<strips>": {"lstrip", "normalized", "special"}}),
    "a name for a token of the file, with entries": ({"eos_token": "<strips>", DECODER: {}}, {}),
    "a name of the model's own": ({"image_token": "<a>"}, {"<a>": {"special"}}),
    "a name of the model's own for an entry": (
        {"image_token": "<a>", DECODER: {"9": token("<a>", normalized=True)}},
        {"<a>": {"normalized", "special"}},
    ),
    "switches with such names": ({"add_x_token": True, "use_image_token": True, "patches_per_token": 4}, {}),
    "two ways to write one token": (
        {"eos_token": "<a>", "cls_token": named("<a>", lstrip=True), "pad_token": named("<b>", rstrip=True)}
        | {"mask_token": "<b>"},
        {"<a>": {"lstrip", "special"}, "<b>": {"special"}},
    ),
    # The lists
    "a list": ({"additional_special_tokens": ["<a>", "<b>"]}, {"<a>": {"special"}, "<b>": {"special"}}),
    "the new name of the list": ({"extra_special_tokens": ["<a>"]}, {"<a>": {"special"}}),
    "a list of objects": (
        {"additional_special_tokens": [named("<a>", rstrip=True, special=True), named("<b>")]},
        {"<a>": {"rstrip", "special"}, "<b>": {"normalized"}},
    ),
    "a list with names": (
        {"extra_special_tokens": {"image_token": "<a>", "boi_token": "<b>"}},
        {"<a>": {"special"}, "<b>": {"special"}},
    ),
    "a list with names for what is there": (
        {"extra_special_tokens": {"image_token": "<strips>", "boi_token": "<|im_end|>"}},
        {"<strips>": {"lstrip", "normalized", "special"}},
    ),
    "a list with names for entries": (
        {"extra_special_tokens": {"image_token": "<a>"}, DECODER: {"9": token("<a>", rstrip=True)}},
        {"<a>": {"rstrip", "special"}},
    ),
    "a list with a name that is there too": (
        {"extra_special_tokens": {"image_token": "<a>"}, "image_token": "<b>"},
        {"<a>": {"special"}},
    ),
    "both lists": ({"additional_special_tokens": ["<a>"], "extra_special_tokens": ["<b>"]}, {"<b>": {"special"}}),
    "a list that is empty": ({"additional_special_tokens": ["<a>"], "extra_special_tokens": []}, {"<a>": {"special"}}),
    "a list with what has a name": (
        {"additional_special_tokens": ["<a>"], "sep_token": named("<a>", lstrip=True)},
        {"<a>": {"special"}},
    ),
    "a list with what is there": (
        {"additional_special_tokens": ["<|im_end|>", "<strips>", "<a>", "<a>"]},
        {"<a>": {"special"}},
    ),
    "entries, names, list": (
        {"extra_special_tokens": ["<a>"], "eos_token": "<b>", DECODER: {"1": token("<c>")}},
        {"<c>": {"normalized"}, "<b>": {"special"}, "<a>": {"special"}},
    ),
}


def folder(path: pathlib.Path, config: Json | bytes) -> pathlib.Path:
    path.mkdir(exist_ok=True)
    (path / "tokenizer.json").write_text(definition(), encoding="utf-8")
    data = config if isinstance(config, bytes) else json.dumps(config).encode()
    (path / "tokenizer_config.json").write_bytes(data)
    return path


def by_content(tok: toktier.Tokenizer) -> dict[str, set[str]]:
    """The added tokens in the order of their ids, each with the flags that are set."""
    literals = [asdict(literal) for literal in tok.family.definition.literals]
    return {each["content"]: {flag for flag, value in each.items() if value is True} for each in literals}


@pytest.mark.parametrize("case", CASES)
def test_added_tokens_are_those_that_transformers_gives(tmp_path: pathlib.Path, case: str) -> None:
    config, added = CASES[case]
    tok = material.registry().load(folder(tmp_path, config))
    assert by_content(tok) == IN_FILE | added


@pytest.mark.parametrize("case", CASES)
def test_new_ids_follow_in_the_order_in_which_transformers_adds(tmp_path: pathlib.Path, case: str) -> None:
    config, added = CASES[case]
    plain = tokenizers.Tokenizer.from_str(definition())
    first = plain.get_vocab_size()
    new = [content for content in added if plain.token_to_id(content) is None]
    tok = material.registry().load(folder(tmp_path, config))
    ids = {literal.content: literal.id for literal in tok.family.definition.literals}
    assert [ids[content] for content in new] == list(range(first, first + len(new)))
    assert all(ids[content] == plain.token_to_id(content) for content in ids if content not in new)


@pytest.mark.parametrize("case", CASES)
def test_a_folder_is_what_the_library_makes_of_the_same_tokens(tmp_path: pathlib.Path, case: str) -> None:
    config, added = CASES[case]
    expected = tokenizers.Tokenizer.from_str(definition())
    flags = dict.fromkeys(("lstrip", "rstrip", "single_word", "normalized", "special"), False)
    expected.add_tokens([AddedToken(c, **(flags | dict.fromkeys(its, True))) for c, its in added.items()])
    tok = material.registry().load(folder(tmp_path, config))
    # A token that got other flags is still looked for by the old ones, until it is saved and loaded again.
    assert (tok is material.registry().load(expected)) == (not tok.family.definition.superseded)
    for text in ("x <a>y <b> the<strips> <STRIPS> theme", "<C>\n <plain><Plain> <d><e>", "<|im_start|> <A><a><a>"):
        assert tok.encode(text).tolist() == expected.encode(text, add_special_tokens=False).ids
        ids = [*tok.encode(text), *(literal.id for literal in tok.family.definition.literals)]
        assert tok.decode(ids) == expected.decode(ids)


def test_without_a_configuration_the_file_stands_alone(tmp_path: pathlib.Path) -> None:
    (tmp_path / "tokenizer.json").write_text(definition(), encoding="utf-8")
    assert by_content(material.registry().load(tmp_path)) == IN_FILE


def test_the_configuration_counts_for_the_folder_and_not_for_the_file_in_it(tmp_path: pathlib.Path) -> None:
    place = folder(tmp_path, {"bos_token": "<a>"})
    assert "<a>" in by_content(material.registry().load(place))
    assert by_content(material.registry().load(place / "tokenizer.json")) == IN_FILE


def test_a_configuration_that_adds_nothing_leaves_the_tokenizer_as_it_is(tmp_path: pathlib.Path) -> None:
    place = folder(tmp_path, {"eos_token": "<|im_end|>", "tokenizer_class": "PreTrainedTokenizerFast"})
    assert material.registry().load(place) is material.registry().load(place / "tokenizer.json")


def test_special_tokens_are_text_where_the_configuration_says_so(tmp_path: pathlib.Path) -> None:
    tok = material.registry().load(folder(tmp_path, {"split_special_tokens": True, "bos_token": "<a>"}))
    expected = tokenizers.Tokenizer.from_str(definition())
    expected.add_special_tokens(["<a>"])
    text = "<|im_start|>x<a> <strips><|im_end|>"
    assert tok is not material.registry().load(expected)
    expected.encode_special_tokens = True
    assert tok.encode(text).tolist() == expected.encode(text, add_special_tokens=False).ids
    assert tok is material.registry().load(expected)


@pytest.mark.parametrize(
    "config",
    [
        *(b"", b"{", b"[]", b"null", b'"x"', b"\xff", b'{"a": 1', b"[" * 100_000),
        {DECODER: "x"},
        {DECODER: {"x": token("<a>")}},
        {DECODER: {"1": {"special": True}}},
        {DECODER: {"1": {"content": None}}},
        {DECODER: {"1": 2}},
        {"eos_token": {"lstrip": True}},
        {"eos_token": 3},
        {"eos_token": ["<a>"]},
        {"additional_special_tokens": "<a>"},
        {"additional_special_tokens": [1]},
        {"additional_special_tokens": 1},
        {"extra_special_tokens": {"image_token": 1}},
        {"extra_special_tokens": [{"a": 1}]},
    ],
    ids=lambda config: str(config)[:40],
)
def test_a_configuration_that_is_broken_is_named(tmp_path: pathlib.Path, config: Json | bytes) -> None:
    place = folder(tmp_path, config)
    with pytest.raises(InvalidDefinition) as error:
        material.registry().load(place)
    assert str(error.value).startswith(f"{place / 'tokenizer_config.json'}: ")
