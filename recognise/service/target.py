"""The file of targets by which a Prometheus of this machine finds a service.

`targets/NAME-PORT.json` is there while the service answers. A service that was killed leaves its
file behind: so Prometheus reports it as down until the next one starts here.
"""

import json
import logging
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from urllib.parse import SplitResult, urlsplit

from core.ground.errors import ClusterError, reason_of
from core.ground.files import atomic_write
from core.ground.locks import locked
from recognise.service.state import OTHERWISE

log = logging.getLogger(__name__)

TARGETS = "targets"
LOCK = ".targets.lock"
_EVERY_ADDRESS = {"0.0.0.0": "127.0.0.1", "::": "::1"}


@contextmanager
def announced(folder: Path, name: str, url: str) -> Iterator[None]:
    """Have the service at `url` among the targets in `folder` for the length of the block.

    A folder that cannot be written is a line of the log: the service answers without a Prometheus
    too.
    """
    address = urlsplit(url)
    path = folder / f"{name}-{address.port}.json"
    with ExitStack() as until_the_end:
        try:
            folder.mkdir(mode=0o700, exist_ok=True)
            # Another service that starts would take ours for a killed one's.
            with locked(folder.with_name(LOCK)):
                for other in folder.glob("*.json"):
                    if other != path:
                        with suppress(BlockingIOError), locked(other, wait=False):
                            other.unlink()
                atomic_write(path, content(name, address), OTHERWISE)
                until_the_end.enter_context(locked(path, wait=False))
                until_the_end.callback(path.unlink, missing_ok=True)
        except (OSError, ClusterError) as problem:
            log.warning(
                "%s: cannot be kept (%s): no Prometheus here finds this service",
                path,
                reason_of(problem),
            )
        yield


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
