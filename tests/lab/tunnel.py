"""A page of a node, at an address of this machine."""

import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

from tests.deploy.playing import eventually
from tests.lab.lab import Lab


@contextmanager
def brought_here(lab: Lab, node: str, port: int) -> Iterator[str]:
    """What listens on the node's own loopback, through SSH."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        here = probe.getsockname()[1]
    carried = f"{here}:127.0.0.1:{port}"
    with subprocess.Popen(
        ["ssh", "-F", lab.places.run / "ssh_config", "-N", "-L", carried, node]
    ) as tunnel:
        try:
            eventually(lambda: _listens(here), "the tunnel is there")
            yield f"http://127.0.0.1:{here}/"
        finally:
            tunnel.terminate()


def _listens(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
    except OSError:
        return False
    return True
