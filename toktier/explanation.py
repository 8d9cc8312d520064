"""What the last call did and why, for whoever looks at one that was slow or odd."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias


class Explanation(dict[str, Any]):
    """Facts by name, all of them JSON; ``str()`` of it is one line for people.

    Example:
        >>> print(Explanation(call="append", why="everything is new"))
        append: everything is new
    """

    def __str__(self) -> str:
        return f"{self['call']}: {self['why']}"

    def found(self, what: str, met: str | None) -> Explanation:
        """The same, and what a store met when it looked for a session or a text."""
        return Explanation(self | {"met": met, "why": f"{what} {met}; {self['why']}"})


Account: TypeAlias = Callable[[], Explanation]
"""An explanation that is made when somebody asks for it."""


class Step(NamedTuple):
    """What a session did last.

    Attributes:
        call: What was called.
        windows: Where something was encoded, in characters of the text as it is now: the first one and how many.
        start: The first id that changed.
        stop: The end of those that were replaced.
        ids: How many took their place.
        took: Nanoseconds.
    """

    call: str
    windows: list[tuple[int, int]]
    start: int
    stop: int
    ids: int
    took: int


def explained(step: Step, characters: int, engine: str, fallback: str | None) -> Explanation:
    """Puts a step into words.

    Args:
        step: What was done.
        characters: Of the whole text.
        engine: The name of what encoded.
        fallback: Why everything was encoded, or the reference answered in the engine's place, if that was so.
    """
    encoded = sum(size for _, size in step.windows)
    if not step.windows:
        why = f"nothing of {characters:,} characters had to be encoded"
    elif encoded >= characters:
        why = f"all of {characters:,} characters encoded"
    elif len(step.windows) == 1:
        why = f"{encoded:,} of {characters:,} characters encoded, from the certified cut at {step.windows[0][0]:,} on"
    else:
        why = f"{encoded:,} of {characters:,} characters encoded, in {len(step.windows)} places"
    why += f" by {engine}" * bool(step.windows)
    if fallback and step.windows:
        why += f": {fallback}"
    why += f"; {step.ids:,} ids replace {step.stop - step.start:,}; {step.took / 1e6:,.3f} ms"
    return Explanation(
        call=step.call,
        engine=engine,
        characters=characters,
        encoded=encoded,
        reused=max(characters - encoded, 0),
        places=len(step.windows),
        windows=[[start, start + size] for start, size in sorted(step.windows)],
        start=step.start,
        stop=step.stop,
        ids=step.ids,
        seconds=step.took / 1e9,
        fallback=fallback,
        why=why,
    )
