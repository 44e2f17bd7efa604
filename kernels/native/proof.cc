// Shows which arithmetic this is: the bits of a small fixed step, and of a program with all other
// instructions.

#include <stdlib.h>
#include <string.h>

#include "library.h"
#include "philox.h"

namespace {

// A network with layers of each kind that computes with weights.
constexpr int32_t kWords[] = {
    kWindows,     4, 7, 3,                                   // steps, channels
    kConvolution, 8, 0, 0,          45,   3,          5, 1,  // taps, filters, stride
    kUnary,       4, 1, kRelu,                               //
    kSequence,    3, 2,                                      //
    kLstm,        7, 3, 50,         1874, 19,         1,     // units, backwards
    kLayerNorm,   6, 4, 1950,       1969, 0x3a83126f,        // 0.001
    kDropout,     5, 5, 0x3f400000, 0,                       // 0.75
    kAveraged,    3, 6,                                      //
    kDense,       7, 7, 1988,       2064, 4,          0,     // classes
};
// The instructions of the shipped networks beside those. Behind it, what each one makes.
constexpr int32_t kOthers[] = {
    kWindows,     4, 7,  3,                                         // 0: (7, 3)
    kWindowNorm,  4, 0,  0x3a83126f,                                // 1: (7, 3), 0.001
    kArray,       5, 0,  1,          3,                             // 2: (3) constants
    kArray,       5, 8,  0,          3,                             // 3: (3) statistics
    kBinary,      5, 1,  2,          kMultiply,                     // 4: (7, 3)
    kBinary,      5, 4,  3,          kAdd,                          // 5: (7, 3)
    kBinary,      5, 5,  2,          kSubtract,                     // 6: (7, 3)
    kUnary,       4, 6,  kAbsolute,                                 // 7: (7, 3)
    kUnary,       4, 7,  kRoot,                                     // 8: (7, 3)
    kUnary,       4, 7,  kLog1p,                                    // 9: (7, 3)
    kBinary,      5, 9,  3,          kDivide,                       // 10: (7, 3)
    kBinary,      5, 8,  10,         kMax,                          // 11: (7, 3)
    kBinary,      5, 11, 3,          kMin,                          // 12: (7, 3)
    kTranspose,   5, 12, 2,          1,                             // 13: (3, 7)
    kDense,       7, 13, 3,          -1,        5,          1,      // 14: (3, 5), by constants
    kReshape,     5, 14, 5,          3,                             // 15: (5, 3)
    kCut,         6, 15, 1,          1,         4,                  // 16: (3, 3)
    kReduce,      7, 16, kAdd,       1,         0,          1,      // 17: (3), the mean
    kReduce,      7, 16, kMax,       1,         1,          0,      // 18: (1, 3)
    kReduce,      7, 16, kMin,       2,         1,          0,      // 19: (3, 1)
    kReshape,     5, 19, 1,          3,                             // 20: (1, 3)
    kConcat,      5, 1,  18,         20,                            // 21: (2, 3)
    kReshape,     4, 21, 6,                                         // 22: (6)
    kConvolution, 8, 1,  0,          36,        3,          4,  2,  // 23: (4, 4), every other step
    kUnary,       4, 23, kRelu,                                     // 24: (4, 4)
    kSequence,    3, 24,                                            // 25: (4, 4)
    kStepNorm,    8, 25, 40,         41,        0,          4,  0x3a83126f,  // 26: (4, 4)
    kLstm,        7, 26, 42,         222,       5,          0,               // 27: (4, 5)
    kLstm,        7, 26, 242,        422,       5,          1,               // 28: (4, 5)
    kConcat,      5, 2,  27,         28,                                     // 29: (4, 10)
    kAt,          4, 29, -1,                                                 // 30: (10)
    kAveraged,    3, 29,                                                     // 31: (10)
    kBinary,      5, 30, 31,         kAdd,                                   // 32: (10)
    kStopped,     3, 32,                                                     // 33: (10)
    kLayerNorm,   6, 32, 442,        452,       0x3a83126f,                  // 34: (10)
    kLagged,      4, 1,  2,                                                  // 35: (3), two steps
    kConcat,      8, 1,  33,         34,        17,         22, 35,          // 36: (32)
    kDropout,     5, 36, 0x3f400000, 1,                                      // 37: (32), 0.75
    kDense,       7, 37, 462,        590,       4,          0,               // 38: classes
};
constexpr long kOtherParameters = 594, kOtherStatistics = 11, kConstants = 38;

struct Covered {
  bool operation[kOperations] = {}, unary[kUnaries] = {}, sign[kSigns] = {};
};

template <size_t size>
constexpr void cover(const int32_t (&words)[size], Covered& covered) {
  for (size_t at = 0; at < size; at += words[at + 1]) {
    covered.operation[words[at]] = true;
    if (words[at] == kUnary) covered.unary[words[at + 3]] = true;
    if (words[at] == kBinary) covered.sign[words[at + 4]] = true;
  }
}

template <size_t size>
constexpr bool all_of(const bool (&covered)[size]) {
  for (bool each : covered)
    if (!each) return false;
  return true;
}

constexpr bool covers_all() {
  Covered covered;
  cover(kWords, covered);
  cover(kOthers, covered);
  return all_of(covered.operation) && all_of(covered.unary) && all_of(covered.sign);
}
static_assert(covers_all(), "add the instruction to a program of the proof");

constexpr long kParameters = 2068, kBlocks = 3, kWindowFloats = 7 * 3, kClasses = 4;
constexpr long kRows = 9, kSlots = 4;

// Every optimizer, with the arrays that its steps keep.
constexpr struct {
  int32_t optimizer;
  long count;
} kUpdates[] = {{kSgd, 1}, {kAdagrad, 1}, {kRmsprop, 2}, {kLion, 1}, {kAdam, 2}};
static_assert(sizeof kUpdates == kOptimizers * sizeof *kUpdates, "add the optimizer to the proof");

// Numbers in [-1, 1) from counters.
void fill(float* to, long count, uint32_t which) {
  const uint32_t seed[] = {which, 0};
  for (long k = 0; k < count; ++k) {
    Philox drawn;
    drawn.draw(seed, static_cast<uint32_t>(k), 0, 0);
    to[k] = static_cast<float>(drawn.word[0][0] >> 8) * 1.1920929e-7f - 1.0f;
  }
}

// FNV-1a of words.
uint64_t digest_of(const float* x, long count, uint64_t digest = 0xcbf29ce484222325u) {
  for (long k = 0; k < count; ++k)
    digest = (digest ^ bits_of(x[k])) * 0x100000001b3u;
  return digest;
}

constexpr long kOtherFloats =
    kSlots * (kOtherParameters + kOtherStatistics) + 2 * kSlots + 2 * kRows * kClasses + kRows;

// What the program with the other instructions computes of the batch's windows, in all ways that
// trainings call it: slots apart, groups of two, several threads, and outside training. It goes to
// `found`, kOtherFloats.
const char* prove_others(Batch batch, const Kind& kind, float* found) {
  constexpr long size = kOtherParameters + kOtherStatistics;
  float numbers[size], constants[kConstants];
  fill(numbers, size, 2);
  fill(constants, kConstants, 3);
  for (long k = kOtherParameters; k < size; ++k)
    numbers[k] += 1.5f;  // a variance is above 0, and so is what divides
  batch.words = kOthers, batch.words_size = sizeof kOthers / sizeof *kOthers;
  batch.numbers = {constants,  numbers,          numbers + kOtherParameters,
                   kConstants, kOtherParameters, kOtherStatistics};
  batch.recipe.group = 2, batch.apart = true, batch.threads = 2;
  float *losses = found + kSlots * size, *hits = losses + kSlots, *logits = hits + kSlots;
  float *shares = logits + kRows * kClasses, *of_rows = shares + kRows * kClasses;
  if (const char* why = gradient_of(batch, kind, found, losses, hits)) return why;
  if (const char* why = logits_of(batch, kind, logits)) return why;
  judged(logits, batch.labels, kRows, kClasses, shares, of_rows);
  return nullptr;
}

}  // namespace

