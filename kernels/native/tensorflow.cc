// The operations of TensorFlow, through its C API
// (tensorflow/c/{tf_status,tf_tensor,kernels,ops}.h): declared here, so that a build needs no
// TensorFlow.

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <initializer_list>

#include "library.h"

#ifdef WITH_TENSORFLOW_HEADERS  // compiling once with them shows that the declarations are theirs
#include "tensorflow/c/kernels.h"
#include "tensorflow/c/ops.h"
#else
enum TF_Code { TF_OK = 0, TF_INVALID_ARGUMENT = 3 };
enum TF_DataType { TF_FLOAT = 1, TF_INT32 = 3 };
struct TF_Status;
struct TF_Tensor;
struct TF_KernelBuilder;
struct TF_OpKernelConstruction;
struct TF_OpKernelContext;
struct TF_OpDefinitionBuilder;
struct TF_ShapeInferenceContext;
extern "C" {
TF_Status* TF_NewStatus();
void TF_DeleteStatus(TF_Status*);
void TF_SetStatus(TF_Status*, TF_Code, const char*);
TF_Code TF_GetCode(const TF_Status*);
const char* TF_Message(const TF_Status*);
void TF_DeleteTensor(TF_Tensor*);
int TF_NumDims(const TF_Tensor*);
int64_t TF_Dim(const TF_Tensor*, int);
void* TF_TensorData(const TF_Tensor*);
TF_KernelBuilder* TF_NewKernelBuilder(const char*, const char*, void* (*)(TF_OpKernelConstruction*),
                                      void (*)(void*, TF_OpKernelContext*), void (*)(void*));
void TF_RegisterKernelBuilder(const char*, TF_KernelBuilder*, TF_Status*);
int TF_NumInputs(TF_OpKernelContext*);
void TF_GetInput(TF_OpKernelContext*, int, TF_Tensor**, TF_Status*);
TF_Tensor* TF_AllocateOutput(TF_OpKernelContext*, int, TF_DataType, const int64_t*, int, size_t,
                             TF_Status*);
void TF_OpKernelContext_Failure(TF_OpKernelContext*, TF_Status*);
TF_OpDefinitionBuilder* TF_NewOpDefinitionBuilder(const char*);
void TF_RegisterOpDefinition(TF_OpDefinitionBuilder*, TF_Status*);
void TF_OpDefinitionBuilderAddAttr(TF_OpDefinitionBuilder*, const char*);
void TF_OpDefinitionBuilderAddInput(TF_OpDefinitionBuilder*, const char*);
void TF_OpDefinitionBuilderAddOutput(TF_OpDefinitionBuilder*, const char*);
void TF_OpDefinitionBuilderSetShapeInferenceFunction(TF_OpDefinitionBuilder*,
                                                     void (*)(TF_ShapeInferenceContext*,
                                                              TF_Status*));
void TF_ShapeInferenceContextSetUnknownShape(TF_ShapeInferenceContext*, TF_Status*);
}
#endif

namespace {

template <class T>
constexpr TF_DataType kTypeOf = TF_FLOAT;
template <>
constexpr TF_DataType kTypeOf<int32_t> = TF_INT32;

template <class T>
struct Tensor {
  const T* at;
  long size, first;  // elements, and of the first dimension
};

// One call of an operation. Its context keeps the tensors' memory until the call's end.
class Call {
 public:
  explicit Call(TF_OpKernelContext* context) : inputs(TF_NumInputs(context)), context_(context) {}
  ~Call() {
    if (!ok()) TF_OpKernelContext_Failure(context_, status_);
    TF_DeleteStatus(status_);
  }
  Call(const Call&) = delete;

  void refuse(const char* why) {
    if (why) TF_SetStatus(status_, TF_INVALID_ARGUMENT, why);
  }
  bool ok() const { return TF_GetCode(status_) == TF_OK; }

  template <class T = float>
  Tensor<T> input(int k) {
    TF_Tensor* found = nullptr;
    if (ok()) TF_GetInput(context_, k, &found, status_);
    if (!ok()) return {};
    long size = 1;
    for (int d = 0; d < TF_NumDims(found); ++d)
      size *= TF_Dim(found, d);
    const long first = TF_NumDims(found) ? TF_Dim(found, 0) : 0;
    return {data<const T>(found), size, first};
  }

