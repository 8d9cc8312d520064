"""How far apart certified cuts lie, in characters: what a session encodes again beside a change.

On the agent sessions as rendered ChatML, and on the Universal Declaration of Human Rights in a hundred languages.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

import numpy as np

from benchmarks.common import Figure, arguments, show
from tests import material
from toktier.families.family import Family

MEAN = 7.0
"""Characters: what the mean distance on the agent sessions must stay below."""


def distances(family: Family, texts: Sequence[str], on: str, name: str, limit: float | None = None) -> list[Figure]:
    """Mean, median and 99th percentile over all the texts; the begin and the end of each count as cuts."""
    gaps = np.concatenate([np.diff(family.cuts(text), prepend=0, append=len(text)) for text in texts])
    what = f"{name}, {on}"
    return [
        Figure(what, "mean", float(gaps.mean()), "characters", limit=limit),
        Figure(what, "median", float(np.median(gaps)), "characters"),
        Figure(what, "99 %", float(np.percentile(gaps, 99)), "characters"),
    ]


def main() -> None:
    options = arguments(__doc__).parse_args()
    sessions = [material.chatml(messages) for messages in material.agent_sessions()]
    file = material.SHARED / "corpus" / "udhr.jsonl"
    lines = file.read_text(encoding="utf-8").splitlines() if file.is_file() else []
    declarations = [json.loads(line)["text"] for line in lines]
    figures: list[Figure] = []
    for name in material.supported():
        family = material.load(name).family
        figures += distances(family, sessions, "agent sessions", name, MEAN)
        if declarations:
            figures += distances(family, declarations, "declarations", name)
    show("Distance between certified cuts", figures, options.json)


if __name__ == "__main__":
    main()
