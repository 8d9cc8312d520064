"""What a transcript that grows by turns costs a program that was written for a tokenizer of transformers."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from transformers import PreTrainedTokenizerFast

import toktier
from benchmarks.common import Figure, anew, arguments, beside, show, timed, transcript
from tests import material
from toktier.bench.measuring import engine_of
from toktier.integrations.transformers import wrap

TURN = 1_400
"""Characters that each turn adds."""

SIZES = {"100 K": 100_000, "1 M": 1_000_000}

CALLS: dict[str, Callable[[Any, str], Any]] = {
    "tokenizer(text)": lambda tokenizer, text: tokenizer(text),
    "tokenizer.encode(text)": lambda tokenizer, text: tokenizer.encode(text),
    'tokenizer(text, return_tensors="np")': lambda tokenizer, text: tokenizer(text, return_tensors="np"),
    "tokenizer.apply_chat_template(messages)": lambda tokenizer, text: tokenizer.apply_chat_template(
        [{"role": "user", "content": text}]
    ),
}
"""What the program does with the whole transcript on each turn."""

TEMPLATE = "{% for message in messages %}{{ message.content }}{% endfor %}"


def equal(one: Any, other: Any) -> bool:
    """Whether two results are: in keys and their order, values and types."""
    if isinstance(one, list):
        return type(one) is type(other) and one == other
    return list(one) == list(other) and all(
        type(one[key]) is type(other[key])
        and getattr(one[key], "dtype", int) == getattr(other[key], "dtype", int)
        and np.array_equal(one[key], other[key])
        for key in one
    )


def turns(contenders: dict[str, Any], what: str, size: int, rounds: int) -> dict[str, list[float]]:
    """The seconds that a call takes each contender on each turn after the first, in turns with one another."""
    call, text = CALLS[what], transcript(size + (rounds + 1) * TURN)
    seconds: dict[str, list[float]] = {name: [] for name in contenders}
    for number in range(rounds + 1):
        expected: Any = None
        for name, tokenizer in contenders.items():
            full = anew(text[: size + number * TURN])
            gc.collect()
            start = time.perf_counter()
            result = call(tokenizer, full)
            took = time.perf_counter() - start
            if number:  # of the first one there is nothing to go on from
                seconds[name].append(took)
            if expected is None:
                expected = result
            elif not equal(result, expected):
                raise SystemExit(f"{what} by {name} is another one than that of the plain tokenizer")
            del result
    return seconds


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--tokenizer", default="toktier-mini", choices=material.available())
    parser.add_argument("--rounds", type=int, default=9, help="turns after the first, of each call and size")
    parser.add_argument("--quick", action="store_true", help="the shorter transcript alone")
    options = parser.parse_args()
    kind: Any = PreTrainedTokenizerFast
    plain = kind(tokenizer_file=str(material.file(options.tokenizer)), chat_template=TEMPLATE)
    tok = toktier.load(plain)
    figures: list[Figure] = []
    for at, size in SIZES.items():
        if options.quick and size > 100_000:
            continue
        for what in CALLS:
            contenders: dict[str, Any] = {"plain": plain}
            for name in ("reference", "memo", "tiktoken", "gigatoken"):
                if not isinstance(engine_of(tok, name), str):
                    contenders[name] = wrap(plain, toktier.SessionStore(tok, engine=name))
            seconds = turns(contenders, what, size, options.rounds)
            figures += [
                beside(timed(what, at, seconds["plain"]), name, seconds[name]) for name in contenders if name != "plain"
            ]
    show(f"{options.tokenizer}: a turn of {TURN:,} characters, all results equal", figures, options.json)


if __name__ == "__main__":
    main()
