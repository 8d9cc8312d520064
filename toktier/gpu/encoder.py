"""A request on its way through a device: in with one copy, through one chain of kernels, out with another.

The chain of a bucket is prepared once for a certain capacity; how much of it a request needs stands in counters on the
device. The host waits twice: for the counts, and for the ids. In between it encodes what the device left to it, if
there is anything.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from attrs import define, field, frozen

from toktier.engines.base import Ids, Unavailable
from toktier.gpu.device import Array, Chain, Device, Fill, Launch, Queue, Step
from toktier.gpu.source import fields
from toktier.gpu.tables import Tables

TILE, THREADS, WARP = 1024, 256, 32
"""Bytes of text for a block; its threads; threads of a warp. As in ``kernels/prelude.cuh``."""

COUNTERS = 16
SIZE, DOCUMENTS, TEXT_AT, REWRITTEN, DEFERRALS, MEDIUMS, LENGTHIES, TOKENS, OVERFLOWS = range(9)
"""The counters, as in ``kernels/tables.cuh``."""

PADDING = 16
"""Bytes behind a text that kernels may read."""

EXPANSION = 3
"""Bytes that may come of each byte of a text, on average. A space becomes three where it is written as U+2581."""

SMALLEST, LARGEST = 1 << 16, 1 << 26
"""Bytes of text in the smallest and the largest bucket. For each, a bucket takes some 20 bytes of memory of the device,
and 60 where text is rewritten."""

LISTED = 1 << 10
"""Segments that were left to the host of which it learns with the counts; of more, it has to ask."""

SCANNERS = 1024
"""Threads of a block that is alone in its grid."""

TURNS = 1 << 10
"""Blocks of a kernel that takes things in turn, however many there are."""

TEXT_BYTES = 32
"""Bytes of a bucket for each text: of empty ones it can take as many as it has room for their begins."""

HostEncode = Callable[[Sequence[str], Sequence[bool]], list[Ids]]
"""Encodes texts, of which some continue others, on the host."""


class TooMuch(Exception):
    """The device has no room for a request. The message says why."""


@frozen(eq=False)
class Encoded:
    """What came of a request.

    Attributes:
        ids: The ids of all texts, one after the other, uint32, on the device; shape (tokens,) and more.
        ends: Where the ids of each text end, int64, shape (texts,).
        staged: The same ids on the host, in memory that the next request writes to.
        host_segments: How many stretches of text the host encoded.
        host_bytes: And of how many bytes.
    """

    ids: Array
    ends: npt.NDArray[np.int64]
    staged: npt.NDArray[np.uint32]
    host_segments: int
    host_bytes: int


class _Careful:
    """A queue of which every failure is :class:`Unavailable`: none of them is a matter of the text."""

    def __init__(self, queue: Queue) -> None:
        self._queue = queue

    def write(self, target: Array, source: npt.NDArray[Any]) -> None:
        with device_errors():
            self._queue.write(target, source)

    def read(self, target: npt.NDArray[Any], source: Array) -> None:
        with device_errors():
            self._queue.read(target, source)

    def run(self, chain: Chain) -> None:
        with device_errors():
            chain.run()

    def wait(self) -> None:
        with device_errors():
            self._queue.wait()


@contextlib.contextmanager
def device_errors() -> Iterator[None]:
    """Makes :class:`Unavailable` of what a device raises, but for too little memory."""
    try:
        yield
    except MemoryError:
        raise
    except Exception as error:
        raise Unavailable(f"the device failed: {error!r}") from error


class Staging:
    """Memory of the host for numbers, uint32, that grows to what is needed: to make it takes long.

    Args:
        device: What copies from and to it.
    """

    def __init__(self, device: Device) -> None:
        self._device = device
        self._memory = np.zeros(0, np.uint32)

    def of(self, size: int) -> npt.NDArray[np.uint32]:
        """So many of them, with anything in them; what was given before is not to be used any more."""
        if size > len(self._memory):
            with device_errors():
                self._memory = self._device.staging(4 << size.bit_length()).view(np.uint32)
        return self._memory[:size]


class Bucket:
    """The memory and the chain for requests of up to some size; one request at a time.

    Args:
        device: Where it is.
        tables: Those of the family, on the device, as one structure.
        rewrites: Whether the text becomes another one.
        capacity: Bytes of text, a power of two.
        host: Encodes what the device does not.
    """

    def __init__(self, device: Device, tables: Array, rewrites: bool, capacity: int, host: HostEncode) -> None:
        self.capacity = capacity
        self.documents = capacity // TEXT_BYTES
        self._host = host
        queue = device.queue()
        self._queue = _Careful(queue)
        room = EXPANSION * capacity + PADDING if rewrites else capacity
        tiles, raw_tiles = _parts(room, TILE), _parts(capacity, TILE)
        lists, deferrable = _parts(room, WARP) + 1, capacity // 8
        header = 4 * (COUNTERS + self.documents)
        arrays: dict[str, Array] = {
            "input": device.empty(header + capacity + PADDING, np.uint8),
            "marks": device.empty(tiles * TILE, np.uint8),
            "firsts": device.empty(tiles, np.uint32),
            "slots": device.empty(room, np.uint32),
            "medium": device.empty(2 * lists, np.uint32),
            "lengthy": device.empty(2 * lists, np.uint32),
            "deferred": device.empty(2 * deferrable, np.uint32),
            "patches": device.empty(2 * deferrable, np.uint32),
            "places": device.empty(deferrable, np.uint32),
            "patch_ids": device.empty(capacity, np.uint32),
            "weights": device.empty(tiles, np.uint32),
            "ids": device.empty(room + capacity, np.uint32),
            "counts": device.empty(self.documents + 1 + COUNTERS, np.uint32),
        }
        if rewrites:
            arrays |= {
                "raw_marks": device.empty(raw_tiles * TILE, np.uint8),
                "raw_slots": device.empty(capacity, np.uint32),
                "widths": device.empty(raw_tiles, np.uint32),
                "text": device.empty(room + PADDING, np.uint8),
                "origins": device.empty(room, np.uint32),
                "begins": device.empty(self.documents, np.uint32),
            }
        numbers = {"capacity": capacity, "room": room, "lists": lists, "deferrable": deferrable}
        self._arrays = arrays
        self._work = device.upload(packed("Work", device, arrays | numbers))
        self._tables = tables
        addresses = [device.address(tables), device.address(self._work)]
        tail = _tail(tiles, self.documents)
        self._chain = queue.chain([*_head(arrays, rewrites, tiles, raw_tiles, self.documents), *tail], addresses)
        self._tail = queue.chain(tail, addresses)
        self._input = device.staging(header + capacity + PADDING)
        self._counts = device.staging(4 * (self.documents + 1 + COUNTERS)).view(np.uint32)
        self._listed = device.staging(8 * min(LISTED, deferrable)).view(np.uint32)
        self._ids = Staging(device)
        self._patches = Staging(device)
        self._patch_ids = Staging(device)
        self._texts: Sequence[bytes] = ()
        self._begins = np.zeros(0, np.int64)

    def begin(self, texts: Sequence[bytes]) -> None:
        """Begins to encode some texts, of UTF-8.

        Args:
            texts: Their bytes are as many as the capacity, at most, and they are no more than :attr:`documents`.
        """
        self._texts = texts
        self._begins, size = self._stage(texts)
        self._queue.write(self._arrays["input"], self._input[: size + PADDING])
        self._queue.run(self._chain)
        self._queue.read(self._counts[: len(texts) + 1 + COUNTERS], self._arrays["counts"])
        self._queue.read(self._listed, self._arrays["deferred"])

    def finish(self, *, deliver: bool = True) -> Encoded:
        """The ids of the texts that were begun.

        Args:
            deliver: Whether the ids are to be on the host too.

        Raises:
            TooMuch: The device has no room for what came of them.
        """
        texts = self._texts
        counts = self._counts[: len(texts) + 1 + COUNTERS]
        self._queue.wait()
        counter = counts[len(texts) + 1 :]
        _refuse_overflow(counter)
        tokens, deferrals, host_bytes, runs = int(counter[TOKENS]), int(counter[DEFERRALS]), 0, 0
        if deferrals:
            added, runs, host_bytes = self._patch(texts, self._begins, deferrals)
            tokens += added
            self._queue.run(self._tail)
            self._queue.read(counts, self._arrays["counts"])
        staged = self._ids.of(tokens if deliver else 0)
        if deliver:
            self._queue.read(staged, self._arrays["ids"])
        if deliver or deferrals:
            self._queue.wait()
            _refuse_overflow(counter)
        return Encoded(self._arrays["ids"], counts[1 : len(texts) + 1].astype(np.int64), staged, runs, host_bytes)

    def abandon(self) -> None:
        """Waits for what was begun, if anything was: nothing may write to memory that others get."""
        with contextlib.suppress(Exception):
            self._queue.wait()

    __del__ = abandon

    def _stage(self, texts: Sequence[bytes]) -> tuple[npt.NDArray[np.int64], int]:
        """Lays a request out as it is copied; where each text begins, and bytes of all with the header."""
        sizes = np.fromiter(map(len, texts), np.int64, len(texts))
        ends = np.cumsum(sizes)
        header = self._input.view(np.uint32)
        header[:COUNTERS] = 0
        text_at = 4 * (COUNTERS + len(texts))
        size = text_at + int(sizes.sum())
        header[[SIZE, DOCUMENTS, TEXT_AT]] = size - text_at, len(texts), text_at
        header[COUNTERS : COUNTERS + len(texts)] = ends - sizes
        there, at = self._input.data, text_at
        for text in texts:
            there[at : at + len(text)] = text
            at += len(text)
        self._input[size : size + PADDING] = 0
        return ends - sizes, size

    def _patch(self, texts: Sequence[bytes], begins: npt.NDArray[np.int64], count: int) -> tuple[int, int, int]:
        """Encodes what the device left to the host, and copies it there; how many ids, stretches and bytes that is."""
        listed = self._listed
        if 2 * count > len(listed):
            listed = self._patches.of(2 * count)  # which is not needed yet
            self._queue.read(listed, self._arrays["deferred"])
            self._queue.wait()
        segments = listed[: 2 * count].reshape(-1, 2).astype(np.int64)
        order = np.argsort(segments[:, 0])
        firsts, lasts = segments[order].T
        documents = np.searchsorted(begins, firsts, side="right") - 1
        is_begin = firsts == begins[documents]
        # Neighbours go together: what is between two certified cuts is one text.
        heads = np.flatnonzero(np.append(True, (firsts[1:] != lasts[:-1]) | is_begin[1:]))
        parts, stops = [], np.append(heads[1:], count) - 1
        for head, stop in zip(heads.tolist(), stops.tolist(), strict=True):
            document = int(documents[head])
            begin = int(begins[document])
            parts.append(texts[document][firsts[head] - begin : lasts[stop] - begin].decode())
        encoded = self._host(parts, (~is_begin[heads]).tolist())
        sizes = np.fromiter(map(len, encoded), np.int64, len(encoded))
        ends = np.cumsum(sizes)
        if ends[-1] > self.capacity:
            raise TooMuch("the device has no room for what the host encoded")
        ids = self._patch_ids.of(int(ends[-1]))
        np.concatenate(encoded, out=ids)
        patches = self._patches.of(2 * count)
        patches[:] = 0  # of neighbours that go together, the first has the ids of all
        patches.reshape(-1, 2)[order[heads]] = np.stack([ends - sizes, sizes], axis=1)
        self._queue.write(self._arrays["patches"], patches)
        self._queue.write(self._arrays["patch_ids"], ids)
        return int(ends[-1]), len(parts), int((lasts - firsts).sum())


def _refuse_overflow(counter: npt.NDArray[np.uint32]) -> None:
    """Raises :class:`TooMuch` where a kernel found no room."""
    if counter[OVERFLOWS]:
        raise TooMuch("the device has no room for what came of a text")


@define(eq=False)
class Encoder:
    """Encodes texts on a device.

    Attributes:
        device: Where.
        tables: Those of the family.
        host: Encodes what the device does not.
    """

    device: Device
    tables: Tables
    host: HostEncode
    _uploaded: dict[str, Any] = field(factory=dict, init=False)
    _structure: Array = field(init=False)
    _rewrites: bool = field(init=False)

    def __attrs_post_init__(self) -> None:
        self._uploaded = {
            name: self.device.upload(value) for name, value in self.tables.items() if isinstance(value, np.ndarray)
        }
        numbers = {name: value for name, value in self.tables.items() if isinstance(value, int)}
        self._structure = self.device.upload(packed("Tables", self.device, self._uploaded | numbers))
        # Not by their bytes: what is deleted has an image too.
        self._rewrites = np.size(self.tables["image_ends"]) > 1 or self.tables["prefix_size"] != 0

    def bucket(self, capacity: int) -> Bucket:
        """A new bucket for texts of so many bytes in all, a power of two."""
        return Bucket(self.device, self._structure, self._rewrites, capacity, self.host)


def packed(structure: str, device: Device, values: dict[str, Any]) -> npt.NDArray[np.uint64]:
    """One of the kernels' structures: its fields in order, as addresses and numbers. What is left out is 0."""
    names = fields(structure)
    if unknown := values.keys() - set(names):
        raise KeyError(f"{structure} has no {', '.join(sorted(unknown))}")
    given = [values.get(name, 0) for name in names]
    return np.array([value if isinstance(value, int) else device.address(value) for value in given], np.uint64)


