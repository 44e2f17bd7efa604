"""The live page of a job: where it listens, what a person is told about it. Loaded where there is one."""

import logging
import socket
from collections.abc import Callable
from typing import TYPE_CHECKING

from cluster.inventory import Inventory
from cluster.server.ports import explain
from cluster.status.view import RunView

if TYPE_CHECKING:
    from cluster.pages.server import PageServer

log = logging.getLogger(__name__)

LOOPBACK = "127.0.0.1"


def open_page(inventory: Inventory, view: Callable[[], RunView], say: Callable[[str], None]) -> "PageServer | None":
    """Serve the page, and say where; None, with a warning, where that is not possible: the job goes on without."""
    if inventory.page.listen == "off":
        return None
    from cluster.pages.drawing import STATIC, Drawing
    from cluster.pages.server import PageServer

    coordinator = inventory.task("coordinator", 0)
    assert coordinator.page_port is not None
    host = coordinator.host if inventory.page.listen == "cluster" else LOOPBACK
    names = {coordinator.node, f"{coordinator.node}.local", socket.gethostname()}
    try:
        page = PageServer(host, coordinator.page_port, view, Drawing(), STATIC, names)
    except OSError as problem:
        log.warning(
            "no live page: %s. Another port: --set ports.coordinator_page=PORT, or page_port of the coordinator's "
            "entry in the inventory; no page: --set page.listen=off",
            explain(problem, host, coordinator.page_port, "the live page"),
        )
        return None
    say(f"live page: http://{host}:{page.port}/{_way_in(inventory, host, page.port)}")
    return page


def _way_in(inventory: Inventory, host: str, port: int) -> str:
    """What to type first on a machine that is not the coordinator's node."""
    if inventory.connection == "local" or host != LOOPBACK:
        return ""
    node = inventory.node(inventory.task("coordinator", 0).node)
    user = node.ssh.user or inventory.ssh.user
    address = node.ssh.address or inventory.hosts[node.name]
    return f" on {node.name}; from elsewhere after `ssh -N -L {port}:{LOOPBACK}:{port} {user}@{address}`"
