"""Many threads at one store, for as long as it takes to trust it: ``python -m tests.stress --seconds 60``."""

from __future__ import annotations

import argparse
import faulthandler
import pathlib
import random
import tempfile
import threading
import time

from tests import material
from toktier import SessionStore


def stress(
    some: SessionStore, long_text: str, *, seconds: float, threads: int = 16, names: int = 200, every: int = 50
) -> tuple[int, int]:
    """Calls of all kinds from many threads at once; how many were made, and how many were checked."""
    until = time.monotonic() + seconds
    problems: list[str] = []
    reference = material.reference("toktier-mini")
    counts = [[0, 0] for _ in range(threads)]

    def work(number: int) -> None:
        source = random.Random(number)
        try:
            while time.monotonic() < until and not problems:
                name = source.randrange(names)
                begin = (name % 7) * 100
                end = begin + source.randrange(40_000)
                text = long_text[begin:end]
                if source.random() < 0.2:
                    at = source.randrange(len(text) + 1)
                    text = text[:at] + "edited" + text[at + source.randrange(50) :]
                session = None if source.random() < 0.2 else str(name)
                if source.random() < 0.02:
                    some.forget(str(name))
                ids = some.encode(text, session=session)
                counts[number][0] += 1
                if counts[number][0] % every == 0:
                    counts[number][1] += 1
                    if ids.tolist() != reference(text):
                        problems.append(f"{session}: {len(text)} characters")
        except Exception as error:
            problems.append(repr(error))

    running = [threading.Thread(target=work, args=(number,)) for number in range(threads)]
    for thread in running:
        thread.start()
    for thread in running:
        thread.join(seconds + 60)
        assert not thread.is_alive(), "a deadlock"
    assert problems == []
    return sum(count[0] for count in counts), sum(count[1] for count in counts)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=60)
    seconds = parser.parse_args().seconds
    faulthandler.dump_traceback_later(2 * seconds + 120, exit=True)
    text = material.transcripts(300_000)
    with tempfile.TemporaryDirectory() as folder:
        for path in (None, pathlib.Path(folder, "sessions")):
            with SessionStore(material.load("toktier-mini"), max_bytes=5_000_000, path=path) as store:
                calls, checked = stress(store, text, seconds=seconds)
                where = "in memory" if path is None else "with a file"
                print(f"{where}: {calls:,} calls, {checked:,} of them checked, 0 differences; {store.usage()}")


if __name__ == "__main__":
    main()
