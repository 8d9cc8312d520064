// Unigram: of all ways to divide a piece into tokens, the one whose scores have the largest sum.
//
// The reference goes from character to character, with the best way to each, and offers what begins there to where it
// ends. So does this, and all that is done with scores is to add two of them and to compare: there is no product that a
// compiler could contract a sum with, and the same ways are equally good here and there.
#pragma once
#include "dividing.cuh"

// Characters that a token may have, and one more.
const u32 WINDOW = 64;

// In the slot of the byte before a place, while ways are looked for: the bytes of the last token on the best way to it,
// above its id. A prefix that is put before a piece is one byte of them.
const u32 ID_BITS = 24;
const u32 ID = (1u << ID_BITS) - 1;

// The best way to each place, by the characters before it.
struct Ways {
  double scores[WINDOW];
};

DEVICE void offer(Ways& ways, u32* slots, u32 number, u32 begin, u32 end, u32 id, double score) {
  u32* slot = slots + end - 1;
  double* best = ways.scores + number % WINDOW;
  if (*slot == EMPTY || score > *best) {  // of two that are equally good, the first
    *best = score;
    *slot = (end - begin) << ID_BITS | id;
  }
}

// Offers the tokens that begin with what has led to a node of the trie; returns whether the first character is one.
DEVICE bool offer_tokens(
    const Tables* tables, Ways& ways, const u8* piece, u32* slots, u32 size, u32 node, u32 number, u32 begin, u32 at,
    double score
) {
  bool is_first = true, alone = false;
  while (at < size) {
    Character character = decode(piece + at);
    Found edge = find_pair(tables->trie, tables->trie_bits, node, character.code_point);
    if (!edge.exists) {
      break;
    }
    node = edge.first;
    at += character.size;
    number++;
    if (edge.second != NONE) {
      offer(ways, slots, number, begin, at, edge.second, score + tables->scores[1 + edge.second]);
      alone |= is_first;
    }
    is_first = false;
  }
  return alone;
}

// Unknown characters side by side are one: the token that they are together, or else their bytes, or the unknown token.
DEVICE void write_unknown(const Tables* tables, const u8* piece, u32* slots, u32 begin, u32 end) {
  Occurrence token = find_literal(tables->trie, tables->trie_bits, piece, begin, end);
  bool is_token = token.id != NONE && token.end == end;
  for (u32 at = begin; at < end; at++) {
    slots[at] = !is_token && tables->byte_fallback ? tables->byte_ids[piece[at]] : EMPTY;
  }
  if (is_token || !tables->byte_fallback) {
    slots[begin] = is_token ? token.id : (u32)tables->unknown;
  }
}

// A piece, with or without the prefix. The prefix by itself is a token, and no unknown one begins with it.
DEVICE void unigram(const Tables* tables, const u8* piece, u32* slots, u32 size, bool is_prefixed) {
  Ways ways;
  double score = 0.0;
  if (is_prefixed) {
    Found prefix = find_pair(tables->trie, tables->trie_bits, 0, (u32)tables->piece_prefix);
    offer_tokens(tables, ways, piece, slots, size, prefix.first, 0, 0u - 1, 0, score);
    score += tables->scores[1 + prefix.second];
  }
  u32 number = 0;
  for (u32 at = 0; at < size; number++) {
    u32 next = at + decode(piece + at).size;
    if (at > 0) {
      score = ways.scores[number % WINDOW];
    }
    if (!offer_tokens(tables, ways, piece, slots, size, 0, number, at, at, score)) {
      offer(ways, slots, number + 1, at, next, (u32)tables->unknown, score + tables->scores[0]);
    }
    at = next;
  }
  for (u32 end = size; end > 0;) {
    u32 id = slots[end - 1] & ID, bytes = slots[end - 1] >> ID_BITS;
    bool has_prefix = bytes > end;
    u32 begin = has_prefix ? 0 : end - bytes;
    if (id == tables->unknown) {
      while (begin > 0 && (slots[begin - 1] & ID) == id) {
        begin -= slots[begin - 1] >> ID_BITS;
      }
      write_unknown(tables, piece, slots, begin, end);
    } else {
      for (u32 at = begin + 1; at < end; at++) {
        slots[at] = EMPTY;
      }
      slots[begin] = id;
    }
    if (begin == 0 && is_prefixed && !has_prefix) {
      slots[0] |= BEHIND_PREFIX;
    }
    end = begin;
  }
}
