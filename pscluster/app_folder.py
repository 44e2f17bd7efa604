"""The arguments of `train`, written as an app: a folder with `app.py`.

A function travels as its source, so that a reader of the folder sees what was trained; a pickle
would tie it to one Python and run when it is read. What the function's source needs from its module
comes with it or is refused by name.
"""

import hashlib
import json
import os
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from core.data.batch import BatchValidator
from core.data.dataset import CLASSIFICATION
from core.data.given import batches_of
from core.data.stored_values import plain
from core.ground.errors import DataError, UsageError, reason_of
from core.ground.files import folder_beside, user_cache
from pscluster.function_source import ModuleCode, source_of

ARRAYS = ("x_train", "y_train", "x_test", "y_test", "groups", "labels", "weights")
NEEDED = ARRAYS[:4]
COMPILED = ("loss", "loss_weights", "metrics", "weighted_metrics", "run_eagerly")
"""Arguments of a model's `compile` that an app takes along."""
FUTURE = "from __future__ import annotations  # what a function says of its types stays behind\n"
IN_APP_BYTES = 48 << 20
"""Arrays of so many bytes lie in the app's folder, which may have 64 MiB; more lie beside it."""

READS_ARRAYS = '''
def data(folder):
    """The arrays that were given to `train`."""
    from pathlib import Path

    import numpy as np

    found = Path(folder)
    found = found / "arrays" if (found / "arrays").is_dir() else found
    return {
        file.stem: np.load(file, mmap_mode="r", allow_pickle=False)
        for file in sorted(found.glob("*.npy"))
    }
'''
OPENS_MODEL = '''
def model(input_shape, outputs):
    """The model that was given to `train`, with its weights, loss and metrics."""
    import json
    from pathlib import Path

    import keras

    found = keras.models.load_model(Path(__file__).with_name("model.keras"), compile=False)
    compiled = Path(__file__).with_name("compiled.json")
    if compiled.is_file():
        text = compiled.read_text(encoding="utf-8")
        stated = keras.saving.deserialize_keras_object(json.loads(text))
        found.compile(None, **stated)
    return found
'''


@dataclass(frozen=True)
class AppParts:
    """What `train` was given."""

    model: Any = None
    data: Any = None
    loss: Callable[..., Any] | None = None
    metrics: Callable[..., Any] | None = None
    augment: Callable[..., Any] | None = None
    task: str | None = None


def app_flags(arguments: AppParts, cache: Path | None = None) -> tuple[str, ...]:
    """Return the flags that name these parts.

    What is no path or name is written below `cache`, the user's by default.

    Raises UsageError, or DataError for arrays that cannot be stored.
    """
    named = isinstance(arguments.model, str | Path) or arguments.model is None
    extras = [
        name
        for name in ("loss", "metrics", "augment", "task")
        if getattr(arguments, name) is not None
    ]
    if named and extras:
        raise UsageError(
            f"{extras[0]}: belongs to a model that is a function; an app has it in its app.py"
        )
    arrays = None
    place = []
    if isinstance(arguments.data, str | Path):
        place = ["--data", os.fspath(arguments.data)]
    elif arguments.data is not None:
        arrays = arrays_of(arguments.data, arguments.task)
    if named:
        if arrays is not None:
            raise UsageError(
                "data: arrays go with a model that is a function; give a path to a model that is"
                " named"
            )
        return (*_named(arguments.model), *place)
    folder, beside = _written(arguments, arrays, (cache or user_cache()) / "apps")
    if beside is not None:
        place = ["--data", str(beside)]
    return ("--app", str(folder), *place)


def arrays_of(data: Any, task: str | None = None) -> dict[str, np.ndarray[Any, Any]]:
    """Return arrays by name, of a dict, `Data` or Keras's ((x_train, y_train), (x_test, y_test)).

    Raises DataError for what the job would refuse, in its words, and for an array that is missing
    or of objects.
    """
    if isinstance(data, tuple | list) and len(data) == 2 and all(len(part) == 2 for part in data):
        data = dict(zip(NEEDED, [array for part in data for array in part], strict=True))
    if not isinstance(data, Mapping):
        data = {name: getattr(data, name, None) for name in ARRAYS}
    for name in NEEDED:
        if data.get(name) is None:
            raise DataError(
                f"data: expected arrays named {', '.join(NEEDED)} and perhaps"
                f" {', '.join(ARRAYS[4:])}; {name} is missing"
            )
    batches, labels = batches_of(data, task or CLASSIFICATION, "data")
    gate = BatchValidator("data", task or CLASSIFICATION, labels)
    for batch in batches:
        gate.passed(batch)
    gate.labels()
    arrays = {
        name: plain(value, f"data: {name}") for name, value in data.items() if value is not None
    }
    for name, array in arrays.items():
        if array.dtype.hasobject:
            raise DataError(
                f"data: {name}: expected numbers or words of one type, found Python objects"
            )
    return arrays


def _named(model: str | Path | None) -> list[str]:
    if model is None:
        return []
    path = Path(model)
    if isinstance(model, Path) or path.suffix == ".py" or os.sep in str(model) or path.exists():
        if not path.exists():
            raise UsageError(
                f"{model}: no such app: expected a Python file or a folder with app.py"
            )
        return ["--app", str(path.resolve())]
    return ["--model", str(model)]


