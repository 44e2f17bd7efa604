"""What a checkpoint is and how its files are written: names, facts as JSON, the manifest with its checksums."""

import hashlib
import json
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from cluster.atomic_write import PARTIAL

SCHEMA = 1
LARGEST_BYTES = 16 << 20
"""The largest manifest: arrays belong into the tensors, and a 1 GB node must be able to parse it."""

KEYS = ("schema", "update", "tensors", "arrays", "facts", "checksum")
WORD = "$float"
"""The only key of an object that stands for NaN or an infinity, which JSON lacks. Facts may not use it as a key."""

DEEPEST = 64
"""The most levels of nesting of the facts."""

_NUMBERS = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}
LARGEST_UPDATE = 10**18 - 1

# ASCII digits, and one spelling of each number, so that each name has one update and each update one name.
_MANIFEST = re.compile(r"update-([0-9]{9}|[1-9][0-9]{9,17})\.json")
_TENSORS = re.compile(r"update-([0-9]{9}|[1-9][0-9]{9,17})(-again)?\.safetensors")
_PARTIAL = re.compile(rf"\.update-[0-9]+.*{re.escape(PARTIAL)}")


class Damaged(Exception):
    """Why a checkpoint is refused: the rest of a line that begins with the file's name."""


@dataclass(frozen=True)
class Manifest:
    """One checkpoint's contents. `arrays` holds dtype and shape by name, in the order of writing."""

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
    """The only spelling of this content, keys in the order of writing."""
    return json.dumps(content, separators=(",", ":"), allow_nan=False).encode("ascii") + b"\n"


def to_json(value: Any, place: str = "facts", level: int = 0) -> Any:
    """`value` in JSON's own types. Raises ValueError that names the place of what would not come back equal."""
    if level > DEEPEST:
        raise ValueError(f"{place}: expected at most {DEEPEST} levels, got more: store it flatter")
    match value:
        case None | bool() | str() | int():
            return value
        case float():
            # float(): NumPy's float64 is one too, and must reach the file as a plain number.
            return float(value) if math.isfinite(value) else {WORD: str(float(value))}
        case Mapping():
            for key in value:
                if not isinstance(key, str) or key == WORD:
                    raise ValueError(f"{place}: expected text other than {WORD!r} as a key, got {key!r}: rename it")
            return {key: to_json(inner, f"{place}.{key}", level + 1) for key, inner in value.items()}
        case list() | tuple():
            return [to_json(inner, f"{place}[{index}]", level + 1) for index, inner in enumerate(value)]
        case _:
            raise ValueError(
                f"{place}: expected what JSON has, got {type(value).__name__}: convert it, or make it a tensor"
            )


def from_json(value: Any, level: int = 0) -> Any:
    """The value that `to_json` got. Raises ValueError for what it cannot have written."""
    if level > DEEPEST:
        raise ValueError(f"facts of more than {DEEPEST} levels")
    match value:
        case dict() if WORD in value:
            if len(value) != 1 or not isinstance(value[WORD], str) or value[WORD] not in _NUMBERS:
                raise ValueError(f"a {WORD!r} in the facts that is none of {', '.join(_NUMBERS)}")
            return _NUMBERS[value[WORD]]
        case dict():
            return {key: from_json(inner, level + 1) for key, inner in value.items()}
        case list():
            return [from_json(inner, level + 1) for inner in value]
        case _:
            return value


def manifest_name(update: int) -> str:
    """`update-000000740.json`."""
    return f"update-{update:09d}.json"


def tensors_names(update: int) -> tuple[str, str]:
    """The two possible names of an update's tensors.

    Writing an update again takes the name that the present manifest does not use, so that the rename of the manifest
    replaces the checkpoint at once. With one name there would be a moment of old manifest and new tensors.
    """
    stem = f"update-{update:09d}"
    return f"{stem}.safetensors", f"{stem}-again.safetensors"


def manifests(folder: Path) -> list[tuple[int, Path]]:
    """Updates and paths of the manifests in `folder`, the newest first. Raises OSError."""
    return sorted(_numbered(folder, _MANIFEST), reverse=True)


def tensors_files(folder: Path) -> list[tuple[int, Path]]:
    """Updates and paths of the tensors files in `folder`. Raises OSError."""
    return list(_numbered(folder, _TENSORS))


def partials(folder: Path) -> list[Path]:
    """Files that interrupted writes left in `folder`. Raises OSError."""
    return [path for path in folder.iterdir() if _PARTIAL.fullmatch(path.name)]


def _numbered(folder: Path, pattern: re.Pattern[str]) -> Iterator[tuple[int, Path]]:
    for path in folder.iterdir():
        if found := pattern.fullmatch(path.name):
            yield int(found[1]), path


# eq=False: comparing the arrays has no single truth value, so `==` would raise.
@dataclass(frozen=True, eq=False)
class Checkpoint:
    """A consistent cut: every update with an id below `update` is applied, none at or above.

    `tensors` are named arrays of any shape: parameters, statistics, optimizer slots. `facts` is everything else in
    JSON's types: objects with text as keys, lists, text, numbers of any size, booleans, null. Numbers may be NaN or
    infinite; tuples come back as lists.
    """

    update: int
    tensors: Mapping[str, NDArray[Any]]
    facts: Mapping[str, Any]
