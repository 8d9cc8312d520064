"""Definitions made to do harm: each gives a clear error, or a tokenizer with the ids of the reference, in bounded time.

What can be tried here is, in milliseconds each. What could take the memory or the time of everything else, or end the
process, is tried in a process of its own with limits on processor time and address space.
"""

from __future__ import annotations

import base64
import copy
import json
import pathlib
import random
import struct
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import tokenizers
from tokenizers import decoders, normalizers, pre_tokenizers

import toktier
from tests import builders, material
from tests.reliability.trial import Limits, Outcome, Wrong, tried, tried_apart

Json = Any

SECONDS = 5
"""What a definition of some kilobytes may take, on a busy machine; nearly all take some hundredths of that."""


def flags(content: str, **others: bool) -> Json:
    off = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized", "special"), False)
    return {"content": content} | off | others


def bpe(vocabulary: Json, merges: Json, **others: Json) -> Json:
    return {"type": "BPE", "vocab": vocabulary, "merges": merges} | others


ALPHABET = {letter: i for i, letter in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
SMALL = bpe(ALPHABET | {"ab": 256, "aa": 257, "\u0120a": 258}, [["a", "b"], ["a", "a"], ["\u0120", "a"]])


def definition(
    *, pattern: Json = None, added: Json = (), normalizer: Json = None, model: Json = SMALL, **others: Json
) -> Json:
    """A small byte-level BPE, with what is hostile in its place."""
    split = {"type": "Split", "pattern": pattern or {"Regex": builders.GPT4}, "behavior": "Isolated", "invert": False}
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
    specials = [{"id": 1000 + i} | flags(f"<|im_{name}|>", special=True) for i, name in enumerate(("start", "end"))]
    return {
        "added_tokens": [*specials, *({"id": 1002 + i} | token for i, token in enumerate(added))],
        "normalizer": normalizer,
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [split, byte_level]},
        "post_processor": None,
        "decoder": byte_level,
        "model": model,
    } | others


def regex(pattern: str) -> Json:
    return definition(pattern={"Regex": pattern})


def nested(value: Json, around: Callable[[Json], Json], depth: int) -> Json:
    for _ in range(depth):
        value = around(value)
    return value


def normalizers_in(value: Json) -> Json:
    return {"type": "Sequence", "normalizers": [value]}


def pre_tokenizers_in(value: Json) -> Json:
    return {"type": "Sequence", "pretokenizers": [value]}


def with_pre_tokenizer(value: Json) -> Json:
    return definition() | {"pre_tokenizer": value}


def with_charsmap(units: list[int], images: bytes) -> Json:
    """A definition whose normalizer has a map of a trie's units and of images."""
    charsmap = struct.pack(f"<I{len(units)}I", 4 * len(units), *units) + images
    return definition(normalizer={"type": "Precompiled", "precompiled_charsmap": base64.b64encode(charsmap).decode()})


def written(value: Json, **raw: str) -> str:
    """A definition as JSON in which strings of a name are other JSON than a string."""
    text = json.dumps(value)
    for name, other in raw.items():
        assert text.count(f'"{name}"') == 1
        text = text.replace(f'"{name}"', other)
    return text


def in_model(**others: Json) -> Json:
    return definition(model=SMALL | others)


def ids(change: Callable[[int], Json]) -> Json:
    return definition(model=SMALL | {"vocab": {token: change(i) for token, i in SMALL["vocab"].items()}})


def brackets(depth: int) -> str:
    return "[" * depth + "]" * depth


def arrays_in(field: str, depth: int) -> str:
    return written(definition(**{field: "HERE"}), HERE=brackets(depth))


def model_of(kind: str, **fields: Json) -> Json:
    return {"model": {"type": kind} | fields}


UNIGRAM = {"unk_id": 0, "vocab": [["<unk>", 0.0], ["a", -1.0], ["ab", -1.5], [" ", -2.0]]}
WORD_LEVEL = {"unk_token": "<unk>", "vocab": {"<unk>": 0, "a": 1, "ab": 2}}
WORD_PIECE = WORD_LEVEL | {"continuing_subword_prefix": "##", "max_input_chars_per_word": 100}

LOADS = None
"""The mark of those that are tokenizers; a string is a part of the error; the second of two, of the reason."""

Expected = str | None | tuple[None, str]

NOT_JSON = "not JSON: "

