// The kernels, in the order in which a request runs through them. `toktier.gpu.encoder` has the chain.
//
//   documents   where each document begins
//   mark        kinds of characters; the certified cuts; what has to be looked at
//   [stretches, measure, scan_widths, rewrite, place, index: where normalizers rewrite the text]
//   divide      each segment to pieces, a thread a segment
//   encode      each piece to ids, a thread a piece; long ones are put on lists
//   encode_medium, encode_long   those, by warps and by blocks
//   weigh, scan_weights, count, gather   the ids of all slots, one after the other
#include "blocks.cuh"
#include "characters.cuh"
#include "dividing.cuh"
#include "encoding.cuh"
#include "rewriting.cuh"
#include "unigram.cuh"

DEVICE u8* marks_of_text(const Work* work) { return work->text ? work->raw_marks : work->marks; }

extern "C" __global__ void documents_begin(const Tables*, const Work* work) {
  u32 number = blockIdx.x * blockDim.x + threadIdx.x;
  if (number < counters(work)[DOCUMENTS]) {
    u32 at = documents(work)[number];
    if (at < counters(work)[SIZE]) {
      marks_of_text(work)[at] = SEGMENT | DOCUMENT | PIECE;
    }
  }
}

// A block a tile, as everywhere where nothing else is said.
extern "C" __global__ void mark(const Tables* tables, const Work* work) {
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

// Where a text is rewritten: finds the added tokens in it, and what begins behind them.
extern "C" __global__ void stretches(const Tables* tables, const Work* work) {
  __shared__ u16 list[TILE];
  __shared__ u32 sums[WARPS + 1];
  u32 size = counters(work)[SIZE];
  if (blockIdx.x * TILE >= size) {
    return;
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
      // The begin of the document is a stretch of the host's then.
      for (u32 at = begin; at < end; at++) {
        marks[at] = (marks[at] & ~(PIECE | SPECIAL)) | (at > begin ? DROPPED : 0);
      }
      defer(work, marks, slots, begin, begin, end);
    }
  }
}

