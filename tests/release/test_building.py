"""What is built has what it should have and nothing else, and works where there is nothing but it."""

from __future__ import annotations

import pathlib
import re
import shutil
import subprocess
import sys
import sysconfig
import zipfile

import pytest
from attrs import evolve

from tests.release.building import ROOT, Built, build, contents, copied, defects, own_files, run, wheel_of
from tests.release.papers import noticed, packages

HERE = pathlib.Path(__file__).parent


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    try:
        files = own_files()
    except (FileNotFoundError, subprocess.CalledProcessError):
        pytest.skip("which files belong to the repository is known to git alone, and it is not here")
    folder = tmp_path_factory.mktemp("release")
    return build(copied(files, folder / "source"), folder / "dist", isolated=False)


def test_wheel_and_source_distribution_have_what_they_should(built: Built) -> None:
    assert [*defects(built)] == []
    kinds = {pathlib.PurePath(name).suffix for name in built.in_wheel() if name.startswith("toktier/")}
    assert kinds >= {".py", ".typed", ".json", ".cuh", ".js", ".css", ".html"}


def test_a_file_that_is_missing_or_does_not_belong_is_noticed(built: Built, tmp_path: pathlib.Path) -> None:
    changed = tmp_path / built.wheel.name
    with zipfile.ZipFile(changed, "w") as archive:
        for name, data in built.in_wheel().items():
            if name == "toktier/view/page.css":
                continue
            links = b"[a page](docs/page.md), [another](https://example.org)\n" if name.endswith("/METADATA") else b""
            archive.writestr(name, data + links)
        archive.writestr("tests/test_session.py", b"")
    assert [*defects(evolve(built, wheel=changed))] == [
        "the wheel has no toktier/view/page.css",
        "the wheel has tests/test_session.py",
        "the long description has a link to 'docs/page.md'",
    ]


def test_the_source_distribution_builds_the_same_wheel(built: Built, tmp_path: pathlib.Path) -> None:
    assert contents(wheel_of(built.sdist, tmp_path, isolated=False)) == built.in_wheel()


def test_the_notices_have_the_licence_of_every_package_that_is_needed(built: Built) -> None:
    needed = packages(built.metadata()[0]["Requires-Dist"]) | {"hatch-fancy-pypi-readme", "hatchling"}
    notices = (ROOT / "THIRD_PARTY_NOTICES.md").read_text(encoding="utf-8")
    assert sorted(noticed(notices) ^ needed) == []
    assert noticed(notices.replace("| numpy |", "| sumpy |")) ^ needed == {"numpy", "sumpy"}


def test_the_oldest_versions_that_are_tried_are_those_that_the_metadata_allow(built: Built) -> None:
    pinned = dict(re.findall(r"^([\w-]+)==([\d.]+)$", (HERE / "oldest.txt").read_text(encoding="utf-8"), re.MULTILINE))
    fields = built.metadata()[0]["Requires-Dist"]
    always = packages(requirement for requirement in fields if "extra ==" not in requirement)
    assert pinned.keys() >= always | {"click", "gigatoken", "jinja2", "rich"}
    for name, version in pinned.items():
        (bound,) = {found for field in fields for found in re.findall(rf"^{name}\b.*>=([\d.]+)", field)}
        assert f"{bound}.0.0".split(".")[:3] == version.split(".")[:3], name


def test_the_wheel_works_outside_of_the_repository(built: Built, tmp_path: pathlib.Path) -> None:
    environment = tmp_path / "environment"
    run([sys.executable, "-m", "venv", "--without-pip", str(environment)])
    python = str(environment / ("Scripts" if sys.platform == "win32" else "bin") / "python")
    install = ["--no-deps", "--no-index", "--quiet", "--disable-pip-version-check", str(built.wheel)]
    run([sys.executable, "-m", "pip", "--python", python, "install", *install])
    # What it needs is found where it is: such a file adds a folder, and not what is installed there to be edited.
    purelib = run([python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"]).strip()
    pathlib.Path(purelib, "beside.pth").write_text(sysconfig.get_path("purelib") + "\n", encoding="utf-8")
    script = str(shutil.copy(HERE / "smoke.py", tmp_path))
    assert "toktier 0" in run([python, "-I", "-W", "error", script, "chat", "cli", "fast"])
