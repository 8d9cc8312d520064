"""The engine: texts in, ids out."""

from __future__ import annotations

import hashlib
import importlib.util
from collections.abc import Iterator, Sequence
from itertools import pairwise

import numpy as np
import numpy.typing as npt
from attrs import frozen

from toktier.engines.base import Ids, Inapplicable
from toktier.engines.continuing import encode_continuing
from toktier.engines.memo import MemoEngine
from toktier.engines.reference import ReferenceEngine
from toktier.engines.tiktoken_reference import TiktokenReference
from toktier.errors import InvalidText
from toktier.families.family import Family
from toktier.families.probing import Probe
from toktier.gpu import source
from toktier.gpu.device import MISSING, Array, Device
from toktier.gpu.encoder import LARGEST, TEXT_BYTES, Bucket, Encoder, TooMuch, device_errors
from toktier.gpu.pool import Pool
from toktier.gpu.tables import tables_of
from toktier.gpu.vocabulary import MODELS

WAVE = 1 << 24
"""Bytes of a batch that the device is given at a time: it works on them while the host lays out the next."""


@frozen(eq=False)
class OnDevice:
    """Ids that are on the device.

    Made by :meth:`toktier.Tokenizer.encode_on_device`. The ids of text ``i`` are ``ids[ends[i - 1] : ends[i]]``, those
    of the first begin at 0.

    Attributes:
        ids: Those of all texts, one after the other: a CuPy array of uint32, shape (tokens,), the caller's own.
        ends: Where the ids of each text end, int64, shape (texts,), on the host.

    Example:
        >>> there = OnDevice(np.array([39, 523, 323, 3241, 1151], np.uint32), np.array([3, 5]))  # as if on a device
        >>> [ids.tolist() for ids in np.split(there.ids, there.ends[:-1].tolist())]
        [[39, 523, 323], [3241, 1151]]
    """

    ids: Array
    ends: npt.NDArray[np.int64]


@frozen(eq=False)
class _Wave:
    """Texts that go to the device together, and the bucket in which it has them; None where the host encodes them."""

    texts: list[str]
    bucket: Bucket | None


