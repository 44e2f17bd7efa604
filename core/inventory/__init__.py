"""The inventory: what the cluster is made of, its ports and addresses, and its jobs.

`load` reads a file into an `Inventory`, or raises `InventoryError` with all of its problems. Names
are imported at their first use: a role process that only needs `Task` does not load pydantic, which
takes 11 MB.
"""

from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from core.documents import InventoryError, InventoryProblem
    from core.inventory.addresses import Machine, this_machine
    from core.inventory.loading import load, located
    from core.inventory.schema import Inventory, PiJob
    from core.inventory.sections import Monitor, Service
    from core.inventory.training import TrainJob
    from core.inventory.training_sections import Constant, OneCycle

_HOMES = (
    "core.documents",
    "core.inventory.addresses",
    "core.inventory.schema",
    "core.inventory.training",
    "core.inventory.training_sections",
    "core.inventory.loading",
)
"""The lightest first: the errors come without pydantic."""

__all__ = [
    "ROLE_NAMES",
    "Constant",
    "Inventory",
    "InventoryError",
    "InventoryProblem",
    "Machine",
    "Monitor",
    "OneCycle",
    "PiJob",
    "Service",
    "Task",
    "TrainJob",
    "load",
    "located",
    "this_machine",
]


RoleName = Literal["ps", "worker", "coordinator"]
"""Roles that are a process with a TensorFlow port. (`storage` is a role of a node too, but has no
process of ours.)"""

ROLE_NAMES: tuple[RoleName, ...] = ("ps", "worker", "coordinator")


@dataclass(frozen=True)
class Task:
    """A role process.

    `role` and `index` name it, `host` and `port` are where TensorFlow reaches it.
    """

    role: RoleName
    index: int
    node: str
    host: str
    port: int
    metrics_port: int
    page_port: int | None = None
    """The port of the live page; the coordinator alone has one."""

    @property
    def name(self) -> str:
        """Role and index, e.g. `worker:1`."""
        return f"{self.role}:{self.index}"

    @property
    def address(self) -> str:
        """Host and port of the TensorFlow server, e.g. `192.168.1.26:2222`."""
        return f"{self.host}:{self.port}"

    @property
    def metrics_address(self) -> str:
        """Host and port of `/metrics` and `/ready`, e.g. `192.168.1.26:9200`."""
        return f"{self.host}:{self.metrics_port}"


def __getattr__(name: str) -> Any:
    if name in __all__:
        for home in _HOMES:
            module = import_module(home)
            if hasattr(module, name):
                return getattr(module, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
