"""The recordings of a job: found, prepared and announced in a line.

With `connection: ssh` nothing is prepared on a node: all nodes map one prepared folder that lies on the shared storage.
"""

import os

from cluster.data import Dataset, Source, find_source, prepare
from cluster.data.source import PROJECT_ROOT, user_cache
from cluster.errors import DataError
from cluster.inventory import Inventory
from cluster.jobs.cancel import Cancel
from cluster.jobs.handed_over import handed_over
from cluster.jobs.progress import Display
from cluster.server.accounts import account_for_roles
from cluster.status.events import Advanced, Consumer, StageBegan


def load_dataset(inventory: Inventory, display: Display, cancel: Cancel, emit: Consumer) -> Dataset:
    """Prepare the source that `jobs.train.data` or the search order names, and announce it.

    Raises DataError, or Cancelled between two steps of the preparation.
    """
    cancel.check()
    job = inventory.jobs.train
    source = _published(inventory) if inventory.connection == "ssh" else _found(job.data.source)
    display.say(f"data: {source.why}")
    begun = set[str]()

    def progress(stage: str, done: int, total: int) -> None:
        cancel.check()
        if stage not in begun:
            begun.add(stage)
            emit(StageBegan(stage, total, "steps"))
        emit(Advanced(done))

    dataset = prepare(
        source,
        window_steps=job.data.window_steps,
        window_stride=job.data.window_stride,
        cache=user_cache() / "prepared",
        seed=job.seed,
        progress=progress,
    )
    account = account_for_roles() if inventory.connection == "local" else None
    if account is not None:
        dataset = handed_over(dataset, account)
    display.say(
        f"      {dataset.train_windows:,} training and {dataset.test_windows:,} test windows of "
        f"{dataset.window_steps} x {dataset.channels}, {len(dataset.labels)} classes"
    )
    return dataset


def _found(given: str | None) -> Source:
    return find_source(given, os.environ, PROJECT_ROOT, user_cache())


def _published(inventory: Inventory) -> Source:
    given = inventory.jobs.train.data.source
    mount = inventory.storage.mount if inventory.storage is not None else "/mnt/pscluster"
    source = _found(given) if given is not None else None
    if source is None or source.kind != "prepared":
        raise DataError(
            f"jobs.train.data.source: with `connection: ssh` expected a prepared folder that every node sees, such as "
            f"{mount}/shared/prepared/<key>, got {given or 'none'}; `fab deploy start` prepares the recordings on your "
            f"machine, publishes them there and names the folder to the job"
        )
    return source