extern "C" __global__ void measure(const Tables* tables, const Work* work) {
  __shared__ u32 sums[WARPS + 1];
  u32 size = counters(work)[SIZE];
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
extern "C" __global__ void scan_widths(const Tables*, const Work* work) {
  __shared__ u32 sums[WARPS + 1];
  u32* counter = counters(work);
  u32 total = scan_in_place(work->widths, (counter[SIZE] + TILE - 1) / TILE, sums);
  if (threadIdx.x == 0) {
    if (total > work->room) {
      counter[OVERFLOWS] = 1;
      total = 0;
    }
    counter[REWRITTEN] = total;
  }
}

extern "C" __global__ void rewrite(const Tables* tables, const Work* work) {
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

// Where documents begin in the rewritten text: a warp a document.
extern "C" __global__ void place(const Tables* tables, const Work* work) {
  u32 number = (blockIdx.x * blockDim.x + threadIdx.x) / WARP;
  if (number >= counters(work)[DOCUMENTS]) {
    return;
  }
  u32 end = documents(work)[number], tile = end / TILE;
  u32 sum = 0;
  for (u32 at = tile * TILE + threadIdx.x % WARP; at < end; at += WARP) {
    sum += width(tables, work, at);
  }
  sum = warp_sum(sum);
  if (threadIdx.x % WARP == 0) {
    bool at_end = end >= counters(work)[SIZE];
    work->begins[number] = at_end ? counters(work)[REWRITTEN] : work->widths[tile] + sum;
  }
}

// Where the first segment of each tile of the rewritten text begins.
extern "C" __global__ void index(const Tables*, const Work* work) {
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

extern "C" __global__ void divide(const Tables* tables, const Work* work) {
  __shared__ u16 list[TILE];
  __shared__ u32 sums[WARPS + 1];
  Text text = text_of(work);
  if (blockIdx.x * TILE >= text.size) {
    return;
  }
  bool is_rewritten = work->text;
  u8* marks = work->marks;
  u32* slots = work->slots;
  u32 count = list_marked(marks, text.size, SEGMENT, list, sums);
  for (u32 i = threadIdx.x; i < count; i += blockDim.x) {
    u32 begin = blockIdx.x * TILE + list[i];
    u32 end = i + 1 < count ? blockIdx.x * TILE + list[i + 1] : end_of_last(work->firsts, text.size);
    bool possible = end - begin <= LONGEST_SEGMENT;
    for (u32 at = begin; possible && at < end; at++) {
      possible = !(marks[at] & ODD);
    }
    bool is_marked = possible || is_rewritten;
    u32 from = begin;
    for (u32 at = begin; possible && at < end;) {
      u32 next = at + 1;
      if (is_rewritten) {
        if (marks[at] & SPECIAL) {
          possible = divide_normalized(tables, text.bytes, marks, slots, from, at);
          from = next;
        }
      } else if (marks[at] & BEGINS) {
        Occurrence found = find_literal(tables->literals, tables->literal_bits, text.bytes, at, end);
        possible = found.id != DEFERRED;
        if (possible && found.id != NONE) {
          possible = divide_normalized(tables, text.bytes, marks, slots, from, at);
          marks[at] |= PIECE | SPECIAL;
          slots[at] = found.id;
          from = next = found.end;
        }
      }
      at = next;
    }
    if (possible) {
      possible = divide_normalized(tables, text.bytes, marks, slots, from, end);
    }
    if (!possible) {
      if (is_marked) {
        forget(marks, slots, begin, end);
      }
      u32 raw_begin = is_rewritten ? work->origins[begin] : begin;
      u32 raw_end = !is_rewritten ? end : end < text.size ? work->origins[end] : counters(work)[SIZE];
      defer(work, marks, slots, begin, raw_begin, raw_end);
    }
  }
}

// What one thread needs for a piece, whatever the model is.
union Scratch {
  Symbols<u8, SHORT> symbols;
  Ways ways;
};

extern "C" __global__ void encode(const Tables* tables, const Work* work) {
  __shared__ u16 list[TILE];
  __shared__ u32 sums[WARPS + 1];
  Scratch scratch;
  Text text = text_of(work);
  if (blockIdx.x * TILE >= text.size) {
    return;
  }
  u32 count = list_marked(work->marks, text.size, PIECE, list, sums);
  for (u32 i = threadIdx.x; i < count; i += blockDim.x) {
    u32 begin = blockIdx.x * TILE + list[i];
    if (work->marks[begin] & (DROPPED | SPECIAL)) {
      continue;
    }
    u32 end = begin + 1;
    if (i + 1 < count) {
      end = blockIdx.x * TILE + list[i + 1];
    } else {
      while (end < text.size && !(work->marks[end] & PIECE)) {
        end++;
      }
    }
    u32 size = end - begin;
    const u8* piece = text.bytes + begin;
    u32* slots = work->slots + begin;
    if (tables->model == WORD_PIECES) {
      word_pieces(tables, piece, slots, size);
      continue;
    }
    if (tables->model == UNIGRAM) {
      unigram(tables, scratch.ways, piece, slots, size, work->marks[begin] & PREFIXED);
      continue;
    }
    u32 id = whole_word(tables, piece, size);
    if (id != NONE || tables->model == WORDS) {
      slots[0] = id != NONE ? id : (u32)tables->unknown;
    } else if (size <= SHORT) {
      merge<Thread>(tables, scratch.symbols, piece, size, 0);
      write_symbols<Thread>(scratch.symbols, slots, size);
    } else {
      u32 number = atomicAdd(&counters(work)[size <= MEDIUM ? MEDIUMS : LENGTHIES], 1);
      u32* pieces = size <= MEDIUM ? work->medium : work->lengthy;
      if (number < work->lists) {
        pieces[2 * number] = begin;
        pieces[2 * number + 1] = end;
      } else {
        counters(work)[OVERFLOWS] = 1;
      }
    }
  }
}

DEVICE u32 listed(const Work* work, Counter counter) {
  u32 count = counters(work)[counter];
  return count < work->lists ? count : (u32)work->lists;
}

// Any number of blocks: they take pieces in turn.
extern "C" __global__ void encode_medium(const Tables* tables, const Work* work) {
  __shared__ Symbols<u8, MEDIUM> symbols[WARPS];
  u32 warp = threadIdx.x / WARP;
  Text text = text_of(work);
  u32 count = listed(work, MEDIUMS);
  for (u32 i = blockIdx.x * WARPS + warp; i < count; i += gridDim.x * WARPS) {
    u32 begin = work->medium[2 * i], size = work->medium[2 * i + 1] - begin;
    merge<Warp>(tables, symbols[warp], text.bytes + begin, size, 0);
    write_symbols<Warp>(symbols[warp], work->slots + begin, size);
  }
}

extern "C" __global__ void encode_long(const Tables* tables, const Work* work) {
  __shared__ Symbols<u16, LONG> symbols;
  __shared__ u64 shared[WARPS];
  Text text = text_of(work);
  u32 count = listed(work, LENGTHIES);
  for (u32 i = blockIdx.x; i < count; i += gridDim.x) {
    u32 begin = work->lengthy[2 * i], size = work->lengthy[2 * i + 1] - begin;
    merge<Block>(tables, symbols, text.bytes + begin, size, shared);
    write_symbols<Block>(symbols, work->slots + begin, size);
  }
}

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

extern "C" __global__ void weigh(const Tables*, const Work* work) {
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
extern "C" __global__ void scan_weights(const Tables*, const Work* work) {
  __shared__ u32 sums[WARPS + 1];
  u32 total = scan_in_place(work->weights, (text_of(work).size + TILE - 1) / TILE, sums);
  if (threadIdx.x == 0) {
    if (total > work->room + work->capacity) {
      counters(work)[OVERFLOWS] = 1;
    }
    counters(work)[TOKENS] = total;
  }
}

// The tokens before each document, and all of them at the end; and the counters. A warp a document.
extern "C" __global__ void count(const Tables*, const Work* work) {
  u32 number = (blockIdx.x * blockDim.x + threadIdx.x) / WARP, lane = threadIdx.x % WARP;
  u32 total = counters(work)[DOCUMENTS];
  if (number > total) {
    return;
  }
  if (number == total) {
    if (lane < COUNTERS) {
      work->counts[total + 1 + lane] = counters(work)[lane];
    }
    if (lane == 0) {
      work->counts[total] = counters(work)[TOKENS];
    }
    return;
  }
  u32 end = work->text ? work->begins[number] : documents(work)[number], tile = end / TILE;
  u32 sum = 0;
  for (u32 at = tile * TILE + lane; at < end; at += WARP) {
    sum += weight(work, work->slots[at]);
  }
  sum = warp_sum(sum);
  if (lane == 0) {
    bool at_end = end >= text_of(work).size;
    work->counts[number] = at_end ? counters(work)[TOKENS] : work->weights[tile] + sum;
  }
}

extern "C" __global__ void gather(const Tables* tables, const Work* work) {
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
    if (!(slot & DEFERRED)) {
      if (slot & BEHIND_PREFIX) {
        work->ids[to++] = (u32)tables->piece_prefix_id;
      }
      work->ids[to++] = slot & ~BEHIND_PREFIX;
      continue;
    }
    const u32* ids = work->patch_ids + work->patches[2 * (slot & ~DEFERRED)];
    for (u32 i = 0; i < weight(work, slot); i++) {
      work->ids[to++] = ids[i];
    }
  }
}
