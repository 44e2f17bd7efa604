"""A finished run as its folder says: what was trained, how, on what. Without TensorFlow."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from core.exported.description import read_bytes
from core.ground.errors import UsageError, reason_of
from core.ground.files import parsed_json
from core.inventory.training_sections import BESIDE

RESULT = "result.json"
MODEL = "model"
CONFIGURATION = "model.json"
LARGEST_RESULT_BYTES = 64 << 20
RUNS = "runs"


@dataclass(frozen=True)
class Trained:
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


def read_result(folder: Path) -> Trained:
    """Return what the run says of itself.

    Raises UsageError for one that is not finished, or has no model.
    """
    path = folder / RESULT
    try:
        result = parsed_json(read_bytes(path, LARGEST_RESULT_BYTES))
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


_TRAINED: TypeAdapter[Trained] = TypeAdapter(Trained)


def _trained(folder: Path, job: str, result: Any) -> Trained:
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
