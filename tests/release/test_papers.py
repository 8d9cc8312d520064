"""Changelog, notices and the map of the house are as true as the code beside them."""

from __future__ import annotations

import re

import pytest

import toktier
from tests.release.building import ROOT
from tests.release.papers import changelog_defects, imports_against, mapped, modules, order


def read(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


CONTRIBUTING = read("CONTRIBUTING.md")


def test_every_module_is_on_the_map_and_nothing_else() -> None:
    assert sorted(mapped(CONTRIBUTING) ^ modules()) == []


def test_a_module_that_is_not_on_the_map_is_noticed() -> None:
    changed = CONTRIBUTING.replace("`planner.py`, ", "").replace("`finding.py` tells", "`searching.py` tells")
    assert mapped(changed) ^ mapped(CONTRIBUTING) == {
        "planner.py",
        "families/formats/finding.py",
        "families/formats/searching.py",
    }


def test_rooms_import_one_another_in_the_order_of_the_map() -> None:
    sources = {name: read(f"toktier/{name}") for name in modules()}
    assert [*imports_against(order(CONTRIBUTING), sources)] == []
    sources["families/family.py"] += "\nfrom toktier.engines.memo import MemoEngine\n"
    sources["planner.py"] += "\ndef lazily():\n    from toktier.session import Session\n"
    assert [*imports_against(order(CONTRIBUTING), sources)] == ["families/family.py imports toktier.engines.memo"]


def test_the_changelog_is_in_order_and_ends_at_the_version_of_the_package() -> None:
    assert [*changelog_defects(read("CHANGELOG.md"), toktier.__version__)] == []


@pytest.mark.parametrize(
    ("changelog", "defect"),
    [
        ("# Changelog\n", "no section"),
        ("## Unreleased\n## 0.2.0 - 2026-12-24\n", "the newest release is 0.2.0 - 2026-12-24, and"),
        ("## 0.1.0 - 2026-02-30\n", "'## 0.1.0 - 2026-02-30' is not '## X.Y.Z - YYYY-MM-DD'"),
        ("## 0.1.0\n", "'## 0.1.0' is not"),
        ("## 0.1.0 - 2026-12-24\n## Unreleased\n", "'## Unreleased' is not"),
        ("## 0.1.0 - 2026-12-24\n## 0.1.1 - 2026-12-23\n", "(0, 1, 0) stands above (0, 1, 1)"),
        ("## 0.1.0 - 2026-12-24\n## 0.0.9 - 2026-12-25\n", "(0, 1, 0) stands above (0, 0, 9)"),
    ],
)
def test_a_changelog_that_is_out_of_order_is_noticed(changelog: str, defect: str) -> None:
    (found,) = changelog_defects(changelog, "0.1.0")
    assert defect in found


def test_the_version_stands_in_one_place() -> None:
    assert re.fullmatch(r"\d+\.\d+\.\d+", toktier.__version__)
    assert read("toktier/__init__.py").count(f'"{toktier.__version__}"') == 1
    assert not re.search(r"^version\s*=", read("pyproject.toml"), re.MULTILINE)
