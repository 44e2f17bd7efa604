// The library's entrances: a kind of processor, a batch cut into passes, threads over them.

#include "library.h"

#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "program.h"

#ifdef __x86_64__
#include <cpuid.h>
#endif

extern const Kind kind_scalar;
#if defined(__x86_64__)
extern const Kind kind_avx2, kind_avx512;
#elif defined(__aarch64__)
extern const Kind kind_neon;
#endif

namespace {

// Fastest first.
const Kind* const kKinds[] = {
#if defined(__x86_64__)
    &kind_avx512, &kind_avx2,
#elif defined(__aarch64__)
    &kind_neon,
#endif
    &kind_scalar};

#if defined(__x86_64__)
bool has(int leaf, unsigned cpuid_register, int bit) {
  unsigned r[4] = {};
  return __get_cpuid_count(leaf, 0, r, r + 1, r + 2, r + 3) && (r[cpuid_register] >> bit & 1);
}

bool system_saves(unsigned state) {  // registers that the operating system keeps for each thread
  if (!has(1, 2, 27)) return false;
  unsigned low, high;
  __asm__("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return (low & state) == state;
}
#endif

bool runs_here(const Kind& kind) {
  if (&kind == &kind_scalar) return true;
#if defined(__x86_64__)
  const bool avx2 = has(1, 2, 12) && has(7, 1, 5) && system_saves(0x6);  // fused multiply-add, AVX2
  if (&kind == &kind_avx2) return avx2;
  if (&kind == &kind_avx512) return avx2 && has(7, 1, 16) && system_saves(0xe6);
#endif
  return true;
}

// The fastest kind that this processor has, or the one that PSCLUSTER_KERNELS names.
const Kind& chosen() {
  const char* wanted = getenv("PSCLUSTER_KERNELS");
  for (const Kind* kind : kKinds)
    if (runs_here(*kind) && (!wanted || !strcmp(wanted, kind->name))) return *kind;
  return kind_scalar;
}

// Rows of a pass at most, unless one group of slots has more. Of what a pass keeps for its gradient
// little stays in a cache whatever their number; of one step of it, all does, beside the weights.
constexpr long kRowsOfPass = 16;

// The size of a huge page where memory has room for what ends of blocks waste: 2 MB from 2 GB on.
// 0 where there are none, or a huge page is too large (32 MB on a Pi 5 with pages of 16 KB).
long huge_page() {
  long size = 0;
  FILE* file = fopen("/sys/kernel/mm/transparent_hugepage/hpage_pmd_size", "r");
  if (!file) return 0;
  if (fscanf(file, "%ld", &size) != 1) size = 0;
  fclose(file);
  return size <= sysconf(_SC_PHYS_PAGES) / 1024 * sysconf(_SC_PAGESIZE) ? size : 0;
}

struct Block {
  float* at = nullptr;
  long bytes = 0;
};

// Memory of calls that are over, for the next ones: to map and clear it again costs a third of a
// narrow network's step. It is mapped, as the C library's heaps do not give back what is freed at
// their ends.
class Memories {
 public:
  // At least `floats`, aligned to a page; null without memory.
  Block take(long floats) {
    const long bytes = rounded_up(sizeof(float) * floats, kUnit);
    pthread_mutex_lock(&lock_);
    // The smallest block that is large enough, and not over twice that: or else memory of passes
    // would hold sums. Without one, the largest makes room.
    long best = -1, largest = 0;
    for (long k = 0; k < count_; ++k) {
      const long size = blocks_[k].bytes;
      if (size > blocks_[largest].bytes) largest = k;
      const bool fits = size >= bytes && size / 2 <= bytes;
      if (fits && (best < 0 || size < blocks_[best].bytes)) best = k;
    }
    Block block;
    if (count_ > 0) {
      const long place = best < 0 ? largest : best;
      block = blocks_[place];
      blocks_[place] = blocks_[--count_];
    }
    pthread_mutex_unlock(&lock_);
    if (best >= 0) return block;
    unmap(block);
    return mapped(bytes);
  }
  void give(Block block) {
    pthread_mutex_lock(&lock_);
    const bool has_room = count_ < kMostBlocks;
    if (block.at && has_room) blocks_[count_++] = block;
    pthread_mutex_unlock(&lock_);
    if (!has_room) unmap(block);
  }
  void give_back() {
    pthread_mutex_lock(&lock_);
    while (count_ > 0)
      unmap(blocks_[--count_]);
    pthread_mutex_unlock(&lock_);
  }

 private:
  static void unmap(Block block) {
    if (block.at) munmap(block.at, block.bytes);
  }
  Block mapped(long bytes) const {
    const bool is_large = huge_ && bytes >= kLarge * huge_;
    const long room = is_large ? huge_ : 0;
    if (is_large) bytes = rounded_up(bytes, huge_);
    void* place =
        mmap(nullptr, bytes + room, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (place == MAP_FAILED) return {};
    char* begin = static_cast<char*>(place);
    if (is_large) {
      const long before = -reinterpret_cast<uintptr_t>(begin) % huge_;
      if (before) munmap(begin, before);
      begin += before;
      if (room > before) munmap(begin + bytes, room - before);
      madvise(begin, bytes, MADV_HUGEPAGE);
    }
    return {reinterpret_cast<float*>(begin), bytes};
  }

  static long rounded_up(long bytes, long unit) { return (bytes + unit - 1) / unit * unit; }

  static constexpr long kUnit = 1 << 16;  // whole pages on each machine
  static constexpr long kMostBlocks = 3 * kMostThreads;
  static constexpr long kLarge = 4;  // huge pages, from which on the end of a block is little of it
  const long huge_ = huge_page();
  pthread_mutex_t lock_ = PTHREAD_MUTEX_INITIALIZER;
  Block blocks_[kMostBlocks];
  long count_ = 0;
};
Memories memories;

// Where the sum of a pass goes on its way to the node that it is part of.
struct Sum {
  Block block;       // of `to`, where that is not the result itself
  float* to;         // null: memory of its own, when the pass begins
  long part, parts;  // of the node; its passes are neighbours
  long added;        // passes that are in it
};

// Weights to pack and then passes, which threads take one after the other. It lives until the last
// of them has looked at it: a call does not wait for a thread that begins when all are taken.
struct Work {
  const Kind* kind;
  const Program* program;
  const Numbers* numbers;
  Packing which;
  float* packed;
  Pass* passes;
  Sum* sums;           // null: nothing is summed
  long packs, count;   // how many instructions, how many passes
  long floats, width;  // of memory for the largest pass, of a sum
  long next, holders;  // atomic
  pthread_mutex_t lock;
  pthread_cond_t some_done;
  long done;
  bool failed;
};

// to = to + from
void add(float* to, const float* from, long count) {
  for (long k = 0; k < count; ++k)
    to[k] = to[k] + from[k];
}

// Adds what is done of a node in the tree of its passes: neighbours in pairs, then pairs.
void add_up(Work& work, long k) {
  const long first = k - work.sums[k].part, parts = work.sums[k].parts;
  for (long added = 1; added < parts; added *= 2) {
    const long part = (k - first) & ~(2 * added - 1);
    Sum &left = work.sums[first + part], &right = work.sums[first + part + added];
    pthread_mutex_lock(&work.lock);
    Sum& other = &left == &work.sums[k] ? right : left;
    work.sums[k].added = added;
    const bool both = other.added == added;
    pthread_mutex_unlock(&work.lock);
    if (!both) return;
    add(left.to, right.to, work.width);
    memories.give(right.block);
    right.block = {};
    k = first + part;
  }
}

bool run_pass(Work& work, long k, float* memory) {
  Pass& pass = work.passes[k];
  if (work.sums) {
    Sum& sum = work.sums[k];
    if (!sum.to) sum.block = memories.take(work.width), sum.to = sum.block.at;
    if (!sum.to) return false;
    memset(sum.to, 0, sizeof(float) * work.width);
    pass.gradient = sum.to;
  }
  if (pass.gradient) pass.statistics = pass.gradient + work.numbers->trained_size;
  pass.memory = memory;
  pass.packed = work.packed;
  if (!memory) return false;
  work.kind->run(pass);
  if (work.sums) add_up(work, k);
  return true;
}

void wait_for(Work& work, long count) {
  pthread_mutex_lock(&work.lock);
  while (work.done < count)
    pthread_cond_wait(&work.some_done, &work.lock);
  pthread_mutex_unlock(&work.lock);
}

void let_go(Work& work) {
  if (!__atomic_sub_fetch(&work.holders, 1, __ATOMIC_ACQ_REL)) free(&work);
}

void* work_off(void* given) {
  Work& work = *static_cast<Work*>(given);
  Ieee state;
  Block memory;
  const long all = work.packs + work.count;
  for (;;) {
    const long k = __atomic_fetch_add(&work.next, 1, __ATOMIC_RELAXED);
    if (k >= all) break;
    bool ran = true;
    if (k < work.packs) {
      work.kind->pack(*work.program, *work.numbers, k, work.which, work.packed);
    } else {
      wait_for(work, work.packs);
      if (!memory.at) memory = memories.take(work.floats);
      ran = run_pass(work, k - work.packs, memory.at);
    }
    if (__atomic_load_n(&work.next, __ATOMIC_RELAXED) >= all) {
      memories.give(memory);  // before the call is over: the next one takes it
      memory = {};
    }
    pthread_mutex_lock(&work.lock);
    work.failed |= !ran;
    ++work.done;
    if (work.done == work.packs || work.done == all) pthread_cond_broadcast(&work.some_done);
    pthread_mutex_unlock(&work.lock);
  }
  memories.give(memory);
  let_go(work);
  return nullptr;
}

// Works with so many threads, this one among them; whether memory was missing.
bool work_through(Work& work, long threads) {
  for (long k = 1; k < least(threads, least(work.count, kMostThreads)); ++k) {
    __atomic_add_fetch(&work.holders, 1, __ATOMIC_RELAXED);
    pthread_t other;
    if (!pthread_create(&other, nullptr, work_off, &work))
      pthread_detach(other);
    else
      __atomic_sub_fetch(&work.holders, 1, __ATOMIC_RELAXED);
  }
  work_off(&work);
  wait_for(work, work.packs + work.count);
  const bool failed = work.failed;
  let_go(work);
  return failed;
}

long border(const Batch& batch, long slot) { return batch.recipe.batch_size * slot / batch.slots; }

// Slots of the largest aligned subtree from `first` on that ends by `end`.
long subtree(long first, long end) {
  long size = 1;
  while (first % (2 * size) == 0 && first + 2 * size <= end)
    size *= 2;
  return size;
}

bool is_power_of_two(long x) { return x > 0 && !(x & (x - 1)); }

const char* refusal_of(const Batch& b) {
  if (!is_power_of_two(b.slots) || b.slots > kMostSlots)
    return "slots: expected a power of two up to 128";
  if (!is_power_of_two(b.recipe.group) || b.recipe.group > b.slots)
    return "group: expected a power of two of slots";
  if (b.first_slot < 0 || b.slot_count < 1 || b.slot_count > b.slots - b.first_slot)
    return "slots: no such range";
  if (b.first_slot % b.recipe.group || b.slot_count % b.recipe.group)
    return "slots: a group is cut in two";
  if (b.rows != border(b, b.first_slot + b.slot_count) - border(b, b.first_slot))
    return "windows: not those of the slots";
  return nullptr;
}

}  // namespace

long nodes_of(long first, long count) {
  long nodes = 0;
  for (long slot = first; slot < first + count; ++nodes)
    slot += subtree(slot, first + count);
  return nodes;
}

long threads_for(long asked) {
  if (asked > 0) return asked;
  const char* told = getenv("PSCLUSTER_THREADS");
  long count = told ? strtol(told, nullptr, 10) : 0;
  cpu_set_t usable;
  if (count < 1 && !sched_getaffinity(0, sizeof usable, &usable)) count = CPU_COUNT(&usable);
  return count < 1 ? 1 : least(count, kMostThreads);
}

void give_back() { memories.give_back(); }

const Kind* kind_named(const char* name) {
  if (!name || !*name) return &chosen();
  for (const Kind* kind : kKinds)
    if (!strcmp(kind->name, name) && runs_here(*kind)) return kind;
  return nullptr;
}

namespace {

// A program that fits a call's tensors, and the memory of its passes.
class Prepared {
 public:
  explicit Prepared(const Batch& batch) : batch_(batch) {
    program.layer = batch.layer;
    if (!read_program(program, batch.words, batch.words_size, batch.numbers)) {
      refusal = program.refusal;
      return;
    }
    const Value& last = program.values[program.count - 1];
    if (program.values[0].inner != batch.window_floats)
      refusal = "windows: expected the shape that the program begins with";
    else if (last.floats() != batch.classes)
      refusal = "program: expected another number of classes at its end";
    passes = static_cast<Pass*>(calloc(batch.rows + kMostSlots, sizeof(Pass)));
    if (!passes) refusal = "out of memory";
  }
  ~Prepared() {
    for (long k = 0; sums && k < count; ++k)
      memories.give(sums[k].block);
    free(sums);
    free(passes);
    free_program(program);
  }
  Prepared(const Prepared&) = delete;

  // A pass over slots of the batch, whose windows begin with row `begin`.
  Pass& add(long slot, long slots, long begin) {
    const long first = border(batch_, slot);
    Slots own;
    own.count = slots;
    for (long k = 0; k <= slots; ++k)
      own.first[k] = border(batch_, slot + k) - first;
    return add(own, first, begin);
  }

  // A pass over the slots with these borders, in rows of the batch; its windows begin at `begin`.
  Pass& add(const Slots& slots, long first_row, long begin) {
    Pass& pass = passes[count++];
    const long row = first_row - begin;
    pass.program = &program;
    pass.numbers = &batch_.numbers;
    pass.slots = slots;
    pass.first_row = first_row;
    pass.windows = batch_.windows + row * batch_.window_floats;
    return pass;
  }

  // The sum of so many passes goes to `to`; false without memory.
  bool sum(long first, long parts, float* to) {
    if (!sums) sums = static_cast<Sum*>(calloc(count, sizeof(Sum)));
    for (long part = 0; sums && part < parts; ++part)
      sums[first + part].part = part, sums[first + part].parts = parts;
    if (sums) sums[first].to = to;
    return sums;
  }

  // Runs all passes; returns null, or why not.
  const char* run(long threads, const Kind& kind, Packing which) {
    long rows = 0, slots = 0;
    for (long k = 0; k < count; ++k) {
      if (passes[k].slots.rows() > rows) rows = passes[k].slots.rows();
      if (passes[k].slots.count > slots) slots = passes[k].slots.count;
    }
    Work* work = static_cast<Work*>(malloc(sizeof(Work)));
    const Block packed = memories.take(which.backwards ? program.all_packed : program.packed);
    bool failed = true;
    if (packed.at && work) {
      *work = {&kind,
               &program,
               &batch_.numbers,
               which,
               packed.at,
               passes,
               sums,
               program.count,
               count,
               program.floats * rows + kChains * slots + kSlack,
               width,
               0,
               2,
               PTHREAD_MUTEX_INITIALIZER,
               PTHREAD_COND_INITIALIZER,
               0,
               false};
      failed = work_through(*work, threads);
    } else {
      free(work);
    }
    memories.give(packed);
    return failed ? "out of memory" : nullptr;
  }

  Program program;
  Pass* passes = nullptr;
  Sum* sums = nullptr;
  long count = 0, width = 0;  // of a sum
  const char* refusal = nullptr;

 private:
  const Batch& batch_;
};

// Work of each lane of the vectors that is worth a thread: well under a millisecond, of which its
// beginning costs a tenth, or more where other programs have the cores.
constexpr double kWorkOfThread = 1 << 22;

// Threads of a call; a gradient is about four times the work of its logits.
long threads_of(const Batch& batch, const Program& program, const Kind& kind, double times) {
  const long most = batch.threads < 1 ? 1 : least(batch.threads, kMostThreads);
  const double worth = 1.0 + times * program.work * batch.rows / (kWorkOfThread * kind.lanes);
  return batch.thrifty && worth < most ? static_cast<long>(worth) : most;
}

// Slots of a pass: as many as are small enough together, and few enough for all threads to work.
long slots_of_pass(const Batch& batch, long threads) {
  const long share = batch.rows / threads + 1;
  long size = batch.recipe.group;
  while (2 * size <= batch.slots && border(batch, 2 * size) <= least(kRowsOfPass, share))
    size *= 2;
  return size;
}

}  // namespace

const char* gradient_of(const Batch& batch, const Kind& kind, float* nodes, float* losses,
                        float* hits) {
  if (const char* why = refusal_of(batch)) return why;
  Prepared made(batch);
  if (made.refusal) return made.refusal;
  if (batch.classes > kMostWidth) return "the last value has too many classes";
  const long width = batch.numbers.trained_size + batch.numbers.statistics_size;
  made.width = width;
  const long end = batch.first_slot + batch.slot_count,
             threads = threads_of(batch, made.program, kind, 4.0),
             size = slots_of_pass(batch, threads);
  const long begin = border(batch, batch.first_slot);
  for (long slot = batch.first_slot; slot < end;) {
    Slots& slots = made.add(slot, least(size, subtree(slot, end)), begin).slots;
    slots.apart = batch.apart ? width : 0;
    slot += slots.count;
  }
  if (batch.apart) memset(nodes, 0, sizeof(float) * batch.slot_count * width);
  for (long k = 0, slot = 0; k < made.count; ++k) {
    Pass& pass = made.passes[k];
    const long row = pass.first_row - begin;
    pass.recipe = &batch.recipe;
    pass.labels = batch.labels + row;
    pass.weights = batch.has_weights ? batch.weights + row : nullptr;
    if (batch.apart) pass.gradient = nodes + slot * width;
    pass.losses = losses + slot;
    pass.hits = hits + slot;
    slot += pass.slots.count;
  }
  long first = 0;
  for (long node = 0, slot = batch.first_slot; !batch.apart && slot < end; ++node) {
    const long slots = subtree(slot, end), parts = slots / made.passes[first].slots.count;
    if (!made.sum(first, parts, nodes + node * width)) return "out of memory";
    first += parts;
    slot += slots;
  }
  return made.run(threads, kind, {true, true});
}

const char* logits_of(const Batch& batch, const Kind& kind, float* logits) {
  Prepared made(batch);
  if (made.refusal) return made.refusal;
  const long threads = threads_of(batch, made.program, kind, 1.0);
  const long size = least(kRowsOfPass, batch.rows / threads + 1);
  for (long row = 0; row < batch.rows; row += size) {
    Slots slots;
    slots.count = 1;
    slots.first[0] = 0, slots.first[1] = least(size, batch.rows - row);
    made.add(slots, row, 0).results = logits + row * batch.classes;
  }
  return made.run(threads, kind, {true, false});
}

namespace {

// What a layer keeps begins with the slots of its passes: another call may have other threads.
constexpr long kHead = 16;

// Passes of so many slots each, all that the layer's windows are in.
void cut(Prepared& made, const Batch& batch, long size, float* kept) {
  for (long slot = 0; slot < batch.slots; slot += size) {
    Pass& pass = made.add(slot, size, 0);
    if (kept) pass.kept = kept + kHead + made.program.kept * pass.first_row;
  }
}

}  // namespace

long kept_of(const Batch& batch) {
  const Prepared made(batch);
  return made.refusal ? 0 : kHead + made.program.kept * batch.rows + kSlack;
}

const char* layer_of(const Batch& batch, const Kind& kind, float* kept, float* results) {
  if (const char* why = refusal_of(batch)) return why;
  Prepared made(batch);
  if (made.refusal) return made.refusal;
  const long size = slots_of_pass(batch, threads_of(batch, made.program, kind, 4.0));
  if (kept) *kept = static_cast<float>(size);
  cut(made, batch, size, kept);
  for (long k = 0; k < made.count; ++k)
    made.passes[k].results = results + made.passes[k].first_row * batch.classes;
  const long threads = threads_of(batch, made.program, kind, 1.0);
  return made.run(threads, kind, {true, false});
}

const char* layer_gradient_of(const Batch& batch, const Kind& kind, float* kept,
                              const float* by_results, float* by_trained, float* by_windows) {
  if (const char* why = refusal_of(batch)) return why;
  Prepared made(batch);
  if (made.refusal) return made.refusal;
  const long threads = threads_of(batch, made.program, kind, 4.0);
  long size = slots_of_pass(batch, threads);
  if (kept) size = *kept >= 1.0f && *kept <= kMostSlots ? static_cast<long>(*kept) : 0;
  if (!is_power_of_two(size) || size > batch.slots) return "kept: not by this layer";
  cut(made, batch, size, kept);
  made.width = batch.numbers.trained_size;
  if (!made.sum(0, made.count, by_trained)) return "out of memory";
  for (long k = 0; k < made.count; ++k) {
    Pass& pass = made.passes[k];
    pass.by_results = by_results + pass.first_row * batch.classes;
    pass.by_windows = by_windows + pass.first_row * batch.window_floats;
  }
  return made.run(threads, kind, {!kept, true});
}
