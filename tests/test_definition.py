"""Reading definitions: one identity for one tokenizer however written, and a reason for what is not understood."""

from __future__ import annotations

import copy
import json
import pathlib
import random
from collections.abc import Callable, Iterator
from typing import Any
from unittest.mock import patch

import pytest
import tokenizers
from tokenizers import AddedToken, NormalizedString, PreTokenizedString, normalizers, pre_tokenizers, processors

import toktier
from tests import builders, material, zoo
from toktier.errors import InvalidDefinition
from toktier.families import definition as definition_module
from toktier.families.definition import Definition, read
from toktier.families.loading import load_reference
from toktier.families.probing import DiskCache
from toktier.families.stages import ByteLevel, CharacterMap, Form, Pieces, Splitter

Json = Any
Change = Callable[[Json], None]


def definition(source: bytes | str | Json) -> Definition:
    data = source if isinstance(source, bytes) else (source if isinstance(source, str) else json.dumps(source)).encode()
    return read(load_reference(data, "file"), data, "file", DiskCache(None))


def everything() -> Json:
    """A definition in which every kind of field is there."""
    added = [AddedToken("<a b>", lstrip=True), AddedToken("<c>", special=True), AddedToken("it", single_word=True)]
    tokenizer = builders.byte_level(
        builders.split(r"\d"),
        builders.split(builders.GPT4),
        normalizer=normalizers.Sequence([normalizers.NFC()]),
        added=added,
    )
    tokenizer.post_processor = processors.Sequence(
        [
            processors.ByteLevel(trim_offsets=False),
            processors.TemplateProcessing("<c> $A", special_tokens=[("<c>", 3003)]),
        ]
    )
    tokenizer.enable_truncation(8)
    tokenizer.enable_padding(length=16)
    return json.loads(tokenizer.to_str())


EVERYTHING = everything()
DIGEST = definition(EVERYTHING).digest


def changed(change: Change, base: Json = EVERYTHING) -> Json:
    result = copy.deepcopy(base)
    change(result)
    return result


def shuffled(value: Json, by: random.Random) -> Json:
    """The same value with the keys of every object in another order."""
    if isinstance(value, dict):
        return {key: shuffled(value[key], by) for key in by.sample(sorted(value), len(value))}
    return [shuffled(each, by) for each in value] if isinstance(value, list) else value


def put(*path: Json) -> Change:
    """Puts the last of the arguments at the place that the others lead to."""

    def change(into: Json) -> None:
        *way, last, value = path
        for step in way:
            into = into[step]
        into[last] = value

    return change


def drop(*path: Json) -> Change:
    def change(into: Json) -> None:
        *way, last = path
        for step in way:
            into = into[step]
        del into[last]

    return change


MERGES = EVERYTHING["model"]["merges"]
SAME: dict[str, bytes | str | Json] = {
    "as the library writes it": tokenizers.Tokenizer.from_str(json.dumps(EVERYTHING)).to_str(),
    "indented": json.dumps(EVERYTHING, indent=4),
    "without spaces": json.dumps(EVERYTHING, separators=(",", ":")),
    "not escaped": json.dumps(EVERYTHING, ensure_ascii=False),
    "CRLF": json.dumps(EVERYTHING, indent=1).replace("\n", "\r\n"),
    "keys in another order": shuffled(EVERYTHING, random.Random(1)),
    "merges as pairs": changed(put("model", "merges", [m.split(" ") if isinstance(m, str) else m for m in MERGES])),
    "merges as strings": changed(put("model", "merges", [m if isinstance(m, str) else " ".join(m) for m in MERGES])),
    "no ignore_merges": changed(drop("model", "ignore_merges")),
    "no byte_fallback": changed(drop("model", "byte_fallback")),
    "no fuse_unk": changed(drop("model", "fuse_unk")),
    "no dropout": changed(drop("model", "dropout")),
    "no type of the model": changed(drop("model", "type")),
    "no prefix": changed(drop("model", "continuing_subword_prefix")),
    "an empty prefix": changed(put("model", "continuing_subword_prefix", "")),
    "an empty suffix": changed(put("model", "end_of_word_suffix", "")),
    "no version": changed(drop("version")),
    "no truncation": changed(put("truncation", None)),
    "no padding": changed(drop("padding")),
}


