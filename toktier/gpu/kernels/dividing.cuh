// From a segment to pieces: added tokens first, and what is between them by the split patterns, one after the other. All
// of it is done by one thread, which marks where pieces begin.
#pragma once
#include "blocks.cuh"
#include "characters.cuh"
#include "hashing.cuh"

// Leaves a segment to the host. Nothing in it may be marked yet but as a piece that begins.
DEVICE void defer(const Work* work, u8* marks, u32* slots, u32 begin, u32 raw_begin, u32 raw_end) {
  u32* counter = counters(work);
  u32 number = atomicAdd(&counter[DEFERRALS], 1);
  if (number >= work->deferrable) {
    counter[OVERFLOWS] = 1;
    marks[begin] |= PIECE | DROPPED;  // no piece may run on through it
    return;
  }
  work->deferred[2 * number] = raw_begin;
  work->deferred[2 * number + 1] = raw_end;
  work->patches[2 * number + 1] = 0;  // it has no ids yet
  marks[begin] |= PIECE | SPECIAL;
  slots[begin] = DEFERRED | number;
}

// The longest added token that begins somewhere: its id, and where it ends. DEFERRED as an id: its flags look at what is
// beside it.
struct Occurrence {
  u32 id;
  u32 end;
};

DEVICE Occurrence find_literal(const u32* trie, u64 bits, const u8* bytes, u32 at, u32 end) {
  Occurrence longest = {NONE, at};
  u32 node = 0;
  while (at < end) {
    Character character = decode(bytes + at);
    Found edge = find_pair(trie, bits, node, character.code_point);
    if (!edge.exists) {
      break;
    }
    at += character.size;
    node = edge.first;
    if (edge.second != NONE) {
      longest = {edge.second, at};
    }
  }
  return longest;
}

DEVICE u32 class_of(const Tables* tables, u32 code_point) {
  return looked_up(tables->class_pages, tables->classes, code_point);
}

const u16 ENDS = 0x8000;
const u32 DEAD = 0;
const u32 START = 1;

// Where the match of a pattern ends that begins here, or NONE. The automaton knows priorities: of several matches it
// finds the one that a backtracking search finds first. A match ends when the character behind it is read.
DEVICE u32 match(const Tables* tables, const u16* transitions, const u8* bytes, u32 at, u32 end) {
  u32 width = tables->class_count + 1;
  u32 state = START;
  u32 found = NONE;
  while (state != DEAD) {
    u32 next = tables->class_count;
    u32 size = 0;
    if (at < end) {
      Character character = decode(bytes + at);
      next = class_of(tables, character.code_point);
      size = character.size;
    }
    u32 transition = transitions[state * width + next];
    if (transition & ENDS) {
      found = at;
    }
    if (size == 0) {
      break;
    }
    state = transition & ~(u32)ENDS;
    at += size;
  }
  return found;
}

// Divides one piece by the matches of one pattern; the mark of its beginning is there already.
DEVICE void split_piece(
    const Tables* tables, const u16* transitions, u32 keeps, const u8* bytes, u8* marks, u32 begin, u32 end
) {
  u32 at = begin;
  bool in_run = false;  // of matches, for RUNS
  while (at < end) {
    u32 gap = at;
    u32 matched = NONE;
    while (at < end && (matched = match(tables, transitions, bytes, at, end)) == NONE) {
      at += decode(bytes + at).size;
    }
    if (gap < at) {
      in_run = false;
      if (keeps == ALL || keeps == GAPS || keeps == RUNS) {
        marks[gap] |= PIECE;
      } else if (keeps == MATCHES) {
        marks[gap] |= PIECE | DROPPED;
      }
    }
    if (matched == NONE) {
      break;
    }
    if (keeps == ALL || keeps == MATCHES || keeps == BEFORE_GAPS || (keeps == RUNS && !in_run)) {
      marks[at] |= PIECE;
    } else if (keeps == GAPS) {
      marks[at] |= PIECE | DROPPED;
    } else if (keeps == AFTER_GAPS && matched < end) {
      marks[matched] |= PIECE;
    }
    in_run = true;
    at = matched;
  }
}

