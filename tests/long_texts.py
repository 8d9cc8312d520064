"""Long texts cut in many ways, on every tokenizer and engine: ``python -m tests.long_texts``.

All that there is to read, four million characters of it, in 2 to 64 chunks and with random targets; and once as
``tok.encode`` would do it, with each engine.
"""

from __future__ import annotations

import argparse
import random
import sys

import numpy as np

from tests import material
from tests.campaign import serves
from toktier import SessionStore
from toktier.planner import parts

CHUNKS = (2, 3, 5, 8, 13, 21, 34, 64)
RANDOM = 4
"""Ways of cutting at random targets."""


def check(name: str, characters: int) -> tuple[int, int]:
    """Encodes a text in many ways; how many there were, and how many gave other ids than the whole."""
    tok, source = material.load(name), random.Random(0)
    text = "\n".join(material.corpus())
    text = (text * (1 + characters // len(text)))[:characters]
    engine = tok.engine("reference")
    whole, ways = engine.encode(text), []
    for count in CHUNKS:
        cuts = tok.planner.cuts(text, characters // count)
        ways.append(np.concatenate(tok.planner.encode_parts(parts(text, cuts), engine, continuation=False)))
    for _ in range(RANDOM):
        targets = sorted(source.sample(range(1, characters), source.randrange(2, 64)))
        cuts = sorted({tok.family.last_cut(text, 0, target) for target in targets} - {0})
        ways.append(np.concatenate(tok.planner.encode_parts(parts(text, cuts), engine, continuation=False)))
    served = (other for other in ("gigatoken", "tiktoken", "memo") if serves(name, other))
    ways += [tok.planner.encode(text, tok.engine(other)) for other in served]
    ways.append(tok.session(text, engine="reference").ids)
    ways.append(SessionStore(tok, engine="reference").encode(text))
    return len(ways), sum(not np.array_equal(ids, whole) for ids in ways)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--characters", type=int, default=4_000_000)
    characters, failed = parser.parse_args().characters, 0
    for name in material.available():
        count, different = check(name, characters)
        print(f"{name}: {characters:,} characters in {count} ways, {different} differ")
        failed += different
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
