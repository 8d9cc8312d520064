"""Tokenizers that are not a ``tokenizer.json``: each loads, is one object for one content, or is refused in words."""

from __future__ import annotations

import base64
import fnmatch
import json
import pathlib
from collections.abc import Callable, Mapping
from typing import Any

import pytest
import tiktoken
import tiktoken.load as tiktoken_load

import toktier
from tests import encodings, zoo
from tests.encodings import BYTES, SPECIAL, ids, rank_file, ranks
from toktier import InvalidDefinition, Registry, UnknownTokenizer
from toktier.families.formats.patterns import PATTERNS
from toktier.families.formats.tekken import UNNAMED

TEXT = "It's <|im_start|>12 straße\n\n  ½ <|endoftext|>中文 \t"
SENTENCEPIECE = b"\n\x0e\n\x05<unk>\x15\x00\x00\x00\x00\x18\x02\n\x0c\n\x03<s>"


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    return tmp_path_factory.mktemp("cache")


@pytest.fixture
def registry(cache: pathlib.Path) -> Registry:
    """A new one, which has no tokenizer yet."""
    return Registry(cache)


def written(file: pathlib.Path, content: bytes | str | Mapping[str, Any]) -> pathlib.Path:
    file.parent.mkdir(exist_ok=True, parents=True)
    data = content if isinstance(content, (bytes, str)) else json.dumps(content)
    file.write_bytes(data.encode() if isinstance(data, str) else data)
    return file


# tiktoken.Encoding


@pytest.mark.parametrize("name", PATTERNS)
def test_an_encoding_is_loaded_and_supported_behind_every_well_known_pattern(name: str, registry: Registry) -> None:
    encoding = encodings.encoding(PATTERNS[name])
    tok = registry.load(encoding)
    assert tok.family.supported, tok.family.reason
    assert tok.encode(TEXT).tolist() == ids(encoding, TEXT)


def test_what_becomes_of_the_encoding_plays_no_part(registry: Registry) -> None:
    encoding = encodings.encoding(PATTERNS["qwen"])
    before = ids(encoding, TEXT)
    tok = registry.load(encoding)
    encoding._special_tokens["12"] = 6000
    encoding._mergeable_ranks.clear()
    encoding.__dict__.pop("special_tokens_set", None)
    assert tok.encode(TEXT).tolist() == before


def changed(**changes: Any) -> tiktoken.Encoding:
    parts: dict[str, Any] = {"pat_str": PATTERNS["qwen"], "mergeable_ranks": ranks(), "special_tokens": SPECIAL}
    return tiktoken.Encoding("x", **(parts | changes))


def test_one_content_is_one_tokenizer_from_wherever_it_comes(tmp_path: pathlib.Path, registry: Registry) -> None:
    file = written(tmp_path / "x.tiktoken", rank_file(ranks()))
    shuffled = dict(sorted(ranks().items()))
    backwards = dict(reversed(SPECIAL.items()))
    loaded = [
        registry.load(changed()),
        registry.load(changed(mergeable_ranks=shuffled, special_tokens=backwards)),
        registry.load(file, pattern="qwen", special_tokens=SPECIAL),
        registry.load(file, pattern=PATTERNS["qwen"], special_tokens=backwards),
        registry.load(written(tmp_path / "y", rank_file(shuffled)), pattern="qwen", special_tokens=SPECIAL),
        registry.load(written(tmp_path / "z", rank_file(ranks()).replace(b"\n", b"\r\n\n")), pattern="qwen",
                      special_tokens=SPECIAL),
    ]  # fmt: skip
    assert len({*map(id, loaded)}) == 1
    assert Registry(None).load(changed()).family.digest == loaded[0].family.digest