  // Input k as a structure of words; it is refused where it has another number of them.
  template <class Words>
  Words words(int k, const char* why) {
    const Tensor<int32_t> found = input<int32_t>(k);
    Words words = {};
    if (!ok()) return words;
    if (found.size * sizeof(int32_t) == sizeof words)
      memcpy(&words, found.at, sizeof words);
    else
      refuse(why);
    return words;
  }

  template <class T = float>
  T* output(int k, std::initializer_list<int64_t> shape) {
    if (!ok()) return nullptr;
    size_t bytes = sizeof(T);
    for (int64_t size : shape)
      bytes *= size;
    TF_Tensor* made = TF_AllocateOutput(context_, k, kTypeOf<T>, shape.begin(),
                                        static_cast<int>(shape.size()), bytes, status_);
    return ok() ? data<T>(made) : nullptr;
  }

  const int inputs;

 private:
  template <class T>
  static T* data(TF_Tensor* tensor) {
    T* found = static_cast<T*>(TF_TensorData(tensor));
    TF_DeleteTensor(tensor);
    return found;
  }

  TF_OpKernelContext* context_;
  TF_Status* status_ = TF_NewStatus();
};

// What both operations begin with: program, constants, trained, statistics, windows.
constexpr int kShared = 5;

Batch shared(Call& call) {
  Batch batch = {};
  batch.thrifty = true;
  const auto words = call.input<int32_t>(0);
  const auto constants = call.input(1), trained = call.input(2), statistics = call.input(3);
  const auto windows = call.input(4);
  batch.words = words.at, batch.words_size = words.size;
  batch.numbers = {constants.at,   trained.at,   statistics.at,
                   constants.size, trained.size, statistics.size};
  batch.windows = windows.at, batch.rows = windows.first;
  batch.window_floats = batch.rows > 0 ? windows.size / batch.rows : 0;
  return batch;
}

void compute_gradient(void*, TF_OpKernelContext* context) {
  struct Settings {
    int32_t batch_size, slots, first_slot, slot_count, group, threads, classes, apart;
    uint32_t seed[2];
  };
  Call call(context);
  Batch batch = shared(call);
  const auto labels = call.input<int32_t>(kShared);
  const auto weights = call.input(kShared + 1);
  const auto s = call.words<Settings>(kShared + 2, "settings: expected ten words");
  const auto smoothing = call.words<float>(kShared + 3, "smoothing: expected one number");
  if (!call.ok()) return;
  batch.recipe = {s.batch_size, s.group, smoothing, {s.seed[0], s.seed[1]}};
  batch.labels = labels.at, batch.weights = weights.at, batch.has_weights = weights.size > 0;
  batch.slots = s.slots, batch.first_slot = s.first_slot, batch.slot_count = s.slot_count;
  batch.threads = threads_for(s.threads), batch.classes = s.classes, batch.apart = s.apart != 0;
  if (labels.size != batch.rows || (batch.has_weights && weights.size != batch.rows))
    return call.refuse("labels, weights: expected one a window");
  if (s.first_slot < 0 || s.slot_count < 1 || s.slot_count > kMostSlots)
    return call.refuse("slots: no such range");
  const int64_t nodes = s.apart ? s.slot_count : nodes_of(s.first_slot, s.slot_count);
  float* sums = call.output(0, {nodes, batch.numbers.trained_size + batch.numbers.statistics_size});
  float* losses = call.output(1, {s.slot_count});
  float* hits = call.output(2, {s.slot_count});
  if (call.ok()) call.refuse(gradient_of(batch, *kind_named(nullptr), sums, losses, hits));
}

void compute_logits(void*, TF_OpKernelContext* context) {
  struct Settings {
    int32_t threads, classes;
  };
  Call call(context);
  Batch batch = shared(call);
  const auto s = call.words<Settings>(kShared, "settings: expected threads and classes");
  if (!call.ok()) return;
  batch.threads = threads_for(s.threads), batch.classes = s.classes;
  if (s.classes < 1 || s.classes > kMostFloatsOfRow)
    return call.refuse("settings: no such number of classes");
  float* logits = call.output(0, {batch.rows, s.classes});
  if (call.ok()) call.refuse(logits_of(batch, *kind_named(nullptr), logits));
}

void compute_recalled(void*, TF_OpKernelContext* context) {
  struct Settings {
    int32_t threads, floats, total;
  };
  Call call(context);
  Batch batch = shared(call);
  const auto rows = call.input<int32_t>(kShared), source = call.input<int32_t>(kShared + 1);
  const auto s = call.words<Settings>(kShared + 2, "settings: expected threads, floats, rows");
  if (!call.ok()) return;
  batch.threads = threads_for(s.threads), batch.classes = s.floats;
  if (s.floats < 1 || s.floats > kMostFloatsOfRow)
    return call.refuse("settings: no such number of floats");
  if (rows.size != batch.rows) return call.refuse("rows: expected one a window");
  float* results = call.output(0, {batch.rows, s.floats});
  const Origin origin{rows.at, source.at, s.total, source.size};
  if (call.ok()) call.refuse(recalled_of(batch, *kind_named(nullptr), origin, results));
}

void compute_judged(void*, TF_OpKernelContext* context) {
  Call call(context);
  const auto logits = call.input(0);
  const auto labels = call.input<int32_t>(1);
  const long rows = labels.size, classes = rows > 0 ? logits.size / rows : 0;
  if (call.ok() && (logits.size != rows * classes || (rows > 0 && classes < 1)))
    return call.refuse("judged: expected logits (n, classes) and labels (n)");
  float* shares = call.output(0, {rows, classes});
  float* losses = call.output(1, {rows});
  Ieee state;
  if (call.ok()) judged(logits.at, labels.at, rows, classes, shares, losses);
}

// A layer: program, trained, windows, settings.
Batch layer(Call& call, int settings, bool& keeps) {
  struct Settings {
    int32_t slots, threads, floats, keeps;
  };
  Batch batch = {};
  const auto words = call.input<int32_t>(0);
  const auto trained = call.input(1), windows = call.input(2);
  const auto s = call.words<Settings>(settings, "settings: expected four words");
  batch.thrifty = batch.layer = true;
  batch.words = words.at, batch.words_size = words.size;
  batch.numbers.trained = trained.at, batch.numbers.trained_size = trained.size;
  batch.windows = windows.at, batch.rows = windows.first;
  batch.window_floats = batch.rows > 0 ? windows.size / batch.rows : 0;
  batch.recipe.batch_size = batch.rows, batch.recipe.group = 1;
  batch.slots = batch.slot_count = s.slots;
  batch.threads = threads_for(s.threads), batch.classes = s.floats;
  keeps = s.keeps != 0;
  if (s.floats < 1) call.refuse("settings: no such number of floats");
  return batch;
}

void compute_layer(void*, TF_OpKernelContext* context) {
  Call call(context);
  bool keeps = false;
  const Batch batch = layer(call, 3, keeps);
  if (!call.ok()) return;
  const long floats = keeps && batch.rows > 0 ? kept_of(batch) : 0;
  float* results = call.output(0, {batch.rows, batch.classes});
  float* kept = call.output(1, {floats});
  if (call.ok() && batch.rows > 0)
    call.refuse(layer_of(batch, *kind_named(nullptr), floats ? kept : nullptr, results));
}

void compute_layer_gradient(void*, TF_OpKernelContext* context) {
  Call call(context);
  bool keeps = false;
  const Batch batch = layer(call, 5, keeps);
  const auto kept = call.input(3), by_results = call.input(4);
  if (!call.ok()) return;
  if (by_results.size != batch.rows * batch.classes)
    return call.refuse("by_results: expected the shape of the results");
  if (kept.size != 0 && kept.size != kept_of(batch)) return call.refuse("kept: not by this layer");
  float* by_trained = call.output(0, {batch.numbers.trained_size});
  float* by_windows = call.output(1, {batch.rows, batch.window_floats});
  if (!call.ok()) return;
  if (batch.rows == 0) {
    memset(by_trained, 0, sizeof(float) * batch.numbers.trained_size);
    return;
  }
  // Kept values are read alone.
  float* values = kept.size ? const_cast<float*>(kept.at) : nullptr;
  call.refuse(layer_gradient_of(batch, *kind_named(nullptr), values, by_results.at, by_trained,
                                by_windows));
}

void compute_augmented(void*, TF_OpKernelContext* context) {
  struct Settings {
    int32_t first_row;
    uint32_t seed[2];
  };
  struct Factors {
    float rotation_degrees, time_warp;
  };
  Call call(context);
  const auto windows = call.input(0), moments = call.input(1);
  const auto s = call.words<Settings>(2, "settings: expected the first row and a seed");
  const auto f = call.words<Factors>(3, "factors: expected degrees and warp");
  if (!call.ok()) return;
  const long rows = windows.first, channels = moments.size / 2;
  const long floats = rows > 0 ? windows.size / rows : 0;
  if (channels < 1 || (f.rotation_degrees != 0.0f && channels % 3) ||
      (rows > 0 && (floats % channels || floats / channels < 2)))
    return call.refuse("augment: expected windows, and moments (2, channels)");
  const Augment augment{rows > 0 ? floats / channels : 2,
                        channels,
                        moments.at,
                        moments.at + channels,
                        f.rotation_degrees,
                        f.time_warp,
                        {s.seed[0], s.seed[1]},
                        s.first_row};
  float* to = call.output(0, {rows, augment.steps, channels});
  float* scratch = static_cast<float*>(malloc(sizeof(float) * (floats + 1)));
  if (!scratch) call.refuse("out of memory");
  Ieee state;
  if (call.ok()) augmented(augment, windows.at, rows, to, scratch);
  free(scratch);
}

void compute_squares(void*, TF_OpKernelContext* context) {
  Call call(context);
  const auto vector = call.input(0);
  float* sums = call.output(0, {(vector.size + kParameterBlock - 1) / kParameterBlock});
  Ieee state;
  if (call.ok()) squares_of(vector.at, vector.size, sums);
}

void compute_norm(void*, TF_OpKernelContext* context) {
  Call call(context);
  const auto squares = call.input(0);
  float* norm = call.output(0, {});
  Ieee state;
  if (call.ok()) *norm = norm_of(squares.at, squares.size);
}

void compute_node(void*, TF_OpKernelContext* context) {
  struct Settings {
    int32_t trained, width, halves;
  };
  Call call(context);
  const int count = call.inputs - 2;
  const auto present = call.input(count);
  const auto s = call.words<Settings>(count + 1, "node: expected trained, width, halves");
  if (!call.ok()) return;
  if (s.trained < 0 || s.trained > s.width || present.size != count)
    return call.refuse("node: expected at most the width trained, and whether each leaf counts");
  const float** leaves = static_cast<const float**>(calloc(count, sizeof(float*)));
  if (!leaves) return call.refuse("out of memory");
  for (int k = 0; k < count; ++k) {
    if (present.at[k] == 0.0f) continue;
    const auto leaf = call.input(k);
    if (leaf.size != s.width) call.refuse("node: a leaf that counts has another width");
    leaves[k] = leaf.at;
  }
  float* node = call.output(0, {s.width});
  Ieee state;
  if (call.ok()) node_of(leaves, count, s.trained, s.width, s.halves, node);
  free(leaves);
}

void compute_proof(void*, TF_OpKernelContext* context) {
  Call call(context);
  int32_t* words = call.output<int32_t>(0, {4});
  if (call.ok()) call.refuse(proof_of(*kind_named(nullptr), words));
}

void compute_update(void*, TF_OpKernelContext* context) {
  struct Settings {
    int32_t optimizer;
    uint32_t count[2];
  };
  struct Numbers {
    float rate, of_optimizer[3];
  };
  Call call(context);
  const auto parameters = call.input(0), slots = call.input(1), gradient = call.input(2);
  const auto s = call.words<Settings>(3, "settings: expected an optimizer and a count");
  const auto n = call.words<Numbers>(4, "numbers: expected a rate and three more");
  if (!call.ok()) return;
  const long size = parameters.size;
  if (gradient.size != size || (size > 0 && slots.size % size))
    return call.refuse("update: expected parameters (n), slots (m, n) and a gradient (n)");
  const int64_t slot_count = size > 0 ? slots.size / size : 0;
  float* new_parameters = call.output(0, {size});
  float* new_slots = call.output(1, {slot_count, size});
  if (!call.ok()) return;
  memcpy(new_parameters, parameters.at, sizeof(float) * size);
  memcpy(new_slots, slots.at, sizeof(float) * slots.size);
  const int64_t count = static_cast<int64_t>(s.count[1]) << 32 | s.count[0];
  const Update update{s.optimizer, n.of_optimizer, gradient.at, n.rate, count, size, slot_count};
  Ieee state;
  if (!updated(update, new_parameters, new_slots))
    call.refuse("update: no such optimizer with so many slots");
}

void unknown(TF_ShapeInferenceContext* context, TF_Status* status) {
  TF_ShapeInferenceContextSetUnknownShape(context, status);
}

void add(const char* name, std::initializer_list<const char*> reads,
         std::initializer_list<const char*> writes, void (*compute)(void*, TF_OpKernelContext*),
         const char* attribute = nullptr) {
  TF_Status* status = TF_NewStatus();
  TF_OpDefinitionBuilder* op = TF_NewOpDefinitionBuilder(name);
  if (attribute) TF_OpDefinitionBuilderAddAttr(op, attribute);
  for (const char* operand : reads)
    TF_OpDefinitionBuilderAddInput(op, operand);
  for (const char* operand : writes)
    TF_OpDefinitionBuilderAddOutput(op, operand);
  TF_OpDefinitionBuilderSetShapeInferenceFunction(op, unknown);
  TF_RegisterOpDefinition(op, status);
  if (TF_GetCode(status) == TF_OK)
    TF_RegisterKernelBuilder(name, TF_NewKernelBuilder(name, "CPU", nullptr, compute, nullptr),
                             status);
  if (TF_GetCode(status) != TF_OK) fprintf(stderr, "%s: %s\n", name, TF_Message(status));
  TF_DeleteStatus(status);
}

__attribute__((constructor)) void register_all() {
  add("PsclusterGradient",
      {"program: int32", "constants: float", "trained: float", "statistics: float",
       "windows: float", "labels: int32", "weights: float", "settings: int32", "smoothing: float"},
      {"nodes: float", "losses: float", "hits: float"}, compute_gradient);
  add("PsclusterLogits",
      {"program: int32", "constants: float", "trained: float", "statistics: float",
       "windows: float", "settings: int32"},
      {"logits: float"}, compute_logits);
  add("PsclusterRecalled",
      {"program: int32", "constants: float", "trained: float", "statistics: float",
       "windows: float", "rows: int32", "source: int32", "settings: int32"},
      {"results: float"}, compute_recalled);
  add("PsclusterJudged", {"logits: float", "labels: int32"}, {"shares: float", "losses: float"},
      compute_judged);
  add("PsclusterLayer", {"program: int32", "trained: float", "windows: float", "settings: int32"},
      {"results: float", "kept: float"}, compute_layer);
  add("PsclusterLayerGradient",
      {"program: int32", "trained: float", "windows: float", "kept: float", "by_results: float",
       "settings: int32"},
      {"by_trained: float", "by_windows: float"}, compute_layer_gradient);
  add("PsclusterAugmented",
      {"windows: float", "standardization: float", "settings: int32", "factors: float"},
      {"augmented: float"}, compute_augmented);
  add("PsclusterSquares", {"vector: float"}, {"sums: float"}, compute_squares);
  add("PsclusterNorm", {"squares: float"}, {"norm: float"}, compute_norm);
  add("PsclusterNode", {"leaves: N * float", "present: float", "settings: int32"}, {"node: float"},
      compute_node, "N: int >= 1");
  add("PsclusterProof", {}, {"proof: int32"}, compute_proof);
  add("PsclusterUpdate",
      {"parameters: float", "slots: float", "gradient: float", "settings: int32", "numbers: float"},
      {"new_parameters: float", "new_slots: float"}, compute_update);
}

}  // namespace
