// From pieces to ids, whatever the model is: a thread a piece, and warps for long ones.
#pragma once
#include "blocks.cuh"
#include "encoding.cuh"
#include "unigram.cuh"

// Leaves a piece to a warp.
DEVICE void list_piece(const Work* work, u32 begin, u32 end) {
  if (end - begin > LONG) {
    counters(work)[OVERFLOWS] = 1;  // only where there was no room to leave segments to the host
    return;
  }
  bool is_medium = end - begin <= MEDIUM;
  u32 number = atomicAdd(&counters(work)[is_medium ? MEDIUMS : LENGTHIES], 1);
  u32* pieces = is_medium ? work->medium : work->lengthy;
  if (number < work->lists) {
    pieces[2 * number] = begin;
    pieces[2 * number + 1] = end;
  } else {
    counters(work)[OVERFLOWS] = 1;
  }
}

// Encodes a piece that needs no merging; returns whether it did.
DEVICE bool encode_at_once(const Tables* tables, const u8* piece, u32* slots, u32 size, u32 mark) {
  if (mark & (DROPPED | SPECIAL)) {
    return true;
  }
  if (tables->model == WORD_PIECES) {
    word_pieces(tables, piece, slots, size);
    return true;
  }
  if (tables->model == UNIGRAM) {
    unigram(tables, piece, slots, size, mark & PREFIXED);
    return true;
  }
  u32 id = whole_word(tables, piece, size);
  if (id == NONE && tables->model == WORDS) {
    id = tables->unknown;
  }
  slots[0] = id;
  return id != NONE;
}

extern "C" __global__ void encode(const Tables* __restrict__ tables, const Work* __restrict__ work) {
  __shared__ u16 list[TILE];
  __shared__ u8 sizes[TILE];
  __shared__ u32 sums[WARPS + 1];
  __shared__ u32 rest;
  Text text = text_of(work);
  u32 tile = blockIdx.x * TILE;
  if (tile >= text.size) {
    return;
  }
  u32 count = list_marked(work->marks, text.size, PIECE, list, sums);
  if (threadIdx.x == 0) {
    rest = 0;
  }
  __syncthreads();
  // First all that need no merging, which most do not. What is left goes to the beginning of the list, so that full warps
  // merge, and none waits for one of its lanes. It is only written over what all threads of this round have read.
  for (u32 from = 0; from < count; from += blockDim.x) {
    u32 i = from + threadIdx.x;
    u32 at = 0, size = 0;
    if (i < count) {
      at = list[i];
      u32 begin = tile + at, end = begin + 1;
      u32 mark = work->marks[begin];
      if (i + 1 < count) {
        end = tile + list[i + 1];
      } else if (!(mark & (DROPPED | SPECIAL))) {
        while (end < text.size && !(work->marks[end] & PIECE)) {
          end++;
        }
      }
      size = end - begin;
      if (encode_at_once(tables, text.bytes + begin, work->slots + begin, size, mark)) {
        size = 0;
      } else if (size > SHORT) {
        list_piece(work, begin, end);
        size = 0;
      }
    }
    __syncthreads();
    if (size) {
      u32 number = atomicAdd(&rest, 1);
      list[number] = at;
      sizes[number] = size;
    }
    __syncthreads();
  }
  for (u32 i = threadIdx.x; i < rest; i += blockDim.x) {
    u32 begin = tile + list[i], size = sizes[i];
    Symbols<u8, SHORT> symbols;
    merge<Thread>(tables, symbols, text.bytes + begin, size);
    write_symbols<Thread>(symbols, work->slots + begin, size);
  }
}

// Merges the pieces of a list, a warp each; warps take them in turn.
template <class S>
DEVICE void encode_listed(
    const Tables* tables, const Work* work, S& symbols, const u32* pieces, u32 count, u32 warp, u32 warps
) {
  Text text = text_of(work);
  for (u32 i = warp; i < count && i < work->lists; i += warps) {
    u32 begin = pieces[2 * i], size = pieces[2 * i + 1] - begin;
    merge<Warp>(tables, symbols, text.bytes + begin, size);
    write_symbols<Warp>(symbols, work->slots + begin, size);
  }
}

// Any number of blocks.
extern "C" __global__ void encode_medium(const Tables* __restrict__ tables, const Work* __restrict__ work) {
  __shared__ Symbols<u8, MEDIUM> symbols[WARPS];
  u32 warp = threadIdx.x / WARP;
  u32 count = counters(work)[MEDIUMS];
  encode_listed(tables, work, symbols[warp], work->medium, count, blockIdx.x * WARPS + warp, gridDim.x * WARPS);
}

// Any number of blocks, of one warp.
extern "C" __global__ void encode_long(const Tables* __restrict__ tables, const Work* __restrict__ work) {
  __shared__ Symbols<u16, LONG> symbols;
  u32 count = counters(work)[LENGTHIES];
  encode_listed(tables, work, symbols, work->lengthy, count, blockIdx.x, gridDim.x);
}
