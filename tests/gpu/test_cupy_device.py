"""CuPy as a device: why there is none, what it is asked for and in which order, and on a GPU the ids."""

from __future__ import annotations

import contextlib
import ctypes
import inspect
import sys
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import toktier
from tests.gpu.comparing import Comparison, adversarial
from toktier.engines.base import Inapplicable
from toktier.engines.reference import ReferenceEngine
from toktier.families.probing import DiskCache, Probe
from toktier.gpu.cupy_device import CupyDevice
from toktier.gpu.device import MISSING, Device, Fill, Launch, Step
from toktier.gpu.engine import GpuEngine
from toktier.gpu.source import kernels

RELAXED = 2
ORDINAL = 1
OTHER = 0
"""The device of the tests, and the one that is current in their thread."""


class Driver:
    """A module in the place of CuPy: writes down what a GPU would be given, and does copies and fills at once."""

    def __init__(self) -> None:
        self.done: list[Any] = []
        self.captured: list[Any] | None = None
        self.device, self.stream = OTHER, "the caller's"
        self.refuses = ""
        self.properties = {"name": b"Toy", "major": 9, "minor": 0, "totalGlobalMem": 2**31}
        self.RawModule = self.module
        self.cuda = SimpleNamespace(
            Device=self.current,
            Stream=lambda non_blocking: Stream(self, f"stream {non_blocking}"),
            get_current_stream=lambda: SimpleNamespace(ptr=self.stream, synchronize=lambda: None),
            alloc_pinned_memory=lambda size: self.on_device(bytearray(size)),
            runtime=SimpleNamespace(
                is_hip=False, streamCaptureModeRelaxed=RELAXED, getDeviceProperties=lambda number: self.properties
            ),
        )

    def on_device(self, value: Any) -> Any:
        assert self.device == ORDINAL
        return value

    def note(self, stream: str, *what: Any) -> None:
        self.on_device(self.done if self.captured is None else self.captured).append((stream, *what))

    @contextlib.contextmanager
    def current(self, ordinal: int | None = None) -> Iterator[Any]:
        before, self.device = self.device, self.device if ordinal is None else ordinal
        try:
            yield SimpleNamespace(id=self.device)
        finally:
            self.device = before

    def empty(self, size: int, dtype: Any) -> Any:
        values = self.on_device(np.empty(size, dtype))
        return SimpleNamespace(
            data=Memory(self, values), nbytes=values.nbytes, dtype=values.dtype, values=values, stream=self.stream
        )

    def module(self, code: str, options: tuple[str, ...], backend: str) -> Any:
        if self.refuses == "compile":
            raise ValueError("kern.cu(1): error:\n  no")
        return SimpleNamespace(get_function=lambda name: Kernel(self.on_device(self), name))


class Stream:
    def __init__(self, driver: Driver, name: str) -> None:
        self.driver, self.ptr = driver.on_device(driver), name
        self.outside: list[str] = []

    def __enter__(self) -> None:
        self.driver.on_device(None)
        self.outside.append(self.driver.stream)
        self.driver.stream = self.ptr

    def __exit__(self, *_: object) -> None:
        self.driver.stream = self.outside.pop()

    def begin_capture(self, mode: int) -> None:
        assert mode == RELAXED
        if self.driver.refuses == "begin":
            raise RuntimeError("not supported")
        self.driver.captured = []

    def end_capture(self) -> Any:
        driver, steps = self.driver, self.driver.captured
        driver.captured = None
        if driver.refuses == "end" or steps is None:
            raise RuntimeError("invalidated")
        return SimpleNamespace(upload=driver.on_device, launch=lambda stream: driver.note(stream.ptr, "graph", steps))

    def synchronize(self) -> None:
        assert self.driver.captured is None


class Kernel:
    num_regs = 10

    def __init__(self, driver: Driver, name: str) -> None:
        self.driver, self.name = driver, name

    def __call__(self, grid: tuple[int], block: tuple[int], arguments: tuple[Any, ...]) -> None:
        assert {type(each) for each in arguments} == {np.uint64}  # what is passed as it is, with eight bytes
        self.driver.note(self.driver.stream, self.name, grid, block, *map(int, arguments))


