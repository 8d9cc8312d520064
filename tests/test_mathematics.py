"""The formulas of the documentation become MathML, each of them or none."""

from __future__ import annotations

import pathlib
import re
from xml.etree import ElementTree

import pytest
from sphinx.errors import ExtensionError

from docs.mathematics import mathml

PAGES = sorted((pathlib.Path(__file__).parents[1] / "docs").glob("*.md"))

CODE = re.compile(r"^```.*?^```$|`[^`]*`", re.MULTILINE | re.DOTALL)
FORMULA = re.compile(r"\$\$(.+?)\$\$|\$([^$]+)\$", re.DOTALL)


def formulas() -> set[str]:
    """The formulas of all pages."""
    texts = (CODE.sub("", page.read_text(encoding="utf-8")) for page in PAGES)
    return {found[1] or found[2] for text in texts for found in FORMULA.finditer(text)}


def test_every_formula_of_the_pages_is_understood() -> None:
    assert r"\mathrm{tok}(S)" in formulas()
    for formula in formulas():
        ElementTree.fromstring(mathml(formula))  # well-formed
        letters = re.sub(r"\\mathrm|[^a-zA-Z]", "", formula)
        assert re.sub(r"<[^>]*>|[^a-zA-Z]", "", mathml(formula)) == letters


def test_a_formula_has_its_signs_in_order() -> None:
    assert mathml("R_{k+1}") == "<math><msub><mi>R</mi><mrow><mi>k</mi><mo>+</mo><mn>1</mn></mrow></msub></math>"
    assert mathml("V'") == "<math><mi>V</mi><mo>′</mo></math>"
    assert mathml(r"\mathrm{tok}", block=True) == '<math display="block"><mi mathvariant="normal">tok</mi></math>'


@pytest.mark.parametrize("formula", [r"\frac{a}{b}", "{a", "a}", "_a", "a_", "a__b", "a_}", "a<b", r"\mathrm{}"])
def test_what_is_not_known_is_refused(formula: str) -> None:
    with pytest.raises(ExtensionError, match="is not known"):
        mathml(formula)
