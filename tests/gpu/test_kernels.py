"""The kernels, compiled as C++ and run on the processor, give the ids of the reference."""

from __future__ import annotations

import re
from pathlib import Path
from types import ModuleType

import pytest

import toktier
from tests import material, zoo
from tests.gpu import comparing, host
from tests.gpu.comparing import Comparison, adversarial, changed_kernels, engine_of, small_kernels, thorough
from tests.public.families import FAMILIES, STAND_IN, load
from toktier.engines.base import Inapplicable
from toktier.families.stages import Pieces
from toktier.gpu import encoder, matcher, tables
from toktier.gpu.source import FOLDER, whole
from toktier.gpu.vocabulary import Model

pytestmark = pytest.mark.skipif(not host.available(), reason="there is no C++ compiler")

REFUSED = {
    "words, Metaspace": "no Unigram",
    "words, Metaspace first": "behind a splitter",
    "digits, Metaspace": "behind a splitter",
    "Metaspace and literals": "rewrites text beside",
    "split, prefix space": "behind a splitter",
    "Metaspace twice": "behind a splitter",
    "UnicodeScripts": "ScriptSplitter",
    "UnicodeScripts, words": "ScriptSplitter",
    "words, UnicodeScripts": "ScriptSplitter",
    "byte level first": "ByteLevel",
    "byte level twice": "ByteLevel",
    "ByteLevel that normalizes": "ByteLevel",
    "Strip, left": "Trim",
    "Strip, right": "Trim",
    "Strip": "Trim",
}
"""Definitions that the device does not serve, and a part of the reason."""

SERVED = [name for name in zoo.SUPPORTED if name not in REFUSED]

PRODUCTION = [name for name in ("qwen3", "llama2", "minilm_bert_uncased") if name in material.available()]

SMALLEST = [
    # An added token in a segment that grows too long only when it is rewritten.
    ("prefix and literals", "   u v w x y  ▁"),
    # Nothing that comes of a character has any bytes.
    ("spaces deleted", " b b"),
]

FAULTS = {
    "the shortest match in place of the first": ("dividing.cuh", "      found = at;\n", "      return at;\n"),
    "a merge that the pair before it does not learn of": ("encoding.cuh", "lanes() - 1 && left != at", "lanes()"),
}
"""Rules of the kernels, each broken in one place."""


def compared(name: str, tok: toktier.Tokenizer, texts: list[str], seed: int) -> Comparison:
    """Some texts, with small limits."""
    comparison = Comparison()
    with small_kernels():
        comparison.run(engine_of(tok, comparing.small_device(seed)), tok, texts)
    return comparison


@pytest.mark.parametrize("name", SERVED)
def test_every_kind_of_definition(name: str) -> None:
    tok, seed = material.registry().load(zoo.build(name)), SERVED.index(name)
    found = compared(name, tok, [*adversarial(tok, 120, seed)], seed % 4)
    assert found.wrong == []
    assert found.texts > 120


@pytest.mark.parametrize(("name", "text"), SMALLEST)
def test_smallest_texts_that_were_wrong(name: str, text: str) -> None:
    assert compared(name, material.registry().load(zoo.build(name)), [text], 0).wrong == []


@pytest.mark.parametrize("name", ["toktier-mini", *PRODUCTION])
def test_tokenizers_as_they_are_used(name: str) -> None:
    tok = material.load(name)
    comparison = Comparison()
    comparison.run(engine_of(tok, comparing.device(1)), tok, [*adversarial(tok, 300, 1), *thorough(tok, 1)])
    comparison.run(engine_of(tok, comparing.device()), tok, [text[:4000] for text in material.corpus()[::5]])
    assert comparison.wrong == []


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_refused_says_why(name: str) -> None:
    with pytest.raises(Inapplicable, match=REFUSED[name]):
        engine_of(material.registry().load(zoo.build(name)), comparing.device())


@pytest.mark.parametrize("family", [family.name for family in FAMILIES])
def test_public_families(family: str) -> None:
    tok = load(family, STAND_IN)
    assert compared(family, tok, [*adversarial(tok, 40, 2)], 1).wrong == []


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_found(fault: str, tmp_path: Path) -> None:
    tok = material.registry().load(zoo.build("gpt4"))
    comparison = Comparison()
    with small_kernels():
        comparison.run(engine_of(tok, changed_kernels(tmp_path, *FAULTS[fault])), tok, adversarial(tok, 120, 0))
    assert comparison.wrong


def test_no_family_is_known_by_name() -> None:
    names = {word.lower() for family in FAMILIES for word in re.findall("[A-Za-z]{3,}", family.name)}
    names -= {"unigram", "bytes", "cased", "uncased", "mon"}
    assert {"llama", "qwen", "gemma", "bert"} <= names
    for path in [*FOLDER.iterdir(), *FOLDER.parent.glob("*.py")]:
        words = set(re.findall("[a-z]{3,}", path.read_text().lower()))
        assert not words & names, path.name


CONSTANTS = [
    *((encoder, name) for name in ("TILE", "THREADS", "WARP", "SCANNERS")),
    *((tables, name) for name in ("ODD", "BEGINS", "PAIRED", "PREFIX_UNLESS_THERE", "PREFIX_DOCUMENTS", "DEFERRED")),
    *((matcher, name) for name in ("ENDS", "DEAD", "START")),
]
"""Numbers that the kernels have too, and where they are."""


@pytest.mark.parametrize(("module", "name"), CONSTANTS, ids=[name for _, name in CONSTANTS])
def test_kernels_have_the_same_numbers(module: ModuleType, name: str) -> None:
    (value,) = re.findall(rf"const u\d+ {name} = (\w+?)u?;", whole())
    assert int(value, 0) == getattr(module, name)


@pytest.mark.parametrize(
    ("enumeration", "names"),
    [
        ("Keeps", [kept.name for kept in Pieces]),
        ("Model", [model.name for model in Model]),
        (
            "Counter",
            ["SIZE", "DOCUMENTS", "TEXT_AT", "REWRITTEN", "DEFERRALS", "MEDIUMS", "LENGTHIES", "TOKENS", "OVERFLOWS"],
        ),
    ],
)
def test_kernels_count_in_the_same_order(enumeration: str, names: list[str]) -> None:
    (members,) = re.findall(rf"enum {enumeration} {{ (.*?) }};", whole())
    assert members.split(", ")[: len(names)] == names
    assert all(getattr(encoder, name, i) == i for i, name in enumerate(names))
