// Runs a program over the windows of a pass, forwards and backwards. This file is compiled once for
// each kind of processor, with -DKIND=scalar, avx2, avx512 or neon and that kind's flags, always
// with -ffp-contract=off.

#include "elementwise.h"
#include "lstm.h"
#include "products.h"

namespace {

class Run {
 public:
  explicit Run(Pass& pass)
      : pass_(pass),
        program_(*pass.program),
        numbers_(*pass.numbers),
        rows_(pass.slots.rows()),
        kept_(pass.kept ? pass.kept : pass.memory),
        gradients_(pass.memory + program_.kept * rows_),
        scratch_(gradients_ + program_.scratch * rows_),
        chains_(pass.memory + program_.floats * rows_) {}

  void operator()() {
    const bool was_kept = pass_.kept && pass_.by_results;
    for (int k = 0; k < program_.count && !was_kept; ++k)
      forward(program_.instructions[k], program_.values[k]);
    const Value& last = program_.values[program_.count - 1];
    if (pass_.recipe)
      losses(last);
    else if (pass_.by_results)
      in_windows(last, [&](long own, long outside, long count) {
        memcpy(by(last) + own, pass_.by_results + outside, sizeof(float) * count);
      });
    else
      return in_windows(last, [&](long own, long outside, long count) {
        memcpy(pass_.results + outside, at(last) + own, sizeof(float) * count);
      });
    written_[program_.count - 1] = true;
    for (int k = program_.count - 1; k > 0; --k) {
      const Value& v = program_.values[k];
      if (v.has_gradient && written_[k]) backward(program_.instructions[k], v);
    }
    const long windows = sizeof(float) * floats(program_.values[0]);
    if (pass_.by_windows && written_[0])
      memcpy(pass_.by_windows, by(program_.values[0]), windows);
    else if (pass_.by_windows)
      memset(pass_.by_windows, 0, windows);
  }

 private:
  float* at(const Value& v) const { return kept_ + v.at * rows_ + v.column; }
  float* by(const Value& v) const { return gradients_ + v.gradient * rows_ + v.column; }
  const Value& input(const Instruction& made, int k = 0) const {
    return program_.values[made.input[k]];
  }
  float* kept(const Instruction& made) const { return kept_ + made.kept * rows_; }
  long floats(const Value& v) const { return v.floats() * rows_; }

  // Whether the gradient of input k has been written before; it has been, from now on.
  bool adds(const Instruction& made, int k = 0) {
    const bool before = written_[made.input[k]];
    written_[made.input[k]] = true;
    return before;
  }

  void forward(const Instruction& made, const Value& v) {
    if (made.folded) return;
    const Value& a = made.inputs ? input(made) : v;
    float* y = at(v);
    switch (made.operation) {
      case kWindows:
        memcpy(y, pass_.windows, sizeof(float) * floats(v));
        return;
      case kArray: {
        const float* array = made.word[1] ? numbers_.constants : numbers_.statistics;
        for (long row = 0; row < rows_; ++row)
          memcpy(y + row * v.inner, array + made.word[0], sizeof(float) * v.inner);
        return;
      }
      case kDense:
        return dense(made, a, v);
      case kConvolution:
        return convolution(made, a, v);
      case kLstm:
        return lstm(made, a, v).forward();
      case kAveraged:
        return averaged(a, v);
      case kLayerNorm:
        return layer_norm(made, a, v);
      case kWindowNorm:
        return window_norm(made, a, v);
      case kStepNorm:
        return step_norm(made, a, v);
      case kDropout:
        return dropped(made, a, at(a), y, false);
      case kUnary:
        return unary(made.word[0], a, v);
      case kReduce:
        return reduce(made, a, v);
      case kBinary:
        return binary(made, a, input(made, 1), v);
      case kTranspose:
        return transpose(made, a, v);
      case kLagged:
        return lagged(made, a, v);
      default:
        in_stretches(made, v, [&](int k, long whole, long part, long count) {
          memcpy(y + whole, at(input(made, k)) + part, sizeof(float) * count);
        });
    }
  }

