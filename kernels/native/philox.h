// Random words from counters (Salmon et al. 2011, "Parallel random numbers: as easy as 1, 2, 3").

#pragma once

#include <stdint.h>

namespace {

// Philox4x32-10 of sixteen counters at once: first, first + 1, ...
struct Philox {
  static constexpr int kCounters = 16, kRounds = 10;
  uint32_t word[4][kCounters];

  void draw(const uint32_t seed[2], uint32_t first, uint32_t row, uint32_t site) {
    for (int n = 0; n < kCounters; ++n) {
      word[0][n] = first + static_cast<uint32_t>(n);
      word[1][n] = row;
      word[2][n] = site;
      word[3][n] = 0;
    }
    uint32_t key0 = seed[0], key1 = seed[1];
    for (int round = 0; round < kRounds; ++round) {
      for (int n = 0; n < kCounters; ++n) {
        const uint64_t a = uint64_t{0xD2511F53u} * word[0][n];
        const uint64_t b = uint64_t{0xCD9E8D57u} * word[2][n];
        const uint32_t second = word[1][n], fourth = word[3][n];
        word[0][n] = static_cast<uint32_t>(b >> 32) ^ second ^ key0;
        word[1][n] = static_cast<uint32_t>(b);
        word[2][n] = static_cast<uint32_t>(a >> 32) ^ fourth ^ key1;
        word[3][n] = static_cast<uint32_t>(a);
      }
      key0 += 0x9E3779B9u;
      key1 += 0xBB67AE85u;
    }
  }
};

}  // namespace
