"""What a job takes along of the app that it names: its files and its environment."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from cluster.apps.copy import named_app
from cluster.apps.files import AppFiles, app_path, files_of_app
from core.ground.errors import ClusterError, UsageError
from core.logs import say
from deploy.cluster.connector import Connector

if TYPE_CHECKING:
    from core.inventory import Inventory

DATA = "data"
"""The function of an app that reads its data."""


@dataclass(frozen=True)
class AppOfJob:
    """`files` travel with the job, None where none do; `flags` are for its coordinator.

    `reads_data`: by itself.
    """

    files: AppFiles | None = None
    flags: tuple[str, ...] = ()
    reads_data: bool = False


NO_APP = AppOfJob()


def app_of_job(
    inventory: "Inventory", job: str, flags: Sequence[str], environment: Callable[[Path], str]
) -> AppOfJob:
    """The app of a job with these flags of `python -m cluster`, looked over before anything begins.

    `environment` makes the one of a requirements file and returns its key. A job on a run that
    exists, a resumed one or an evaluation, uses the copy of that run: what is wrong with the app as
    it is now is a line then, else an error. Raises ClusterError.
    """
    path = app_path(inventory)
    if path is None or job not in ("train", "cv", "evaluate"):
        return NO_APP
    has_copy = job == "evaluate" or "--resume" in flags
    try:
        if job == "evaluate":
            files = files_of_app(path)
        else:
            files = named_app(path)
        if files.requirements is None:
            key = ""
        else:
            key = environment(files.requirements)
    except ClusterError as problem:
        if not has_copy:
            raise
        say(f"{problem}; the run's own copy and environment are used", error=True)
        return NO_APP
    of_coordinator = ("--environment", key) if key else ()
    return AppOfJob(files if job != "evaluate" else None, of_coordinator, files.defines(DATA))


def reads_its_data(inventory: "Inventory") -> bool:
    """Whether the trainings of the inventory are of an app that reads its data itself.

    Raises UsageError.
    """
    path = app_path(inventory)
    return path is not None and files_of_app(path).defines(DATA)


def refuse_missing_data(inventory: "Inventory", node: Connector, user: str) -> None:
    """Refuse an app whose `jobs.train.data.source` is not on the node that trains it.

    Raises UsageError.
    """
    source = inventory.jobs.train.data.source
    if source is None or _reads(node, source, user):
        return
    raise UsageError(
        f"--data {source}: the app reads its data itself, on {node.name}, where no such path is"
        f" that the account {user} can read: copy it there and give its absolute path, or put it"
        " into the app"
    )


def _reads(node: Connector, path: str, user: str) -> bool:
    return path.startswith("/") and node.run(["test", "-r", path], user=user).ok
