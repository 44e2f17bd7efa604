"""Recognition at the edge: windows, files or a live stream in, labels out, without TensorFlow."""
