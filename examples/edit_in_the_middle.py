"""Insert, replace and delete far from the end of a long text, and see how little has to be encoded again.

You learn what an edit costs: the engine sees the change and the characters out to the next *seams*, certified cuts at
which the ids on either side are known to be independent of one another. All other ids stay, and are not even looked at.

    python examples/edit_in_the_middle.py

The text is ten times the transcript of ``examples/agent_session.jsonl``.
"""

from __future__ import annotations

import json
import pathlib
import time

import toktier


def transcript() -> str:
    """The messages of a recorded session, rendered as ChatML."""
    file = pathlib.Path(__file__).with_name("agent_session.jsonl")
    messages = json.loads(file.read_text(encoding="utf-8"))["messages"]
    return "".join(f"<|im_start|>{message['role']}\n{message['content']}<|im_end|>\n" for message in messages)


def main() -> None:
    """Edits one text three times, and checks each result against a full encode."""
    tok = toktier.load("toktier-mini")
    reference = tok.engine("reference")  # Hugging Face tokenizers, which says what is right
    text = 10 * transcript()
    session = tok.session()
    # As it comes, turn by turn. What is given at once has its seams farther apart, until the first edit there.
    for start in range(0, len(text), 1400):
        session.append(text[start : start + 1400])
    print(f"{len(text):,} characters, {len(session):,} ids\n")
    print(f"{'':10} {'characters':>12} {'encoded':>9} {'ids gone':>10} {'ids new':>9} {'edit':>10} {'full encode':>14}")

    middle = text.index("<|im_start|>tool\n", len(text) // 2)
    word = text.index("Costs one pass", middle)
    answer = text.index("<|im_start|>assistant\n", word)
    edits = [
        ("insert", middle, middle, "<|im_start|>system\nAnswer in one sentence.<|im_end|>\n"),
        ("replace", word, word + len("Costs one pass"), "Takes a while"),
        ("delete", answer, text.index("<|im_start|>", answer + 1), ""),
    ]
    # From the back to the front, so that the positions of those to come stay what they are.
    for what, start, stop, new in reversed(edits):
        patch = session.edit(start, stop, new)
        explanation = session.explain()  # what the last operation did, and why
        encoded, took = explanation["encoded"], explanation["seconds"]

        # The contract: whatever was done to it, a session has the ids of a full encode.
        text = text[:start] + new + text[stop:]
        began = time.perf_counter()
        expected = reference.encode(text)
        full = time.perf_counter() - began
        assert session.text == text
        assert session.tolist() == expected.tolist()

        change = f"-{stop - start} +{len(new)}"
        ids = f"{patch.stop - patch.start:>10,} {len(patch.ids):>9,}"
        print(f"{what:10} {change:>12} {encoded:>9,} {ids} {took * 1e3:>7.2f} ms {full * 1e3:>11.2f} ms")
        assert encoded < len(text) // 50, "an edit never sends the whole text to the engine"
    print("\nEvery edit equal to a full encode.")


if __name__ == "__main__":
    main()
