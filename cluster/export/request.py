"""What a person asked to export: a finished run, as which format, into which folder.

What cannot be is refused in one line before TensorFlow is loaded.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from pydantic import TypeAdapter, ValidationError

from cluster.export.graph import Answers
from core.exported.description import Description, read_bytes
from core.ground.errors import ClusterError, UsageError, reason_of
from core.ground.files import LARGEST_OF_RUN, folder_beside, parsed_json
from core.ground.registry import Registry
from core.inventory.training_sections import BESIDE

if TYPE_CHECKING:
    from cluster.jobs.train_result import StoredModel


RESULT = "result.json"
MODEL = "model"
CONFIGURATION = "model.json"
RUNS = "runs"


@dataclass(frozen=True)
class TrainedRun:
    """What `result.json` of a finished run says."""

    folder: Path
    job: str
    seed: int
    window_steps: int
    window_stride: int
    options: Mapping[str, Any]
    """Options of readers besides windows, by name."""
    named: str | None
    """The recordings that the job named."""
    source: str
    """The place where they lay; `synthetic` for invented ones."""


def folder_of(named: str) -> Path:
    """The folder of a run, or its name below ./runs. Raises UsageError if there is none."""
    for place in (Path(named), Path(RUNS, named)):
        if named and place.is_dir():
            return place.resolve()
    raise UsageError(
        f"--run: expected the folder of a run, or its name below ./{RUNS}, found no {named!r:.200}"
    )


def read_result(folder: Path) -> TrainedRun:
    """Return what the run says of itself.

    Raises UsageError for one that is not finished, or has no model.
    """
    path = folder / RESULT
    try:
        result = parsed_json(read_bytes(path, LARGEST_OF_RUN))
        job = str(result["job"])
        status = str(result["status"])
        if status != "done":
            raise UsageError(
                f"{folder}: expected a finished run, got one that is {status}: resume it first"
            )
        if not (folder / MODEL / CONFIGURATION).exists():
            raise UsageError(
                f"{folder}: a run of {job} without a model: export a training, `fab job train`"
                " leaves one"
            )
        return _trained(folder, job, result)
    except FileNotFoundError:
        raise UsageError(
            f"{folder}: expected a finished run, found no {RESULT} in it: resume it first"
        ) from None
    except (OSError, ValueError, KeyError, TypeError, ValidationError, RecursionError) as problem:
        raise UsageError(
            f"{path}: expected the result of a training, got {reason_of(problem)}: name another run"
            " with --run"
        ) from None


_TRAINED: TypeAdapter[TrainedRun] = TypeAdapter(TrainedRun)


def _trained(folder: Path, job: str, result: Any) -> TrainedRun:
    settings = result["settings"]
    data = settings["data"]
    named, steps, stride = (data[key] for key in ("source", "window_steps", "window_stride"))
    options = {name: value for name, value in data.items() if name not in BESIDE}
    return _TRAINED.validate_python(
        {
            "folder": folder,
            "job": job,
            "seed": settings["seed"],
            "window_steps": steps,
            "window_stride": stride,
            "options": options,
            "named": named,
            "source": result["dataset"]["source"],
        }
    )


class ExportRefused(ClusterError):
    """A model cannot become this format, or answers otherwise than TensorFlow."""


class Format(ABC):
    """Writes a model as one file or folder, and opens it for the comparison with TensorFlow."""

    name: ClassVar[str]
    quantizable: ClassVar[bool]
    """Whether `--quantize dynamic` has a meaning."""
    packages: ClassVar[dict[str, str]]
    """Optional packages by the module that is imported: what pip calls them."""

    @staticmethod
    @abstractmethod
    def write(model: "StoredModel", path: Path, *, quantized: bool) -> None:
        """Write the model at `path`. Raises ExportRefused."""

    @staticmethod
    @abstractmethod
    def answers_of(path: Path, description: Description) -> Answers:
        """Open what was written at `path`, as a function of raw windows, with one thread."""


FORMATS: Registry[Format] = Registry(
    "format",
    "cluster.export.formats",
    Format,  # type: ignore[type-abstract]
)


def refuse_halves(function: Any, to: str) -> None:
    """Raise ExportRefused for a function that computes in bfloat16 or float16.

    A `mixed_` policy does so. LiteRT has no such matrix product, and tf2onnx writes constants of
    both kinds into one operation.
    """
    for operation in function.graph.get_operations():
        for tensor in operation.outputs:
            if tensor.dtype.name in ("bfloat16", "float16"):
                raise ExportRefused(
                    f"--to {to}: the model computes in {tensor.dtype.name}, which only TensorFlow"
                    " and Keras have: use --to savedmodel or keras, or train without the mixed"
                    " policy"
                )


@dataclass(frozen=True)
class ExportRequest:
    """What a person asked for."""

    to: str
    quantized: bool
    out: Path


def format_of(request: ExportRequest) -> type[Format]:
    """The format. Raises UsageError for what cannot be written, before anything is loaded."""
    format_class = FORMATS[request.to]
    if request.quantized and not format_class.quantizable:
        able = " or ".join(name for name, candidate in FORMATS.items() if candidate.quantizable)
        raise UsageError(
            f"--quantize: expected --to {able}, got --to {request.to}, which keeps float32"
        )
    missing = [
        package for module, package in format_class.packages.items() if not _is_there(module)
    ]
    if missing:
        raise UsageError(
            f"--to {request.to}: needs the packages {', '.join(missing)}: install them with `pip"
            f" install {' '.join(missing)}`, or all of them with `pip install 'pscluster[export]'`"
        )
    refuse_taken(request.out)
    return format_class


def _is_there(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except (ImportError, ValueError):
        return False


def refuse_taken(out: Path) -> None:
    """Raises UsageError unless `out` is free: not there, or an empty folder."""
    if out.is_symlink() or (out.exists() and not out.is_dir()):
        raise UsageError(
            f"--out: expected a new folder, got {out}, which is something else: name another one"
        )
    if out.is_dir() and any(out.iterdir()):
        raise UsageError(
            f"--out: expected a new or an empty folder, {out} holds something: name another one"
        )
    if not out.parent.is_dir():
        raise UsageError(
            f"--out: expected a folder in one that is there, found no {out.parent}: make it first"
        )
    try:
        with folder_beside(out):
            pass
    except OSError as problem:
        raise UsageError(
            f"--out: {out.parent}: cannot be written ({problem.strerror}): make it writable, or"
            " name another folder"
        ) from None


@contextmanager
def whole_export(out: Path) -> Iterator[Path]:
    """A folder beside `out` that takes its place at the end, or goes."""
    with export_beside(out) as partial:
        yield partial
        take_place(partial, out)


@contextmanager
def export_beside(out: Path) -> Iterator[Path]:
    """A folder beside `out` that goes at the end. Raises ClusterError for an OSError."""
    try:
        with folder_beside(out) as partial:
            yield partial
    except OSError as problem:
        raise ClusterError(
            f"{out}: the export cannot be written ({reason_of(problem)}): free some space, or name"
            " another folder with --out"
        ) from None


def take_place(folder: Path, out: Path) -> None:
    """Name the folder `out`. Raises UsageError where that is taken, OSError."""
    refuse_taken(out)
    folder.rename(out)
