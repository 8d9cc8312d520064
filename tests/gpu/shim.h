// With this in front, g++ compiles CUDA kernels as C++17, and toktier_launch runs them on the processor.
//
// A grid is run block by block. The threads of a block are run one after the other, each until it waits: at
// __syncthreads() or at a warp operation. It is then left on its stack (a "fiber"), another one is run on another
// stack, and what it waits for continues it. A fiber whose thread has exited goes on with the next thread, so a kernel
// that waits for nothing runs on one stack, at about the cost of a function call for each thread.
//
// What differs from a GPU is made to show: __shared__ memory is garbage when a block begins; with a seed, blocks and
// threads run in an order of their own, so that a missing barrier changes the result. What CUDA leaves undefined ends
// the launch with a message: barriers that some threads reach elsewhere or never, warp operations whose lanes do not
// all come. So does what a processor forgives (g++ -fsanitize calls the __ubsan_* functions below): misaligned access,
// an index outside of an array, a shift by too much, a division by zero.
//
// There is no dynamic shared memory, no texture, no stream, only .x of the four built-in variables, and nobody may spin
// until another thread or block does something. One launch at a time.
#pragma once
#include "fibers.h"

#define TOKTIER_HOST 1
#define __global__
#define __device__
#define __host__
#define __constant__
#define __forceinline__ inline __attribute__((__always_inline__))
#define __launch_bounds__(...)
#define __shared__ static SHIM_SHARED
#define assert(condition) ((condition) ? (void)0 : shim::fail("%s:%d: assert(" #condition ")", __FILE__, __LINE__))

struct alignas(8) uint2 { unsigned x, y; };
struct alignas(16) uint4 { unsigned x, y, z, w; };
static inline uint2 make_uint2(unsigned x, unsigned y) { return {x, y}; }
static inline uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w) { return {x, y, z, w}; }

// The functions have the types that CUDA has them for, no more.
static inline void __syncthreads(SHIM_HERE) { shim::wait(shim::block, ~0u, 0, 0, place); }
static inline void __syncwarp(unsigned mask = ~0u, SHIM_HERE) { shim::wait(shim::warp, mask, 0, 0, place); }

#define SHIM_VOTE(RESULT, NAME, KIND) \
  static inline RESULT NAME(unsigned mask, int vote, SHIM_HERE) { \
    return (RESULT)shim::wait(shim::KIND, mask, vote != 0, 0, place); \
  }
SHIM_VOTE(unsigned, __ballot_sync, ballot)
SHIM_VOTE(int, __any_sync, any)
SHIM_VOTE(int, __all_sync, all)

#define SHIM_REDUCE(NAME, KIND) \
  static inline unsigned NAME(unsigned mask, unsigned value, SHIM_HERE) { \
    return (unsigned)shim::wait(shim::KIND, mask, value, 0, place); \
  }
SHIM_REDUCE(__reduce_min_sync, least)
SHIM_REDUCE(__reduce_add_sync, sum)

#define SHIM_SHUFFLE(NAME, KIND, BY) \
  template <typename T> T NAME(unsigned mask, T value, BY by, SHIM_HERE) { \
    return shim::shuffle(shim::KIND, mask, value, (unsigned)by, place); \
  }
SHIM_SHUFFLE(__shfl_sync, from_lane, int)
SHIM_SHUFFLE(__shfl_up_sync, from_below, unsigned)
SHIM_SHUFFLE(__shfl_down_sync, from_above, unsigned)
SHIM_SHUFFLE(__shfl_xor_sync, from_mirrored, int)

#define SHIM_ATOMIC(NAME, T, NEW) \
  static inline T NAME(T* at, T value) { \
    const T old = *at; \
    *at = NEW; \
    return old; \
  }
#define SHIM_ATOMICS(T) \
  SHIM_ATOMIC(atomicAdd, T, old + value) \
  SHIM_ATOMIC(atomicExch, T, value) \
  SHIM_ATOMIC(atomicAnd, T, old & value) \
  SHIM_ATOMIC(atomicOr, T, old | value) \
  SHIM_ATOMIC(atomicMin, T, value < old ? value : old) \
  SHIM_ATOMIC(atomicMax, T, value > old ? value : old) \
  static inline T atomicCAS(T* at, T expected, T value) { \
    const T old = *at; \
    if (old == expected) *at = value; \
    return old; \
  }
SHIM_ATOMICS(int)
SHIM_ATOMICS(unsigned)
SHIM_ATOMICS(unsigned long long)

#define SHIM_ORDERED(T) \
  static inline T min(T a, T b) { return b < a ? b : a; } \
  static inline T max(T a, T b) { return a < b ? b : a; }
SHIM_ORDERED(int)
SHIM_ORDERED(unsigned)
SHIM_ORDERED(long long)
SHIM_ORDERED(unsigned long long)

template <typename T> T __ldg(const T* at) { return *at; }
static inline void __threadfence() {}
static inline void __threadfence_block() {}
static inline int __popc(unsigned value) { return __builtin_popcount(value); }
static inline int __popcll(unsigned long long value) { return __builtin_popcountll(value); }
static inline int __ffs(int value) { return __builtin_ffs(value); }
static inline int __ffsll(long long value) { return __builtin_ffsll(value); }
static inline int __clz(int value) { return value ? __builtin_clz(value) : 32; }
static inline int __clzll(long long value) { return value ? __builtin_clzll(value) : 64; }

// What -fsanitize calls. Its own library would print, and go on.
struct ShimSource { const char* file; unsigned line, column; };
#define SHIM_FOUND(NAME, WHAT, ...) \
  extern "C" __attribute__((visibility("hidden"))) void __ubsan_handle_##NAME(ShimSource* at, __VA_ARGS__) { \
    shim::fail("%s:%u: " WHAT, at->file, at->line); \
  }
SHIM_FOUND(type_mismatch_v1, "access by a null or misaligned pointer", unsigned long)
SHIM_FOUND(out_of_bounds, "an index outside of its array", unsigned long)
SHIM_FOUND(shift_out_of_bounds, "a shift by as many bits as there are, or more", unsigned long, unsigned long)
SHIM_FOUND(divrem_overflow, "a division by zero", unsigned long, unsigned long)