class Memory:
    def __init__(self, driver: Driver, values: Any) -> None:
        self.driver, self.ptr = driver, values.ctypes.data

    def copy_from_host_async(self, address: int, size: int, stream: Any) -> None:
        ctypes.memmove(self.driver.on_device(self.ptr), address, size)

    def copy_to_host_async(self, address: int, size: int, stream: Any) -> None:
        ctypes.memmove(address, self.driver.on_device(self.ptr), size)

    def copy_from_device_async(self, source: Memory, size: int, stream: Any) -> None:
        ctypes.memmove(self.driver.on_device(self.ptr), source.ptr, size)

    def memset_async(self, value: int, size: int, stream: Any) -> None:
        self.driver.note(stream.ptr, value, size)


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> Driver:
    driver = Driver()
    monkeypatch.setitem(sys.modules, "cupy", driver)
    return driver


def test_it_is_a_device(driver: Driver) -> None:
    device: Device = CupyDevice(ORDINAL)
    assert device.name == "Toy (compute capability 9.0, 2 GiB)"
    assert driver.device == OTHER


def test_what_is_copied_comes_back(driver: Driver) -> None:
    device = CupyDevice(ORDINAL)
    numbers = np.arange(6, dtype=np.uint16).reshape(2, 3)
    array, queue = device.upload(numbers), device.queue()
    assert (array.stream, device.address(array)) == ("stream True", array.values.ctypes.data)
    staged = device.staging(12)
    queue.read(staged, array)
    assert (len(staged), staged.view(np.uint16).tolist()) == (12, numbers.reshape(-1).tolist())
    queue.write(array, staged[2:4])
    copy = device.copy(array, 3)
    assert (copy.values.tolist(), copy.stream) == ([1, 1, 2], "the caller's")
    assert device.copy(array, 0).nbytes == 0
    queue.wait()


def test_an_array_of_nothing_has_an_address(driver: Driver) -> None:
    device = CupyDevice(ORDINAL)
    array, staged = device.upload(np.zeros(0, np.uint32)), device.staging(0)
    assert device.address(array) != 0
    assert len(staged) == 0
    device.queue().write(array, staged)


def test_what_does_not_fit_is_not_copied(driver: Driver) -> None:
    device = CupyDevice(ORDINAL)
    queue, array, staged = device.queue(), device.empty(64, np.uint8), device.staging(130)
    for host in (staged[:65], staged[:64:2]):
        with pytest.raises(ValueError, match="an array of 64 bytes"):
            queue.write(array, host)
        with pytest.raises(ValueError, match="an array of 64 bytes"):
            queue.read(host, array)


@pytest.mark.parametrize("refuses", ["", "begin", "end"])
def test_steps_run_in_order_whenever_they_are_run(driver: Driver, refuses: str) -> None:
    device = CupyDevice(ORDINAL)
    driver.refuses = refuses
    steps: list[Step] = [Fill(device.empty(20, np.uint32), 0xFF), Launch("mark", 3, 256), Launch("divide", 1, 64)]
    expected = [(0xFF, 80), ("mark", (3,), (256,), 2**63 + 1, 8), ("divide", (1,), (64,), 2**63 + 1, 8)]
    chain = device.queue().chain(steps, [2**63 + 1, 8])
    assert driver.done == []
    for _ in range(2):
        chain.run()
        (*_, last) = driver.done
        done = last[2] if last[1] == "graph" else driver.done
        assert (last[1] == "graph") == (not refuses)
        assert done == [("stream True", *step) for step in expected]
        driver.done.clear()
    assert (driver.device, driver.stream) == (OTHER, "the caller's")


def test_a_kernel_that_is_not_there_is_an_error_at_once(driver: Driver) -> None:
    with pytest.raises(KeyError, match="absent"):
        CupyDevice(ORDINAL).queue().chain([Launch("absent", 1, 1)], [])


def reason() -> str:
    with pytest.raises(Inapplicable) as caught:
        CupyDevice(ORDINAL)
    return str(caught.value)


def test_without_cupy_the_reason_is_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cupy", None)
    assert reason() == MISSING