def _head(arrays: dict[str, Array], rewrites: bool, tiles: int, raw_tiles: int, documents: int) -> list[Step]:
    """From the text to slots."""
    steps: list[Step] = [
        Fill(arrays["marks"], 0),
        Fill(arrays["slots"], 0xFF),
    ]
    if rewrites:
        steps += [Fill(arrays["raw_marks"], 0), Fill(arrays["origins"], 0)]
    steps += [
        Launch("documents_begin", _parts(documents, THREADS), THREADS),
        Launch("mark", raw_tiles, THREADS),
    ]
    if rewrites:
        steps += [
            Launch("stretches", raw_tiles, THREADS),
            Launch("measure", raw_tiles, THREADS),
            Launch("scan_widths", 1, SCANNERS),
            Launch("rewrite", raw_tiles, THREADS),
            Launch("place", _warps(documents), THREADS),
            Launch("index", tiles, THREADS),
        ]
    return [
        *steps,
        Launch("divide", tiles, THREADS),
        Launch("encode", tiles, THREADS),
        Launch("encode_medium", TURNS, THREADS),
        Launch("encode_long", TURNS, WARP),
    ]


def _tail(tiles: int, documents: int) -> list[Step]:
    """From slots to ids."""
    return [
        Launch("weigh", tiles, THREADS),
        Launch("scan_weights", 1, SCANNERS),
        Launch("count", _warps(documents), THREADS),
        Launch("gather", tiles, THREADS),
        Launch("patch", TURNS, THREADS),
    ]


def _warps(count: int) -> int:
    """The blocks for so many warps, or fewer that take turns."""
    return min(TURNS, _parts(count * WARP, THREADS))


def _parts(size: int, part: int) -> int:
    """How many parts of some size it takes, at least one."""
    return max(1, -(-size // part))