CHANGES: dict[str, Callable[[], tiktoken.Encoding]] = {
    "pattern": lambda: changed(pat_str=PATTERNS["llama3"]),
    "special token": lambda: changed(special_tokens=SPECIAL | {"<|new|>": 6000}),
    "id of a special token": lambda: changed(special_tokens=SPECIAL | {"<|im_end|>": 6000}),
    "name of a special token": lambda: changed(special_tokens={name.upper(): id for name, id in SPECIAL.items()}),
    "no special token": lambda: changed(special_tokens={}),
    "rank": lambda: changed(mergeable_ranks=ranks() | {b"the": 7000}),
    "token": lambda: changed(mergeable_ranks=ranks() | {b"the \xff": 7000}),
}


@pytest.mark.parametrize("change", CHANGES)
def test_whatever_changes_is_another_tokenizer(change: str, registry: Registry) -> None:
    other = CHANGES[change]()
    one, two = registry.load(changed()), registry.load(other)
    assert one.family.digest != two.family.digest
    assert two.encode(TEXT).tolist() == ids(other, TEXT)


def test_two_tokenizers_that_differ_in_two_bytes_and_nothing_else_are_two(registry: Registry) -> None:
    """The digest must not run tokens and ranks together."""
    one = registry.load(changed(mergeable_ranks=BYTES | {b"ab": 256, b"c": 99, b"\x63\x64": 300}))
    two = registry.load(changed(mergeable_ranks=BYTES | {b"a": 97, b"bc": 256, b"\x63": 99, b"cd": 300}))
    assert one.family.digest != two.family.digest


MALFORMED: dict[str, tuple[Callable[[], Any], str]] = {
    "empty special token": (lambda: changed(special_tokens={"": 5000}), "special token '' is empty"),
    "rank of None": (lambda: _with_attributes(_mergeable_ranks={b"a": None}), "token b'a': its rank None is not one"),
    "token of text": (lambda: _with_attributes(_mergeable_ranks={"a": 1}), "token 'a'"),
    "no rank": (lambda: _with_attributes(_mergeable_ranks={}), "no token has a rank"),
    "two of one rank": (lambda: _with_attributes(_mergeable_ranks={b"a": 1, b"b": 1}), "both have the rank 1"),
    "negative id": (lambda: _with_attributes(_special_tokens={"<s>": -1}), "special token '<s>': its id -1 is not one"),
    "id too large": (lambda: _with_attributes(_special_tokens={"<s>": 2**32 - 1}), "its id 4294967295 is not one"),
    "pattern": (lambda: _with_attributes(_pat_str="(a"), r"pattern '\(a': Parsing error"),
    "surrogate": (lambda: _with_attributes(_special_tokens={"\ud800": 6000}), "tiktoken refuses it"),
}


def _with_attributes(**attributes: Any) -> tiktoken.Encoding:
    encoding = changed()
    for name, value in attributes.items():
        setattr(encoding, name, value)
    return encoding


@pytest.mark.parametrize("case", MALFORMED)
def test_an_encoding_that_is_malformed_is_refused_in_words(case: str, registry: Registry) -> None:
    make, message = MALFORMED[case]
    with pytest.raises(InvalidDefinition, match=message) as error:
        registry.load(make())
    assert "tiktoken.Encoding" in str(error.value)


# Rank files


@pytest.mark.parametrize("name", ["x.tiktoken", "tokenizer.model", "tiktoken.model", "größe ½"])
def test_a_rank_file_loads_with_a_pattern_whatever_its_name(
    tmp_path: pathlib.Path, registry: Registry, name: str
) -> None:
    file = written(tmp_path / name, rank_file(ranks()))
    tok = registry.load(file, pattern="cl100k_base", special_tokens=SPECIAL)
    assert tok.encode(TEXT).tolist() == ids(encodings.encoding(PATTERNS["cl100k_base"]), TEXT)
    assert toktier.Registry(None).load(str(file), pattern="cl100k_base").encode("<|im_start|>").size > 1


def test_without_a_pattern_the_message_lists_the_names(tmp_path: pathlib.Path, registry: Registry) -> None:
    file = written(tmp_path / "x.tiktoken", rank_file(ranks()))
    for source in (file, tmp_path):
        with pytest.raises(InvalidDefinition, match=r"x\.tiktoken: .*give pattern=.*cl100k_base, .*kimi"):
            registry.load(source)


