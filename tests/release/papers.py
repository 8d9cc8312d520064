"""What the papers beside the code must say: changelog, notices, the map of the house."""

from __future__ import annotations

import ast
import datetime
import re
import subprocess
from collections.abc import Iterable, Iterator
from itertools import pairwise

import toktier
from tests.release.building import ROOT

HEADING = re.compile(r"^## (.+)$", re.MULTILINE)
DATED = re.compile(r"(\d+)\.(\d+)\.(\d+) - (\d{4}-\d{2}-\d{2})")
UNRELEASED = "Unreleased"

Version = tuple[int, int, int]


def headings(changelog: str) -> list[str]:
    """The headings of the sections of a changelog, newest first."""
    return HEADING.findall(changelog)


def released(heading: str) -> tuple[Version, datetime.date] | None:
    """The version and the day that a heading names, or None."""
    found = DATED.fullmatch(heading)
    if found is None:
        return None
    try:
        return (int(found[1]), int(found[2]), int(found[3])), datetime.date.fromisoformat(found[4])
    except ValueError:
        return None


def changelog_defects(changelog: str, version: str) -> Iterator[str]:
    """What is wrong with a changelog at any time, one line each.

    Its sections are ``## Unreleased``, if there is one, and under it ``## X.Y.Z - YYYY-MM-DD``, newest first; the
    newest is the version of the package.
    """
    named = headings(changelog)
    dated = named[1:] if named[:1] == [UNRELEASED] else named
    if not named:
        yield "CHANGELOG.md has no section"
    known = [(heading, released(heading)) for heading in dated]
    yield from (f"CHANGELOG.md: '## {heading}' is not '## X.Y.Z - YYYY-MM-DD'" for heading, one in known if one is None)
    releases = [one for _, one in known if one is not None]
    for newer, older in pairwise(releases):
        if newer[0] <= older[0] or newer[1] < older[1]:
            yield f"CHANGELOG.md: {newer[0]} stands above {older[0]}"
    if releases and ".".join(map(str, releases[0][0])) != version:
        yield f"CHANGELOG.md: the newest release is {dated[0]}, and toktier/__init__.py says {version}"


def release_defects(version: str) -> Iterator[str]:
    """What keeps what is here from being released, one line each."""
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    yield from changelog_defects(changelog, version)
    if UNRELEASED in headings(changelog):
        yield f"CHANGELOG.md has a section '## {UNRELEASED}': name it '## {version} - {datetime.date.today()}'"
    changed = subprocess.run(
        ["git", "status", "--porcelain"], check=True, cwd=ROOT, capture_output=True, text=True
    ).stdout
    if changed:
        yield f"{len(changed.splitlines())} files are changed and not committed: the build has none of the changes"
    if version != toktier.__version__:
        yield f"the build has version {version}, and toktier/__init__.py says {toktier.__version__}"


def modules() -> set[str]:
    """The modules of the package, as paths below it."""
    files = (ROOT / "toktier").rglob("*.py")
    return {file.relative_to(ROOT / "toktier").as_posix() for file in files if file.name[:2] != "__"}


def mapped(contributing: str) -> set[str]:
    """The modules that the map of the house names, as paths below the package.

    In a line that begins with a folder, what follows lies in it.
    """
    the_map = contributing.split("\n## The map\n")[1].split("\n### ", 1)[0]
    found: set[str] = set()
    for line in re.findall(r"^- .*(?:\n  .*)*", the_map, re.MULTILINE):
        named = [name for name in re.findall(r"`([^`]+)`", line) if re.fullmatch(r"[\w/]+(\.py|/)", name)]
        folder = named[0] if named and named[0].endswith("/") else ""
        found |= {folder + name for name in named if name.endswith(".py")}
    return found


def order(contributing: str) -> list[list[str]]:
    """The rooms in the order in which they may import one another, side by side those that stand together."""
    (line,) = re.findall(r"^errors < [^`]*", contributing, re.MULTILINE)
    return [group.strip().split(", ") for group in line.split("<")]


def imports_against(order: list[list[str]], sources: dict[str, str]) -> Iterator[str]:
    """Imports, made when a module is imported itself, of rooms that come later than its own.

    Args:
        order: The rooms.
        sources: Modules by path below the package.
    """
    rank = {room: number for number, group in enumerate(order) for room in group}
    for path, source in sources.items():
        own = rank.get(path.split("/")[0].removesuffix(".py"))
        for statement in ast.parse(source).body:
            if isinstance(statement, ast.ImportFrom) and own is not None and statement.module:
                room = f"{statement.module}.".split(".")[1]
                if statement.module.startswith("toktier.") and rank.get(room, 0) > own:
                    yield f"{path} imports {statement.module}"


def packages(requirements: Iterable[str]) -> set[str]:
    """The names of the packages that requirements ask for, less this one."""
    names = (re.split(r"[^\w.-]", requirement)[0].lower().replace("_", "-") for requirement in requirements)
    return {*names} - {"toktier"}


def noticed(notices: str) -> set[str]:
    """The packages whose licences the notices have."""
    table = notices.split("\n## What toktier needs\n")[1]
    return packages(re.findall(r"^\| ([\w-]+) \|", table, re.MULTILINE)) - {"package", "---"}
