"""`model.onnx`: a built-in network node by node; an app's model by tf2onnx."""

import logging
import shutil
import tempfile
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cluster.errors import UsageError
from cluster.export.formats.format import Format, of_shape, written
from cluster.export.graph import OUTPUT, Answers, traced
from cluster.exported.description import Description
from cluster.exported.runtimes import OnnxModel, no_telemetry
from cluster.models.network import BuiltIn

if TYPE_CHECKING:
    from cluster.jobs.train_result import StoredModel

QUANTIZED = ("MatMul", "LSTM")
"""Operations whose weights become int8: those that have most of them."""


class OnnxFile(Format):
    """See the module."""

    name = "onnx"
    quantizable = True
    packages = {"onnx": "onnx", "onnxruntime": "onnxruntime"}  # noqa: RUF012  the registry asks for a plain fact

    @staticmethod
    def write(model: "StoredModel", path: Path, *, quantized: bool) -> None:
        """See Format."""
        network = model.network
        if isinstance(network, BuiltIn):
            from cluster.export.onnx_writer import OnnxWriter

            writer = OnnxWriter(*of_shape(model))
            path.write_bytes(writer.model(written(writer, model), OUTPUT, network.problem.classes))
        else:
            _by_tf2onnx(model, path)
        if quantized:
            _quantize(path)

    @staticmethod
    def opened(path: Path, description: Description) -> Answers:
        """See Format."""
        return OnnxModel(path.read_bytes(), description, threads=1).logits


def _by_tf2onnx(model: "StoredModel", path: Path) -> None:
    if find_spec("tf2onnx") is None:
        raise UsageError(
            "--to onnx: an app's model is written with the package tf2onnx, which is missing: install it with "
            "`pip install tf2onnx`, or use --to litert or savedmodel"
        )
    from cluster.export.tf2onnx_writer import converted

    path.write_bytes(converted(traced(model)))


def _quantize(path: Path) -> None:
    no_telemetry()
    quantization: Any = import_module("onnxruntime.quantization")

    logging.getLogger().addFilter(_without_advice)
    try:
        with tempfile.TemporaryDirectory(prefix="pscluster-quantize-") as folder:
            whole = Path(folder, path.name)
            shutil.copyfile(path, whole)
            # 7 bits: with 8 the sums of processors with AVX2 and no VNNI overflow, and half of the labels are wrong.
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
    """ONNX Runtime logs to the root that a model could be prepared first; ours has nothing to prepare."""
    return "pre-processing" not in record.getMessage()
