"""The inventory: what the cluster is made of, which ports and addresses it uses, and which jobs it runs.

`load` reads a file into an `Inventory`, or raises `InventoryError` with all of its problems. Names are imported when
they are first used, so that a role process that only needs `Task` does not pay for pydantic's 11 MB.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cluster.inventory.deployment import Deployment, SshSettings, Storage
    from cluster.inventory.jobs import EvaluateJob, JobName, Jobs, PiJob
    from cluster.inventory.loading import load, located
    from cluster.inventory.machine import Machine, this_machine
    from cluster.inventory.models import (
        ConvolutionalModel,
        DeepBidirectionalModel,
        ModelConfig,
        ResidualModel,
        ThesisModel,
    )
    from cluster.inventory.monitor import Monitor
    from cluster.inventory.nodes import Node, Ports
    from cluster.inventory.optimizers import (
        Adam,
        AdamW,
        Constant,
        OneCycle,
        OptimizerConfig,
        ScheduleConfig,
        Sgd,
    )
    from cluster.inventory.problem import InventoryError, Problem
    from cluster.inventory.schema import Inventory
    from cluster.inventory.task import ROLE_NAMES, RoleName, Task
    from cluster.inventory.training import DataSettings, TrainJob

_HOMES = {
    "deployment": ("Deployment", "SshSettings", "Storage"),
    "jobs": ("EvaluateJob", "JobName", "Jobs", "PiJob"),
    "loading": ("load", "located"),
    "machine": ("Machine", "this_machine"),
    "models": ("ConvolutionalModel", "DeepBidirectionalModel", "ModelConfig", "ResidualModel", "ThesisModel"),
    "monitor": ("Monitor",),
    "nodes": ("Node", "Ports"),
    "optimizers": ("Adam", "AdamW", "Constant", "OneCycle", "OptimizerConfig", "ScheduleConfig", "Sgd"),
    "problem": ("InventoryError", "Problem"),
    "schema": ("Inventory",),
    "task": ("ROLE_NAMES", "RoleName", "Task"),
    "training": ("DataSettings", "TrainJob"),
}
_HOME_OF = {name: module for module, names in _HOMES.items() for name in names}

__all__ = [
    "ROLE_NAMES",
    "Adam",
    "AdamW",
    "Constant",
    "ConvolutionalModel",
    "DataSettings",
    "DeepBidirectionalModel",
    "Deployment",
    "EvaluateJob",
    "Inventory",
    "InventoryError",
    "JobName",
    "Jobs",
    "Machine",
    "ModelConfig",
    "Monitor",
    "Node",
    "OneCycle",
    "OptimizerConfig",
    "PiJob",
    "Ports",
    "Problem",
    "ResidualModel",
    "RoleName",
    "ScheduleConfig",
    "Sgd",
    "SshSettings",
    "Storage",
    "Task",
    "ThesisModel",
    "TrainJob",
    "load",
    "located",
    "this_machine",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOME_OF[name]}"), name)
