"""The saved form of a session: what was packed comes back, and everything else is refused by one error."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Callable, Sequence
from types import FrameType
from typing import Any
from unittest import mock

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from toktier.errors import StateMismatch
from toktier.state import CHECKSUM, HEADER, LIBRARY, MAGIC, VERSION, State, pack, unpack

DIGEST = hashlib.sha256(b"a family").hexdigest()
OTHER = hashlib.sha256(b"another family").hexdigest()


def state_of(
    text: str,
    ids: Sequence[int],
    positions: Sequence[int] = (0,),
    counts: Sequence[int] = (0,),
    untrusted: Sequence[int] = (),
) -> State:
    columns = (np.array(column, np.int64) for column in (positions, counts, untrusted))
    return State(text, np.array(ids, np.uint32), *columns)


SMALL = state_of("Grüße, 世界 🙂", [0, 7, 2**32 - 1, 5], [0, 3, 7], [0, 2, 2], [1, 3, 5, 11])
PACKED = pack(SMALL, DIGEST)


@st.composite
def states(draw: st.DrawFn) -> State:
    text = draw(st.text())
    ids = draw(st.lists(st.integers(0, 2**32 - 1)))
    positions = [0, *sorted(draw(st.sets(st.integers(1, len(text))) if text else st.just(set())))]
    others = len(positions) - 1
    counts = [0, *sorted(draw(st.lists(st.integers(0, len(ids)), min_size=others, max_size=others)))]
    edges = sorted(draw(st.sets(st.integers(0, len(text)))))
    return state_of(text, ids, positions, counts, edges[len(edges) % 2 :])


def same(one: State, other: State) -> bool:
    def columns(state: State) -> list[npt.NDArray[Any]]:
        return [state.ids, state.positions, state.counts, state.untrusted]

    pairs = zip(columns(one), columns(other), strict=True)
    return one.text == other.text and all(a.dtype == b.dtype and a.tolist() == b.tolist() for a, b in pairs)


def sealed(content: bytes) -> bytes:
    """Content with a checksum that fits."""
    return content + hashlib.blake2b(content, digest_size=CHECKSUM).digest()


def with_lengths(*lengths: int) -> bytes:
    """The small state with other lengths, and a checksum that fits."""
    header = HEADER.pack(MAGIC, VERSION, bytes.fromhex(DIGEST), LIBRARY, *lengths)
    return sealed(header + PACKED[HEADER.size : -CHECKSUM])


@given(states())
def test_what_was_packed_comes_back(state: State) -> None:
    assert same(unpack(pack(state, DIGEST), DIGEST), state)


def buffers(data: bytes) -> dict[str, bytes | bytearray | memoryview]:
    spread = bytearray(2 * len(data))
    spread[::2] = data
    half = np.frombuffer(data, np.uint8).reshape(2, -1)
    return {
        "bytes": data,
        "bytearray": bytearray(data),
        "view": memoryview(data),
        "with gaps": memoryview(spread)[::2],
        "of numbers": np.frombuffer(data, np.uint16).data,
        "by columns": np.asfortranarray(half).data,
    }


@pytest.mark.parametrize("kind", list(buffers(b"....")))
def test_any_buffer_of_bytes_is_read(kind: str) -> None:
    state = state_of("four", [1, 2])  # an even number of bytes
    assert same(unpack(buffers(pack(state, DIGEST))[kind], DIGEST), state)


def test_what_was_read_shares_no_memory_with_the_buffer() -> None:
    data = bytearray(PACKED)
    state = unpack(data, DIGEST)
    data[:] = bytes(len(data))
    data += b"it may grow, too"
    assert same(state, SMALL)
    state = unpack(PACKED, DIGEST)
    state.ids[:] = 0
    assert same(unpack(PACKED, DIGEST), SMALL)


def test_arrays_of_other_types_and_byte_orders_are_packed_alike() -> None:
    ids, positions = SMALL.ids.astype(">u4"), SMALL.positions.astype(">i8")
    counts: npt.NDArray[Any] = SMALL.counts.astype(np.int32)
    swapped = State(SMALL.text, ids, positions, counts, SMALL.untrusted.astype(">i8"))
    assert pack(swapped, DIGEST) == PACKED


def test_the_format_is_as_it_was() -> None:
    """Whoever changes it on purpose gives it another version."""
    assert VERSION == 4
    with mock.patch("toktier.state.LIBRARY", b"0.23"):
        packed = pack(SMALL, DIGEST)
    assert hashlib.sha256(packed).hexdigest() == "f0d887404b036441fdaa0544250c4a2781155c1ace8c77151fefad6f9be92f68"


def test_every_truncation_is_refused() -> None:
    for length in range(len(PACKED)):
        with pytest.raises(StateMismatch, match="start the session from its text"):
            unpack(PACKED[:length], DIGEST)
        with pytest.raises(StateMismatch):
            unpack(PACKED[len(PACKED) - length :], DIGEST)
    with pytest.raises(StateMismatch, match="damaged or cut off"):
        unpack(PACKED + b"\0", DIGEST)


@pytest.mark.parametrize("mask", [0x01, 0x80, 0xFF])
def test_every_flipped_byte_is_refused(mask: int) -> None:
    for at in range(len(PACKED)):
        damaged = bytearray(PACKED)
        damaged[at] ^= mask
        with pytest.raises(StateMismatch, match="start the session from its text"):
            unpack(damaged, DIGEST)


TEXT, IDS, SEAMS, EDGES = len(SMALL.text.encode()), len(SMALL.ids), len(SMALL.positions), len(SMALL.untrusted)


@pytest.mark.parametrize(
    "lengths",
    [
        (2**64 - 1, 2**64 - 1, 2**64 - 1, 2**64 - 1),
        (2**63, 0, 0, 0),
        (0, 2**62, 0, 0),
        (0, 0, 2**60, 0),
        (0, 0, 0, 2**61),
        (TEXT, IDS, 2**60 + SEAMS, EDGES),  # in 64 bits the sum would be right
        (TEXT, 2**62 + IDS, SEAMS, EDGES),
        (TEXT, IDS, SEAMS, 2**61 + EDGES),
        (TEXT + 1, IDS, SEAMS, EDGES),
        (TEXT, IDS - 1, SEAMS, EDGES),
        (TEXT, IDS, SEAMS + 1, EDGES),
        (TEXT, IDS, SEAMS, EDGES - 1),
        (0, 0, 0, 0),
    ],
)
def test_lengths_that_do_not_add_up_are_refused(lengths: tuple[int, int, int, int]) -> None:
    with pytest.raises(StateMismatch, match="damaged or cut off"):
        unpack(with_lengths(*lengths), DIGEST)


def test_without_any_seam_a_state_is_refused() -> None:
    with pytest.raises(StateMismatch, match=r"do not begin at \(0, 0\)"):
        unpack(pack(state_of("text", [1], [], []), DIGEST), DIGEST)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (None, "is bytes, not NoneType"),
        ("text", "is bytes, not str"),
        ([1, 2], "is bytes, not list"),
        (b"", "0 bytes are too few"),
        (MAGIC, "too few"),
        (sealed(b"{" * 200), "something else than the state of a session"),
        (
            sealed(HEADER.pack(MAGIC, VERSION + 1, bytes(32), LIBRARY, 0, 0, 0, 0)),
            "has version 5, and this library reads version 4",
        ),
        (
            sealed(HEADER.pack(MAGIC, VERSION, bytes.fromhex(DIGEST), b"0.1", 0, 0, 0, 0)),
            r"was made with tokenizers 0\.1, and this is",
        ),
        (PACKED[:-1] + bytes([PACKED[-1] ^ 1]), "its checksum is another"),
        (pack(SMALL, OTHER), f"is of tokenizer {OTHER[:12]}, and this is {DIGEST[:12]}"),
        (sealed(PACKED[:-CHECKSUM].replace("ü".encode(), b"\xff\xff")), "is not UTF-8"),
        (sealed(PACKED[:-CHECKSUM].replace("世".encode(), b"\xed\xa0\x80")), "is not UTF-8"),  # a surrogate
        (pack(state_of("text", [1], [1], [0]), DIGEST), "do not begin at"),
        (pack(state_of("text", [1], [0], [1]), DIGEST), "do not begin at"),
        (pack(state_of("text", [1], [0, 2, 2], [0, 0, 0]), DIGEST), "do not ascend"),
        (pack(state_of("text", [1], [0, 2, 1], [0, 0, 0]), DIGEST), "do not ascend"),
        (pack(state_of("text", [1], [0, -1], [0, 0]), DIGEST), "do not ascend"),
        (pack(state_of("text", [1], [0, 2**63 - 1, -(2**63)], [0, 0, 0]), DIGEST), "do not ascend"),
        (pack(state_of("text", [1], [0, 5], [0, 0]), DIGEST), "outside its 4 characters"),
        (pack(state_of("text", [1], [0, 1, 2], [0, 1, 0]), DIGEST), "counts of the state descend"),
        (pack(state_of("text", [1], [0, 1], [0, -1]), DIGEST), "counts of the state descend"),
        (pack(state_of("text", [1], [0, 1, 2], [0, 2**63 - 1, -(2**63)]), DIGEST), "counts of the state descend"),
        (pack(state_of("text", [1], [0, 1], [0, 2]), DIGEST), "outside its 1 ids"),
        (pack(state_of("text", [1], untrusted=[1]), DIGEST), "do not ascend in pairs"),
        (pack(state_of("text", [1], untrusted=[1, 1]), DIGEST), "do not ascend in pairs"),
        (pack(state_of("text", [1], untrusted=[2, 1]), DIGEST), "do not ascend in pairs"),
        (pack(state_of("text", [1], untrusted=[-1, 1]), DIGEST), "spans of the state lie outside its 4 characters"),
        (pack(state_of("text", [1], untrusted=[1, 5]), DIGEST), "spans of the state lie outside its 4 characters"),
    ],
)
def test_each_defect_has_its_own_message(data: Any, message: str) -> None:
    with pytest.raises(StateMismatch, match=message) as caught:
        unpack(data, DIGEST)
    assert "start the session from its text" in str(caught.value)
    assert caught.value.__cause__ is None


def refused_or_valid(data: bytes) -> None:
    try:
        state = unpack(data, DIGEST)
    except StateMismatch:
        return
    assert state.positions[0] == state.counts[0] == 0
    assert (np.diff(state.positions) > 0).all()
    assert state.positions[-1] <= len(state.text)
    assert state.counts[-1] <= len(state.ids)


@given(st.tuples(*[st.integers(0, 40) | st.integers(0, 2**64 - 1)] * 4))
def test_whatever_the_lengths_nothing_else_is_raised(lengths: tuple[int, int, int, int]) -> None:
    refused_or_valid(with_lengths(*lengths))


@given(st.binary(max_size=60), st.integers(0, 60), st.integers(0, 15), *[st.integers(0, 3)] * 2)
def test_whatever_the_content_nothing_else_is_raised(
    content: bytes, text: int, ids: int, seams: int, edges: int
) -> None:
    header = HEADER.pack(MAGIC, VERSION, bytes.fromhex(DIGEST), LIBRARY, text, ids, seams, edges)
    refused_or_valid(content)
    refused_or_valid(sealed(header + content))
    refused_or_valid(sealed(header + content.ljust(text + 4 * ids + 16 * seams, b"\0")[: text + 4 * ids + 16 * seams]))


def lines_run(action: Callable[[], object]) -> int:
    """How many lines of Python an action runs."""
    lines = 0

    def trace(frame: FrameType, event: str, argument: object) -> Any:
        nonlocal lines
        lines += event == "line"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        action()
    finally:
        sys.settrace(before)
    return lines


def test_a_long_state_is_packed_and_read_without_a_loop() -> None:
    def lines(size: int) -> int:
        state = state_of("a" * size, [1] * size, range(size), range(size))
        return lines_run(lambda: unpack(pack(state, DIGEST), DIGEST))

    assert lines(10) == lines(10_000)
