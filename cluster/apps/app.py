"""An app: what a Python file offers, found by name, and how its functions are called.

A process imports a private copy, where no other account writes and nothing is but the app: in a
run's folder there may be more than its digest is of, such as compiled modules, which Python would
take in the place of the sources.
"""

import atexit
import importlib.util
import inspect
import re
import sys
import tempfile
import traceback
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from types import ModuleType
from typing import Any

from cluster.apps.files import ENTRY, AppFiles, files_of_app, refuse_foreign
from cluster.apps.guest import Guest
from cluster.apps.imported import name_of as module_name_of
from core.ground.errors import ClusterError, UsageError
from core.ground.files import folder_beside, write_refusal

DECIDED_ELSEWHERE: Mapping[str, str] = {
    "callbacks": "jobs.train.early_stopping is a setting, and history.jsonl has each epoch",
    "optimizer": "jobs.train.optimizer decides, or the optimizer of compile()",
    "schedule": "jobs.train.schedule decides",
    "learning_rate": "jobs.train.optimizer.learning_rate decides",
    "epochs": "jobs.train.epochs decides",
    "batch_size": "jobs.train.batch_size decides",
    "class_weight": "jobs.train.class_weights decides",
    "sample_weight": "data() gives `weights`",
    "validation_data": "jobs.train.validation_subjects decides",
}
"""Names that other programs read of a module, with what decides here."""
NEAR_LIKENESS = 0.8
"""The likeness of names from which a function is probably misspelt."""


def notes_on_unread(module: ModuleType, function_names: Collection[str]) -> Iterator[str]:
    """Yield a line on each setting, and on each function whose name is near `function_names`."""
    file = f"{module.__file__}".rpartition("/")[2]
    for name, decides in DECIDED_ELSEWHERE.items():
        if name in vars(module):
            yield f"{file}: {name} is not read: {decides}"
    missing = [name for name in function_names if name not in vars(module)]
    for name, value in vars(module).items():
        is_own = getattr(value, "__module__", None) == module.__name__
        near = get_close_matches(name, missing, 1, NEAR_LIKENESS)
        if callable(value) and is_own and near:
            yield f"{file}: {name}() is called by your own code alone: is it meant as {near[0]}()?"


_copies = ExitStack()


def private_copy(app: AppFiles) -> Path:
    """A new folder with the files of the app, each with the bytes that its digest is of.

    It goes with `remove_copies`, or with the next copy after this process was killed. Raises
    UsageError if the app has changed since it was looked over, ClusterError if it cannot be made.
    """
    place = Path(tempfile.gettempdir(), "pscluster-app")
    try:
        folder = _copies.enter_context(folder_beside(place, 0o700))
        app.write(folder)
    except OSError as problem:
        other = "set TMPDIR to another folder"
        raise write_refusal(
            place, "the app cannot be copied to be imported", problem, other
        ) from None
    return folder


def remove_copies() -> None:
    """Remove what this process made; to be called before it ends by `os._exit`."""
    _copies.close()


atexit.register(remove_copies)


TAKES = {
    "model": ("input_shape", "outputs"),
    "init": ("seed",),
    "forward": ("parameters", "statistics", "x", "training", "seed"),
    "data": ("folder",),
    "loss": ("y", "outputs"),
    "metrics": ("y", "outputs"),
    "augment": ("x", "y", "seed"),
}
"""The functions of an app and what they take."""

TASKS = ("classification", "multilabel", "regression")
LONGEST_REASON = 300
WRAPPED = "Exception encountered when calling"
"""The beginning of a message that Keras puts around that of a layer."""
ANSI = re.compile(r"\x1b\[[0-9;]*m")


class AppError(UsageError):
    """An app that cannot be used: the message names its file, the function and the remedy."""


