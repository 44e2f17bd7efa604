// An LSTM over whole sequences, forwards and backwards in time.
//
//   kept     [step][block][row][i f g o cell][16]   what the gradient needs beside the outputs
//   gates    [block][step][row][gate][16]   the loss by the gates' inputs
//   carry    [block][row][16]   the loss by the cell, on its way to the step before
//
// Gates are i, f, g, o. A chain over all gates runs over blocks, then gates, then units.

#pragma once

#include "products.h"

namespace {

constexpr int kGates = 4, kKept = 5, kRow = kGates * kBlock;

struct Lstm {
  long steps, rows, features, hidden;
  long width;  // of the outputs' rows
  bool backward;
  const float *inputs, *kernel, *bias;
  float *outputs, *kept, *gates, *chains;
  // Packed: weights and biases forwards, those of the state and of the inputs backwards.
  const float *forwards, *of_state, *of_inputs;
  const float* by_outputs;
  float* by_inputs;  // null where nobody wants it
  bool adds;         // to what is in by_inputs
  float* by_kernel;
  float* by_bias;

  long blocks() const { return (hidden + kBlock - 1) / kBlock; }
  long place(long t) const { return (backward ? steps - 1 - t : t) * rows; }
  // Not a power of two: the blocks of a row would share the few lines of a cache that it may be in.
  long apart() const { return (steps * rows + 1) * kRow; }
  float* kept_at(long t, long block, long row) const {
    return kept + ((t * blocks() + block) * rows + row) * kKept * kBlock;
  }

  // [rows][gate][units] to [group][rows][gate][kLanes], a group being a vector of units.
  void pack_gates(const float* from, long count, float* to) const {
    for (long first = 0; first < hidden; first += kLanes) {
      const long units = least(kLanes, hidden - first);
      for (long k = 0; k < count * kGates; ++k) {
        float* into = to + first * count * kGates + k * kLanes;
        for (long unit = 0; unit < kLanes; ++unit)
          into[unit] = unit < units ? from[k * hidden + first + unit] : 0.0f;
      }
    }
  }

  // The state's weights, and the inputs' where `with_inputs`.
  void pack_backwards(bool with_inputs, float* to) const {
    pack_transposed(kernel + features * kGates * hidden, hidden, to);
    if (with_inputs) pack_transposed(kernel, features, to + state_floats());
  }
  long state_floats() const { return kGates * hidden * blocks() * kBlock; }

  // Transposed, [block, gate, unit][tile's rows] for each tile of in_columns(rows), missing ones
  // zero.
  void pack_transposed(const float* from, long count, float* to) const {
    in_columns(count, [&](auto vectors, long column) {
      constexpr long width = decltype(vectors)::value * kLanes;
      for (long c = 0; c < width; ++c) {
        float* into = to + column * kGates * hidden + c;
        for (long block = 0; block < blocks(); ++block) {
          const long end = least(hidden, (block + 1) * kBlock);
          for (long gate = 0; gate < kGates; ++gate) {
            for (long unit = block * kBlock; unit < end; ++unit, into += width)
              *into =
                  column + c < count ? from[((column + c) * kGates + gate) * hidden + unit] : 0.0f;
          }
        }
      }
    });
  }

  void pack_forwards(float* to) const {
    pack_gates(kernel, features + hidden, to);
    pack_gates(bias, 1, to + blocks() * (features + hidden) * kRow);
  }

  void forward() const {
    const long all_rows = features + hidden;
    const float* biases = forwards + blocks() * all_rows * kRow;
    for (long t = 0; t < steps; ++t) {
      for (long unit = 0; unit < hidden; unit += kLanes) {
        const float* b = forwards + unit * all_rows * kGates;
        in_rows<kAccumulators / kGates>(rows, [&](auto size, long row) {
          cells<decltype(size)::value>(t, unit, row, b, biases + unit * kGates);
        });
      }
    }
  }

  // One vector of units of R rows at step t: gates, cells and outputs.
  template <int R>
  INLINE_MEMBER void cells(long t, long unit, long row, const float* b, const float* start) const {
    Tile<R, kGates> z;
    z.each([&](int, int gate, Vector& x) { x = load(start + gate * kLanes); });
    const long at = place(t) + row;
    constexpr long of_gates = kGates * kLanes;
    z.multiply(inputs + at * features, features, b, of_gates, features);
    if (t > 0) {
      const long before = place(t - 1) + row;
      z.multiply(outputs + before * width, width, b + features * of_gates, of_gates, hidden);
    }
    float* now = kept_at(t, unit / kBlock, row) + unit % kBlock;
    const long step_back = blocks() * rows * kKept * kBlock;
    UNROLL for (int r = 0; r < R; ++r, now += kKept * kBlock) {
      Vector cell = t > 0 ? load(now - step_back + 4 * kBlock) : all(0.0f);
      // Two quotients by one division each: 1 / a = b / (a * b).
      const Vector one = all(1.0f);
      const Vector under_i = one + exp_of_minus(z.at[r][0]),
                   under_f = one + exp_of_minus(z.at[r][1]);
      const Fraction tanh_g = tanh_of(z.at[r][2]);
      const Vector under_o = one + exp_of_minus(z.at[r][3]);
      const Vector of_if = one / (under_i * under_f), of_go = one / (tanh_g.under * under_o);
      const Vector i = under_f * of_if, f = under_i * of_if;
      const Vector g = tanh_g.over * (under_o * of_go), o = tanh_g.under * of_go;
      cell = fma(f, cell, i * g);
      const Fraction tanh_c = tanh_of(cell);
      store(now, i);
      store(now + kBlock, f);
      store(now + 2 * kBlock, g);
      store(now + 3 * kBlock, o);
      store(now + 4 * kBlock, cell);
      store(outputs + (at + r) * width + unit, o * (tanh_c.over / tanh_c.under), hidden - unit);
    }
  }

