"""The recordings of a job: found, prepared and announced in a line, and the rows that train.

With `connection: ssh` nothing is prepared on a node: all nodes map one prepared folder that lies on
the shared storage.
"""

import os
import shutil
import stat
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from cluster.apps.app import App
from cluster.apps.environments import app_data_folder, keep_latest, open_to_roles
from cluster.jobs.cancel import Cancel
from cluster.jobs.progress import Display
from core.cage import landlock
from core.data import Dataset, Source, find_source, open_prepared, prepare, split_validation
from core.data.batch import GIGABYTE, Batches, bounded
from core.data.dataset import CLASSIFICATION
from core.data.prepare import batches_of, write_examples
from core.data.recordings import Report
from core.data.source import PROJECT_ROOT, is_prepared
from core.data.split import held_out_whole
from core.ground.accounts import account_for_roles
from core.ground.errors import DataError, UsageError
from core.ground.files import prepared_folder, user_cache, whole_folder
from core.inventory import Inventory
from core.inventory.training import TrainJob
from core.server.rights import prepared_folders
from core.status.events import Advanced, Consumer, StageBegan

UNITS = {"hashing": "bytes", "hashing files": "files"}
"""Units that the stages of a preparation count; the others count parts."""


def load_dataset(
    inventory: Inventory,
    display: Display,
    cancel: Cancel,
    emit: Consumer,
    app: App | None = None,
    default_source: str | None = None,
) -> Dataset:
    """Prepare what the app's data() answers, else the source of `jobs.train.data`.

    Where that names no source the search order finds one. `default_source` is what data() gets
    where the job names nothing. Announces the data set. Raises DataError, AppError, or Cancelled
    between two steps of the preparation.
    """
    cancel.check()
    begun = set[str]()

    def progress(stage: str, done: int, total: int) -> None:
        cancel.check()
        if stage not in begun:
            begun.add(stage)
            emit(StageBegan(stage, total, UNITS.get(stage, "parts")))
        emit(Advanced(done))

    if app is not None and app.has("data"):
        with cancel.at_once():
            dataset = _of_app(app, inventory, default_source, display, progress)
    else:
        dataset = _of_source(inventory, display, progress)
    if inventory.one_host and inventory.needs_roles("train"):
        dataset = handed_over(dataset, account_for_roles())
    display.say(f"      {dataset.summary()}")
    for line in dataset.held_out.lines():
        display.say(f"      {line}")
    return dataset


def _of_app(
    app: App, inventory: Inventory, default_source: str | None, display: Display, progress: Report
) -> Dataset:
    named = inventory.jobs.train.data.source
    if named is not None and not inventory.one_host and is_prepared(Path(named)):
        # windows, which `fab` brings to the nodes of a run where it does not know that it is of an
        # app
        named = None
    default_source = named or default_source
    if default_source is None:
        folder = app.folder
    else:
        folder = Path(default_source)
    if not folder.exists():
        raise DataError(
            f"jobs.train.data.source: expected a file or folder for data() of {app.file}, got"
            f" {folder}"
        )
    display.say(f"data: data({folder}) of {app.file}")
    where = f"{app.file}: data()"
    # The app may have a working folder of its own.
    given_folder = folder.absolute()
    cache = app_data_folder(inventory).absolute()
    most_bytes = int(inventory.jobs.train.data.most_gigabytes * GIGABYTE)
    key = "jobs.train.data.most_gigabytes"
    examples = app.call("data", given_folder)
    with app.blamed("data"):  # iterators and lazy arrays of the app's run in here
        batches, labels = batches_of(examples, app.task or CLASSIFICATION, where)
        if not batches.rows:
            batches = Batches(bounded(batches, most_bytes, key, where, display.say))
        dataset = write_examples(
            batches,
            cache,
            name=app.name,
            source=where,
            task=app.task or CLASSIFICATION,
            labels=labels,
            report=progress,
        )
    open_to_roles(inventory, dataset.folder)
    keep_latest(inventory, dataset.folder.name)
    return dataset


def _of_source(inventory: Inventory, display: Display, progress: Report) -> Dataset:
    job = inventory.jobs.train
    if inventory.one_host:
        source = find_source(
            job.data.source, os.environ, PROJECT_ROOT, user_cache(), job.data.format
        )
    else:
        source = _published(inventory, job.data.source)
    display.say(f"data: {source.why}")
    return prepare(
        source,
        window_steps=job.data.window_steps,
        window_stride=job.data.window_stride,
        cache=prepared_folder(),
        seed=job.seed,
        options=job.data.options(),
        progress=progress,
    )


