"""Who reaches whom by the network policies of the manifests, computed as Kubernetes defines it.

https://kubernetes.io/docs/concepts/services-networking/network-policies/: a pod that no policy of a
direction selects is open in it; else a connection needs a rule of one that does, at both ends.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from ipaddress import ip_address, ip_network
from pathlib import Path
from typing import Any

import pytest
import yaml

from core.ground.errors import UsageError
from core.inventory.loading import loads
from deploy.render.kubernetes import INVENTORY, KUSTOMIZATION, manifests
from tests.core.inventory.cases import machine
from tests.deploy.render.rendered import ALLOWED, BYTES, MINIMAL, READERS, SERVING, pods
from tests.deploy.tables import Tables

rows = Tables(__file__)

GRAPHS = "graphs"
CLIENT = "10.9.3.4"
OUTSIDER = "203.0.113.7"


@dataclass(frozen=True)
class Pod:
    component: str
    labels: Mapping[str, str]
    ports: Mapping[str, int]
    spec: Mapping[str, Any]


Peer = Pod | str
"""A pod, or the address of what is none."""


class Cluster:
    """The pods and the policies of rendered files."""

    def __init__(self, text: str) -> None:
        documents = [
            document
            for name, file in pods(text).items()
            if name not in (INVENTORY, KUSTOMIZATION)
            for document in yaml.safe_load_all(file)
        ]
        (self.namespace,) = [one for one in documents if one["kind"] == "Namespace"]
        self.policies = [one["spec"] for one in documents if one["kind"] == "NetworkPolicy"]
        self.pods = {pod.component: pod for pod in map(_pod, documents) if pod is not None}

    def reaches(self, source: Peer, target: Peer, port: int) -> bool:
        return self._lets(source, "Egress", target, port) and self._lets(
            target, "Ingress", source, port
        )

    def _lets(self, own: Peer, direction: str, other: Peer, port: int) -> bool:
        """Whether the policies of one end let a connection with the other one be."""
        if isinstance(own, str):
            return True
        chosen = [
            policy
            for policy in self.policies
            if direction in policy["policyTypes"] and _selects(policy["podSelector"], own)
        ]
        if not chosen:
            return True
        rules = (rule for policy in chosen for rule in policy.get(direction.lower(), []))
        return any(_matches(rule, direction, other, port) for rule in rules)


def _pod(document: Mapping[str, Any]) -> Pod | None:
    template = document.get("spec", {}).get("template")
    if template is None:
        return None
    labels = template["metadata"]["labels"]
    named = {
        port["name"]: port["containerPort"]
        for container in template["spec"]["containers"]
        for port in container.get("ports", [])
    }
    return Pod(labels["app.kubernetes.io/component"], labels, named, template["spec"])


def _selects(selector: Mapping[str, Any], pod: Pod) -> bool:
    for expression in selector.get("matchExpressions", []):
        assert expression["operator"] == "In"
        if pod.labels.get(expression["key"]) not in expression["values"]:
            return False
    wanted = selector.get("matchLabels", {})
    return all(pod.labels.get(key) == value for key, value in wanted.items())


def _matches(rule: Mapping[str, Any], direction: str, other: Peer, port: int) -> bool:
    key = {"Ingress": "from", "Egress": "to"}[direction]
    if key in rule and not any(_is(peer, other) for peer in rule[key]):
        return False
    ranges = [(one["port"], one.get("endPort", one["port"])) for one in rule.get("ports", [])]
    return not ranges or any(first <= port <= last for first, last in ranges)


def _is(peer: Mapping[str, Any], other: Peer) -> bool:
    if "namespaceSelector" in peer:
        return False  # all pods here are of one namespace, which no policy names
    if isinstance(other, str):
        return "ipBlock" in peer and ip_address(other) in ip_network(peer["ipBlock"]["cidr"])
    return "podSelector" in peer and _selects(peer["podSelector"], other)


SERVED = (SERVING, SERVING + ALLOWED, SERVING + ALLOWED + READERS)


@pytest.mark.parametrize("text", SERVED)
def test_a_serving_pod_reaches_nothing_and_no_graph_port(text: str) -> None:
    cluster = Cluster(text)
    service = cluster.pods["service"]
    peers: list[Peer] = [*cluster.pods.values(), OUTSIDER]
    for pod in peers:
        for port in (53, 443, *range(2200, 2300), 8470, *range(9200, 9210)):
            assert not cluster.reaches(service, pod, port)


@pytest.mark.parametrize("text", [MINIMAL, *SERVED])
def test_the_roles_reach_each_other_and_addresses_reach_no_graph_port(text: str) -> None:
    """The coordinator's process writes the runs: on machines too it runs graphs for no other."""
    cluster = Cluster(text)
    roles = [cluster.pods[component] for component in ("ps", "worker", "coordinator")]
    for role in roles:
        port = role.ports[GRAPHS]
        lets_in = role.component != "coordinator"
        assert [cluster.reaches(other, role, port) for other in roles] == [lets_in] * 3
        assert all(cluster.reaches(other, role, role.ports["metrics"]) for other in roles)
        assert not any(cluster.reaches(address, role, port) for address in (CLIENT, OUTSIDER))
        assert not cluster.reaches(role, OUTSIDER, 443)


def test_clients_reach_the_service_and_readers_all_metrics() -> None:
    cluster = Cluster(SERVING + ALLOWED + READERS)
    service = cluster.pods["service"]
    assert cluster.reaches(CLIENT, service, service.ports["clients"])
    assert not cluster.reaches(OUTSIDER, service, service.ports["clients"])
    for pod in cluster.pods.values():
        assert cluster.reaches(CLIENT, pod, pod.ports["metrics"])
        assert not cluster.reaches(OUTSIDER, pod, pod.ports["metrics"])


@pytest.mark.parametrize("text", [MINIMAL, *SERVED])
def test_a_secret_is_a_file_for_its_account_and_never_in_an_environment(text: str) -> None:
    for pod in Cluster(text).pods.values():
        secrets = {one["name"]: one["secret"] for one in pod.spec["volumes"] if "secret" in one}
        assert secrets
        assert {secret["defaultMode"] for secret in secrets.values()} == {0o400}
        for container in pod.spec["containers"]:
            assert "envFrom" not in container
            for variable in container["env"]:
                assert "secretKeyRef" not in variable.get("valueFrom", {})


DIGEST = "sha256:" + "0123456789abcdef" * 4


@rows("name")
def test_an_image_is_named_by_its_digest(name: str) -> None:
    inventory = loads(MINIMAL, "small.yaml", (), path=Path("small.yaml"), machine=machine())
    files = manifests(inventory, BYTES, 1, f"{name}@{DIGEST}")
    (image,) = yaml.safe_load(files[KUSTOMIZATION])["images"]
    assert image == {"name": "localhost/pscluster", "newName": name, "digest": DIGEST}
    used = {
        container["image"]
        for pod in Cluster(MINIMAL).pods.values()
        for container in pod.spec["containers"]
    }
    assert {one.rpartition(":")[0] for one in used} == {image["name"]}


@pytest.mark.parametrize(
    "image",
    [
        "pscluster:latest",
        "pscluster",
        f"pscluster:1@{DIGEST}",
        f"pscluster@{DIGEST[:-1]}",
        "a@b\nc",
    ],
)
def test_an_image_without_its_digest_is_refused(image: str) -> None:
    inventory = loads(MINIMAL, "small.yaml", (), path=Path("small.yaml"), machine=machine())
    with pytest.raises(UsageError, match="expected NAME@sha256:DIGEST"):
        manifests(inventory, BYTES, 1, image)
