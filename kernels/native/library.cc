// The library's entrances: a kind of processor, a batch cut into passes, threads over them.

#include "library.h"

#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

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

// Memory of passes that are over, for the next ones: to map and clear it anew costs a third of a
// narrow network's step. It is mapped, as the C library's heaps do not give back what is freed at
// their ends.
class Memories {
 public:
  // At least `floats`, aligned to a line of the cache; null without memory.
  float* take(long floats, long* size) {
    pthread_mutex_lock(&lock_);
    float* found = nullptr;
    if (count_) {
      found = kept_[--count_];
      *size = sizes_[count_];
    }
    pthread_mutex_unlock(&lock_);
    if (found && *size >= floats) return found;
    unmap(found, *size);
    *size = floats;
    void* place = mmap(nullptr, sizeof(float) * floats, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return place == MAP_FAILED ? nullptr : static_cast<float*>(place);
  }
  void give(float* memory, long size) {
    pthread_mutex_lock(&lock_);
    if (memory && count_ < kMostThreads) {
      kept_[count_] = memory;
      sizes_[count_++] = size;
      memory = nullptr;
    }
    pthread_mutex_unlock(&lock_);
    unmap(memory, size);
  }
  void give_back() {
    pthread_mutex_lock(&lock_);
    while (count_ > 0) {
      --count_;
      unmap(kept_[count_], sizes_[count_]);
    }
    pthread_mutex_unlock(&lock_);
  }

 private:
  static void unmap(float* memory, long size) {
    if (memory) munmap(memory, sizeof(float) * size);
  }
  pthread_mutex_t lock_ = PTHREAD_MUTEX_INITIALIZER;
  float* kept_[kMostThreads];
  long sizes_[kMostThreads];
  long count_ = 0;
};
Memories memories;

// Passes that threads take one after the other. It lives until the last of them has looked at it:
// a call does not wait for a thread that begins when all passes are taken.
struct Work {
  const Kind* kind;
  Pass* passes;
  long count, floats;  // of memory for the largest pass
  long next, holders;  // atomic
  pthread_mutex_t lock;
  pthread_cond_t over;
  long done;
  bool failed;
};

void* work_off(void* given) {
  Work& work = *static_cast<Work*>(given);
  Ieee state;
  float* memory = nullptr;
  long size = 0;
  for (;;) {
    const long k = __atomic_fetch_add(&work.next, 1, __ATOMIC_RELAXED);
    if (k >= work.count) break;
    if (!memory) memory = memories.take(work.floats, &size);
    work.passes[k].memory = memory;
    if (memory) work.kind->run(work.passes[k]);
    pthread_mutex_lock(&work.lock);
    work.failed |= !memory;
    if (++work.done == work.count) pthread_cond_signal(&work.over);
    pthread_mutex_unlock(&work.lock);
  }
  memories.give(memory, size);
  if (!__atomic_sub_fetch(&work.holders, 1, __ATOMIC_ACQ_REL)) free(given);
  return nullptr;
}

bool run_all(const Program& program, Pass* passes, long count, long threads, const Kind& kind) {
  long rows = 0;
  for (long k = 0; k < count; ++k)
    if (passes[k].slots.rows() > rows) rows = passes[k].slots.rows();
  Work* work = static_cast<Work*>(malloc(sizeof(Work)));
  if (!work) return false;
  *work = {&kind,
           passes,
           count,
           program.floats * rows + program.fixed + kSlack,
           0,
           2,
           PTHREAD_MUTEX_INITIALIZER,
           PTHREAD_COND_INITIALIZER,
           0,
           false};
  for (long k = 1; k < least(threads, least(count, kMostThreads)); ++k) {
    __atomic_add_fetch(&work->holders, 1, __ATOMIC_RELAXED);
    pthread_t other;
    if (!pthread_create(&other, nullptr, work_off, work))
      pthread_detach(other);
    else
      __atomic_sub_fetch(&work->holders, 1, __ATOMIC_RELAXED);
  }
  work_off(work);
  pthread_mutex_lock(&work->lock);
  while (work->done < count)
    pthread_cond_wait(&work->over, &work->lock);
  const bool failed = work->failed;
  pthread_mutex_unlock(&work->lock);
  if (!__atomic_sub_fetch(&work->holders, 1, __ATOMIC_ACQ_REL)) free(work);
  return !failed;
}

long border(const Batch& batch, long slot) { return batch.recipe.batch_size * slot / batch.slots; }

// Slots of the largest aligned subtree from `first` on that ends by `end`.
long subtree(long first, long end) {
  long size = 1;
  while (first % (2 * size) == 0 && first + 2 * size <= end)
    size *= 2;
  return size;
}

// to = to + from
void add(float* to, const float* from, long count) {
  for (long k = 0; k < count; ++k)
    to[k] = to[k] + from[k];
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
    free(passes);
    free(sums);
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

  Program program;
  Pass* passes = nullptr;
  float* sums = nullptr;
  long count = 0;
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

// Adds up the sums of neighbouring passes of one node, in pairs, into the first of them.
void add_up(Pass* passes, long parts, long width) {
  for (long step = 1; step < parts; step *= 2) {
    for (long left = 0; left + step < parts; left += 2 * step) {
      add(passes[left].gradient, passes[left + step].gradient, width);
    }
  }
}

}  // namespace

const char* gradient_of(const Batch& batch, const Kind& kind, float* nodes, float* losses,
                        float* hits) {
  if (const char* why = refusal_of(batch)) return why;
  Prepared made(batch);
  if (made.refusal) return made.refusal;
  if (batch.classes > kMostWidth) return "the last value has too many classes";
  const long trained = batch.numbers.trained_size, width = trained + batch.numbers.statistics_size;
  const long end = batch.first_slot + batch.slot_count,
             threads = threads_of(batch, made.program, kind, 4.0),
             size = slots_of_pass(batch, threads);
  const long begin = border(batch, batch.first_slot);
  for (long slot = batch.first_slot; slot < end;) {
    Slots& slots = made.add(slot, least(size, subtree(slot, end)), begin).slots;
    slots.apart = batch.apart ? width : 0;
    slot += slots.count;
  }
  if (batch.apart) {
    memset(nodes, 0, sizeof(float) * batch.slot_count * width);
  } else {
    made.sums = static_cast<float*>(calloc(made.count * width, sizeof(float)));
    if (!made.sums) return "out of memory";
  }
  for (long k = 0, slot = 0; k < made.count; ++k) {
    Pass& pass = made.passes[k];
    const long row = pass.first_row - begin;
    pass.recipe = &batch.recipe;
    pass.labels = batch.labels + row;
    pass.weights = batch.has_weights ? batch.weights + row : nullptr;
    pass.gradient = batch.apart ? nodes + slot * width : made.sums + k * width;
    pass.statistics = pass.gradient + trained;
    pass.losses = losses + slot;
    pass.hits = hits + slot;
    slot += pass.slots.count;
  }
  if (!run_all(made.program, made.passes, made.count, threads, kind)) return "out of memory";
  if (batch.apart) return nullptr;
  Pass* pass = made.passes;
  for (long node = 0, slot = batch.first_slot; slot < end; ++node) {
    const long slots = subtree(slot, end), parts = slots / pass->slots.count;
    add_up(pass, parts, width);
    memcpy(nodes + node * width, pass->gradient, sizeof(float) * width);
    pass += parts;
    slot += slots;
  }
  return nullptr;
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
  return run_all(made.program, made.passes, made.count, threads, kind) ? nullptr : "out of memory";
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
  return run_all(made.program, made.passes, made.count, threads, kind) ? nullptr : "out of memory";
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
  const long width = batch.numbers.trained_size;
  made.sums = static_cast<float*>(calloc(made.count * width + 1, sizeof(float)));
  if (!made.sums) return "out of memory";
  for (long k = 0; k < made.count; ++k) {
    Pass& pass = made.passes[k];
    pass.by_results = by_results + pass.first_row * batch.classes;
    pass.by_windows = by_windows + pass.first_row * batch.window_floats;
    pass.gradient = made.sums + k * width;
  }
  if (!run_all(made.program, made.passes, made.count, threads, kind)) return "out of memory";
  add_up(made.passes, made.count, width);
  memcpy(by_trained, made.passes->gradient, sizeof(float) * width);
  return nullptr;
}
