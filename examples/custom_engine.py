"""An engine of your own in 30 lines, and how to find out that it is right.

You learn the ``Engine`` protocol: a session or a store accepts any object with ``name``, ``encode`` and
``encode_batch``. So a cache, a counter or another library is a small class. It must give exactly the ids of the
reference; a ``ShadowVerifier`` that looks at every answer tells whether it does.

    python examples/custom_engine.py
"""

from __future__ import annotations

import json
import logging
import pathlib
from collections import OrderedDict
from collections.abc import Sequence

import numpy as np

import toktier
from toktier.engines.base import Engine, Ids
from toktier.verify import Mismatch, ShadowVerifier


class CachingEngine:
    """Remembers what another engine gave for the texts that it had last: forks and retries ask for them again."""

    def __init__(self, engine: Engine, capacity: int = 4096) -> None:
        self.name = f"{engine.name}, cached"
        self.engine, self.capacity, self.hits = engine, capacity, 0
        self.known: OrderedDict[str, Ids] = OrderedDict()

    def encode(self, text: str, *, continuation: bool = False) -> Ids:
        """The ids of one text."""
        return self.encode_batch([text], continuation=continuation)[0]

    def encode_batch(self, texts: Sequence[str], *, continuation: bool = False) -> list[Ids]:
        """The ids of several: this is what a session calls, with the parts between some certified cuts."""
        new = [text for text in dict.fromkeys(texts) if text not in self.known]
        self.hits += len(texts) - len(new)
        self.known.update(zip(new, self.engine.encode_batch(new, continuation=continuation), strict=True))
        ids = [self.known[text] for text in texts]
        while len(self.known) > self.capacity:  # an engine bounds its memory
            self.known.popitem(last=False)
        return ids


class CachingLinesEngine(CachingEngine):
    """Remembers lines, of which many come again. Tempting, and wrong: tokens reach across the ends of lines."""

    def encode_batch(self, texts: Sequence[str], *, continuation: bool = False) -> list[Ids]:
        """The ids of several."""
        lines = [super(CachingLinesEngine, self).encode_batch(text.splitlines(keepends=True)) for text in texts]
        return [np.concatenate([np.empty(0, np.uint32), *some]) for some in lines]


def verified(tok: toktier.Tokenizer, engine: CachingEngine, texts: Sequence[str]) -> None:
    """Has a session take texts one after the other, twice, and compares every answer with the reference's."""
    mismatches: list[Mismatch] = []
    with ShadowVerifier(tok, sample=1.0, quarantine=None, on_mismatch=mismatches.append) as verifier:
        for session in (tok.session(engine=engine), tok.session(engine=engine)):
            for text in texts:
                if not mismatches:
                    session.append(text)
                    verifier.drain()  # beyond 64 answers that wait, those to come would be dropped
    checks = verifier.checks()
    print(f"{type(engine).__name__}: {checks.checked} answers compared, {checks.mismatched} differ; {engine.hits} hits")
    for mismatch in mismatches:
        operation = mismatch.reproduction.operations[-1]
        print(f"made small: {operation.changes[0].new!r}; {mismatch.reproduction.message}")


def main() -> None:
    """Compares a right engine and a wrong one with the reference, on a recorded session."""
    logging.getLogger("toktier").setLevel(logging.CRITICAL)  # mismatches are logged, and we print them
    file = pathlib.Path(__file__).with_name("agent_session.jsonl")
    messages = json.loads(file.read_text(encoding="utf-8"))["messages"]
    texts = [f"<|im_start|>{message['role']}\n{message['content']}<|im_end|>\n" for message in messages]
    tok = toktier.load("toktier-mini")
    for kind in (CachingEngine, CachingLinesEngine):
        verified(tok, kind(tok.engine("reference")), texts)


if __name__ == "__main__":
    main()
