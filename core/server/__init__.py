"""Role processes: a TensorFlow gRPC server without Python's TensorFlow, checked and guarded."""