@pytest.mark.parametrize("way", SAME)
def test_two_ways_to_write_a_tokenizer_have_one_digest(way: str) -> None:
    written = definition(SAME[way])
    assert written.digest == DIGEST
    assert len({definition(SAME[other]).source_digest for other in ("indented", "CRLF", "without spaces")}) == 3


def fields(value: Json, *way: Json) -> Iterator[tuple[Json, ...]]:
    """The ways to all fields that have no fields of their own, the vocabulary and the merges left out."""
    if isinstance(value, (dict, list)):
        for key in value if isinstance(value, dict) else range(len(value)):
            if key not in ("vocab", "merges", "version", "truncation", "padding"):
                yield from fields(value[key], *way, key)
    else:
        yield *way, value


OTHER = {  # fields that do not take just any value of their type
    "type": None,  # named below
    "id": None,  # the library numbers added tokens itself
    "behavior": "MergedWithNext",
    "dropout": 0.5,
    "unk_token": "a",
    "continuing_subword_prefix": None,  # the merges would not fit
    "end_of_word_suffix": None,
    "tokens": None,
    "ids": None,
}


def other(value: Json, name: str) -> Json:
    """Another value for a field."""
    if name in OTHER:
        return OTHER[name]
    if isinstance(value, bool):
        return not value
    return value + 1 if isinstance(value, int) else f"{value}x"


FIELDS = {
    ".".join(map(str, way)): put(*way, other(value, str(way[-1])))
    for *way, value in fields(EVERYTHING)
    if other(value, str(way[-1])) is not None and "special_tokens" not in way and way[-1] != "SpecialToken"
}


@pytest.mark.parametrize("field", FIELDS)
def test_whatever_field_is_changed_the_digest_is_another(field: str) -> None:
    assert definition(changed(FIELDS[field])).digest != DIGEST


def swapped(one: str, other: str) -> Change:
    def change(of: Json) -> None:
        ids = of["model"]["vocab"]
        ids[one], ids[other] = ids[other], ids[one]

    return change


SPLITTERS = EVERYTHING["pre_tokenizer"]["pretokenizers"]
CHANGES: dict[str, Change] = {
    "two ids": swapped("a", "b"),
    "the ids of two merged tokens": swapped("th", "he"),
    "a merge less": drop("model", "merges", -1),
    "the order of two merges": lambda d: d["model"]["merges"].insert(3, d["model"]["merges"].pop(4)),
    "a vocabulary entry more": put("model", "vocab", "zzz", 5000),
    "an added token less": drop("added_tokens", -1),
    "the order of the added tokens": lambda d: d["added_tokens"].reverse(),
    "no normalizer": put("normalizer", None),
    "another normalizer": put("normalizer", {"type": "NFD"}),
    "one normalizer more": lambda d: d["normalizer"]["normalizers"].append({"type": "Lowercase"}),
    "one splitter less": drop("pre_tokenizer", "pretokenizers", 0),
    "the order of the splitters": put("pre_tokenizer", "pretokenizers", [SPLITTERS[i] for i in (1, 0, 2)]),
    "a string for a regular expression": put("pre_tokenizer", "pretokenizers", 0, "pattern", {"String": r"\d"}),
    "no post-processor": put("post_processor", None),
    "no decoder": put("decoder", None),
    "a token that is listed twice": lambda d: d["added_tokens"].append(d["added_tokens"][3]),
}  # fmt: skip


@pytest.mark.parametrize("change", CHANGES)
def test_whatever_else_is_changed_the_digest_is_another(change: str) -> None:
    assert definition(changed(CHANGES[change])).digest != DIGEST


UNIGRAM = {"model": {"type": "Unigram", "unk_id": 0, "vocab": [["<unk>", 0.0], ["a", -1.0], ["b", -2.0]]}}
WORDPIECE = {
    "model": {
        "type": "WordPiece",
        "unk_token": "[UNK]",
        "continuing_subword_prefix": "##",
        "max_input_chars_per_word": 100,
        "vocab": {"[UNK]": 0, "a": 1, "##a": 2},
    }
}


