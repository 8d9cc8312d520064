"""How far apart certified cuts lie, in characters: what a session encodes again beside a change.

On the agent sessions as rendered ChatML, and on the Universal Declaration of Human Rights in a hundred languages.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

import numpy as np

from benchmarks.common import arguments, number, table, write
from tests import material
from toktier.families.family import Family


def distances(family: Family, texts: Sequence[str]) -> dict[str, float]:
    """The distances over all the texts, of which the beginning and the end count as cuts."""
    gaps = np.concatenate(
        [np.diff(family.cuts(text, continuation=True), prepend=0, append=len(text)) for text in texts]
    )
    return {"mean": float(gaps.mean()), "median": float(np.median(gaps)), "99 %": float(np.percentile(gaps, 99))}


def main() -> None:
    options = arguments(__doc__).parse_args()
    corpora = {"agent sessions": [material.chatml(messages) for messages in material.agent_sessions()]}
    file = material.SHARED / "corpus" / "udhr.jsonl"
    if file.is_file():
        lines = file.read_text(encoding="utf-8").splitlines()
        corpora["declarations"] = [json.loads(line)["text"] for line in lines]
    figures = [
        {"tokenizer": name, "texts": texts} | distances(material.load(name).family, corpora[texts])
        for texts in corpora
        for name in material.available()
    ]
    title = "Characters between two certified cuts"
    rows = [[value if isinstance(value, str) else number(value) for value in figure.values()] for figure in figures]
    table(title, list(figures[0]), rows)
    write(title, figures, options.json)


if __name__ == "__main__":
    main()
