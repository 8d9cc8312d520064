// Small kernels for test_shim.py; some are wrong on purpose.

typedef unsigned int u32;
typedef unsigned long long u64;

struct Tables {
  const u32* input;
};

struct Work {
  u32* output;
  u32 size;
};

#define DEVICE __device__ __forceinline__

DEVICE u32 place() { return blockIdx.x * blockDim.x + threadIdx.x; }

extern "C" __global__ void early(const Tables*, const Work* work) {
  if (place() >= work->size) return;
  work->output[place()] = place();
}

template <u32 SIZE> DEVICE u32 scan(u32 value) {  // inclusive, over a block
  __shared__ u32 sums[2][SIZE];
  u32 from = 0;
  sums[0][threadIdx.x] = value;
  __syncthreads();
#pragma unroll
  for (u32 by = 1; by < SIZE; by *= 2) {
    const u32 before = threadIdx.x >= by ? sums[from][threadIdx.x - by] : 0;
    sums[1 - from][threadIdx.x] = sums[from][threadIdx.x] + before;
    from = 1 - from;
    __syncthreads();
  }
  return sums[from][threadIdx.x];
}

extern "C" __global__ void __launch_bounds__(256) block_scan(const Tables* tables, const Work* work) {
  work->output[place()] = scan<256>(__ldg(tables->input + place()));
}

extern "C" __global__ void warp_scan(const Tables* tables, const Work* work) {
  const u32 lane = threadIdx.x % 32;
  u64 value = (u64)tables->input[place()] << 32;
  for (u32 by = 1; by < 32; by *= 2) {
    const u64 before = __shfl_up_sync(~0u, value, by);
    if (lane >= by) value += before;
  }
  work->output[place()] = (u32)(value >> 32);
}

// Eight results for each thread.
extern "C" __global__ void warp_operations(const Tables* tables, const Work* work) {
  const u32 value = tables->input[place()], lane = threadIdx.x % 32;
  u32* output = work->output + 8 * place();
  output[0] = __ballot_sync(~0u, value & 4);
  output[1] = __any_sync(~0u, value == 7);
  output[2] = __all_sync(~0u, value < 10);
  output[3] = __shfl_sync(~0u, value, 31 - lane);
  output[4] = __shfl_down_sync(~0u, value, 3);
  output[5] = __shfl_xor_sync(~0u, value, 5);
  output[6] = __reduce_min_sync(~0u, value);
  output[7] = __reduce_add_sync(~0u, value);
}

// The halves of a warp go different ways, each with a mask of its own, and come together.
extern "C" __global__ void halves(const Tables*, const Work* work) {
  const u32 lane = threadIdx.x % 32;
  u32 value = 0;
  if (lane < 16) {
    for (u32 i = 0; i < 3; i++) value += __reduce_add_sync(0xFFFFu, lane);
  } else {
    value = __reduce_min_sync(0xFFFF0000u, lane);
  }
  __syncwarp();
  work->output[place()] = value + (u32)__popc(__ballot_sync(~0u, 1)) * 1000;
}

extern "C" __global__ void atomics(const Tables* tables, const Work* work) {
  const u32 value = tables->input[place()];
  atomicAdd(work->output, value);
  atomicMin(work->output + 1, value);
  atomicMax(work->output + 2, value);
  atomicOr(work->output + 3, 1u << value % 32);
  u32 seen = work->output[4], expected;
  do {
    expected = seen;
    seen = atomicCAS(work->output + 4, expected, expected ^ value);
  } while (seen != expected);
  atomicExch(work->output + 5, 77u);
  atomicAdd((u64*)(work->output + 6), (u64)value << 20);
}

extern "C" __global__ void bits(const Tables*, const Work* work) {
  const int results[] = {__popc(0xF0F0u), __popcll(~0ull), __ffs(0), __ffs(8), __clz(0), __clz(1)};
  for (u32 i = 0; i < 6; i++) work->output[i] = (u32)results[i];
  work->output[6] = min(3u, 2u);
  work->output[7] = max(3u, 2u);
}