  void backward(const Instruction& made, const Value& v) {
    const Value& a = input(made);
    switch (made.operation) {
      case kDense:
        return dense_backward(made, a, v);
      case kConvolution:
        return convolution_backward(made, a, v);
      case kLstm:
        return lstm_backward(made, a, v);
      case kLayerNorm:
        return layer_norm_backward(made, a, v);
      case kStepNorm:
        return step_norm_backward(made, a, v);
      case kAveraged:
        return averaged_backward(a, v, adds(made));
      case kDropout:
        if (a.has_gradient) dropped(made, a, by(v), by(a), adds(made));
        return;
      case kUnary:
        return relu_backward(a, v, adds(made) && !made.folded);
      case kBinary:  // a sum: no other has a gradient
        for (int k = 0; k < made.inputs; ++k) {
          const Value& part = input(made, k);
          const bool before = adds(made, k);
          if (part.has_gradient && part.gradient != v.gradient)
            put(by(v), by(part), floats(v), before);
        }
        return;
      default:
        break;
    }
    bool before[kMostOperands];
    for (int k = 0; k < made.inputs; ++k) {
      if (made.operation == kAt || made.operation == kCut) begun(made, k);
      before[k] = adds(made, k);
    }
    if (made.folded) return;
    in_stretches(made, v, [&](int k, long whole, long part, long count) {
      if (input(made, k).has_gradient)
        put(by(v) + whole, by(input(made, k)) + part, count, before[k]);
    });
  }

  // Zeros in the gradient of input k unless it has been written.
  void begun(const Instruction& made, int k) {
    const Value& a = input(made, k);
    if (a.has_gradient && !adds(made, k)) memset(by(a), 0, sizeof(float) * floats(a));
  }

  static void put(const float* from, float* to, long count, bool adds) {
    if (adds)
      add(from, to, count);
    else
      memcpy(to, from, sizeof(float) * count);
  }

  static void add(const float* from, float* to, long count) {
    for (long k = 0; k < count; ++k)
      to[k] += from[k];
  }

  // ---------------------------------------------------------------------------- with weights

  const float* forwards(const Instruction& made) const { return pass_.packed + made.packed; }
  const float* backwards(const Instruction& made) const { return pass_.packed + made.packed_back; }
  const float* bias(const Instruction& made) const {
    return made.word[1] < 0 ? nullptr : numbers_.trained + made.word[1];
  }
  Sheet sheet(const float* from, long width) const { return {from, rows_ * width, width}; }

  // The gradient by a kernel (inner, columns), which lies at `place` of the parameters.
  void by_kernel(long place, long outer, Sheet a, long inner, Sheet g, long columns) const {
    float* to = pass_.gradient + place;
    weights_gradient(pass_.slots, outer, a, inner, g, columns, chains_,
                     [=](long slot, long row, long column, Vector found) {
                       store(to + slot + row * columns + column, found, columns - column);
                     });
  }
  void by_bias(long place, long outer, Sheet g, long columns) const {
    by_kernel(place, outer, kOnes, 1, g, columns);
  }

  void dense(const Instruction& made, const Value& a, const Value& v) const {
    const long inner = a.last(), outputs = v.last();
    const Product product{at(a), inner,   forwards(made), bias(made),
                          at(v), outputs, made.relu,      false};
    product(floats(a) / inner, inner, outputs);
  }

  void dense_backward(const Instruction& made, const Value& a, const Value& v) {
    const long inner = a.last(), outputs = v.last();
    const Sheet by_outputs = sheet(by(v), outputs);
    if (!made.word[3]) {
      by_kernel(made.word[0], v.outer, sheet(at(a), inner), inner, by_outputs, outputs);
      if (made.word[1] >= 0) by_bias(made.word[1], v.outer, by_outputs, outputs);
    }
    if (!a.has_gradient) return;
    const Product product{by(v), outputs, backwards(made), nullptr,
                          by(a), inner,   false,           adds(made)};
    product(floats(v) / outputs, outputs, inner);
  }

  Lstm lstm(const Instruction& made, const Value& a, const Value& v) const {
    Lstm found{};
    found.steps = v.outer;
    found.rows = rows_;
    found.features = a.inner;
    found.hidden = v.inner;
    found.width = v.width ? v.width : v.inner;
    found.backward = made.word[3];
    found.inputs = at(a);
    found.outputs = at(v);
    found.kept = kept(made);
    found.gates = scratch_;
    found.chains = chains_;
    found.forwards = forwards(made);
    found.of_state = backwards(made);
    found.of_inputs = found.of_state + found.state_floats();
    return found;
  }

