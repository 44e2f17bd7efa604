// What the answers of a network come to: the shares of the classes and the loss of each window.
//
// One compilation serves every processor.

#define SCALAR
#include "elementwise.h"
#include "library.h"

void judged(const float* logits, const int32_t* labels, long rows, long classes, float* shares,
            float* losses) {
  for (long row = 0; row < rows; ++row, logits += classes, shares += classes) {
    float top;
    const float whole = softmax(logits, classes, shares, &top);
    const bool known = labels[row] >= 0 && labels[row] < classes;
    losses[row] = known ? whole - (logits[labels[row]] - top) : __builtin_nanf("");
  }
}