@pytest.mark.parametrize(
    ("base", "change"),
    [
        (UNIGRAM, put("model", "unk_id", None)),  # nothing is not the first
        (UNIGRAM, put("model", "unk_id", 1)),
        (UNIGRAM, put("model", "byte_fallback", True)),
        (UNIGRAM, put("model", "vocab", 1, 1, -1.5)),
        (UNIGRAM, lambda d: d["model"]["vocab"].reverse()),
        (WORDPIECE, put("model", "max_input_chars_per_word", 0)),
        (WORDPIECE, put("model", "unk_token", "a")),
        (WORDPIECE, put("model", "continuing_subword_prefix", "")),
        (WORDPIECE, put("model", "vocab", "a", 3)),
    ],
)
def test_other_models_are_told_apart_too(base: Json, change: Change) -> None:
    before, after = definition(base), definition(changed(change, base))
    assert before.digest != after.digest


@pytest.mark.parametrize("merges", [None, 5, "a b", {"a": "b"}, [5, None, "a b"]])
def test_a_model_that_has_no_merges_may_say_anything_there(merges: Json) -> None:
    assert definition(changed(put("model", "merges", merges), WORDPIECE)).model == "WordPiece"


def prefixed(prefix: Json, right: str, **others: Json) -> Json:
    vocabulary = {"a": 0, right: 1, "a" + right.encode()[len(str(prefix).encode()) :].decode("utf-8", "replace"): 2}
    model = {"type": "BPE", "continuing_subword_prefix": prefix, "vocab": vocabulary, "merges": [["a", right]]}
    return {"model": model | others}


@pytest.mark.parametrize(
    ("prefix", "right"), [("##", "##b"), ("##", "##\u00e9"), ("\u00e9", "\u00e9b"), ("##", "\u00e9b")]
)
def test_a_prefix_that_ends_where_a_character_does_is_the_librarys_affair(prefix: str, right: str) -> None:
    assert definition(prefixed(prefix, right)).model == "BPE"


# Were it not refused, each of these would end the process.
@pytest.mark.parametrize(
    ("prefix", "right"), [("#", "\u00e9"), ("##", "a\u00e9"), ("###", "\U0001f600"), ("\u00e9", "\u4e2d")]
)
@pytest.mark.parametrize("merge", [lambda right: ["a", right], lambda right: f"a {right}"], ids=["pair", "string"])
@pytest.mark.parametrize("escaped", [True, False])
def test_a_prefix_that_ends_inside_a_character_is_refused_before_the_library_sees_it(
    prefix: str, right: str, merge: Callable[[str], Json], escaped: bool
) -> None:
    source = json.dumps(prefixed(prefix, right, merges=[merge(right)]), ensure_ascii=escaped, indent=1).encode()
    with (
        patch.object(tokenizers.Tokenizer, "from_buffer", side_effect=AssertionError),
        pytest.raises(InvalidDefinition, match=r"^file: field 'model': .* middle of a character"),
    ):
        load_reference(source, "file")


@pytest.mark.parametrize(
    "written",
    [
        '"continuing_subword_prefix": "#"',
        '"continuing_subword_prefix"\n:\t"\\u0023"',
        '"\\u0063ontinuing_subword_prefi\\u0078":"#"',
        '"continuing\\u005Fsubword\\u005fprefix":"#"',
    ],
)
def test_a_prefix_is_seen_however_it_is_written(written: str) -> None:
    assert json.loads(f"{{{written}}}") == {"continuing_subword_prefix": "#"}
    source = json.dumps(prefixed(None, "\u00e9")).replace('"continuing_subword_prefix": null', written)
    with (
        patch.object(tokenizers.Tokenizer, "from_buffer", side_effect=AssertionError),
        pytest.raises(InvalidDefinition, match="the middle of a character"),
    ):
        load_reference(source.encode(), "file")


