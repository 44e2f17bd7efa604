"""The inventory: what the cluster is made of, its ports and addresses, and its jobs.

`load` reads a file into an `Inventory`, or raises `InventoryError` with all of its problems. Names
are imported at their first use: a role process that only needs `Task` does not load pydantic, which
takes 11 MB.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from core.documents.problem import InventoryError, InventoryProblem
    from core.inventory.addresses import Machine, this_machine
    from core.inventory.jobs import PiJob
    from core.inventory.loading import load, located
    from core.inventory.schema import Inventory
    from core.inventory.sections import Monitor, Service
    from core.inventory.task import ROLE_NAMES, Task
    from core.inventory.training import TrainJob
    from core.inventory.training_sections import Constant, OneCycle

_HOMES = (
    "core.inventory.task",
    "core.documents.problem",
    "core.inventory.addresses",
    "core.inventory.schema",
    "core.inventory.jobs",
    "core.inventory.training",
    "core.inventory.training_sections",
    "core.inventory.loading",
)
"""The lightest first: `Task` and the errors come without pydantic."""

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


def __getattr__(name: str) -> Any:
    if name in __all__:
        for home in _HOMES:
            module = import_module(home)
            if hasattr(module, name):
                return getattr(module, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
