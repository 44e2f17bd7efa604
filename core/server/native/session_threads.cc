// TensorFlow's server takes calls of sessions on one thread, where it starts eight.
//
// Loaded globally before TensorFlow: libtensorflow_cc.so.2 calls NewGrpcWorkerService through its
// linkage table, and the loader comes to this definition first. The declarations stand for those of
// grpc_worker_service.h (TensorFlow 2.21), whose names the linker's name of the function contains.

#include <dlfcn.h>

namespace grpc {
class ServerBuilder;
}

namespace tensorflow {

class GrpcWorker;

constexpr int kTheirs = 8;

// In the place of std::unique_ptr<tsl::AsyncServiceInterface>. Because of its destructor it is
// returned in memory of the caller's.
struct Service {
  ~Service();
  void* interface;
};

// Because of its destructor, and theirs of a map, it is passed as an address.
struct GrpcWorkerServiceOptions {
  ~GrpcWorkerServiceOptions();
  void* queue_depth[7];  // std::unordered_map<int, int> of libstdc++: 56 bytes
  int num_serving_threads;
};

using Next = Service(GrpcWorker*, ::grpc::ServerBuilder*, GrpcWorkerServiceOptions&);

int changed = 0;

// How many servers of this process were made with one such thread.
extern "C" __attribute__((visibility("default"))) int pscluster_one_thread() { return changed; }

__attribute__((visibility("default"))) Service NewGrpcWorkerService(
    GrpcWorker* worker, ::grpc::ServerBuilder* builder, GrpcWorkerServiceOptions options) {
  if (options.num_serving_threads == kTheirs) {
    options.num_serving_threads = 1;
    changed++;
  }
  // The library that calls has the function itself. RTLD_NEXT does not reach it where Python's
  // TensorFlow has loaded it, for itself alone.
  Dl_info here, caller;
  dladdr(reinterpret_cast<void*>(&NewGrpcWorkerService), &here);
  dladdr(__builtin_return_address(0), &caller);
  void* library = dlopen(caller.dli_fname, RTLD_LAZY | RTLD_NOLOAD);
  return reinterpret_cast<Next*>(dlsym(library, here.dli_sname))(worker, builder, options);
}

}  // namespace tensorflow