HOSTILE: dict[str, tuple[Callable[[], Json | str | bytes], Expected]] = {
    # Deep
    "the file is deep": (lambda: brackets(100_000), NOT_JSON),
    "an unknown field is deep": (lambda: arrays_in("x", 100_000), NOT_JSON),
    "a field of the model is deep": (lambda: written(in_model(x="HERE"), HERE=brackets(120)), LOADS),
    "a field of the model is too deep": (lambda: written(in_model(x="HERE"), HERE=brackets(130)), "field 'model': "),
    "normalizers in one another": (
        lambda: definition(normalizer=nested({"type": "Lowercase"}, normalizers_in, 50)),
        LOADS,
    ),
    "too many normalizers in one another": (
        lambda: definition(normalizer=nested({"type": "Lowercase"}, normalizers_in, 200)),
        "field 'normalizer': ",
    ),
    "pre-tokenizers in one another": (
        lambda: with_pre_tokenizer(nested(definition()["pre_tokenizer"], pre_tokenizers_in, 50)),
        LOADS,
    ),
    "too many pre-tokenizers in one another": (
        lambda: with_pre_tokenizer(nested(definition()["pre_tokenizer"], pre_tokenizers_in, 200)),
        "field 'pre_tokenizer': ",
    ),
    "groups": (lambda: regex("(" * 80 + "a" + ")" * 80 + "|."), LOADS),
    "too many groups": (lambda: regex("(?:" * 1_500 + "a" + ")" * 1_500 + "|."), (LOADS, "groups nested too deeply")),
    "far too many groups": (lambda: regex("(" * 100_000 + "a" + ")" * 100_000), "parse depth limit over"),
    "lookaheads": (lambda: regex("(?=" * 500 + "a" + ")" * 500 + "a|."), (LOADS, "groups nested too deeply")),
    "classes in one another": (lambda: regex("[" * 500 + "a" + "]" * 500 + "|."), LOADS),
    "quantifiers": (lambda: regex("(?:a" + "{1,2}" * 40 + ")|."), LOADS),
    # Repeated
    "a million times": (lambda: regex("a{1000000}"), "too big number"),
    "as often as the library counts": (lambda: regex("a{100000}|."), LOADS),
    "a thousand times a thousand": (lambda: regex("(a{1000}){1000}|."), LOADS),
    "a thousand times a thousand times a thousand": (lambda: regex("((ab?){1,1000}){1,1000}{1,1000}|."), LOADS),
    "a number of 5,000 digits": (lambda: regex("a{" + "1" * 5_000 + "}|."), "too big number"),
    # Slow where they fail; the texts here are short
    "(a+)+b": (lambda: regex("(a+)+b|."), LOADS),
    "(a|a)*": (lambda: regex("(a|a)*"), (LOADS, "empty string")),
    "(a|a)*b": (lambda: regex("(a|a)*b|."), LOADS),
    "(x+x+)+y": (lambda: regex("(x+x+)+y|."), LOADS),
    # Ids
    "one id for two tokens": (lambda: ids(lambda i: i // 2), LOADS),
    "one id for all tokens": (lambda: ids(lambda i: 7), LOADS),
    "the largest ids": (lambda: ids(lambda i: 2**32 - 1 - i), LOADS),
    "one id too large": (lambda: ids(lambda i: 2**32 + i), "field 'model': "),
    "a negative id": (lambda: ids(lambda i: -i), "field 'model': "),
    "an id that is no integer": (lambda: ids(lambda i: i + 0.5), "field 'model': "),
    "an id that is a string": (lambda: ids(str), "field 'model': "),
    "an id of 5,000 digits": (
        lambda: written(definition(model=SMALL | {"vocab": {"a": "HERE"}}), HERE="9" * 5_000),
        NOT_JSON,
    ),
    "NaN": (lambda: written(definition(model=SMALL | {"vocab": {"a": "HERE"}}), HERE="NaN"), "field 'model': "),
    "Infinity": (lambda: written(in_model(dropout="HERE"), HERE="-Infinity"), "field 'model': "),
    "1e999": (lambda: written(in_model(dropout="HERE"), HERE="1e999"), "field 'model': "),
    "a score that is NaN": (lambda: written(model_of("Unigram", vocab=[["a", "HERE"]]), HERE="NaN"), "field 'model': "),
    "an added token with a negative id": (
        lambda: definition(added_tokens=[{"id": -1} | flags("<x>")]),
        "field 'added_tokens': ",
    ),
    "an added token with the largest id": (lambda: definition(added_tokens=[{"id": 2**32 - 1} | flags("<x>")]), LOADS),
    "an added token with the id of another": (
        lambda: definition(added_tokens=[{"id": 1} | flags("<x>"), {"id": 1} | flags("<y>")]),
        LOADS,
    ),
    # Twice
    "a token twice": (
        lambda: written(definition()).replace('{"!": 0', '{"!": 5, "!": 6, "\\u0021": 0', 1),
        LOADS,
    ),
    "two vocabularies": (
        lambda: written(definition()).replace('"vocab": {', '"vocab": {"a": 9}, "vocab": {', 1),
        LOADS,
    ),
    "two models": (lambda: written(definition())[:-1] + f', "model": {json.dumps(bpe({"a": 5}, []))}}}', LOADS),
    "the same added token twice": (lambda: definition(added=[flags("<x>")] * 2), (LOADS, "listed twice")),
    # Merges
    "no vocabulary": (lambda: definition(model=bpe({}, [])), LOADS),
    "no vocabulary, but merges": (lambda: definition(model=bpe({}, [["a", "b"]])), "field 'model': "),
    "merges that need each other": (
        lambda: definition(
            model=bpe(
                {"a": 0, "b": 1, "ab": 2, "aba": 3, "ba": 4, "bab": 5, "abab": 6},
                [["ab", "ab"], ["aba", "b"], ["a", "ba"], ["ab", "a"], ["b", "ab"], ["b", "a"], ["a", "b"]],
            )
        ),
        LOADS,
    ),
    "merges of a token with itself": (
        lambda: definition(
            model=bpe(
                {"a": 0, "aa": 1, "aaa": 2, "aaaa": 3, "b": 4},
                [["aa", "aa"], ["a", "aaa"], ["aaa", "a"], ["a", "aa"], ["a", "a"], ["aa", "a"], ["a", "a"]],
            )
        ),
        LOADS,
    ),
    "merges with nothing": (
        lambda: definition(model=bpe({"": 0, "a": 1, "b": 2}, [["a", ""], ["", "a"], ["", ""]])),
        LOADS,
    ),
    "a merge of unknown tokens": (lambda: in_model(merges=[["zz", "a"]]), "field 'model': "),
    "a merge with an unknown product": (lambda: in_model(merges=[["a", "z"]]), "field 'model': "),
    "a merge of three": (lambda: in_model(merges=["a b c"]), "field 'model': "),
    "a merge of one": (lambda: in_model(merges=["ab"]), "field 'model': "),
    "merges of both kinds": (lambda: in_model(merges=["a b", ["a", "a"]]), "field 'model': "),
    "a prefix longer than the tokens": (
        lambda: in_model(continuing_subword_prefix="######", merges=[["a", "b"]]),
        "field 'model': ",
    ),
    # Bytes and strings
    "invalid UTF-8": (
        lambda: written(definition(x="y", added=[flags("HERE")])).encode().replace(b"HERE", b"\xff"),
        NOT_JSON,
    ),
    "an overlong NUL": (
        lambda: written(definition(added=[flags("HERE")])).encode().replace(b"HERE", b"\xc0\x80"),
        NOT_JSON,
    ),
    "a surrogate in UTF-8": (
        lambda: written(definition(added=[flags("HERE")])).encode().replace(b"HERE", b"\xed\xa0\x80"),
        NOT_JSON,
    ),
    "NULs behind it": (lambda: written(definition()) + "\0\0", NOT_JSON),
    "half a character in an added token": (
        lambda: definition(added=[flags("<\ud800>")]),
        "field 'added_tokens': ",
    ),
    "half a character in a pattern": (lambda: regex("\ud800|."), "field 'pre_tokenizer': "),
    "half a character in the vocabulary": (
        lambda: definition(model=bpe({"\udfff": 0}, [])),
        "field 'model': ",
    ),
    "half a character in a merge": (lambda: in_model(merges=[["\ud83d", "a"]]), "field 'model': "),
    "half a character in the name of a field": (lambda: definition() | {"\udfff": 1}, "field '\\udfff': "),
    "two halves in an added token": (
        lambda: written(definition(added=[flags("HERE")]), HERE='"\\ud83d\\ude00"'),
        LOADS,
    ),
    # Added tokens
    "an empty added token": (lambda: definition(added=[flags("")]), LOADS),
    "an empty added token that strips": (lambda: definition(added=[flags("", lstrip=True, rstrip=True)]), LOADS),
    "added tokens of whitespace": (
        lambda: definition(added=[flags(t) for t in (" ", "  ", "\n", " \n", "\t\n ")]),
        LOADS,
    ),
    "added tokens of whitespace that strip": (
        lambda: definition(added=[flags(t, lstrip=True, rstrip=True) for t in (" ", "\n", "\t ")]),
        LOADS,
    ),
    "added tokens of whitespace that are words": (
        lambda: definition(added=[flags(t, single_word=True) for t in (" ", "\n", "a ")]),
        LOADS,
    ),
    "added tokens that overlap": (
        lambda: definition(added=[flags(t) for t in ("ab", "bc", "abc", "ca", "bca", "a", "c ")]),
        LOADS,
    ),
    "added tokens that begin one another": (
        lambda: definition(added=[flags("a" * i, single_word=i % 3 == 0) for i in range(1, 30)]),
        LOADS,
    ),
    "added tokens that overlap, with all flags": (
        lambda: definition(
            added=[
                flags("ab", lstrip=True),
                flags("bc", rstrip=True, special=True),
                flags("c a", single_word=True),
                flags("AB", normalized=True),
                flags(" ab", normalized=True, rstrip=True),
            ],
            normalizer={"type": "Lowercase"},
        ),
        LOADS,
    ),
    "an added token that normalization removes": (
        lambda: definition(
            added=[flags(" ", normalized=True)], normalizer={"type": "Strip", "strip_left": True, "strip_right": True}
        ),
        (LOADS, "nothing is left of it"),
    ),
    "an added token of a NUL": (lambda: definition(added=[flags("\0")]), LOADS),
    "an added token that is a part of a special one": (lambda: definition(added=[flags("<|"), flags("|>")]), LOADS),
    "ten thousand added tokens": (lambda: definition(added=[flags(f"<{i}>") for i in range(10_000)]), LOADS),
    # Fields that the model has no use for
    "merges that are none": (
        lambda: model_of("WordLevel", **WORD_LEVEL, merges=[5, None]),
        (LOADS, "it may join any characters"),
    ),
    # Long
    "a name of a megabyte": (lambda: definition() | {"x" * 1_000_000: 1}, "field 'xxx"),
    "an added token of 100,000 characters": (lambda: definition(added=[flags("ab" * 50_000)]), LOADS),
    "a class of a megabyte": (lambda: regex("[" + "ab" * 500_000 + "]|."), LOADS),
    "100,000 empty branches": (lambda: regex("|" * 100_000), (LOADS, "empty string")),
    "braces": (lambda: regex("{,," * 500 + "|."), LOADS),
    # What an encode of the library can fail on
    "zeros before a number": (lambda: regex("a{" + "0" * 5_000 + "1}|."), LOADS),
    "merges that are null": (
        lambda: model_of("WordLevel", **WORD_LEVEL, merges=None),
        (LOADS, "it may join any characters"),
    ),
    "merges that are a number": (
        lambda: model_of("WordPiece", **WORD_PIECE, merges=5),
        (LOADS, "it may join any characters"),
    ),
    "an unknown token that is missing": (
        lambda: definition(model=bpe({"a": 0, "b": 1}, [], unk_token="<unk>")),
        LOADS,
    ),
    "no vocabulary of Unigram": (lambda: model_of("Unigram", vocab=[]), (LOADS, "it may join any characters")),
    "an unknown word that cannot be said": (
        lambda: model_of("WordLevel", vocab={"a": 0}, unk_token="<unk>"),
        (LOADS, "it may join any characters"),
    ),
}


def file_of(source: Json | str | bytes, folder: pathlib.Path) -> pathlib.Path:
    data = source if isinstance(source, bytes) else (source if isinstance(source, str) else json.dumps(source)).encode()
    file = folder / "tokenizer.json"
    file.write_bytes(data)
    return file


def check(outcome: Outcome, expected: Expected) -> None:
    if isinstance(expected, str):
        assert outcome.error is not None
        assert expected in outcome.error
    else:
        assert outcome.error is None
        reason = expected[1] if expected else None
        assert outcome.reason is not None if reason else outcome.reason is None
        assert (reason or "") in (outcome.reason or "")


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_definition_is_refused_clearly_or_has_the_ids_of_the_reference(
    tmp_path: pathlib.Path, name: str
) -> None:
    make, expected = HOSTILE[name]
    file = file_of(make(), tmp_path)
    registry = material.registry()
    started = time.perf_counter()
    outcome = tried(file, registry)
    assert time.perf_counter() - started < SECONDS
    check(outcome, expected)
    assert len(outcome.error or "") < 1_000 or "megabyte" in name


@pytest.mark.parametrize("field", ["normalizer", "pre_tokenizer", "added_tokens", "decoder", "model", "x"])
def test_however_deep_a_field_is_it_is_refused_clearly(tmp_path: pathlib.Path, field: str) -> None:
    registry = material.registry()
    # About where Python's recursion ends, what could be read may be too deep to be written.
    for depth in (200, *range(800, 1_010)):
        assert tried(file_of(arrays_in(field, depth), tmp_path), registry).error is not None


# The other models, pre-tokenizers and normalizers: not understood, and right all the same


MODELS: dict[str, Json] = {
    "BPE": bpe({"a": 0, "b": 1, "ab": 2, "<unk>": 3}, [["a", "b"]], unk_token="<unk>", fuse_unk=True),
    "Unigram": {"type": "Unigram"} | UNIGRAM,
    "WordLevel": {"type": "WordLevel"} | WORD_LEVEL,
    "WordPiece": {"type": "WordPiece"} | WORD_PIECE,
}


def everything(model: str) -> Json:
    """A tiny definition in which most kinds of field are there."""
    token = {"id": "<s>", "ids": [4], "tokens": ["<s>"]}
    single = [{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}]
    return {
        "version": "1.0",
        "truncation": {"direction": "Right", "max_length": 8, "strategy": "LongestFirst", "stride": 0},
        "padding": None,
        "added_tokens": [{"id": 4} | flags("<s>", special=True), {"id": 5} | flags("b ", lstrip=True)],
        "normalizer": normalizers_in({"type": "Lowercase"}),
        "pre_tokenizer": {
            "type": "Sequence",
            "pretokenizers": [
                {"type": "Split", "pattern": {"Regex": r"\s+|\S"}, "behavior": "Removed", "invert": True},
                {"type": "Digits", "individual_digits": True},
            ],
        },
        "post_processor": {
            "type": "TemplateProcessing",
            "single": single,
            "pair": [*single, {"Sequence": {"id": "B", "type_id": 1}}],
            "special_tokens": {"<s>": token},
        },
        "decoder": {"type": "ByteFallback"},
        "model": MODELS[model],
    }


def places(value: Json, *way: Json) -> Iterator[tuple[Json, ...]]:
    """The ways to everything in a definition."""
    if way:
        yield way
    if isinstance(value, (dict, list)):
        for key in value if isinstance(value, dict) else range(len(value)):
            yield from places(value[key], *way, key)


OTHERS: list[Json] = [None, True, -1, 2**31, 1.5, 1e308, "", "x", [], {}, [[]], [None], {"type": "x"}, ["a"], "\udfff"]


@pytest.mark.parametrize("model", MODELS)
def test_a_value_of_a_wrong_type_anywhere_is_refused_or_has_the_ids_of_the_reference(
    tmp_path: pathlib.Path, model: str
) -> None:
    base, source, registry = everything(model), random.Random(model), material.registry()
    assert tried(file_of(base, tmp_path), registry).error is None
    refused, wrongs = 0, []
    ways = [*places(base)]
    for *way, last in ways:
        for other in source.sample(OTHERS, 4):
            changed = copy.deepcopy(base)
            place = changed
            for step in way:
                place = place[step]
            place[last] = other
            try:
                refused += tried(file_of(changed, tmp_path), registry, ("ab 1 b <s>", "")).error is not None
            except Wrong as wrong:
                wrongs.append(f"{'.'.join(map(str, [*way, last]))} is {other!r}: {wrong}")
    assert refused > len(ways)
    if wrongs:
        raise Wrong("\n".join(wrongs))


COMPONENTS: dict[str, Any] = {
    "BertNormalizer": normalizers.BertNormalizer(),
    "NFC": normalizers.NFC(),
    "NFKD": normalizers.NFKD(),
    "Nmt": normalizers.Nmt(),
    "Prepend": normalizers.Prepend("\u2581"),
    "Replace": normalizers.Replace(tokenizers.Regex("[^a]|"), "\0"),
    "Replace by nothing": normalizers.Replace("a", ""),
    "Strip": normalizers.Strip(),
    "StripAccents": normalizers.StripAccents(),
    "ByteLevel, normalizer": normalizers.ByteLevel(),
    "no normalizers": normalizers.Sequence([]),
    "BertPreTokenizer": pre_tokenizers.BertPreTokenizer(),
    "ByteLevel": pre_tokenizers.ByteLevel(),
    "CharDelimiterSplit": pre_tokenizers.CharDelimiterSplit("a"),
    "Metaspace": pre_tokenizers.Metaspace(),
    "Punctuation": pre_tokenizers.Punctuation("merged_with_next"),
    "UnicodeScripts": pre_tokenizers.UnicodeScripts(),
    "Whitespace": pre_tokenizers.Whitespace(),
    "WhitespaceSplit": pre_tokenizers.WhitespaceSplit(),
    "no pre-tokenizers": pre_tokenizers.Sequence([]),
    "a split by nothing": pre_tokenizers.Split("", "isolated"),
    "Metaspace, decoder": decoders.Metaspace(),
    "CTC": decoders.CTC(),
}
if hasattr(pre_tokenizers, "FixedLength"):  # the oldest versions of the library have none
    COMPONENTS["FixedLength"] = pre_tokenizers.FixedLength(2)


@pytest.mark.parametrize("name", COMPONENTS)
def test_every_component_of_the_library_has_the_ids_of_the_reference(tmp_path: pathlib.Path, name: str) -> None:
    component, tokenizer = COMPONENTS[name], tokenizers.Tokenizer.from_str(json.dumps(definition()))
    if isinstance(component, normalizers.Normalizer):
        tokenizer.normalizer = component
    elif isinstance(component, pre_tokenizers.PreTokenizer):
        tokenizer.pre_tokenizer = component
    else:
        tokenizer.decoder = component
    assert tried(file_of(tokenizer.to_str(), tmp_path), material.registry()).error is None


# Files that were not written to the end, or changed on the way


def test_a_definition_that_is_cut_off_anywhere_is_refused(tmp_path: pathlib.Path) -> None:
    data, registry = written(everything("BPE")).encode(), material.registry()
    for stop in range(len(data)):
        error = tried(file_of(data[:stop], tmp_path), registry).error
        assert error is not None
        assert error.startswith("not JSON: "), stop


@pytest.mark.parametrize("seed", range(3))
def test_a_definition_with_changed_bytes_is_refused_or_has_the_ids_of_the_reference(
    tmp_path: pathlib.Path, seed: int
) -> None:
    source, registry = random.Random(seed), material.registry()
    data = written(everything("BPE") | {"model": bpe({"a": 0, "b": 1, "ab": 2}, [["a", "b"]])}).encode()
    loaded = 0
    for _ in range(300):
        changed = bytearray(data)
        for _ in range(source.choice((1, 1, 2, 4))):
            at = source.randrange(len(changed))
            piece = source.choice(
                (b"", bytes([source.randrange(256)]), b"\\u0000", b"9", b'"', bytes(changed[at : at + 9]))
            )
            changed[at : at + source.choice((0, 1, 1, 5))] = piece
        loaded += tried(file_of(bytes(changed), tmp_path), registry, ("ab 1 b <s>",)).error is None
    assert 10 < loaded < 290


@pytest.mark.parametrize("one_more", [b"", b" ", b"\n\n"])
def test_whitespace_around_a_definition_changes_nothing(tmp_path: pathlib.Path, one_more: bytes) -> None:
    data = one_more + written(everything("BPE")).encode() + one_more
    tok = material.registry().load(file_of(data, tmp_path))
    assert tok is material.registry().load(file_of(everything("BPE"), tmp_path))


def doubled(field: str, other: Json) -> str:
    return written(definition(normalizer={"type": "Lowercase"}))[:-1] + f', "{field}": {json.dumps(other)}}}'


TWICE: dict[str, Callable[[], Json]] = {
    **{name: HOSTILE[name][0] for name in ("a token twice", "two vocabularies", "two models")},
    "two normalizers": lambda: doubled("normalizer", None),
    "two pre-tokenizers": lambda: doubled("pre_tokenizer", {"type": "Digits", "individual_digits": True}),
    "added tokens twice": lambda: doubled("added_tokens", [{"id": 1002} | flags("ab")]),
}


@pytest.mark.parametrize("name", TWICE)
def test_what_is_written_twice_is_never_taken_for_what_is_written_once(tmp_path: pathlib.Path, name: str) -> None:
    """Python and the library both read the vocabulary: were they to differ, two tokenizers would have one digest."""

    def first(pairs: list[tuple[str, Json]]) -> Json:
        return dict(reversed(pairs))

    text, registry = TWICE[name](), toktier.Registry(material.registry()._cache.directory)
    once = [json.dumps(json.loads(text)), json.dumps(json.loads(text, object_pairs_hook=first))]
    assert once[0] != once[1]
    for source in (text, *once, text):
        outcome = tried(file_of(source, tmp_path), registry)
        assert outcome.error is None or source is not once[0]


# Catastrophes: the reference gives up on a text, and so must everything else


@pytest.mark.parametrize("pattern", ["(a+)+b|.", "(a|a)*b|.", "(?:a|a?)+b|.", "(a*)*b|."])
def test_a_text_on_which_a_pattern_goes_on_forever_is_an_error_of_the_engine(
    tmp_path: pathlib.Path, pattern: str
) -> None:
    tok = material.registry().load(file_of(regex(pattern), tmp_path))
    session = tok.session("b aab")
    before = session.tolist()
    started = time.perf_counter()
    with pytest.raises(toktier.EngineFailure, match="retry-limit"):
        session.append("a" * 40)
    with pytest.raises(toktier.EngineFailure, match="retry-limit"):
        tok.encode("a" * 40)
    # Twice each: an engine, then the reference, which gives up after ten million steps.
    assert time.perf_counter() - started < 60
    assert (session.text, session.tolist()) == ("b aab", before)
    session.append("aaab")
    assert session.tolist() == tok.encode("b aabaaab").tolist() == tok.engine("reference").encode("b aabaaab").tolist()


# What could take everything: in a process of its own


def characters(count: int) -> str:
    """So many different ones."""
    return "".join(map(chr, range(0x4E00, 0x4E00 + min(count, 20_000)))) + "".join(
        map(chr, range(0x20000, 0x20000 + max(count - 20_000, 0)))
    )


def pre_tokenizers_of(*patterns: str) -> Json:
    split, byte_level = definition()["pre_tokenizer"]["pretokenizers"]
    splits = [split | {"pattern": {"Regex": pattern}} for pattern in patterns]
    return {"type": "Sequence", "pretokenizers": [*splits, byte_level]}


DANGEROUS: dict[str, tuple[Callable[[], Json | str | bytes], Expected, Limits]] = {
    "a token of 100 MB": (lambda: in_model(vocab=SMALL["vocab"] | {"a" * 100_000_000: 300}), LOADS, Limits(seconds=6)),
    "an unknown field of 30 MB": (lambda: definition(x="a" * 30_000_000), "field 'x': ", Limits(seconds=6)),
    "a file of 100 MB of brackets": (lambda: b"[" * 100_000_000, NOT_JSON, Limits()),
    "an added token of 3 MB": (lambda: definition(added=[flags("ab" * 1_500_000)]), LOADS, Limits(seconds=6)),
    "a pattern of a megabyte": (lambda: regex("ab" * 500_000 + "|."), (LOADS, "more than 2,000"), Limits(seconds=2)),
    "a pattern of 100,000 characters": (
        lambda: regex("ab" * 50_000 + "|."),
        (LOADS, "more than 2,000"),
        Limits(seconds=2),
    ),
    "a string of 100,000 characters to split by": (
        lambda: definition(pattern={"String": "ab" * 50_000}),
        (LOADS, "more than 2,000"),
        Limits(seconds=2),
    ),
    "2,000 branches, repeated": (
        lambda: regex("(?:" + "|".join(characters(2_000)) + ")+|."),
        (LOADS, "more than 2,000"),
        Limits(seconds=2),
    ),
    "1,000 branches, repeated": (
        lambda: regex("(?:" + "|".join(characters(1_000)) + ")+|."),
        (LOADS, "more than 250,000 pairs"),
        Limits(seconds=2),
    ),
    "100 branches, repeated in 100 loops": (
        lambda: regex("(?:" * 100 + "|".join(characters(100)) + ")+" * 100 + "|."),
        (LOADS, "more than 250,000 pairs"),
        Limits(seconds=2),
    ),
    "490 branches, repeated": (
        lambda: regex("(?:" + "|".join(characters(490)) + ")+|."),
        LOADS,
        Limits(megabytes=1024),
    ),
    "300 classes": (
        lambda: regex("|".join(f"[a{c}]" for c in characters(300)) + "|."),
        (LOADS, "301 classes of characters"),
        Limits(seconds=2),
    ),
    "any two letters, in any case": (
        lambda: regex("(?i:[a-z][a-z])|."),
        (LOADS, "676 case-insensitive sequences"),
        Limits(seconds=2),
    ),
    "100 pre-tokenizers of 19 characters, an added token of 1,900": (
        lambda: with_pre_tokenizer(pre_tokenizers_of(*(characters(1_900)[i::100] for i in range(100))))
        | {"added_tokens": [{"id": 1000} | flags(characters(1_900), normalized=True)]},
        (LOADS, "no two characters are always parted"),
        Limits(seconds=8, megabytes=1024),
    ),
    "a map of characters whose beginnings never end": (
        lambda: with_charsmap([256 << 10, *[0] * 256, *(byte | byte << 10 for byte in range(1, 256))], b"a\0"),
        (LOADS, "its map is malformed: too many keys"),
        Limits(seconds=4),
    ),
    "a map of characters with a very long image": (
        lambda: with_charsmap(
            [256 << 10, *[0] * 255, 1 << 31, *(byte | 1 << 8 | byte << 10 for byte in range(1, 256))],
            b"a" * 2_000 + b"\0",
        ),
        (LOADS, "its map is malformed"),
        Limits(seconds=4),
    ),
    "100 pre-tokenizers of 30 characters": (
        lambda: with_pre_tokenizer(pre_tokenizers_of(*(characters(3_000)[i::100] for i in range(100)))),
        (LOADS, "3,000 characters and classes"),
        Limits(seconds=2),
    ),
    "2,500 pre-tokenizers": (
        lambda: with_pre_tokenizer(pre_tokenizers_of(*characters(2_500))),
        (LOADS, "2,500 different pre-tokenizers"),
        Limits(seconds=2),
    ),
    "an added token of 60,000 different characters": (
        lambda: definition(added=[flags(characters(60_000))]),
        (LOADS, "more than 2,000"),
        Limits(seconds=2),
    ),
    "100 times NFC": (
        lambda: definition(normalizer={"type": "Sequence", "normalizers": [{"type": "NFC"}] * 100}),
        LOADS,
        Limits(seconds=2),
    ),
    "100 times NFC and NFD": (
        lambda: definition(
            normalizer={"type": "Sequence", "normalizers": [{"type": "NFC"}, {"type": "NFD"}] * 100}
        ),
        (LOADS, "more than 8 normalizers"),
        Limits(seconds=2),
    ),
    "50 times Lowercase": (
        lambda: definition(normalizer={"type": "Sequence", "normalizers": [{"type": "Lowercase"}] * 50}),
        LOADS,
        Limits(),
    ),
    "500 pre-tokenizers": (
        lambda: with_pre_tokenizer(
            {"type": "Sequence", "pretokenizers": definition()["pre_tokenizer"]["pretokenizers"][:1] * 500}
        ),
        LOADS,
        Limits(),
    ),
    "3,000 quantifiers": (lambda: regex("a" + "?+" * 1_000 + "|."), (LOADS, "nested too deeply"), Limits()),
    # The library slices the right side of a merge by bytes, in the middle of a character here.
    "a prefix that divides a character": (
        lambda: in_model(
            vocab={"a": 0, "\u00e9": 1}, continuing_subword_prefix="#", merges=[["a", "\u00e9"]]
        ),
        "field 'model': ",
        Limits(),
    ),
    "a prefix that divides a character, in other words": (
        lambda: written(
            in_model(
                vocab={"a": 0, "\u00e9": 1}, end_of_word_suffix=None, HERE="#", merges=["a \u00e9"]
            )
        ).replace('"HERE"', '"continuing_\\u0073ubword_prefi\\u0078" '),
        "field 'model': ",
        Limits(),
    ),
    "a prefix that divides a character, and then another": (
        lambda: written(
            in_model(
                vocab={"a": 0, "\u00e9": 1}, continuing_subword_prefix="#", merges=[["a", "\u00e9"]]
            )
        ).replace('"merges"', '"continuing_subword_prefix": null, "merges"'),
        "field 'model': ",
        Limits(),
    ),
    "a prefix that divides a character, in a model that is not the last": (
        lambda: written(
            in_model(
                vocab={"a": 0, "\u00e9": 1}, continuing_subword_prefix="#", merges=[["a", "\u00e9"]]
            )
        )[:-1]
        + f', "model": {json.dumps(SMALL)}}}',
        "field 'model': ",
        Limits(),
    ),
    "a prefix before a file that is no JSON": (
        lambda: written(in_model(continuing_subword_prefix="#"))[:-1],
        NOT_JSON,
        Limits(),
    ),
    "a prefix of WordPiece, with merges that it has no use for": (
        lambda: model_of("WordPiece", **WORD_PIECE, merges=[["a", "\u00e9\u00e9"], None, "x"]),
        (LOADS, "it may join any characters"),
        Limits(),
    ),
}  # fmt: skip
"""Each with what a trial of it may take."""


@pytest.mark.parametrize("name", DANGEROUS)
def test_a_definition_that_could_take_everything_does_not(tmp_path: pathlib.Path, name: str) -> None:
    make, expected, limits = DANGEROUS[name]
    check(tried_apart(file_of(make(), tmp_path), material.cache(), limits), expected)


# Controls


def test_a_trial_notices_other_ids(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = file_of(definition(), tmp_path)
    assert tried(file, material.registry()) == Outcome(None)
    real = material.reference_of
    monkeypatch.setattr(material, "reference_of", lambda tokenizer: lambda text: [*real(tokenizer)(text), 0])
    with pytest.raises(Wrong, match="where the reference has"):
        tried(file, material.registry())


def test_a_trial_notices_a_session_that_cuts_anywhere(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(toktier.Family, "is_pair", lambda self, left, right: True)
    with pytest.raises(Wrong, match=r"appends .* where the reference has"):
        tried(file_of(definition(), tmp_path), material.registry())


@pytest.mark.parametrize("error", [KeyError("x"), RecursionError("deep"), MemoryError(), ValueError("x")])
def test_a_trial_notices_an_error_that_gets_out(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def load(source: object) -> None:
        raise error

    registry = toktier.Registry(None)
    monkeypatch.setattr(registry, "load", load)
    with pytest.raises(Wrong, match=f"load: {type(error).__name__} got out"):
        tried(file_of(definition(), tmp_path), registry)


@pytest.mark.parametrize(
    ("hostile", "limits", "message"),
    [
        (definition(added=[flags("ab" * 2_000_000)]), Limits(megabytes=300), "MemoryError|ended with"),
        # Seconds, where nothing of it is known.
        (regex("|".join(f"[a{c}]" for c in characters(40))), Limits(seconds=1), "more than 1 seconds"),
    ],
    ids=["memory", "time"],
)
def test_a_trial_apart_notices_what_takes_too_much(
    tmp_path: pathlib.Path, hostile: Json, limits: Limits, message: str
) -> None:
    with pytest.raises(Wrong, match=message):
        tried_apart(file_of(hostile, tmp_path), tmp_path / "cache", limits)
