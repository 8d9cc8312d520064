"""A GPU, by way of CuPy: its memory, its streams, and kernels that NVRTC compiles for it.

CuPy is imported when a device is asked for: nothing else needs it.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from attrs import frozen

from toktier.engines.base import Inapplicable
from toktier.gpu.device import MISSING, Array, Fill, Step
from toktier.gpu.source import kernels, whole

OLDEST = (8, 0)
"""The least compute capability: of the devices before, none is in the tests."""

OPTIONS = ("-std=c++17",)
"""What NVRTC is told, besides what CuPy tells it."""

LEAST = 16
"""Elements that an array has at least: CuPy gives an array of none no address."""

_compiling = threading.Lock()

logger = logging.getLogger(__name__)


@frozen(eq=False)
class CupyChain:
    """Steps as a CUDA graph, or one by one where there can be none."""

    _queue: CupyQueue
    _steps: tuple[Step, ...]  # a graph knows addresses only: this keeps arrays alive
    _arguments: tuple[np.uint64, ...]
    _graph: Any

    def run(self) -> None:
        """Begins to run them; returns at once."""
        if self._graph is None:
            self._queue.launch(self._steps, self._arguments)
        else:
            with self._queue.device.current():
                self._graph.launch(self._queue.stream)


@frozen(eq=False)
class CupyQueue:
    """A stream of its own, which waits for no other.

    Attributes:
        device: Where it is.
        stream: The stream, of CuPy.
    """

    device: CupyDevice
    stream: Any

    def write(self, target: Array, source: npt.NDArray[Any]) -> None:
        """Copies staged memory to the beginning of an array. It must not change before the copy is done."""
        address, size = _extent(source, target)
        with self.device.current():
            target.data.copy_from_host_async(address, size, self.stream)

    def read(self, target: npt.NDArray[Any], source: Array) -> None:
        """Fills staged memory from the beginning of an array."""
        address, size = _extent(target, source)
        with self.device.current():
            source.data.copy_to_host_async(address, size, self.stream)

    def chain(self, steps: Sequence[Step], arguments: Sequence[int]) -> CupyChain:
        """Prepares steps, all of which are given the same addresses."""
        prepared, addresses = tuple(steps), tuple(map(np.uint64, arguments))
        return CupyChain(self, prepared, addresses, self._captured(prepared, addresses))

    def launch(self, steps: Sequence[Step], arguments: Sequence[np.uint64]) -> None:
        """Begins to run steps one by one."""
        with self.device.current(), self.stream:
            for step in steps:
                if isinstance(step, Fill):
                    step.array.data.memset_async(step.value, step.array.nbytes, self.stream)
                else:
                    self.device.kernels[step.kernel]((step.blocks,), (step.threads,), tuple(arguments))

    def wait(self) -> None:
        """Returns when all that was begun is done.

        Raises:
            RuntimeError: Some of it failed. After a fault of a kernel, CUDA refuses all else that the process asks for.
        """
        self.stream.synchronize()

    def _captured(self, steps: Sequence[Step], arguments: Sequence[np.uint64]) -> Any:
        """The graph of some steps; None where the device or its driver makes none."""
        # Relaxed: what other threads do meanwhile, and the garbage collector in this one, may not spoil it.
        mode = self.device.cupy.cuda.runtime.streamCaptureModeRelaxed
        try:
            with self.device.current():
                self.stream.begin_capture(mode)
                try:
                    self.launch(steps, arguments)
                finally:
                    graph = self.stream.end_capture()
                graph.upload(self.stream)
        except RuntimeError as error:
            # If it is the steps that are wrong, they fail when they are run.
            logger.warning("no CUDA graph, so every request begins its kernels one by one: %s", _line(error))
            return None
        return graph


class CupyDevice:
    """A GPU. Threads may share it, whatever their current device is.

    Args:
        ordinal: Its number. Not given: CuPy's current device.

    Attributes:
        name: Which one it is, and what it has.
        kernels: The compiled kernels, by name.
        cupy: The module.

    Raises:
        Inapplicable: There is no CuPy, no such device, or the kernels cannot be compiled for it.
    """

    def __init__(self, ordinal: int | None = None) -> None:
        self.cupy = _cupy()
        try:
            with self.cupy.cuda.Device(ordinal) as device:
                self._ordinal = int(device.id)
                properties = self.cupy.cuda.runtime.getDeviceProperties(self._ordinal)
        except RuntimeError as error:
            raise Inapplicable(_why_none(self.cupy, error)) from None
        capability = properties["major"], properties["minor"]
        self.name = "{} (compute capability {}.{}, {} GiB)".format(
            properties["name"].decode(), *capability, round(properties["totalGlobalMem"] / 2**30)
        )
        if capability < OLDEST:
            raise Inapplicable(f"{self.name} is too old: the compute capability must be {OLDEST[0]}.{OLDEST[1]}")
        self.kernels = self._compiled()
        with self.current():
            self._stream = self.cupy.cuda.Stream(non_blocking=True)

    @property
    def version(self) -> str:
        """Of CuPy, of the compiler, and of the driver."""
        nvrtc = ".".join(map(str, self.cupy.cuda.nvrtc.getVersion()))
        return f"CuPy {self.cupy.__version__}, NVRTC {nvrtc}, driver {self.cupy.cuda.runtime.driverGetVersion()}"

    def current(self) -> Any:
        """A context in which it is the current device of the thread."""
        return self.cupy.cuda.Device(self._ordinal)  # a new one: it remembers what it replaced

    def upload(self, array: npt.NDArray[Any]) -> Array:
        """A copy of an array on the device, when the call returns."""
        source = np.ascontiguousarray(array).reshape(-1)
        target = self.empty(source.size, source.dtype)
        address, size = _extent(source, target)
        with self.current():
            target.data.copy_from_host_async(address, size, self._stream)
            self._stream.synchronize()
        return target

    def empty(self, size: int, dtype: npt.DTypeLike) -> Array:
        """Memory for so many elements, with anything in it."""
        # CuPy reuses memory in the order of the stream that it was allocated for. Queues keep to no such order, so they
        # must not get what kernels of the caller may still use: this stream runs none.
        with self.current(), self._stream:
            array = self.cupy.empty(max(size, LEAST), dtype)
            self._stream.synchronize()
        return array

    def copy(self, array: Array, size: int) -> Array:
        """A new array with the first so many elements of another, when the call returns. It is the caller's own."""
        with self.current():
            stream = self.cupy.cuda.get_current_stream()  # the caller's, in whose order it will be used and freed
            target = self.cupy.empty(size, array.dtype)
            target.data.copy_from_device_async(array.data, target.nbytes, stream)
            stream.synchronize()
        return target

    def staging(self, size: int) -> npt.NDArray[np.uint8]:
        """Pinned memory, which lives as long as the array or a view of it."""
        with self.current():
            memory = self.cupy.cuda.alloc_pinned_memory(max(size, LEAST))
        return np.frombuffer(memory, np.uint8, size)

    def address(self, array: Array) -> int:
        """Where the memory of an array begins."""
        return int(array.data.ptr)

    def queue(self) -> CupyQueue:
        """A new queue."""
        with self.current():
            return CupyQueue(self, self.cupy.cuda.Stream(non_blocking=True))

    def _compiled(self) -> dict[str, Any]:
        """All kernels. CuPy keeps what it compiled: in memory for each device, and in files."""
        try:
            with _compiling, self.current():
                module = self.cupy.RawModule(code=whole(), options=OPTIONS, backend="nvrtc")
                found = {name: module.get_function(name) for name in kernels()}
                for kernel in found.values():
                    _ = kernel.num_regs  # who asks has it loaded, which otherwise waits until it runs
        except Exception as error:  # of the compiler, of its absence, of the cache
            raise Inapplicable(f"the kernels cannot be compiled for {self.name}: {_line(error)}") from error
        return found


