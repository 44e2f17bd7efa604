"""The manifests: what Kubernetes' own schemas, kustomize and the firewall say of them."""

import subprocess
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml
from invoke.exceptions import Exit

from cluster.errors import UsageError
from cluster.inventory import Inventory, load
from cluster.inventory.loading import loads
from deploy.commands.render import render
from deploy.render.firewall import NFS_PORT, NODE_EXPORTER_PORT, closed_ports
from deploy.render.kubernetes import INVENTORY, KUSTOMIZATION, NETWORK_POLICIES, Memory, manifests, ranges
from tests.habits import needs
from tests.inventory.cases import machine, read

PROJECT = Path(__file__).resolve().parents[3]
SHIPPED = {
    PROJECT / "deploy/kubernetes/base": "inventory.yaml",
    PROJECT / "deploy/kubernetes/four-pis": "inventories/four-pis.yaml",
}
VERSIONS = ("1.31.0", "1.34.0", "1.37.0")
BYTES = {"ps": 101 * 10**6, "worker": 193 * 10**6, "coordinator": 317 * 10**6}
MINIMAL = """\
schema: 1
cluster: small
connection: ssh
nodes:
  - {name: a, address: 10.0.0.1, roles: [ps, coordinator]}
  - {name: b, address: 10.0.0.2, roles: [worker]}
"""
READERS = "deployment: {allow: [10.9.0.0/16, 10.0.0.7]}\n"


def documents(files: Any) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for name, text in files.items():
        if name not in (INVENTORY, KUSTOMIZATION):
            found += yaml.safe_load_all(text)
    return found


def of(text: str, *overrides: str) -> dict[str, str]:
    inventory = loads(text, "small.yaml", overrides, path=Path("small.yaml"), machine=machine())
    return dict(manifests(inventory, BYTES, 1))


def named(files: Any, kind: str, name: str) -> dict[str, Any]:
    (found,) = [one for one in documents(files) if (one["kind"], one["metadata"]["name"]) == (kind, name)]
    return found


def containers(files: Any) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    pods = [one["spec"]["template"]["spec"] for one in documents(files) if one["kind"] in ("StatefulSet", "Job")]
    return [(pod, container) for pod in pods for container in pod["containers"]]


@pytest.fixture(scope="module")
def thesis() -> Inventory:
    return load(PROJECT / "inventory.yaml", check_interfaces=False)


@pytest.mark.parametrize("shipped", SHIPPED, ids=lambda folder: folder.name)
def test_the_shipped_manifests_are_those_of_the_shipped_inventories(tmp_path: Path, shipped: Path) -> None:
    words = (".venv/bin/fab", "deploy", "render", "kubernetes", "--inventory", SHIPPED[shipped], "--out", str(tmp_path))
    subprocess.run(words, cwd=PROJECT, check=True, capture_output=True, stdin=subprocess.DEVNULL)
    folder = shipped.relative_to(PROJECT)
    remedy = f"run `fab deploy render kubernetes --inventory {SHIPPED[shipped]} --out {folder}`"
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {
        path.name: path.read_text() for path in shipped.iterdir()
    }, remedy


@pytest.mark.parametrize("version", VERSIONS)
def test_every_manifest_has_the_schema_of_kubernetes(version: str) -> None:
    """With every part that an inventory may add; a larger inventory only has more services."""
    for document in documents(of(MINIMAL + READERS + "storage: {external: 'nas.local:/volume1/x'}\n")):
        kubernetes_validate.validate(document, version, strict=True)


def test_the_schemas_refuse_a_wrong_key() -> None:
    wrong = named(of(MINIMAL), "StatefulSet", "small-worker")
    wrong["spec"]["template"]["spec"]["containers"][0]["readOnly"] = True
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(wrong, VERSIONS[-1], strict=True)


