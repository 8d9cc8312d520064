// Types and numbers that everything here uses. The sources keep to what NVRTC compiles without any header, and to what
// g++ compiles behind tests/gpu/shim.h, so that the tests run the same kernels on a processor.
#pragma once

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;

#define DEVICE __device__ __forceinline__

// Bytes of text that one block looks at, and its threads. In a tile of real text some 200 segments begin: one a thread.
const u32 TILE = 1024;
const u32 THREADS = 256;
const u32 BYTES_A_THREAD = TILE / THREADS;
const u32 WARP = 32;
const u32 WARPS = THREADS / WARP;

const u32 NONE = 0xFFFFFFFFu;

// A slot holds the token that begins at its byte, nothing, or the number of a segment that the host encodes. Before the
// token there may be another one: the prefix of pieces, by itself.
const u32 EMPTY = 0xFFFFFFFFu;
const u32 DEFERRED = 0x80000000u;
const u32 BEHIND_PREFIX = 0x40000000u;

// What is known of a byte; see `Work::marks`.
const u32 SEGMENT = 1;     // a segment begins: a certified cut, or the beginning of a document
const u32 DOCUMENT = 2;    // a document begins
const u32 PIECE = 4;       // a piece begins; in a text that is yet to be rewritten, a stretch between added tokens
const u32 DROPPED = 8;     // with PIECE: it has no tokens; in a text that is yet to be rewritten: nothing comes of it
const u32 SPECIAL = 16;    // with PIECE: its slot is filled already, with an added token or a segment of the host's
const u32 ODD = 32;        // a character that a normalizer may treat by what is beside it
const u32 BEGINS = 64;     // a character that an added token may begin with
const u32 PREFIXED = 128;  // with PIECE: the model is to see the prefix of pieces before it
const u32 PAIRED = 128;    // of a kind only: a character that is ODD beside another of these

// Threads of the blocks that are alone in their grid.
const u32 SCANNERS = 1024;

// Of a piece, the longest that a thread merges, a warp that shares the memory of its block, and a warp that has it alone;
// and of a segment, the longest that is not left to the host.
const u32 SHORT = 32;
const u32 MEDIUM = 128;
const u32 LONG = 1024;
const u32 LONGEST_SEGMENT = 2048;
