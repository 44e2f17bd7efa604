// Reads a program, infers the shape of each value and gives it a place. All words are untrusted.

#include "program.h"

#include <stdlib.h>
#include <string.h>

namespace {

enum Steps { kInside, kOutside, kEither };

// What an instruction takes. -1 inputs: a list; -1 words: up to one a dimension. The words are
// those behind the inputs. Rank 0: any.
struct Form {
  int inputs, words;
  int rank;            // of the first input
  Steps steps;         // where the first input has them
  bool with_gradient;  // whether inputs may have one
};
constexpr Form kForms[kOperations] = {
    /* windows */ {0, 2, 0, kEither, false},
    /* array */ {0, 3, 0, kEither, false},
    /* dense */ {1, 4, 0, kEither, true},
    /* convolution */ {1, 5, 2, kInside, true},
    /* sequence */ {1, 0, 2, kInside, true},
    /* lstm */ {1, 4, 2, kOutside, true},
    /* at */ {1, 1, 2, kOutside, true},
    /* averaged */ {1, 0, 2, kOutside, true},
    /* layer norm */ {1, 3, 0, kEither, true},
    /* window norm */ {1, 1, 2, kInside, false},
    /* step norm */ {1, 5, 0, kOutside, true},
    /* dropout */ {1, 2, 0, kEither, true},
    /* stopped */ {1, 0, 0, kEither, true},
    /* unary */ {1, 1, 0, kEither, true},
    /* reduce */ {1, 4, 0, kInside, false},
    /* binary */ {2, 1, 0, kEither, true},
    /* cut */ {1, 3, 0, kInside, true},
    /* concat */ {-1, 1, 0, kEither, true},
    /* reshape */ {1, -1, 0, kInside, false},
    /* transpose */ {1, -1, 0, kInside, false},
    /* lagged */ {1, 1, 2, kInside, false},
};

constexpr long blocks_of(long units) { return (units + 15) / 16; }

class Reader {
 public:
  Reader(Program& program, const Numbers& numbers) : program_(program), numbers_(numbers) {}

  bool read(const int32_t* words, long size) {
    program_.instructions =
        static_cast<Instruction*>(calloc(kMostInstructions, sizeof(Instruction)));
    program_.values = static_cast<Value*>(malloc(kMostInstructions * sizeof(Value)));
    if (!program_.instructions || !program_.values) return refuse("out of memory");
    for (long at = 0; at < size;) {
      if (program_.count == kMostInstructions) return refuse("too many instructions");
      const long left = size - at, length = left < 2 ? 0 : words[at + 1];
      if (length < 2 || length > left) return refuse("an instruction is cut off");
      if (!next(words + at, length)) return false;
      at += length;
    }
    if (program_.count < 2) return refuse("there is nothing to compute");
    const Value& last = program_.values[program_.count - 1];
    if (!program_.layer && (last.rank != 1 || last.sequence))
      return refuse("the last value must be (batch, classes)");
    place();
    return true;
  }

 private:
  bool refuse(const char* why) {
    if (!program_.refusal) program_.refusal = why;
    return false;
  }

