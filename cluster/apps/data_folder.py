"""Where the coordinator writes an app's data, so that every worker maps it at the same path."""

import shutil
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from core.ground.files import prepared_folder

if TYPE_CHECKING:
    from core.inventory import Inventory

KEPT = 3
"""Data sets that stay: the one in use, and the latest others."""


def app_data_folder(inventory: "Inventory") -> Path:
    """The folder that holds a folder for each data set, named by its content.

    It need not exist yet.

    On one machine it is in the user's cache, and so it is for a node that trains by itself, without
    shared storage. On machines it is the shared `data`, which the coordinator's node writes and
    every other one reads.
    """
    if inventory.data_folder is not None:
        return Path(inventory.data_folder)
    return prepared_folder()


def open_to_roles(inventory: "Inventory", folder: Path) -> None:
    """Let the roles on machines read a data set, which the account of jobs has written.

    Whatever that account's umask: workers map its files under an account of their own.
    """
    if inventory.one_host:
        return
    with suppress(OSError):
        for path in (folder.parent, folder):
            path.chmod(0o755)
        for path in folder.iterdir():
            path.chmod(0o644)


def keep_latest(inventory: "Inventory", in_use: str) -> None:
    """Remove all data sets on machines but `in_use`, now the latest, and the latest others.

    To be called by a job once it has its data set: a cluster of machines runs one job at a time.
    The user's cache keeps what it has, which other clusters may use. What cannot be removed stays.
    """
    if inventory.one_host:
        return
    folder = app_data_folder(inventory)
    with suppress(OSError):
        (folder / in_use).touch()
    try:
        older_sets = [
            path
            for path in folder.iterdir()
            if path.name != in_use and path.is_dir() and not path.is_symlink()
        ]
        older_sets.sort(key=lambda path: path.stat().st_mtime, reverse=True)
    except OSError:
        return
    for path in older_sets[KEPT - 1 :]:
        shutil.rmtree(path, ignore_errors=True)
