// Computes the calls that a file records by one kind of processor: `check CALLS KIND THREADS`. For
// bits under an emulator and for sanitizers. It writes a proof, then each call's results or
// refusal.

#include <stdlib.h>

#include "library.h"

int main(int count, char** words) {
  const Kind* kind = count == 4 ? kind_named(words[2]) : nullptr;
  FILE* calls = kind ? fopen(words[1], "rb") : nullptr;
  if (!calls) return 2;
  int32_t proof[4] = {};
  if (proof_of(*kind, proof)) return 4;
  fwrite(proof, sizeof proof, 1, stdout);
  for (;;) {
    Recorded call(calls);
    if (!call.whole) break;
    call.threads = atol(words[3]);
    float* results = static_cast<float*>(malloc(sizeof(float) * call.results));
    if (const char* why = call.compute(*kind, results))
      printf("refused: %s\n", why);
    else
      fwrite(results, sizeof(float), call.results, stdout);
    free(results);
  }
  fclose(calls);
  return 0;
}
