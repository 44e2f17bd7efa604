"""The formats of `fab export`, one module each: how a model is written and opened again."""

EXTENSIONS = {
    "onnx": "onnx_file:OnnxFile",
    "litert": "litert_file:LiteRtFile",
    "savedmodel": "saved_model:SavedModel",
    "keras": "keras_file:KerasFile",
}
"""Formats by the name a person types: module and class, in the order of the tables."""
