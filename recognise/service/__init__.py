"""A trained model as a service: the Open Inference Protocol v2 over HTTP, without TensorFlow."""
