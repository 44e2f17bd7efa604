// Vectors of one kind of processor, elementary functions, and the tiles of products.
//
// Every number is made by one chain of IEEE operations that follows from shapes alone. Vectors lie
// across columns and tiles across rows and columns, never along a chain; a tile's size is free.

#pragma once

#include <string.h>

#include "program.h"

#define INLINE static inline __attribute__((always_inline))
#define INLINE_MEMBER inline __attribute__((always_inline))
#ifdef __clang__
#define UNROLL _Pragma("clang loop unroll(full)")
#else
#define UNROLL _Pragma("GCC unroll 16")
#endif

namespace {

// Floats of a vector, and how many vectors a product may keep in registers.
#if defined(SCALAR)
constexpr int kLanes = 1, kAccumulators = 8;
#elif defined(__AVX512F__)
constexpr int kLanes = 16, kAccumulators = 24;
#elif defined(__AVX2__)
constexpr int kLanes = 8, kAccumulators = 12;
#elif defined(__ARM_NEON)
constexpr int kLanes = 4, kAccumulators = 24;
#define BY_LANE  // its multiplications take any lane of a factor
#else
#error "this kind of processor has no vectors here: compile it with -DSCALAR"
#endif

constexpr int kBlock = 16;  // the widest vector of all kinds: layouts are padded to it

typedef float Vector __attribute__((vector_size(4 * kLanes)));
typedef int32_t Integers __attribute__((vector_size(4 * kLanes)));

INLINE Vector all(float x) {
  Vector v;
  UNROLL for (int k = 0; k < kLanes; ++k) v[k] = x;
  return v;
}

INLINE Vector load(const float* from) {
  Vector v;
  memcpy(&v, from, sizeof v);
  return v;
}

INLINE void store(float* to, Vector v) { memcpy(to, &v, sizeof v); }

#ifdef BY_LANE
// Element k of `v` in all lanes. It is no instruction: a multiplication reads it where it is.
INLINE Vector lane(Vector v, int k) {
  switch (k) {
    case 0:
      return __builtin_shufflevector(v, v, 0, 0, 0, 0);
    case 1:
      return __builtin_shufflevector(v, v, 1, 1, 1, 1);
    case 2:
      return __builtin_shufflevector(v, v, 2, 2, 2, 2);
    default:
      return __builtin_shufflevector(v, v, 3, 3, 3, 3);
  }
}
#endif

// The first `count` floats, where a vector has more.
INLINE Vector load(const float* from, long count) {
  if (count >= kLanes) return load(from);
  Vector v = {};
  memcpy(&v, from, sizeof(float) * count);
  return v;
}

INLINE void store(float* to, Vector v, long count) {
  if (count >= kLanes)
    store(to, v);
  else
    memcpy(to, &v, sizeof(float) * count);
}

// a * b + c, rounded once.
INLINE Vector fma(Vector a, Vector b, Vector c) {
#if defined(__clang__)
  return __builtin_elementwise_fma(a, b, c);
#else
  UNROLL for (int k = 0; k < kLanes; ++k) c[k] = __builtin_fmaf(a[k], b[k], c[k]);
  return c;
#endif
}

// Within +-bound; a NaN stays one.
INLINE Vector held(Vector x, float bound) {
  x = all(bound) < x ? all(bound) : x;
  return all(-bound) > x ? all(-bound) : x;
}

// Zero in the place of what is closer to it than 2^-80: a vanished gradient ends before it becomes
// denormal.
INLINE Vector cut(Vector v) {
  Vector size = (Vector)((Integers)v & 0x7fffffff);
  return (Vector)((Integers)v & ~(Integers)(size < all(8.27180613e-25f)));
}

// ------------------------------------------------------------------------ elementary functions

constexpr float kMagic =
    12582912.0f;  // 1.5 * 2^23: adding it rounds to an integer, in the low bits

// p * 2^n, where t is kMagic + n.
INLINE Vector scaled(Vector p, Vector t) { return (Vector)((Integers)p + ((Integers)t << 23)); }

// e^-z to 1.1e-7, z held within +-43, so that the product of two of them is finite.
INLINE Vector exp_of_minus(Vector z) {
  z = held(z, 43.0f);
  Vector t = fma(z, all(-1.44269504f), all(kMagic));
  Vector r = fma(t - all(kMagic), all(0.693147182f), z);  // within +-ln(2)/2
  Vector p = fma(all(-0.00831252092f), r, all(0.0418901596f));
  p = fma(p, r, all(-0.166671147f));
  p = fma(p, r, all(0.499992315f));
  p = fma(p, r, all(-1.0f));
  return scaled(fma(p, r, all(1.0f)), t);
}

// tanh(x) = over / under to 2.1e-8, all coefficients positive; +-1 from 9 on.
struct Fraction {
  Vector over, under;
};
INLINE Fraction tanh_of(Vector x) {
  x = held(x, 9.0f);
  Vector s = x * x;
  Vector over = fma(all(1.33187905e-8f), s, all(2.05832736e-5f));
  Vector under = fma(all(7.76190265e-7f), s, all(3.28307213e-4f));
  over = fma(over, s, all(3.49402191e-3f));
  under = fma(under, s, all(2.58710252e-2f));
  over = fma(over, s, all(0.133797073f));
  under = fma(under, s, all(0.467130226f));
  return {fma(over, s, all(1.0f)) * x, fma(under, s, all(1.0f))};
}

// --------------------------------------------------------------------------------------- tiles

template <int n>
struct Number {
  static constexpr int value = n;
};

// f(Number<size>), for a size from 1 to n.
template <int n, class F>
INLINE void with(long size, F f) {
  if (size == n) return f(Number<n>{});
  if constexpr (n > 1) with<n - 1>(size, f);
}

// f(Number<rows>, first row) for tiles of about equal size, at most `most` rows each.
template <int most, class F>
INLINE void in_rows(long rows, F f) {
  long tiles = (rows + most - 1) / most;
  for (long k = 0, row = 0; k < tiles; ++k) {
    long next = rows * (k + 1) / tiles;
    with<most>(next - row, [&](auto size) { f(size, row); });
    row = next;
  }
}

// f(Number<vectors>, first column) for tiles of four, two or one vectors.
template <class F>
INLINE void in_columns(long columns, F f) {
  for (long column = 0; column < columns;) {
    long vectors = (columns - column + kLanes - 1) / kLanes;
    if (vectors >= 4) {
      f(Number<4>{}, column);
      column += 4 * kLanes;
    } else if (vectors >= 2) {
      f(Number<2>{}, column);
      column += 2 * kLanes;
    } else {
      f(Number<1>{}, column);
      column += kLanes;
    }
  }
}

// Rows of a tile that is `vectors` wide.
constexpr int rows_for(int vectors) {
  int rows = kAccumulators / vectors;
  return rows > 8 ? 8 : rows;
}

template <int R, int N>
struct Tile {
  Vector at[R][N];

