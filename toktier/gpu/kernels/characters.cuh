// UTF-8, and what the tables know of characters. The text is valid, and has some bytes behind it that may be read.
#pragma once
#include "tables.cuh"

DEVICE bool continues(u8 byte) { return (byte & 0xC0) == 0x80; }

struct Character {
  u32 code_point;
  u32 size;
};

DEVICE Character decode(const u8* at) {
  u32 first = at[0];
  if (first < 0x80) {
    return {first, 1};
  }
  u32 second = at[1] & 0x3F;
  if (first < 0xE0) {
    return {(first & 0x1F) << 6 | second, 2};
  }
  u32 third = at[2] & 0x3F;
  if (first < 0xF0) {
    return {(first & 0x0F) << 12 | second << 6 | third, 3};
  }
  return {(first & 0x07) << 18 | second << 12 | third << 6 | (at[3] & 0x3F), 4};
}

// The begin of the character before a byte that begins one.
DEVICE u32 before(const u8* bytes, u32 at) {
  do {
    at--;
  } while (continues(bytes[at]));
  return at;
}

template <class Value>
DEVICE u32 looked_up(const u16* pages, const Value* values, u32 code_point) {
  return values[pages[code_point >> 7] << 7 | (code_point & 127)];
}