@pytest.mark.parametrize("folder", SHIPPED, ids=lambda folder: folder.name)
def test_kustomize_builds_the_shipped_folders(folder: Path) -> None:
    kubectl = needs.tool("kubectl")
    words = [str(kubectl), "kustomize", str(folder)]
    built = list(yaml.safe_load_all(subprocess.run(words, check=True, capture_output=True, text=True).stdout))
    shipped = documents({path.name: path.read_text() for path in folder.iterdir()})
    assert len(built) == len(shipped) + 1  # the inventory's ConfigMap
    (config,) = [one for one in built if one["kind"] == "ConfigMap"]
    cluster = {"base": "thesis", "four-pis": "four"}[folder.name]
    assert config["metadata"]["name"] == f"{cluster}-inventory"
    cluster_wide = ("Namespace", "PersistentVolume")
    assert {one["metadata"].get("namespace") for one in built if one["kind"] not in cluster_wide} == {"pscluster"}


def test_the_same_inventory_gives_the_same_text() -> None:
    assert of(MINIMAL + READERS) == of(MINIMAL + READERS)


def test_a_pod_for_each_role_with_a_service_of_its_name(thesis: Inventory) -> None:
    files = manifests(thesis, BYTES, 8)
    for role, count in (("ps", 1), ("worker", 16)):
        pods = named(files, "StatefulSet", f"thesis-{role}")["spec"]
        assert (pods["replicas"], pods["serviceName"]) == (count, f"thesis-{role}")
        assert named(files, "Service", f"thesis-{role}")["spec"]["clusterIP"] == "None"
        for index in range(count):
            selected = named(files, "Service", f"thesis-{role}-{index}")["spec"]["selector"]
            assert selected == {"statefulset.kubernetes.io/pod-name": f"thesis-{role}-{index}"}


def test_the_pods_read_an_inventory_of_the_same_tasks_and_jobs(thesis: Inventory) -> None:
    text = manifests(thesis, BYTES, 8)[INVENTORY]
    addresses = {f"thesis-worker-{index}": f"10.43.0.{index + 1}" for index in range(16)} | {"thesis-ps-0": "10.43.1.0"}
    pods = loads(
        text, INVENTORY, ["nodes.coordinator.address=10.42.0.9"], path=Path(INVENTORY),
        machine=machine(names=addresses),
    )  # fmt: skip
    assert [(task.name, task.port, task.metrics_port) for task in pods.tasks()] == [
        (task.name, task.port, task.metrics_port) for task in thesis.tasks()
    ]
    assert pods.jobs == thesis.jobs
    assert pods.jobs.order == thesis.jobs.order
    assert pods.task("worker", 3).host == "10.43.0.4"


def test_no_container_can_gain_rights() -> None:
    found = containers(of(MINIMAL))
    assert len(found) == 3
    for pod, container in found:
        assert not pod["automountServiceAccountToken"]
        assert "hostNetwork" not in pod
        security = pod["securityContext"]
        assert (security["runAsNonRoot"], security["runAsUser"]) == (True, 890)
        assert security["seccompProfile"] == {"type": "RuntimeDefault"}
        own = container["securityContext"]
        assert (own["readOnlyRootFilesystem"], own["allowPrivilegeEscalation"], own["privileged"]) == (
            True,
            False,
            False,
        )
        assert own["capabilities"] == {"drop": ["ALL"]}
        assert container["resources"]["limits"].keys() == {"memory"}


def test_workers_only_read_the_data_and_the_roles_have_no_runs() -> None:
    mounts = {
        container["name"]: {mount["name"]: mount.get("readOnly", False) for mount in container["volumeMounts"]}
        for _, container in containers(of(MINIMAL))
    }
    assert mounts == {
        "ps": {"tmp": False},
        "worker": {"tmp": False, "data": True},
        "coordinator": {"tmp": False, "inventory": True, "data": False, "runs": False},
    }


