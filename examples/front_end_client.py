"""Start ``examples/front_end.py`` and replay an agent session against it, as a client that keeps a copy of the ids.

You learn what is sent and what comes back: after the first answer only what changed. A client that missed an answer
notices by the checksum, and asks for all ids once.

    python examples/front_end_client.py
"""

from __future__ import annotations

import contextlib
import pathlib
import socket
import subprocess
import sys
import time
import zlib
from collections.abc import Iterator
from typing import Any

import httpx
import numpy as np

import toktier
from toktier.replay import PROMPT, read_transcripts

HERE = pathlib.Path(__file__).parent


@contextlib.contextmanager
def front_end(*options: str) -> Iterator[httpx.Client]:
    """A front end in a process of its own, and a client for it."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    process = subprocess.Popen([sys.executable, HERE / "front_end.py", "--port", str(port), *options])
    try:
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=60) as client:
            while True:
                with contextlib.suppress(httpx.ConnectError):
                    client.get("/health")
                    break
                if process.poll() is not None:
                    raise RuntimeError(f"the front end has ended, exit status {process.returncode}")
                time.sleep(0.05)
            yield client
    finally:
        process.terminate()  # it answers what it has begun, and closes its store
        process.wait(20)


class Copy:
    """A client's copy of the ids of one session."""

    def __init__(self, client: httpx.Client, session: str) -> None:
        self.client, self.session = client, session
        self.ids: list[int] = []

    def update(self, prompt: str) -> str:
        """Brings the copy to a prompt; says what had to be sent for that."""
        answer = self.ask(prompt, patch=True)
        patch = answer["patch"]
        if patch["before"] is None:  # the store has no earlier state: the patch has all ids
            self.ids = patch["tokens"]
            return f"all {len(self.ids):,} ids"
        self.ids[patch["start"] : patch["stop"]] = patch["tokens"]
        if zlib.crc32(np.array(self.ids, "<u4").data) == answer["checksum"]:
            return f"{len(patch['tokens']):,} of {len(self.ids):,} ids"
        self.ids = self.ask(prompt, patch=False)["tokens"]
        return f"all {len(self.ids):,} ids, since an answer was missed"

    def ask(self, prompt: str, *, patch: bool) -> Any:
        """What the front end answers."""
        body = {"prompt": prompt, "patch": patch}
        answer = self.client.post("/v1/tokenize", json=body, headers={"X-Session-ID": self.session})
        return answer.raise_for_status().json()


def main() -> None:
    """Replays the session, loses an answer on the way, and does some things that are refused."""
    reference = toktier.load("toktier-mini").engine("reference")
    [messages] = read_transcripts(HERE / "agent_session.jsonl")
    with front_end("--tokenizer", "toktier-mini") as client:
        copy, transcript = Copy(client, "chat-42"), ""
        for turn, message in enumerate(messages):
            transcript += message.chatml()
            if message.role == "assistant":
                continue
            prompt = transcript + PROMPT
            if turn == 13:
                copy.ask(prompt, patch=True)  # an answer that gets lost on its way
                continue
            came = copy.update(prompt)
            assert copy.ids == reference.encode(prompt).tolist()
            if turn % 6 == 1 or turn == 15:
                print(f"turn {turn:>2}, {len(prompt):>6,} characters: {came}")
        print("After every turn the copy had the ids of a full encode.\n")

        session = {"session_id": "chat-42"}
        asked = client.post("/v1/completions", json={"prompt": prompt + "\n", **session, "max_tokens": 5}).json()
        print(asked["choices"][0], asked["usage"], sep="\n", end="\n\n")

        too_long = f'{{"prompt": "{"a" * 4_000_001}"}}'
        for body in ('{"prompt": "half a character: \\ud800"}', '{"prompt": 42}', '{"prompt": ', too_long):
            refused = client.post("/v1/tokenize", content=body, headers={"Content-Type": "application/json"})
            print(refused.status_code, refused.json()["error"]["message"])

        lines = client.get("/metrics").text.splitlines()
        print("", *(line for line in lines if line.startswith(("toktier_lookups", "front_end_refused_t"))), sep="\n")


if __name__ == "__main__":
    main()
