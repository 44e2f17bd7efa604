"""Role processes: a TensorFlow gRPC server without Python's tensorflow, its preflight, port guard and readiness."""
