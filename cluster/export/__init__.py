"""A trained run as a file of ONNX, LiteRT, SavedModel or Keras, checked against TensorFlow."""
