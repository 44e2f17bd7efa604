"""The recordings of a job: found, prepared and announced in a line.

With `connection: ssh` nothing is prepared on a node: all nodes map one prepared folder that lies on the shared storage.
"""

import os
import shutil
import stat
import tempfile
from dataclasses import replace
from pathlib import Path

from cluster.apps.app import App
from cluster.apps.data_folder import app_data_folder, keep_latest
from cluster.data import Dataset, Source, find_source, open_prepared, prepare
from cluster.data.dataset import CLASSIFICATION, is_prepared
from cluster.data.examples import batches_of, write_examples
from cluster.data.recordings import Report
from cluster.data.source import PROJECT_ROOT
from cluster.errors import DataError
from cluster.inventory import Inventory
from cluster.jobs.cancel import Cancel
from cluster.jobs.progress import Display
from cluster.server.accounts import account_for_roles
from cluster.status.events import Advanced, Consumer, StageBegan
from cluster.user_cache import user_cache


def load_dataset(
    inventory: Inventory, display: Display, cancel: Cancel, emit: Consumer, app: App | None = None,
    given: str | None = None,
) -> Dataset:  # fmt: skip
    """Prepare what the app's data() answers, else the source that `jobs.train.data` or the search order names.

    `given` is what data() gets where the job names nothing. Announces it. Raises DataError, AppError, or Cancelled
    between two steps of the preparation.
    """
    cancel.check()
    begun = set[str]()

    def progress(stage: str, done: int, total: int) -> None:
        cancel.check()
        if stage not in begun:
            begun.add(stage)
            emit(StageBegan(stage, total, "steps"))
        emit(Advanced(done))

    if app is not None and app.has("data"):
        with cancel.at_once():
            dataset = _of_app(app, inventory, given, display, progress)
    else:
        dataset = _of_source(inventory, display, progress)
    account = account_for_roles() if inventory.one_host else None
    if account is not None:
        dataset = handed_over(dataset, account)
    display.say(f"      {dataset.summary()}")
    for line in dataset.held_out.lines():
        display.say(f"      {line}")
    return dataset


def _of_app(app: App, inventory: Inventory, given: str | None, display: Display, progress: Report) -> Dataset:
    named = inventory.jobs.train.data.source
    if named is not None and not inventory.one_host and is_prepared(Path(named)):
        named = None  # windows, which `fab` brings to the nodes of a run where it does not know that it is of an app
    given = named or given
    folder = app.folder if given is None else Path(given)
    if not folder.exists():
        raise DataError(f"jobs.train.data.source: expected a file or folder for data() of {app.file}, got {folder}")
    display.say(f"data: data({folder}) of {app.file}")
    where = f"{app.file}: data()"
    found = app.call("data", folder)
    batches, labels = batches_of(found, app.task or CLASSIFICATION, where)
    with app.blamed("data"):  # an iterator of the app's runs in here
        dataset = write_examples(
            batches, app_data_folder(inventory), name=app.name, source=where, task=app.task or CLASSIFICATION,
            labels=labels, report=progress,
        )  # fmt: skip
    keep_latest(inventory, dataset.folder.name)
    return dataset


def _of_source(inventory: Inventory, display: Display, progress: Report) -> Dataset:
    job = inventory.jobs.train
    if inventory.one_host:
        source = find_source(job.data.source, os.environ, PROJECT_ROOT, user_cache())
    else:
        source = _published(inventory, job.data.source)
    display.say(f"data: {source.why}")
    return prepare(
        source,
        window_steps=job.data.window_steps,
        window_stride=job.data.window_stride,
        cache=user_cache() / "prepared",
        seed=job.seed,
        options=job.data.options(),
        progress=progress,
    )


def _published(inventory: Inventory, given: str | None) -> Source:
    mount = inventory.storage.mount if inventory.storage is not None else "/mnt/pscluster"
    source = None if given is None else find_source(given, os.environ, PROJECT_ROOT, user_cache())
    if source is None or source.kind != "prepared":
        raise DataError(
            f"jobs.train.data.source: with `connection: ssh` expected a prepared folder that every node sees, such as "
            f"{mount}/shared/prepared/<key>, got {given or 'none'}; `fab deploy start` prepares the recordings on your "
            f"machine, publishes them there and names the folder to the job"
        )
    return source


COPIES = Path("/var/cache/pscluster/roles")


def handed_over(dataset: Dataset, account: int, folder: Path = COPIES) -> Dataset:
    """The data set itself where `account` can read it, else its copy below `folder`, made where there is none.

    Root prepares below its home, which no other account may enter, and workers map the files by path: they get a copy
    that root and they alone can read.

    To be called as root. Raises DataError when it cannot be copied.
    """
    if _everyone_reads(dataset):
        return dataset
    copy = folder / dataset.sha256
    try:
        folder.mkdir(mode=0o755, parents=True, exist_ok=True)
        if not _is_sound(copy, dataset):
            _replace(copy, dataset, account)
    except OSError as problem:
        raise DataError(
            f"the roles run as uid {account}, which cannot read {dataset.folder}, and it cannot be copied to {folder} "
            f"({problem.strerror}): set XDG_CACHE_HOME to a folder that every account may enter, or free some room"
        ) from None
    return replace(dataset, folder=copy)


def _everyone_reads(dataset: Dataset) -> bool:
    folder = dataset.folder.resolve()
    entered = all(each.stat().st_mode & stat.S_IXOTH for each in (folder, *folder.parents))
    return entered and all((folder / name).stat().st_mode & stat.S_IROTH for name in dataset.files)


def _is_sound(copy: Path, dataset: Dataset) -> bool:
    try:
        return open_prepared(copy).sha256 == dataset.sha256
    except DataError:
        return False


def _replace(copy: Path, original: Dataset, account: int) -> None:
    partial = Path(tempfile.mkdtemp(prefix=".partial-", dir=copy.parent))
    try:
        for name in original.files:
            shutil.copyfile(original.folder / name, partial / name)
            os.chown(partial / name, 0, account)
            (partial / name).chmod(0o640)
        os.chown(partial, 0, account)
        partial.chmod(0o750)
        if copy.exists():
            copy.rename(partial / "damaged")
        partial.rename(copy)
        shutil.rmtree(copy / "damaged", ignore_errors=True)
    finally:
        shutil.rmtree(partial, ignore_errors=True)