// Of each warp, the threads from `size` on are gone when the others vote, and meet at a barrier.
extern "C" __global__ void some_exit(const Tables*, const Work* work) {
  __shared__ u32 votes;
  if (threadIdx.x == 0) votes = 0;
  __syncthreads();
  if (threadIdx.x % 32 >= work->size) return;
  atomicAdd(&votes, 1u);
  const u32 ballot = __ballot_sync(~0u, 1);
  __syncthreads();
  work->output[place()] = ballot + votes;
}

// All wait for the thread that exits last.
extern "C" __global__ void last_exits(const Tables*, const Work* work) {
  if (threadIdx.x == blockDim.x - 1) return;
  const u32 ballot = __ballot_sync(~0u, 1);
  __syncthreads();
  work->output[place()] = ballot;
}

// Shifts the values of a block by one. There is a barrier missing, which an ascending order does not show.
extern "C" __global__ void shift_racy(const Tables* tables, const Work* work) {
  __shared__ u32 values[257];
  if (threadIdx.x == 0) values[0] = 0;
  values[threadIdx.x + 1] = tables->input[place()];
  work->output[place()] = values[threadIdx.x];
}

extern "C" __global__ void shift(const Tables* tables, const Work* work) {
  __shared__ u32 values[257];
  if (threadIdx.x == 0) values[0] = 0;
  values[threadIdx.x + 1] = tables->input[place()];
  __syncthreads();
  work->output[place()] = values[threadIdx.x];
}

// The same in a warp, behind an operation after which lanes go on in any order.
extern "C" __global__ void shift_warp_racy(const Tables* tables, const Work* work) {
  __shared__ u32 values[33];
  const u32 value = __shfl_xor_sync(~0u, tables->input[place()], 1);
  if (threadIdx.x == 0) values[0] = 0;
  values[threadIdx.x + 1] = value;
  work->output[place()] = values[threadIdx.x];
}

// Blocks that rely on their order.
extern "C" __global__ void blocks_racy(const Tables*, const Work* work) {
  if (threadIdx.x == 0) work->output[blockIdx.x + 1] = work->output[blockIdx.x] + 1;
}

// Takes it for granted that shared memory is zero, or as the block before left it.
extern "C" __global__ void zeroed(const Tables*, const Work* work) {
  __shared__ u32 never_written[32];
  __shared__ u32 count;
  atomicAdd(&count, 1u);
  __syncthreads();
  work->output[2 * place()] = never_written[threadIdx.x];
  work->output[2 * place() + 1] = count;
}

extern "C" __global__ void diverge_at_two(const Tables*, const Work* work) {
  if (threadIdx.x < work->size) {
    __syncthreads();
  } else {
    __syncthreads();
  }
}

extern "C" __global__ void diverge_in_warp(const Tables*, const Work* work) {
  if (threadIdx.x == 5) {
    __syncthreads();
  } else {
    work->output[0] = __ballot_sync(~0u, 1);
  }
}

extern "C" __global__ void wrong_mask(const Tables*, const Work* work) { work->output[0] = __ballot_sync(1u, 1); }

extern "C" __global__ void asserts(const Tables*, const Work* work) { assert(work->size == 1); }

extern "C" __global__ void misaligned(const Tables*, const Work* work) {
  *(u32*)((char*)work->output + 2) = 1;
}

extern "C" __global__ void null_pointer(const Tables* tables, const Work* work) { work->output[0] = *tables->input; }

extern "C" __global__ void outside(const Tables*, const Work* work) {
  __shared__ u32 values[4];
  values[work->size] = 1;
  __syncthreads();
  work->output[0] = values[0];
}

extern "C" __global__ void wide_shift(const Tables*, const Work* work) { work->output[0] = 1u << work->size; }

extern "C" __global__ void beside(const Tables*, const Work* work) { work->output[work->size] = 1; }

// Called like a function of the C library.
extern "C" __global__ void index(const Tables*, const Work* work) { work->output[0] = 1; }

// extern "C" __global__ void commented(const Tables*, const Work*)
