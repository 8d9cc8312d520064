"""Builds what is published, from a copy of the files that belong to the repository, and looks into it."""

from __future__ import annotations

import os
import pathlib
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Iterable, Iterator
from email.parser import HeaderParser

from attrs import field, frozen

ROOT = pathlib.Path(__file__).parents[2]

LICENCES = ("LICENSE", "NOTICE", "THIRD_PARTY_NOTICES.md", "toktier/families/mini/LICENSE.PSF-2.0")
"""What lies in every package, in the place that the metadata name."""

DEAD_LINK = re.compile(r"(?:\]\(|(?:src|href|srcset)=\")(?!https?:|#)([^)\"]*)")
"""A link or a picture in Markdown or HTML that an index could not follow."""


@frozen
class Built:
    """A build.

    Attributes:
        source: The copy that it was built from.
        wheel: The wheel.
        sdist: The source distribution.
    """

    source: pathlib.Path
    wheel: pathlib.Path = field(repr=lambda file: file.name)
    sdist: pathlib.Path = field(repr=lambda file: file.name)

    @property
    def version(self) -> str:
        """The version, as the wheel's name has it."""
        return self.wheel.name.split("-")[1]

    def in_wheel(self) -> dict[str, bytes]:
        """The contents of the wheel, by path."""
        return contents(self.wheel)

    def in_sdist(self) -> set[str]:
        """The paths in the source distribution, below its one folder."""
        with tarfile.open(self.sdist) as archive:
            return {name.split("/", 1)[1] for name in archive.getnames() if "/" in name}

    def metadata(self) -> tuple[dict[str, list[str]], str]:
        """The fields of the wheel's metadata, and the long description."""
        message = HeaderParser().parsestr(self.in_wheel()[f"toktier-{self.version}.dist-info/METADATA"].decode())
        return {name: message.get_all(name, []) for name in message}, str(message.get_payload())


def own_files(*, only_tracked: bool = False) -> list[str]:
    """The files of the repository, as paths below its root: what git has, and what it does not ignore.

    Args:
        only_tracked: Whether what was not added yet is left out.

    Raises:
        subprocess.CalledProcessError: This is no repository of git.
        FileNotFoundError: There is no git.
    """
    command = ["git", "ls-files", "-z", "--cached", *(() if only_tracked else ("--others", "--exclude-standard"))]
    listed = subprocess.run(command, check=True, cwd=ROOT, capture_output=True, encoding="utf-8").stdout
    return sorted(name for name in {*listed.split("\0")} - {""} if (ROOT / name).is_file())


def copied(files: Iterable[str], folder: pathlib.Path) -> pathlib.Path:
    """A folder with these files of the repository, and nothing else."""
    for name in files:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, folder / name)
    return folder


def build(source: pathlib.Path, folder: pathlib.Path, *, isolated: bool) -> Built:
    """Builds both from a folder.

    Args:
        source: The folder.
        folder: Where they go.
        isolated: In an environment with just what ``pyproject.toml`` asks for, from a package index; else in this one.
    """
    ways = ["--outdir", str(folder), *(() if isolated else ("--no-isolation",)), str(source)]
    run([sys.executable, "-m", "build", "--sdist", "--wheel", *ways])
    (wheel,), (sdist,) = folder.glob("*.whl"), folder.glob("*.tar.gz")
    return Built(source, wheel, sdist)


def wheel_of(sdist: pathlib.Path, folder: pathlib.Path, *, isolated: bool) -> pathlib.Path:
    """The wheel that is built from a source distribution."""
    unpacked = folder / "unpacked"
    with tarfile.open(sdist) as archive:
        archive.extractall(unpacked, filter="data")
    (source,) = unpacked.iterdir()
    ways = [] if isolated else ["--no-isolation"]
    run([sys.executable, "-m", "build", "--wheel", "--outdir", str(folder), *ways, str(source)])
    (wheel,) = folder.glob("*.whl")
    return wheel


def contents(archive: pathlib.Path) -> dict[str, bytes]:
    """What a wheel contains, by path."""
    with zipfile.ZipFile(archive) as opened:
        return {name: opened.read(name) for name in opened.namelist()}


def defects(built: Built) -> Iterator[str]:
    """What is wrong with a build, one line each; nothing, if it is as it should be."""
    files = {file.relative_to(built.source).as_posix() for file in built.source.rglob("*") if file.is_file()}
    information = f"toktier-{built.version}.dist-info"
    fields, description = built.metadata()
    expected = {name for name in files if name.startswith("toktier/")}
    expected |= {f"{information}/{name}" for name in ("METADATA", "RECORD", "WHEEL", "entry_points.txt")}
    expected |= {f"{information}/licenses/{name}" for name in LICENCES}
    yield from differences("the wheel", expected, built.in_wheel())
    yield from differences("the source distribution", files | {"PKG-INFO"}, built.in_sdist())
    yield from differences("License-File", LICENCES, fields.get("License-File", ()))
    yield from (f"the long description has a link to {link!r}" for link in DEAD_LINK.findall(description))
    if fields.get("Description-Content-Type") != ["text/markdown"] or "# toktier" not in description:
        yield "the long description is not the README"


def differences(where: str, expected: Iterable[str], found: Iterable[str]) -> Iterator[str]:
    """What is missing in one of two sets of names."""
    expected, found = {*expected}, {*found}
    yield from (f"{where} has no {name}" for name in sorted(expected - found))
    yield from (f"{where} has {name}" for name in sorted(found - expected))


def run(command: list[str], **options: str) -> str:
    """Runs a command; what it prints.

    Args:
        command: The program and its arguments.
        options: Environment variables.

    Raises:
        RuntimeError: It failed; the message is what it printed.
    """
    done = subprocess.run(
        command,
        check=False,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        encoding="utf-8",
        env=os.environ | options,
    )
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)} failed:\n{done.stdout}")
    return done.stdout
