"""`model.onnx`: a built-in network node by node; an app's model by tf2onnx."""

import logging
import shutil
import tempfile
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cluster.export.graph import Answers, traced
from cluster.export.request import Format
from core.exported.description import Description
from core.exported.runtimes import OnnxModel, no_telemetry
from core.ground.errors import UsageError
from core.models.network import BuiltIn

if TYPE_CHECKING:
    from cluster.jobs.train_result import StoredModel

QUANTIZED = ("MatMul", "LSTM")
"""Operations whose weights become int8: those that have most of them."""


class OnnxFile(Format):
    """A file of ONNX."""

    name = "onnx"
    quantizable = True
    packages = {"onnx": "onnx", "onnxruntime": "onnxruntime"}  # noqa: RUF012  a plain fact

    @staticmethod
    def write(model: "StoredModel", path: Path, *, quantized: bool) -> None:
        """Write a built-in network node by node, an app's with tf2onnx."""
        if isinstance(model.network, BuiltIn):
            from cluster.export.onnx_writer import OnnxWriter

            path.write_bytes(OnnxWriter(model).model())
        else:
            _by_tf2onnx(model, path)
        if quantized:
            _quantize(path)

    @staticmethod
    def answers_of(path: Path, description: Description) -> Answers:
        """Open the file in ONNX Runtime."""
        return OnnxModel(path.read_bytes(), description, threads=1).logits


def _by_tf2onnx(model: "StoredModel", path: Path) -> None:
    if find_spec("tf2onnx") is None:
        raise UsageError(
            "--to onnx: an app's model is written with the package tf2onnx, which is missing:"
            " install it with `pip install tf2onnx`, or use --to litert or savedmodel"
        )
    from cluster.export.onnx_writer import converted

    path.write_bytes(converted(traced(model)))


def _quantize(path: Path) -> None:
    no_telemetry()
    quantization: Any = import_module("onnxruntime.quantization")

    logging.getLogger().addFilter(_without_advice)
    try:
        with tempfile.TemporaryDirectory(prefix="pscluster-quantize-") as folder:
            whole = Path(folder, path.name)
            shutil.copyfile(path, whole)
            # 7 bits: with 8 the sums of processors with AVX2 and no VNNI overflow, and half of the
            # labels are wrong.
            quantization.quantize_dynamic(
                whole,
                path,
                op_types_to_quantize=list(QUANTIZED),
                weight_type=quantization.QuantType.QInt8,
                reduce_range=True,
            )
    finally:
        logging.getLogger().removeFilter(_without_advice)


def _without_advice(record: logging.LogRecord) -> bool:
    """Keep a record unless it advises to prepare the model.

    ONNX Runtime logs this to the root; ours has nothing to prepare.
    """
    return "pre-processing" not in record.getMessage()
