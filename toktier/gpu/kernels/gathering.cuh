// From slots to ids, one after the other.
#pragma once
#include "blocks.cuh"

// The tokens of a slot.
DEVICE u32 weight(const Work* work, u32 slot) {
  if (slot == EMPTY) {
    return 0;
  }
  if (slot & DEFERRED) {
    return work->patches[2 * (slot & ~DEFERRED) + 1];
  }
  return slot & BEHIND_PREFIX ? 2 : 1;
}

extern "C" __global__ void weigh(const Tables* __restrict__, const Work* __restrict__ work) {
  __shared__ u32 sums[WARPS + 1];
  u32 size = text_of(work).size;
  if (blockIdx.x * TILE >= size) {
    return;
  }
  u32 begin = blockIdx.x * TILE + threadIdx.x * BYTES_A_THREAD;
  u32 sum = 0;
  for (u32 at = begin; at < begin + BYTES_A_THREAD && at < size; at++) {
    sum += weight(work, work->slots[at]);
  }
  block_scan(sum, sums);
  if (threadIdx.x == 0) {
    work->weights[blockIdx.x] = sums[WARPS];
  }
}

// One block.
extern "C" __global__ void scan_weights(const Tables* __restrict__, const Work* __restrict__ work) {
  __shared__ u32 sums[SCANNERS / WARP + 1];
  u64 total = scan_in_place(work->weights, (text_of(work).size + TILE - 1) / TILE, sums);
  if (threadIdx.x == 0) {
    if (total > work->room + work->capacity) {
      counters(work)[OVERFLOWS] = 1;
    }
    counters(work)[TOKENS] = total;
  }
}

// The tokens before each document, and all of them at the end; and the counters. A warp a document, any number of blocks.
extern "C" __global__ void count(const Tables* __restrict__, const Work* __restrict__ work) {
  u32 warp = (blockIdx.x * blockDim.x + threadIdx.x) / WARP, warps = gridDim.x * blockDim.x / WARP;
  u32 lane = threadIdx.x % WARP;
  u32 total = counters(work)[DOCUMENTS], tokens = counters(work)[TOKENS], size = text_of(work).size;
  for (u32 number = warp; number < total; number += warps) {
    u32 end = work->text ? work->begins[number] : documents(work)[number], tile = end / TILE;
    u32 sum = 0;
    for (u32 at = tile * TILE + lane; at < end; at += WARP) {
      sum += weight(work, work->slots[at]);
    }
    sum = warp_sum(sum);
    if (lane == 0) {
      work->counts[number] = end >= size ? tokens : work->weights[tile] + sum;
    }
  }
  if (warp == 0) {
    if (lane < COUNTERS) {
      work->counts[total + 1 + lane] = counters(work)[lane];
    }
    if (lane == 0) {
      work->counts[total] = tokens;
    }
  }
}

extern "C" __global__ void gather(const Tables* __restrict__ tables, const Work* __restrict__ work) {
  __shared__ u32 sums[WARPS + 1];
  u32 size = text_of(work).size;
  if (blockIdx.x * TILE >= size || counters(work)[OVERFLOWS]) {
    return;
  }
  u32 begin = blockIdx.x * TILE + threadIdx.x * BYTES_A_THREAD;
  u32 sum = 0;
  for (u32 at = begin; at < begin + BYTES_A_THREAD && at < size; at++) {
    sum += weight(work, work->slots[at]);
  }
  u32 to = work->weights[blockIdx.x] + block_scan(sum, sums);
  for (u32 at = begin; at < begin + BYTES_A_THREAD && at < size; at++) {
    u32 slot = work->slots[at];
    if (slot == EMPTY) {
      continue;
    }
    if (slot & DEFERRED) {
      work->places[slot & ~DEFERRED] = to;
      to += weight(work, slot);
    } else {
      if (slot & BEHIND_PREFIX) {
        work->ids[to++] = (u32)tables->piece_prefix_id;
      }
      work->ids[to++] = slot & ~BEHIND_PREFIX;
    }
  }
}

// The ids that the host has encoded: a block a segment, any number of blocks.
extern "C" __global__ void patch(const Tables* __restrict__, const Work* __restrict__ work) {
  if (counters(work)[OVERFLOWS]) {
    return;
  }
  for (u32 number = blockIdx.x; number < counters(work)[DEFERRALS]; number += gridDim.x) {
    const u32* ids = work->patch_ids + work->patches[2 * number];
    u32 count = work->patches[2 * number + 1];
    for (u32 i = threadIdx.x; i < count; i += blockDim.x) {
      work->ids[work->places[number] + i] = ids[i];
    }
  }
}