const char* proof_of(const Kind& kind, int32_t* words) {
  constexpr long size = kParameters, floats = kRows * kWindowFloats;
  constexpr long results = 4 * size + 2 * kSlots + kBlocks + 1 + floats;
  constexpr long others = results + 2 * floats + kWindowFloats;
  float* memory = static_cast<float*>(calloc(others + kOtherFloats, sizeof(float)));
  if (!memory) return "out of memory";
  float *gradient = memory, *parameters = gradient + size, *slots = parameters + size;
  float *losses = slots + 2 * size, *hits = losses + kSlots, *squares = hits + kSlots;
  float *norm = squares + kBlocks, *windows = norm + 1;
  float *recorded = windows + floats, *scratch = recorded + floats;
  fill(parameters, size, 0);
  fill(recorded, floats, 1);
  const float mean[] = {0.5f, 0.25f, -0.5f}, deviation[] = {0.5f, 1.0f, 2.0f};
  Ieee state;
  augmented({7, 3, mean, deviation, 15.0f, 0.2f, {2, 3}, 0}, recorded, kRows, windows, scratch);
  const int32_t labels[kRows] = {0, 1, 2, 3, 0, 1, 2, 3, 0};
  Batch batch = {};
  batch.words = kWords, batch.words_size = sizeof kWords / sizeof *kWords;
  batch.numbers.trained = parameters, batch.numbers.trained_size = size;
  batch.recipe = {kRows, 1, 0.125f, {2, 3}};
  batch.windows = windows, batch.labels = labels;
  batch.rows = kRows, batch.window_floats = kWindowFloats, batch.classes = kClasses;
  batch.slots = batch.slot_count = kSlots, batch.threads = 1;
  const char* why = gradient_of(batch, kind, gradient, losses, hits);
  node_of(&gradient, 1, size, size, true, gradient);
  squares_of(gradient, size, squares);
  *norm = norm_of(squares, kBlocks);
  const float numbers[] = {0.9f, 0.999f, 1e-7f};
  for (const auto& [optimizer, count] : kUpdates) {
    memset(slots, 0, sizeof(float) * 2 * size);
    updated({optimizer, numbers, gradient, 0.01f, 5, size, count}, parameters, slots);
  }
  if (!why) why = prove_others(batch, kind, memory + others);
  const uint64_t digest = digest_of(memory + others, kOtherFloats, digest_of(memory, results));
  words[0] = kVersion;
  words[1] = static_cast<int32_t>(digest), words[2] = static_cast<int32_t>(digest >> 32);
  words[3] = static_cast<int32_t>(results + kOtherFloats);
  free(memory);
  return why;
}
