"""Insert, replace and delete far from the end of a long text, and see how little has to be encoded again.

You learn what an edit costs: the engine sees the change and the characters out to the next *seams*, certified cuts at
which the ids on either side are known to be independent of one another. All other ids stay, and are not even looked at.
You also learn the ``Engine`` protocol: a session accepts any object with ``name``, ``encode`` and ``encode_batch``, so
that counting, logging or an encoder of your own is a small class.

    python examples/edit_in_the_middle.py
"""

from __future__ import annotations

import argparse
import inspect
from collections.abc import Sequence

import toktier
from toktier.engines.base import Engine, Ids


class CountingEngine:
    """Passes everything on to another engine, and counts the characters."""

    def __init__(self, engine: Engine) -> None:
        self.name = f"counting {engine.name}"
        self.engine = engine
        self.characters = 0

    def encode(self, text: str, *, continuation: bool = False) -> Ids:
        """The ids of one text."""
        self.characters += len(text)
        return self.engine.encode(text, continuation=continuation)

    def encode_batch(self, texts: Sequence[str], *, continuation: bool = False) -> list[Ids]:
        """The ids of several: this is what a session calls, with the parts between some certified cuts."""
        self.characters += sum(map(len, texts))
        return self.engine.encode_batch(texts, continuation=continuation)


def main() -> None:
    """Edits one text three times, and checks each result against a full encode."""
    tok = toktier.load("toktier-mini")
    engine = CountingEngine(tok.engine())
    text = inspect.getsource(argparse)
    session = tok.session(engine=engine)
    # As it comes, turn by turn. What is given at once has its seams farther apart, until the first edit there.
    for start in range(0, len(text), 1400):
        session.append(text[start : start + 1400])
    print(f"{len(text):,} characters, {len(session):,} ids\n")
    print(f"{'':10} {'characters':>12} {'the engine saw':>16} {'ids gone':>10} {'ids new':>9}")

    middle = text.index("class HelpFormatter")
    word = text.index("formatter", middle)
    end = text.index("class RawDescriptionHelpFormatter")
    edits = [
        ("insert", middle, middle, "# Someone edits the file that the agent has read.\n"),
        ("replace", word, word + len("formatter"), "printer"),
        ("delete", end - 2000, end, ""),
    ]
    # From the back to the front, so that the positions of those to come stay what they are.
    for what, start, stop, new in sorted(edits, key=lambda edit: -edit[1]):
        engine.characters = 0
        patch = session.edit(start, stop, new)
        change = f"-{stop - start} +{len(new)}"
        print(f"{what:10} {change:>12} {engine.characters:>16,} {patch.stop - patch.start:>10,} {len(patch.ids):>9,}")

        # The contract: whatever was done to it, a session has the ids of a full encode.
        text = text[:start] + new + text[stop:]
        assert session.text == text
        assert session.tolist() == tok.encode(text).tolist()
        assert engine.characters < len(text) // 20, "an edit never sends the whole text to the engine"
    print("\nEvery edit equal to a full encode.")


if __name__ == "__main__":
    main()
