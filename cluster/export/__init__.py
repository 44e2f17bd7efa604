"""A trained run as a file for other runtimes: ONNX, LiteRT, SavedModel, Keras; each checked against TensorFlow."""
