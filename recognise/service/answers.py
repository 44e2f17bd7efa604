"""The answer to a question: logits, probabilities and labels as JSON or as binary tensors. Pure."""

import struct
from collections.abc import Sequence
from typing import Any

import numpy as np
import pydantic_core
from numpy.typing import NDArray

from recognise.service.limits import bad
from recognise.service.tensors import FLOAT, LABELS, LOGITS, PROBABILITIES, Question
from recognise.softmax import softmax

HEADER_LENGTH = "Inference-Header-Content-Length"
JSON = "application/json"
BINARY = "application/octet-stream"


def answer(
    question: Question, logits: NDArray[np.float32], labels: Sequence[str], model: str, version: int
) -> tuple[bytes, dict[str, str]]:
    """Return the body of the answer and its headers. `logits` has the shape (windows, classes).

    Raises RequestError where the logits are not finite: huge numbers went in.
    """
    if not np.isfinite(logits).all():
        raise bad(
            "the model's logits for these windows are not finite: expected acceleration and"
            " rotation, not these"
        )
    outputs: list[dict[str, Any]] = []
    binary: list[bytes] = []
    for output in question.outputs:
        datatype, shape, data, raw = _tensor(output.name, logits, labels)
        described: dict[str, Any] = {"name": output.name, "datatype": datatype, "shape": shape}
        if output.binary:
            described["parameters"] = {"binary_data_size": len(raw)}
            binary.append(raw)
        else:
            described["data"] = data
        outputs.append(described)
    document: dict[str, Any] = {"model_name": model, "model_version": str(version)}
    if question.id is not None:
        document["id"] = question.id
    head = pydantic_core.to_json({**document, "outputs": outputs})
    if not binary:
        return head, {"content-type": JSON}
    return b"".join((head, *binary)), {"content-type": BINARY, HEADER_LENGTH: str(len(head))}


def outputs_of(classes: int) -> list[dict[str, object]]:
    """Return the outputs as the model's metadata name them."""
    return [
        {"name": LOGITS, "datatype": FLOAT, "shape": [-1, classes]},
        {"name": PROBABILITIES, "datatype": FLOAT, "shape": [-1, classes]},
        {"name": LABELS, "datatype": "BYTES", "shape": [-1]},
    ]


def _tensor(
    name: str, logits: NDArray[np.float32], labels: Sequence[str]
) -> tuple[str, Sequence[int], list[Any], bytes]:
    """Return the datatype of an output, its shape, its values, and these as a binary tensor."""
    if name == LABELS:
        window_labels = [labels[index] for index in logits.argmax(axis=1)]
        return "BYTES", [len(window_labels)], window_labels, b"".join(map(_counted, window_labels))
    values = logits
    if name == PROBABILITIES:
        values = softmax(logits)
    return FLOAT, values.shape, values.ravel().tolist(), values.astype("<f4").tobytes()


def _counted(text: str) -> bytes:
    """Return a string of Triton's binary tensors: its length and its UTF-8.

    The length is four bytes, little-endian.
    """
    content = text.encode()
    return struct.pack("<I", len(content)) + content
