"""The file of targets by which a Prometheus of this machine finds a service.

`targets/NAME-PORT.json` is there while the service answers. A service that was killed leaves its
file behind: so Prometheus reports it as down until the next one starts here.
"""

import fcntl
import json
import logging
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import SplitResult, urlsplit

from core.atomic_write import atomic_write
from core.errors import ClusterError, reason_of
from core.json_file import NO_LINK
from recognise.service import state

log = logging.getLogger(__name__)

TARGETS = "targets"
_EVERY_ADDRESS = {"0.0.0.0": "127.0.0.1", "::": "::1"}


@contextmanager
def announced(folder: Path, name: str, url: str) -> Iterator[None]:
    """Have the service at `url` among the targets in `folder` for the length of the block.

    A folder that cannot be written is a line of the log: the service answers without a Prometheus
    too.
    """
    address = urlsplit(url)
    path = folder / f"{name}-{address.port}.json"
    try:
        held = _written(path, content(name, address))
    except (OSError, ClusterError) as problem:
        log.warning(
            "%s: cannot be kept (%s): no Prometheus here finds this service",
            path,
            reason_of(problem),
        )
        yield
        return
    try:
        yield
    finally:
        path.unlink(missing_ok=True)
        os.close(held)


def content(name: str, address: SplitResult) -> bytes:
    """Return the file: the address on this machine, and labels that say where it is."""
    host = address.hostname or ""
    reached = _EVERY_ADDRESS.get(host, host)
    if ":" in reached:
        reached = f"[{reached}]"
    target = f"{reached}:{address.port}"
    labels = {
        "__scheme__": address.scheme,
        "node": socket.gethostname(),
        "process": f"service:{name}",
    }
    return json.dumps([{"targets": [target], "labels": labels}], indent=2).encode() + b"\n"


def _written(path: Path, text: bytes) -> int:
    """Write the file, and remove those of killed services.

    Returns the descriptor whose lock says that it is in use.
    """
    path.parent.mkdir(mode=0o700, exist_ok=True)
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(
            folder, fcntl.LOCK_EX
        )  # another service that starts would take ours for a killed one's
        for each in path.parent.glob("*.json"):
            if each != path and not _in_use(each):
                each.unlink()
        atomic_write(path, text, state.OTHERWISE)
        return _locked(path)
    finally:
        os.close(folder)


def _in_use(path: Path) -> bool:
    try:
        os.close(_locked(path))
    except BlockingIOError:
        return True
    return False


def _locked(path: Path) -> int:
    descriptor = os.open(path, NO_LINK)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor
