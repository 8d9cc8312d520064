// Runs the blocks of a kernel on the processor; shim.h says how, and what for.
#pragma once
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <ucontext.h>

struct uint3 { unsigned x, y, z; };
static uint3 threadIdx{0, 0, 0}, blockIdx{0, 0, 0}, blockDim{1, 1, 1}, gridDim{1, 1, 1};

// All __shared__ variables lie in a section of their own; the linker knows where it begins and stops.
#define SHIM_SHARED __attribute__((__section__("toktier_shared"), __used__))
SHIM_SHARED static char toktier_section_exists;
extern "C" __attribute__((visibility("hidden"))) char __start_toktier_shared[], __stop_toktier_shared[];

namespace shim {
typedef unsigned long long Word;
constexpr unsigned MOST = 1024;  // threads of a block
constexpr size_t PAGE = 4096;
constexpr size_t STACK = 17 * PAGE;  // of a fiber; no power of two, or all of them would share lines of the caches

enum Kind : unsigned char {
  running, block, warp, ballot, any, all, least, sum, from_lane, from_below, from_above, from_mirrored
};
const char* const names[] = {
  "", "__syncthreads", "__syncwarp", "__ballot_sync", "__any_sync", "__all_sync", "__reduce_min_sync",
  "__reduce_add_sync", "__shfl_sync", "__shfl_up_sync", "__shfl_down_sync", "__shfl_xor_sync"
};

struct Place { const char* file; int line; };
#define SHIM_HERE shim::Place place = {__builtin_FILE(), __builtin_LINE()}  // as a parameter: where the call stands

struct Waiting {    // what a thread that is not running waits for
  jmp_buf context;  // where it goes on
  Place place;
  unsigned mask, argument;
  Word value;  // what it gives, then what it gets
};
struct Kernel { const char* name; void (*function)(const void*, const void*); };

struct State {
  // The launch.
  const Kernel* kernel;
  const void *tables, *work;
  char* message;
  int size;
  jmp_buf launcher;  // goes on with 1 when a block is done, with 2 when the launch failed
  // The block.
  unsigned short order[MOST];  // in which threads are started
  unsigned started, flip;      // how many were; lanes of a warp are continued in the order of lane ^ flip
  unsigned alive, at_barrier;  // threads that have not exited, threads that wait at __syncthreads
  Place barrier;               // at which one
  unsigned lanes_alive[32], lanes_waiting[32];  // a bit for each lane of a warp
  Kind kind[MOST];                              // what threads wait for
  Waiting waiting[MOST];
  unsigned short ready[MOST];  // a ring of threads that can go on
  unsigned head, tail;
  // The fibers, which stay from launch to launch: where one begins.
  jmp_buf *fibers[MOST], *idle[MOST], *made;
  unsigned fiber_count, idle_count;
  ucontext_t creator;
};
static State state;

[[noreturn]] __attribute__((__noinline__, format(printf, 1, 2))) static void fail(const char* format, ...) {
  const int begin = snprintf(state.message, state.size, "kernel %s, block %u, thread %u: ", state.kernel->name,
                             blockIdx.x, threadIdx.x);
  va_list values;
  va_start(values, format);
  if (begin < state.size) vsnprintf(state.message + begin, state.size - begin, format, values);
  va_end(values);
  _longjmp(state.launcher, 2);
}

// Whether two threads wait for the same thing.
static bool same(unsigned a, unsigned b) {
  return state.kind[a] == state.kind[b] && state.waiting[a].mask == state.waiting[b].mask &&
         state.waiting[a].place.line == state.waiting[b].place.line;
}

// Nobody can go on: names two threads that wait for different things, if there are two.
[[noreturn]] static void stuck() {
  unsigned first = 0;
  while (state.kind[first] == running) first++;
  unsigned other = first;
  for (unsigned i = first; i < blockDim.x && other == first; i++)
    if (state.kind[i] != running && !same(first, i)) other = i;
  const Waiting &a = state.waiting[first], &b = state.waiting[other];
  fail("a barrier that not all reach: thread %u waits at %s:%d, %s with mask %#x, "
       "thread %u at %s:%d, %s with mask %#x; %u threads have not exited",
       first, a.place.file, a.place.line, names[state.kind[first]], a.mask, other, b.place.file, b.place.line,
       names[state.kind[other]], b.mask, state.alive);
}

static void release(unsigned thread) {
  state.kind[thread] = running;
  if (thread != threadIdx.x) state.ready[state.tail++ % MOST] = (unsigned short)thread;
}

static bool finish_block() {  // lets the threads go on that wait at __syncthreads, if these are all
  if (state.at_barrier == 0 || state.at_barrier != state.alive) return false;
  state.at_barrier = 0;
  for (unsigned i = 0; i < state.started; i++)
    if (state.kind[state.order[i]] == block) release(state.order[i]);
  return true;
}

static bool finish_warp(unsigned thread) {  // lets the lanes go on that do the same as this one, if these are all
  const unsigned first = thread & ~31u, mask = state.waiting[thread].mask, need = mask & state.lanes_alive[first / 32];
  if (need & ~state.lanes_waiting[first / 32]) return false;
  const Kind kind = state.kind[thread];
  Word given[32], votes = 0, total = 0, minimum = ~0ull;
  for (unsigned lane = 0; lane < 32; lane++) {
    given[lane] = 0xA5A5A5A5A5A5A5A5;  // what is read from a lane that is not there
    if (!(need >> lane & 1)) continue;
    const Waiting& at = state.waiting[first + lane];
    if (!same(thread, first + lane)) return false;
    given[lane] = at.value;
    votes |= (Word)(at.value != 0) << lane;
    total += at.value;
    minimum = at.value < minimum ? at.value : minimum;
  }
  state.lanes_waiting[first / 32] &= ~need;
  for (unsigned i = 0; i < 32; i++) {
    const unsigned lane = i ^ state.flip;
    if (!(need >> lane & 1)) continue;
    Waiting& at = state.waiting[first + lane];
    const unsigned by = at.argument;
    const unsigned from = kind == from_lane ? by % 32 : kind == from_below ? lane - by : kind == from_above ? lane + by
                          : lane ^ by;
    at.value = kind == ballot ? votes : kind == any ? votes != 0 : kind == all ? votes == need
               : kind == least ? minimum : kind == sum ? total : given[from < 32 ? from : lane];
    release(first + lane);
  }
  return true;
}

[[noreturn]] static void start_threads(jmp_buf* begin);

static void fiber() {  // stays at its begin, and begins there again and again
  jmp_buf begin;
  state.made = &begin;
  if (_setjmp(begin) == 0) setcontext(&state.creator);
  start_threads(&begin);
}

static jmp_buf* idle_fiber() {
  if (state.idle_count > 0) return state.idle[--state.idle_count];
  char* stack = (char*)mmap(nullptr, STACK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (stack == MAP_FAILED) fail("no memory for %u stacks", state.fiber_count + 1);
  mprotect(stack, PAGE, PROT_NONE);  // too deep a stack is a crash, and no quiet damage
  static ucontext_t fresh;
  getcontext(&fresh);
  fresh.uc_stack.ss_sp = stack + PAGE;
  fresh.uc_stack.ss_size = STACK - PAGE - state.fiber_count * 320 % PAGE;
  makecontext(&fresh, fiber, 0);
  swapcontext(&state.creator, &fresh);
  return state.fibers[state.fiber_count++] = state.made;
}

[[noreturn]] static void next() {
  if (state.head != state.tail) _longjmp(state.waiting[state.ready[state.head++ % MOST]].context, 1);
  if (state.started < blockDim.x) _longjmp(*idle_fiber(), 1);
  if (state.alive > 0) stuck();
  _longjmp(state.launcher, 1);
}

[[noreturn]] __attribute__((__noinline__)) static void start_threads(jmp_buf* begin) {
  while (state.head == state.tail && state.started < blockDim.x) {
    threadIdx.x = state.order[state.started++];
    state.kernel->function(state.tables, state.work);
    const unsigned first = threadIdx.x & ~31u;
    state.alive--;
    state.lanes_alive[first / 32] &= ~(1u << threadIdx.x % 32);
    for (unsigned lane = 0; lane < 32 && state.lanes_waiting[first / 32]; lane++)
      if (state.lanes_waiting[first / 32] >> lane & 1) finish_warp(first + lane);
    finish_block();
  }
  state.idle[state.idle_count++] = begin;
  next();
}

__attribute__((__noinline__)) static void suspend(const unsigned thread) {
  if (_setjmp(state.waiting[thread].context) == 0) next();
  threadIdx.x = thread;
}

__attribute__((__noinline__)) static Word wait(Kind kind, unsigned mask, Word value, unsigned argument, Place place) {
  const unsigned thread = threadIdx.x, bit = 1u << thread % 32;
  Waiting& at = state.waiting[thread];
  at.place = place, at.mask = mask, at.value = value, at.argument = argument;
  state.kind[thread] = kind;
  if (!(mask & bit)) fail("%s:%d: %s with mask %#x, without this lane", place.file, place.line, names[kind], mask);
  if (kind == block) {
    if (state.at_barrier++ == 0) state.barrier = place;
    if (state.barrier.line != place.line) stuck();
  } else
    state.lanes_waiting[thread / 32] |= bit;
  if (!(kind == block ? finish_block() : finish_warp(thread))) suspend(thread);
  return at.value;
}

template <typename T> T shuffle(Kind kind, unsigned mask, T value, unsigned argument, Place place) {
  static_assert(sizeof(T) == 4 || sizeof(T) == 8, "shuffles move 32 or 64 bits");
  Word word = 0;
  memcpy(&word, &value, sizeof(T));
  word = wait(kind, mask, word, argument, place);
  memcpy(&value, &word, sizeof(T));
  return value;
}

template <typename T> void permute(T* values, unsigned size, Word random) {
  for (unsigned i = 0; i < size; i++) values[i] = (T)i;
  for (unsigned i = size; random && i > 1; i--) {
    random = random * 6364136223846793005 + 1442695040888963407;
    const unsigned other = (unsigned)((random >> 33) * i >> 31);
    const T value = values[i - 1];
    values[i - 1] = values[other], values[other] = value;
  }
}

static int run_block(unsigned number, Word random) {
  blockIdx.x = number;
  memset(__start_toktier_shared, 0xA5, __stop_toktier_shared - __start_toktier_shared);
  for (unsigned i = 0; i < 32; i++)
    state.lanes_alive[i] = i < blockDim.x / 32 ? ~0u : i > blockDim.x / 32 ? 0 : (1u << blockDim.x % 32) - 1;
  state.alive = blockDim.x;
  state.started = state.head = state.tail = 0;
  state.flip = random >> 40 & 31;
  const int result = _setjmp(state.launcher);
  if (result == 0) next();
  return result;
}

static int run(const Kernel* kernels, const char* name, unsigned blocks, unsigned threads, const void* const* arguments,
               int count, unsigned seed, char* message, int size) {
  while (kernels->name && strcmp(kernels->name, name)) kernels++;
  if (!kernels->name || blocks == 0 || blocks > 0x7FFFFFFF || threads == 0 || threads > MOST || count != 2) {
    snprintf(message, size, "kernel %s: %s (%u blocks, %u threads, %d arguments)", name,
             kernels->name ? "it cannot be run like this" : "there is no such kernel", blocks, threads, count);
    return 1;
  }
  state.kernel = kernels, state.tables = arguments[0], state.work = arguments[1];
  state.message = message, state.size = size;
  gridDim.x = blocks, blockDim.x = threads;
  unsigned* numbers = new unsigned[blocks];
  permute(numbers, blocks, seed);
  permute(state.order, threads, 0);
  int result = 1;
  for (unsigned i = 0; i < blocks && result == 1; i++) {
    const Word random = seed ? (seed * 0x9E3779B97F4A7C15 + i * 0xD1B54A32D192ED03) | 1 : 0;
    if (seed) permute(state.order, threads, random);
    result = run_block(numbers[i], random);
  }
  delete[] numbers;
  if (result == 1) return 0;
  // Threads were left where they waited: all fibers begin anew.
  memset(state.kind, running, sizeof state.kind);
  memset(state.lanes_waiting, 0, sizeof state.lanes_waiting);
  state.at_barrier = 0;
  memcpy(state.idle, state.fibers, sizeof state.idle);
  state.idle_count = state.fiber_count;
  return 1;
}
}  // namespace shim

