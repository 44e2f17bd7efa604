// Operations element by element, sums in fixed orders, masks from counters, and the loss.

#pragma once

#include "philox.h"
#include "program.h"
#include "vectors.h"

namespace {

INLINE float fma1(float a, float b, float c) { return __builtin_fmaf(a, b, c); }

// f(k, sum) for `count` neighbours: 16 chains, each of every 16th of them, then halves onto halves.
template <class F>
INLINE float folded(long count, F f) {
  float part[kBlock] = {};
  long k = 0;
  for (; k + kBlock <= count; k += kBlock) {
    for (int n = 0; n < kBlock; ++n)
      part[n] = f(k + n, part[n]);
  }
  for (int n = 0; k + n < count; ++n)
    part[n] = f(k + n, part[n]);
  for (int half = kBlock / 2; half > 0; half /= 2) {
    for (int n = 0; n < half; ++n)
      part[n] += part[n + half];
  }
  return part[0];
}

INLINE float sum_of(const float* x, long count) {
  return folded(count, [&](long k, float sum) { return sum + x[k]; });
}

INLINE float dot_of(const float* a, const float* b, long count) {
  return folded(count, [&](long k, float sum) { return fma1(a[k], b[k], sum); });
}

// The sum of squared distances from `mean`.
INLINE float spread_of(const float* x, float mean, long count) {
  return folded(count, [&](long k, float sum) { return fma1(x[k] - mean, x[k] - mean, sum); });
}

// e^x for x of at most 43 to 1.1e-7; what is below -43 counts as that.
INLINE float exp1(float x) {
  x = x < -43.0f ? -43.0f : x;
  const float t = fma1(x, 1.44269504f, kMagic);
  const float r = fma1(t - kMagic, -0.693147182f, x);
  float p = fma1(0.00831252092f, r, 0.0418901596f);
  p = fma1(p, r, 0.166671147f);
  p = fma1(p, r, 0.499992315f);
  p = fma1(p, r, 1.0f);
  p = fma1(p, r, 1.0f);
  return float_of(bits_of(p) + (bits_of(t) << 23));
}

// The natural logarithm of a normal number above 0: 2 atanh(f / (2 + f)) of its fraction 1 + f
// between sqrt(1/2) and sqrt(2), by the first five terms of the series (the sixth is below 1e-9).
INLINE float log1(float x) {
  const int32_t power = static_cast<int32_t>(bits_of(x) - 0x3f3504f3u) >> 23;
  x = float_of(bits_of(x) - (static_cast<uint32_t>(power) << 23));
  const float s = (x - 1.0f) / (x + 1.0f), q = s * s;
  float p = fma1(0.222222222f, q, 0.285714286f);
  p = fma1(p, q, 0.4f);
  p = fma1(p, q, 0.666666667f);
  const float tail = s * q * p;
  const float n = static_cast<float>(power);
  return fma1(n, 0.693147182f, fma1(n, -1.90465421e-9f, fma1(2.0f, s, tail)));
}

// log(1 + x) for x of at least 0 (Kahan's way: the rounding of 1 + x is undone by a quotient).
INLINE float log1p1(float x) {
  const float one_more = 1.0f + x;
  const float rounded = one_more - 1.0f;
  return rounded > 0.0f ? log1(one_more) * (x / rounded) : x;
}

// ------------------------------------------------------------------------------------- dropout

// f(element, whether it stays) for `count` elements of a window's step; element k of a window is
// word k / 16 % 4 of counter k / 64 * 16 + k % 16.
template <class F>
INLINE void in_mask(const Recipe& recipe, long row, int32_t site, float keep, long begin,
                    long count, F f) {
  const uint32_t below = static_cast<uint32_t>(keep * 16777216.0f);
  for (long k = begin; k < begin + count;) {
    Philox drawn;
    drawn.draw(recipe.seed, static_cast<uint32_t>(k / 64 * 16), static_cast<uint32_t>(row),
               static_cast<uint32_t>(site));
    const long end = least(begin + count, k / 64 * 64 + 64);
    for (; k < end; ++k)
      f(k - begin, (drawn.word[k / 16 % 4][k % 16] >> 8) < below);
  }
}

// ---------------------------------------------------------------------------------------- loss

// softmax of `count` logits, into p; returns the logarithm of the sum and the largest in `top`. A
// logit that is no number makes both of p and the logarithm none: `log1` would lose it.
INLINE float softmax(const float* logits, long count, float* p, float* top) {
  float most = logits[0];
  for (long k = 0; k < count; ++k)
    most = logits[k] > most ? logits[k] : most;
  float sum = 0.0f;
  for (long k = 0; k < count; ++k) {
    p[k] = exp1(logits[k] - most);
    sum += p[k];
  }
  for (long k = 0; k < count; ++k)
    p[k] = p[k] / sum;
  *top = most;
  return sum == sum ? log1(sum) : sum;
}

// The loss of one window, and its gradient by the logits: cross-entropy with smoothed labels.
INLINE float loss_of(const Recipe& recipe, const float* logits, int32_t label, float weight,
                     long classes, float* by_logits) {
  float p[kMostWidth], top;
  const float count = static_cast<float>(classes);
  const float off = recipe.smoothing / count, on = (1.0f - recipe.smoothing) + off;
  const float whole = softmax(logits, classes, p, &top);
  float loss = 0.0f;
  for (long k = 0; k < classes; ++k) {
    const float wanted = k == label ? on : off;
    loss = fma1(wanted, whole - (logits[k] - top), loss);
    by_logits[k] = p[k] - wanted;
  }
  const float scale = weight / static_cast<float>(recipe.batch_size);
  for (long k = 0; k < classes; ++k)
    by_logits[k] *= scale;
  return loss * scale;
}

}  // namespace
