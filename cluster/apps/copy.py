"""The copy of an app that a run keeps, to be resumed and evaluated: `app/` and `app.json`.

Both lie in the run's folder.
"""

import json
import logging
import os
import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cluster.apps.environments import KEY, environments, is_there
from cluster.apps.files import (
    DIGEST,
    AppFiles,
    files_of_app,
    is_own,
    operators_digests,
    refuse_foreign,
    remember_digest,
)
from core.ground.errors import ClusterError, UsageError, reason_of
from core.ground.files import atomic_write, read_json, whole_folder, write_refusal

if TYPE_CHECKING:
    from core.inventory import Inventory

log = logging.getLogger(__name__)

FOLDER = "app"
RECORD = "app.json"
FETCHED = "fetched.json"
"""The file of a fetched run that names its node and job."""
SCHEMA = 1
_OF_RUNS = (RECORD, FETCHED, "coordinator.log", "result.json")
"""Files by which a folder `app` beside one is of a run."""
_MOST_RECORD_BYTES = 64 << 10
_CHECKPOINTS = "checkpoints/*.safetensors"


@dataclass(frozen=True)
class KeptApp:
    """What `app.json` says of a run's app: digest of its files, their source, its environment.

    `environment` is the key of the environment that the run began in; empty where the app has no
    requirements of its own. `data` is `jobs.train.data.source` as it was given then.
    """

    path: Path
    digest: str
    source: str
    environment: str = ""
    data: str | None = None


def keep(app: AppFiles, run: Path, environment: str = "", data: str | None = None) -> KeptApp:
    """Copy the app into the folder of its run, whole or not at all.

    The record comes last: a copy without it does not count. Raises ClusterError, and UsageError if
    the app has changed since it was looked over.
    """
    target = run / FOLDER
    try:
        # What is there is of a coordinator that died before it wrote the record.
        with whole_folder(target) as partial:
            app.write(partial)
    except OSError as problem:
        raise write_refusal(
            target, "the run's copy of the app cannot be written", problem
        ) from None
    kept_app = KeptApp(target, app.digest, str(app.source), environment, data)
    written = {"schema": SCHEMA, **vars(kept_app)}
    del written["path"]
    atomic_write(run / RECORD, json.dumps(written, indent=2).encode() + b"\n")
    return kept_app


def recorded_app(run: Path) -> KeptApp | None:
    """The app of a run; None where the run is none of an app.

    Raises UsageError for a damaged record or copy, ClusterError for one that cannot be read.
    """
    try:
        content = read_json(run / RECORD, _MOST_RECORD_BYTES)
        if content["schema"] != SCHEMA:
            raise ValueError(f"schema {content['schema']}, this version reads {SCHEMA}")
        kept_app = KeptApp(
            run / FOLDER,
            _text(content, "digest", DIGEST),
            _text(content, "source"),
            content["environment"] and _text(content, "environment", KEY),
            content["data"] and _text(content, "data"),
        )
    except FileNotFoundError:
        return None
    except OSError as problem:
        raise ClusterError(
            f"{run / RECORD}: cannot be read: {reason_of(problem)}: look at its owner and its disk"
        ) from None
    except (ValueError, KeyError, TypeError) as problem:
        raise UsageError(
            f"{run / RECORD}: expected the record of the run's app, got {type(problem).__name__}:"
            f" {problem}: begin a new run"
        ) from None
    if files_of_app(kept_app.path).digest != kept_app.digest:
        raise UsageError(
            f"{kept_app.path}: is no longer the app that the run began with: put its files back, or"
            " begin a new run with --app and the app's own source"
        )
    return kept_app


def own_app(run: Path) -> KeptApp | None:
    """The app of a run, as `recorded_app`, whose code may run.

    Raises UsageError for code of others, and as `recorded_app` does.
    """
    kept_app = recorded_app(run)
    if kept_app is not None:
        refuse_foreign(kept_app.digest, run)
    return kept_app


def why_foreign(run: Path) -> str | None:
    """Why a run is not taken before a person names it: who made it, or its code.

    None for one of our own.

    A built-in network has no code.
    """
    try:
        origin = read_json(run / FETCHED)
        return f"was fetched from {origin['node']} (job {origin['job']})"
    except FileNotFoundError:
        pass
    except OSError as problem:
        return f"has a {FETCHED} that cannot be read ({problem.strerror})"
    except (ValueError, KeyError, TypeError):
        return "was fetched"
    if not any(os.path.lexists(run / name) for name in (FOLDER, RECORD)):
        return None
    try:
        trusted = is_own(files_of_app(run / FOLDER).digest)
    except UsageError:
        trusted = False
    if trusted:
        return None
    return "has code that was not trained from here"


def _text(
    content: Any, key: str, pattern: re.Pattern[str] = re.compile(r".{0,4096}", re.DOTALL)
) -> str:
    value = content[key]
    if not isinstance(value, str) or not pattern.fullmatch(value):
        raise ValueError(f"{key}: {value!r:.60}")
    return value


