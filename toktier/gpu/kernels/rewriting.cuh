// Normalizers that put something in the place of each character, and prefixes. What comes of a character does not depend
// on what is beside it: characters of which that is not so are ODD, and their segments are the host's.
#pragma once
#include "characters.cuh"

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
