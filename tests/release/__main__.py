"""Builds the release, and tries it in clean environments: ``make release``.

    python -m tests.release --python python3.10 --python python3.13     with other interpreters, too

The files go to ``dist/`` if everything is as it should be. Nothing is uploaded.
"""

from __future__ import annotations

import argparse
import pathlib
import shutil
import sys
import tempfile
from collections.abc import Iterator

from attrs import frozen

from tests.release.building import ROOT, Built, build, contents, copied, defects, own_files, run, wheel_of
from tests.release.papers import release_defects

OLDEST = pathlib.Path(__file__).with_name("oldest.txt")
SMOKE = pathlib.Path(__file__).with_name("smoke.py")


@frozen
class Environment:
    """An environment in which the wheel is tried.

    Attributes:
        python: The interpreter.
        extras: Those that are installed with the wheel.
        oldest: Whether everything is the oldest that is allowed; else the newest.
    """

    python: str
    extras: tuple[str, ...] = ()
    oldest: bool = False

    def __str__(self) -> str:
        versions = "the oldest versions" if self.oldest else "the newest versions"
        return f"{self.python}, {versions}, {', '.join(self.extras) or 'no extra'}"


def environments(pythons: list[str]) -> Iterator[Environment]:
    """All that the wheel is tried in."""
    for python in pythons:
        yield Environment(python)
        yield Environment(python, ("cli",))
        yield Environment(python, ("chat", "cli", "fast"))
    yield Environment(pythons[0], (), oldest=True)
    yield Environment(pythons[0], ("chat", "cli"), oldest=True)


def tried(built: Built, environment: Environment, cache: pathlib.Path) -> str:
    """What the smoke test prints, run in a new environment, outside the repository.

    Args:
        built: The build.
        environment: Where its wheel is installed.
        cache: Keeps what the libraries were asked, by their versions, from one environment to the next.
    """
    with tempfile.TemporaryDirectory(prefix="toktier-release-") as name:
        folder = pathlib.Path(name)
        run([environment.python, "-m", "venv", str(folder / "environment")])
        python = str(folder / "environment" / ("Scripts" if sys.platform == "win32" else "bin") / "python")
        constraint = ["--constraint", str(OLDEST)] if environment.oldest else ["--upgrade"]
        extras = f"[{','.join(environment.extras)}]" if environment.extras else ""
        run([python, "-m", "pip", "install", "--quiet", *constraint, f"{built.wheel}{extras}"])
        script = str(shutil.copy(SMOKE, folder))
        return run([python, "-I", "-W", "error", script, *environment.extras], XDG_CACHE_HOME=str(cache))


def released(pythons: list[str], folder: pathlib.Path) -> list[str]:
    """Builds and tries everything; what is wrong, one line each."""
    built = build(copied(own_files(only_tracked=True), folder / "source"), folder / "dist", isolated=True)
    print(f"built {built.wheel.name} and {built.sdist.name}")
    wrong = [*defects(built)]
    if contents(wheel_of(built.sdist, folder / "again", isolated=True)) != contents(built.wheel):
        wrong.append("the source distribution builds another wheel")
    print(run([sys.executable, "-m", "twine", "check", "--strict", str(built.wheel), str(built.sdist)]).strip())
    for environment in environments(pythons):
        print(f"\n{environment}", flush=True)
        try:
            print(tried(built, environment, folder / "cache").strip())
        except RuntimeError as error:
            print(error)
            wrong.append(f"{environment}: it does not work")
    return [*wrong, *release_defects(built.version)]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n", 1)[0])
    parser.add_argument("--python", action="append", help="try the wheel with this interpreter, too")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="toktier-release-") as name:
        folder = pathlib.Path(name)
        wrong = released([sys.executable, *(options.python or ())], folder)
        if wrong:
            raise SystemExit("\n".join(["\nnot to be released:", *wrong]))
        shutil.rmtree(ROOT / "dist", ignore_errors=True)
        shutil.copytree(folder / "dist", ROOT / "dist")
    print("\nto be released: what lies in dist/")


if __name__ == "__main__":
    main()
