"""Tables of the GPU engine: an encoder of pieces that has nothing else gives the ids of the reference's model."""

from __future__ import annotations

import functools
import random
import re
from collections.abc import Callable, Iterable

import numpy as np
import pytest
import tokenizers
from attrs import frozen
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import models, pre_tokenizers

from tests import encodings, material, zoo
from tests.builders import WORDS
from tests.components import COMPONENTS
from tests.gpu.piecewise import Encoder, code_point, pair, word
from toktier.engines.base import Inapplicable
from toktier.engines.reference import ReferenceEngine
from toktier.engines.tiktoken_reference import TiktokenReference
from toktier.families.bytelevel import byte_alphabet
from toktier.families.definition import read
from toktier.families.formats.ranked import of_encoding
from toktier.families.probing import DiskCache
from toktier.gpu.hashing import NONE, code_point_table, pair_table, word_table
from toktier.gpu.vocabulary import Vocabulary, vocabulary_of

CACHE = DiskCache(None)

KINDS = ["bytes alone", "ignore merges", "characters", "Llama 2", "unknown characters", "unknown characters, fused"]
"""Those of which every token is encoded, and the pieces that hypothesis finds."""

REWRITTEN = ["byte level first", "byte level twice", "ByteLevel that normalizes", "prefix space", "NFC literals"]
"""Those whose models see bytes for another reason, or of another text."""

OTHERS = [name for name in COMPONENTS if name not in KINDS and name.startswith(("BERT", "Meta", "Punct", "Gemma"))]
"""Other models on characters; what else is in ``tests.zoo`` has the same models behind other stages."""

PRODUCTION = [name for name in ("llama2", "minilm_bert_uncased", "llama3_1") if name in material.available()]


# What it is compared with


@frozen(eq=False)
class Case:
    """A model and its tables."""

    tables: Vocabulary
    tokens: list[bytes]
    expected: Callable[[bytes], list[int]]

    def check(self, pieces: Iterable[bytes]) -> None:
        encoder = Encoder(self.tables)
        for piece in pieces:
            assert encoder.encode(piece) == self.expected(piece), piece

    def pieces(self, count: int, seed: str) -> list[bytes]:
        """Tokens, words and strange characters side by side."""
        source = random.Random(seed)
        strange = [c.encode() for c in "éß中\u0301\u2581 #\0🫠👍\ue000"]
        pool = [*source.choices(self.tokens, k=200), *(w.encode() for w in [*WORDS.split(), *WORDS]), *strange]
        return [b"".join(source.choices(pool, k=source.randint(1, 8))) for _ in range(count)]


def tables_of(tokenizer: tokenizers.Tokenizer, source: bytes | None = None) -> tuple[Vocabulary, bool]:
    definition = read(tokenizer, source or tokenizer.to_str().encode(), "test", CACHE)
    return vocabulary_of(definition, ReferenceEngine(tokenizer), CACHE), definition.byte_level


def case_of(tokenizer: tokenizers.Tokenizer, source: bytes | None = None) -> Case:
    tables, of_bytes = tables_of(tokenizer, source)
    model = tokenizers.Tokenizer(tokenizer.model)
    characters = {byte: character for character, byte in byte_alphabet().items()}
    tokens = [token for token in sorted(model.get_vocab()) if token]  # told in an order of each process
    if not of_bytes:
        return Case(tables, [token.encode() for token in tokens], lambda piece: model.encode(piece.decode()).ids)
    alphabet = byte_alphabet()
    return Case(
        tables,
        [bytes(alphabet[c] for c in token) for token in tokens if alphabet.keys() >= set(token)],
        lambda piece: model.encode("".join(characters[byte] for byte in piece)).ids,
    )


@functools.cache
def case(name: str) -> Case:
    if name == "tiktoken":
        encoding = encodings.encoding(r"\w+|\W")
        ranked = of_encoding(encoding)
        reference = TiktokenReference(encoding, ranked.literals)
        tables = vocabulary_of(ranked.definition("0" * 64), reference, CACHE)
        return Case(tables, list(ranked.ranks), encoding._encode_single_piece)
    if name == "WordLevel":
        words = {text: i for i, text in enumerate(dict.fromkeys(["<unk>", *WORDS.split()]))}
        return case_of(tokenizers.Tokenizer(models.WordLevel(words, unk_token="<unk>")))
    source = zoo.build(name).to_str().encode() if name in zoo.SUPPORTED else material.definition(name)
    return case_of(tokenizers.Tokenizer.from_buffer(source), source)