@dataclass(frozen=True)
class App:
    """An imported app and the functions that it has.

    `file` is what messages name; None where it states no task.

    `read_from` is the private copy of `file` that was imported; None where that is `file` itself.
    """

    name: str
    file: Path
    task: str | None
    functions: dict[str, Callable[..., Any]]
    read_from: Path | None = None
    guest: Guest = field(default_factory=Guest, compare=False)
    notes: tuple[str, ...] = ()
    """Lines on what the cluster does not read of it."""

    @property
    def folder(self) -> Path:
        """Return the folder of the app's other files."""
        return (self.read_from or self.file).parent

    @property
    def has_model(self) -> bool:
        """Whether it brings a model; an app with data() alone trains a built-in one."""
        return self.has("model") or self.has("init")

    def has(self, name: str) -> bool:
        """Whether the app has this function."""
        return name in self.functions

    def call(self, name: str, *arguments: Any) -> Any:
        """The function's answer. Raises AppError, also for whatever the function raises."""
        with self.blamed(name):
            return self.functions[name](*arguments)

    @contextmanager
    def blamed(self, name: str) -> Iterator[None]:
        """Blame `name` of the app for what goes wrong inside: one line, with the file and line.

        What its code changes of the process holds inside alone.
        """
        try:
            with self.guest.inside(self.read_from or self.file):
                yield
        except ClusterError:
            raise
        except (Exception, SystemExit) as problem:
            where = _where(problem, self.file, self.read_from)
            raise AppError(f"{where}: {name}() failed: {_reason(problem)}") from problem


def name_of(source: Path) -> str:
    """Return the name of an app: its folder, or its file without the ending."""
    if source.is_dir():
        return source.resolve().name
    return source.stem


def load_copy(path: Path, name: str) -> App:
    """Import a run's copy of an app, or what came with a job, if its digest is this account's own.

    What is imported are the bytes that the digest is of: they are read once, into a private folder.
    Raises UsageError for code of others, AppError.
    """
    files = files_of_app(path)
    refuse_foreign(files.digest, path.parent)
    return load(path, name, private_copy(files) / ENTRY)


def load(path: Path, name: str | None = None, read_from: Path | None = None) -> App:
    """Import the app in a file or folder.

    Raises AppError in one line for whatever is wrong with it.

    `name` is its name where `path` is a copy; else it is that of the path. `read_from` is the file
    that is imported where that is a copy of the app's.
    """
    if path.is_dir():
        file = path / ENTRY
    else:
        file = path
    if not file.is_file():
        raise AppError(
            f"{path}: expected a Python file, or a folder with {ENTRY}, got {_kind(path)}"
        )
    imported = (read_from or file).resolve()
    guest = Guest()
    with guest.inside(imported):
        module = _imported(imported, file)
    functions = {
        name: value for name in TAKES if (value := getattr(module, name, None)) is not None
    }
    for function, value in functions.items():
        _check(file, function, value)
    if "model" in functions and ("init" in functions or "forward" in functions):
        raise AppError(
            f"{file}: expected model(), or init() and forward(), got both: keep one of them"
        )
    if ("init" in functions) != ("forward" in functions):
        if "init" in functions:
            present, missing = ("init", "forward")
        else:
            present, missing = ("forward", "init")
        raise AppError(f"{file}: {present}() without {missing}(): a model without Keras needs both")
    if not {"model", "init", "data"} & set(functions):
        names = [name for name in vars(module) if not name.startswith("_")]
        close = [
            f"{match[0]} looks like {name}"
            for name in ("model", "data", "init")
            if (match := get_close_matches(name, names, 1))
        ]
        if close:
            hint = f" ({'; '.join(close)})"
        else:
            hint = ""
        raise AppError(
            f"{file}: expected a function model(input_shape, outputs), or init() and"
            f" forward(){hint}"
        )
    task = getattr(module, "task", None)
    if task is not None and task not in TASKS:
        raise AppError(
            f"{file}: task: expected {', '.join(TASKS[:-1])} or {TASKS[-1]}, got {task!r}"
        )
    notes = tuple(notes_on_unread(module, TAKES))
    return App(name or name_of(path), file, task, functions, read_from, guest, notes)