  // One instruction: [operation, length, inputs..., words...]; a list of inputs has its axis first.
  bool next(const int32_t* words, long length) {
    const int32_t code = words[0];
    const bool first = program_.count == 0;
    if (code < 0 || code >= kOperations || (code == kWindows) != first)
      return refuse("unknown operation");
    Instruction& made = program_.instructions[program_.count];
    const Form form = kForms[code];
    made.operation = static_cast<Operation>(code);
    long rest = length - 2;
    const int32_t* word = words + 2;
    if (form.inputs < 0) {
      if (rest < 2) return refuse("a list of inputs is empty");
      made.word[0] = word[0];
      made.inputs = static_cast<int>(rest - 1);
      if (made.inputs > kMostOperands) return refuse("too many inputs");
      memcpy(made.input, word + 1, sizeof(int32_t) * made.inputs);
    } else {
      made.inputs = form.inputs;
      rest -= form.inputs;
      if (rest < 0 || (form.words < 0 ? rest < 1 || rest > kMostDimensions : rest != form.words))
        return refuse("an instruction has another number of words");
      memcpy(made.input, word, sizeof(int32_t) * form.inputs);
      memcpy(made.word, word + form.inputs, sizeof(int32_t) * rest);
      words_ = static_cast<int>(rest);
    }
    Value& value = program_.values[program_.count];
    value = Value();
    for (int k = 0; k < made.inputs; ++k) {
      if (made.input[k] < 0 || made.input[k] >= program_.count)
        return refuse("an input is made later");
      value.has_gradient |= program_.values[made.input[k]].has_gradient;
      ++program_.values[made.input[k]].uses;
    }
    const Value& a = program_.values[made.inputs ? made.input[0] : 0];
    if (made.inputs && ((form.rank && a.rank != form.rank) ||
                        (form.steps != kEither && a.sequence != (form.steps == kOutside)) ||
                        (value.has_gradient && !form.with_gradient)))
      return refuse("an input does not fit");
    if (!infer(made, a, value)) return refuse("a shape does not fit");
    long floats = 1;
    for (int d = 0; d < value.rank; ++d) {
      if (value.dims[d] < 1 || value.dims[d] > kMostFloatsOfRow / floats)
        return refuse("a value is too large");
      floats *= value.dims[d];
    }
    value.outer = value.sequence ? value.dims[0] : 1;
    value.inner = floats / value.outer;
    ++program_.count;
    return true;
  }

  static bool within(int32_t at, long floats, long size) {
    return at >= 0 && floats > 0 && floats <= size - at;
  }
  // A trained array of the vector; it has a gradient.
  bool trained(int32_t at, long floats, Value& value) {
    value.has_gradient = true;
    return within(at, floats, numbers_.trained_size);
  }
  bool statistic(int32_t at, long floats) const {
    return within(at, floats, numbers_.statistics_size);
  }
  bool constant(int32_t at, long floats) const {
    return within(at, floats, numbers_.constants_size);
  }

  static void copy_shape(const Value& from, Value& to) {
    to.rank = from.rank;
    to.sequence = from.sequence;
    memcpy(to.dims, from.dims, sizeof to.dims);
  }

  bool infer(Instruction& made, const Value& a, Value& v) {
    const int32_t* w = made.word;
    if (made.inputs) copy_shape(a, v);
    const long last = a.last();
    switch (made.operation) {
      case kWindows:
        v.rank = 2;
        v.dims[0] = w[0], v.dims[1] = w[1];
        v.has_gradient = program_.layer;
        return true;
      case kArray:
        v.rank = 1;
        v.dims[0] = w[2];
        return w[1] ? constant(w[0], w[2]) : statistic(w[0], w[2]);
      case kDense:
        v.dims[v.rank - 1] = w[2];
        if (w[2] < 1) return false;
        if (w[3]) return constant(w[0], last * w[2]) && w[1] < 0;
        if (!a.sequence && a.rank > 1) return false;  // slots would not be apart
        return trained(w[0], last * w[2], v) && (w[1] < 0 || trained(w[1], w[2], v));
      case kConvolution:
        if (w[2] < 1 || w[2] > 64 || w[3] < 1 || w[4] < 1) return false;
        v.dims[0] = (a.dims[0] + w[4] - 1) / w[4], v.dims[1] = w[3];
        return trained(w[0], w[2] * last * w[3], v) && trained(w[1], w[3], v);
      case kSequence:
        return v.sequence = true;
      case kLstm: {
        const long units = v.dims[1] = w[2];
        if (units < 1 || units > kMostWidth) return false;
        return trained(w[0], (last + units) * 4 * units, v) && trained(w[1], 4 * units, v);
      }
      case kAt:
        if (w[0] < 0) made.word[0] += static_cast<int32_t>(a.dims[0]);
        v.rank = 1, v.sequence = false, v.dims[0] = last;
        return made.word[0] >= 0 && made.word[0] < a.dims[0];
      case kAveraged:
        v.rank = 1, v.sequence = false, v.dims[0] = last;
        return true;
      case kLagged:
        v.rank = 1, v.dims[0] = last;
        return w[0] > 0 && w[0] < a.dims[0];
      case kLayerNorm:
        return last <= kMostWidth && trained(w[0], last, v) && trained(w[1], last, v);
      case kWindowNorm:
        return true;
      case kStepNorm:
        return trained(w[0], 1, v) && trained(w[1], 1, v) && statistic(w[2], a.dims[0]) &&
               statistic(w[3], a.dims[0]);
      case kDropout:
        return made.number(0) > 0.0f && made.number(0) <= 1.0f;
      case kStopped:
        v.has_gradient = false;
        return true;
      case kUnary:
        return w[0] >= 0 && w[0] < kUnaries && (w[0] == kRelu || !a.has_gradient);
      case kReduce: {
        const long axis = axis_of(a, w[1]);
        if (w[0] < 0 || w[0] >= kSigns || axis < 0) return false;
        v.dims[axis] = 1;
        if (w[2]) return true;
        for (long d = axis; d + 1 < a.rank; ++d)
          v.dims[d] = a.dims[d + 1];
        return --v.rank >= 1;
      }
      case kBinary:
        return w[0] >= 0 && w[0] < kSigns &&
               binary(a, program_.values[made.input[1]], w[0] == kAdd, v);
      case kCut: {
        const long axis = axis_of(a, w[0]);
        if (axis < 0 || w[1] < 0 || w[1] >= w[2] || w[2] > a.dims[axis]) return false;
        v.dims[axis] = w[2] - w[1];
        return true;
      }
      case kConcat:
        return concat(made, v, axis_of(a, w[0]));
      case kReshape: {
        v.rank = words_;
        long floats = 1;
        for (int d = 0; d < v.rank; ++d) {
          if (w[d] < 1 || w[d] > kMostFloatsOfRow / floats) return false;
          floats *= v.dims[d] = w[d];
        }
        return floats == a.inner;
      }
      case kTranspose: {
        unsigned seen = 0;
        for (int d = 0; d < a.rank; ++d) {
          const long axis = d < words_ ? axis_of(a, w[d]) : -1;
          if (axis < 0) return false;
          seen |= 1u << axis;
          v.dims[d] = a.dims[axis];
        }
        return words_ == a.rank && seen == (1u << a.rank) - 1;
      }
      default:
        return false;
    }
  }

