"""The inventory: what the cluster is made of, which ports and addresses it uses, and which jobs it runs.

`load` reads a file into an `Inventory`, or raises `InventoryError` with all of its problems. Names are imported at
their first use: a role process that only needs `Task` does not load pydantic, which takes 11 MB.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cluster.inventory.consistency import Machine, this_machine
    from cluster.inventory.loading import load, located
    from cluster.inventory.problem import InventoryError, InventoryProblem
    from cluster.inventory.schema import Inventory, Monitor, PiJob, Service
    from cluster.inventory.task import ROLE_NAMES, Task
    from cluster.inventory.training import Constant, OneCycle, TrainJob

_HOMES = ("task", "problem", "consistency", "schema", "training", "loading")
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
]  # fmt: skip


def __getattr__(name: str) -> Any:
    if name in __all__:
        for home in _HOMES:
            module = import_module(f"{__name__}.{home}")
            if hasattr(module, name):
                return getattr(module, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
