"""Fuzz target: bytes are a program of operations on sessions of ``toktier-mini``, checked against the reference."""

from __future__ import annotations

from functools import cache

from attrs import define

from tests import material
from tests.rooms import small_rooms
from toktier.campaign.operations import END, Change, Kind, Operation, shown
from toktier.campaign.programs import run
from toktier.campaign.texts import EVERYWHERE, fragments

MOST_OPERATIONS = 24


@cache
def pool() -> tuple[str, ...]:
    """What texts are put together from: one byte chooses one."""
    found = [*EVERYWHERE * 3, *fragments(material.load("toktier-mini"))]
    # Far apart, so that a byte reaches every kind of fragment.
    return tuple(found[i * len(found) // 256] for i in range(256)) if len(found) > 256 else tuple(found)


@define
class Reader:
    """Bytes as numbers and texts; when they have run out, as nothing."""

    data: bytes
    at: int = 0

    def byte(self) -> int:
        self.at += 1
        return self.data[self.at - 1] if self.at <= len(self.data) else 0

    def text(self) -> str:
        """Up to seven fragments, or up to seven characters anywhere in Unicode."""
        kind = self.byte()
        if kind & 0x80:
            points = [self.byte() << 16 | self.byte() << 8 | self.byte() for _ in range(kind & 7)]
            return "".join(chr(p % 0x110000) for p in points if not 0xD800 <= p % 0x110000 < 0xE000)
        return "".join(pool()[self.byte() % len(pool())] for _ in range(kind & 7))

    def change(self) -> Change:
        return Change(self.place(), self.place(), self.text())

    def place(self) -> int:
        """A place in a text: counted from its beginning or its end, or the end itself."""
        place = self.byte()
        return END if place == 0xFF else place - 0xFF if place > 0xC0 else place


def program_of(data: bytes) -> list[Operation]:
    """The program that bytes are. Every byte string is one."""
    reader, kinds = Reader(data), [*Kind]
    program: list[Operation] = []
    while reader.at < len(data) and len(program) < MOST_OPERATIONS:
        head = reader.byte()
        kind = kinds[head % len(kinds)]
        changes: tuple[Change, ...] = ()
        if kind is Kind.APPEND:
            changes = (Change(END, END, reader.text()),)
        elif kind is not Kind.FORK:
            several = 1 + (head >> 6) if kind is Kind.UPDATE else 1
            changes = tuple(reader.change() for _ in range(several))
        program.append(Operation(kind, changes, head >> 3 & 3, look=bool(head & 0x20)))
    return program


def trial(data: bytes) -> int:
    """Runs one program.

    Returns:
        How many operations it had.

    Raises:
        AssertionError: The ids are not those of a full encode, or a promise of sessions was broken.
    """
    program = program_of(data)
    with small_rooms():
        problem = run(program, material.load("toktier-mini"), material.reference("toktier-mini"))
    assert problem is None, f"{problem}\n{shown(program)}"
    return len(program)
