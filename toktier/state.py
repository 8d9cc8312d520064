"""The saved form of a session: its text, ids and seams as bytes, which are read back whole or not at all.

Numbers are little-endian, the text is UTF-8, and BLAKE2b (RFC 7693) of all of it stands at the end. That shows damage;
it does not show who wrote it.
"""

from __future__ import annotations

import hashlib
import struct

import numpy as np
import numpy.typing as npt
import tiktoken
import tokenizers
from attrs import field, frozen

from toktier.errors import StateMismatch

MAGIC = b"toktier session\n"
VERSION = 4
HEADER = struct.Struct("<16sI32s64sQQQQ")
"""Magic, version, digest of the family, versions of the reference libraries, and how many bytes of text, ids, seams and
edges of untrusted text follow."""
LIBRARY = f"{tokenizers.__version__}, tiktoken {tiktoken.__version__}".encode()[:64]
"""Ids of another version of the reference are not those of this one: they follow different versions of Unicode."""
CHECKSUM = 16
"""Bytes of the BLAKE2b digest at the end, of everything before it."""

INSTEAD = "start the session from its text"


@frozen(eq=False)
class State:
    """What a session is.

    Attributes:
        text: Its text.
        ids: The ids of that; uint32, shape (ids,).
        positions: The seams, in characters from the beginning of the text, ascending from 0; int64, shape (seams,).
        counts: How many ids are left of each; int64, shape (seams,).
        untrusted: Where untrusted characters begin and end, by turns; ascending, int64, shape (2 * spans,).
    """

    text: str = field(repr=lambda text: f"<{len(text)} characters>")
    ids: npt.NDArray[np.uint32]
    positions: npt.NDArray[np.int64]
    counts: npt.NDArray[np.int64]
    untrusted: npt.NDArray[np.int64] = field(factory=lambda: np.zeros(0, np.int64))


def pack(state: State, digest: str) -> bytes:
    """A state as bytes.

    Args:
        state: The state.
        digest: The digest of the family that its ids are for, hexadecimal.

    Example:
        >>> state = State("Hi", np.array([7], np.uint32), np.array([0]), np.array([0]))
        >>> unpack(pack(state, "00" * 32), "00" * 32).text
        'Hi'
    """
    text = state.text.encode()
    header = HEADER.pack(
        MAGIC,
        VERSION,
        bytes.fromhex(digest),
        LIBRARY,
        len(text),
        len(state.ids),
        len(state.positions),
        len(state.untrusted),
    )
    arrays = state.ids, state.positions, state.counts, state.untrusted
    columns = [np.asarray(array, kind).tobytes() for array, kind in zip(arrays, COLUMNS, strict=True)]
    content = b"".join([header, text, *columns])
    return content + _checksum(content)


def unpack(data: bytes | bytearray | memoryview, digest: str) -> State:
    """The state that was packed.

    Args:
        data: What :func:`pack` gave.
        digest: The digest of the family that the ids must be for, hexadecimal.

    Raises:
        StateMismatch: It is no bytes, damaged, or of something else; the message says which.
    """
    if not isinstance(data, (bytes, bytearray, memoryview)):
        raise StateMismatch(f"the state of a session is bytes, not {type(data).__name__}; {INSTEAD}")
    # What can still change, or is not in one piece, is copied first.
    view = memoryview(data if isinstance(data, bytes) else bytes(data))
    if len(view) < HEADER.size + CHECKSUM:
        raise StateMismatch(f"{len(view)} bytes are too few for the state of a session; {INSTEAD}")
    magic, version, family, library, text_bytes, ids, seams, edges = HEADER.unpack_from(view)
    if magic != MAGIC:
        raise StateMismatch(f"this is something else than the state of a session, it begins with {magic!r}; {INSTEAD}")
    if version != VERSION:
        raise StateMismatch(f"the state has version {version}, and this library reads version {VERSION}; {INSTEAD}")
    size = HEADER.size + text_bytes + 4 * ids + 16 * seams + 8 * edges + CHECKSUM
    if len(view) != size:
        raise StateMismatch(f"the state is damaged or cut off (it has {len(view)} bytes, not {size}); {INSTEAD}")
    content = view[:-CHECKSUM]
    if _checksum(content) != view[-CHECKSUM:]:
        raise StateMismatch(f"the state is damaged, its checksum is another; {INSTEAD}")
    if family.hex() != digest:
        raise StateMismatch(f"the state is of tokenizer {family.hex()[:12]}, and this is {digest[:12]}; {INSTEAD}")
    if library.rstrip(b"\0") != LIBRARY:
        theirs, ours = (name.rstrip(b"\0").decode("ascii", "replace") for name in (library, LIBRARY))
        raise StateMismatch(f"the state was made with tokenizers {theirs}, and this is {ours}; {INSTEAD}")
    at, columns = HEADER.size + text_bytes, []
    for kind, length in zip(COLUMNS, (ids, seams, seams, edges), strict=True):
        columns.append(np.frombuffer(content, kind, length, at).astype(kind.newbyteorder("=")))
        at += columns[-1].nbytes
    try:
        state = State(str(content[HEADER.size : HEADER.size + text_bytes], "utf-8"), *columns)
    except UnicodeDecodeError as error:
        raise StateMismatch(f"the text of the state is not UTF-8 ({error}); {INSTEAD}") from None
    if (defect := _defect(state)) is not None:
        raise StateMismatch(f"{defect}; {INSTEAD}")
    return state


COLUMNS = tuple(map(np.dtype, ("<u4", "<i8", "<i8", "<i8")))


def _defect(state: State) -> str | None:
    """What is wrong with the seams, if anything is."""
    positions, counts = state.positions, state.counts
    if not len(positions) or positions[0] != 0 or counts[0] != 0:
        return "the seams of the state do not begin at (0, 0)"
    # Compared, not subtracted: a difference of two of these numbers may be beyond their type.
    if not (positions[1:] > positions[:-1]).all():
        return "the seams of the state do not ascend"
    if positions[-1] > len(state.text):
        return f"the seams of the state lie outside its {len(state.text)} characters"
    if not (counts[1:] >= counts[:-1]).all():
        return "the id counts of the state descend"
    if counts[-1] > len(state.ids):
        return f"the id counts of the state lie outside its {len(state.ids)} ids"
    edges = state.untrusted
    if len(edges) % 2 or not (edges[1:] > edges[:-1]).all():
        return "the untrusted spans of the state do not ascend in pairs"
    if len(edges) and not 0 <= edges[0] < edges[-1] <= len(state.text):
        return f"the untrusted spans of the state lie outside its {len(state.text)} characters"
    return None


def _checksum(content: bytes | memoryview) -> bytes:
    return hashlib.blake2b(content, digest_size=CHECKSUM).digest()
