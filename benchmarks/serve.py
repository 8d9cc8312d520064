"""What ``toktier bench serve`` measures, on a tokenizer of the tests and real transcripts of coding agents."""

from __future__ import annotations

import argparse

import toktier
from benchmarks.common import transcript
from tests import material
from toktier import cli


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tokenizer", default="toktier-mini", choices=material.available())
    parser.add_argument("--sessions", type=int, default=100, help="live sessions")
    parser.add_argument("--bursts", action="store_true", help="calls arrive in bursts")
    parser.add_argument("--quick", action="store_true", help="a first look")
    parser.add_argument("--json", type=argparse.FileType("w"), metavar="FILE", help="write everything there too")
    options = parser.parse_args()
    text, tok = transcript(8_000_000), toktier.load(material.file(options.tokenizer))
    how = {"bursts": options.bursts, "quick": options.quick, "as_json": options.json}
    cli.offer(options.tokenizer, tok, text, options.sessions, **how)


if __name__ == "__main__":
    main()
