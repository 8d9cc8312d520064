// What a tokenizer is, as the device sees it, and the memory of one request. The fields are filled by name, from Python,
// which reads them here: each is eight bytes, an address or a number.
#pragma once
#include "prelude.cuh"

struct Tables {
  // The kind of each character of the text, by pages of 128 code points.
  const u16* kind_pages;
  const u16* kinds;
  const u8* kind_flags;  // of each kind: ODD, BEGINS, PAIRED
  u64 kind_count;
  const u32* cuts;  // one bit a pair of kinds: whether every text may be cut between them; kind_count * kind_count bits

  // Added tokens: tries as tables of pairs. Those of the text, and those of what the normalizers make of it.
  const u32* literals;
  u64 literal_bits;
  const u32* normalized_literals;
  u64 normalized_literal_bits;  // 0: there are none

  // What each character is rewritten to, where that is something else. Image 0 is the character itself.
  const u16* image_pages;
  const u32* image_numbers;
  const u32* image_ends;  // of each image, where its bytes end, and those of the next begin; one more than there are images
  const u8* images;
  const u8* prefix;
  u64 prefix_size;
  u64 prefix_rules;  // PREFIX_UNLESS_THERE, PREFIX_DOCUMENTS

  // The class of each character of the rewritten text, and the automata of the split patterns.
  const u16* class_pages;
  const u16* classes;
  const u8* class_flags;  // of each class: BEGINS, for normalized literals
  u64 class_count;        // the class of this number is the end
  const u16* transitions;
  const u32* splitters;  // of each, where its transitions begin, and what it keeps
  u64 splitter_count;
  u64 piece_prefix;  // the character that a stage of theirs puts before all pieces that there are by then
  u64 piece_prefix_id;

  // The model.
  u64 model;
  const u32* byte_ids;
  const u32* characters;
  u64 character_bits;
  const u32* merges;
  u64 merge_bits;
  const u32* words;
  u64 word_bits;
  const u8* pool;
  u64 unknown;
  u64 fuse_unknown;
  u64 byte_fallback;
  u64 longest_word;
  u64 longest_piece;
  const u32* trie;  // of the tokens, as those of added tokens
  u64 trie_bits;
  const double* scores;  // of an unknown character, then of each token
};

const u32 PREFIX_UNLESS_THERE = 1;  // not where the text begins with it as it is
const u32 PREFIX_DOCUMENTS = 2;     // only where a document begins

// What becomes of matches and gaps, in the order of `toktier.families.stages.Pieces`. The last is no splitter: it puts
// the prefix before pieces that do not begin with it.
enum Keeps { ALL, MATCHES, GAPS, RUNS, AFTER_GAPS, BEFORE_GAPS, PREFIXES };

// What the model does with a piece, in the order of `toktier.gpu.vocabulary.Model`.
enum Model { BYTES, CHARACTERS, WORD_PIECES, WORDS, UNIGRAM };

// One request. Its counters, the begins of its documents and its text come in one copy.
struct Work {
  u8* input;        // counters, then the begins of the documents, then the text and 16 bytes more
  u64 capacity;     // bytes of text for which there is memory
  u64 room;         // bytes of rewritten text for which there is memory
  u8* raw_marks;    // a mark for each byte of the text, where it is rewritten; as many as `capacity`
  u32* raw_slots;   // the slots of added tokens and of the host's segments in it
  u32* widths;      // of each tile of the text: the bytes that come of it, then those of all tiles before
  u8* text;         // the rewritten text; 0 where the text is its own
  u32* origins;     // for each segment of the rewritten text, where it was in the text
  u32* begins;      // of the documents, in the rewritten text
  u8* marks;        // a mark for each byte of what is divided
  u32* firsts;      // of each tile, where the first segment in it begins
  u32* slots;       // a slot for each byte
  u32* medium;      // begins and ends of pieces for warps
  u32* lengthy;     // the same of those that only a warp alone in its block has the memory for
  u64 lists;        // pieces for which the two have room
  u32* deferred;    // begins and ends of the host's segments, in the text as it came
  u64 deferrable;   // segments for which there is room
  u32* patches;     // for each, where its ids begin, and how many there are
  u32* places;      // for each, where they belong
  u32* patch_ids;   // the ids
  u32* weights;     // of each tile: the tokens that begin in it, then those of all tiles before
  u32* ids;         // the result
  u32* counts;      // for each document, the tokens before it, and then all; behind them the counters as they are now
};

// The counters, at the beginning of the input.
enum Counter { SIZE, DOCUMENTS, TEXT_AT, REWRITTEN, DEFERRALS, MEDIUMS, LENGTHIES, TOKENS, OVERFLOWS, COUNTERS = 16 };

DEVICE u32* counters(const Work* work) { return (u32*)work->input; }
DEVICE const u32* documents(const Work* work) { return (const u32*)work->input + COUNTERS; }
DEVICE const u8* raw_text(const Work* work) { return work->input + counters(work)[TEXT_AT]; }

// What is divided and encoded: the rewritten text, or the text itself.
struct Text {
  const u8* bytes;
  u32 size;
};

DEVICE Text text_of(const Work* work) {
  u32* counter = counters(work);
  if (work->text) {
    return {work->text, counter[REWRITTEN]};
  }
  return {raw_text(work), counter[SIZE]};
}
