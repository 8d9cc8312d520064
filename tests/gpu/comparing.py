"""The kernels beside the reference: what both a test and a campaign do."""

from __future__ import annotations

import contextlib
import functools
import random
import re
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from unittest import mock

import numpy as np
from attrs import define, field

import toktier
from tests import material
from tests.gpu.host import HostDevice
from toktier.campaign.texts import fragments, random_text
from toktier.engines.base import Ids
from toktier.engines.battery import added_tokens, neighbours
from toktier.engines.reference import ReferenceEngine
from toktier.families.probing import DiskCache
from toktier.gpu import encoder
from toktier.gpu.engine import GpuEngine
from toktier.gpu.source import FOLDER

SMALL = {"TILE": 128, "THREADS": 64, "SHORT": 4, "MEDIUM": 9, "LONG": 24, "LONGEST_SEGMENT": 40}
"""Limits under which a few characters have long pieces, too long segments, and tiles that begin inside of them."""

LENGTHS = (31, 32, 33, 127, 128, 129, 1023, 1024, 1025, 2047, 2048, 2049)
"""Bytes around the limits of the kernels as they are."""

BATCH = 200_000
"""Bytes that are compared at a time."""


@functools.cache
def device(seed: int = 0) -> HostDevice:
    """The kernels as they are."""
    return HostDevice(FOLDER / "chain.cuh", seed=seed)


@functools.cache
def _small_folder() -> tempfile.TemporaryDirectory[str]:
    folder = tempfile.TemporaryDirectory(prefix="toktier-kernels-")
    for path in FOLDER.iterdir():
        text = path.read_text()
        if path.name == "prelude.cuh":
            for name, value in SMALL.items():
                text, count = re.subn(rf"const u32 {name} = \d+;", f"const u32 {name} = {value};", text)
                assert count == 1, name
        Path(folder.name, path.name).write_text(text)
    return folder


@functools.cache
def small_device(seed: int = 0) -> HostDevice:
    """The kernels with small limits; see :func:`small_kernels`."""
    return HostDevice(Path(_small_folder().name, "chain.cuh"), seed=seed)


@contextlib.contextmanager
def small_kernels() -> Iterator[None]:
    """While engines on a :func:`small_device` are in use: what launches must know of its limits."""
    with mock.patch.multiple(encoder, TILE=SMALL["TILE"], THREADS=SMALL["THREADS"]):
        yield


CACHE = DiskCache(material.cache())
"""Answers of the reference library."""


def engine_of(tok: toktier.Tokenizer, device: HostDevice) -> GpuEngine:
    """The engine of a tokenizer on a device; raises Inapplicable where it cannot be."""
    reference = tok.engine("reference")
    assert isinstance(reference, ReferenceEngine)
    return GpuEngine(tok.family, reference, reference.probe(CACHE), device=device)


def adversarial(tok: toktier.Tokenizer, count: int, seed: int) -> Iterator[str]:
    """Texts of fragments, of every atom of the family and every added token among others."""
    source = random.Random(f"{seed} kernels")
    pool = fragments(tok, seed)
    yield from ("", "a", " ", "\n", "\0", "\U0010ffff")
    for _ in range(count):
        yield random_text(source, pool, 2, 12)


def thorough(tok: toktier.Tokenizer, seed: int) -> Iterator[str]:
    """Every pair of atoms, added tokens in context, and runs that are as long as the kernels' limits."""
    yield from added_tokens(tok.family.definition)
    yield from neighbours(tok.family)
    source = random.Random(f"{seed} runs")
    pool = fragments(tok, seed)
    for length in LENGTHS:
        for _ in range(4):
            run = random_text(source, pool, 1, 2) or "a"
            yield cut_at(run * (length // len(run.encode()) + 1), length) + random_text(source, pool, 0, 3)


def cut_at(text: str, length: int) -> str:
    """The beginning of a text, of so many bytes at most."""
    return text.encode()[:length].decode(errors="ignore")


@define
class Comparison:
    """What was compared with the reference, and what differs.

    Attributes:
        texts: How many texts.
        characters: How many characters they had.
        wrong: Those of which the ids differ.
    """

    texts: int = 0
    characters: int = 0
    wrong: list[str] = field(factory=list)

    def run(self, engine: GpuEngine, tok: toktier.Tokenizer, texts: Iterable[str]) -> None:
        """Encodes texts, many in a request, and compares each."""
        reference = tok.engine("reference")
        for some in batches(texts):
            self.texts += len(some)
            self.characters += sum(map(len, some))
            for text, given, expected in zip(
                some, engine.encode_batch(some), reference.encode_batch(some), strict=True
            ):
                if not same(given, expected):
                    self.wrong.append(text)


def same(given: Ids, expected: Ids) -> bool:
    """Whether ids are equal."""
    return given.dtype == np.uint32 and np.array_equal(given, expected)


def batches(texts: Iterable[str]) -> Iterator[Sequence[str]]:
    """Texts, so many at a time as are a request of a good size."""
    some: list[str] = []
    size = 0
    for text in texts:
        some.append(text)
        size += max(len(text.encode()), encoder.TEXT_BYTES)
        if size >= BATCH:
            yield some
            some, size = [], 0
    if some:
        yield some


def changed_kernels(folder: Path, file: str, old: str, new: str) -> HostDevice:
    """The kernels with small limits, and one of them wrong."""
    for path in Path(_small_folder().name).iterdir():
        text = path.read_text()
        if path.name == file:
            assert text.count(old) == 1, f"{old!r} occurs {text.count(old)} times"
            text = text.replace(old, new)
        (folder / path.name).write_text(text)
    return HostDevice(folder / "chain.cuh", seed=1)
