// Normalizers that put something in the place of each character, and prefixes. What comes of a character does not depend
// on what is beside it: characters of which that is not so are ODD, and their segments are the host's.
#pragma once
#include "blocks.cuh"
#include "dividing.cuh"

struct Image {
  const u8* bytes;
  u32 size;
};

DEVICE Image image_of(const Tables* tables, const u8* at) {
  Character character = decode(at);
  u32 number = looked_up(tables->image_pages, tables->image_numbers, character.code_point);
  if (number == 0) {
    return {at, character.size};
  }
  u32 begin = tables->image_ends[number - 1];
  return {tables->images + begin, tables->image_ends[number] - begin};
}

// Whether nothing is left of the character at which a stretch begins, where that makes a difference.
DEVICE bool is_lost(const Tables* tables, u32 mark, const u8* at) {
  return tables->prefix_size && !(mark & SPECIAL) && image_of(tables, at).size == 0;
}

// Whether the prefix goes before a byte at which a stretch begins.
DEVICE bool is_prefixed(const Tables* tables, u32 mark, Image first) {
  if (!tables->prefix_size || !(mark & PIECE) || mark & (SPECIAL | DROPPED)) {
    return false;
  }
  if (tables->prefix_rules & PREFIX_DOCUMENTS && !(mark & DOCUMENT)) {
    return false;
  }
  if (tables->prefix_rules & PREFIX_UNLESS_THERE && first.size >= tables->prefix_size) {
    u32 same = 0;
    while (same < tables->prefix_size && tables->prefix[same] == first.bytes[same]) {
      same++;
    }
    return same < tables->prefix_size;
  }
  return true;
}

// How many bytes come of a byte of the text: all of a character's come of its first.
DEVICE u32 width(const Tables* tables, const Work* work, u32 at) {
  u32 mark = work->raw_marks[at];
  const u8* bytes = raw_text(work) + at;
  if (mark & SPECIAL) {
    return 1;  // a place that its slot can have
  }
  if (mark & DROPPED || continues(*bytes)) {
    return 0;
  }
  Image image = image_of(tables, bytes);
  return image.size + (is_prefixed(tables, mark, image) ? (u32)tables->prefix_size : 0);
}

// Sets a mark that several threads may be about to set bits of.
DEVICE void set_mark(u8* marks, u32 at, u32 mark) {
  atomicOr((u32*)(marks + (at & ~3u)), mark << 8 * (at & 3));
}

// Has nothing come of a segment; what is marked at its beginning stays, but for that a stretch begins there.
DEVICE void drop(u8* marks, u32 begin, u32 end, u32 lane, u32 lanes) {
  for (u32 at = begin + lane; at < end; at += lanes) {
    marks[at] = (marks[at] & ~(PIECE | SPECIAL)) | (at > begin ? DROPPED : 0);
  }
}

// Where a text is rewritten: finds the added tokens in it, and what begins behind them.
extern "C" __global__ void stretches(const Tables* __restrict__ tables, const Work* __restrict__ work) {
  __shared__ u16 list[TILE];
  __shared__ u32 sums[WARPS + 1];
  __shared__ Given last;
  u32 size = counters(work)[SIZE];
  if (blockIdx.x * TILE >= size) {
    return;
  }
  if (threadIdx.x == 0) {
    last = {0, 0};
  }
  const u8* bytes = raw_text(work);
  u8* marks = work->raw_marks;
  u32* slots = work->raw_slots;
  u32 count = list_marked(marks, size, SEGMENT, list, sums);
  for (u32 i = threadIdx.x; i < count; i += blockDim.x) {
    u32 begin = blockIdx.x * TILE + list[i];
    u32 end = i + 1 < count ? blockIdx.x * TILE + list[i + 1] : end_of_last(work->firsts, size);
    bool possible = end - begin <= LONGEST_SEGMENT;
    for (u32 at = begin; possible && at < end; at++) {
      possible = !(marks[at] & ODD);
    }
    for (u32 at = begin; possible && at < end;) {
      u32 next = at + decode(bytes + at).size;
      if (marks[at] & BEGINS) {
        Occurrence found = find_literal(tables->literals, tables->literal_bits, bytes, at, end);
        possible = found.id != DEFERRED;
        if (possible && found.id != NONE) {
          marks[at] |= PIECE | SPECIAL;
          slots[at] = found.id;
          for (u32 inner = at + 1; inner < found.end; inner++) {
            marks[inner] |= DROPPED;
          }
          next = found.end;
          if (next < end) {
            marks[next] |= PIECE;
          }
        }
      }
      // A prefix goes before the first character of which something is left. Nothing is cut before that.
      if (marks[at] & PIECE && is_lost(tables, marks[at], bytes + at)) {
        marks[at] &= ~PIECE;
        if (next < end) {
          marks[next] |= PIECE;
        }
      }
      at = next;
    }
    if (!possible) {
      if (i + 1 < count) {
        drop(marks, begin, end, 0, 1);
        defer(work, marks, slots, begin, begin, end);
      } else {
        last = {begin, end};
      }
    }
  }
  // The last one may be long, and all threads help.
  __syncthreads();
  drop(marks, last.begin, last.end, threadIdx.x, blockDim.x);
  __syncthreads();
  if (threadIdx.x == 0 && last.end) {
    defer(work, marks, slots, last.begin, last.begin, last.end);
  }
}

