// What is called without TensorFlow: the library's properties, and the calls that tests record.

#include <stdlib.h>

#include "library.h"

namespace {

template <class T>
bool read(FILE* from, T* to, size_t count) {
  return fread(to, sizeof(T), count, from) == count;
}

// An array in memory of its own, so that a sanitizer sees what lies behind it.
template <class T>
bool read_array(FILE* from, const T** to, long* size) {
  int64_t count;
  if (!read(from, &count, 1)) return false;
  T* made = static_cast<T*>(malloc(sizeof(T) * count));
  *to = made;
  *size = count;
  return made && read(from, made, count);
}

constexpr char kElsewhere[] = "this kind does not run here";

}  // namespace

Recorded::Recorded(FILE* from) : Batch{} {
  int64_t word[9];
  float smoothing;
  long floats = 0, weights = 0;
  whole = read(from, word, 9) && read(from, &smoothing, 1) &&
          read_array(from, &words, &words_size) &&
          read_array(from, &numbers.constants, &numbers.constants_size) &&
          read_array(from, &numbers.trained, &numbers.trained_size) &&
          read_array(from, &numbers.statistics, &numbers.statistics_size) &&
          read_array(from, &labels, &rows) && read_array(from, &windows, &floats) &&
          read_array(from, &this->weights, &weights);
  if (!whole) return;
  slots = word[0], first_slot = word[1], slot_count = word[2], classes = word[3];
  apart = word[4] != 0;
  recipe = {word[5],
            word[6],
            smoothing,
            {static_cast<uint32_t>(word[7]), static_cast<uint32_t>(word[8])}};
  window_floats = rows ? floats / rows : 0;
  has_weights = weights > 0;
  const long nodes = apart ? slot_count : nodes_of(first_slot, slot_count);
  results =
      nodes * (numbers.trained_size + numbers.statistics_size) + 2 * slot_count + rows * classes;
}

Recorded::~Recorded() {
  const void* arrays[] = {words,  numbers.constants, numbers.trained, numbers.statistics,
                          labels, windows,           weights};
  for (const void* array : arrays)
    free(const_cast<void*>(array));
}

const char* Recorded::compute(const Kind& kind, float* to) const {
  float* logits = to + results - rows * classes;
  float *hits = logits - slot_count, *losses = hits - slot_count;
  const char* why = gradient_of(*this, kind, to, losses, hits);
  return why ? why : logits_of(*this, kind, logits);
}

EXPORTED void pscluster_give_back() {
  give_back();
  forget();
}
EXPORTED int32_t pscluster_version() { return kVersion; }
EXPORTED const char* pscluster_kind() { return kind_named(nullptr)->name; }
EXPORTED const char* pscluster_proof(const char* kind, int32_t* words) {
  const Kind* found = kind_named(kind);
  return found ? proof_of(*found, words) : kElsewhere;
}
EXPORTED const char* pscluster_call(void* record, long size, const char* kind, long threads,
                                    float* results) {
  const Kind* found = kind_named(kind);
  if (!found) return kElsewhere;
  FILE* from = fmemopen(record, size, "rb");
  if (!from) return "out of memory";
  Recorded call(from);
  fclose(from);
  call.threads = threads;
  return call.whole ? call.compute(*found, results) : "the record is cut off";
}
