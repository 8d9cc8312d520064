"""Records what installed packages, or wheels, have: ``python -m tests.integrations.signatures vllm-0.33.0-....whl``."""

import pathlib
import sys

from tests.integrations.signatures import NEEDED, installed, of_wheel, record


def main(sources: list[str]) -> None:
    if not sources:
        raise SystemExit(f"usage: python -m tests.integrations.signatures {{{','.join(NEEDED)},WHEEL}} ...")
    for source in sources:
        signatures = of_wheel(pathlib.Path(source)) if source.endswith(".whl") else installed(source)
        if signatures is None:
            raise SystemExit(f"{source} is not installed: install it, or give its wheel")
        print(f"{signatures.source} -> {record(signatures)}")


if __name__ == "__main__":
    main(sys.argv[1:])