  void lstm_backward(const Instruction& made, const Value& a, const Value& v) {
    Lstm found = lstm(made, a, v);
    found.by_outputs = by(v);
    found.by_inputs = a.has_gradient ? by(a) : nullptr;
    found.adds = a.has_gradient && adds(made);
    found.by_kernel = pass_.gradient + made.word[0];
    found.by_bias = pass_.gradient + made.word[1];
    found.backwards(pass_.slots);
  }

  // Windows with zeros at their ends, so that an output's taps are neighbours.
  struct Padded {
    long length, before, stride, taps, channels, steps;
  };
  Padded padded_of(const Instruction& made, const Value& a, const Value& v) const {
    const long taps = made.word[2], stride = made.word[4];
    const long wanted = (v.dims[0] - 1) * stride + taps - a.dims[0];
    const long before = wanted > 0 ? wanted / 2 : 0;
    return {(a.dims[0] + taps) * a.dims[1], before, stride, taps, a.dims[1], v.dims[0]};
  }

  void convolution(const Instruction& made, const Value& a, const Value& v) const {
    const Padded p = padded_of(made, a, v);
    const long outputs = v.last(), inner = p.taps * p.channels;
    float* whole = kept(made);
    memset(whole, 0, sizeof(float) * rows_ * p.length);
    for (long row = 0; row < rows_; ++row) {
      float* own = whole + row * p.length;
      memcpy(own + p.before * p.channels, at(a) + row * a.inner, sizeof(float) * a.inner);
      const Product product{own,
                            p.stride * p.channels,
                            forwards(made),
                            bias(made),
                            at(v) + row * v.inner,
                            outputs,
                            made.relu,
                            false};
      product(p.steps, inner, outputs);
    }
  }

  void convolution_backward(const Instruction& made, const Value& a, const Value& v) {
    const Padded p = padded_of(made, a, v);
    const long outputs = v.last(), inner = p.taps * p.channels;
    const Sheet by_outputs{by(v), outputs, v.inner};
    by_kernel(made.word[0], p.steps, {kept(made), p.stride * p.channels, p.length}, inner,
              by_outputs, outputs);
    by_bias(made.word[1], p.steps, by_outputs, outputs);
    if (!a.has_gradient) return;
    begun(made, 0);
    float *columns = scratch_, *whole = columns + p.steps * inner;
    for (long row = 0; row < rows_; ++row) {
      const Product product{
          by(v) + row * v.inner, outputs, backwards(made), nullptr, columns, inner, false, false};
      product(p.steps, outputs, inner);
      memset(whole, 0, sizeof(float) * p.length);
      for (long o = 0; o < p.steps; ++o)
        add(columns + o * inner, whole + o * p.stride * p.channels, inner);
      add(whole + p.before * p.channels, by(a) + row * a.inner, a.inner);
    }
  }

  // ------------------------------------------------------------------------------------ norms

  void layer_norm(const Instruction& made, const Value& a, const Value& v) const {
    const long width = a.last(), count = floats(a) / width;
    const float *scale = numbers_.trained + made.word[0], *shift = numbers_.trained + made.word[1];
    const float of_width = static_cast<float>(width);
    float *x = at(a), *y = at(v), *own = kept(made);
    for (long k = 0; k < count; ++k, x += width, y += width, own += 2) {
      own[0] = sum_of(x, width) / of_width;
      own[1] = 1.0f / __builtin_sqrtf(spread_of(x, own[0], width) / of_width + made.number(2));
      for (long n = 0; n < width; ++n)
        y[n] = fma1((x[n] - own[0]) * own[1], scale[n], shift[n]);
    }
  }

  void layer_norm_backward(const Instruction& made, const Value& a, const Value& v) {
    const long width = a.last(), count = floats(a) / width;
    const float *scale = numbers_.trained + made.word[0], *own = kept(made);
    float *by_scale = scratch_, *x = at(a), *g = by(v), *products = by_scale;
    if (a.has_gradient) begun(made, 0);
    float* to = by(a);
    const float of_width = static_cast<float>(width);
    for (long k = 0; k < count;
         ++k, x += width, g += width, own += 2, products += width, to += width) {
      float normal[kMostWidth], scaled_by[kMostWidth];
      for (long n = 0; n < width; ++n) {
        normal[n] = (x[n] - own[0]) * own[1];
        scaled_by[n] = g[n] * scale[n];
        products[n] = g[n] * normal[n];
      }
      if (!a.has_gradient) continue;
      const float mean = sum_of(scaled_by, width) / of_width;
      const float along = dot_of(scaled_by, normal, width) / of_width;
      for (long n = 0; n < width; ++n)
        to[n] = fma1(own[1], scaled_by[n] - mean - normal[n] * along, to[n]);
    }
    by_bias(made.word[0], v.outer, sheet(by_scale, width), width);
    by_bias(made.word[1], v.outer, sheet(by(v), width), width);
  }