@dataclass(frozen=True)
class AppOfRun:
    """The app of one coordinator: where it is read, and the run's copy if there is one.

    `environment` is the key of the environment it runs in, empty for the common one. `notes` are
    lines for the person. `in_place`: it is imported where it lies, because those are the person's
    own files.
    """

    path: Path
    copy: KeptApp | None = None
    files: AppFiles | None = None
    environment: str = ""
    data: str | None = None
    notes: tuple[str, ...] = ()
    in_place: bool = False

    @property
    def name(self) -> str:
        """The name of the file or folder that the app came from."""
        if self.copy is None:
            source = self.path
        else:
            source = Path(self.copy.source)
        if source.suffix == ".py":
            return source.stem
        return source.name

    def kept_with(self, run: Path) -> "AppOfRun":
        """Return the app with a copy in the folder of the run, made now where it has none.

        Raises ClusterError.
        """
        if self.copy is not None or self.files is None:
            return self
        return replace(self, copy=keep(self.files, run, self.environment, self.data))


def app_path(inventory: "Inventory") -> Path | None:
    """The absolute path of `jobs.train.app`; None without one.

    It is relative to the folder of the inventory's file, `~` is the user's home.
    """
    configured_path = inventory.jobs.train.app
    if configured_path is None:
        return None
    return Path(
        os.path.normpath(inventory.path.absolute().parent / os.path.expanduser(configured_path))
    )


def app_to_train(
    inventory: "Inventory", resumed: Path | None, environment: str, member: bool = False
) -> AppOfRun | None:
    """The app of a training; None for a built-in model. A resumed run continues with its own copy.

    `environment` is the key of the one that `fab` has made for the app as it is now. The app that a
    person names becomes their own; a `member` of a sweep takes none that was not before. Raises
    UsageError, ClusterError.
    """
    source = app_path(inventory)
    data = inventory.jobs.train.data.source
    in_place = (
        operators_digests() is None and not member and (source is None or run_of(source) is None)
    )
    if operators_digests() is None and not member and source is not None:
        _remember(source, resumed is not None)
    if resumed is None:
        copy = None
    else:
        copy = own_app(resumed)
    if copy is not None and member and source is None:
        raise UsageError(f"{resumed}: has an app, and the sweep has none: remove that folder")
    if copy is not None:
        return AppOfRun(
            copy.path,
            copy,
            None,
            _environment(inventory, copy, environment),
            copy.data,
            _changed(copy, source),
        )
    if source is None:
        if resumed is not None and os.path.lexists(resumed / FOLDER):
            raise UsageError(
                f"{resumed}: has an app and no {RECORD}, so whose it is is not known: name it with"
                " --app"
            )
        return None
    if resumed is not None and any(resumed.glob(_CHECKPOINTS)):
        raise UsageError(
            f"{resumed}: began without an app: resume it without --app and jobs.train.app"
        )
    files = files_of_app(source)
    refuse_foreign(files.digest, source.parent)
    return AppOfRun(source, None, files, environment, data, in_place=in_place)


def named_app(path: Path) -> AppFiles:
    """Return the files of an app that a person names, which is their own from then on.

    It is named with --app or in an inventory. An app in a run's folder does not become theirs: it
    may have come from anywhere. Raises UsageError, ClusterError.
    """
    files = files_of_app(path)
    run = run_of(path)
    if run is not None:
        refuse_foreign(files.digest, run)
    else:
        remember_digest(files.digest, str(path))
    return files


def run_of(path: Path) -> Path | None:
    """Return the run whose copy of an app the path lies in; None for any other place.

    The path counts as it is written and behind links.
    """
    written = Path(os.path.abspath(path))
    resolved = path.resolve()
    copies = (
        folder
        for folder in (written, *written.parents, resolved, *resolved.parents)
        if folder.name == FOLDER
    )
    return next(
        (
            folder.parent
            for folder in copies
            if any(os.path.lexists(folder.parent / name) for name in _OF_RUNS)
        ),
        None,
    )


def _remember(path: Path, has_copy: bool) -> None:
    """List the app that a person names.

    A run with a copy of its own does without the app as it is now.
    """
    try:
        named_app(path)
    except UsageError:
        if not has_copy:
            raise


def with_app(inventory: "Inventory", app: AppOfRun | None) -> "Inventory":
    """Return the inventory with `jobs.train.app` as the coordinator reads it: absolute, or null."""
    train = inventory.jobs.train.model_copy(
        update={"app": None if app is None else str(app.path.absolute())}
    )
    jobs = inventory.jobs.model_copy(update={"train": train})
    return inventory.model_copy(update={"jobs": jobs})


def app_to_evaluate(inventory: "Inventory", run: Path, environment: str) -> AppOfRun | None:
    """The app of the training run to evaluate; None for one of a built-in model.

    Raises UsageError.
    """
    copy = own_app(run)
    if copy is None:
        return None
    return AppOfRun(copy.path, copy, None, _environment(inventory, copy, environment), copy.data)


def _environment(inventory: "Inventory", copy: KeptApp, current_key: str) -> str:
    """Return the environment of the run's beginning; once it is gone, the one made now."""
    if not copy.environment or is_there(environments(inventory), copy.environment):
        return copy.environment
    return current_key or copy.environment


def _changed(copy: KeptApp, source: Path | None) -> tuple[str, ...]:
    """A line if the source is no longer what the run began with."""
    if source is None:
        return ()
    try:
        same = files_of_app(source).digest == copy.digest
    except UsageError as problem:
        return (f"{problem}; the run continues with its own copy, {copy.path}",)
    if same:
        return ()
    return (
        (
            f"{source}: has changed since the run began: the run continues with its own copy,"
            f" {copy.path}"
        ),
    )
