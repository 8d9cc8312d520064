"""The figures of the documentation are what the present code draws, and show what is so."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import pairwise, product
from xml.etree import ElementTree

import pytest
from attrs import evolve

import toktier
from docs.figures import texts
from docs.figures.catalogue import FIGURES, FOLDER, drawn
from docs.figures.drawing import DARK, LIGHT, PALETTES, Drawing, Palette, Tone
from docs.figures.relations import example
from toktier.families.family import Family
from toktier.families.probing import Probe
from toktier.inspection import kinds

SVG = "{http://www.w3.org/2000/svg}"
FILES = [f"figure-{name}-{palette.name}.svg" for name in FIGURES for palette in PALETTES]

ENOUGH = 4.5
"""The contrast that the guidelines for accessible content (WCAG 2, AA) ask for."""


@pytest.fixture(scope="module")
def present() -> dict[str, str]:
    return dict(drawn())


def shown(svg: str) -> list[str]:
    """All texts of a figure, in the order in which they are drawn."""
    return [element.text or "" for element in ElementTree.fromstring(svg).iter(f"{SVG}text")]


@pytest.mark.parametrize("file", FILES)
def test_a_figure_is_what_the_present_code_draws(file: str, present: dict[str, str]) -> None:
    kept = (FOLDER / file).read_text(encoding="utf-8")
    assert kept == present[file], "python -m docs.figures draws it anew"


def test_there_is_no_figure_that_nothing_draws() -> None:
    assert sorted(path.name for path in FOLDER.glob("figure-*.svg")) == sorted(FILES)


def test_every_figure_is_on_a_page_in_both_colours() -> None:
    pages = "".join(page.read_text(encoding="utf-8") for page in FOLDER.parent.glob("*.md"))
    on_pages = re.findall(r"```\{image\} _static/(figure-[\w-]+\.svg)\n:alt: .+\n:class: only-(light|dark)\n```", pages)
    assert sorted(on_pages) == sorted((file, "light" if "-light." in file else "dark") for file in FILES)


def test_another_text_makes_another_figure(monkeypatch: pytest.MonkeyPatch, present: dict[str, str]) -> None:
    monkeypatch.setattr(texts, "APPEND", ("Set the time", "out to 31 s."))
    assert FIGURES["append"](LIGHT) != present["figure-append-light.svg"]


def test_a_text_that_shows_nothing_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(texts, "PIPELINE", ("Build the", " pipeline"))
    with pytest.raises(ValueError, match="does not show"):
        FIGURES["pipeline"](LIGHT)


def test_the_ids_of_the_figures_are_those_of_the_reference(present: dict[str, str]) -> None:
    whole = texts.deepseek().engine("reference").encode("".join(texts.PIPELINE)).tolist()
    parts = [id for text in texts.PIPELINE for id in texts.deepseek().engine("reference").encode(text).tolist()]
    numbers = [int(text) for text in shown(present["figure-pipeline-light.svg"]) if text.isdecimal()]
    assert numbers == parts + whole + whole
    assert parts != whole


def drawn_cells(svg: str, sign: str) -> int:
    """How many cells of a matrix have a sign; the one of the legend is none."""
    return shown(svg).count(sign) - 1


def certified(family: Family) -> int:
    firsts = [kind.examples[0] for kind in kinds(family)]
    return sum(family.is_pair(left, right) for left in firsts for right in firsts)


def test_a_matrix_has_a_tick_for_each_certified_pair(present: dict[str, str]) -> None:
    for name, tok in (("relation", toktier.load("toktier-mini")), ("relation-small", example())):
        assert drawn_cells(present[f"figure-{name}-dark.svg"], "✓") == certified(tok.family) > 0


def test_what_added_tokens_take_from_a_matrix_is_beside_one_another_in_them(present: dict[str, str]) -> None:
    family = toktier.load("toktier-mini").family
    bare = Family.derive(evolve(family.definition, literals=()), Probe())
    beside = {pair for literal in family.definition.literals for pair in map("".join, pairwise(literal.content))}
    every = [kind.examples for kind in kinds(family)]
    taken = [
        (lefts, rights)
        for lefts, rights in product(every, every)
        if bare.is_pair(lefts[0], rights[0]) and not family.is_pair(lefts[0], rights[0])
    ]
    assert drawn_cells(present["figure-relation-light.svg"], "‹›") == len(taken) > 0
    assert all(any(left + right in beside for left in lefts for right in rights) for lefts, rights in taken)


def colours(palette: Palette) -> Iterator[tuple[str, str]]:
    """Each colour of a text with the one behind it."""
    for color in (palette.text, palette.muted, palette.cut):
        yield color, palette.page
    for tone in (palette.kept, palette.encoded, palette.wrong):
        yield tone.text, tone.fill
        yield tone.text, palette.page


def contrast(one: str, other: str) -> float:
    low, high = sorted(map(luminance, (one, other)))
    return (high + 0.05) / (low + 0.05)


def luminance(color: str) -> float:
    parts = [int(color[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return sum(weight * part for weight, part in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


@pytest.mark.parametrize("palette", PALETTES, ids=lambda palette: palette.name)
def test_texts_can_be_read_on_their_page(palette: Palette) -> None:
    assert {pair: contrast(*pair) for pair in colours(palette) if contrast(*pair) < ENOUGH} == {}


def test_no_grey_can_be_read_on_both_pages() -> None:
    greys = [f"#{level:02x}{level:02x}{level:02x}" for level in range(256)]
    assert not any(min(contrast(grey, LIGHT.page), contrast(grey, DARK.page)) >= ENOUGH for grey in greys)


def test_a_text_that_would_leave_the_figure_is_refused() -> None:
    drawing = Drawing((100, 40), "Nothing", LIGHT)
    drawing.text(5, 20, "a short one")
    with pytest.raises(ValueError, match="no room"):
        drawing.text(5, 20, "one that is too long for it")
    with pytest.raises(ValueError, match="no room"):
        drawing.text(5, 41, "below")


def test_what_stands_in_a_text_is_no_markup() -> None:
    drawing = Drawing((200, 40), '"<&>"', LIGHT)
    drawing.text(5, 20, "<|a&b|>")
    drawing.box(1, 1, 9, 9, Tone("#000000", "#000000", "#ffffff"))
    assert shown(drawing.svg()) == ["<|a&b|>"]