  void window_norm(const Instruction& made, const Value& a, const Value& v) const {
    const long steps = v.dims[0], channels = v.dims[1];
    const float* x = at(a);
    float* y = at(v);
    const float count = static_cast<float>(steps);
    for (long row = 0; row < rows_; ++row, x += v.inner, y += v.inner) {
      for (long c = 0; c < channels; ++c) {
        float mean = 0.0f, spread = 0.0f;
        for (long t = 0; t < steps; ++t)
          mean += x[t * channels + c];
        mean = mean / count;
        for (long t = 0; t < steps; ++t) {
          const float d = x[t * channels + c] - mean;
          spread = fma1(d, d, spread);
        }
        const float factor = 1.0f / __builtin_sqrtf(spread / count + made.number(0));
        for (long t = 0; t < steps; ++t)
          y[t * channels + c] = (x[t * channels + c] - mean) * factor;
      }
    }
  }

  // f(group, its first row, its rows); one group of all rows outside training.
  template <class F>
  void in_groups(F f) const {
    const Slots& slots = pass_.slots;
    const long size = pass_.recipe ? least(pass_.recipe->group, slots.count) : slots.count;
    for (long slot = 0; slot < slots.count; slot += size)
      f(slot / size, slots.first[slot], slots.first[slot + size] - slots.first[slot]);
  }

  void step_norm(const Instruction& made, const Value& a, const Value& v) const {
    const float scale = numbers_.trained[made.word[0]], shift = numbers_.trained[made.word[1]];
    for (long t = 0; t < a.outer; ++t) {
      float means[kMostSlots], variances[kMostSlots];
      long groups = 0;
      in_groups([&](long group, long first, long rows) {
        const long begin = (t * rows_ + first) * a.inner, count = rows * a.inner;
        const float *x = at(a) + begin, of_count = static_cast<float>(count);
        float mean = 0.0f, variance = 1.0f;
        if (!pass_.recipe) {
          mean = numbers_.statistics[made.word[2] + t];
          variance = numbers_.statistics[made.word[3] + t];
        } else if (count) {
          mean = sum_of(x, count) / of_count;
          variance = spread_of(x, mean, count) / of_count;
        }
        const float root = 1.0f / __builtin_sqrtf(variance + made.number(4));
        float* y = at(v) + begin;
        for (long k = 0; k < count; ++k)
          y[k] = fma1((x[k] - mean) * root, scale, shift);
        if (!pass_.recipe) return;
        const float share = static_cast<float>(rows) / static_cast<float>(pass_.recipe->batch_size);
        means[group] = mean * share, variances[group] = variance * share;
        groups = group + 1;
        float* own = kept(made) + 2 * (t * rows_ + first);
        if (count) own[0] = mean, own[1] = root;
      });
      if (!pass_.recipe) continue;
      sum_of_groups(means, groups, pass_.statistics + made.word[2] + t);
      sum_of_groups(variances, groups, pass_.statistics + made.word[3] + t);
    }
  }

  void step_norm_backward(const Instruction& made, const Value& a, const Value& v) {
    const float scale = numbers_.trained[made.word[0]];
    begun(made, 0);
    float by_scale[kMostSlots] = {}, by_shift[kMostSlots] = {};
    long groups = 0;
    for (long t = a.outer - 1; t >= 0; --t) {
      in_groups([&](long group, long first, long rows) {
        groups = group + 1;
        const long count = rows * a.inner, begin = (t * rows_ + first) * a.inner;
        if (!count) return;
        const float *x = at(a) + begin, *g = by(v) + begin,
                    *own = kept(made) + 2 * (t * rows_ + first);
        const float of_count = static_cast<float>(count), mean = own[0], root = own[1];
        float* normal = scratch_;
        for (long k = 0; k < count; ++k)
          normal[k] = (x[k] - mean) * root;
        const float along = dot_of(g, normal, count), total = sum_of(g, count);
        by_scale[group] += along;
        by_shift[group] += total;
        float* to = by(a) + begin;
        const float factor = root * scale;
        for (long k = 0; k < count; ++k)
          to[k] = fma1(factor, g[k] - total / of_count - normal[k] * (along / of_count), to[k]);
      });
    }
    sum_of_groups(by_scale, groups, pass_.gradient + made.word[0]);
    sum_of_groups(by_shift, groups, pass_.gradient + made.word[1]);
  }

