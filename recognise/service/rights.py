"""What the service keeps once it answers: its packages, state and versions, and its ports.

It enters its cage before it has other threads. The nursery stands outside and starts the processes
of models.
"""

import logging
import os
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from core.cage.calls import enter_whole_cage
from core.cage.profiles import calls_of, rights_of
from core.ground.errors import ClusterError, UsageError

if TYPE_CHECKING:
    from recognise.service.server import ServiceOptions

log = logging.getLogger(__name__)


def enter_cage(options: "ServiceOptions", reads: Iterable[Path], writes: Iterable[Path]) -> None:
    """Give up all but what the options need, these files and folders, for good.

    Raises ClusterError where root without its capabilities reads less than the service needs.
    """
    _end_idle_threads()
    written = [_there(folder) for folder in writes]
    ports = (options.port, options.metrics_port)
    rights = rights_of("service", renewed=[*reads], state=written, ports=ports)
    caged = enter_whole_cage(rights, calls_of("service"))
    if caged.level != logging.INFO:  # its processes of models are in the same kernel's hands
        log.warning("%s", caged.line)
    for needed in (Path(__file__).parent, Path(sys.prefix), *written):
        if not os.access(needed, os.R_OK | os.X_OK):
            raise ClusterError(
                f"{needed}: root gives its rights up before it serves, and cannot read this folder"
                " of another account without them: serve as that account"
            )


def around(files: Iterable[str | None]) -> Iterable[Path]:
    """Yield the folders of files, and of those that they link to: renewed ones come there.

    Raises UsageError for a folder around the home folder.
    """
    home = Path(os.path.expanduser("~")).resolve()
    for name in filter(None, files):
        for path in (Path(name).absolute(), Path(name).resolve()):
            if home.is_relative_to(path.parent.resolve()):
                raise UsageError(
                    f"{name}: the service reads the whole folder of this file, where a renewed one"
                    f" comes, and {path.parent} holds your home: move it to a folder of its own"
                )
            yield path.parent


def _there(folder: Path) -> Path:
    """Return the nearest folder that exists: a cage shows only what is below one."""
    while not folder.exists():
        folder = folder.parent
    return folder


def _end_idle_threads() -> None:
    """End the threads of OpenBLAS by a fork; they start again inside the cage."""
    if not os.fork():
        os._exit(0)
    os.wait()
