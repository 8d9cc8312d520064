"""Replay an agent session turn by turn, and keep a copy of its ids up to date by patches alone.

You learn how a serving front end holds the ids of a growing transcript: one ``Session`` per conversation, one
``append`` or ``update`` per turn, and a ``Patch`` that tells whoever holds a copy (a KV-cache index, a list in another
process) what changed, so that nobody ever sends or compares the whole.

    python examples/replay_session.py

The transcript is ``examples/agent_session.jsonl``: an agent that looks for something in this project. ``toktier demo
--session FILE`` replays one of yours.
"""

from __future__ import annotations

import json
import pathlib
import time
from collections.abc import Iterator

import toktier

PROMPT = "<|im_start|>assistant\n<think>\n"
"""Makes the model begin to answer. It is no part of the transcript: the next turn has the answer in its place."""


def transcripts() -> Iterator[str]:
    """The transcript as it is each time that the model is asked, rendered as ChatML."""
    file = pathlib.Path(__file__).with_name("agent_session.jsonl")
    transcript = ""
    for message in json.loads(file.read_text(encoding="utf-8"))["messages"]:
        transcript += f"<|im_start|>{message['role']}\n{message['content']}<|im_end|>\n"
        if message["role"] in ("user", "tool"):
            yield transcript


def main() -> None:
    """Leads one session through all turns, and checks each against a full encode."""
    tok = toktier.load("toktier-mini")
    session, reference = tok.session(), tok.engine("reference")  # Hugging Face tokenizers, which says what is right
    downstream: list[int] = []  # what another process would hold; only patches reach it

    print(f"{'turn':>4} {'characters':>10} {'ids':>7} {'changed':>15} {'update':>10} {'full encode':>12}")
    for turn, transcript in enumerate(transcripts()):
        # Front ends send the whole text, rendered again. `update` finds out what changed: here the answer stands where
        # the prompt was. A front end that knows that calls `append` or `edit`, and saves even the comparison.
        text = transcript + PROMPT
        start = time.perf_counter()
        patch = session.update(text)
        updated = time.perf_counter()
        expected = reference.encode(text)
        encoded = time.perf_counter()

        patch.apply(downstream)  # downstream[patch.start : patch.stop] = patch.ids
        assert downstream == expected.tolist(), "the copy is what tokenizers gives for the whole text"

        if turn % 2 == 0:
            changed = f"{patch.start}:{patch.stop} +{len(patch.ids)}"
            times = f"{(updated - start) * 1e3:>7.2f} ms {(encoded - updated) * 1e3:>9.2f} ms"
            print(f"{turn:>4} {len(text):>10,} {len(session):>7,} {changed:>15} {times}")

    assert session.tolist() == downstream
    print("Every turn equal to a full encode.")


if __name__ == "__main__":
    main()
