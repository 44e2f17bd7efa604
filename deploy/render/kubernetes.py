"""Manifests of Kubernetes, for kustomize, from the templates in `manifests/`. Pure.

A pod has no address of its own that stays. So each role gets a service of the pod's name, whose
address stays, and the inventory of the pods names these services.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import yaml

from core.ground.errors import UsageError
from core.logs.lines import LogSettings
from core.server.options import cage_flags, logging_flags, peers, reach
from deploy.cluster.places import shared_folders
from deploy.common.command_line import filled
from deploy.render.network import graph_ports, metrics_ports, ranges
from deploy.render.units import MODULES, pace

if TYPE_CHECKING:
    from core.inventory import Inventory, Task


_NAME = re.compile(r"[a-z]([a-z0-9-]*[a-z0-9])?")
LONGEST_NAME = 40
"""The most characters of a cluster's name. A service's has 63 at most, and a StatefulSet labels its
pods with more words."""

STATE_FOLDER = "/var/lib/pscluster"
DATA_FOLDER = f"{STATE_FOLDER}/data"
RUNS_FOLDER = f"{STATE_FOLDER}/runs"
INVENTORY_FOLDER = "/etc/pscluster"
CREDENTIALS_FOLDER = "/run/secrets/pscluster"
"""The folder of the coordinator's token or a role's key, which no role reads once it serves."""
COORDINATOR_NODE = "coordinator"
"""The node of the coordinator in the pods' inventory. The Job's pod puts its own address there."""

_KEPT = ("schema", "cluster", "allow_public", "page", "logging")
"""The fields of an inventory that pods read as written; the rest is about machines."""


@dataclass(frozen=True)
class Pods:
    """The pods of a cluster."""

    cluster: str
    tasks: "tuple[Task, ...]"

    def service(self, task: "Task") -> str:
        """The service and the pod of a role: `thesis-worker-3`."""
        return f"{self.cluster}-{task.role}-{task.index}"

    def services(self, role: Literal["ps", "worker"]) -> tuple[str, ...]:
        """Return the services of all pods of a role, by their index."""
        return tuple(self.service(task) for task in self.tasks if task.role == role)


def pods_of(inventory: "Inventory") -> Pods:
    """The pods that an inventory of machines asks for.

    Raises UsageError, in one line, where they cannot be made.
    """
    where = inventory.path
    if not _NAME.fullmatch(inventory.cluster) or len(inventory.cluster) > LONGEST_NAME:
        raise UsageError(
            f"{where}: cluster: expected a name that Kubernetes takes, of lower-case letters,"
            f" digits and `-`, with a letter first and at most {LONGEST_NAME} characters, got"
            f" {inventory.cluster!r}"
        )
    if inventory.jobs.train.device.kind != "cpu":
        raise UsageError(
            f"{where}: jobs.train.device.kind: expected cpu, got"
            f" {inventory.jobs.train.device.kind}: the image has no TensorFlow for other devices"
        )
    if inventory.jobs.train.app is not None:
        raise UsageError(
            f"{where}: jobs.train.app: expected none, got {inventory.jobs.train.app}: no app is"
            " brought into pods"
        )
    node_roles: set[tuple[str, str]] = set()
    usual = {"ps": (inventory.ports.ps, inventory.ports.ps_metrics)}
    usual["worker"] = (inventory.ports.worker, inventory.ports.worker_metrics)
    for task in inventory.tasks():
        if (task.node, task.role) in node_roles:
            raise UsageError(
                f"{where}: nodes.{task.node}.roles: expected one {task.role}, got two: each becomes"
                " a pod with the cores of its node; keep one"
            )
        node_roles.add((task.node, task.role))
        ports = usual.get(task.role)
        if ports is not None and (task.port, task.metrics_port) != ports:
            raise UsageError(
                f"{where}: nodes.{task.node}.roles: expected the ports {ports[0]} and {ports[1]} of"
                f" `ports` for {task.name}, got {task.port} and {task.metrics_port}: the pods of"
                " one role are alike"
            )
    return Pods(inventory.cluster, inventory.tasks())


def pod_inventory(inventory: "Inventory", pods: Pods) -> str:
    """Return the inventory that the coordinator's pod reads, with a node for each pod."""
    written: dict[str, Any] = inventory.model_dump(mode="json", by_alias=True, exclude_unset=True)
    coordinator = inventory.of_role("coordinator")[0]
    ports: Mapping[str, int] = {
        **inventory.ports.model_dump(),
        "coordinator": coordinator.port,
        "coordinator_metrics": coordinator.metrics_port,
    }
    content = {name: written[name] for name in _KEPT if written.get(name)}
    content["connection"] = "ssh"
    content["ports"] = ports
    content["nodes"] = [
        {"name": pods.service(task), "address": pods.service(task), "roles": [task.role]}
        for task in pods.tasks
        if task.role != "coordinator"
    ]
    content["nodes"].append(
        {
            "name": COORDINATOR_NODE,
            "address": f"{pods.cluster}-coordinator",
            "roles": ["coordinator"],
        }
    )
    content["runs"] = RUNS_FOLDER
    content["jobs"] = {name: written["jobs"][name] for name in inventory.jobs.order}
    body: str = yaml.safe_dump(content, sort_keys=False, allow_unicode=True, width=110)
    return (
        f"# Written by `fab deploy render kubernetes`: what the pods of cluster {pods.cluster}"
        f" read.\n{body}"
    )