  // The groups' sum in the tree, or each one at its first slot.
  void sum_of_groups(float* values, long groups, float* to) const {
    const long slots = pass_.slots.count / groups;
    for (long k = 0; pass_.slots.apart && k < groups; ++k)
      to[k * slots * pass_.slots.apart] = values[k];
    if (!pass_.slots.apart) *to = tree(values, groups);
  }

  static float tree(float* values, long count) {
    for (; count > 1; count /= 2) {
      for (long k = 0; k < count / 2; ++k)
        values[k] = values[2 * k] + values[2 * k + 1];
    }
    return values[0];
  }

  // --------------------------------------------------------------------------- without weights

  void unary(int32_t which, const Value& a, const Value& v) const {
    const float* x = at(a);
    float* y = at(v);
    for (long k = 0; k < floats(v); ++k) {
      if (which == kRelu)
        y[k] = x[k] > 0.0f ? x[k] : 0.0f;
      else if (which == kAbsolute)
        y[k] = __builtin_fabsf(x[k]);
      else
        y[k] = which == kRoot ? __builtin_sqrtf(x[k]) : log1p1(x[k]);
    }
  }

  void relu_backward(const Value& a, const Value& v, bool adds) const {
    if (!a.has_gradient) return;
    const float *y = at(v), *g = by(v);
    float* to = by(a);
    for (long k = 0; k < floats(v); k += kLanes) {
      const long left = floats(v) - k;
      const Vector found = load(y + k, left) > all(0.0f) ? load(g + k, left) : all(0.0f);
      store(to + k, adds ? load(to + k, left) + found : found, left);
    }
  }

  // f(a function of two numbers)
  template <class F>
  static void with_sign(int32_t which, F f) {
    switch (which) {
      case kAdd:
        return f([](float a, float b) { return a + b; });
      case kSubtract:
        return f([](float a, float b) { return a - b; });
      case kMultiply:
        return f([](float a, float b) { return a * b; });
      case kDivide:
        return f([](float a, float b) { return a / b; });
      case kMax:
        return f([](float a, float b) { return a < b ? b : a; });
      default:
        return f([](float a, float b) { return a > b ? b : a; });
    }
  }

  // The axis as (before, along, after) of a window's floats.
  struct Axis {
    long before = 1, along, after = 1;
    Axis(const Value& v, long axis) : along(v.dims[axis]) {
      for (int d = 0; d < v.rank; ++d)
        if (d != axis) (d < axis ? before : after) *= v.dims[d];
    }
  };

  void reduce(const Instruction& made, const Value& a, const Value& v) const {
    const Axis axis(a, made.word[1] - 1);
    const float count = static_cast<float>(axis.along);
    with_sign(made.word[0], [&](auto sign) {
      const float* x = at(a);
      float* y = at(v);
      for (long k = 0; k < axis.before * rows_; ++k, y += axis.after) {
        memcpy(y, x, sizeof(float) * axis.after);
        x += axis.after;
        for (long n = 1; n < axis.along; ++n, x += axis.after) {
          for (long c = 0; c < axis.after; ++c)
            y[c] = sign(y[c], x[c]);
        }
        for (long c = 0; made.word[3] && c < axis.after; ++c)
          y[c] = y[c] / count;
      }
    });
  }

  // The floats between neighbours along each axis of `v`, in `a`: none where that is broadcast.
  struct Strides {
    long at[kMostDimensions] = {};
    Strides(const Value& a, const Value& v) {
      long step = 1;
      for (int d = a.rank - 1; d >= 0; step *= a.dims[d--])
        if (a.dims[d] > 1) at[d + v.rank - a.rank] = step;
    }
  };

  // f(place in v, place in a, place in b) for each line along the last axis of v.
  template <class F>
  void in_lines(const Value& v, const Strides& a, const Strides& b, F f) const {
    const long lines = v.inner / v.last();
    for (long k = 0; k < lines; ++k) {
      long of_a = 0, of_b = 0, rest = k;
      for (int d = v.rank - 2; d >= 0; rest /= v.dims[d--])
        of_a += rest % v.dims[d] * a.at[d], of_b += rest % v.dims[d] * b.at[d];
      f(k * v.last(), of_a, of_b);
    }
  }

