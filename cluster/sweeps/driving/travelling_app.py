"""The app of a sweep on its way to the nodes: each run brings the sweep's own copy along.

A node sends the files of its run back, and another node may resume it. Code does not travel back:
the driver puts the sweep's copy into the run itself.
"""

import shutil
from contextlib import suppress
from pathlib import Path

from cluster.apps.copy import FOLDER, RECORD, KeptApp, keep
from cluster.apps.files import look

APP = "jobs.train.app"


def app_there(files: str) -> str:
    """Return the app of a run on a node, relative to its inventory.

    Beside the inventory the run's files lie in the folder `files`.
    """
    return f"{files}/{FOLDER}"


def bring_app(copy: KeptApp | None, folder: Path) -> None:
    """Put the sweep's app into the folder of a run that goes to a node, and into its trainings.

    Without an app there is none there afterwards. Raises ClusterError, OSError.
    """
    settle_app(copy, folder)
    if copy is not None:
        shutil.copytree(copy.path, folder / FOLDER)


def settle_app(copy: KeptApp | None, folder: Path) -> None:
    """Leave each training in the folder with the sweep's app, or none, whatever a node made of it.

    The folder's own, for the way to a node, goes. Raises ClusterError, OSError.
    """
    for run in (folder, *folder.glob("*/")):
        if not run.is_symlink():
            _remove(run / FOLDER)
            _remove(run / RECORD)
    if copy is not None:
        files = look(copy.path)
        for run in folder.glob("*-train*/"):
            keep(files, run, copy.environment, copy.data)


def _remove(path: Path) -> None:
    with suppress(FileNotFoundError):
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink()