@pytest.mark.parametrize("nothing", ["null", '""'])
@pytest.mark.parametrize("space", ["", " ", "\n\t "])
def test_a_file_without_a_prefix_is_not_read_twice(nothing: str, space: str) -> None:
    source = json.dumps(prefixed(None, "b", vocab={"a": 0, "b": 1, "ab": 2}))
    source = source.replace('"continuing_subword_prefix": null', f'"continuing_subword_prefix"{space}:{space}{nothing}')
    with patch("json.loads", side_effect=AssertionError):
        load_reference(source.encode(), "file")


BROKEN: dict[str, tuple[bytes | str | Json, str]] = {
    "nothing": (b"", "not JSON: the file is empty"),
    "truncated": (json.dumps(EVERYTHING)[:5000], "not JSON"),
    "more behind it": (json.dumps(EVERYTHING) + "}", "not JSON: Extra data"),
    "a list": ([], "field 'model': missing"),
    "a number": ("1", "field 'model': missing"),
    "a string": ('"model"', "field 'model': missing"),
    "null": ("null", "field 'model': missing"),
    "an empty object": ({}, "field 'model': missing"),
    "no model": (changed(drop("model")), "field 'model': missing"),
    "the model is null": (changed(put("model", None)), "field 'model': missing"),
    "the model is a list": (changed(put("model", [])), "field 'model': missing"),
    "the model is empty": (changed(put("model", {})), "field 'model'"),
    "an unknown model": (changed(put("model", "type", "Trigram")), "field 'model'"),
    "a merge of three": (changed(put("model", "merges", ["a b c"])), "field 'model'"),
    "a merge of what is unknown": (changed(put("model", "merges", [["\u0101", "\u0102"]])), "field 'model'"),
    "an unknown normalizer": (changed(put("normalizer", {"type": "NFX"})), "field 'normalizer'"),
    "an unknown pre-tokenizer": (changed(put("pre_tokenizer", {"type": "Splitt"})), "field 'pre_tokenizer'"),
    "a pre-tokenizer without pattern": (changed(put("pre_tokenizer", {"type": "Split"})), "field 'pre_tokenizer'"),
    "a pattern that is none": (
        changed(put("pre_tokenizer", "pretokenizers", 0, "pattern", {"Regex": "(a"})),
        "field 'pre_tokenizer'",
    ),
    "an unknown post-processor": (changed(put("post_processor", {"type": "X"})), "field 'post_processor'"),
    "an unknown decoder": (changed(put("decoder", {"type": "X"})), "field 'decoder'"),
    "truncation without length": (changed(put("truncation", {"stride": 1})), "field 'truncation'"),
    "padding without token": (changed(put("padding", {"pad_id": 1})), "field 'padding'"),
    "an added token without content": (changed(drop("added_tokens", 0, "content")), "field 'added_tokens'"),
    "added tokens by name": (changed(put("added_tokens", {"<a>": 1})), "field 'added_tokens'"),
    "added tokens that are null": (changed(put("added_tokens", None)), "field 'added_tokens'"),
    "two fields": (
        changed(lambda d: d.update(normalizer={"type": "NFX"}, decoder={"type": "X"})),
        "field 'normalizer'",
    ),
    "invalid UTF-8": (json.dumps(EVERYTHING).encode().replace(b'"th"', b'"\xfft"', 1), "not JSON: 'utf-8'"),
    "Latin-1": (json.dumps(EVERYTHING, ensure_ascii=False).encode("cp1252", "replace"), "not JSON: 'utf-8'"),
    "UTF-16": (json.dumps(EVERYTHING).encode("utf-16"), "not JSON: 'utf-8'"),
    "a byte order mark": (b"\xef\xbb\xbf" + json.dumps(EVERYTHING).encode(), "not JSON: Unexpected UTF-8 BOM"),
    "deeply nested": (b"[" * 100_000, "not JSON"),
    "an executable": (b"\x7fELF\x02\x01\x01\x00" + bytes(100), "not JSON"),
}