SERVICE = "service.yaml"
NAMESPACE = "pscluster"
STATE = "/tmp/service"
"""The folder of a pod alone, which starts without one."""
VERSIONS_FOLDER = f"{STATE_FOLDER}/service"
TOKEN_FOLDER = "/etc/pscluster/token"
TLS_FOLDER = "/etc/pscluster/tls"
REQUEST_MEBIBYTES = 256
"""The request of a service: 132 MB at rest, 200 MB once a live session came (docs/service.md)."""


def service_manifest(
    inventory: "Inventory", pods: Pods, common: Mapping[str, Any], nfs: object
) -> str:
    """The pods, their services, autoscaler, budget, volume and policy."""
    service = inventory.service
    return filled(
        "render/manifests/service.yaml.j2",
        **common,
        service=service,
        words=service_words(inventory, pods),
        scheme="HTTPS" if service.tls else "HTTP",
        clients=cidrs(service.allow),
        request_mebibytes=min(REQUEST_MEBIBYTES, service.memory_megabytes),
        versions_folder=VERSIONS_FOLDER,
        token_folder=TOKEN_FOLDER,
        tls_folder=TLS_FOLDER,
        least=len(inventory.service_nodes),
        most=len(inventory.nodes),
        nfs=nfs,
        firewall=inventory.deployment.firewall,
        readers=cidrs(inventory.deployment.allow),
    )


def service_words(inventory: "Inventory", pods: Pods) -> tuple[str, ...]:
    """Return the container's arguments; clients call it by the names of its service."""
    service = inventory.service
    service_name = f"{pods.cluster}-service"
    names = (
        service_name,
        f"{service_name}.{NAMESPACE}",
        f"{service_name}.{NAMESPACE}.svc",
        f"{service_name}.{NAMESPACE}.svc.cluster.local",
    )
    tls = (
        ("--certificate", f"{TLS_FOLDER}/tls.crt", "--key", f"{TLS_FOLDER}/tls.key")
        if service.tls
        else ()
    )
    return (
        *(
            "recognise.service",
            "--state",
            STATE,
            "--versions",
            VERSIONS_FOLDER,
            "--name",
            service.model,
        ),
        *(
            "--listen",
            "$(POD_IP)",
            "--port",
            str(service.port),
            "--metrics-port",
            str(service.metrics_port),
        ),
        *("--threads", str(service.threads), *pace(service)),
        *("--memory-megabytes", str(service.memory_megabytes)),
        *("--token-file", f"{TOKEN_FOLDER}/token", *tls, "--wait"),
        *(word for name in (*names, *service.names) for word in ("--host-name", name)),
    )


def cidrs(addresses: tuple[str, ...]) -> tuple[str, ...]:
    """Return each as a network: `10.0.0.7` is `10.0.0.7/32`."""
    return tuple(address if "/" in address else f"{address}/32" for address in addresses)


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
"""Pages of TensorFlow's libraries (docs/engine.md): a limit counts them, and a role without room
rereads them."""
_LARGEST_SHARE = 0.8


@dataclass(frozen=True)
class Memory:
    """Request and limit of one container, in MiB."""

    request: int
    limit: int

    @classmethod
    def of(cls, role_bytes: int) -> "Memory":
        """Return the memory of a role with these anonymous bytes."""
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
        "memory": {role: Memory.of(role_bytes) for role, role_bytes in memory_bytes.items()},
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
    match = _IMAGE.fullmatch(image)
    if match is None:
        raise UsageError(
            f"--image: expected NAME@sha256:DIGEST, got {image!r:.200}: a tag may be another image"
            " tomorrow; `podman image inspect` or the registry shows the digest"
        )
    return match["name"], match["digest"]


def _pod_metrics(inventory: "Inventory") -> set[int]:
    """Return the metrics ports of the roles, without those of the machines themselves."""
    pod_ports = {
        port
        for task in inventory.tasks()
        for port in (task.metrics_port, task.page_port)
        if port is not None
    }
    return metrics_ports(inventory) & pod_ports


def _role(inventory: "Inventory", pods: Pods, role: Any, common: Mapping[str, Any]) -> str:
    first = inventory.of_role(role)[0]
    arguments = (
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
        words=arguments,
        port=first.port,
        metrics_port=first.metrics_port,
    )


def _training(inventory: "Inventory", common: Mapping[str, Any]) -> str:
    coordinator = inventory.of_role("coordinator")[0]
    arguments = (
        *("deploy.jobs.pod_job", "train", "--inventory", f"{INVENTORY_FOLDER}/{INVENTORY}"),
        *("--set", f"nodes.{COORDINATOR_NODE}.address=$(POD_IP)", "--identity", "$(JOB_IDENTITY)"),
    )
    return filled(
        _template("training"),
        **common,
        words=arguments,
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


def _rounded(size_bytes: float) -> int:
    return -int(-size_bytes // (_STEP_MEBIBYTES * _MEBIBYTE)) * _STEP_MEBIBYTES