def _kind(path: Path) -> str:
    if path.is_dir():
        return f"a folder without {ENTRY}"
    if path.exists():
        return "something else"
    return "nothing there"


def _imported(file: Path, app_file: Path) -> ModuleType:
    name = module_name_of(file)
    spec = importlib.util.spec_from_file_location(name, file)
    if spec is None or spec.loader is None:
        raise AppError(f"{file}: expected a Python file that ends in .py: rename it")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    if str(file.parent) not in sys.path:
        sys.path.insert(0, str(file.parent))
    before = sys.dont_write_bytecode
    sys.dont_write_bytecode = True  # the folder may be a run's copy, or read-only
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as problem:
        del sys.modules[name]
        if isinstance(problem, ModuleNotFoundError):
            remedy = (
                f": add {problem.name} to requirements.txt beside {file.name}, or lay the module"
                " there"
            )
        elif isinstance(problem, SystemExit):
            remedy = (
                ': an app is imported, not run: put what it does under `if __name__ == "__main__":`'
            )
        else:
            remedy = ""
        where = _where(problem, app_file, file)
        raise AppError(f"{where}: cannot be imported: {_reason(problem)}{remedy}") from problem
    finally:
        sys.dont_write_bytecode = before
    return module


def _check(file: Path, name: str, value: Any) -> None:
    parameters = TAKES[name]
    declaration = f"{name}({', '.join(parameters)})"
    if not callable(value) or hasattr(value, "get_config"):
        description = type(value).__name__
        if callable(value):  # of Keras, and without its package this process knows none of it
            description = f"one of Keras, a {description}: write def {declaration}: return it"
        raise AppError(f"{file}: {name}: expected a function {declaration}, got {description}")
    if inspect.iscoroutinefunction(value):
        raise AppError(f"{file}: {name}: expected a plain function {declaration}, got an async one")
    try:
        signature = inspect.signature(value)
    except (TypeError, ValueError):
        return
    try:
        signature.bind(*parameters)
    except TypeError:
        raise AppError(
            f"{file}: {name}: expected a function {declaration}, got {name}{signature}"
        ) from None


def _where(problem: BaseException, file: Path, read_from: Path | None) -> str:
    """The app's file and line nearest to the problem; `file` was imported from `read_from`."""
    folder = str((read_from or file).resolve().parent)
    if isinstance(problem, SyntaxError) and problem.filename:
        return f"{_name_beside(problem.filename, folder, file)}:{problem.lineno}"
    lines = [
        frame
        for frame in traceback.extract_tb(problem.__traceback__)
        if frame.filename.startswith(folder) and "site-packages" not in frame.filename
    ]
    if lines:
        return f"{_name_beside(lines[-1].filename, folder, file)}:{lines[-1].lineno}"
    return str(file)


def _name_beside(name: str, folder: str, file: Path) -> str:
    """The name of a file in the imported folder as it lies beside `file`."""
    if name.startswith(f"{folder}/"):
        return str(file.resolve().parent / name[len(folder) + 1 :])
    return name


def _reason(problem: BaseException) -> str:
    """Kind and text of a foreign exception in one line.

    Keras and TensorFlow write paragraphs: the first one counts.
    """
    if isinstance(problem, SyntaxError):
        return f"SyntaxError: {problem.msg}"
    paragraphs = [
        part
        for part in ANSI.sub("", str(problem)).strip().split("\n\n")
        if not part.startswith(WRAPPED)
    ]
    text = " ".join((paragraphs or [""])[0].split())
    if len(text) <= LONGEST_REASON:
        message = text
    else:
        message = f"{text[:LONGEST_REASON]}..."
    if message:
        return f"{type(problem).__name__}: {message}"
    return type(problem).__name__