  void binary(const Instruction& made, const Value& a, const Value& b, const Value& v) const {
    with_sign(made.word[0], [&](auto sign) {
      float *x = at(a), *z = at(b), *y = at(v);
      if (a.has_shape_of(b)) {
        for (long k = 0; k < floats(v); ++k)
          y[k] = sign(x[k], z[k]);
        return;
      }
      const Strides of_a(a, v), of_b(b, v);
      const long step_a = of_a.at[v.rank - 1], step_b = of_b.at[v.rank - 1];
      for (long row = 0; row < rows_; ++row, x += a.inner, z += b.inner, y += v.inner) {
        in_lines(v, of_a, of_b, [&](long to, long from_a, long from_b) {
          for (long k = 0; k < v.last(); ++k)
            y[to + k] = sign(x[from_a + k * step_a], z[from_b + k * step_b]);
        });
      }
    });
  }

  void transpose(const Instruction& made, const Value& a, const Value& v) const {
    const Strides own(a, a);
    Strides turned = own;
    for (int d = 0; d < v.rank; ++d)
      turned.at[d] = own.at[made.word[d] - 1];
    for (long row = 0; row < rows_; ++row) {
      const float* x = at(a) + row * a.inner;
      float* y = at(v) + row * v.inner;
      in_lines(v, turned, turned, [&](long to, long from, long) {
        for (long k = 0; k < v.last(); ++k)
          y[to + k] = x[from + k * turned.at[v.rank - 1]];
      });
    }
  }

  // The mean over the steps of each channel times itself some steps later.
  void lagged(const Instruction& made, const Value& a, const Value& v) const {
    const long channels = v.inner, apart = made.word[0] * channels;
    const long steps = a.dims[0] - made.word[0];
    for (long row = 0; row < rows_; ++row) {
      const float* x = at(a) + row * a.inner;
      float* y = at(v) + row * v.inner;
      in_columns(channels, [&](auto vectors, long column) {
        Vector sum[vectors.value];
        for (long t = 0; t < steps; ++t) {
          UNROLL for (int n = 0; n < vectors.value; ++n) {
            const float* earlier = x + t * channels + column + n * kLanes;
            const Vector product = load(earlier + apart) * load(earlier);
            sum[n] = t ? sum[n] + product : product;
          }
        }
        for (int n = 0; n < vectors.value; ++n, column += kLanes)
          store(y + column, sum[n] / all(static_cast<float>(steps)), channels - column);
      });
    }
  }

  // f(input, place in the whole, place in the input, floats)
  template <class F>
  void in_stretches(const Instruction& made, const Value& v, F f) const {
    const Value& a = input(made);
    switch (made.operation) {
      case kSequence:
        return in_windows(v,
                          [&](long own, long outside, long count) { f(0, own, outside, count); });
      case kAt:
        return f(0, 0, made.word[0] * rows_ * v.inner, floats(v));
      case kCut:
        return along(a, v, made.word[0] - 1, made.word[1],
                     [&](long whole, long part, long count) { f(0, part, whole, count); });
      case kConcat: {
        long begin = 0;
        for (int k = 0; k < made.inputs; ++k) {
          const Value& part = input(made, k);
          along(v, part, made.word[0] - 1, begin,
                [&](long whole, long own, long count) { f(k, whole, own, count); });
          begin += part.dims[made.word[0] - 1];
        }
        return;
      }
      default:
        return f(0, 0, 0, floats(v));
    }
  }

  // f(place in the value, place where the steps of a window are neighbours, floats)
  template <class F>
  void in_windows(const Value& v, F f) const {
    for (long row = 0; row < rows_; ++row) {
      for (long t = 0; t < v.outer; ++t)
        f((t * rows_ + row) * v.inner, (row * v.outer + t) * v.inner, v.inner);
    }
  }

  // f(place in the whole, place in the part, floats) for a part that begins at `begin` of an axis.
  template <class F>
  void along(const Value& whole, const Value& part, long axis, long begin, F f) const {
    const Axis of_whole(whole, axis);
    const long count = part.dims[axis] * of_whole.after;
    for (long k = 0; k < of_whole.before * rows_; ++k)
      f((k * of_whole.along + begin) * of_whole.after, k * count, count);
  }

