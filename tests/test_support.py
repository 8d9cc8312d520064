"""docs/support.md says what is so: a table that is stale fails here, and ``python -m benchmarks.support`` renews it."""

from __future__ import annotations

import attrs
import pytest

from benchmarks import support
from benchmarks.marks import BadMarks
from tests.public.families import FAMILIES, FILE, STAND_IN, Public, kinds, load
from tests.public.files import Beside

DOCUMENT = support.DOCUMENT.read_text(encoding="utf-8")
ROWS = {(row.family, row.kind): row for row in support.saved()}
HERE = [
    (family, kind)
    for family in FAMILIES
    for kind in kinds(family)
    if kind == STAND_IN or isinstance(family.origin, Beside)
]
"""What is known without a download."""


def test_the_document_shows_the_figures_beside_it() -> None:
    assert support.inserted(DOCUMENT, list(ROWS.values())) == DOCUMENT


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.name)
def test_the_document_has_a_row_for_each_family(family: Public) -> None:
    assert f"\n| {family.name} | " in DOCUMENT
    assert (family.name, STAND_IN) in ROWS


def test_the_document_was_made_with_all_files() -> None:
    assert {name for name, kind in ROWS if kind == FILE} == {family.name for family in FAMILIES if family.origin}


@pytest.mark.parametrize(("family", "kind"), HERE, ids=[f"{family.name}, {kind}" for family, kind in HERE])
def test_the_figures_are_those_of_the_definitions(family: Public, kind: str) -> None:
    now = support.measured(family, kind, load(family.name, kind), texts=(), compare=False)
    then = ROWS[family.name, kind]
    assert now == attrs.evolve(then, apart=None, engines=None, gpu=None)


def test_a_document_without_the_place_of_the_table_is_left_alone() -> None:
    with pytest.raises(BadMarks, match=r"docs/support.md has no place for figures 'support'"):
        support.inserted("Only prose.", list(ROWS.values()))


def test_pairs_that_cannot_be_seen_are_drawn() -> None:
    cells = support.document_row(ROWS["GPT-2", STAND_IN])
    assert any("`e\\|␣`" in cell for cell in cells)


@pytest.mark.parametrize(
    ("stages", "shown"),
    [
        (["normalizer NFC", "pre-tokenizer Split(a)", "pre-tokenizer Split(b)", "model BPE"], "NFC, 2 Split, BPE"),
        (["special tokens: 1", "pattern a|b", "model BPE: 50,256 ranks"], "pattern, BPE"),
        (["model BPE(byte_fallback=True)", "post-processor TemplateProcessing"], "BPE"),
    ],
)
def test_a_pipeline_is_shown_by_the_names_of_its_stages(stages: list[str], shown: str) -> None:
    assert support.pipeline(stages) == shown
