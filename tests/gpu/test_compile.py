"""The kernels compile for GPUs, without one: no warning, every kernel is there, and none spills registers."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from toktier.gpu.cupy_device import OPTIONS
from toktier.gpu.source import kernels, whole

ARCHITECTURES = ("sm_80", "sm_90", "sm_100", "sm_120")
"""Ampere, Hopper, and the two kinds of Blackwell; others have one of these in their family."""

STRICT = (*OPTIONS, "-Werror", "all-warnings", "--ptxas-options=-v")

SPILLS = re.compile(r"\b(\d+) bytes spill stores, (\d+) bytes spill loads")

Compile = Callable[..., tuple[bytes, str]]
"""Compiles a source with some options, to machine code and what the compiler says; or raises RuntimeError."""


def with_nvrtc(source: str, *options: str) -> tuple[bytes, str]:
    """As CuPy does it, and with what it adds to the options."""
    nvrtc = pytest.importorskip("cupy").cuda.nvrtc
    program = nvrtc.createProgram(source, "kernels.cu", (), ())
    try:
        nvrtc.compileProgram(program, ("-ftz=true", "--device-as-default-execution-space", *options))
        return nvrtc.getCUBIN(program), nvrtc.getProgramLog(program)
    except nvrtc.NVRTCError:
        raise RuntimeError(nvrtc.getProgramLog(program)) from None
    finally:
        nvrtc.destroyProgram(program)


def with_nvcc(source: str, *options: str, folder: Path) -> tuple[bytes, str]:
    (folder / "kernels.cu").write_text(source)
    command = ("nvcc", *options, "-cubin", "-o", "kernels.cubin", "kernels.cu")
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(done.stdout + done.stderr)
    return (folder / "kernels.cubin").read_bytes(), done.stdout + done.stderr


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Compile:
    try:
        import cupy

        cupy.cuda.nvrtc.getVersion()
    except (ImportError, RuntimeError) as error:  # it imports without NVRTC, and misses it when it is needed
        if shutil.which("nvcc") is None:
            pytest.skip(f"there is neither nvcc nor NVRTC: {error}")
        folder = tmp_path_factory.mktemp("nvcc")
        return lambda source, *options: with_nvcc(source, *options, folder=folder)
    return with_nvrtc


def spills(log: str) -> list[int]:
    """Bytes that each kernel spills, stored and loaded."""
    return [int(stores) + int(loads) for stores, loads in SPILLS.findall(log)]


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_kernels_compile(compiled: Compile, architecture: str) -> None:
    code, log = compiled(whole(), f"-arch={architecture}", *STRICT)
    assert [name for name in kernels() if f".text.{name}\0".encode() not in code] == []
    assert spills(log) == [0] * len(kernels())


def test_an_error_is_told_with_its_line(compiled: Compile) -> None:
    with pytest.raises(RuntimeError, match=r'kernels.cu\(1\): error: identifier "missing" is undefined'):
        compiled('extern "C" __global__ void broken() { missing(); }', "-arch=sm_90")


def test_a_warning_is_an_error(compiled: Compile) -> None:
    source = 'extern "C" __global__ void careless() { int unused; }'
    with pytest.raises(RuntimeError, match="never referenced"):
        compiled(source, "-arch=sm_90", *STRICT)


def test_spills_are_seen(compiled: Compile) -> None:
    source = """extern "C" __global__ void many(float* x) {
      float values[64];
      #pragma unroll
      for (int i = 0; i < 64; i++) values[i] = x[i * threadIdx.x];
      __syncthreads();
      #pragma unroll
      for (int i = 0; i < 64; i++) x[i] = values[i] * values[63 - i];
    }"""
    (spilled,) = spills(compiled(source, "-arch=sm_90", "-maxrregcount=24", *STRICT)[1])
    assert spilled > 0
