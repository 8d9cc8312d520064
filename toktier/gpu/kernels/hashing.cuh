// Look-ups in tables with open addressing, as `toktier.gpu.hashing` makes them: linear probing ends at an empty slot.
#pragma once
#include "tables.cuh"

DEVICE u64 home(u64 key, u64 bits) { return key * 0x9E3779B97F4A7C15ull >> (64 - bits); }

// The two values of a pair; the second is NONE where there is no such pair, and so may it be where there is.
struct Found {
  bool exists;
  u32 first;
  u32 second;
};

// A slot of a table of pairs, or of words: read with one access of sixteen bytes.
struct alignas(16) Entry {
  u32 values[4];
};

DEVICE Found find_pair(const u32* table, u64 bits, u32 left, u32 right) {
  u64 mask = (1ull << bits) - 1;
  for (u64 slot = home((u64)left << 32 | right, bits);; slot = (slot + 1) & mask) {
    Entry entry = ((const Entry*)table)[slot];
    if (entry.values[0] == left && entry.values[1] == right) {
      return {true, entry.values[2], entry.values[3]};
    }
    if (entry.values[0] == NONE) {
      return {false, NONE, NONE};
    }
  }
}

// The id of a character, or NONE.
DEVICE u32 find_character(const u32* table, u64 bits, u32 code_point) {
  u64 mask = (1ull << bits) - 1;
  for (u64 slot = home(code_point, bits);; slot = (slot + 1) & mask) {
    const u32* entry = table + 2 * slot;
    if (entry[0] == code_point) {
      return entry[1];
    }
    if (entry[0] == NONE) {
      return NONE;
    }
  }
}

const u64 WORD_BEGIN = 0xCBF29CE484222325ull;
const u64 WORD_INSIDE = 0x84222325CBF29CE4ull;

DEVICE u64 hashed(u64 hash, u8 byte) { return (hash ^ byte) * 0x100000001B3ull; }

// The id of a word, or NONE. The bytes are compared: equal hashes are not proof.
DEVICE u32 find_word(const Tables* tables, u64 hash, bool inside, const u8* bytes, u32 size) {
  u64 mask = (1ull << tables->word_bits) - 1;
  u32 length = size | (inside ? 0x80000000u : 0);
  for (u64 slot = home(hash, tables->word_bits);; slot = (slot + 1) & mask) {
    Entry entry = ((const Entry*)tables->words)[slot];
    if (entry.values[3] == 0) {
      return NONE;
    }
    if (entry.values[0] == (u32)hash && entry.values[3] == length) {
      const u8* word = tables->pool + entry.values[2];
      u32 same = 0;
      while (same < size && word[same] == bytes[same]) {
        same++;
      }
      if (same == size) {
        return entry.values[1];
      }
    }
  }
}
