"""The manifest: what belongs to a checkpoint, with the checksums that tell a damaged one from a whole one."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from cluster.checkpoints.facts import from_json, to_json
from cluster.checkpoints.names import tensors_names

SCHEMA = 1
LARGEST_BYTES = 16 << 20
"""Of a manifest: arrays belong into the tensors, and a 1 GB node must be able to parse it."""

KEYS = ("schema", "update", "tensors", "arrays", "facts", "checksum")


class Damaged(Exception):
    """Why a checkpoint is refused: the rest of a line that begins with the file's name."""


@dataclass(frozen=True)
class Manifest:
    """One checkpoint's contents. `arrays` gives dtype and shape by name, in the order they were written."""

    update: int
    tensors_name: str
    tensors_bytes: int
    tensors_sha256: str
    arrays: Mapping[str, tuple[str, tuple[int, ...]]]
    facts: Mapping[str, Any]

    def to_bytes(self) -> bytes:
        """The file: one line of JSON. Raises ValueError where the facts would not come back equal."""
        facts = to_json(self.facts)
        if not isinstance(facts, dict):
            raise ValueError(f"facts: expected an object, got {type(self.facts).__name__}: give them names")
        content = {
            "schema": SCHEMA,
            "update": self.update,
            "tensors": {"name": self.tensors_name, "bytes": self.tensors_bytes, "sha256": self.tensors_sha256},
            "arrays": {name: {"dtype": dtype, "shape": list(shape)} for name, (dtype, shape) in self.arrays.items()},
            "facts": facts,
        }
        raw = _line({**content, "checksum": _checksum(content)})
        if len(raw) > LARGEST_BYTES:
            raise ValueError(f"facts: expected a manifest of at most {LARGEST_BYTES} bytes, got {len(raw)}: store less")
        return raw


def parse(raw: bytes, update: int) -> Manifest:
    """The manifest of `update` from its file. Raises Damaged, or ValueError, TypeError, RecursionError, MemoryError."""
    content = json.loads(raw.decode("ascii"))
    if not isinstance(content, dict):
        raise Damaged("expected a JSON object")
    if content.get("schema") != SCHEMA:
        raise Damaged(f"schema {content.get('schema')!r:.40} where this version reads {SCHEMA}")
    if tuple(content) != KEYS:
        raise Damaged(f"expected the keys {', '.join(KEYS)}, got {list(content)!r:.200}")
    if content["checksum"] != _checksum({key: content[key] for key in KEYS[:-1]}):
        raise Damaged("its content does not match its checksum")
    if raw != _line(content):
        raise Damaged("not the bytes that were written, though it says the same")
    if content["update"] != update or type(content["update"]) is not int:
        raise Damaged(f"says that it is of update {content['update']!r:.40}")
    tensors, facts = _object(content["tensors"], "tensors"), from_json(_object(content["facts"], "facts"))
    if tensors.get("name") not in tensors_names(update):
        raise Damaged(f"tensors.name: {tensors.get('name')!r:.80} is no file of this update")
    if not isinstance(facts, dict):
        raise Damaged("facts: expected an object")
    return Manifest(
        update=update,
        tensors_name=str(tensors["name"]),
        tensors_bytes=_count(tensors.get("bytes"), "tensors.bytes"),
        tensors_sha256=str(tensors.get("sha256")),
        arrays={name: _array(value, name) for name, value in _object(content["arrays"], "arrays").items()},
        facts=facts,
    )


def _array(value: Any, name: str) -> tuple[str, tuple[int, ...]]:
    described = _object(value, f"arrays.{name!r:.80}")
    dtype, shape = described.get("dtype"), described.get("shape")
    if not isinstance(dtype, str) or not isinstance(shape, list):
        raise Damaged(f"arrays.{name!r:.80}: expected a dtype and a shape")
    return dtype, tuple(_count(length, f"arrays.{name!r:.80}.shape") for length in shape)


def _object(value: Any, place: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise Damaged(f"{place}: expected an object, got {type(value).__name__}")
    return value


def _count(value: Any, place: str) -> int:
    if type(value) is not int or value < 0:
        raise Damaged(f"{place}: expected a count, got {value!r:.40}")
    return value


def _checksum(content: Mapping[str, Any]) -> str:
    return hashlib.sha256(_line(content)).hexdigest()


def _line(content: Mapping[str, Any]) -> bytes:
    """The one spelling that a content has, keys in the order they were written."""
    return json.dumps(content, separators=(",", ":"), allow_nan=False).encode("ascii") + b"\n"
