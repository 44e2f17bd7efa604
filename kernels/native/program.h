// A network as a program: instructions over values, with the place of each value in the memory.
//
// A value is [outer][row][inner]: rows are windows. A sequence has its steps outside; all other
// values have everything inside. Sizes are in floats, places in floats a row.

#pragma once

#include <stddef.h>
#include <stdint.h>

inline long least(long a, long b) { return a < b ? a : b; }
inline uint32_t bits_of(float x) {
  uint32_t bits;
  __builtin_memcpy(&bits, &x, sizeof bits);
  return bits;
}
inline float float_of(uint32_t bits) {
  float x;
  __builtin_memcpy(&x, &bits, sizeof x);
  return x;
}

constexpr int kMostLevels = 8;  // of the tree over the slots of a call
constexpr long kMostSlots = 1 << (kMostLevels - 1);
constexpr long kMostInstructions = 1024;
constexpr int kMostDimensions = 5;
constexpr int kMostOperands = 64;
constexpr long kMostWidth = 4096;            // of what is normalized, and classes
constexpr long kMostFloatsOfRow = 1L << 26;  // of one value

enum Operation : int32_t {
  kWindows,      // steps, channels: the first value, always
  kArray,        // place, whether it is a constant or a statistic, size
  kDense,        // input, kernel, bias (or -1), outputs, whether the kernel is a constant
  kConvolution,  // input, kernel, bias, taps, outputs, stride
  kSequence,     // input
  kLstm,         // input, kernel, bias, units, whether it reads backwards
  kAt,           // input, step
  kAveraged,     // input
  kLayerNorm,    // input, scale, shift, epsilon
  kWindowNorm,   // input, epsilon
  kStepNorm,     // input, scale, shift, mean, variance, epsilon
  kDropout,      // input, probability to keep, site
  kStopped,      // input
  kUnary,        // input, which
  kReduce,       // input, sign, axis, whether the axis stays, whether for a mean
  kBinary,       // input, other input, sign
  kCut,          // input, axis, begin, end
  kConcat,       // axis, inputs...
  kReshape,      // input, dimensions...
  kTranspose,    // input, axes...
  kLagged,       // input, steps
  kOperations,
};

enum Unary : int32_t { kRelu, kAbsolute, kRoot, kLog1p, kUnaries };
enum Sign : int32_t { kAdd, kSubtract, kMultiply, kDivide, kMax, kMin, kSigns };

struct Value {
  int rank = 0;  // without the batch
  long dims[kMostDimensions] = {};
  bool sequence = false;  // dims[0] is outside
  bool has_gradient = false;
  long outer = 1, inner = 1;
  long at = 0, gradient = 0;   // places, among what is kept and among gradients
  long column = 0, width = 0;  // of an LSTM's outputs that lie in a concatenation: its rows' width
  int uses = 0;
  long floats() const { return outer * inner; }
  long last() const { return rank ? dims[rank - 1] : 0; }
  bool has_shape_of(const Value& other) const {
    return rank == other.rank && !__builtin_memcmp(dims, other.dims, sizeof(long) * rank);
  }
};

struct Instruction {
  Operation operation;
  int inputs;
  int32_t input[kMostOperands];
  int32_t word[8];  // what follows the inputs in the program
  float number(int k) const { return float_of(static_cast<uint32_t>(word[k])); }
  long kept;                 // the place of what the gradient needs beside the values
  long packed, packed_back;  // the places of packed weights
  bool relu;                 // this product ends with it
  bool folded;               // nothing to do: what made the input writes here
};

// Rows of each slot of a pass: slot k has rows first[k] to first[k + 1].
struct Slots {
  long count = 0;
  long apart = 0;  // floats between the slots' own sums; 0: their sum in the tree is wanted
  long first[kMostSlots + 1];
  long rows() const { return first[count]; }
};

// What a program is run with; nothing here belongs to one thread.
struct Numbers {
  const float* constants;
  const float* trained;
  const float* statistics;
  long constants_size, trained_size, statistics_size;
};

struct Program {
  bool layer = false;  // its last value has any shape, and its windows have a gradient
  Instruction* instructions = nullptr;  // instruction k makes value k
  Value* values = nullptr;
  int count = 0;
  long kept = 0;     // floats a row of values and of what else the gradient needs; gradients follow
  long scratch = 0;  // floats a row of gradients; what instructions use in turn follows
  long floats = 0;   // of memory a row, all of it
  long packed =
      0;  // floats of weights as products read them forwards; those of the gradient follow
  long all_packed = 0;  // floats of both
  double work = 0;      // of a row's logits: about multiply-adds
  const char* refusal = nullptr;
};

// How a batch is trained on; the recipe says it, and it is the same on every worker.
struct Recipe {
  long batch_size;
  long group;  // slots whose windows are normalized together; a power of two
  float smoothing;
  uint32_t seed[2];  // of the dropout
};

// Consecutive slots of a batch, an aligned subtree of it, with all their windows.
struct Pass {
  const Program* program;
  const Numbers* numbers;
  const Recipe* recipe;  // null outside training
  Slots slots;
  long first_row;  // in the batch: dropout counts from there
  const float* windows;
  const int32_t* labels;
  const float* weights;  // of each window in the loss, or null
  float* memory;         // program.floats * rows, kChains * slots and kSlack floats
  const float* packed;   // all weights, which passes of a call share
  // Of a layer, with its windows outside: what its values are kept in, or null; the loss by its
  // results, null forwards; the loss by its windows.
  float* kept;
  const float* by_results;
  float* by_windows;
  // Results: the subtree's sums with the loss and the hits of each slot, or the last value outside
  // training.
  float* results;
  float* gradient;
  float* statistics;
  float *losses, *hits;
};

// Of the gradients by weights, for each slot: so many rows of 64 at a time.
constexpr long kInnerAtOnce = 256, kChains = kInnerAtOnce * 64;

constexpr long kSlack = 64;  // floats behind the memory that a whole vector may read

// Which weights a call needs packed.
struct Packing {
  bool forwards, backwards;
};

// One kind of processor.
struct Kind {
  const char* name;
  void (*run)(Pass&);
  void (*pack)(const Program&, const Numbers&, int instruction, Packing, float* packed);
  int lanes;
};

bool read_program(Program& program, const int32_t* words, long size, const Numbers& numbers);
void free_program(Program& program);