extern "C" __global__ void measure(const Tables* __restrict__ tables, const Work* __restrict__ work) {
  __shared__ u32 sums[WARPS + 1];
  u32 size = counters(work)[SIZE];
  if (blockIdx.x * TILE >= size) {
    return;
  }
  u32 begin = blockIdx.x * TILE + threadIdx.x * BYTES_A_THREAD;
  u32 sum = 0;
  for (u32 at = begin; at < begin + BYTES_A_THREAD && at < size; at++) {
    sum += width(tables, work, at);
  }
  block_scan(sum, sums);
  if (threadIdx.x == 0) {
    work->widths[blockIdx.x] = sums[WARPS];
  }
}

// One block.
extern "C" __global__ void scan_widths(const Tables* __restrict__, const Work* __restrict__ work) {
  __shared__ u32 sums[SCANNERS / WARP + 1];
  u32* counter = counters(work);
  u64 total = scan_in_place(work->widths, (counter[SIZE] + TILE - 1) / TILE, sums);
  if (threadIdx.x == 0) {
    if (total > work->room) {
      counter[OVERFLOWS] = 1;
      total = 0;
    }
    counter[REWRITTEN] = (u32)total;
  }
}

extern "C" __global__ void rewrite(const Tables* __restrict__ tables, const Work* __restrict__ work) {
  __shared__ u32 sums[WARPS + 1];
  u32 size = counters(work)[SIZE], rewritten = counters(work)[REWRITTEN];
  if (blockIdx.x * TILE >= size || counters(work)[OVERFLOWS]) {
    return;
  }
  u32 begin = blockIdx.x * TILE + threadIdx.x * BYTES_A_THREAD;
  u32 sum = 0;
  for (u32 at = begin; at < begin + BYTES_A_THREAD && at < size; at++) {
    sum += width(tables, work, at);
  }
  u32 to = work->widths[blockIdx.x] + block_scan(sum, sums);
  const u8* bytes = raw_text(work);
  for (u32 at = begin; at < begin + BYTES_A_THREAD && at < size; at++) {
    u32 mark = work->raw_marks[at];
    if (mark & SEGMENT && to < rewritten) {
      // Where nothing is left of a segment, the next one begins here too, and what stands here is of the last.
      set_mark(work->marks, to, SEGMENT);
      atomicMax(&work->origins[to], at);
    }
    if (mark & SPECIAL) {
      set_mark(work->marks, to, PIECE | SPECIAL);
      work->slots[to] = work->raw_slots[at];
      work->text[to++] = ' ';
    } else if (!(mark & DROPPED) && !continues(bytes[at])) {
      Image image = image_of(tables, bytes + at);
      if (is_prefixed(tables, mark, image)) {
        for (u32 i = 0; i < tables->prefix_size; i++) {
          work->text[to++] = tables->prefix[i];
        }
      }
      for (u32 i = 0; i < image.size; i++) {
        work->text[to++] = image.bytes[i];
      }
    }
  }
}

// Where documents begin in the rewritten text: a warp a document, any number of blocks.
extern "C" __global__ void place(const Tables* __restrict__ tables, const Work* __restrict__ work) {
  u32 warp = (blockIdx.x * blockDim.x + threadIdx.x) / WARP, warps = gridDim.x * blockDim.x / WARP;
  u32 lane = threadIdx.x % WARP;
  for (u32 number = warp; number < counters(work)[DOCUMENTS]; number += warps) {
    u32 end = documents(work)[number], tile = end / TILE;
    u32 sum = 0;
    for (u32 at = tile * TILE + lane; at < end; at += WARP) {
      sum += width(tables, work, at);
    }
    sum = warp_sum(sum);
    if (lane == 0) {
      bool at_end = end >= counters(work)[SIZE];
      work->begins[number] = at_end ? counters(work)[REWRITTEN] : work->widths[tile] + sum;
    }
  }
}
