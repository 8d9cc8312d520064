"""What ``toktier bench`` measures, on a tokenizer of the tests and real transcripts of coding agents."""

from __future__ import annotations

import argparse

import toktier
from benchmarks.common import transcript
from tests import material
from toktier import cli
from toktier.bench import plan, plot


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tokenizer", default="toktier-mini", choices=material.available())
    parser.add_argument("--quick", action="store_true", help="a first look")
    parser.add_argument("--json", type=argparse.FileType("w"), metavar="FILE", help="write everything there too")
    parser.add_argument("--plot", type=argparse.FileType("w"), metavar="FILE", help="draw a plot there, SVG")
    options = parser.parse_args()
    if options.plot:
        plot.new_figure(1, 1)
    wanted = plan.QUICK if options.quick else plan.FULL
    text = transcript(wanted.contexts[-1] + wanted.fresh)
    # Not the tests' registry: engines were perhaps compared on this machine before.
    tok = toktier.load(material.file(options.tokenizer))
    cli.measure(options.tokenizer, tok, text, wanted, as_json=options.json, as_plot=options.plot)


if __name__ == "__main__":
    main()