@pytest.mark.parametrize("pattern", ["cl100k", "o200k-base", "", "gpt4"])
def test_a_name_that_no_pattern_has_is_not_taken_for_a_pattern(
    tmp_path: pathlib.Path, registry: Registry, pattern: str
) -> None:
    file = written(tmp_path / "x.tiktoken", rank_file(ranks()))
    with pytest.raises(InvalidDefinition, match=rf"no pattern '{pattern}'.*one of gpt2"):
        registry.load(file, pattern=pattern)


LINES: dict[str, tuple[bytes, str]] = {
    "no rank": (b"IQ== 0\nIg==\n", r"line 2: b'Ig==' is not a token in base64 and its rank"),
    "three parts": (b"IQ== 0\nIg== 1 2\n", "line 2"),
    "a rank that is none": (b"IQ== 0\nIg== -1\n", "line 2"),
    "not base64": (b"IQ== 0\nI!== 1\n", r"line 2: b'I!==' is not base64"),
    "padding": (b"IQ== 0\n\nIg 1\n", r"line 3: b'Ig' is not base64"),
    "a token twice": (b"IQ== 0\nIg== 1\nIQ== 2\n", r"line 3: token b'!' has a rank already, in line 1"),
    "a rank twice": (b"IQ== 0\nIg== 1\nIw== 1\n", r"line 3: rank 1 is taken already, in line 2"),
    "empty": (b"", "no token has a rank"),
    "too large": (b"IQ== 4294967295\n", "its rank 4294967295 is not one"),
}


@pytest.mark.parametrize("case", LINES)
def test_a_rank_file_that_is_malformed_is_refused_with_its_line(
    tmp_path: pathlib.Path, registry: Registry, case: str
) -> None:
    data, message = LINES[case]
    with pytest.raises(InvalidDefinition, match=rf"x\.tiktoken: .*{message}"):
        registry.load(written(tmp_path / "x.tiktoken", data), pattern="gpt2")


def test_a_place_of_no_bytes_is_a_token_as_for_the_library(tmp_path: pathlib.Path, registry: Registry) -> None:
    """The file of Whisper has one."""
    file = written(tmp_path / "x.tiktoken", rank_file(BYTES) + b"= 256\nYWI= 257\n")
    assert tiktoken_load.load_tiktoken_bpe(str(file))[b""] == 256
    assert registry.load(file, pattern="whisper").encode("abc").tolist() == [257, 99]


def test_special_tokens_must_be_a_mapping(tmp_path: pathlib.Path, registry: Registry) -> None:
    file = written(tmp_path / "x.tiktoken", rank_file(BYTES))
    given: Any = ["<s>"]
    with pytest.raises(TypeError, match="special_tokens must map texts to ids"):
        registry.load(file, pattern="gpt2", special_tokens=given)
    given = {"<s>": "256"}
    with pytest.raises(InvalidDefinition, match="special token '<s>': its id '256' is not one"):
        registry.load(file, pattern="gpt2", special_tokens=given)


def test_special_tokens_beside_a_rank_file_count_unless_others_are_given(
    tmp_path: pathlib.Path, registry: Registry
) -> None:
    written(tmp_path / "tiktoken.model", rank_file(ranks()))
    decoder = {str(id): {"content": content, "special": True} for content, id in SPECIAL.items()}
    written(tmp_path / "tokenizer_config.json", {"added_tokens_decoder": decoder})
    assert registry.load(tmp_path, pattern="kimi").encode("<|im_end|>").tolist() == [5003]
    tok = registry.load(tmp_path, pattern="kimi", special_tokens={"<|im_start|>": 9000})
    assert tok.encode("<|im_start|>").tolist() == [9000]
    assert tok.encode("<|im_end|>").size > 1
    assert registry.load(tmp_path / "tiktoken.model", pattern="kimi").encode("<|im_end|>").size > 1, "the file alone"
    written(tmp_path / "tokenizer_config.json", {"added_tokens_decoder": {"a": 1}})
    with pytest.raises(InvalidDefinition, match=r"tokenizer_config\.json: field 'added_tokens_decoder'"):
        registry.load(tmp_path, pattern="kimi")


