// From pieces to ids. Byte-pair encoding is one algorithm, for one thread or for a warp.
#pragma once
#include "characters.cuh"
#include "hashing.cuh"

// Who merges a piece: one thread, or a warp. A thread goes from symbol to symbol; lanes take every 32nd byte each.
struct Thread {
  DEVICE static u32 lane() { return 0; }
  DEVICE static u32 lanes() { return 1; }
  DEVICE static void sync() {}
  DEVICE static u64 least(u64 value) { return value; }
  template <class S>
  DEVICE static u32 following(const S& symbols, u32 at) {
    return symbols.next[at];
  }
};

struct Warp {
  DEVICE static u32 lane() { return threadIdx.x % WARP; }
  DEVICE static u32 lanes() { return WARP; }
  DEVICE static void sync() { __syncwarp(); }
  DEVICE static u64 least(u64 value) {
    for (u32 distance = WARP / 2; distance; distance /= 2) {
      u64 other = __shfl_xor_sync(NONE, value, distance);
      value = other < value ? other : value;
    }
    return value;
  }
  template <class S>
  DEVICE static u32 following(const S&, u32 at) {
    return at + WARP;
  }
};

// The symbols of a piece, each at the byte at which it begins; and of each, what it makes with the one behind it.
template <class Index, u32 capacity>
struct Symbols {
  u32 symbol[capacity];  // EMPTY: none begins here
  u32 rank[capacity];    // of the merge with the next; NONE: there is none
  u32 merged[capacity];  // what the merge gives
  Index next[capacity];
  Index previous[capacity];  // its own place: there is none before it
};

// The symbol that begins at a byte of a piece before anything is merged.
DEVICE u32 first_symbol(const Tables* tables, const u8* piece, u32 at) {
  if (tables->model == BYTES) {
    return tables->byte_ids[piece[at]];
  }
  u32 begin = continues(piece[at]) ? before(piece, at) : at;
  u32 id = find_character(tables->characters, tables->character_bits, decode(piece + begin).code_point);
  if (id == NONE && tables->byte_fallback) {
    return tables->byte_ids[piece[at]];
  }
  if (at != begin) {
    return EMPTY;
  }
  if (id != NONE) {
    return id;
  }
  if (at > 0 && tables->fuse_unknown) {
    u32 left = decode(piece + before(piece, at)).code_point;
    if (find_character(tables->characters, tables->character_bits, left) == NONE) {
      return EMPTY;
    }
  }
  return tables->unknown;
}

template <class S>
DEVICE void look_up_merge(const Tables* tables, S& symbols, u32 at, u32 size) {
  u32 next = symbols.next[at];
  Found merge = {false, NONE, NONE};
  if (next < size) {
    merge = find_pair(tables->merges, tables->merge_bits, symbols.symbol[at], symbols.symbol[next]);
  }
  symbols.rank[at] = merge.first;
  symbols.merged[at] = merge.second;
}

// Byte-pair encoding: of all neighbours that can be merged those of the lowest rank, the leftmost first, until none can.
template <class Group, class S>
DEVICE void merge(const Tables* tables, S& symbols, const u8* piece, u32 size) {
  for (u32 at = Group::lane(); at < size; at += Group::lanes()) {
    symbols.symbol[at] = first_symbol(tables, piece, at);
  }
  Group::sync();
  for (u32 at = Group::lane(); at < size; at += Group::lanes()) {
    u32 next = at + 1, previous = at;
    while (next < size && symbols.symbol[next] == EMPTY) {
      next++;
    }
    while (previous > 0 && symbols.symbol[previous - 1] == EMPTY) {
      previous--;
    }
    symbols.next[at] = next;
    symbols.previous[at] = previous > 0 ? previous - 1 : at;
  }
  Group::sync();
  for (u32 at = Group::lane(); at < size; at += Group::lanes()) {
    symbols.rank[at] = NONE;
    if (symbols.symbol[at] != EMPTY) {
      look_up_merge(tables, symbols, at, size);
    }
  }
  Group::sync();
  for (;;) {
    u64 least = ~0ull;
    for (u32 at = Group::lane(); at < size; at = Group::following(symbols, at)) {
      u64 key = (u64)symbols.rank[at] << 32 | at;
      least = key < least ? key : least;
    }
    least = Group::least(least);
    if (least >> 32 == NONE) {
      break;
    }
    u32 at = (u32)least;
    u32 gone = symbols.next[at], left = symbols.previous[at];
    Group::sync();
    if (Group::lane() == 0) {
      symbols.symbol[at] = symbols.merged[at];
      symbols.symbol[gone] = EMPTY;
      symbols.rank[gone] = NONE;
      symbols.next[at] = symbols.next[gone];
      if (symbols.next[gone] < size) {
        symbols.previous[symbols.next[gone]] = at;
      }
    }
    Group::sync();
    if (Group::lane() == 0) {
      look_up_merge(tables, symbols, at, size);
    }
    if (Group::lane() == Group::lanes() - 1 && left != at) {
      look_up_merge(tables, symbols, left, size);
    }
    Group::sync();
  }
}

template <class Group, class S>
DEVICE void write_symbols(const S& symbols, u32* slots, u32 size) {
  for (u32 at = Group::lane(); at < size; at += Group::lanes()) {
    slots[at] = symbols.symbol[at];
  }
  Group::sync();
}

DEVICE u32 whole_word(const Tables* tables, const u8* piece, u32 size) {
  if (size > tables->longest_word) {
    return NONE;
  }
  u64 hash = WORD_BEGIN;
  for (u32 i = 0; i < size; i++) {
    hash = hashed(hash, piece[i]);
  }
  return find_word(tables, hash, false, piece, size);
}

// WordPiece: again and again the longest token; the unknown one in place of all, if there is none or there are too many
// characters.
DEVICE void word_pieces(const Tables* tables, const u8* piece, u32* slots, u32 size) {
  u32 characters = 0;
  for (u32 at = 0; at < size; at++) {
    characters += !continues(piece[at]);
  }
  u32 begin = 0;
  while (characters <= tables->longest_piece && begin < size) {
    u32 id = NONE, end = begin;
    u64 hash = begin ? WORD_INSIDE : WORD_BEGIN;
    for (u32 at = begin; at < size && at - begin < tables->longest_word;) {
      hash = hashed(hash, piece[at++]);
      if (at == size || !continues(piece[at])) {
        u32 found = find_word(tables, hash, begin > 0, piece + begin, at - begin);
        if (found != NONE) {
          id = found;
          end = at;
        }
      }
    }
    if (id == NONE) {
      break;
    }
    slots[begin] = id;
    begin = end;
  }
  if (begin < size) {
    for (u32 at = 1; at < begin; at++) {
      slots[at] = EMPTY;
    }
    slots[0] = tables->unknown;
  }
}
