"""Where packages and data of apps lie on the machines of a cluster.

Packages of a person's own `requirements.txt` have an environment beside the common one.

`fab` makes them (deploy/release/extras.py) and names each by a key. Here is where they lie, and how
a process keeps the one it runs in: `fab` removes old ones, but none that a process holds.

Data lies where every worker maps it at the same path.
"""

import os
import re
import shutil
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from core.ground.errors import ClusterError, UsageError
from core.ground.files import prepared_folder, user_cache
from core.ground.locks import take

if TYPE_CHECKING:
    from core.inventory import Inventory


KEY = re.compile(r"[0-9a-f]{16}")
COMPLETE = ".complete"
"""The file that a whole environment has; a process that runs in it holds a shared flock(2) on it.
"""
ON_NODES = Path("/opt/pscluster/extras/environments")


def local_environments() -> Path:
    """The folder of the environments of clusters on this machine."""
    return user_cache() / "extras"


def environments(inventory: "Inventory") -> Path:
    """The folder of the environments on the machine where the coordinator runs."""
    if inventory.one_host:
        return local_environments()
    return ON_NODES


def python_of(folder: Path, key: str) -> Path:
    """The Python of the environment `key` in `folder`. Raises UsageError for a key that is none."""
    if not KEY.fullmatch(key):
        raise UsageError(f"{key!r:.60}: expected the key of an environment, 16 hexadecimal digits")
    return folder / key / "bin" / "python"


def is_there(folder: Path, key: str) -> bool:
    """Whether the environment is whole."""
    return python_of(folder, key).exists() and (folder / key / COMPLETE).exists()


def continue_in(folder: Path, key: str, arguments: Sequence[str]) -> None:
    """Continue as `python -m ARGUMENTS` of the environment `key`, in this very process.

    It returns if it is that one already. The environment is held from then on. Raises ClusterError
    where it is not there, or does not start.
    """
    python = python_of(folder, key)
    if Path(sys.prefix).resolve() == (folder / key).resolve():
        hold(folder / key)
        return
    if not is_there(folder, key):
        raise ClusterError(
            f"{folder / key}: expected the environment of the app's requirements.txt, it is not"
            " there any more: name the app with --app, or the run's own copy of it, so that `fab`"
            " makes it again"
        )
    try:
        os.execv(python, [str(python), "-m", *arguments])
    except OSError as problem:
        raise ClusterError(
            f"{python}: does not start ({problem.strerror}): remove {folder / key} and run it again"
        ) from None


def hold(environment: Path) -> None:
    """Keep an environment until this process ends: none removes it meanwhile.

    It need not be one of a key.
    """
    # Being removed this moment, or on a file system without locks: nothing depends on it.
    with suppress(OSError):
        # Open until the process ends, and not handed down: its children end with it.
        take(os.open(environment / COMPLETE, os.O_RDONLY | os.O_CLOEXEC), shared=True)


KEPT_DATA_SETS = 3
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
    for path in older_sets[KEPT_DATA_SETS - 1 :]:
        shutil.rmtree(path, ignore_errors=True)
