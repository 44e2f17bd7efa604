"""`export.json`: what an exported model takes and answers, and where it is from.

It also says how the export was checked. Files are read with a bound, hashed, and never through a
link out of their folder.

An export is a folder with this file and one model, a file or, as a SavedModel, a folder. The name
of the model follows from the format, so that no text in `export.json` becomes a path.
"""

import hashlib
import json
import math
import os
import stat
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, TypeAdapter, ValidationError

from core.ground.errors import UsageError, reason_of
from core.ground.files import NO_LINK, atomic_write, parsed_json

LARGEST_MODEL_BYTES = 4 * 2**30
MOST_FILES = 10_000
"""Bound of one SavedModel's folder."""
CHUNK_BYTES = 1 << 20


def read_bytes(path: Path | int, limit: int) -> bytes:
    """The content of a plain file, or of an open one, which it closes.

    Raises OSError, and ValueError for one that is no file or longer than `limit`.
    """
    descriptor = path if isinstance(path, int) else open_plain_file(path)
    with os.fdopen(descriptor, "rb") as stream:
        # `read` takes memory for all that it is asked for, so the size decides first.
        size = os.fstat(stream.fileno()).st_size
        if size <= limit:
            content = stream.read(min(limit, size) + 1)
        else:
            content = b""
    if max(size, len(content)) > limit:
        raise ValueError(f"more than {limit:,} bytes")
    return content


def measured(path: Path, limit: int = LARGEST_MODEL_BYTES) -> tuple[str, int]:
    """Return the SHA-256 and bytes of a file.

    Of a folder it is over the names and hashes of all its files, in order.

    Raises OSError, and ValueError for a link, for what is neither file nor folder, and for more
    than `limit` bytes.
    """
    if not path.is_dir() or path.is_symlink():
        return _file(path, limit)
    total = hashlib.sha256()
    size = 0
    for member in _files(path):
        digest, length = _file(member, limit - size)
        total.update(f"{member.relative_to(path).as_posix()}\0{digest}\n".encode())
        size += length
    return total.hexdigest(), size


def _files(folder: Path) -> list[Path]:
    paths: list[Path] = []
    for parent, folders, files in os.walk(folder):
        for name in folders:
            if Path(parent, name).is_symlink():
                raise ValueError(f"a link, {name}")
        paths += [Path(parent, name) for name in files]
        if len(paths) > MOST_FILES:
            raise ValueError(f"more than {MOST_FILES:,} files")
    return sorted(paths, key=lambda path: path.relative_to(folder).as_posix())


def _file(path: Path, limit: int) -> tuple[str, int]:
    total = hashlib.sha256()
    size = 0
    with os.fdopen(open_plain_file(path), "rb") as stream:
        while chunk := stream.read(CHUNK_BYTES):
            total.update(chunk)
            size += len(chunk)
            if size > limit:
                raise ValueError(f"more than {limit:,} bytes")
    return total.hexdigest(), size


def open_plain_file(path: Path) -> int:
    """Return a descriptor of a plain file, without waiting for a pipe's other end.

    Raises OSError, and ValueError for what is none.
    """
    if path.is_symlink():
        raise ValueError(f"a link, {path.name}")
    descriptor = os.open(path, NO_LINK)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise ValueError(f"no plain file, {path.name}")
    return descriptor


NAME = "export.json"
SCHEMA = 1
LARGEST_EXAMPLE = 1 << 26
"""Numbers of one example: an image of 4,096 x 4,096 in RGB fits."""
LARGEST_BYTES = 1 << 20
"""The largest `export.json`: ten thousand labels fit."""
FILES: Mapping[str, str] = {
    "onnx": "model.onnx",
    "litert": "model.tflite",
    "savedmodel": "saved_model",
    "keras": "model.keras",
}
"""The name of the model in the folder, by format."""

NAMED_CHANNELS = ("hapt", "uci-har", "synthetic")
"""Readers of sets whose channels have names, whatever wrote the export."""

