"""Private copies of apps, which a process imports: no other account writes there.

They hold the app alone. In a run's folder there may be more than what its digest is of, such as
compiled modules, which Python would take in the place of the sources.
"""

import atexit
import fcntl
import os
import shutil
import tempfile
import time
from contextlib import suppress
from pathlib import Path

from cluster.apps.files import AppFiles
from core.ground.files import FOLDER_NO_LINK, write_refusal

PREFIX = "pscluster-app-"
_JUST_MADE_SECONDS = 60.0
"""A younger folder may belong to a process that has not locked it yet."""
_made: dict[Path, int] = {}
"""The process that made each: a forked child removes none of them at its end."""


def private_copy(app: AppFiles) -> Path:
    """A new folder with the files of the app, each with the bytes that its digest is of.

    It goes with `remove_copies`, or with the next copy after this process was killed. Raises
    UsageError if the app has changed since it was looked over, ClusterError if it cannot be made.
    """
    place = Path(tempfile.gettempdir())
    _remove_left(place)
    try:
        folder = Path(tempfile.mkdtemp(prefix=PREFIX))
        _made[folder] = os.getpid()
        fcntl.flock(
            os.open(folder, os.O_RDONLY | os.O_CLOEXEC), fcntl.LOCK_EX
        )  # until this process ends
        app.write(folder)
    except OSError as problem:
        other = "set TMPDIR to another folder"
        raise write_refusal(
            place, "the app cannot be copied to be imported", problem, other
        ) from None
    return folder


def remove_copies() -> None:
    """Remove what this process made; to be called before it ends by `os._exit`."""
    for folder, process in list(_made.items()):
        if process == os.getpid():
            shutil.rmtree(folder, ignore_errors=True)
    _made.clear()


def _remove_left(place: Path) -> None:
    """Remove what killed processes of this account have left."""
    for path in place.glob(f"{PREFIX}*"):
        with suppress(OSError):
            status = path.lstat()
            if (
                path in _made
                or status.st_uid != os.geteuid()
                or time.time() - status.st_mtime < _JUST_MADE_SECONDS
            ):
                continue
            lock = os.open(path, FOLDER_NO_LINK)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(path, ignore_errors=True)
            finally:
                os.close(lock)


atexit.register(remove_copies)
