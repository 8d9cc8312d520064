"""What stands at the head of every file of figures: how they were made, when, on what machine, with which versions."""

from __future__ import annotations

import datetime
import importlib.metadata
import os
import pathlib
import platform
import shlex
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

import toktier
from toktier.terminal import without_folder

PACKAGES = ("tokenizers", "tiktoken", "gigatoken", "fastokens", "numpy")

WRITTEN = ("--json", "--plot")
"""Options that name a file which a command writes."""


def heading(title: str) -> dict[str, Any]:
    """The head of a file of figures. It names no host, no user and no folder.

    Args:
        title: What was measured.

    Example:
        >>> list(heading("Appends"))
        ['title', 'command', 'date', 'machine', 'versions']
    """
    module = getattr(sys.modules["__main__"], "__spec__", None)
    return {
        "title": title,
        "command": command(sys.argv, module.name if module else None),
        "date": datetime.datetime.now(datetime.timezone.utc).date().isoformat(),
        "machine": {
            "processor": processor(),
            "cpus": os.cpu_count(),
            "machine": platform.machine(),
            "system": platform.system(),
        },
        "versions": {"python": platform.python_version(), "toktier": toktier.__version__} | versions(),
    }


def command(words: Sequence[str], module: str | None) -> str:
    """A command line as another person would type it: without what it wrote, and without the folders of what it read.

    Args:
        words: The script and its arguments.
        module: The name of the module that ran as the script; None where a file did.

    Example:
        >>> command(["/here/session.py", "--rounds", "5", "--json", "out.json"], "benchmarks.session")
        'python -m benchmarks.session --rounds 5'
        >>> command(["/here/bin/toktier", "bench", "--tokenizer=/home/me/tokenizer.json"], None)
        'toktier bench --tokenizer=tokenizer.json'
    """
    program = f"python -m {module.removesuffix('.__main__')}" if module else pathlib.PurePath(words[0]).name
    shown: list[str] = []
    rest = iter(words[1:])
    for word in rest:
        option, equals, value = word.partition("=")
        if option in WRITTEN:
            if not equals:
                next(rest, None)
            continue
        shown.append(f"{option}={without_folder(value)}" if equals else without_folder(word))
    return f"{program} {shlex.join(shown)}".rstrip()


def processor() -> str:
    """The model of the processor; where the system does not tell it, its architecture."""
    told = ""
    if sys.platform == "linux":
        info = pathlib.Path("/proc/cpuinfo")
        lines = info.read_text(encoding="utf-8", errors="replace").splitlines() if info.is_file() else []
        told = next((line.partition(":")[2] for line in lines if line.startswith("model name")), "")
    elif sys.platform == "darwin":
        asked = ["/usr/sbin/sysctl", "-n", "machdep.cpu.brand_string"]
        told = subprocess.run(asked, check=False, capture_output=True, text=True).stdout
    return " ".join(told.split()) or platform.processor() or platform.machine()


def versions() -> dict[str, str | None]:
    """The versions of the packages that are measured; None for those that are not installed."""
    return {name: _version(name) for name in PACKAGES}


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None
