// Products of matrices, and gradients by weights that keep the slots of a batch apart.

#pragma once

#include "program.h"
#include "vectors.h"

namespace {

// (rows, columns) to the layout that products read: for each group of `in_columns`, [row][group's
// columns], missing ones zero. `from` may be transposed by its strides.
void pack(const float* from, long rows, long columns, long row_stride, long column_stride,
          float* to) {
  in_columns(columns, [&](auto vectors, long column) {
    constexpr long width = decltype(vectors)::value * kLanes;
    float* into = to + column * rows;
    const long present = least(width, columns - column);
    for (long row = 0; row < rows; ++row, into += width) {
      const float* source = from + row * row_stride + column * column_stride;
      for (long c = 0; c < present; ++c)
        into[c] = source[c * column_stride];
      for (long c = present; c < width; ++c)
        into[c] = 0.0f;
    }
  });
}

constexpr long kRowsAtOnce = 96;  // whose left operand stays in the first cache

// to[row][column] = bias[column] + the sum over k of a[row][k] * b[k][column], k upwards; with
// `relu`, no less than 0; with `adds`, added to what is there. `b` is packed, `bias` may be null.
struct Product {
  const float* a;
  long a_row;
  const float* b;
  const float* bias;
  float* to;
  long to_row;
  bool relu, adds;

  void operator()(long rows, long inner, long columns) const {
    for (long first = 0; first < rows; first += kRowsAtOnce) {
      const long count = least(kRowsAtOnce, rows - first);
      in_columns(columns, [&](auto vectors, long column) {
        constexpr int N = decltype(vectors)::value;
        in_rows<rows_for(N)>(count, [&](auto size, long row) {
          tile<decltype(size)::value, N>(first + row, inner, column, columns);
        });
      });
    }
  }

 private:
  template <int R, int N>
  INLINE_MEMBER void tile(long row, long inner, long column, long columns) const {
    Tile<R, N> sum;
    sum.each([&](int, int n, Vector& x) {
      const long at = column + n * kLanes;
      x = bias ? load(bias + at, columns - at) : all(0.0f);
    });
    sum.multiply(a + row * a_row, a_row, b + column * inner, N * kLanes, inner);
    sum.each([&](int r, int n, Vector& x) {
      const long at = column + n * kLanes, left = columns - at;
      float* into = to + (row + r) * to_row + at;
      if (relu) x = x > all(0.0f) ? x : all(0.0f);
      store(into, adds ? load(into, left) + x : x, left);
    });
  }
};

// One operand of a gradient by weights: element (outer, row, column) of it.
struct Sheet {
  const float* at;
  long outer, row;
};
constexpr float kOne[kBlock] = {1.0f};  // and what a vector reads behind it
constexpr Sheet kOnes{kOne, 0, 0};

// f(slot's sum in the tree): `leaf(slot)` makes a tile for each slot, and the sums of pairs of
// neighbours follow, again and again. What is on the stack is a subtree that waits for its right
// neighbour.
template <int R, int N, class Leaf>
INLINE Tile<R, N> tree_of(long slots, Leaf leaf) {
  Tile<R, N> stack[kMostLevels], sum;
  sum.clear();
  for (long slot = 0; slot < slots; ++slot) {
    sum = leaf(slot);
    int level = 0;
    for (; slot >> level & 1; ++level)
      sum.each([&](int r, int n, Vector& x) { x = stack[level].at[r][n] + x; });
    if (slot + 1 < slots) stack[level] = sum;
  }
  return sum;
}

// What a chunk's rows take of the first cache, of which the smallest have 32 KB. A row has a line
// of the left operand.
constexpr long kChunkBytes = 24 << 10, kLineBytes = 64;

// chains[slot][k][column] = the sum of a[o][row][k] * g[o][row][column] over a slot's rows: o from
// the last one down, the rows upwards; so many `vectors` of columns. Rows come in chunks that stay
// in the first cache while all k pass over them; between chunks a chain waits in the memory.
template <int N>
void chains_of(const Slots& slots, long outer, Sheet a, long inner, Sheet g, float* chains) {
  constexpr long width = N * kLanes, most = kChunkBytes / (kLineBytes + 4 * width);
  for (long slot = 0; slot < slots.count; ++slot, chains += inner * width) {
    const long first = slots.first[slot], rows = slots.first[slot + 1] - first;
    const long chunk = rows < most ? most / (rows > 0 ? rows : 1) : 1;
    long end = outer;
    do {
      const long begin = end > chunk ? end - chunk : 0;
      in_rows<rows_for(N)>(inner, [&](auto size, long k) {
        Tile<decltype(size)::value, N> chain;
        float* waiting = chains + k * width;
        if (end == outer)
          chain.clear();
        else
          chain.load_from(waiting);
        for (long o = end - 1; o >= begin; --o) {
          chain.multiply_neighbours(a.at + o * a.outer + first * a.row + k, a.row,
                                    g.at + o * g.outer + first * g.row, g.row, rows);
        }
        chain.store_to(waiting);
      });
      end = begin;
    } while (end > 0);
  }
}

// put(place, k, column, sum) for the chains above, `chains` being their memory, kChains floats for
// each slot. Place 0 has their sum in the tree, or place `apart` * slot each one's own.
template <class Put>
void weights_gradient(const Slots& slots, long outer, Sheet a, long inner, Sheet g, long columns,
                      float* chains, Put put) {
  for (long begin = 0; begin < inner; begin += kInnerAtOnce) {
    const long count = least(kInnerAtOnce, inner - begin);
    in_columns(columns, [&](auto vectors, long column) {
      constexpr int N = decltype(vectors)::value;
      chains_of<N>(slots, outer, {a.at + begin, a.outer, a.row}, count,
                   {g.at + column, g.outer, g.row}, chains);
      in_rows<rows_for(N)>(count, [&](auto size, long k) {
        constexpr int R = decltype(size)::value;
        auto leaf = [&](long slot) {
          Tile<R, N> chain;
          chain.load_from(chains + (slot * count + k) * N * kLanes);
          return chain;
        };
        auto put_all = [&](long place, Tile<R, N> sum) {
          sum.each(
              [&](int r, int n, Vector x) { put(place, begin + k + r, column + n * kLanes, x); });
        };
        if (slots.apart) {
          for (long slot = 0; slot < slots.count; ++slot)
            put_all(slot * slots.apart, leaf(slot));
        } else {
          put_all(0, tree_of<R, N>(slots.count, leaf));
        }
      });
    });
  }
}

}  // namespace
