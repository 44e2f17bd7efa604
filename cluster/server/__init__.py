"""Role processes: a TensorFlow gRPC server without Python's TensorFlow, its checks, port guard and readiness."""