Format = Literal["onnx", "litert", "savedmodel", "keras"]
Word = Annotated[str, Field(max_length=400, pattern=r"^[^\x00-\x1f\x7f]*$")]
Words = Annotated[str, Field(max_length=4000)]
Hash = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
Count = Annotated[int, Field(ge=0, le=2**40, strict=True)]
ModelBytes = Annotated[int, Field(ge=0, le=LARGEST_MODEL_BYTES, strict=True)]
Dtype = Literal["float16", "float32", "int8", "uint8", "int16", "uint16", "int32", "int64"]
"""Types of prepared data (`core.data.dataset.DTYPES`)."""
Number = Annotated[float, Field(allow_inf_nan=False, ge=-1e30, le=1e30)]
Positive = Annotated[float, Field(allow_inf_nan=False, gt=0, le=1e30)]
Share = Annotated[float, Field(ge=0, le=1)]


@dataclass(frozen=True)
class Provenance:
    """The run that trained the model: its folder's name, its job, the digest of its parameters.

    `version` is the one that exported it.
    """

    folder: Word
    job: Word
    parameters_sha256: Hash
    version: Word


@dataclass(frozen=True)
class Architecture:
    """Which network it is, and every knob of it."""

    name: Word
    settings: Annotated[Mapping[str, Any], Field(max_length=100)]


@dataclass(frozen=True)
class Input:
    """What the model takes: raw windows (batch, samples, channels). `shape` is that of one example.

    `samples` is 0 for an app whose examples are no windows. `channels` and `units` have a text for
    each channel, and are empty where the recordings do not say them; `unit` is the same as one
    text. `sensors` says which channels are vectors, and what each measures.
    """

    name: Word
    dtype: Dtype
    samples: Count
    channels: Annotated[tuple[Word, ...], Field(max_length=10_000)]
    unit: Words
    shape: Annotated[tuple[Count, ...], Field(max_length=8)]
    units: Annotated[tuple[Word, ...], Field(max_length=10_000)] = ()
    sensors: Annotated[Mapping[Word, Word], Field(max_length=10_000)] = field(default_factory=dict)


@dataclass(frozen=True)
class Logits:
    """What the model answers: float32 (batch, classes), not yet a softmax."""

    name: Word
    classes: Annotated[int, Field(ge=1, le=100_000, strict=True)]


@dataclass(frozen=True)
class ChannelStatistics:
    """Mean and deviation of each channel.

    They are inside the model; a program may compare its input with them.
    """

    mean: Annotated[tuple[Number, ...], Field(max_length=10_000)]
    std: Annotated[tuple[Positive, ...], Field(max_length=10_000)]


@dataclass(frozen=True)
class Check:
    """The export beside TensorFlow, over all test windows of `source`.

    The share of equal labels and the accuracies are None for a task without one class a window.
    """

    windows: Count
    source: Words
    greatest_difference: Annotated[float, Field(ge=0, allow_inf_nan=False)]
    same_labels: Share | None
    accuracy_tensorflow: Share | None
    accuracy: Share | None


@dataclass(frozen=True)
class Latency:
    """Milliseconds of one window, measured where it was exported."""

    median_ms: Positive
    p99_ms: Positive
    threads: Annotated[int, Field(ge=1, le=1024, strict=True)]
    windows: Count


@dataclass(frozen=True)
class TrainingSet:
    """What the model was trained on.

    `licence` quotes the set's own words; None where they are not known.
    """

    reader: Word
    source: Words
    licence: Words | None


@dataclass(frozen=True)
class Description:
    """The content of `export.json`.

    `sampling_hz`, `filters`, `people` and `format_sha256` are None for recordings that do not say
    them; `stride` is in samples. `bytes` and `sha256` are of the model; those of a folder are over
    all its files.
    """

    format: Format
    quantized: Literal["dynamic"] | None
    file: Word
    sha256: Hash
    bytes: ModelBytes
    run: Provenance
    model: Architecture
    input: Input
    output: Logits
    labels: Annotated[tuple[Word, ...], Field(max_length=100_000)]
    sampling_hz: Positive | None
    stride: Count
    filters: Literal["two-way", "causal", "none"] | None
    standardization: ChannelStatistics
    check: Check
    timing: Latency
    data: TrainingSet
    people: Annotated[int, Field(ge=1, le=2**31, strict=True)] | None = None
    format_sha256: Hash | None = None


