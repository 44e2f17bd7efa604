"""Manifests of Kubernetes, for kustomize, from the templates in `manifests/`. Pure."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from core.ground.errors import UsageError
from core.logs.lines import LogSettings
from core.server.options import cage_flags, logging_flags, reach
from deploy.cluster.places import shared_folders
from deploy.common.command_line import filled
from deploy.render.firewall import graph_ports, metrics_ports, ranges
from deploy.render.pods import (
    COORDINATOR_NODE,
    CREDENTIALS_FOLDER,
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
    from core.inventory import Inventory

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
_IMAGE = re.compile(
    r"(?P<name>[a-z0-9][a-z0-9._-]*(:[0-9]{1,5}(?=/))?(/[a-z0-9][a-z0-9._-]*){0,8})"
    r"@(?P<digest>sha256:[0-9a-f]{64})"
)
_MEBIBYTE = 1 << 20
_STEP_MEBIBYTES = 32
_LIBRARIES_BYTES = 277 * 10**6
"""Pages of TensorFlow's libraries (docs/roles.md): a limit counts them, and a role without room
rereads them."""
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


def manifests(
    inventory: "Inventory", memory_bytes: Mapping[str, int], least_workers: int, image: str = ""
) -> Mapping[str, str]:
    """The files by name: a kustomization and what it names.

    `memory_bytes` are the anonymous bytes of a process of each role, `least_workers` those that a
    drain has to leave. `image` is NAME@sha256:DIGEST, without it a tag. Raises UsageError for an
    inventory that no pods can be made of, or an image without its digest.
    """
    pods = pods_of(inventory)
    name, digest = _image(image)
    common: dict[str, Any] = {
        "pods": pods,
        "uid": inventory.deployment.service_uid,
        "memory": {role: Memory.of(taken) for role, taken in memory_bytes.items()},
        "data_folder": DATA_FOLDER,
        "runs_folder": RUNS_FOLDER,
        "inventory_folder": INVENTORY_FOLDER,
        "credentials_folder": CREDENTIALS_FOLDER,
    }
    serves = bool(inventory.service_nodes)
    resources = (
        *RESOURCES,
        *((SERVICE,) if serves else ()),
        *((NETWORK_POLICIES,) if inventory.deployment.firewall else ()),
    )
    texts = {
        KUSTOMIZATION: filled(
            _template("kustomization"), **common, resources=resources, image=name, digest=digest
        ),
        INVENTORY: pod_inventory(inventory, pods),
        "namespace.yaml": filled(_template("namespace")),
        "volumes.yaml": filled(_template("volumes"), **common, nfs=_nfs(inventory)),
        "parameter-servers.yaml": _role(inventory, pods, "ps", common),
        "workers.yaml": _role(inventory, pods, "worker", common),
        "training.yaml": _training(inventory, common),
        "disruption-budgets.yaml": filled(
            _template("disruption-budgets"), **common, least_workers=least_workers
        ),
    }
    if serves:
        texts[SERVICE] = service_manifest(inventory, pods, common, _nfs(inventory))
    if inventory.deployment.firewall:
        texts[NETWORK_POLICIES] = filled(
            _template("network-policies"),
            **common,
            inner=ranges(graph_ports(inventory)),
            metrics=ranges(_pod_metrics(inventory)),
            readers=cidrs(inventory.deployment.allow),
        )
    return texts


def _image(image: str) -> tuple[str, str]:
    """Return name and digest; both empty without an image."""
    if not image:
        return "", ""
    parts = _IMAGE.fullmatch(image)
    if parts is None:
        raise UsageError(
            f"--image: expected NAME@sha256:DIGEST, got {image!r:.200}: a tag may be another image"
            " tomorrow; `podman image inspect` or the registry shows the digest"
        )
    return parts["name"], parts["digest"]


def _pod_metrics(inventory: "Inventory") -> set[int]:
    """Return the metrics ports of the roles, without those of the machines themselves."""
    own = {
        port
        for task in inventory.tasks()
        for port in (task.metrics_port, task.page_port)
        if port is not None
    }
    return metrics_ports(inventory) & own


def _role(inventory: "Inventory", pods: Pods, role: Any, common: Mapping[str, Any]) -> str:
    first = inventory.of_role(role)[0]
    words = (
        *(
            MODULES[role],
            "--task",
            "$(POD_INDEX)",
            "--host",
            "$(POD_IP)",
            "--port",
            str(first.port),
        ),
        *("--metrics-port", str(first.metrics_port), "--peers", str(peers(inventory))),
        *("--guard", "none", "--coordinator", "token"),
        *cage_flags((DATA_FOLDER,), reach(inventory)),
        *logging_flags(LogSettings(inventory.logging.format, inventory.logging.level)),
    )
    return filled(
        _template("role"),
        **common,
        role=role,
        headless=f"{pods.cluster}-{role}",
        services=pods.services(role),
        words=words,
        port=first.port,
        metrics_port=first.metrics_port,
    )


def _training(inventory: "Inventory", common: Mapping[str, Any]) -> str:
    coordinator = inventory.of_role("coordinator")[0]
    words = (
        *("deploy.jobs.pod_job", "train", "--inventory", f"{INVENTORY_FOLDER}/{INVENTORY}"),
        *("--set", f"nodes.{COORDINATOR_NODE}.address=$(POD_IP)", "--identity", "$(JOB_IDENTITY)"),
    )
    return filled(
        _template("training"),
        **common,
        words=words,
        port=coordinator.port,
        metrics_port=coordinator.metrics_port,
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