def _cupy() -> Any:
    try:
        import cupy
    except (ImportError, OSError) as error:  # OSError: it makes the folder of its cache
        if isinstance(error, ModuleNotFoundError) and error.name == "cupy":
            raise Inapplicable(MISSING) from None
        raise Inapplicable(f"CuPy cannot be imported: {_line(error)}") from error
    if cupy.cuda.runtime.is_hip:
        raise Inapplicable("CuPy was built for ROCm, and the kernels are for CUDA")
    return cupy


def _why_none(cupy: Any, error: Exception) -> str:
    """Why CuPy has no device, from what it says of it."""
    driver, runtime = cupy.cuda.runtime.driverGetVersion() // 1000, cupy.cuda.runtime.runtimeGetVersion() // 1000
    if driver == 0:
        return "there is no NVIDIA driver"
    if driver < runtime:
        return f"the driver is for CUDA {driver}, and CuPy for CUDA {runtime}: install cupy-cuda{driver}x in its place"
    return f"there is no such CUDA device: {_line(error)}"


def _extent(host: npt.NDArray[Any], array: Array) -> tuple[int, int]:
    """Where staged memory begins and its size in bytes, if they can be copied from or to the beginning of an array."""
    if not host.flags.c_contiguous or host.nbytes > array.nbytes:
        raise ValueError(f"an array of {array.nbytes} bytes does not take {host.nbytes}, or they have gaps")
    return int(host.ctypes.data), host.nbytes


def _line(error: Exception) -> str:
    return " ".join(str(error).split()) or repr(error)
