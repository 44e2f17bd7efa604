// Shows which arithmetic this is: the bits of a small fixed step.

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
constexpr long kParameters = 2068, kBlocks = 3, kWindowFloats = 7 * 3, kClasses = 4;
constexpr long kRows = 9, kSlots = 4;

// Every optimizer, with the arrays that its steps keep.
constexpr struct {
  int32_t optimizer;
  long count;
} kUpdates[] = {{kSgd, 1}, {kAdagrad, 1}, {kRmsprop, 2}, {kLion, 1}, {kAdam, 2}};

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
uint64_t digest_of(const float* x, long count) {
  uint64_t digest = 0xcbf29ce484222325u;
  for (long k = 0; k < count; ++k)
    digest = (digest ^ bits_of(x[k])) * 0x100000001b3u;
  return digest;
}

}  // namespace

const char* proof_of(const Kind& kind, int32_t* words) {
  constexpr long size = kParameters, floats = kRows * kWindowFloats;
  constexpr long results = 4 * size + 2 * kSlots + kBlocks + 1 + floats;
  float* memory = static_cast<float*>(calloc(results + 2 * floats + kWindowFloats, sizeof(float)));
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
  const uint64_t digest = digest_of(memory, results);
  words[0] = kVersion;
  words[1] = static_cast<int32_t>(digest), words[2] = static_cast<int32_t>(digest >> 32);
  words[3] = static_cast<int32_t>(results);
  free(memory);
  return why;
}
