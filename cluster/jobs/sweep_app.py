"""The app of a sweep on its way to the nodes: each run brings the sweep's own copy along, in its folder.

A node sends the files of its run back, and another node may resume it. What a node has made of the app never
reaches another one: the driver puts the sweep's copy back before.
"""

import shutil
from contextlib import suppress
from pathlib import Path

from cluster.apps.copy import FOLDER, RECORD, KeptApp, keep, kept
from cluster.apps.files import look
from cluster.errors import UsageError

APP = "jobs.train.app"


def app_there(files: str) -> str:
    """The app of a run on a node, relative to its inventory, beside which the run's files lie in the folder `files`."""
    return f"{files}/{FOLDER}"


def bring_app(copy: KeptApp, folder: Path) -> None:
    """Put the sweep's app into the folder of a run, and into what the run has left there of an earlier node.

    Raises ClusterError, OSError.
    """
    forget_app(folder)
    shutil.copytree(copy.path, folder / FOLDER)
    files = look(copy.path)
    for run in folder.glob("*-train*"):
        environment = _environment(run)
        _remove(run / FOLDER)
        _remove(run / RECORD)
        keep(files, run, environment, copy.data)


def forget_app(folder: Path) -> None:
    """Remove it from the folder of a run that is over; the training's own copy stays."""
    with suppress(OSError):  # it takes room and does no harm
        _remove(folder / FOLDER)


def _environment(run: Path) -> str:
    """In which the run began on its node; empty where it is not known."""
    try:
        found = kept(run)
    except UsageError:
        return ""
    return "" if found is None else found.environment


def _remove(path: Path) -> None:
    with suppress(FileNotFoundError):
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink()
