"""An exported model, ready to answer: ONNX Runtime or LiteRT, whichever its format needs.

Each is imported when used.

A model computes one call at a time: a program with several threads opens one for each, or holds a
lock.

ONNX Runtime opens every file that a model names, and the answers then show what is in it. Versions
up to 1.23 follow any path, later ones a path below the working directory, where a service keeps its
token. So a model is looked through before a runtime sees it, without the package `onnx`, which a
machine that only recognises does not have: its constants lie in the model itself, or in other
files, which no export of ours has.
"""

import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from core.exported.description import NAME, Description, model_bytes, read_description
from core.ground.errors import ClusterError, UsageError, reason_of

DEEPEST = 64
"""Graphs within graphs, twice; ours have none."""
_EXTERNAL_DATA = 13
_DATA_LOCATION = 14
_VARINT = 0
_EIGHT_BYTES = 1
_COUNTED = 2
_FOUR_BYTES = 5
_LONGEST_VARINT = 10

_TENSOR = "tensor"
_WITHIN: Mapping[str, Mapping[int, str]] = {
    "model": {7: "graph", 20: "training", 25: "function"},
    "training": {1: "graph", 2: "graph"},
    "function": {7: "node", 11: "attribute"},
    "graph": {1: "node", 5: _TENSOR, 15: "sparse"},
    "node": {5: "attribute"},
    "attribute": {5: _TENSOR, 6: "graph", 10: _TENSOR, 11: "graph", 22: "sparse", 23: "sparse"},
    "sparse": {1: _TENSOR, 2: _TENSOR},
    _TENSOR: {},
}
"""Fields that hold tensors, or what holds them, by message of onnx.proto."""


def refuse_other_files(content: bytes) -> None:
    """Raises ValueError for a model that names another file, and for what is no model."""
    _look(memoryview(content), "model", 0)


def _look(message: memoryview, kind: str, depth: int) -> None:
    if depth > DEEPEST:
        raise ValueError("graphs within graphs, too deep")
    for number, value in _fields(message):
        if kind == _TENSOR and number in (_EXTERNAL_DATA, _DATA_LOCATION) and value != 0:
            raise ValueError("a model that names another file for its constants")
        within = _WITHIN[kind].get(number)
        if within is not None and isinstance(value, memoryview):
            _look(value, within, depth + 1)


def _fields(message: memoryview) -> Iterator[tuple[int, int | memoryview]]:
    """Yield the number and value of each field of a message.

    https://protobuf.dev/programming-guides/encoding has the format.
    """
    at = 0
    while at < len(message):
        key, at = _varint(message, at)
        kind = key & 7
        value = 0
        if kind == _VARINT:
            value, at = _varint(message, at)
            yield key >> 3, value
            continue
        if kind == _COUNTED:
            size, at = _varint(message, at)
        elif kind in (_EIGHT_BYTES, _FOUR_BYTES):
            if kind == _EIGHT_BYTES:
                size = 8
            else:
                size = 4
        else:
            raise ValueError(f"no model of ONNX: a field of kind {kind}")
        end = at + size
        if end > len(message):
            raise ValueError("no model of ONNX: it ends within a field")
        yield key >> 3, message[at:end]
        at = end


def _varint(message: memoryview, at: int) -> tuple[int, int]:
    """A number in groups of seven bits, the lowest first, and where the next field begins."""
    number = 0
    for place, byte in enumerate(message[at : at + _LONGEST_VARINT]):
        number |= (byte & 0x7F) << (7 * place)
        if byte < 0x80:
            return number, at + place + 1
    raise ValueError("no model of ONNX: a number without an end")


Floats = NDArray[np.float32]

PACKAGES = {"onnxruntime": "onnxruntime", "ai_edge_litert.interpreter": "ai-edge-litert"}
"""Pip's names of the packages, by module."""


Float = TypeVar("Float", np.float32, np.float64)


def softmax(logits: NDArray[Float]) -> NDArray[Float]:
    """Return the softmax of finite logits (..., classes), in their dtype and without overflow."""
    raised: NDArray[Float] = np.exp(logits - logits.max(axis=-1, keepdims=True))
    raised /= raised.sum(axis=-1, keepdims=True)
    return raised


class Model(ABC):
    """An exported model: raw windows in, logits out."""

    def __init__(self, description: Description) -> None:
        self.description = description

    def logits(self, windows: Any) -> Floats:
        """Float32 (batch, classes) of raw windows (batch, samples, channels).

        Raises ValueError for another shape, and UsageError where the model fails or answers
        otherwise than described.
        """
        shape = self.description.input.shape
        batch = np.ascontiguousarray(windows, dtype=self.description.input.dtype)
        if batch.shape[1:] != shape or batch.ndim != 1 + len(shape):
            raise ValueError(
                f"expected windows of shape (batch, {', '.join(map(str, shape))}), got"
                f" {batch.shape}"
            )
        if not len(batch):
            return np.empty((0, self.description.output.classes), np.float32)
        try:
            answer = self._answered(batch)
        except Exception as problem:  # each runtime has errors of its own
            raise self._refused(reason_of(problem)) from None
        expected = (len(batch), self.description.output.classes)
        if getattr(answer, "shape", None) != expected or answer.dtype != np.float32:
            raise self._refused(f"expected float32 of shape {expected}, got another answer")
        return answer

    def _refused(self, reason: str) -> UsageError:
        return UsageError(
            f"{self.description.file}: the model does not compute ({reason:.300}): export the run"
            " again"
        )

    @abstractmethod
    def _answered(self, windows: NDArray[Any]) -> Floats:
        """The logits of one window or more, of the right shape and dtype."""


