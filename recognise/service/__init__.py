"""A trained model as a service on one machine: the Open Inference Protocol v2 over HTTP, without TensorFlow."""