def _published(inventory: Inventory, named: str | None) -> Source:
    if inventory.storage is not None:
        mount = inventory.storage.mount
    else:
        mount = "/mnt/pscluster"
    if named is None:
        source = None
    else:
        source = find_source(named, os.environ, PROJECT_ROOT, user_cache())
    if source is None or source.kind != "prepared":
        raise DataError(
            "jobs.train.data.source: with `connection: ssh` expected a prepared folder that every"
            f" node sees, such as {mount}/shared/prepared/<key>, got {named or 'none'}; `fab deploy"
            " start` prepares the recordings on your machine, publishes them there and names the"
            " folder to the job"
        )
    return source


def handed_over(dataset: Dataset, account: int | None, folder: Path | None = None) -> Dataset:
    """Return the data set where the roles of this machine read it, else its copy below `folder`.

    Workers map the files by path. Their cage shows them `prepared_folders` alone, and what root
    prepares lies below its home, which their `account` may not enter: they get a copy that root
    and they alone can read. Where they run as this account, the copy is one of links. Raises
    DataError when it cannot be copied.
    """
    folders = prepared_folders(account)
    if _roles_read(dataset, account, folders):
        return dataset
    place = folder or Path(folders[-1])
    copy = place / dataset.sha256
    try:
        place.mkdir(mode=0o755, parents=True, exist_ok=True)
        if not _is_sound(copy, dataset):
            _replace(copy, dataset, account)
    except OSError as problem:
        if account is None:
            confinement = "are caged"
        else:
            confinement = f"run as uid {account}"
        raise DataError(
            f"the roles {confinement}, which cannot read {dataset.folder}, and it cannot be"
            f" copied to {place} ({problem.strerror}): set XDG_CACHE_HOME to a folder that every"
            " account may enter, or free some room"
        ) from None
    return replace(dataset, folder=copy)


def _roles_read(dataset: Dataset, account: int | None, folders: Sequence[str]) -> bool:
    if account is not None and not _everyone_reads(dataset):
        return False
    if not landlock.abi():
        return True
    where = dataset.folder.resolve()
    return any(where.is_relative_to(Path(folder).resolve()) for folder in folders)


def _everyone_reads(dataset: Dataset) -> bool:
    folder = dataset.folder.resolve()
    entered = all(parent.stat().st_mode & stat.S_IXOTH for parent in (folder, *folder.parents))
    return entered and all((folder / name).stat().st_mode & stat.S_IROTH for name in dataset.files)


def _is_sound(copy: Path, dataset: Dataset) -> bool:
    try:
        return open_prepared(copy).sha256 == dataset.sha256
    except DataError:
        return False


def _replace(copy: Path, original: Dataset, account: int | None) -> None:
    with whole_folder(copy, 0o700) as partial:
        for name in original.files:
            if account is None:
                _link(original.folder / name, partial / name)
                continue
            shutil.copyfile(original.folder / name, partial / name)
            os.chown(partial / name, 0, account)
            (partial / name).chmod(0o640)
        if account is not None:
            os.chown(partial, 0, account)
            partial.chmod(0o750)


def _link(file: Path, link: Path) -> None:
    try:
        link.hardlink_to(file)
    except OSError:  # another file system
        shutil.copyfile(file, link)


@dataclass(frozen=True)
class TrainRows:
    """The rows of the training part, split. `notes` warn about the split and the test set."""

    train: NDArray[np.integer]
    validation: NDArray[np.integer]
    notes: Sequence[str]

    @classmethod
    def of(cls, dataset: Dataset, job: TrainJob) -> "TrainRows":
        """Split the training part. Raises UsageError where early stopping has nothing to go by."""
        notes = []
        if dataset.held_out.leak:
            notes.append(f"the test set: {dataset.held_out.leak}")
        training_part = slice(dataset.train_windows)
        classes = None
        if dataset.task == CLASSIFICATION and not dataset.targets.shape:  # one class an example
            classes = dataset.classes()[training_part]
        train, validation = split_validation(
            dataset.subjects()[training_part], job.validation_subjects, job.seed, classes
        )
        if classes is not None and (line := held_out_whole(classes, train, dataset.labels)):
            notes.append(line)
        if job.early_stopping is not None and not len(validation):
            raise UsageError(
                "jobs.train.early_stopping: it goes by the validation, for which these"
                f" {dataset.train_windows} training windows are too few: set it to null, or"
                " use more recordings"
            )
        return cls(train, validation, notes)
