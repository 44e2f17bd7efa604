"""The inventory: what the cluster is made of, which ports and addresses it uses, and which jobs it runs.

`load` reads a file into an `Inventory`, or raises `InventoryError` with all of its problems. Names are imported when
they are first used, so that a role process that only needs `Task` does not pay for pydantic's 11 MB.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cluster.inventory.deployment import Deployment, Monitor, SshSettings, Storage
    from cluster.inventory.loading import load, located
    from cluster.inventory.machine import Machine, this_machine
    from cluster.inventory.nodes import Node, Ports
    from cluster.inventory.problem import InventoryError, Problem
    from cluster.inventory.schema import EvaluateJob, Inventory, JobName, Jobs, PiJob
    from cluster.inventory.task import ROLE_NAMES, RoleName, Task
    from cluster.inventory.training import Constant, DataSettings, OneCycle, TrainJob

_HOMES = {
    "deployment": ("Deployment", "Monitor", "SshSettings", "Storage"),
    "loading": ("load", "located"),
    "machine": ("Machine", "this_machine"),
    "nodes": ("Node", "Ports"),
    "problem": ("InventoryError", "Problem"),
    "schema": ("EvaluateJob", "Inventory", "JobName", "Jobs", "PiJob"),
    "task": ("ROLE_NAMES", "RoleName", "Task"),
    "training": ("Constant", "DataSettings", "OneCycle", "TrainJob"),
}
_HOME_OF = {name: module for module, names in _HOMES.items() for name in names}

__all__ = [
    "ROLE_NAMES",
    "Constant",
    "DataSettings",
    "Deployment",
    "EvaluateJob",
    "Inventory",
    "InventoryError",
    "JobName",
    "Jobs",
    "Machine",
    "Monitor",
    "Node",
    "OneCycle",
    "PiJob",
    "Ports",
    "Problem",
    "RoleName",
    "SshSettings",
    "Storage",
    "Task",
    "TrainJob",
    "load",
    "located",
    "this_machine",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOME_OF[name]}"), name)
