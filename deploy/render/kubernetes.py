"""Manifests of Kubernetes, for kustomize, from the templates in `manifests/`. Pure."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from cluster.logs.lines import LogSettings
from cluster.server.options import logging_flags
from deploy.cluster.places import shared_folders
from deploy.common.texts import filled
from deploy.render.firewall import graph_ports, metrics_ports
from deploy.render.pods import (
    COORDINATOR_NODE,
    DATA_FOLDER,
    INVENTORY_FOLDER,
    RUNS_FOLDER,
    Pods,
    pod_inventory,
    pods_of,
)
from deploy.render.serving_pods import FILE as SERVICE
from deploy.render.serving_pods import cidrs, service_manifest
from deploy.render.units import MODULES, peers

if TYPE_CHECKING:
    from cluster.inventory import Inventory

KUSTOMIZATION = "kustomization.yaml"
INVENTORY = "inventory.yaml"
RESOURCES = (
    "namespace.yaml",
    "volumes.yaml",
    "parameter-servers.yaml",
    "workers.yaml",
    "training.yaml",
    "disruption-budgets.yaml",
)
NETWORK_POLICIES = "network-policies.yaml"
_MEBIBYTE = 1 << 20
_STEP_MEBIBYTES = 32
_LIBRARIES_BYTES = 277 * 10**6
"""Pages of TensorFlow's libraries (docs/roles.md): a limit counts them, and a role without room rereads them."""
_LARGEST_SHARE = 0.8


@dataclass(frozen=True)
class Memory:
    """Request and limit of one container, in MiB."""

    request: int
    limit: int

    @classmethod
    def of(cls, role_bytes: int) -> "Memory":
        """For a role that takes so many anonymous bytes."""
        return cls(_rounded(role_bytes), _rounded((role_bytes + _LIBRARIES_BYTES) / _LARGEST_SHARE))


def manifests(inventory: "Inventory", memory_bytes: Mapping[str, int], least_workers: int) -> Mapping[str, str]:
    """The files by name: a kustomization and what it names.

    `memory_bytes` are the anonymous bytes of a process of each role, `least_workers` those that a drain has to leave.
    Raises UsageError for an inventory that no pods can be made of.
    """
    pods = pods_of(inventory)
    common: dict[str, Any] = {
        "pods": pods,
        "uid": inventory.deployment.service_uid,
        "memory": {role: Memory.of(taken) for role, taken in memory_bytes.items()},
        "data_folder": DATA_FOLDER,
        "runs_folder": RUNS_FOLDER,
        "inventory_folder": INVENTORY_FOLDER,
    }
    serves = bool(inventory.service_nodes)
    resources = (
        *RESOURCES,
        *((SERVICE,) if serves else ()),
        *((NETWORK_POLICIES,) if inventory.deployment.firewall else ()),
    )
    texts = {
        KUSTOMIZATION: filled(_template("kustomization"), **common, resources=resources),
        INVENTORY: pod_inventory(inventory, pods),
        "namespace.yaml": filled(_template("namespace")),
        "volumes.yaml": filled(_template("volumes"), **common, nfs=_nfs(inventory)),
        "parameter-servers.yaml": _role(inventory, pods, "ps", common),
        "workers.yaml": _role(inventory, pods, "worker", common),
        "training.yaml": _training(inventory, common),
        "disruption-budgets.yaml": filled(_template("disruption-budgets"), **common, least_workers=least_workers),
    }
    if serves:
        texts[SERVICE] = service_manifest(inventory, pods, common, _nfs(inventory))
    if inventory.deployment.firewall:
        texts[NETWORK_POLICIES] = filled(
            _template("network-policies"),
            **common,
            inner=ranges(graph_ports(inventory) | ({inventory.service.port} if serves else set())),
            metrics=ranges(_pod_metrics(inventory)),
            readers=cidrs(inventory.deployment.allow),
        )
    return texts


def ranges(ports: Iterable[int]) -> tuple[tuple[int, int], ...]:
    """The ports in order, as first and last of each run."""
    runs: list[tuple[int, int]] = []
    for port in sorted(ports):
        if runs and port == runs[-1][1] + 1:
            runs[-1] = (runs[-1][0], port)
        else:
            runs.append((port, port))
    return tuple(runs)


def _pod_metrics(inventory: "Inventory") -> set[int]:
    """The firewall's ports of metrics without those of the machines themselves: their exporter and the monitor."""
    own = {port for task in inventory.tasks() for port in (task.metrics_port, task.page_port) if port is not None}
    return metrics_ports(inventory) & (own | {inventory.service.metrics_port})


def _role(inventory: "Inventory", pods: Pods, role: Any, common: Mapping[str, Any]) -> str:
    first = inventory.of_role(role)[0]
    words = (
        *(MODULES[role], "--task", "$(POD_INDEX)", "--host", "$(POD_IP)", "--port", str(first.port)),
        *("--metrics-port", str(first.metrics_port), "--peers", str(peers(inventory))),
        *("--guard", "none", "--coordinator", "token"),
        *logging_flags(LogSettings(inventory.logging.format, inventory.logging.level)),
    )
    return filled(
        _template("role"), **common, role=role, headless=f"{pods.cluster}-{role}", services=pods.services(role),
        words=words, port=first.port, metrics_port=first.metrics_port,
    )  # fmt: skip


def _training(inventory: "Inventory", common: Mapping[str, Any]) -> str:
    coordinator = inventory.of_role("coordinator")[0]
    words = (
        *("deploy.jobs.pod_job", "train", "--inventory", f"{INVENTORY_FOLDER}/{INVENTORY}"),
        *("--set", f"nodes.{COORDINATOR_NODE}.address=$(POD_IP)", "--identity", "$(JOB_IDENTITY)"),
    )
    return filled(
        _template("training"), **common, words=words, port=coordinator.port, metrics_port=coordinator.metrics_port
    )


def _nfs(inventory: "Inventory") -> Mapping[str, str] | None:
    if inventory.storage is None:
        return None
    server, _, export = shared_folders(inventory).source.partition(":")
    return {"server": server, "export": export}


def _template(name: str) -> str:
    return f"render/manifests/{name}.yaml.j2"


def _rounded(taken: float) -> int:
    return -int(-taken // (_STEP_MEBIBYTES * _MEBIBYTE)) * _STEP_MEBIBYTES