def labels_of(description: Description) -> tuple[str, ...]:
    """The names of its classes; their numbers where the run had no names."""
    return description.labels or tuple(map(str, range(description.output.classes)))


_DESCRIPTION: TypeAdapter[Description] = TypeAdapter(Description)


def write_description(folder: Path, description: Description) -> None:
    """Write `export.json` whole or not at all. Raises ClusterError if the disk does not take it."""
    content = {"schema": SCHEMA, **asdict(description)}
    atomic_write(folder / NAME, json.dumps(content, indent=2, allow_nan=False).encode() + b"\n")


def read_description(
    folder: Path, *, check_model: bool = True, file: int | None = None
) -> Description:
    """Read `export.json` and compare the model with its hash.

    Raises UsageError for whatever does not fit together.

    Without `check_model` the caller compares the hash itself, with `model_bytes`. `file` is the
    open file, for who cannot open it.
    """
    path = folder / NAME
    try:
        content = parsed_json(read_bytes(path if file is None else file, LARGEST_BYTES))
        if not isinstance(content, dict) or content.get("schema") != SCHEMA:
            raise ValueError(f'no object with "schema": {SCHEMA}')
        description = _as_said(_DESCRIPTION.validate_python(content), content)
        _refuse_contradictions(description)
        if check_model:
            path = folder / description.file
            _compare(measured(path, description.bytes), description)
        return description
    except (OSError, ValueError, ValidationError) as problem:
        raise UsageError(
            f"{path}: expected what `fab export` writes, got {reason_of(problem)}: export the run"
            " again"
        ) from None


def _as_said(description: Description, content: Mapping[str, Any]) -> Description:
    """Return the description without names that no recording states.

    Exports before `units` named channels by their number.
    """
    if "units" in content["input"] or description.data.reader in NAMED_CHANNELS:
        return description
    return replace(description, input=replace(description.input, channels=()))


def model_bytes(folder: Path, description: Description, file: int | None = None) -> bytes:
    """The model, as large as described and with the hash described. Raises UsageError.

    Not for a SavedModel. `file` is the open file, for who cannot open it.
    """
    from hashlib import sha256

    path = folder / description.file
    try:
        content = read_bytes(path if file is None else file, description.bytes)
        _compare((sha256(content).hexdigest(), len(content)), description)
    except (OSError, ValueError) as problem:
        raise UsageError(
            f"{path}: expected what `fab export` writes, got {reason_of(problem)}: export the run"
            " again"
        ) from None
    return content


def _compare(measurement: tuple[str, int], description: Description) -> None:
    if measurement != (description.sha256, description.bytes):
        raise ValueError(
            f"another file than {NAME} says (sha256 {measurement[0][:12]},"
            f" {measurement[1]:,} bytes)"
        )


def _refuse_contradictions(description: Description) -> None:
    if description.file != FILES[description.format]:
        raise ValueError(
            f"file {description.file!r} where {description.format} is {FILES[description.format]!r}"
        )
    if description.labels and len(description.labels) != description.output.classes:
        raise ValueError(
            f"{len(description.labels)} labels for {description.output.classes} classes"
        )
    for names, what in ((description.labels, "labels"), (description.input.channels, "channels")):
        if len(set(names)) != len(names):
            raise ValueError(f"a name twice in the {what} {', '.join(names):.120}")
    if description.input.channels and description.input.shape != (
        description.input.samples,
        len(description.input.channels),
    ):
        raise ValueError(
            f"shape {description.input.shape} of {description.input.samples} x"
            f" {len(description.input.channels)}"
        )
    if description.input.units and description.input.shape[-1:] != (len(description.input.units),):
        raise ValueError(f"{len(description.input.units)} units of {description.input.shape}")
    for name in description.input.sensors:
        if not {f"{name}_{axis}" for axis in "xyz"} <= set(description.input.channels):
            raise ValueError(f"a sensor {name!r:.40} without its three channels")
    if not 1 <= math.prod(description.input.shape) <= LARGEST_EXAMPLE:
        raise ValueError(
            f"shape {description.input.shape} where 1 to {LARGEST_EXAMPLE:,} numbers are an example"
        )
    if len(description.standardization.mean) != len(description.standardization.std):
        raise ValueError("a standardization with as many means as deviations missing")
