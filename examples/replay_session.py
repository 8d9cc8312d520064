"""Replay an agent session turn by turn, and keep a copy of its ids up to date by patches alone.

You learn how a serving front end holds the ids of a growing transcript: one ``Session`` per conversation, one
``append`` or ``update`` per turn, and a ``Patch`` that tells whoever holds a copy (a KV-cache index, a list in another
process) what changed, so that nobody ever sends or compares the whole.

    python examples/replay_session.py
"""

from __future__ import annotations

import argparse
import inspect
import json
import time
from collections.abc import Iterator

import toktier

PROMPT = "<|im_start|>assistant\n<think>\n"
"""Makes the model begin to answer. It is no part of the transcript: the next turn has the answer in its place."""


def message(role: str, content: str) -> str:
    """One message as ChatML."""
    return f"<|im_start|>{role}\n{content}<|im_end|>\n"


def agent_session() -> Iterator[tuple[str, str]]:
    """What the model answered last, and what it is asked now: an agent that reads a class, method by method."""
    question = "How does argparse tell an option from an argument? Read it."
    yield "", message("system", "You are a coding agent.") + message("user", question)
    for name, method in inspect.getmembers(argparse.ArgumentParser, inspect.isfunction):
        call = json.dumps({"name": "read_source", "arguments": {"of": f"argparse.ArgumentParser.{name}"}})
        answer = f"Next I read {name}.\n<tool_call>\n{call}\n</tool_call>"
        source = f"<tool_response>\n{inspect.getsource(method)}</tool_response>"
        yield message("assistant", answer), message("user", source)


def main() -> None:
    """Leads one session through all turns, and checks each against a full encode."""
    tok = toktier.load("toktier-mini")
    session = tok.session()
    downstream: list[int] = []  # what another process would hold; only patches reach it
    transcript = ""

    print(f"{'turn':>4} {'characters':>10} {'ids':>7} {'changed':>15} {'update':>10} {'full encode':>12}")
    for turn, (answer, request) in enumerate(agent_session()):
        transcript += answer + request
        # Front ends send the whole text, rendered again. `update` finds out what changed: here the answer stands where
        # the prompt was. A front end that knows that calls `append` or `edit`, and saves even the comparison.
        text = transcript + PROMPT
        start = time.perf_counter()
        patch = session.update(text)
        updated = time.perf_counter()
        expected = tok.encode(text)
        encoded = time.perf_counter()

        patch.apply(downstream)  # downstream[patch.start : patch.stop] = patch.ids
        assert downstream == expected.tolist(), "the copy is what a full encode gives"

        if turn % 6 == 0:
            changed = f"{patch.start}:{patch.stop} +{len(patch.ids)}"
            times = f"{(updated - start) * 1e3:>7.2f} ms {(encoded - updated) * 1e3:>9.2f} ms"
            print(f"{turn:>4} {len(text):>10,} {len(session):>7,} {changed:>15} {times}")

    assert session.tolist() == downstream
    print("Every turn equal to a full encode.")


if __name__ == "__main__":
    main()