  // f(row, vector's number, vector)
  template <class F>
  INLINE_MEMBER void each(F f) {
    UNROLL for (int r = 0; r < R; ++r) { UNROLL for (int n = 0; n < N; ++n) f(r, n, at[r][n]); }
  }
  INLINE_MEMBER void clear() {
    each([](int, int, Vector& x) { x = all(0.0f); });
  }
  void load_from(const float* rows) {
    each([&](int r, int n, Vector& x) { x = load(rows + (r * N + n) * kLanes); });
  }
  void store_to(float* rows) {
    each([&](int r, int n, Vector& x) { store(rows + (r * N + n) * kLanes, x); });
  }

  // += the sum over k, upwards, of a[r * row + k] * b[k * next + n * kLanes].
  INLINE_MEMBER void multiply(const float* a, long row, const float* b, long next, long count) {
#ifdef BY_LANE
    for (; count >= kLanes; count -= kLanes, a += kLanes) {
      Vector values[R];
      UNROLL for (int r = 0; r < R; ++r) values[r] = load(a + r * row);
      UNROLL for (int k = 0; k < kLanes; ++k, b += next)
          turn<true>(b, [&](int r) { return lane(values[r], k); });
    }
#endif
    for (; count > 0; --count, ++a, b += next)
      turn<(R < N)>(b, [&](int r) { return all(a[r * row]); });
  }

  // += the sum over k, upwards, of a[k * step + r] * b[k * next + n * kLanes]. It may read a vector
  // from every fourth of the R neighbours on.
  INLINE_MEMBER void multiply_neighbours(const float* a, long step, const float* b, long next,
                                         long count) {
    for (; count > 0; --count, a += step, b += next) {
#ifdef BY_LANE
      Vector values[(R + kLanes - 1) / kLanes];
      UNROLL for (int r = 0; r < R; r += kLanes) values[r / kLanes] = load(a + r);
      turn<(R < N)>(b, [&](int r) { return lane(values[r / kLanes], r % kLanes); });
#else
      turn<(R < N)>(b, [&](int r) { return all(a[r]); });
#endif
    }
  }

 private:
  // += value(r) * b[n * kLanes]; the values or the columns stay in registers.
  template <bool values_stay, class Value>
  INLINE_MEMBER void turn(const float* b, Value value) {
    if constexpr (values_stay) {
      Vector left[R];
      UNROLL for (int r = 0; r < R; ++r) left[r] = value(r);
      UNROLL for (int n = 0; n < N; ++n) {
        Vector column = load(b + n * kLanes);
        UNROLL for (int r = 0; r < R; ++r) at[r][n] = fma(left[r], column, at[r][n]);
      }
    } else {
      Vector column[N];
      UNROLL for (int n = 0; n < N; ++n) column[n] = load(b + n * kLanes);
      UNROLL for (int r = 0; r < R; ++r) {
        const Vector left = value(r);
        UNROLL for (int n = 0; n < N; ++n) at[r][n] = fma(left, column[n], at[r][n]);
      }
    }
  }
};

INLINE long padded(long count) { return (count + kBlock - 1) / kBlock * kBlock; }

}  // namespace