  // An axis of a program counts the batch, which nothing is done along; -1 where there is none.
  static long axis_of(const Value& a, int32_t word) {
    return word >= 1 && word <= a.rank ? word - 1 : -1;
  }

  // Broadcasts as NumPy does; a gradient goes through a sum of one shape alone.
  static bool binary(const Value& a, const Value& b, bool is_sum, Value& v) {
    if (a.has_shape_of(b) && a.sequence == b.sequence) return is_sum || !v.has_gradient;
    if (v.has_gradient || a.sequence || b.sequence) return false;
    if (b.rank > a.rank) copy_shape(b, v);
    for (int d = 1; d <= a.rank && d <= b.rank; ++d) {
      const long of_a = a.dims[a.rank - d], of_b = b.dims[b.rank - d];
      if (of_a != of_b && of_a != 1 && of_b != 1) return false;
      v.dims[v.rank - d] = of_a > of_b ? of_a : of_b;
    }
    return true;
  }

  bool concat(const Instruction& made, Value& v, long axis) const {
    if (axis < 0 || (v.sequence && axis == 0)) return false;
    for (int k = 1; k < made.inputs; ++k) {
      const Value& b = program_.values[made.input[k]];
      if (b.rank != v.rank || b.sequence != v.sequence) return false;
      for (int d = 0; d < v.rank; ++d)
        if (d != axis && b.dims[d] != v.dims[d]) return false;
      v.dims[axis] += b.dims[axis];
      if (v.dims[axis] > kMostFloatsOfRow) return false;
    }
    return true;
  }