  void averaged(const Value& a, const Value& v) const {
    const float count = static_cast<float>(a.outer);
    float* y = at(v);
    memset(y, 0, sizeof(float) * floats(v));
    for (long t = 0; t < a.outer; ++t)
      add(at(a) + t * floats(v), y, floats(v));
    for (long k = 0; k < floats(v); ++k)
      y[k] = y[k] / count;
  }

  void averaged_backward(const Value& a, const Value& v, bool adds) const {
    if (!a.has_gradient) return;
    const float share = 1.0f / static_cast<float>(a.outer), *g = by(v);
    float* to = by(a);
    for (long t = 0; t < a.outer; ++t, to += floats(v)) {
      for (long k = 0; k < floats(v); ++k)
        to[k] = adds ? to[k] + g[k] * share : g[k] * share;
    }
  }

  // to = what stays of `from`, scaled up; or to += that.
  void dropped(const Instruction& made, const Value& a, const float* from, float* to,
               bool adds) const {
    const float keep = made.number(0), scale = 1.0f / keep;
    if (!pass_.recipe || keep == 1.0f) {
      for (long k = 0; k < floats(a); ++k)
        to[k] = adds ? to[k] + from[k] : from[k];
      return;
    }
    for (long o = 0; o < a.outer; ++o) {
      for (long row = 0; row < rows_; ++row) {
        const float* x = from + (o * rows_ + row) * a.inner;
        float* y = to + (o * rows_ + row) * a.inner;
        in_mask(*pass_.recipe, pass_.first_row + row, made.word[1], keep, o * a.inner, a.inner,
                [&](long k, bool stays) {
                  const float found = stays ? x[k] * scale : 0.0f;
                  y[k] = adds ? y[k] + found : found;
                });
      }
    }
  }

  // ------------------------------------------------------------------------------------- loss

  void losses(const Value& last) {
    const Slots& slots = pass_.slots;
    float *loss = pass_.losses, *hits = pass_.hits;
    for (long slot = 0; slot < slots.count; ++slot) {
      loss[slot] = hits[slot] = 0.0f;
      for (long row = slots.first[slot]; row < slots.first[slot + 1]; ++row) {
        const float* logits = at(last) + row * last.inner;
        loss[slot] += loss_of(*pass_.recipe, logits, pass_.labels[row],
                              pass_.weights ? pass_.weights[row] : 1.0f, last.inner,
                              by(last) + row * last.inner);
        long best = 0;
        for (long k = 1; k < last.inner; ++k)
          best = logits[k] > logits[best] ? k : best;
        hits[slot] += best == pass_.labels[row] ? 1.0f : 0.0f;
      }
    }
  }

  Pass& pass_;
  const Program& program_;
  const Numbers& numbers_;
  const long rows_;
  float *kept_, *gradients_, *scratch_, *chains_;
  bool written_[kMostInstructions] = {};
};

void run(Pass& pass) { Run{pass}(); }

void pack_weights(const Program& program, const Numbers& numbers, int k, Packing which,
                  float* packed) {
  const Instruction& made = program.instructions[k];
  const Value &v = program.values[k], &a = program.values[made.inputs ? made.input[0] : 0];
  float *to = packed + made.packed, *back = packed + made.packed_back;
  if (made.operation == kLstm) {
    Lstm layer{};
    layer.features = a.inner, layer.hidden = v.inner;
    layer.kernel = numbers.trained + made.word[0], layer.bias = numbers.trained + made.word[1];
    if (which.forwards) layer.pack_forwards(to);
    if (which.backwards) layer.pack_backwards(a.has_gradient, back);
  } else if (made.operation == kDense || made.operation == kConvolution) {
    const bool is_constant = made.operation == kDense && made.word[3];
    const float* weights = (is_constant ? numbers.constants : numbers.trained) + made.word[0];
    const long taps = made.operation == kConvolution ? made.word[2] : 1;
    const long inner = taps * a.last(), outputs = v.last();
    if (which.forwards) pack(weights, inner, outputs, outputs, 1, to);
    if (which.backwards && a.has_gradient) pack(weights, outputs, inner, 1, outputs, back);
  }
}

}  // namespace

#define NAMED(kind) kind_##kind
#define NAME_OF(kind) NAMED(kind)
#define TEXT(kind) #kind
#define TEXT_OF(kind) TEXT(kind)
extern const Kind NAME_OF(KIND);
extern __attribute__((visibility("hidden")))
const Kind NAME_OF(KIND) = {TEXT_OF(KIND), run, pack_weights, kLanes};
