// The library's entrances.

#pragma once

#include <stdio.h>

#include "program.h"

#ifdef __x86_64__
#include <xmmintrin.h>
#endif

constexpr long kMostThreads = 64;

// What `gradient_of` reads.
struct Batch {
  const int32_t* words;  // of the program
  long words_size;
  Numbers numbers;
  Recipe recipe;
  const float* windows;
  const int32_t* labels;
  const float* weights;
  long rows, window_floats, classes;
  long slots, first_slot, slot_count;  // of the batch; this call's
  long threads;
  bool has_weights;
  bool layer;    // whether the program is a layer's; `classes` are the floats of its last value
  bool apart;    // whether each slot's own sum is wanted
  bool thrifty;  // whether threads that cost more than they save are left out
};

// IEEE's default floating-point state, while it lives: round to nearest, denormals kept, no traps.
struct Ieee {
#if defined(__x86_64__)
  const unsigned before = _mm_getcsr();
  Ieee() { _mm_setcsr(0x1f80); }
  ~Ieee() { _mm_setcsr(before); }
#elif defined(__aarch64__)
  uint64_t before;
  Ieee() {
    __asm__ volatile("mrs %0, fpcr" : "=r"(before));
    __asm__ volatile("msr fpcr, %0" ::"r"(uint64_t{0}));
  }
  ~Ieee() { __asm__ volatile("msr fpcr, %0" ::"r"(before)); }
#endif
};

#define EXPORTED extern "C" __attribute__((visibility("default")))

// A change of any result's bits, or of what an operation takes, raises it.
constexpr int32_t kVersion = 7;

// How many largest aligned subtrees a range of slots has.
long nodes_of(long first, long count);

// The threads that a call asks for; for 0 those of PSCLUSTER_THREADS, else one a usable core.
long threads_for(long asked);

// Frees what calls that are over have left for later ones.
void give_back();

// The kind with this name that this processor has, or null; the chosen one without a name.
const Kind* kind_named(const char* name);

// Sums over each largest aligned subtree of the slots, (nodes_of(first, count), trained +
// statistics), or over each slot; losses and hits of each slot. Returns null, or why it was
// refused.
const char* gradient_of(const Batch& batch, const Kind& kind, float* nodes, float* losses,
                        float* hits);

// The version, 64 bits of a digest of what a small fixed step computes, and how many floats that
// is: the same four words wherever results have the same bits.
const char* proof_of(const Kind& kind, int32_t* words);

// The same of logits, (rows, classes), outside training.
const char* logits_of(const Batch& batch, const Kind& kind, float* logits);

// Which rows of a set the windows of a call are. Rows of equal sources hold the same bits.
struct Origin {
  const int32_t *rows, *source;
  long total, source_size;  // rows of the set; words
};

// The logits of a program without trained parameters. What a call has computed of the latest source
// others copy, as far as a bounded memory reaches, until `forget`.
const char* recalled_of(Batch batch, const Kind& kind, const Origin& origin, float* results);
void forget();

// The shares of the classes in each row's answer, (rows, classes), and the cross-entropy with its
// label, (rows); NaN for a label that there is not.
void judged(const float* logits, const int32_t* labels, long rows, long classes, float* shares,
            float* losses);

// A layer of a network that others compute. Its results are the last value, (rows, classes). What
// its gradient needs of the values may be kept, in `kept_of` floats; without, it computes them
// again. The gradient is (trained) and (rows, window_floats).
long kept_of(const Batch& batch);
const char* layer_of(const Batch& batch, const Kind& kind, float* kept, float* results);
const char* layer_gradient_of(const Batch& batch, const Kind& kind, float* kept,
                              const float* by_results, float* by_trained, float* by_windows);

// A call as tests/kernels/networks.py records it; its results are nodes, losses, hits and logits.
struct Recorded : Batch {
  long results = 0;  // floats
  bool whole;        // whether the record was
  explicit Recorded(FILE* from);
  ~Recorded();
  Recorded(const Recorded&) = delete;
  // Null, or why it was refused.
  const char* compute(const Kind& kind, float* to) const;
};

// ------------------------------------------------------- what a parameter server computes

constexpr long kParameterBlock =
    1024;  // elements that norms are summed over, and halves share a unit

enum Optimizer : int32_t { kSgd, kAdam, kAdagrad, kRmsprop, kLion, kOptimizers };

// One step of an optimizer on `size` parameters with `slots` arrays of as many elements.
struct Update {
  int32_t optimizer;
  const float* numbers;  // sgd: momentum, nesterov; adam: beta 1, beta 2, epsilon; adagrad:
                         // epsilon; rmsprop: rho, momentum, epsilon; lion: beta 1, beta 2
  const float* gradient;
  float rate;
  int64_t count;  // updates before this one
  long size, slots;
};

// Sums of squares of the blocks of a vector.
void squares_of(const float* x, long count, float* sums);

// Each block in halves with a power of two of its own, as codec `fp16` sends it.
void rounded(float* x, long count);

// The root of the sum of `count` sums of squares, added in the tree of `node_of`.
float norm_of(const float* squares, long count);

// The sum of `count` leaves of `width` in the fixed tree: pairs of neighbours, then pairs of their
// sums, an odd one is carried up. A null leaf is all zeros. With `halves` the first `trained`
// elements of each leaf and of each sum are rounded.
void node_of(const float* const* leaves, long count, long trained, long width, bool halves,
             float* node);

// In place; false for an optimizer that does not have so many slots.
bool updated(const Update& update, float* parameters, float* slots);

// ------------------------------------------------------------------------- augmentation

struct Augment {
  long steps, channels;           // at least two steps; channels in threes where there are turns
  const float *mean, *deviation;  // that the windows were standardized with
  float rotation_degrees, time_warp;
  uint32_t seed[2];
  long first_row;  // of the batch
};

// `rows` windows to `to`; `scratch` holds one window.
void augmented(const Augment& augment, const float* windows, long rows, float* to, float* scratch);