  // += rows of gates times the weights, transposed and packed in tiles of N vectors.
  template <int R, int N>
  INLINE_MEMBER void multiply_gates(Tile<R, N>& sum, const float* a, const float* b) const {
    constexpr long width = N * kLanes;
    long left = hidden;
    for (; left >= kBlock; left -= kBlock, a += apart(), b += kRow * width)
      sum.multiply(a, kRow, b, width, kRow);
    for (int gate = 0; left > 0 && gate < kGates; ++gate, b += left * width)
      sum.multiply(a + gate * kBlock, kRow, b, width, left);
  }

  void backwards(const Slots& slots) const {
    float* carry = gates + blocks() * apart();
    memset(carry, 0, sizeof(float) * blocks() * rows * kBlock);
    for (long t = steps - 1; t >= 0; --t) {
      in_columns(hidden, [&](auto vectors, long unit) {
        constexpr int N = decltype(vectors)::value;
        in_rows<rows_for(N)>(rows, [&](auto size, long row) {
          gates_of<decltype(size)::value, N>(t, unit, row, of_state + unit * kGates * hidden,
                                             carry);
        });
      });
      if (by_inputs) inputs_of(t);
    }
    weights(slots);
  }

  // The loss by the gates of R rows and N vectors of units at step t.
  template <int R, int N>
  INLINE_MEMBER void gates_of(long t, long unit, long row, const float* b, float* carry) const {
    Tile<R, N> by;
    by.each([&](int r, int n, Vector& x) {
      const long at = unit + n * kLanes;
      x = load(by_outputs + (place(t) + row + r) * width + at, hidden - at);
    });
    if (t + 1 < steps) multiply_gates(by, gates + ((t + 1) * rows + row) * kRow, b);
    const long step_back = blocks() * rows * kKept * kBlock;
    UNROLL for (int n = 0; n < N; ++n) {
      const long block = (unit + n * kLanes) / kBlock, lane = (unit + n * kLanes) % kBlock;
      const float* now = kept_at(t, block, row) + lane;
      float* to = gates + block * apart() + (t * rows + row) * kRow + lane;
      float* own = carry + (block * rows + row) * kBlock + lane;
      UNROLL for (int r = 0; r < R; ++r, now += kKept * kBlock, to += kRow, own += kBlock) {
        const Vector one = all(1.0f), by_h = cut(by.at[r][n]);
        const Vector i = load(now), f = load(now + kBlock), g = load(now + 2 * kBlock);
        const Vector o = load(now + 3 * kBlock);
        // tanh(cell), which would be one number in six to keep: a narrow layer waits for memory.
        const float* output = outputs + (place(t) + row + r) * width + unit + n * kLanes;
        const Vector squashed = load(output, hidden - unit - n * kLanes) / o;
        const Vector cell = t > 0 ? load(now - step_back + 4 * kBlock) : all(0.0f);
        const Vector by_o = by_h * squashed, squashed2 = squashed * squashed;
        const Vector by_cell = cut(fma(by_h * o, one - squashed2, load(own)));
        store(own, by_cell * f);
        store(to, by_cell * g * (i * (one - i)));
        store(to + kBlock, by_cell * cell * (f * (one - f)));
        store(to + 2 * kBlock, by_cell * i * (one - g * g));
        store(to + 3 * kBlock, by_o * (o * (one - o)));
      }
    }
  }

  void inputs_of(long t) const {
    in_columns(features, [&](auto vectors, long column) {
      constexpr int N = decltype(vectors)::value;
      in_rows<rows_for(N)>(rows, [&](auto size, long row) {
        constexpr int R = decltype(size)::value;
        Tile<R, N> sum;
        sum.clear();
        multiply_gates(sum, gates + (t * rows + row) * kRow, of_inputs + column * kGates * hidden);
        sum.each([&](int r, int n, Vector x) {
          const long at = column + n * kLanes, left = features - at;
          float* to = by_inputs + (place(t) + row + r) * features + at;
          store(to, adds ? load(to, left) + x : x, left);
        });
      });
    });
  }

  void weights(const Slots& slots) const {
    const long direction = backward ? -rows : rows;
    for (long block = 0; block < blocks(); ++block) {
      const Sheet by_gates{gates + block * apart(), rows * kRow, kRow};
      const Sheet after_first{by_gates.at + rows * kRow, rows * kRow, kRow};
      auto into = [&](float* to) {
        return [=](long place, long row, long column, Vector found) {
          const long unit = block * kBlock + column % kBlock;
          if (unit < hidden)
            store(to + place + (row * kGates + column / kBlock) * hidden + unit, found,
                  hidden - unit);
        };
      };
      weights_gradient(slots, steps, {inputs + place(0) * features, direction * features, features},
                       features, by_gates, kRow, chains, into(by_kernel));
      // The first step's state is zero and adds nothing to the state's weights.
      weights_gradient(slots, steps - 1, {outputs + place(0) * width, direction * width, width},
                       hidden, after_first, kRow, chains,
                       into(by_kernel + features * kGates * hidden));
      weights_gradient(slots, steps, kOnes, 1, by_gates, kRow, chains, into(by_bias));
    }
  }
};

}  // namespace
