"""The body of `POST .../infer` as windows, from JSON or from Triton's binary tensors.

Both are what the Open Inference Protocol v2 and Triton's `binary_tensor_data` extension describe.
Everything here is a pure function of the body, the model's shape and the limits. Counts come before
parsing and shapes before arrays, so that no body needs more than some times its own size in memory.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Annotated, Any

import numpy as np
import pydantic_core
from numpy.typing import NDArray
from pydantic import (
    BaseModel,
    ConfigDict,
    FailFast,
    Field,
    RootModel,
    StringConstraints,
    ValidationError,
)

from core.ground.errors import reason_of
from recognise.service.limits import Limits, RequestError, bad

WINDOWS = "windows"
LOGITS = "logits"
PROBABILITIES = "probabilities"
LABELS = "labels"
OUTPUTS = (LOGITS, PROBABILITIES, LABELS)
FLOAT = "FP32"
_FLOAT_BYTES = 4
_MICROSECONDS = 1e6
_SPARE_BRACKETS = 256
_SPARE_COMMAS = 1024
"""Commas of a request besides its numbers: outputs, parameters, a shape."""

Text = Annotated[str, StringConstraints(max_length=256)]


_NUMBERS_AT_ONCE = 4096
"""Numbers to check at once: a copy of all of them would take as much as the request."""


class _Numbers(RootModel[Any]):
    root: Annotated[list[Annotated[float, Field(strict=True, allow_inf_nan=False)]], FailFast()]
    """The first wrong element is the answer: an error for each took 600 MB for a body of 2.4 MB."""


class _Part(BaseModel):
    model_config = ConfigDict(strict=True, frozen=True)


Positive = Annotated[float, Field(ge=0, le=2**63)] | None


class _Parameters(_Part):
    """The parameters that mean something here, of a request, its input or an output."""

    sequence_id: Positive = None
    timeout: Positive = None
    binary_data_output: bool = False
    binary_data_size: int | None = None
    binary_data: bool | None = None
    classification: Any = None


_NONE = _Parameters()


class _Input(_Part):
    name: Text
    shape: Annotated[list[Annotated[int, Field(ge=0, le=2**31)]], Field(max_length=8)]
    datatype: Text
    parameters: _Parameters = _NONE
    data: list[Any] | None = None


class _Output(_Part):
    name: Text
    parameters: _Parameters = _NONE


class _Request(_Part):
    id: Text | None = None
    parameters: _Parameters = _NONE
    inputs: Annotated[list[_Input], Field(min_length=1, max_length=1)]
    outputs: Annotated[list[_Output], Field(max_length=len(OUTPUTS))] | None = None


@dataclass(frozen=True)
class RequestedOutput:
    """One output that the client asks for, and whether as a binary tensor."""

    name: str
    binary: bool


@dataclass(frozen=True, eq=False)
class Question:
    """One request: its windows (n, samples, channels), float32 and finite, and what it wants."""

    windows: NDArray[np.float32]
    outputs: tuple[RequestedOutput, ...]
    id: str | None = None
    timeout_seconds: float | None = None


def question(
    body: bytes | bytearray, header_bytes: int | None, shape: Sequence[int], limits: Limits
) -> Question:
    """Return the question in `body`, of windows of this shape, samples and channels.

    Its first `header_bytes` are JSON if binary tensors follow, else all of it is.
    Raises RequestError with the reason.
    """
    end = len(body)
    if header_bytes is not None:
        most = min(end, limits.header_bytes)
        if not 0 < header_bytes <= most:
            raise bad(
                f"Inference-Header-Content-Length: expected 1 to {most} bytes, got {header_bytes}"
            )
        end = header_bytes
    head = body
    if end < len(body):  # the whole of a large body is not copied
        head = body[:end]
    request = _request(head, shape, limits)
    if request.parameters.sequence_id:
        raise bad(
            "parameters.sequence_id: this model keeps no state between requests: leave it out"
        )
    timeout = request.parameters.timeout
    windows = _windows(request.inputs[0], memoryview(body)[end:], shape, limits)
    if not np.isfinite(windows).all():
        raise bad(f"input {WINDOWS}: expected finite numbers, got NaN or infinity")
    seconds = timeout / _MICROSECONDS if timeout else None  # 0 is none
    return Question(windows, _requested_outputs(request), request.id, seconds)


def _request(text: bytes | bytearray, shape: Sequence[int], limits: Limits) -> _Request:
    brackets = limits.windows * (shape[0] + 1) + _SPARE_BRACKETS
    if text.count(b"[") + text.count(b"{") > brackets:
        raise bad(f"expected at most {brackets} lists and objects in a request")
    commas = limits.windows * math.prod(shape) + _SPARE_COMMAS
    if text.count(b",") > commas:
        raise RequestError(
            413, f"expected at most {commas} commas: a request has at most {limits.windows} windows"
        )
    try:
        parsed = pydantic_core.from_json(text, allow_inf_nan=False)
    except ValueError as problem:
        raise bad(f"expected JSON: {problem}") from None
    try:
        return _Request.model_validate(parsed)
    except ValidationError as problem:
        raise bad(f"expected an inference request: {reason_of(problem)}") from None


def _windows(
    tensor: _Input, binary: memoryview, shape: Sequence[int], limits: Limits
) -> NDArray[np.float32]:
    expected = f"[n, {shape[0]}, {shape[1]}]"
    if tensor.name != WINDOWS:
        raise bad(f"expected the input {WINDOWS}, got {tensor.name!r:.60}")
    if tensor.datatype != FLOAT:
        raise bad(f"input {WINDOWS}: expected the datatype {FLOAT}, got {tensor.datatype!r:.60}")
    if len(tensor.shape) != 3 or tensor.shape[1:] != [*shape]:
        raise bad(f"input {WINDOWS}: expected the shape {expected}, got {tensor.shape}")
    count = tensor.shape[0]
    if not 0 < count <= limits.windows:
        raise bad(
            f"input {WINDOWS}: expected 1 to {limits.windows} windows in a request, got {count}"
        )
    size = tensor.parameters.binary_data_size
    if (size is None) == (tensor.data is None):
        raise bad(f"input {WINDOWS}: expected either data or parameters.binary_data_size")
    if tensor.data is not None:
        if len(binary):
            raise bad(f"expected no bytes behind the JSON header, got {len(binary)}")
        return _of_numbers(tensor.data, tensor.shape)
    expected_bytes = count * math.prod(shape) * _FLOAT_BYTES
    if size != expected_bytes or len(binary) != expected_bytes:
        raise bad(
            f"input {WINDOWS}: the shape {tensor.shape} has {expected_bytes} bytes,"
            f" parameters.binary_data_size says {size!r:.60} and {len(binary)} came"
        )
    return np.frombuffer(binary, dtype="<f4").reshape(tensor.shape).astype(np.float32, copy=False)


def _of_numbers(data: list[Any], shape: Sequence[int]) -> NDArray[np.float32]:
    """Return the array of a flat list, or of lists nested as the shape says."""
    numbers = data
    if data and isinstance(data[0], list):
        level: list[Any] = [data]
        for length in shape:
            if any(not isinstance(part, list) or len(part) != length for part in level):
                raise bad(
                    f"input {WINDOWS}: expected data nested as the shape {list(shape)} says, or"
                    " flat"
                )
            level = list(chain.from_iterable(level))
        numbers = level
    if len(numbers) != math.prod(shape):
        raise bad(
            f"input {WINDOWS}: the shape {list(shape)} has {math.prod(shape)} numbers, got"
            f" {len(numbers)}"
        )
    values = np.empty(len(numbers), np.float32)
    for first in range(0, len(numbers), _NUMBERS_AT_ONCE):
        part = slice(first, first + _NUMBERS_AT_ONCE)
        try:
            checked = _Numbers.model_validate(numbers[part]).root
        except ValidationError as problem:
            [wrong] = problem.errors(include_url=False, include_context=False, include_input=False)
            place = first + int(wrong["loc"][0])
            raise bad(f"input {WINDOWS}: data.{place}: {wrong['msg']}") from None
        with np.errstate(over="ignore"):  # too large becomes infinite, and is refused as that
            values[part] = checked
    return values.reshape(shape)


def _requested_outputs(request: _Request) -> tuple[RequestedOutput, ...]:
    usual = request.parameters.binary_data_output
    if request.outputs is None or not request.outputs:
        return tuple(RequestedOutput(name, usual) for name in OUTPUTS)
    requested: list[RequestedOutput] = []
    for output in request.outputs:
        if output.name not in OUTPUTS:
            raise bad(f"outputs: expected {', '.join(OUTPUTS)}, got {output.name!r:.60}")
        if output.name in [earlier.name for earlier in requested]:
            raise bad(f"outputs: {output.name} stands there twice")
        if output.parameters.classification:
            raise bad(
                f"outputs: this model has no classification extension: ask for {LABELS} and"
                f" {PROBABILITIES}"
            )
        is_binary = output.parameters.binary_data
        if is_binary is None:
            is_binary = usual
        requested.append(RequestedOutput(output.name, is_binary))
    return tuple(requested)
