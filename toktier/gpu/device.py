"""What the GPU engine asks of a device: memory, copies, and chains of kernels.

There are two: :class:`toktier.gpu.cupy_device.CupyDevice`, and one in the tests that runs the same kernels, compiled as
C++, on the processor.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt
from attrs import frozen

Array: TypeAlias = Any
"""Memory of a device, of one type and size; only its device knows more."""

MISSING = "CuPy is not installed: pip install cupy-cuda13x 'cuda-toolkit[cudart,nvrtc]==13.*'"
"""Why there is no device where its package is not there."""


@frozen
class Fill:
    """Sets every byte of an array to a value."""

    array: Array
    value: int


@frozen
class Launch:
    """Runs a kernel.

    Attributes:
        kernel: Its name.
        blocks: How many blocks.
        threads: How many threads a block has.
    """

    kernel: str
    blocks: int
    threads: int


Step: TypeAlias = Fill | Launch


class Chain(Protocol):
    """Steps that were prepared to be run again and again, in their order."""

    def run(self) -> None:
        """Begins to run them; returns at once."""
        ...


class Queue(Protocol):
    """What a device does one after the other. Everything is only begun, until :meth:`wait`."""

    def write(self, target: Array, source: npt.NDArray[Any]) -> None:
        """Copies staged memory to the beginning of an array. It must not change before the copy is done."""
        ...

    def read(self, target: npt.NDArray[Any], source: Array) -> None:
        """Fills staged memory from the beginning of an array."""
        ...

    def chain(self, steps: Sequence[Step], arguments: Sequence[int]) -> Chain:
        """Prepares steps.

        Args:
            steps: What to do.
            arguments: The addresses that every kernel is given.
        """
        ...

    def wait(self) -> None:
        """Returns when all that was begun is done.

        Raises:
            Exception: Some of it failed.
        """
        ...


class Device(Protocol):
    """Where kernels run.

    Attributes:
        name: What reports call it.
    """

    name: str

    @property
    def version(self) -> str:
        """Of what compiles and runs kernels there."""
        ...

    def upload(self, array: npt.NDArray[Any]) -> Array:
        """A copy of an array on the device, when the call returns."""
        ...

    def empty(self, size: int, dtype: npt.DTypeLike) -> Array:
        """Memory for so many elements, with anything in it."""
        ...

    def copy(self, array: Array, size: int) -> Array:
        """A new array with the first so many elements of another, when the call returns."""
        ...

    def staging(self, size: int) -> npt.NDArray[np.uint8]:
        """Memory of the host that queues copy from and to without waiting."""
        ...

    def address(self, array: Array) -> int:
        """Where the memory of an array begins, as kernels see it."""
        ...

    def queue(self) -> Queue:
        """A new queue."""
        ...
