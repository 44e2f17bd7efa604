"""Where an ONNX model keeps its constants.

They lie in the model itself, or in other files, which no export of ours has.

ONNX Runtime opens every file that a model names, and the answers then show what is in it. Versions
up to 1.23 follow any path, later ones a path below the working directory, where a service keeps its
token. So a model is looked through before a runtime sees it, without the package `onnx`, which a
machine that only recognises does not have.
"""

from collections.abc import Iterator, Mapping

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
