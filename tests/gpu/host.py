"""A device that is the processor: it runs the kernels as C++, with their barriers, and looks at what they write.

``shim.h`` says what of CUDA it has, and which mistakes it finds.
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
import os
import re
import shutil
import subprocess
import tempfile
import threading
import weakref
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from attrs import define, field, frozen

from toktier.gpu.device import Device, Fill, Launch, Step

SHIM = Path(__file__).with_name("shim.h")
GARBAGE = 0xA5
GUARD = 0x5A
MARGIN = 64
ALIGNMENT = 256
MESSAGE = 2000
FLAGS = (
    *("-std=c++17", "-O2", "-g", "-fPIC", "-fvisibility=hidden", "-fno-strict-aliasing", "-fno-exceptions"),
    # A jump from stack to stack is what the checks of _FORTIFY_SOURCE are there to prevent.
    *("-U_FORTIFY_SOURCE", "-Wall", "-Wextra", "-Werror"),
    # Kernels say #pragma unroll; headers have functions that only some kernels call.
    *("-Wno-unknown-pragmas", "-Wno-unused-function"),
    "-fsanitize=alignment,null,bounds,shift-exponent,integer-divide-by-zero",
)
COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*"([^"\n]+)"', re.MULTILINE)
KERNEL = re.compile(r'extern\s+"C"\s+__global__\s+void\s+(?:__launch_bounds__\s*\([^)]*\)\s*)?(\w+)\s*\(')


def compiler() -> str | None:
    """Where the C++ compiler is: what $CXX names, or g++."""
    return shutil.which(os.environ.get("CXX") or "g++")


def available() -> bool:
    """Whether kernels can be compiled here."""
    return os.name == "posix" and compiler() is not None


@frozen(eq=False)
class Memory:
    """An array of the device; opaque to the engine, as an array of a GPU is.

    Attributes:
        values: The array, for tests to look at.
    """

    values: npt.NDArray[Any]
    _block: npt.NDArray[np.uint8]
    _begin: int

    @classmethod
    def of(cls, size: int, dtype: npt.DTypeLike) -> Memory:
        """Memory with garbage in it, guards on both sides, and no more aligned than it must be."""
        length = size * np.dtype(dtype).itemsize
        block = np.full(length + 2 * MARGIN + ALIGNMENT, GUARD, np.uint8)
        begin = MARGIN + (-block.ctypes.data - MARGIN) % ALIGNMENT
        block[begin : begin + length] = GARBAGE
        return cls(block[begin : begin + length].view(dtype), block, begin)

    @property
    def address(self) -> int:
        """Where it begins."""
        return int(self._block.ctypes.data) + self._begin

    @property
    def bytes(self) -> npt.NDArray[np.uint8]:
        """What is between the guards."""
        return self._block[self._begin : self._begin + self.values.nbytes]

    def check(self) -> None:
        """Raises RuntimeError where something was written beside it."""
        stop = self._begin + self.values.nbytes
        for offset, guard in ((0, self._block[: self._begin]), (stop, self._block[stop:])):
            if (guard != GUARD).any():
                at = offset + int((guard != GUARD).argmax()) - self._begin
                raise RuntimeError(f"something was written at byte {at} of an array of {self.values.nbytes} bytes")


@frozen(eq=False)
class Library:
    """Compiled kernels. They run one launch at a time."""

    _launch: Any
    _lock: threading.Lock = field(factory=threading.Lock)

    @classmethod
    @functools.cache  # a library that is loaded again is the same one, so it must have the same lock
    def at(cls, path: Path) -> Library:
        """Loads it."""
        launch = ctypes.CDLL(str(path)).toktier_launch
        unsigned, text = ctypes.c_uint, ctypes.c_char_p
        launch.argtypes = (text, unsigned, unsigned, ctypes.c_void_p, ctypes.c_int, unsigned, text, ctypes.c_int)
        return cls(launch)

    def launch(self, step: Launch, arguments: Sequence[int], seed: int) -> None:
        """Runs a kernel to its end, or raises RuntimeError."""
        message = ctypes.create_string_buffer(MESSAGE)
        pointers = (ctypes.c_void_p * len(arguments))(*arguments)
        shape = (step.kernel.encode(), step.blocks, step.threads)
        with self._lock:
            failed = self._launch(*shape, pointers, len(arguments), seed, message, MESSAGE)
        if failed:
            raise RuntimeError(message.value.decode(errors="replace"))


def kernels(source: Path) -> list[str]:
    """The names of the kernels in a file and in what it includes, in order."""
    found: list[str] = []
    seen: set[Path] = set()

    def read(path: Path) -> None:
        if path in seen or not path.is_file():
            return
        seen.add(path)
        text = path.read_text()
        for name in INCLUDE.findall(text):
            read(source.parent / name)
        found.extend(KERNEL.findall(COMMENT.sub(" ", text)))

    read(source)
    return found


def program(source: Path) -> str:
    """What is compiled: the shim, the kernels, and a table of them."""
    names = kernels(source)
    # In a namespace without a name, a __shared__ variable is a plain local one even in a template. Kernels are renamed,
    # because one may be called like a function of the C library, which extern "C" would make the same.
    renamed = "".join(f"#define {name} toktier_kernel_{name}\n" for name in names)
    table = "".join(
        f'  {{"{name}", [](const void* tables, const void* work) '
        f"{{ toktier_kernel_{name}((const Tables*)tables, (const Work*)work); }}}},\n"
        for name in names
    )
    return f"""#include "{SHIM.name}"
{renamed}namespace {{
#include "{source.name}"
const shim::Kernel toktier_kernels[] = {{
{table}  {{nullptr, nullptr}}
}};
}}
extern "C" __attribute__((visibility("default"))) int toktier_launch(
    const char* kernel, unsigned blocks, unsigned threads, const void* const* arguments, int count, unsigned seed,
    char* message, int size) {{
  return shim::run(toktier_kernels, kernel, blocks, threads, arguments, count, seed, message, size);
}}
"""


def compiled(source: Path) -> Path:
    """The library of the kernels in a file, which is made when there is none for what its folder holds.

    Raises:
        RuntimeError: The compiler says no.
    """
    import fcntl  # which a system without a compiler of this kind may lack

    command = compiler()
    if command is None:
        raise RuntimeError("there is no C++ compiler")
    text = program(source)
    digest = hashlib.sha256(repr((command, FLAGS, text)).encode())
    headers = [path for folder in (SHIM.parent, source.parent) for path in sorted(folder.glob("*.*h"))]
    for path in headers:
        digest.update(path.name.encode() + b"\0" + path.read_bytes())
    folder = Path(tempfile.gettempdir()) / f"toktier-kernels-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    library = folder / f"{digest.hexdigest()[:32]}.so"
    with library.with_suffix(".lock").open("w") as lock, tempfile.TemporaryDirectory(dir=folder) as scratch:
        fcntl.flock(lock, fcntl.LOCK_EX)  # another process may be making it
        if not library.exists():
            (Path(scratch) / "kernels.cpp").write_text(text)
            includes = ("-I", str(source.parent.resolve()), "-I", str(SHIM.parent))
            # In two steps: a compiler that links with -fsanitize adds a library, of functions that the shim has itself.
            _call(scratch, command, *FLAGS, *includes, "-c", "kernels.cpp", "-o", "kernels.o")
            _call(scratch, command, "-shared", "kernels.o", "-o", "kernels.so")
            (Path(scratch) / "kernels.so").replace(library)
    return library


def _call(folder: str, *command: str) -> None:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, errors="replace", check=False)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)}\n{done.stderr}")


@frozen(eq=False)
class HostChain:
    """Steps and their arguments."""

    _device: HostDevice
    _steps: tuple[Step, ...]
    _arguments: tuple[int, ...]

    def run(self) -> None:
        """Runs them to the end.

        Raises:
            RuntimeError: A kernel failed.
        """
        for step in self._steps:
            if isinstance(step, Fill):
                step.array.bytes[:] = step.value
            else:
                self._device.library.launch(step, self._arguments, self._device.seed)


@frozen(eq=False)
class HostQueue:
    """Does everything at once."""

    _device: HostDevice

    def write(self, target: Memory, source: npt.NDArray[Any]) -> None:
        """Copies to the beginning of an array."""
        octets = source.reshape(-1).view(np.uint8)
        target.bytes[: octets.size] = octets

    def read(self, target: npt.NDArray[Any], source: Memory) -> None:
        """Copies from the beginning of an array."""
        if not target.flags.c_contiguous:
            raise ValueError("what is read to must be contiguous")
        octets = target.reshape(-1).view(np.uint8)
        octets[:] = source.bytes[: octets.size]

    def chain(self, steps: Sequence[Step], arguments: Sequence[int]) -> HostChain:
        """Prepares steps."""
        return HostChain(self._device, tuple(steps), tuple(arguments))

    def wait(self) -> None:
        """Looks at the guards of all arrays.

        Raises:
            RuntimeError: A kernel wrote beside one.
        """
        self._device.check()


@define(eq=False)
class HostDevice:
    """Runs kernels on the processor.

    Attributes:
        source: The file with the kernels.
        seed: In which order blocks and threads run; with 0 they ascend.
    """

    source: Path
    seed: int = field(default=0, kw_only=True)
    name: str = field(default="the processor", init=False)
    library: Library = field(init=False)
    _arrays: weakref.WeakSet[Memory] = field(factory=weakref.WeakSet, init=False)
    # A bucket may be finalized in the middle of a look, and then looks itself.
    _lock: threading.RLock = field(factory=threading.RLock, init=False)

    def __attrs_post_init__(self) -> None:
        self.library = Library.at(compiled(self.source))

    @property
    def version(self) -> str:
        """Of the compiler: what it is called."""
        return str(compiler())

    def upload(self, array: npt.NDArray[Any]) -> Memory:
        """A copy of an array."""
        memory = self.empty(array.size, array.dtype)
        memory.values[:] = array.reshape(-1)
        return memory

    def empty(self, size: int, dtype: npt.DTypeLike) -> Memory:
        """Memory with garbage in it."""
        memory = Memory.of(size, dtype)
        with self._lock:
            self._arrays.add(memory)
        return memory

    def copy(self, array: Memory, size: int) -> Memory:
        """A new array with the first elements of another."""
        return self.upload(array.values[:size])

    def staging(self, size: int) -> npt.NDArray[np.uint8]:
        """Memory with garbage in it."""
        return np.full(size, GARBAGE, np.uint8)

    def address(self, array: Memory) -> int:
        """Where an array begins."""
        return array.address

    def queue(self) -> HostQueue:
        """A new queue."""
        return HostQueue(self)

    def check(self) -> None:
        """Looks at the guards of all arrays.

        Raises:
            RuntimeError: Something was written beside one.
        """
        with self._lock:
            arrays = list(self._arrays)
        for array in arrays:
            array.check()


def _is_a_device(device: HostDevice) -> Device:
    return device  # mypy compares them