@pytest.mark.parametrize("name", [*REWRITTEN, *OTHERS])
def test_pieces_have_the_ids_of_the_model(name: str) -> None:
    case(name).check(case(name).pieces(100, name))


@pytest.mark.parametrize("name", ["toktier-mini", "tiktoken", "WordLevel", "BERT", *KINDS])
def test_every_token_and_many_pieces_have_the_ids_of_the_model(name: str) -> None:
    case(name).check(case(name).tokens)
    case(name).check(case(name).pieces(1_000, name))


@pytest.mark.parametrize("name", PRODUCTION)
def test_real_pieces_have_the_ids_of_production_models(name: str) -> None:
    source = random.Random(name)
    texts = "".join(text[:2_000] for text in material.corpus())
    words = sorted(set(re.findall(r"\s?\w+|\s?[^\w\s]+|\s+", texts)))
    case(name).check(text.encode()[:300] for text in source.sample(words, 1_500))
    case(name).check(source.sample(case(name).tokens, 1_000))
    case(name).check(case(name).pieces(500, name))


@settings(max_examples=300)
@given(
    st.sampled_from(["toktier-mini", "tiktoken", "WordLevel", "BERT", *KINDS]),
    st.text(st.characters(exclude_categories=["Cs"]) | st.sampled_from(WORDS), min_size=1, max_size=150),
)
def test_any_piece_has_the_ids_of_the_model(name: str, piece: str) -> None:
    case(name).check([piece.encode()])


@settings(max_examples=100)
@given(st.sampled_from(["toktier-mini", "tiktoken", "bytes alone", "ignore merges"]), st.binary(min_size=1))
def test_any_bytes_have_the_ids_of_the_model(name: str, piece: bytes) -> None:
    case(name).check([piece])


@pytest.mark.parametrize(("ignore_merges", "expected"), [(True, [4]), (False, [3, 2])])
def test_a_token_that_no_merge_reaches_is_one_only_if_merges_are_ignored(
    ignore_merges: bool, expected: list[int]
) -> None:
    vocabulary = {"a": 0, "b": 1, "c": 2, "ab": 3, "abc": 4, "bc": 5}
    model = models.BPE(vocabulary, [("a", "b"), ("b", "c"), ("a", "bc")], ignore_merges=ignore_merges)
    one = case_of(tokenizers.Tokenizer(model))
    assert Encoder(one.tables).encode(b"abc") == expected == one.expected(b"abc")
    one.check([b"abcabc", b"axbc", b"xx", b"bc"])


def test_a_word_that_begins_with_the_prefix_is_one_at_the_begin() -> None:
    vocabulary = {"[UNK]": 0, "a": 1, "##a": 2, "##": 3, "####": 4, "#": 5, "##é": 6}
    model = models.WordPiece(vocabulary, unk_token="[UNK]", max_input_chars_per_word=6)
    one = case_of(tokenizers.Tokenizer(model))
    one.check([b"##a", b"####a", b"a##", b"a##a", b"aaaaaa", b"aaaaaaa", "aéaé".encode(), "éa".encode(), b"#"])
    assert Encoder(one.tables).encode(b"a##a") == [1, 4, 2]


def test_unknown_tokens_and_bytes_take_part_in_merges() -> None:
    vocabulary = {"?": 0, "a": 1, "a?": 2, "??": 3}
    for fuse in (True, False):
        model = models.BPE(vocabulary, [("?", "?"), ("a", "?")], unk_token="?", fuse_unk=fuse)
        case_of(tokenizers.Tokenizer(model)).check(text.encode() for text in ("axy", "xay", "xyz", "a?x", "x"))
    tokens = ["a", "a<0xC3>", *(f"<0x{byte:02X}>" for byte in range(256))]
    model = models.BPE({token: i for i, token in enumerate(tokens)}, [("a", "<0xC3>")], byte_fallback=True)
    one = case_of(tokenizers.Tokenizer(model))
    one.check(["aéa".encode(), "éé".encode()])
    assert Encoder(one.tables).encode("aé".encode()) == [1, 2 + 0xA9]