// Divides what is between two added tokens; returns whether all its pieces are short enough to be encoded here.
DEVICE bool divide_stretch(const Tables* tables, const u8* bytes, u8* marks, u32 begin, u32 end) {
  if (begin == end) {
    return true;
  }
  marks[begin] |= PIECE;
  for (u64 i = 0; i < tables->splitter_count; i++) {
    const u16* transitions = tables->transitions + tables->splitters[2 * i];
    u32 keeps = tables->splitters[2 * i + 1];
    u32 piece = begin;
    while (piece < end) {
      u32 next = piece + 1;
      while (next < end && !(marks[next] & PIECE)) {
        next++;
      }
      if (!(marks[piece] & DROPPED)) {
        if (keeps != PREFIXES) {
          split_piece(tables, transitions, keeps, bytes, marks, piece, next);
        } else if (decode(bytes + piece).code_point != tables->piece_prefix) {
          marks[piece] |= PREFIXED;
        }
      }
      piece = next;
    }
  }
  u32 longest = tables->model == WORD_PIECES || tables->model == WORDS ? LONGEST_SEGMENT : LONG;
  u32 piece = begin;
  for (u32 at = begin + 1; at <= end; at++) {
    if (at == end || marks[at] & PIECE) {
      if (at - piece > longest && !(marks[piece] & DROPPED)) {
        return false;
      }
      piece = at;
    }
  }
  return true;
}

// Divides a stretch by the added tokens that are looked for in what the normalizers made; returns whether that was
// possible here.
DEVICE bool divide_normalized(const Tables* tables, const u8* bytes, u8* marks, u32* slots, u32 begin, u32 end) {
  if (tables->normalized_literal_bits) {
    for (u32 at = begin; at < end;) {
      Character character = decode(bytes + at);
      u32 next = at + character.size;
      if (tables->class_flags[class_of(tables, character.code_point)] & BEGINS) {
        Occurrence found =
            find_literal(tables->normalized_literals, tables->normalized_literal_bits, bytes, at, end);
        if (found.id == DEFERRED) {
          return false;
        }
        if (found.id != NONE) {
          if (!divide_stretch(tables, bytes, marks, begin, at)) {
            return false;
          }
          marks[at] |= PIECE | SPECIAL;
          slots[at] = found.id;
          begin = next = found.end;
        }
      }
      at = next;
    }
  }
  return divide_stretch(tables, bytes, marks, begin, end);
}

// A segment that is given to the host; none, where it ends at 0.
struct Given {
  u32 begin;
  u32 end;
};

// Takes back what was marked inside a segment.
DEVICE void forget(u8* marks, u32* slots, u32 begin, u32 end, u32 lane, u32 lanes) {
  for (u32 at = begin + lane; at < end; at += lanes) {
    marks[at] &= ~(PIECE | DROPPED | SPECIAL | PREFIXED);
    slots[at] = EMPTY;
  }
}

// Where the segment ends that is the last to begin in a tile.
DEVICE u32 end_of_last(const u32* firsts, u32 size) {
  u32 tiles = (size + TILE - 1) / TILE;
  for (u32 tile = blockIdx.x + 1; tile < tiles; tile++) {
    if (firsts[tile] != NONE) {
      return firsts[tile];
    }
  }
  return size;
}

// Leaves a segment of what is divided to the host, as it was in the text that came.
DEVICE void defer_divided(const Work* work, u32 begin, u32 end) {
  u32 raw_begin = begin, raw_end = end;
  if (work->text) {
    raw_begin = work->origins[begin];
    raw_end = end < counters(work)[REWRITTEN] ? work->origins[end] : counters(work)[SIZE];
  }
  defer(work, work->marks, work->slots, begin, raw_begin, raw_end);
}

extern "C" __global__ void divide(const Tables* __restrict__ tables, const Work* __restrict__ work) {
  __shared__ u16 list[TILE];
  __shared__ u32 sums[WARPS + 1];
  __shared__ Given last;
  Text text = text_of(work);
  if (blockIdx.x * TILE >= text.size) {
    return;
  }
  if (threadIdx.x == 0) {
    last = {0, 0};
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
      if (i + 1 < count) {
        forget(marks, slots, begin, end, 0, 1);
        defer_divided(work, begin, end);
      } else {
        last = {begin, end};
      }
    }
  }
  // The last one may be long, and all threads help.
  __syncthreads();
  forget(marks, slots, last.begin, last.end, threadIdx.x, blockDim.x);
  __syncthreads();
  if (threadIdx.x == 0 && last.end) {
    defer_divided(work, last.begin, last.end);
  }
}