def test_reasons(driver: Driver) -> None:
    driver.refuses = "compile"
    assert reason().endswith("compiled for Toy (compute capability 9.0, 2 GiB): kern.cu(1): error: no")
    driver.properties |= {"major": 7, "minor": 5}
    assert reason().endswith("7.5, 2 GiB) is too old: the compute capability must be 8.0")
    driver.cuda.runtime.is_hip = True
    assert "ROCm" in reason()


@pytest.mark.parametrize(
    ("version", "expected"),
    [
        (0, "there is no NVIDIA driver"),
        (12080, "the driver is for CUDA 12, and CuPy for CUDA 13: install cupy-cuda12x in its place"),
        (13000, "there is no such CUDA device: cudaErrorNoDevice: none"),
    ],
)
def test_without_a_device_the_reason_is_the_driver_or_what_it_says(driver: Driver, version: int, expected: str) -> None:
    def no_device(number: int) -> None:
        raise RuntimeError("cudaErrorNoDevice: none")

    versions = {"driverGetVersion": lambda: version, "runtimeGetVersion": lambda: 13020}
    vars(driver.cuda.runtime).update(versions, getDeviceProperties=no_device)
    assert reason() == expected


# CuPy itself


def test_cupy_has_what_is_used() -> None:
    cupy = pytest.importorskip("cupy")
    pointer, graph = cupy.cuda.MemoryPointer, cupy.cuda.graph.Graph
    signatures = {
        pointer.copy_from_host_async: "(self, mem, size_t size, stream=None)",
        pointer.copy_to_host_async: "(self, mem, size_t size, stream=None)",
        pointer.copy_from_device_async: "(self, MemoryPointer src, size_t size, stream=None)",
        pointer.memset_async: "(self, int value, size_t size, stream=None)",
        graph.launch: "(self, stream=None)",
        graph.upload: "(self, stream=None)",
        cupy.RawKernel.__call__: "(self, grid, block, args, ",
        cupy.RawModule.get_function: "(self, str name)",
        cupy.cuda.alloc_pinned_memory: "(size_t size)",
        cupy.cuda.Device: "(device=None)",
    }
    for function, signature in signatures.items():
        assert signature in function.__doc__, function
    assert {"code", "options", "backend"} <= set(cupy.RawModule.__doc__.split("\n")[0].replace("=", " ").split())
    assert str(inspect.signature(cupy.cuda.Stream.begin_capture)) == "(self, mode=None)"
    assert "non_blocking" in inspect.signature(cupy.cuda.Stream).parameters
    assert all(hasattr(cupy.cuda.Stream, name) for name in ("end_capture", "synchronize", "__enter__"))
    runtime = cupy.cuda.runtime
    assert (runtime.is_hip, runtime.streamCaptureModeRelaxed) == (False, RELAXED)
    assert issubclass(runtime.CUDARuntimeError, RuntimeError)
    assert callable(cupy.cuda.get_current_stream)
    assert callable(runtime.getDeviceProperties)
    assert isinstance(cupy.RawKernel.num_regs, type(cupy.RawKernel.attributes))


def test_on_a_machine_without_a_gpu_there_is_no_device() -> None:
    cupy = pytest.importorskip("cupy")
    if cupy.cuda.is_available():
        pytest.skip("there is a GPU")
    with pytest.raises(Inapplicable, match=r"there is no NVIDIA driver|the driver is for CUDA|no such CUDA device"):
        CupyDevice()


def test_on_a_gpu_the_ids_are_those_of_the_reference() -> None:
    cupy = pytest.importorskip("cupy")
    if not cupy.cuda.is_available():
        pytest.skip("there is no GPU")
    tok = toktier.load("toktier-mini")
    reference = tok.engine("reference")
    assert isinstance(reference, ReferenceEngine)
    device = CupyDevice()
    assert list(device.kernels) == kernels()
    engine = GpuEngine(tok.family, reference, Probe(DiskCache(None)), device=device)
    comparison = Comparison()
    comparison.run(engine, tok, adversarial(tok, 2_000, 1))
    assert comparison.wrong == []
    result = engine.encode_on_device(["Certified cuts", " change nothing."])
    assert cupy.asnumpy(result.ids).tolist() == [
        *tok.encode("Certified cuts").tolist(),
        *tok.encode(" change nothing.").tolist(),
    ]