def of_bytes(model: models.Model) -> tokenizers.Tokenizer:
    tokenizer = tokenizers.Tokenizer(model)
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    return tokenizer


def bare(model: models.Model) -> tokenizers.Tokenizer:
    return tokenizers.Tokenizer(model)


REFUSED: dict[str, Callable[[], tokenizers.Tokenizer]] = {
    "leaves out merges at random": lambda: bare(models.BPE({"a": 0}, [], dropout=0.1)),
    "marks tokens inside": lambda: bare(models.BPE({"a": 0, "a#": 1}, [], end_of_word_suffix="#")),
    "two tokens of the model have one id": lambda: bare(models.BPE({"a": 0, "b": 0}, [])),
    "is empty": lambda: bare(models.BPE({"a": 0, "": 1}, [("a", "")])),
    "byte 0x00 is no token": lambda: of_bytes(models.BPE({"a": 0}, [])),
    "byte 0x01 is no token": lambda: bare(models.BPE({"a": 0, "<0x00>": 1}, [], byte_fallback=True)),
    "'<unk>' is no token": lambda: bare(models.BPE({"a": 0}, [], unk_token="<unk>")),
    r"'\[UNK\]' is no token": lambda: bare(models.WordPiece({"a": 0}, unk_token="[UNK]")),
    "'u' is no token": lambda: bare(models.WordLevel({"a": 0}, unk_token="u")),
    "WordPiece of bytes": lambda: of_bytes(models.WordPiece({"a": 0}, unk_token="a")),
}


@pytest.mark.parametrize("reason", REFUSED)
def test_what_the_tables_do_not_describe_is_refused(reason: str) -> None:
    with pytest.raises(Inapplicable, match=reason):
        tables_of(REFUSED[reason]())


# Hashing


@pytest.mark.parametrize("count", [0, 1, 2, 3, 1_000, 1 << 14])
def test_what_is_in_a_table_is_found_and_nothing_else(count: int) -> None:
    source = random.Random(count)
    keys = list({(source.choice([7, source.getrandbits(31)]), source.getrandbits(32)) for _ in range(count)})
    present = set(keys)
    left, right = np.array(keys, np.uint32).reshape(-1, 2).T
    table = pair_table(left, right, np.arange(len(keys)), np.arange(len(keys)) * 2)
    assert len(table) >= 2 * len(keys) > len(table) // 2 - 2
    assert [pair(table, *key) for key in keys] == [(i, 2 * i) for i in range(len(keys))]
    assert not any(pair(table, left ^ 1, right) for left, right in keys if (left ^ 1, right) not in present)
    points = source.sample(range(0x110000), 2 * count)
    table = code_point_table(points[:count], range(count))
    assert [code_point(table, point) for point in points] == [*range(count), *([None] * count)]


def test_words_are_found_by_their_kind() -> None:
    source = random.Random(0)
    words = list({source.randbytes(source.choice([1, 2, 3, 40])) for _ in range(3_000)})
    begin, behind = ({text: source.getrandbits(32) for text in some} for some in (words[:2_000], words[1_000:-100]))
    table, pool = word_table(begin, behind)
    assert [word(table, pool.tobytes(), text) for text in words] == [begin.get(text) for text in words]
    found = [word(table, pool.tobytes(), text, continues=True) for text in words]
    assert found == [behind.get(text) for text in words]


def test_a_search_goes_on_at_the_first_slot() -> None:
    homes = {point: (point * 0x9E3779B97F4A7C15 & 2**64 - 1) >> 60 for point in range(1_000)}
    points = [point for point, home in homes.items() if home == 15][:8]
    table = code_point_table(points, range(8))
    assert table.shape == (16, 2)
    assert [slot for slot in range(16) if table[slot, 0] != NONE] == [0, 1, 2, 3, 4, 5, 6, 15]
    assert [code_point(table, point) for point in points] == [*range(8)]
    assert code_point(table, next(point for point in homes if homes[point] == 15 and point not in points)) is None
