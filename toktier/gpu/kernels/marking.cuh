// From bytes to segments: what each character is, and where a text is cut. A block a tile, as everywhere where nothing
// else is said.
#pragma once
#include "characters.cuh"

DEVICE u8* marks_of_text(const Work* work) { return work->text ? work->raw_marks : work->marks; }

extern "C" __global__ void documents_begin(const Tables* __restrict__, const Work* __restrict__ work) {
  u32 number = blockIdx.x * blockDim.x + threadIdx.x;
  if (number < counters(work)[DOCUMENTS]) {
    u32 at = documents(work)[number];
    if (at < counters(work)[SIZE]) {
      marks_of_text(work)[at] = SEGMENT | DOCUMENT | PIECE;
    }
  }
}

// A block a tile, as everywhere where nothing else is said.
extern "C" __global__ void mark(const Tables* __restrict__ tables, const Work* __restrict__ work) {
  const u16 inside = 0xFFFF;
  __shared__ u16 kinds[TILE];
  __shared__ u32 first;
  u32 size = counters(work)[SIZE], tile = blockIdx.x * TILE;
  if (tile >= size) {
    return;
  }
  const u8* bytes = raw_text(work);
  u8* marks = marks_of_text(work);
  if (threadIdx.x == 0) {
    first = NONE;
  }
  for (u32 i = threadIdx.x; i < TILE && tile + i < size; i += blockDim.x) {
    const u8* at = bytes + tile + i;
    kinds[i] = continues(*at) ? inside : looked_up(tables->kind_pages, tables->kinds, decode(at).code_point);
  }
  __syncthreads();
  for (u32 i = threadIdx.x; i < TILE && tile + i < size; i += blockDim.x) {
    u32 kind = kinds[i], at = tile + i;
    if (kind == inside) {
      continue;
    }
    u32 flags = tables->kind_flags[kind], mark = marks[at] | (flags & ~PAIRED);
    if (!(mark & DOCUMENT)) {
      u32 left = inside;
      for (u32 j = i; j > 0 && left == inside;) {
        left = kinds[--j];
      }
      if (left == inside) {
        left = looked_up(tables->kind_pages, tables->kinds, decode(bytes + before(bytes, at)).code_point);
      }
      u64 pair = left * tables->kind_count + kind;
      mark |= tables->cuts[pair / 32] >> pair % 32 & 1 ? SEGMENT : 0;
      mark |= flags & PAIRED && tables->kind_flags[left] & PAIRED ? ODD : 0;
    }
    marks[at] = mark;
    if (mark & SEGMENT) {
      atomicMin(&first, at);
    }
  }
  __syncthreads();
  if (threadIdx.x == 0) {
    work->firsts[blockIdx.x] = first;
  }
}

// Where the first segment of each tile of the rewritten text begins.
extern "C" __global__ void index(const Tables* __restrict__, const Work* __restrict__ work) {
  __shared__ u32 first;
  u32 size = counters(work)[REWRITTEN], tile = blockIdx.x * TILE;
  if (tile >= size) {
    return;
  }
  if (threadIdx.x == 0) {
    first = NONE;
  }
  __syncthreads();
  for (u32 at = tile + threadIdx.x; at < tile + TILE && at < size; at += blockDim.x) {
    if (work->marks[at] & SEGMENT) {
      atomicMin(&first, at);
    }
  }
  __syncthreads();
  if (threadIdx.x == 0) {
    work->firsts[blockIdx.x] = first;
  }
}
