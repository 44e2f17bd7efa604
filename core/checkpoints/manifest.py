"""The files of a checkpoint: their names, facts as JSON, and a manifest with checksums."""

import hashlib
import json
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Annotated, Any

from numpy.typing import NDArray
from pydantic import Field, TypeAdapter

from core.ground.files import PARTIAL, parsed_json

SCHEMA = 1
LARGEST_BYTES = 16 << 20
"""The largest manifest: arrays belong into the tensors, and a 1 GB node must be able to parse it.
"""

KEYS = ("schema", "update", "tensors", "arrays", "facts", "checksum")
WORD = "$float"
"""The only key of an object that stands for NaN or an infinity, which JSON lacks. Facts may not use
it as a key."""

DEEPEST = 64
"""The most levels of nesting of the facts."""

_NUMBERS = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}
LARGEST_UPDATE = 10**18 - 1

# ASCII digits, and one spelling of each number, so that each name has one update and each update
# one name.
_MANIFEST_NAME = re.compile(r"update-([0-9]{9}|[1-9][0-9]{9,17})\.json")
_TENSORS_NAME = re.compile(r"update-([0-9]{9}|[1-9][0-9]{9,17})(-again)?\.safetensors")
_PARTIAL_NAME = re.compile(rf"\.update-[0-9]+.*{re.escape(PARTIAL)}")


class Damaged(Exception):
    """Why a checkpoint is refused: the rest of a line that begins with the file's name."""


Count = Annotated[int, Field(ge=0, strict=True)]


@dataclass(frozen=True)
class TensorsFile:
    """The file of a checkpoint's tensors."""

    name: str
    bytes: Count
    sha256: str


@dataclass(frozen=True)
class ArrayKind:
    """NumPy's name of an array's type, and its shape."""

    dtype: str
    shape: list[Count]


@dataclass(frozen=True)
class Manifest:
    """One checkpoint's contents. `arrays` is in the order of writing."""

    update: Count
    tensors: TensorsFile
    arrays: dict[str, ArrayKind]
    facts: Mapping[str, Any]

    def to_bytes(self) -> bytes:
        """The file: one line of JSON.

        Raises ValueError where the facts would not come back equal.
        """
        facts = to_json(self.facts)
        if not isinstance(facts, dict):
            raise ValueError(
                f"facts: expected an object, got {type(self.facts).__name__}: give them names"
            )
        content = {"schema": SCHEMA, **asdict(replace(self, facts=facts))}
        raw = _line({**content, "checksum": _checksum(content)})
        if len(raw) > LARGEST_BYTES:
            raise ValueError(
                f"facts: expected a manifest of at most {LARGEST_BYTES} bytes, got {len(raw)}:"
                " store less"
            )
        return raw


_MANIFEST = TypeAdapter(Manifest)


def parse(raw: bytes, update: int) -> Manifest:
    """The manifest of `update` from its file.

    Raises Damaged, or ValueError, TypeError, MemoryError.
    """
    content = parsed_json(raw.decode("ascii"))
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
    described = {**content, "facts": from_json(content["facts"])}
    manifest = _MANIFEST.validate_python({key: described[key] for key in KEYS[1:-1]})
    if manifest.update != update:
        raise Damaged(f"says that it is of update {manifest.update}")
    if manifest.tensors.name not in tensors_names(update):
        raise Damaged(f"tensors.name: {manifest.tensors.name!r:.80} is no file of this update")
    return manifest


def _checksum(content: Mapping[str, Any]) -> str:
    return hashlib.sha256(_line(content)).hexdigest()


def _line(content: Mapping[str, Any]) -> bytes:
    """The only spelling of this content, keys in the order of writing."""
    return json.dumps(content, separators=(",", ":"), allow_nan=False).encode("ascii") + b"\n"


def to_json(value: Any, place: str = "facts", level: int = 0) -> Any:
    """`value` in JSON's own types.

    Raises ValueError that names the place of what would not come back equal.
    """
    if level > DEEPEST:
        raise ValueError(f"{place}: expected at most {DEEPEST} levels, got more: store it flatter")
    match value:
        case None | bool() | str() | int():
            return value
        case float():
            # float(): NumPy's float64 is one too, and must reach the file as a plain number.
            if math.isfinite(value):
                return float(value)
            return {WORD: str(float(value))}
        case Mapping():
            for key in value:
                if not isinstance(key, str) or key == WORD:
                    raise ValueError(
                        f"{place}: expected text other than {WORD!r} as a key, got {key!r}:"
                        " rename it"
                    )
            return {
                key: to_json(inner, f"{place}.{key}", level + 1) for key, inner in value.items()
            }
        case list() | tuple():
            return [
                to_json(inner, f"{place}[{index}]", level + 1) for index, inner in enumerate(value)
            ]
        case _:
            raise ValueError(
                f"{place}: expected what JSON has, got {type(value).__name__}: convert it, or make"
                " it a tensor"
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

    Writing an update again takes the name that the present manifest does not use, so that the
    rename of the manifest replaces the checkpoint at once. With one name there would be a moment of
    old manifest and new tensors.
    """
    stem = f"update-{update:09d}"
    return f"{stem}.safetensors", f"{stem}-again.safetensors"


def manifests(folder: Path) -> list[tuple[int, Path]]:
    """Updates and paths of the manifests in `folder`, the newest first. Raises OSError."""
    return sorted(_numbered(folder, _MANIFEST_NAME), reverse=True)


def tensors_files(folder: Path) -> list[tuple[int, Path]]:
    """Updates and paths of the tensors files in `folder`. Raises OSError."""
    return list(_numbered(folder, _TENSORS_NAME))


def partials(folder: Path) -> list[Path]:
    """Files that interrupted writes left in `folder`. Raises OSError."""
    return [path for path in folder.iterdir() if _PARTIAL_NAME.fullmatch(path.name)]


def _numbered(folder: Path, pattern: re.Pattern[str]) -> Iterator[tuple[int, Path]]:
    for path in folder.iterdir():
        if match := pattern.fullmatch(path.name):
            yield int(match[1]), path


# eq=False: comparing the arrays has no single truth value, so `==` would raise.
@dataclass(frozen=True, eq=False)
class Checkpoint:
    """A consistent cut: every update with an id below `update` is applied, none at or above.

    `tensors` are named arrays of any shape: parameters, statistics, optimizer slots. `facts` is
    everything else in JSON's types: objects with text as keys, lists, text, numbers of any size,
    booleans, null. Numbers may be NaN or infinite; tuples come back as lists.
    """

    update: int
    tensors: Mapping[str, NDArray[Any]]
    facts: Mapping[str, Any]
