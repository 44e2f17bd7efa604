// Augmentation of training windows: sensors are turned and time is stretched, from counters.
//
// Um et al. 2017 (arXiv 1706.00527). All draws follow from the seed, the window's row in its batch
// and the draw's number. One compilation serves every processor: nothing is fused.

#include "library.h"
#include "philox.h"

namespace {

// sin(2 pi x): x is reduced to a quarter turn, whose Taylor polynomial of degree 11 is good to
// 6e-8.
float sine(float turns) {
  float x = turns - __builtin_floorf(turns + 0.5f);  // within +-1/2
  if (x > 0.25f) x = 0.5f - x;
  if (x < -0.25f) x = -0.5f - x;
  const float a = x * 6.28318531f, s = a * a;
  float p = -2.50521084e-8f * s + 2.75573192e-6f;
  p = p * s - 1.98412698e-4f;
  p = p * s + 8.33333333e-3f;
  p = p * s - 0.166666667f;
  return a + a * (s * p);
}

float cosine(float turns) { return sine(turns + 0.25f); }

constexpr uint32_t kSite = 0xA06;  // dropout sites count from 0

float unit(uint32_t word) { return static_cast<float>(word >> 8) * 5.96046448e-8f; }  // [0, 1)

// Twelve uniforms less six (Irwin-Hall): mean 0, variance 1, and no logarithm.
float normal(const uint32_t seed[2], uint32_t row, uint32_t which) {
  float total = 0.0f;
  for (uint32_t k = 0; k < 3; ++k) {
    Philox drawn;
    drawn.draw(seed, 16 + which * 3 + k, row, kSite);
    for (const auto& word : drawn.word)
      total += unit(word[0]);
  }
  return total - 6.0f;
}

void turn(const Augment& a, uint32_t row, float spread, float* window) {
  float axis[3], length = 1e-12f;
  for (uint32_t k = 0; k < 3; ++k) {
    axis[k] = normal(a.seed, row, k);
    length += axis[k] * axis[k];
  }
  length = __builtin_sqrtf(length);
  const float x = axis[0] / length, y = axis[1] / length, z = axis[2] / length;
  const float turns = spread * (a.rotation_degrees / 360.0f);
  const float s = sine(turns), c = cosine(turns), rest = 1.0f - c;
  const float matrix[3][3] = {// Rodrigues' formula
                              {c + rest * x * x, rest * x * y - s * z, rest * x * z + s * y},
                              {rest * y * x + s * z, c + rest * y * y, rest * y * z - s * x},
                              {rest * z * x - s * y, rest * z * y + s * x, c + rest * z * z}};
  for (long t = 0; t < a.steps; ++t) {
    for (long first = 0; first < a.channels; first += 3) {
      float* at = window + t * a.channels + first;
      float raw[3];
      for (int k = 0; k < 3; ++k)
        raw[k] = at[k] * a.deviation[first + k] + a.mean[first + k];
      for (int k = 0; k < 3; ++k) {
        const float turned = matrix[k][0] * raw[0] + matrix[k][1] * raw[1] + matrix[k][2] * raw[2];
        at[k] = (turned - a.mean[first + k]) / a.deviation[first + k];
      }
    }
  }
}

// Reads a window at times that run up to `time_warp` faster and slower; its ends stay.
void warp(const Augment& a, float stretch, float phase, const float* from, float* to) {
  const float last = static_cast<float>(a.steps - 1), start = sine(phase);
  for (long t = 0; t < a.steps; ++t, to += a.channels) {
    const float time = static_cast<float>(t);
    float place = time + stretch * (last / 6.28318531f) * (sine(time / last + phase) - start);
    place = place < 0.0f ? 0.0f : place > last ? last : place;
    long before = static_cast<long>(place);
    if (before > a.steps - 2) before = a.steps - 2;
    const float share = place - static_cast<float>(before);
    const float* left = from + before * a.channels;
    for (long c = 0; c < a.channels; ++c)
      to[c] = left[c] * (1.0f - share) + left[a.channels + c] * share;
  }
}

}  // namespace

void augmented(const Augment& a, const float* windows, long rows, float* to, float* scratch) {
  const long floats = a.steps * a.channels;
  for (long k = 0; k < rows; ++k, windows += floats, to += floats) {
    const uint32_t row = static_cast<uint32_t>(a.first_row + k);
    Philox drawn;
    drawn.draw(a.seed, 0, row, kSite);
    float* turned = a.time_warp != 0.0f ? scratch : to;
    for (long n = 0; n < floats; ++n)
      turned[n] = windows[n];
    if (a.rotation_degrees != 0.0f) turn(a, row, unit(drawn.word[0][0]) * 2.0f - 1.0f, turned);
    if (a.time_warp == 0.0f) continue;
    const float stretch = (unit(drawn.word[1][0]) * 2.0f - 1.0f) * a.time_warp;
    warp(a, stretch, (unit(drawn.word[2][0]) * 2.0f - 1.0f) * 0.5f, turned, to);
  }
}