def test_what_says_by_itself_how_it_splits_takes_no_keywords(tmp_path: pathlib.Path, registry: Registry) -> None:
    definition = written(tmp_path / "tokenizer.json", zoo.build("gpt4").to_str())
    tekken = written(tmp_path / "mine.json", encodings.tekken())
    for source in (definition, tmp_path, tekken, "toktier-mini", zoo.build("gpt4"), changed()):
        with pytest.raises(TypeError, match="pattern= is for rank files"):
            registry.load(source, pattern="gpt2")
        with pytest.raises(TypeError, match="special_tokens= is for rank files"):
            registry.load(source, special_tokens={})


# tekken.json


def expected_of_tekken(definition: Mapping[str, Any]) -> tiktoken.Encoding:
    """What mistral_common makes of the file, but for the special tokens, which it puts between texts."""
    config = definition["config"]
    special = config["default_num_special_tokens"]
    listed = definition.get("special_tokens") or [{"token_str": t, "rank": i} for i, t in enumerate(UNNAMED)]
    names = {token["token_str"]: token["rank"] for token in listed}
    names |= {f"<SPECIAL_{i}>": i for i in range(len(names), special)}
    kept = definition["vocab"][: config["default_vocab_size"] - special]
    tokens = {base64.b64decode(token["token_bytes"]): token["rank"] + special for token in kept}
    return tiktoken.Encoding("t", pat_str=config["pattern"], mergeable_ranks=tokens, special_tokens=names)


MANY = [{"rank": i, "token_str": name, "is_control": True} for i, name in enumerate(["<unk>", "<s>", "[THINK]"])]


@pytest.mark.parametrize("file", [encodings.tekken(), encodings.tekken(special_tokens=MANY)], ids=["old", "new"])
def test_a_tekken_file_has_its_special_tokens_first(
    tmp_path: pathlib.Path, registry: Registry, file: dict[str, Any]
) -> None:
    tok = registry.load(written(tmp_path / "tekken.json", file))
    expected = expected_of_tekken(file)
    assert tok.family.supported
    for text in (TEXT, "<s>[INST] Hi[/INST]<SPECIAL_29>[THINK]<unk>", "the quick\nbrown", ""):
        assert tok.encode(text).tolist() == ids(expected, text)
    assert max(tok.encode("".join(map(chr, range(0x3000)))).tolist()) < 2_030, "the vocabulary is cut"
    assert registry.load(expected) is tok


FIELDS: dict[str, tuple[Callable[[dict[str, Any]], object], str]] = {
    "no config": (lambda file: file.pop("config"), "field 'config': missing"),
    "no pattern": (lambda file: file["config"].pop("pattern"), "field 'pattern': missing"),
    "a pattern of numbers": (lambda file: file["config"].update(pattern=3), "field 'pattern': int, not str"),
    "too few tokens": (lambda file: file["config"].update(default_vocab_size=10**6), "'default_vocab_size'"),
    "nothing left": (lambda file: file["config"].update(default_vocab_size=30), "'default_vocab_size'"),
    "order": (lambda file: file["vocab"].reverse(), r"field 'vocab\[0\]': has the rank"),
    "a token twice": (lambda file: file["vocab"][9].update(token_bytes="AA=="), r"'vocab\[9\]'.*is vocab\[0\]"),
    "base64": (lambda file: file["vocab"][9].update(token_bytes="A"), r"'vocab\[9\].token_bytes': 'A' is not base64"),
    "a special token twice": (lambda file: file.update(special_tokens=[MANY[0]] * 2), r"special_tokens\[1\].*twice"),
    "a special token too many": (
        lambda file: file.update(special_tokens=[MANY[0] | {"rank": 30}]),
        r"special_tokens\[0\].*with the rank 30 is not less than default_num_special_tokens",
    ),
    "special tokens of another kind": (lambda file: file.update(special_tokens={}), "'special_tokens': not a list"),
}


