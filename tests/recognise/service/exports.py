"""Small exports: logits are the mean over time of a window times `kernel * factor`."""

from pathlib import Path

import numpy as np

from core.exported.description import FILES, Description, write_description
from tests.core.exported import small
from tests.lazy import onnx

Floats = np.ndarray


def export(folder: Path, factor: float = 1.0) -> Description:
    """An export of its own for each factor."""
    model = onnx.load_from_string(small.onnx_model())
    model.graph.initializer[0].CopyFrom(
        onnx.numpy_helper.from_array(small.KERNEL * np.float32(factor), "kernel")
    )
    content = model.SerializeToString()
    described = small.described(content)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / FILES["onnx"]).write_bytes(content)
    write_description(folder, described)
    return described


def windows(count: int, seed: int = 0) -> Floats:
    """Invented windows."""
    return (
        np.random.default_rng(seed)
        .normal(size=(count, small.STEPS, small.CHANNELS))
        .astype(np.float32)
    )


def logits(given: Floats, factor: float = 1.0) -> Floats:
    """What the export of this factor answers."""
    return small.answers(given) * np.float32(factor)