@pytest.mark.parametrize("broken", BROKEN)
def test_what_is_broken_is_named(tmp_path: pathlib.Path, broken: str) -> None:
    source, message = BROKEN[broken]
    data = source if isinstance(source, bytes) else (source if isinstance(source, str) else json.dumps(source)).encode()
    file = tmp_path / "my tokenizer.json"
    file.write_bytes(data)
    with pytest.raises(InvalidDefinition) as error:
        material.registry().load(file)
    assert str(error.value).startswith(f"{file}: {message}")
    assert isinstance(error.value, ValueError)
    assert error.value.__cause__ is None


class InPython:
    def normalize(self, normalized: NormalizedString) -> None:
        normalized.lowercase()

    def pre_tokenize(self, pretokenized: PreTokenizedString) -> None:
        pretokenized.split(lambda i, text: [text])


@pytest.mark.parametrize("stage", ["normalizer", "pre_tokenizer"])
def test_a_stage_written_in_python_is_named(stage: str) -> None:
    tokenizer = builders.byte_level(builders.split(builders.GPT4))
    component: Any = {"normalizer": normalizers.Normalizer, "pre_tokenizer": pre_tokenizers.PreTokenizer}[stage]
    setattr(tokenizer, stage, component.custom(InPython()))
    with pytest.raises(InvalidDefinition, match="cannot be serialised"):
        material.registry().load(tokenizer)
    with pytest.raises(InvalidDefinition, match=f"{stage}: cannot be serialised"):
        read(tokenizer, json.dumps(EVERYTHING).encode(), "here", DiskCache(None))


REASONS = {
    "lookbehind": "pre-tokenizer Split: lookbehind '(?<=' at position 0",
    "anchor": "pre-tokenizer Split: anchor '^' at position 0",
    "word boundary": "pre-tokenizer Split: word boundary '\\\\b' at position 0",
    "back-reference": "pre-tokenizer Split: back-reference '\\\\1' at position 3",
    "empty match": "pre-tokenizer Split: the pattern can match the empty string",
    "grapheme cluster": "pre-tokenizer Split: grapheme cluster '\\\\X' at position 0",
    "folding": "pre-tokenizer Split: a case-insensitive sequence matches the single character U+FB05",
    "folding of one": "pre-tokenizer Split: case-insensitive 'ß' may match other than one character",
    "Unigram of whole texts": "model Unigram: it may join any characters",
    "WordPiece of whole texts": "model WordPiece: it may join any characters",
    "merges that are ignored": "model BPE: with ignore_merges",
    "a begin that is not known": "pre-tokenizer Metaspace: where the text begins is not known",
    "fixed length": "pre-tokenizer FixedLength: not understood yet",
    "stripped": "no two characters are always parted",
    "replaced at the beginning": "normalizer Replace: anchor '^' at position 0",
    "dropout": "model BPE: dropout",
    "two literals that become one": "added tokens 3002 and 3003 are one and the same",
    "template that repeats": "post-processor TemplateProcessing: its template does not hold the text exactly once",
}


@pytest.mark.parametrize("name", zoo.UNSUPPORTED)
def test_what_is_not_understood_has_its_reason_and_works_all_the_same(name: str) -> None:
    assert name in REASONS, "what is the reason to be?"
    tok = material.registry().load(zoo.build(name))
    assert not tok.family.supported
    assert str(tok.family.reason).startswith(REASONS[name])
    assert tok.family.cuts("any text, 12 words").tolist() == []
    if name not in zoo.RANDOM:
        reference = material.reference_of(tokenizers.Tokenizer.from_str(zoo.build(name).to_str()))
        for text in ("The it's  \n12", "", "straße ſt Ω"):
            assert tok.encode(text).tolist() == reference(text)


@pytest.mark.parametrize("name", zoo.SUPPORTED)
def test_what_is_understood_has_no_reason(name: str) -> None:
    source = zoo.build(name).to_str().encode()
    assert definition(source).reason is None


