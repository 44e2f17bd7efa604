"""The copy of an app that a run keeps, so that it can be resumed and evaluated: `runs/<run>/app/` and `app.json`."""

import json
import logging
import os
import re
import shutil
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cluster.apps.environments import KEY, environments, is_there
from cluster.apps.files import AppFiles, app_path, look
from cluster.atomic_write import atomic_write, refused
from cluster.errors import UsageError

if TYPE_CHECKING:
    from cluster.inventory import Inventory

log = logging.getLogger(__name__)

FOLDER = "app"
RECORD = "app.json"
SCHEMA = 1
_MOST_RECORD_BYTES = 64 << 10
_DIGEST = re.compile(r"[0-9a-f]{64}")
_CHECKPOINTS = "checkpoints/*.safetensors"


@dataclass(frozen=True)
class KeptApp:
    """What `app.json` says of a run's app: the digest of its files, where they came from, its environment.

    `environment` is the key of the environment that the run began in; empty where the app has no requirements of its
    own. `data` is `jobs.train.data.source` as it was given then.
    """

    path: Path
    digest: str
    source: str
    environment: str = ""
    data: str | None = None


def keep(app: AppFiles, run: Path, environment: str = "", data: str | None = None) -> KeptApp:
    """Copy the app into the folder of its run, whole or not at all.

    The record comes last: a copy without it does not count. Raises ClusterError, and UsageError if the app has changed
    since it was looked over.
    """
    target, partial = run / FOLDER, run / f".{FOLDER}.{os.getpid()}.partial"
    try:
        try:
            partial.mkdir()
            for file in app.files:
                path = partial / file.name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(app.content(file))
            with suppress(FileNotFoundError):  # of a coordinator that died before it wrote the record
                shutil.rmtree(target)
            partial.rename(target)
        finally:
            shutil.rmtree(partial, ignore_errors=True)
    except OSError as problem:
        raise refused(target, "the run's copy of the app cannot be written", problem) from None
    made = KeptApp(target, app.digest, str(app.source), environment, data)
    written = {"digest": made.digest, "source": made.source, "environment": environment, "data": data}
    atomic_write(run / RECORD, json.dumps({"schema": SCHEMA, **written}, indent=2).encode() + b"\n")
    return made


def kept(run: Path) -> KeptApp | None:
    """The app of a run; None where the run is none of an app. Raises UsageError for a damaged record or copy."""
    try:
        with (run / RECORD).open("rb") as stream:
            content: Any = json.loads(stream.read(_MOST_RECORD_BYTES))
        if content["schema"] != SCHEMA:
            raise ValueError(f"schema {content['schema']}, this version reads {SCHEMA}")
        found = KeptApp(
            run / FOLDER,
            _text(content, "digest", _DIGEST),
            _text(content, "source"),
            content["environment"] and _text(content, "environment", KEY),
            content["data"] and _text(content, "data"),
        )
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as problem:
        raise UsageError(
            f"{run / RECORD}: expected the record of the run's app, got {type(problem).__name__}: {problem}: begin a "
            "new run"
        ) from None
    if look(found.path).digest != found.digest:
        raise UsageError(
            f"{found.path}: is no longer the app that the run began with: put its files back, or begin a new run with "
            f"--app {found.path}"
        )
    return found


def _text(content: Any, key: str, pattern: re.Pattern[str] = re.compile(r".{0,4096}", re.DOTALL)) -> str:
    value = content[key]
    if not isinstance(value, str) or not pattern.fullmatch(value):
        raise ValueError(f"{key}: {value!r:.60}")
    return value


@dataclass(frozen=True)
class AppOfRun:
    """The app of one coordinator: where it is read, and the run's copy if there is one.

    `environment` is the key of the environment it runs in, empty for the common one. `notes` are lines for the person.
    """

    path: Path
    copy: KeptApp | None = None
    files: AppFiles | None = None
    environment: str = ""
    data: str | None = None
    notes: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """That of the file or folder that the app came from."""
        source = self.path if self.copy is None else Path(self.copy.source)
        return source.stem if source.suffix == ".py" else source.name

    def kept_with(self, run: Path) -> "AppOfRun":
        """The same with a copy in the folder of the run, made now where it has none. Raises ClusterError."""
        if self.copy is not None or self.files is None:
            return self
        return replace(self, copy=keep(self.files, run, self.environment, self.data))


def app_to_train(inventory: "Inventory", resumed: Path | None, environment: str) -> AppOfRun | None:
    """The app of a training; None for a built-in model. A resumed run continues with its own copy.

    `environment` is the key of the one that `fab` has made for the app as it is now. Raises UsageError.
    """
    given, data = app_path(inventory), inventory.jobs.train.data.source
    copy = None if resumed is None else kept(resumed)
    if copy is not None:
        return AppOfRun(
            copy.path, copy, None, _environment(inventory, copy, environment), copy.data, _changed(copy, given)
        )
    if given is None:
        return None
    if resumed is not None and any(resumed.glob(_CHECKPOINTS)):
        raise UsageError(f"{resumed}: began without an app: resume it without --app and jobs.train.app")
    return AppOfRun(given, None, look(given), environment, data)


def with_app(inventory: "Inventory", app: AppOfRun | None) -> "Inventory":
    """The inventory with `jobs.train.app` as the coordinator reads it: an absolute path, or null."""
    train = inventory.jobs.train.model_copy(update={"app": None if app is None else str(app.path.absolute())})
    jobs = inventory.jobs.model_copy(update={"train": train})
    return inventory.model_copy(update={"jobs": jobs})


def app_to_evaluate(inventory: "Inventory", run: Path, environment: str) -> AppOfRun | None:
    """The app of the training run to evaluate; None for one of a built-in model. Raises UsageError."""
    copy = kept(run)
    if copy is None:
        return None
    return AppOfRun(copy.path, copy, None, _environment(inventory, copy, environment), copy.data)


def _environment(inventory: "Inventory", copy: KeptApp, given: str) -> str:
    """That of the run's beginning; once it is gone, the one that was made for the app now."""
    if not copy.environment or is_there(environments(inventory), copy.environment):
        return copy.environment
    return given or copy.environment


def _changed(copy: KeptApp, given: Path | None) -> tuple[str, ...]:
    """A line if the source is no longer what the run began with."""
    if given is None:
        return ()
    try:
        same = look(given).digest == copy.digest
    except UsageError as problem:
        return (f"{problem}; the run continues with its own copy, {copy.path}",)
    return (
        () if same else (f"{given}: has changed since the run began: the run continues with its own copy, {copy.path}",)
    )