class GpuEngine:
    """Encodes on a GPU, whatever the length of a text.

    What serves is :class:`toktier.gpu.offload.Offload`, which gives it those that are worth it.

    Args:
        family: What to encode for.
        reference: Its reference.
        probe: Where the reference is asked what its classes of characters contain.
        device: Where the kernels run. Not given: CuPy's current device.

    Raises:
        Inapplicable: There is no device, or it cannot do what the family needs.
    """

    name = "gpu"

    def __init__(
        self, family: Family, reference: ReferenceEngine, probe: Probe, *, device: Device | None = None
    ) -> None:
        _refuse(family, reference)
        tables = tables_of(family, reference, probe)
        self.family = family
        self.host = MemoEngine(family, reference)
        self._device = device or default_device()
        self._pool = Pool(Encoder(self._device, tables, self._on_host).bucket)

    @staticmethod
    def version() -> str:
        """Of the kernels, of what compiles and runs them, and of the device.

        Raises:
            Inapplicable: There is no device.
        """
        kernels = hashlib.sha256(source.whole().encode()).hexdigest()[:12]
        device = default_device()
        return f"kernels {kernels}, {device.name}, {device.version}"

    @staticmethod
    def check(family: Family, reference: ReferenceEngine) -> None:
        """Raises :class:`Inapplicable` for what can be told at once."""
        if importlib.util.find_spec("cupy") is None:
            raise Inapplicable(MISSING)
        _refuse(family, reference)

    def encode(self, text: str, *, continuation: bool = False) -> Ids:
        """The ids of a text, uint32, shape (tokens,)."""
        return self.encode_batch([text])[0]

    def encode_batch(self, texts: Sequence[str], *, continuation: bool = False) -> list[Ids]:
        """The ids of several texts.

        Raises:
            Unavailable: The device failed.
        """
        found: list[Ids] = []
        begun: _Wave | None = None
        bucket: Bucket | None = None
        try:
            for some, encoded in _waves(texts):
                # The host lays this wave out while the device works on the one before; but nobody who has a bucket may
                # wait for another.
                bucket = self._taken(encoded, wait=begun is None)
                if bucket is None and begun is not None:
                    before, begun = begun, None
                    found += self._finished(before)
                    bucket = self._taken(encoded, wait=True)
                if bucket is not None:
                    bucket.begin(encoded)
                if begun is not None:
                    before, begun = begun, None
                    found += self._finished(before)
                begun, bucket = _Wave(some, bucket), None
            if begun is not None:
                before, begun = begun, None
                found += self._finished(before)
            return found
        except BaseException:
            self._pool.drop(bucket)
            self._pool.drop(begun.bucket if begun else None)
            raise

    def encode_on_device(self, texts: Sequence[str]) -> OnDevice:
        """The ids of several texts as one array on the device, in one request.

        Raises:
            Unavailable: The device failed.
        """
        encoded = [*map(_utf8, texts)]
        bucket = self._taken(encoded, wait=True)
        if bucket is not None:
            try:
                bucket.begin(encoded)
                result = bucket.finish(deliver=False)
                with device_errors():
                    there = OnDevice(
                        self._device.copy(result.ids, int(result.ends[-1]) if len(texts) else 0), result.ends
                    )
            except TooMuch:
                there = None
            except BaseException:
                self._pool.drop(bucket)
                raise
            self._pool.give_back(bucket)
            if there is not None:
                return there
        return self.uploaded(self.host.encode_batch(texts))

    def uploaded(self, encoded: Sequence[Ids]) -> OnDevice:
        """Ids that were made here, as one array on the device."""
        ids = np.concatenate([np.zeros(0, np.uint32), *encoded])
        ends = np.cumsum([0, *map(len, encoded)])[1:]
        with device_errors():
            return OnDevice(self._device.copy(self._device.upload(ids), len(ids)), ends)

    def _taken(self, encoded: Sequence[bytes], *, wait: bool) -> Bucket | None:
        """A bucket for some texts; None where none is large enough, or no memory for one, or none is free meanwhile."""
        size = max(sum(map(len, encoded)), len(encoded) * TEXT_BYTES)
        if size > LARGEST:
            return None
        try:
            with device_errors():
                return self._pool.take(size, wait=wait)
        except MemoryError:
            self._pool.clear()
            return None

    def _finished(self, wave: _Wave) -> list[Ids]:
        """The ids of a wave that was begun; its bucket is given back, or dropped."""
        if wave.bucket is None:
            return self.host.encode_batch(wave.texts)
        try:
            result = wave.bucket.finish()
            ends = [0, *result.ends.tolist()]
            # Copies: what is staged is written over by the next request.
            ids = [result.staged[start:end].copy() for start, end in pairwise(ends)]
        except TooMuch:
            ids = None
        except BaseException:
            self._pool.drop(wave.bucket)
            raise
        self._pool.give_back(wave.bucket)
        return self.host.encode_batch(wave.texts) if ids is None else ids

    def _on_host(self, texts: Sequence[str], continuing: Sequence[bool]) -> list[Ids]:
        return encode_continuing(self.family, self.host, texts, continuing, self.host.encode_batch)


def _refuse(family: Family, reference: ReferenceEngine) -> None:
    """Raises :class:`Inapplicable` for families that no device serves, if that can be told at once."""
    if family.definition.model not in MODELS:
        raise Inapplicable(f"the model is a {family.definition.model}")
    if isinstance(reference, TiktokenReference):
        if not reference.finds_longest:
            raise Inapplicable("of special tokens that begin alike, tiktoken does not always find the longest")
    elif reference.tokenizer.encode_special_tokens:
        raise Inapplicable("special tokens are encoded as text")


def default_device() -> Device:
    """CuPy's current device.

    Raises:
        Inapplicable: There is none.
    """
    from toktier.gpu.cupy_device import CupyDevice

    return CupyDevice()


def _waves(texts: Sequence[str]) -> Iterator[tuple[list[str], list[bytes]]]:
    """The texts of a batch with their UTF-8, by so many at a time as the device is given."""
    some: list[str] = []
    encoded: list[bytes] = []
    size = 0
    for text in texts:
        octets = _utf8(text)
        if some and size + max(len(octets), TEXT_BYTES) > WAVE:
            yield some, encoded
            some, encoded, size = [], [], 0
        some.append(text)
        encoded.append(octets)
        size += max(len(octets), TEXT_BYTES)
    if some:
        yield some, encoded


def _utf8(text: str) -> bytes:
    """A text as bytes; InvalidText if it has none."""
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise InvalidText(text[error.start], error.start) from None
