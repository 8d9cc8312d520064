"""The processor as a device: what kernels compute on it, and which of their mistakes it finds."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from tests.gpu import host
from toktier.gpu.device import Fill, Launch

pytestmark = pytest.mark.skipif(not host.available(), reason="there is no C++ compiler")

SOURCE = Path(__file__).with_name("fixture.cuh")
SEEDS = range(4)
U32 = npt.NDArray[np.uint32]


def run(
    kernel: str, blocks: int, threads: int, *, size: int = 0, data: U32 | None = None, results: int = 1, seed: int = 0
) -> U32:
    """The output, which has `results` numbers for each thread and is zero before."""
    device = host.HostDevice(SOURCE, seed=seed)
    output = device.empty(blocks * threads * results, np.uint32)
    given = device.upload(random(blocks * threads) if data is None else data)
    tables = device.upload(np.array([device.address(given)], np.uint64))
    work = device.upload(np.array([device.address(output), size], np.uint64))
    queue = device.queue()
    arguments = [device.address(tables), device.address(work)]
    queue.chain([Fill(output, 0), Launch(kernel, blocks, threads)], arguments).run()
    staged = device.staging(output.values.nbytes)
    queue.read(staged, output)
    queue.wait()
    return staged.view(np.uint32)


def random(size: int) -> U32:
    return np.random.default_rng(0).integers(0, 10, size, dtype=np.uint32)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_block_scans_through_shared_memory_and_barriers(seed: int) -> None:
    data = random(5 * 256)
    expected = data.reshape(5, 256).cumsum(1).ravel()
    assert run("block_scan", 5, 256, data=data, seed=seed).tolist() == expected.tolist()


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("threads", [32, 64, 1024])
def test_warps_scan_by_shuffles_of_64_bits(threads: int, seed: int) -> None:
    data = random(3 * threads)
    expected = data.reshape(-1, 32).cumsum(1).ravel()
    assert run("warp_scan", 3, threads, data=data, seed=seed).tolist() == expected.tolist()


@pytest.mark.parametrize("seed", SEEDS)
def test_warp_operations(seed: int) -> None:
    data = random(2 * 64)
    got = run("warp_operations", 2, 64, data=data, results=8, seed=seed).reshape(-1, 32, 8)
    lanes = np.arange(32)
    for warp, results in zip(data.reshape(-1, 32), got, strict=True):
        assert (results[:, 0] == sum(1 << lane for lane in range(32) if warp[lane] & 4)).all()
        assert (results[:, 1] == (warp == 7).any()).all()
        assert (results[:, 2] == (warp < 10).all()).all()
        assert (results[:, 3] == warp[31 - lanes]).all()
        assert (results[:, 4] == warp[np.where(lanes < 29, lanes + 3, lanes)]).all()
        assert (results[:, 5] == warp[lanes ^ 5]).all()
        assert (results[:, 6] == warp.min()).all()
        assert (results[:, 7] == warp.sum()).all()


@pytest.mark.parametrize("seed", SEEDS)
def test_parts_of_a_warp_go_their_own_ways_by_their_masks(seed: int) -> None:
    expected = ([3 * 120 + 32_000] * 16 + [16 + 32_000] * 16) * 2
    assert run("halves", 1, 64, seed=seed).tolist() == expected


@pytest.mark.parametrize("seed", SEEDS)
def test_atomics(seed: int) -> None:
    data = random(4 * 64) + 20
    got = run("atomics", 4, 64, data=data, seed=seed)
    assert got[:3].tolist() == [data.sum(), 0, data.max()]
    assert got[3] == np.bitwise_or.reduce(1 << (data % 32))
    assert got[4:6].tolist() == [np.bitwise_xor.reduce(data), 77]
    assert got[6:8].view(np.uint64)[0] == int(data.sum()) << 20


def test_bits() -> None:
    assert run("bits", 1, 8)[:8].tolist() == [8, 64, 0, 4, 32, 31, 2, 3]


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("threads", [1, 20, 64, 70])
def test_threads_that_have_exited_are_not_waited_for(threads: int, seed: int) -> None:
    got = run("some_exit", 2, threads, size=9, seed=seed).reshape(2, threads)
    votes = sum(1 for thread in range(threads) if thread % 32 < 9)
    for thread in range(threads):
        lanes = min(9, threads - thread // 32 * 32)
        assert (got[:, thread] == ((1 << lanes) - 1 + votes if thread % 32 < 9 else 0)).all()


@pytest.mark.parametrize("seed", SEEDS)
def test_an_exit_lets_those_go_on_that_waited_for_it(seed: int) -> None:
    got = run("last_exits", 1, 64, seed=seed)
    assert got.tolist() == [0xFFFFFFFF] * 32 + [0x7FFFFFFF] * 31 + [0]


def test_a_grid_of_a_million_threads_that_return_at_once_is_quick() -> None:
    run("early", 4, 256)
    begin = time.perf_counter()
    assert not run("early", 4096, 256, data=np.zeros(1, np.uint32)).any()
    assert time.perf_counter() - begin < 0.5  # 0.02 s on an idle machine


@pytest.mark.parametrize(
    ("wrong", "right", "threads"),
    [("shift_racy", "shift", 256), ("shift_warp_racy", None, 32), ("blocks_racy", None, 32)],
)
def test_some_seed_shows_what_relies_on_an_order(wrong: str, right: str | None, threads: int) -> None:
    in_order = run(wrong, 3, threads).tolist()
    assert any(run(wrong, 3, threads, seed=seed).tolist() != in_order for seed in range(1, 4))
    if right is not None:
        assert in_order == run(right, 3, threads).tolist()  # so it is not seen without a seed
        assert all(run(right, 3, threads, seed=seed).tolist() == in_order for seed in range(1, 4))


def test_a_seed_gives_the_same_order_again() -> None:
    results = {seed: run("shift_racy", 3, 256, seed=seed).tolist() for seed in SEEDS}
    assert results == {seed: run("shift_racy", 3, 256, seed=seed).tolist() for seed in SEEDS}
    assert results[1] != results[2]


@pytest.mark.parametrize("seed", SEEDS)
def test_shared_memory_is_garbage_when_a_block_begins(seed: int) -> None:
    got = run("zeroed", 3, 32, results=2, seed=seed).reshape(-1, 2)
    assert (got == [0xA5A5A5A5, 0xA5A5A5A5 + 32]).all()


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(
    ("kernel", "size", "words"),
    [
        ("diverge_at_two", 10, ["thread", "fixture.cuh:", "__syncthreads", "a barrier that not all reach"]),
        ("diverge_in_warp", 0, ["thread 5 at", "__syncthreads", "__ballot_sync with mask 0xffffffff"]),
        ("wrong_mask", 0, ["__ballot_sync with mask 0x1, without this lane"]),
        ("asserts", 0, ["assert(work->size == 1)"]),
        ("misaligned", 0, ["misaligned"]),
        ("outside", 4, ["an index outside of its array"]),
        ("wide_shift", 32, ["a shift by as many bits"]),
        ("no_such", 0, ["there is no such kernel"]),
        ("commented", 0, ["there is no such kernel"]),
    ],
)
def test_what_is_undefined_ends_the_launch(kernel: str, size: int, words: list[str], seed: int) -> None:
    with pytest.raises(RuntimeError) as raised:
        run(kernel, 3, 64, size=size, seed=seed)
    message = str(raised.value)
    assert message.startswith(f"kernel {kernel}")
    assert [word for word in words if word not in message] == []
    # Fibers that were left where they stood are used again.
    test_a_block_scans_through_shared_memory_and_barriers(seed)


@pytest.mark.parametrize(("blocks", "threads"), [(0, 32), (1, 0), (1, 1025)])
def test_no_gpu_has_such_a_grid(blocks: int, threads: int) -> None:
    device = host.HostDevice(SOURCE)
    chain = device.queue().chain([Launch("early", blocks, threads)], [0, 0])
    with pytest.raises(RuntimeError, match="it cannot be run like this"):
        chain.run()


def test_a_null_pointer_is_found() -> None:
    device = host.HostDevice(SOURCE)
    nothing = device.upload(np.zeros(2, np.uint64))
    with pytest.raises(RuntimeError, match="null"):
        device.queue().chain([Launch("null_pointer", 1, 1)], [device.address(nothing)] * 2).run()


@pytest.mark.parametrize(("size", "byte"), [(8, 32), (10, 40), (0, -4), (1000, -64)])
def test_guards_see_what_is_written_beside_an_array(size: int, byte: int) -> None:
    device = host.HostDevice(SOURCE)
    output = device.empty(8, np.uint32)
    begin = device.address(output) + byte - 4 * size  # where the kernel takes the array to begin
    work = device.upload(np.array([begin % 2**64, size], np.uint64))
    queue = device.queue()
    queue.wait()
    queue.chain([Launch("beside", 1, 1)], [device.address(work)] * 2).run()
    with pytest.raises(RuntimeError, match=f"at byte {byte} of an array of 32 bytes"):
        queue.wait()


def test_memory_is_garbage_and_aligned_and_ends_with_its_array() -> None:
    device = host.HostDevice(SOURCE)
    array = device.empty(100, np.uint16)
    assert (array.values == 0xA5A5).all()
    assert (device.staging(10) == 0xA5).all()
    assert device.address(array) % 256 == 0
    device.queue().wait()
    array.bytes.base[:] = 0  # type: ignore[index]
    with pytest.raises(RuntimeError, match="an array of 200 bytes"):
        device.queue().wait()
    del array
    device.queue().wait()


def test_queues_copy_begins_of_arrays() -> None:
    device = host.HostDevice(SOURCE)
    queue = device.queue()
    array = device.upload(np.arange(4, dtype=np.uint32))
    staged = device.staging(16)
    staged.view(np.uint32)[:] = [7, 8, 9, 10]
    queue.write(array, staged[:8])
    queue.read(staged[4:], array)
    queue.wait()
    assert array.values.tolist() == [7, 8, 2, 3]
    assert staged.view(np.uint32).tolist() == [7, 7, 8, 2]
    with pytest.raises(ValueError, match="broadcast"):
        queue.write(array, device.staging(17))
    with pytest.raises(ValueError, match="broadcast"):
        queue.read(device.staging(17), array)
    queue.chain([Fill(array, 0xFF)], []).run()
    assert (array.values == 0xFFFFFFFF).all()


def test_a_kernel_may_be_called_like_a_function_of_c() -> None:
    assert run("index", 1, 1).tolist() == [1]


def test_threads_may_launch_at_once() -> None:
    with ThreadPoolExecutor(len(SEEDS)) as pool:
        list(pool.map(test_a_block_scans_through_shared_memory_and_barriers, list(SEEDS) * 10))


def test_libraries_are_made_once_and_again_when_a_header_changes(tmp_path: Path) -> None:
    (tmp_path / "top.cuh").write_text('#include "one.cuh"\n')
    header = tmp_path / "one.cuh"
    header.write_text(
        'struct Tables {};\nstruct Work {};\nextern "C" __global__ void only(const Tables*, const Work*) {}\n'
    )
    assert host.kernels(tmp_path / "top.cuh") == ["only"]
    first = host.compiled(tmp_path / "top.cuh")
    made = first.stat().st_mtime_ns
    assert host.compiled(tmp_path / "top.cuh") == first
    assert first.stat().st_mtime_ns == made
    header.write_text(header.read_text().replace("only", "other"))
    second = host.compiled(tmp_path / "top.cuh")
    assert second != first
    header.write_text(header.read_text().replace("{}\n", "{ int unused; }\n"))
    with pytest.raises(RuntimeError, match="unused"):
        host.HostDevice(tmp_path / "top.cuh")
    for library in (first, second):
        library.unlink()
