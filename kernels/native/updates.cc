// What a parameter server computes: sums of squares, updates, and nodes that round as on the wire.
//
// Nothing here needs a fused multiply-add, so one compilation serves every processor: additions,
// products, quotients and roots of IEEE, each rounded once (-ffp-contract=off).

#include "library.h"

namespace {

// A power by squaring, in float64: no library's `pow`.
double power(double base, int64_t exponent) {
  double found = 1.0;
  for (; exponent > 0; exponent >>= 1, base *= base) {
    if (exponent & 1) found *= base;
  }
  return found;
}

constexpr uint32_t kInfinity = 0x7f800000;

// The nearest half (IEEE 754 binary16), ties to even, of what is below 2^16 - 16.
float half_of(float x) {
  const uint32_t bits = bits_of(x), sign = bits & 0x80000000u, size = bits & 0x7fffffffu;
  if (size >= kInfinity) return x;
  if (size < 0x38800000u)  // below 2^-14: a multiple of 2^-24
    return float_of(bits_of((float_of(size) + 0.5f) - 0.5f) | sign);
  return float_of(((size + 0xfffu + (size >> 13 & 1)) & ~0x1fffu) | sign);
}

}  // namespace

void squares_of(const float* x, long count, float* sums) {
  for (long begin = 0; begin < count; begin += kParameterBlock, ++sums) {
    const long size = least(kParameterBlock, count - begin);
    float part[16] = {};
    for (long k = 0; k < size; ++k)
      part[k % 16] += x[begin + k] * x[begin + k];
    for (int half = 8; half > 0; half /= 2) {
      for (int n = 0; n < half; ++n)
        part[n] += part[n + half];
    }
    *sums = part[0];
  }
}

void rounded(float* x, long count) {
  for (long begin = 0; begin < count; begin += kParameterBlock) {
    const long size = least(kParameterBlock, count - begin);
    uint32_t largest = 0;
    for (long k = 0; k < size; ++k) {
      const uint32_t magnitude = bits_of(x[begin + k]) & 0x7fffffffu;
      if (magnitude < kInfinity && magnitude > largest) largest = magnitude;
    }
    // The unit brings the largest magnitude into [2^14, 2^15), and is at least 2^-101.
    const uint32_t top = largest >> 23, lowest = 127 - 101;
    const uint32_t exponent = top < lowest + 14 ? lowest : top - 14;
    const float unit = float_of(exponent << 23);
    for (long k = 0; k < size; ++k)
      x[begin + k] = half_of(x[begin + k] / unit) * unit + 0.0f;
  }
}

namespace {

// Leaves of the left one of the two subtrees that a tree has: the largest power of two that leaves
// some for the right one.
long left_of(long leaves) {
  long left = 1;
  while (2 * left < leaves)
    left *= 2;
  return left;
}

float tree_sum(const float* x, long count) {
  if (count == 1) return *x;
  const long left = left_of(count);
  return tree_sum(x, left) + tree_sum(x + left, count - left);
}

// A block of all leaves, which halves share a unit over: the tree needs no copies of whole leaves.
struct BlockOfLeaves {
  const float* const* leaves;
  long begin, size, trained;  // the first elements, which are rounded
  bool halves;

  void settle(float* x) const {
    if (halves) rounded(x, trained);
    for (long k = 0; k < size; ++k)
      x[k] = x[k] + 0.0f;  // no negative zeros
  }
  void sum(long first, long count, float* to) const {
    if (count == 1) {
      for (long k = 0; k < size; ++k)
        to[k] = leaves[first] ? leaves[first][begin + k] : 0.0f;
      return settle(to);
    }
    float other[kParameterBlock];
    const long left = left_of(count);
    sum(first, left, to);
    sum(first + left, count - left, other);
    for (long k = 0; k < size; ++k)
      to[k] = to[k] + other[k];
    settle(to);
  }
};

}  // namespace

float norm_of(const float* squares, long count) {
  return count > 0 ? __builtin_sqrtf(tree_sum(squares, count)) : 0.0f;
}

void node_of(const float* const* leaves, long count, long trained, long width, bool halves,
             float* node) {
  for (long begin = 0; begin < width; begin += kParameterBlock) {
    const long size = least(kParameterBlock, width - begin);
    const long rounds = begin < trained ? least(size, trained - begin) : 0;
    BlockOfLeaves{leaves, begin, size, rounds, halves}.sum(0, count, node + begin);
  }
}

bool updated(const Update& u, float* x, float* slots) {
  const float *g = u.gradient, *n = u.numbers;
  const float rate = u.rate;
  const long count = u.size;
  float *first = slots, *second = slots + count;
  switch (u.optimizer) {
    case kSgd: {
      const float momentum = n[0];
      for (long k = 0; k < count; ++k) {
        const float step = rate * g[k];
        if (u.slots == 0) {
          x[k] = x[k] - step;
          continue;
        }
        first[k] = momentum * first[k] - step;
        x[k] = x[k] + (n[1] != 0.0f ? momentum * first[k] - step : first[k]);
      }
      return u.slots <= 1;
    }
    case kAdam: {
      const float keep = 1.0f - n[0], keep_square = 1.0f - n[1];
      const double of_first = 1.0 - power(n[0], u.count + 1),
                   of_second = 1.0 - power(n[1], u.count + 1);
      const float corrected = static_cast<float>(rate * __builtin_sqrt(of_second) / of_first);
      for (long k = 0; k < count; ++k) {
        first[k] = first[k] + (g[k] - first[k]) * keep;
        second[k] = second[k] + (g[k] * g[k] - second[k]) * keep_square;
        x[k] = x[k] - first[k] * corrected / (__builtin_sqrtf(second[k]) + n[2]);
      }
      return u.slots == 2;
    }
    case kAdagrad:
      for (long k = 0; k < count; ++k) {
        first[k] = first[k] + g[k] * g[k];
        x[k] = x[k] - rate * g[k] / __builtin_sqrtf(first[k] + n[0]);
      }
      return u.slots == 1;
    case kRmsprop: {
      const float rho = n[0], momentum = n[1], rest = 1.0f - n[0];
      for (long k = 0; k < count; ++k) {
        first[k] = rho * first[k] + rest * (g[k] * g[k]);
        float change = rate * g[k] / __builtin_sqrtf(first[k] + n[2]);
        if (u.slots == 2) change = second[k] = momentum * second[k] + change;
        x[k] = x[k] - change;
      }
      return u.slots == 1 || u.slots == 2;
    }
    case kLion: {
      const float rest = 1.0f - n[0], rest_of_momentum = 1.0f - n[1];
      for (long k = 0; k < count; ++k) {
        const float direction = first[k] * n[0] + g[k] * rest;
        first[k] = first[k] * n[1] + g[k] * rest_of_momentum;
        const float sign = direction > 0.0f ? 1.0f : direction < 0.0f ? -1.0f : 0.0f;
        x[k] = x[k] - rate * sign;
      }
      return u.slots == 1;
    }
    default:
      return false;
  }
}