  // Places in the memory; what of it an instruction shares with the others comes last.
  void place() {
    long shared = 0, back = 0;
    for (int k = 0; k < program_.count; ++k) {
      Value& v = program_.values[k];
      Instruction& made = program_.instructions[k];
      const Value& a = program_.values[made.inputs ? made.input[0] : 0];
      if (!fold(made, v)) {
        v.at = keep(v.floats());
        // The loss is always written by the last value.
        if (v.has_gradient || k + 1 == program_.count)
          v.gradient = take(program_.scratch, v.floats());
      }
      const long last = a.last(), width = v.last();
      long own = 0, packed = 0, packed_back = 0;
      switch (made.operation) {
        case kLstm: {
          const long blocks = blocks_of(width);
          made.kept = keep(v.dims[0] * blocks * 5 * 16);
          program_.work += 4.0 * (last + width) * v.floats();
          own = (v.dims[0] + 1) * blocks * 64 + blocks * 16;
          packed = (last + width + 1) * blocks * 64;
          packed_back = 4 * width * 16 * (blocks + blocks_of(last));
          break;
        }
        case kDense:
          packed = last * blocks_of(width) * 16;
          packed_back = width * blocks_of(last) * 16;
          program_.work += 1.0 * last * v.floats();
          break;
        case kConvolution: {
          const long taps = made.word[2];
          own = 2 * (a.dims[0] + taps) * last + v.dims[0] * taps * last;
          packed = taps * last * blocks_of(width) * 16;
          packed_back = width * blocks_of(taps * last) * 16;
          program_.work += 1.0 * taps * last * v.floats();
          made.kept = keep((a.dims[0] + taps) * last);
          break;
        }
        case kLayerNorm:
          made.kept = keep(2 * v.floats() / last);
          own = v.floats();
          break;
        case kStepNorm:
          own = v.inner;
          made.kept = keep(2 * v.dims[0]);
          break;
        default:
          break;
      }
      if (own > shared) shared = own;
      made.packed = take(program_.packed, packed);
      made.packed_back = take(back, packed_back);
    }
    for (int k = 0; k < program_.count; ++k)
      program_.instructions[k].packed_back += program_.packed;
    program_.all_packed = program_.packed + back;
    share();
    program_.floats = program_.kept + program_.scratch;
    take(program_.floats, shared);
    program_.work += 10.0 * program_.floats;
  }

  // Whether `v` lies where its only input does: a relu behind a product.
  bool fold(Instruction& made, Value& v) {
    if (made.operation != kUnary || made.word[0] != kRelu) return false;
    Instruction& before = program_.instructions[made.input[0]];
    const Value& a = program_.values[made.input[0]];
    const bool follows = before.operation == kDense || before.operation == kConvolution;
    if (!follows || a.uses != 1 || a.has_gradient != v.has_gradient) return false;
    v.at = a.at;
    v.gradient = a.gradient;
    before.relu = made.folded = true;
    return true;
  }

  // An LSTM whose outputs go into a concatenation of features alone writes them there; what goes
  // into a sum alone has the sum's gradient.
  void share() {
    for (int k = program_.count - 1; k > 0; --k) {
      Instruction& made = program_.instructions[k];
      const Value& v = program_.values[k];
      if (made.operation == kBinary && v.has_gradient) {
        for (int i = 0; i < made.inputs; ++i) {
          Value& a = program_.values[made.input[i]];
          // A folded relu masks its gradient in place, which the sum's other parts read.
          const bool masks = program_.instructions[made.input[i]].folded;
          if (a.uses == 1 && a.has_gradient && !masks) a.gradient = v.gradient;
        }
      }
      if (made.operation != kConcat || !v.sequence || made.word[0] != v.rank) continue;
      bool all = true;
      for (int i = 0; i < made.inputs; ++i) {
        const Value& a = program_.values[made.input[i]];
        all &= a.uses == 1 && program_.instructions[made.input[i]].operation == kLstm;
      }
      if (!all) continue;
      made.folded = true;
      long column = 0;
      for (int i = 0; i < made.inputs; ++i) {
        Value& a = program_.values[made.input[i]];
        a.at = v.at, a.gradient = v.gradient, a.column = column, a.width = v.inner;
        column += a.inner;
      }
    }
  }

  long keep(long floats) { return take(program_.kept, floats); }
  // At a line of the cache, whatever the number of rows.
  static long take(long& from, long floats) {
    const long place = from;
    from += (floats + 15) / 16 * 16;
    return place;
  }

  Program& program_;
  const Numbers& numbers_;
  int words_ = 0;
};

}  // namespace

bool read_program(Program& program, const int32_t* words, long size, const Numbers& numbers) {
  return Reader(program, numbers).read(words, size);
}

void free_program(Program& program) {
  free(program.instructions);
  free(program.values);
  program = Program();
}