@pytest.mark.parametrize("case", FIELDS)
def test_a_tekken_file_that_is_malformed_is_refused_with_its_field(
    tmp_path: pathlib.Path, registry: Registry, case: str
) -> None:
    change, message = FIELDS[case]
    file = encodings.tekken()
    change(file)
    with pytest.raises(InvalidDefinition, match=rf"tekken\.json: .*{message}"):
        registry.load(written(tmp_path / "tekken.json", file))


def test_a_tekken_file_that_is_no_json_is_refused(tmp_path: pathlib.Path, registry: Registry) -> None:
    with pytest.raises(InvalidDefinition, match=r"tekken\.json: not JSON"):
        registry.load(written(tmp_path / "tekken.json", "{"))


# Directories and repositories


def test_of_a_repository_all_forms_are_fetched(
    tmp_path: pathlib.Path, registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub = pytest.importorskip("huggingface_hub")
    written(tmp_path / "tiktoken.model", rank_file(ranks()))
    fetched: list[str] = []

    def snapshot_download(name: str, allow_patterns: list[str]) -> str:
        fetched.extend(allow_patterns)
        return str(tmp_path)

    monkeypatch.setattr(hub, "snapshot_download", snapshot_download)
    assert registry.load("owner/name", pattern="kimi").family.supported
    names = (
        "tokenizer.json",
        "tekken.json",
        "x.tiktoken",
        "tiktoken.model",
        "tokenizer.model",
        "vocab.json",
        "merges.txt",
    )
    for name in (*names, "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json", "config.json"):
        assert any(fnmatch.fnmatch(name, pattern) for pattern in fetched), name


def test_of_a_directory_the_first_form_counts(tmp_path: pathlib.Path, registry: Registry) -> None:
    tokenizer = json.loads(zoo.build("gpt4").to_str())
    merges = "\n".join(" ".join(merge) for merge in tokenizer["model"]["merges"])
    forms: list[tuple[dict[str, bytes | str], dict[str, Any]]] = [
        ({"vocab.json": json.dumps(tokenizer["model"]["vocab"]), "merges.txt": merges}, {}),
        ({"tokenizer.model": SENTENCEPIECE, "x.tiktoken": rank_file(ranks())}, {"pattern": "gpt2"}),
        ({"tekken.json": json.dumps(encodings.tekken())}, {}),
        ({"tokenizer.json": zoo.build("NFC").to_str()}, {}),
    ]
    digests = set()
    for files, keywords in forms:
        for name, content in files.items():
            written(tmp_path / name, content)
        tok = registry.load(tmp_path, **keywords)
        name = [*files][-1] if "merges.txt" not in files else "vocab.json"
        assert registry.load(tmp_path / name, **keywords).family.digest == tok.family.digest
        digests.add(tok.family.digest)
    assert len(digests) == len(forms)


def test_several_rank_files_are_not_guessed_among(tmp_path: pathlib.Path, registry: Registry) -> None:
    for name in ("a.tiktoken", "b.tiktoken"):
        written(tmp_path / name, rank_file(ranks()))
    with pytest.raises(UnknownTokenizer, match=r"several rank files: load one of a\.tiktoken, b\.tiktoken by its path"):
        registry.load(tmp_path, pattern="gpt2")


@pytest.mark.parametrize("path", ["", "tokenizer.model"])
def test_a_model_of_sentencepiece_says_how_to_convert_it(tmp_path: pathlib.Path, registry: Registry, path: str) -> None:
    written(tmp_path / "tokenizer.model", SENTENCEPIECE)
    with pytest.raises(InvalidDefinition, match=r"tokenizer\.model: a model of SentencePiece.*save_pretrained"):
        registry.load(tmp_path / path)


def test_a_directory_with_nothing_of_all_that_says_what_was_looked_for(
    tmp_path: pathlib.Path, registry: Registry
) -> None:
    written(tmp_path / "vocab.json", "{}")
    with pytest.raises(
        UnknownTokenizer, match=r"no tokenizer\.json, no tekken\.json, no rank file .*\*\.tiktoken.*merges\.txt"
    ):
        registry.load(tmp_path)
