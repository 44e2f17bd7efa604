"""The recognition service as pods of Kubernetes: what `manifests/service.yaml.j2` needs to know.

Pure.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from deploy.common.command_line import filled
from deploy.render.pods import STATE_FOLDER, Pods
from deploy.render.units import pace

if TYPE_CHECKING:
    from core.inventory import Inventory

FILE = "service.yaml"
NAMESPACE = "pscluster"
STATE = "/tmp/service"
"""The folder of a pod alone, which starts without one."""
VERSIONS_FOLDER = f"{STATE_FOLDER}/service"
TOKEN_FOLDER = "/etc/pscluster/token"
TLS_FOLDER = "/etc/pscluster/tls"
REQUEST_MEBIBYTES = 256
"""A service takes 132 MB at rest and 200 MB once a live session came (docs/service.md)."""


def service_manifest(
    inventory: "Inventory", pods: Pods, common: Mapping[str, Any], nfs: object
) -> str:
    """The pods, their services, autoscaler, budget, volume and policy."""
    service = inventory.service
    return filled(
        "render/manifests/service.yaml.j2",
        **common,
        service=service,
        words=words(inventory, pods),
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


def words(inventory: "Inventory", pods: Pods) -> tuple[str, ...]:
    """Return the container's arguments; clients call it by the names of its service."""
    service = inventory.service
    own = f"{pods.cluster}-service"
    names = (
        own,
        f"{own}.{NAMESPACE}",
        f"{own}.{NAMESPACE}.svc",
        f"{own}.{NAMESPACE}.svc.cluster.local",
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
    """Each as a network: `10.0.0.7` is `10.0.0.7/32`."""
    return tuple(each if "/" in each else f"{each}/32" for each in addresses)
