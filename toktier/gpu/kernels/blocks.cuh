// What the threads of a block do together.
#pragma once
#include "prelude.cuh"

// The sum of the values of all threads before this one; `sums` is shared memory for one number a warp and one more, where
// the sum of all is at the end.
DEVICE u32 block_scan(u32 value, u32* sums) {
  u32 lane = threadIdx.x % WARP, warp = threadIdx.x / WARP, warps = blockDim.x / WARP;
  u32 scanned = value;
  for (u32 distance = 1; distance < WARP; distance *= 2) {
    u32 other = __shfl_up_sync(NONE, scanned, distance);
    scanned += lane >= distance ? other : 0;
  }
  if (lane == WARP - 1) {
    sums[warp] = scanned;
  }
  __syncthreads();
  if (warp == 0) {
    u32 sum = lane < warps ? sums[lane] : 0;
    u32 before = sum;
    for (u32 distance = 1; distance < WARP; distance *= 2) {
      u32 other = __shfl_up_sync(NONE, before, distance);
      before += lane >= distance ? other : 0;
    }
    if (lane < warps) {
      sums[lane] = before - sum;
    }
    if (lane == WARP - 1) {
      sums[warps] = before;
    }
  }
  __syncthreads();
  return sums[warp] + scanned - value;
}

// Lists the bytes of a tile that have a mark, in order; returns how many there are.
DEVICE u32 list_marked(const u8* marks, u32 size, u32 mark, u16* list, u32* sums) {
  u32 begin = blockIdx.x * TILE + threadIdx.x * BYTES_A_THREAD;
  u32 found = 0;
  for (u32 i = 0; i < BYTES_A_THREAD; i++) {
    found |= (begin + i < size && (marks[begin + i] & mark) ? 1u : 0) << i;
  }
  u32 at = block_scan(__popc(found), sums);
  for (u32 i = 0; i < BYTES_A_THREAD; i++) {
    if (found >> i & 1) {
      list[at++] = threadIdx.x * BYTES_A_THREAD + i;
    }
  }
  __syncthreads();
  return sums[WARPS];
}

// The sum of the values of all lanes of a warp, in each of them.
DEVICE u32 warp_sum(u32 value) {
  for (u32 distance = WARP / 2; distance; distance /= 2) {
    value += __shfl_xor_sync(NONE, value, distance);
  }
  return value;
}

// Replaces numbers by the sums of those before each, and returns the sum of all. For one block. What is returned does not
// wrap around, so that whoever has too little room learns of it.
DEVICE u64 scan_in_place(u32* values, u32 count, u32* sums) {
  u64 carry = 0;
  for (u32 begin = 0; begin < count; begin += blockDim.x) {
    u32 at = begin + threadIdx.x;
    u32 value = at < count ? values[at] : 0;
    u32 before = block_scan(value, sums);
    if (at < count) {
      values[at] = (u32)carry + before;
    }
    carry += sums[blockDim.x / WARP];
    __syncthreads();
  }
  return carry;
}
