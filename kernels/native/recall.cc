// Results that follow from a window alone: a call for windows that it has had before copies them.

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "library.h"

namespace {

// Of the results and of where each row's are: a worker has this beside its passes on a board of
// 1 GB. Rows for which no place is left are computed each time.
constexpr long kMostBytes = 1L << 25;

struct Piece {
  const void* at;
  size_t bytes;
};

// All that results follow from beside the row; the sizes come first.
struct Key {
  long sizes[6];
  Piece pieces[5];
  Key(const Batch& batch, const Origin& origin)
      : sizes{batch.words_size,
              batch.numbers.constants_size,
              batch.numbers.statistics_size,
              origin.source_size,
              origin.total,
              batch.classes},
        pieces{{sizes, sizeof sizes},
               {batch.words, sizeof(int32_t) * batch.words_size},
               {batch.numbers.constants, sizeof(float) * batch.numbers.constants_size},
               {batch.numbers.statistics, sizeof(float) * batch.numbers.statistics_size},
               {origin.source, sizeof(int32_t) * origin.source_size}} {}
  Key(const Key&) = delete;
};

// The results of one key, the latest. Their memory is mapped: the C library's heaps do not give
// back what is freed, and pages without a result cost nothing.
class Table {
 public:
  // Copies the results that there are to their places of the call; writes down the other places,
  // and returns how many these are.
  long read(const Key& key, const Batch& batch, const Origin& origin, float* results,
            int32_t* absent, long* turn) {
    pthread_mutex_lock(&lock_);
    if (!is_of(key)) begin(key, origin.total, batch.classes);
    *turn = turn_;
    long count = 0;
    for (long k = 0; k < batch.rows; ++k) {
      const int32_t place = places_ ? places_[origin.rows[k]] : 0;
      if (place)
        memcpy(results + k * floats_, result(place), sizeof(float) * floats_);
      else
        absent[count++] = static_cast<int32_t>(k);
    }
    pthread_mutex_unlock(&lock_);
    return count;
  }

  // Adds results of the rows at `absent`, unless the table began again after their `turn`.
  void write(long turn, const int32_t* rows, const int32_t* absent, long count,
             const float* results) {
    pthread_mutex_lock(&lock_);
    for (long k = 0; turn == turn_ && k < count && used_ < most_; ++k) {
      int32_t& place = places_[rows[absent[k]]];
      if (place) continue;  // another call's, or the same row twice
      place = static_cast<int32_t>(++used_);
      memcpy(result(place), results + k * floats_, sizeof(float) * floats_);
    }
    pthread_mutex_unlock(&lock_);
  }

  void forget() {
    pthread_mutex_lock(&lock_);
    clear();
    pthread_mutex_unlock(&lock_);
  }

 private:
  bool is_of(const Key& key) const {
    const char* own = key_;
    for (const Piece& piece : key.pieces) {
      // Equal sizes, which come first, make the rest as long as this key's.
      if (!own || memcmp(own, piece.at, piece.bytes)) return false;
      own += piece.bytes;
    }
    return true;
  }

  void begin(const Key& key, long total, long floats) {
    clear();
    size_t bytes = 0;
    for (const Piece& piece : key.pieces)
      bytes += piece.bytes;
    char* to = key_ = static_cast<char*>(malloc(bytes));
    if (!key_) return;
    for (const Piece& piece : key.pieces) {
      memcpy(to, piece.at, piece.bytes);
      to += piece.bytes;
    }
    const long left = kMostBytes / sizeof(float) - total;
    floats_ = floats;
    most_ = left > 0 ? least(total, left / floats) : 0;
    size_ = sizeof(float) * (total + most_ * floats);
    if (!most_) return;
    void* place = mmap(nullptr, size_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (place == MAP_FAILED) {
      most_ = 0;
      return;
    }
    places_ = static_cast<int32_t*>(place);
    results_ = static_cast<float*>(place) + total;
  }

  void clear() {
    ++turn_;
    free(key_);
    key_ = nullptr;
    if (places_) munmap(places_, size_);
    places_ = nullptr;
    most_ = used_ = 0;
  }

  float* result(int32_t place) const { return results_ + (place - 1) * floats_; }

  pthread_mutex_t lock_ = PTHREAD_MUTEX_INITIALIZER;
  char* key_ = nullptr;
  int32_t* places_ = nullptr;  // of each row: its result's number from 1 on, 0 without one
  float* results_ = nullptr;
  long floats_ = 0, most_ = 0, used_ = 0, turn_ = 0;
  size_t size_ = 0;
};
Table table;

}  // namespace

void forget() { table.forget(); }

const char* recalled_of(Batch batch, const Kind& kind, const Origin& origin, float* results) {
  for (long k = 0; k < batch.rows; ++k)
    if (origin.rows[k] < 0 || origin.rows[k] >= origin.total) return "rows: there is no such row";
  batch.numbers.trained_size = 0;
  const Key key(batch, origin);
  int32_t* absent = static_cast<int32_t*>(malloc(sizeof(int32_t) * (batch.rows + 1)));
  if (!absent) return "out of memory";
  long turn = 0;
  const long count = table.read(key, batch, origin, results, absent, &turn);
  const long floats = batch.classes, window = batch.window_floats;
  float* memory = static_cast<float*>(malloc(sizeof(float) * (count * (window + floats) + kSlack)));
  const char* why = memory ? nullptr : "out of memory";
  if (count && memory) {
    float* found = memory + count * window;
    for (long k = 0; k < count; ++k)
      memcpy(memory + k * window, batch.windows + absent[k] * window, sizeof(float) * window);
    batch.windows = memory, batch.rows = count;
    why = logits_of(batch, kind, found);
    for (long k = 0; !why && k < count; ++k)
      memcpy(results + absent[k] * floats, found + k * floats, sizeof(float) * floats);
    if (!why) table.write(turn, origin.rows, absent, count, found);
  }
  free(memory);
  free(absent);
  return why;
}
