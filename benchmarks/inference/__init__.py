"""One window through a trained model: each export in its runtime, and TensorFlow's traced function, in turn."""