@pytest.mark.parametrize("extra", ["", READERS, "page: {listen: cluster}\n", "ports: {ps: 3000, programs: 4000}\n"])
def test_the_network_policies_open_what_the_firewall_opens(extra: str) -> None:
    inventory = read(MINIMAL + extra, on=machine())
    policy = yaml.safe_load_all(manifests(inventory, BYTES, 1)[NETWORK_POLICIES])
    rules = next(iter(policy))["spec"]
    opened = [
        {port for one in rule["ports"] for port in range(one["port"], one.get("endPort", one["port"]) + 1)}
        for rule in rules["ingress"]
    ]
    assert opened[0] == closed_ports(inventory) - {NFS_PORT, NODE_EXPORTER_PORT}
    assert rules["ingress"][0]["from"] == [{"podSelector": rules["podSelector"]}]
    assert rules["egress"] == [{"to": [{"podSelector": rules["podSelector"]}]}]
    if extra == READERS:
        assert opened[1] == {9200, 9201, 9202}  # no port that runs graphs
        assert rules["ingress"][1]["from"] == [
            {"ipBlock": {"cidr": "10.9.0.0/16"}}, {"ipBlock": {"cidr": "10.0.0.7/32"}}
        ]  # fmt: skip
    else:
        assert len(opened) == 1


def test_without_a_firewall_there_are_no_network_policies() -> None:
    files = of(MINIMAL + "deployment: {firewall: false}\n")
    assert NETWORK_POLICIES not in files
    assert NETWORK_POLICIES not in yaml.safe_load(files[KUSTOMIZATION])["resources"]


def test_the_storage_of_the_inventory_becomes_volumes() -> None:
    volume = named(of(MINIMAL + "storage: {external: 'nas.local:/volume1/x'}\n"), "PersistentVolume", "small-runs")
    assert volume["spec"]["nfs"] == {"server": "nas.local", "path": "/volume1/x/runs"}
    without = of(MINIMAL)
    assert not [one for one in documents(without) if one["kind"] == "PersistentVolume"]
    assert "storageClassName" not in named(without, "PersistentVolumeClaim", "small-data")["spec"]


def test_no_secret_is_written() -> None:
    files = of(MINIMAL)
    assert "Secret" not in {one["kind"] for one in documents(files)}
    for _, container in containers(files):
        (token,) = [one for one in container["env"] if one["name"] == "PSCLUSTER_TOKEN"]
        assert token["valueFrom"] == {"secretKeyRef": {"name": "small-token", "key": "token"}}


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"connection: ssh": "connection: ssh", "cluster: small": "cluster: Small_One"}, "got 'Small_One'"),
        ({"cluster: small": f"cluster: {'a' * 41}"}, "at most 40 characters"),
        ({"cluster: small": "cluster: 16pis"}, "with a letter first"),
        ({"[worker]": "[worker, {worker: {port: 3000, metrics_port: 3001}}]"}, "expected one worker, got two"),
        (
            {"[worker]": "[{worker: {port: 3000}}]"},
            "expected the ports 2223 and 9201 of `ports` for worker:0, got 3000",
        ),
        ({"nodes:": "jobs: {train: {device: {kind: gpu}}}\nnodes:"}, "expected cpu, got gpu"),
        ({"nodes:": "jobs: {train: {app: apps/mine}}\nnodes:"}, "no app is brought into pods"),
    ],
)
def test_what_no_pods_can_be_made_of_is_one_line(changes: dict[str, str], said: str) -> None:
    text = MINIMAL
    for old, new in changes.items():
        assert old in text
        text = text.replace(old, new)
    with pytest.raises(UsageError) as raised:
        of(text)
    assert said in str(raised.value)
    assert "\n" not in str(raised.value)


def test_an_inventory_of_one_host_is_refused() -> None:
    with pytest.raises(Exit, match=r"connection: local: `deploy render` is for machines"):
        render(object(), inventory=str(PROJECT / "inventories/local.yaml"), kind="kubernetes")


@pytest.mark.parametrize(
    ("ports", "expected"), [((), ()), ((5,), ((5, 5),)), ((7, 5, 6, 9), ((5, 7), (9, 9)))]
)  # fmt: skip
def test_ports_as_ranges(ports: tuple[int, ...], expected: tuple[tuple[int, int], ...]) -> None:
    assert ranges(ports) == expected


def test_a_limit_has_room_for_the_libraries() -> None:
    memory = Memory.of(193 * 10**6)
    assert (memory.request, memory.limit) == (192, 576)