class OnnxModel(Model):
    """With ONNX Runtime, on processors; it takes all windows at once."""

    def __init__(self, content: bytes, description: Description, threads: int) -> None:
        """Raise UsageError without the package.

        An error of the runtime for a model that it cannot use is raised as it is.
        """
        super().__init__(description)
        runtime: Any = _imported("onnxruntime")
        refuse_other_files(content)
        options = runtime.SessionOptions()
        options.intra_op_num_threads = threads
        options.inter_op_num_threads = 1
        options.add_session_config_entry(
            "session.intra_op.allow_spinning", "0"
        )  # a Pi's other work needs the cores
        options.log_severity_level = 3
        options.add_session_config_entry(
            "session.load_model_format", "ONNX"
        )  # what `refuse_other_files` reads
        self._session = runtime.InferenceSession(
            content, options, providers=["CPUExecutionProvider"]
        )
        _refuse_other(self._session.get_inputs(), description.input.name, "input")
        _refuse_other(self._session.get_outputs(), description.output.name, "output")

    def _answered(self, windows: NDArray[Any]) -> Floats:
        inputs = {self.description.input.name: windows}
        answer: Floats = self._session.run([self.description.output.name], inputs)[0]
        return answer


class LiteRtModel(Model):
    """LiteRT, window by window.

    Its fused LSTM has the state of one window, and keeps it until it is reset.
    """

    def __init__(self, content: bytes, description: Description, threads: int) -> None:
        """Raise UsageError without the package.

        An error of the runtime for a model that it cannot use is raised as it is.
        """
        super().__init__(description)
        runtime: Any = _imported("ai_edge_litert.interpreter")
        self._interpreter = runtime.Interpreter(model_content=content, num_threads=threads)
        self._interpreter.allocate_tensors()
        inputs = self._interpreter.get_input_details()
        outputs = self._interpreter.get_output_details()
        expected = ((1, *description.input.shape), (1, description.output.classes))
        shapes = tuple(tuple(map(int, details[0]["shape"])) for details in (inputs, outputs))
        if shapes != expected:
            raise ValueError(
                f"a model from {shapes[0]} to {shapes[1]} where {NAME} says {expected[0]} to"
                f" {expected[1]}"
            )
        self._input = inputs[0]["index"]
        self._output = outputs[0]["index"]

    def _answered(self, windows: NDArray[Any]) -> Floats:
        answers = np.empty((len(windows), self.description.output.classes), np.float32)
        for row, window in enumerate(windows):
            self._interpreter.set_tensor(self._input, window[None])
            # or a window would begin in the state the last one ended in
            self._interpreter.reset_all_variables()
            self._interpreter.invoke()
            answers[row] = self._interpreter.get_tensor(self._output)[0]
        return answers


_RUNTIMES: dict[str, Callable[[bytes, Description, int], Model]] = {
    "onnx": OnnxModel,
    "litert": LiteRtModel,
}
_MODULES = {"onnx": "onnxruntime", "litert": "ai_edge_litert.interpreter"}


def open_model(folder: Path, threads: int = 1) -> Model:
    """The model of an export, checked against its hash.

    Raises UsageError for what this machine cannot use.
    """
    description = read_description(folder, check_model=False)
    import_runtime(description, folder)
    return open_content(model_bytes(folder, description), description, folder, threads)


def import_runtime(description: Description, folder: Path) -> None:
    """Import what the export in `folder` needs. Raises UsageError.

    A process that gives up its rights before it opens the model does so first.
    """
    module = _MODULES.get(description.format)
    if module is None:
        raise UsageError(
            f"{folder}: expected an export for ONNX Runtime or LiteRT, got {description.format},"
            " which needs TensorFlow: export the run with --to onnx"
        )
    _imported(module)


def open_content(content: bytes, description: Description, folder: Path, threads: int = 1) -> Model:
    """The model of these bytes, which lay in `folder`. Raises UsageError."""
    runtime = _RUNTIMES[description.format]
    try:
        return runtime(content, description, threads)
    except ClusterError:
        raise
    except Exception as problem:  # each runtime has errors of its own
        raise UsageError(
            f"{folder / description.file}: the runtime refuses it ({reason_of(problem):.300}):"
            " export the run again"
        ) from None


def no_telemetry() -> None:
    """Keep ONNX Runtime from reporting to Microsoft; call it before anything imports `onnxruntime`.

    Its wheels send what sessions are made of to mobile.events.data.microsoft.com unless this
    variable is set, and keep an identifier of the machine below ~/.cache (its Privacy.md). What a
    person has set stays.
    """
    os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")


def _imported(module: str) -> Any:
    no_telemetry()
    try:
        return import_module(module)
    except ImportError:
        package = PACKAGES[module]
        raise UsageError(
            f"the package {package} is missing: install it with `pip install {package}`"
        ) from None


def _refuse_other(tensors: Any, name: str, what: str) -> None:
    names = [tensor.name for tensor in tensors]
    if names != [name]:
        raise ValueError(f"{what}s {', '.join(names)} where {NAME} says {name}")