def test_a_token_that_is_listed_twice_is_a_reason_whatever_was_loaded_before(tmp_path: pathlib.Path) -> None:
    once, twice = tmp_path / "once.json", tmp_path / "twice.json"
    once.write_text(json.dumps(EVERYTHING))
    twice.write_text(json.dumps(changed(CHANGES["a token that is listed twice"])))
    for order in ((once, twice), (twice, once)):
        registry = toktier.Registry(tmp_path / "cache")
        reasons = {file: registry.load(file).family.reason for file in order}
        assert reasons == {once: None, twice: "added token '<a b>' is listed twice"}


def test_the_stages_are_read_in_the_order_in_which_a_text_meets_them() -> None:
    found = definition(EVERYTHING)
    assert found.normalizers == (Form("NFC"),)
    assert [type(stage) for stage in found.pre_tokenizers] == [Splitter, Splitter, ByteLevel]
    assert found.model == "BPE"
    names = [stage.split("(")[0] for stage in found.stages]
    assert names == [
        *("normalizer NFC", "pre-tokenizer Split", "pre-tokenizer Split", "pre-tokenizer ByteLevel", "model BPE"),
        *("post-processor ByteLevel", "post-processor TemplateProcessing"),
    ]
    assert any(builders.GPT4 in stage for stage in found.stages)


def test_added_tokens_are_read_with_their_ids_and_flags() -> None:
    tokenizer = tokenizers.Tokenizer.from_str(json.dumps(EVERYTHING))
    literals = definition(EVERYTHING).literals
    assert [literal.content for literal in literals] == ["it", "<|im_start|>", "<|im_end|>", "<a b>", "<c>"]
    assert [literal.id for literal in literals] == [tokenizer.token_to_id(literal.content) for literal in literals]
    by_content = {literal.content: literal for literal in literals}
    assert by_content["<a b>"].lstrip
    assert by_content["<a b>"].normalized
    assert by_content["<c>"].special
    assert not by_content["<c>"].normalized
    assert by_content["it"].single_word


def test_a_normalizer_behind_itself_is_left_out_and_too_many_of_them_are_a_reason() -> None:
    def chain(*names: str) -> Definition:
        return definition(changed(put("normalizer", "normalizers", [{"type": name} for name in names])))

    twice = chain("NFC", "NFC", "Lowercase", "Lowercase", "NFC")
    assert twice.normalizers == (Form("NFC"), CharacterMap('{"type": "Lowercase"}'), Form("NFC"))
    assert twice.digest != chain("NFC", "Lowercase", "NFC").digest, "what is equal is not known of the rest"
    assert chain(*["NFC"] * 100).reason is None
    assert chain(*["NFC", "NFD"] * 4).reason is None
    assert chain(*["NFC", "NFD"] * 4, "NFC").reason == "more than 8 normalizers one after the other"


@pytest.mark.parametrize(
    ("behavior", "invert", "keeps"),
    [
        ("isolated", False, Pieces.ALL),
        ("isolated", True, Pieces.ALL),
        ("removed", False, Pieces.GAPS),
        ("removed", True, Pieces.MATCHES),
        ("merged_with_previous", False, Pieces.AFTER_GAPS),
        ("merged_with_previous", True, Pieces.BEFORE_GAPS),
        ("merged_with_next", False, Pieces.BEFORE_GAPS),
        ("merged_with_next", True, Pieces.AFTER_GAPS),
        ("contiguous", False, Pieces.RUNS),
        ("contiguous", True, Pieces.RUNS),
    ],
)
def test_a_split_keeps_what_its_behavior_says(behavior: str, invert: bool, keeps: Pieces) -> None:
    found = definition(
        builders.byte_level(builders.split("a+", behavior, invert), builders.split(builders.GPT4)).to_str()
    )
    assert found.reason is None
    assert found.splitters[0].keeps is keeps


def test_the_vocabulary_is_parsed_once() -> None:
    cache, data = DiskCache(None), json.dumps(EVERYTHING).encode()
    with patch.object(definition_module, "_vocabulary", wraps=definition_module._vocabulary) as parsed:
        first = read(load_reference(data, "file"), data, "file", cache)
        assert read(load_reference(data, "file"), data, "file", cache) == first
    assert parsed.call_count == 1