def _written(
    arguments: AppParts, arrays: dict[str, np.ndarray[Any, Any]] | None, apps: Path
) -> tuple[Path, Path | None]:
    """Return the app's folder and that of large arrays; equal content is used again."""
    text = _text(arguments, arrays)
    apps.mkdir(parents=True, exist_ok=True)
    large = arrays is not None and sum(array.nbytes for array in arrays.values()) > IN_APP_BYTES
    with folder_beside(apps / "new") as workshop:
        app = workshop / "app"
        store = workshop / "arrays" if large else app / "arrays"
        app.mkdir()
        (app / "app.py").write_text(text, encoding="utf-8")
        if not callable_alone(arguments.model):
            _write_model(arguments.model, app)
        if arrays is not None:
            store.mkdir()
            for name, array in arrays.items():
                np.save(store / f"{name}.npy", array, allow_pickle=False)
        name = re.sub(
            r"[^A-Za-z0-9_]",
            "",
            str(getattr(arguments.model, "__name__", None) or arguments.model.name),
        )[:40]
        folder = _moved(app, apps, name or "app")
        return folder, _moved(store, apps, "arrays") if large else None


def _write_model(model: Any, app: Path) -> None:
    """Write the model and what it is compiled with.

    Raises UsageError for what Keras cannot write, or the job not open.
    """
    try:
        model.save(app / "model.keras")
        if model.compiled:
            compiled = model.get_compile_config()
        else:
            compiled = None
    except OSError:
        raise
    except Exception as problem:  # whatever a layer, or a schedule of the person's own, raises
        raise UsageError(
            f"model: Keras cannot write it ({reason_of(problem)}): give its classes get_config(),"
            " and leave what is your own out of compile()"
        ) from problem
    if compiled is None:
        return
    configuration = model._compile_config.config
    for name, key in (("loss", "loss"), ("metrics", "metrics"), ("weighted_metrics", "metrics")):
        object_name = next(_own_objects(configuration.get(name)), None)
        if object_name is not None:
            raise UsageError(
                f"model: it is compiled with {object_name}, which is none of Keras's, so the job"
                " would not find it or take another of this name: give train a function, as"
                f" {key}=, and leave it out of compile()"
            )
    stated = {name: compiled[name] for name in COMPILED}
    (app / "compiled.json").write_text(json.dumps(stated), encoding="utf-8")


def _own_objects(compiled: Any) -> Iterator[str]:
    """Yield names of functions and classes in a loss or in metrics that are none of Keras's."""
    if compiled is None or isinstance(compiled, str):
        return
    if isinstance(compiled, Mapping | list | tuple):
        for entry in compiled.values() if isinstance(compiled, Mapping) else compiled:
            yield from _own_objects(entry)
        return
    if not str(getattr(compiled, "__module__", "")).startswith("keras."):
        yield getattr(compiled, "__name__", type(compiled).__name__)
    for inside in ("fn", "_fn"):  # of a loss, and of a metric that is a mean
        yield from _own_objects(getattr(compiled, inside, None))


def _moved(folder: Path, apps: Path, name: str) -> Path:
    digest = hashlib.sha256()
    for file in sorted(path for path in folder.rglob("*") if path.is_file()):
        digest.update(f"{file.relative_to(folder)} {file.stat().st_size}\n".encode())
        with file.open("rb") as stream:
            digest.update(hashlib.file_digest(stream, "sha256").digest())
    place = apps / f"{name}-{digest.hexdigest()[:16]}"  # a run shows it as the model's name
    try:
        folder.rename(place)
    except OSError:
        if not place.is_dir() or not any(place.iterdir()):
            raise
    return place


def settings_of(model: Any) -> dict[str, Any]:
    """Return what a Keras model says of its training: keys of `jobs.train`.

    Raises UsageError for what no job can do.
    """
    if model is None or isinstance(model, str | Path) or callable_alone(model):
        return {}
    from cluster.apps.keras_settings import optimizer_settings, own_step

    problem = own_step(model)
    if problem is not None:
        raise UsageError(problem)
    return optimizer_settings(model) or {}


def callable_alone(model: Any) -> bool:
    """Whether it is a function rather than a Keras model, which can be called too."""
    return not hasattr(model, "save")


def _text(arguments: AppParts, arrays: object) -> str:
    """Return `app.py`. Raises UsageError for a function without a source or with more than it."""
    pieces = ModuleCode()
    if callable_alone(arguments.model):
        pieces = pieces.merged(source_of(arguments.model, "model", ("input_shape", "outputs")))
    for name, positional in (
        ("loss", ("y", "outputs")),
        ("metrics", ("y", "outputs")),
        ("augment", ("x", "y", "seed")),
    ):
        if (function := getattr(arguments, name)) is not None:
            pieces = pieces.merged(source_of(function, name, positional))
    blocks = ['"""Written by pscluster from what `train` was given."""\n', FUTURE, pieces.text()]
    blocks += [OPENS_MODEL] if not callable_alone(arguments.model) else []
    blocks += [READS_ARRAYS] if arrays is not None else []
    blocks += [f"\ntask = {arguments.task!r}\n"] if arguments.task is not None else []
    text = "\n".join(blocks)
    try:
        compile(text, "app.py", "exec")
    except SyntaxError as problem:
        raise UsageError(
            f"model: its source does not stand alone: {problem}; put it into a file, an app"
        ) from problem
    return text
