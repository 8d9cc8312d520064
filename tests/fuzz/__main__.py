"""Runs a fuzz target: ``python -m tests.fuzz pattern -max_total_time=600 corpus/``; options are libFuzzer's."""

from __future__ import annotations

import importlib
import sys

TARGETS = ("pattern", "session")


def main() -> int:
    target, *options = sys.argv[1:] or [""]
    if target not in TARGETS:
        print(f"usage: python -m tests.fuzz {{{','.join(TARGETS)}}} [libFuzzer options]", file=sys.stderr)
        return 2
    try:
        atheris = importlib.import_module("atheris")
    except ImportError:
        print("fuzzing needs the package atheris, which is not installed: pip install atheris", file=sys.stderr)
        return 2
    # What is instrumented must not have been imported before, so the targets are modules of their own.
    with atheris.instrument_imports(include=["toktier"]):
        trial = importlib.import_module(f"tests.fuzz.{target}").trial
    atheris.Setup([sys.argv[0], *options], trial)
    atheris.Fuzz()
    return 0


if __name__ == "__main__":
    sys.exit(main())
