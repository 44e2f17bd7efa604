"""The manifests: what Kubernetes' own schemas, kustomize and the firewall say of them."""

import shutil
import subprocess
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from core.ground.errors import UsageError
from core.inventory.loading import loads
from deploy.commands.machine_actions import RenderFlags, render
from deploy.common.project import ROOT
from deploy.render.kubernetes import INVENTORY, KUSTOMIZATION, NETWORK_POLICIES, manifests
from deploy.render.kubernetes import SERVICE as SERVICE
from deploy.render.network import closed_ports
from tests.core.inventory.cases import machine, read
from tests.deploy.converge.pi import thesis
from tests.deploy.render.rendered import (
    ALLOWED,
    BYTES,
    FOLDER,
    MINIMAL,
    READERS,
    SERVING,
    pods,
)
from tests.deploy.tables import Tables
from tests.habits import needs
from tests.ran import ran

rows = Tables(__file__)

SHIPPED = {"base": ("inventory.yaml", "thesis"), "four-pis": ("inventories/four-pis.yaml", "four")}
VERSIONS = ("1.31.0", "1.34.0", "1.37.0")


def shipped_files(name: str) -> dict[str, str]:
    folder = ROOT / "deploy/kubernetes" / name
    return {path.name: path.read_text() for path in folder.iterdir()}


@pytest.mark.parametrize("name", SHIPPED)
def test_the_shipped_manifests_are_those_of_the_shipped_inventories(
    tmp_path: Path, name: str
) -> None:
    shipped = SHIPPED[name][0]
    # A copy: the shipped one may have a person's cluster beside it.
    inventory = shutil.copy(ROOT / shipped, tmp_path)
    rendered = tmp_path / "rendered"
    flags = ("--inventory", inventory, "--out", rendered)
    ran(".venv/bin/fab", "deploy", "render", "kubernetes", *flags)
    texts = {path.name: path.read_text() for path in rendered.iterdir()}
    remedy = (
        f"run `fab deploy render kubernetes --inventory {shipped} --out deploy/kubernetes/{name}`"
    )
    assert texts == shipped_files(name), remedy


def documents(files: dict[str, str]) -> list[dict[str, Any]]:
    texts = [text for name, text in files.items() if name not in (INVENTORY, KUSTOMIZATION)]
    return [document for text in texts for document in yaml.safe_load_all(text)]


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("name", sorted(path.name for path in FOLDER.glob("pods*")))
def test_every_manifest_has_the_schema_of_kubernetes(version: str, name: str) -> None:
    """With every part that an inventory may add; a larger inventory only has more services."""
    files = {path.name: path.read_text() for path in (FOLDER / name).iterdir()}
    for document in documents(files):
        kubernetes_validate.validate(document, version, strict=True)


@pytest.mark.parametrize("name", SHIPPED)
def test_kustomize_builds_the_shipped_folders(name: str) -> None:
    words = [str(needs.tool("kubectl")), "kustomize", str(ROOT / "deploy/kubernetes" / name)]
    built = list(yaml.safe_load_all(subprocess.check_output(words, text=True)))
    assert len(built) == len(documents(shipped_files(name))) + 1  # the inventory's ConfigMap
    (config,) = [one["metadata"]["name"] for one in built if one["kind"] == "ConfigMap"]
    assert config == f"{SHIPPED[name][1]}-inventory"
    cluster_wide = ("Namespace", "PersistentVolume")
    spaces = {one["metadata"].get("namespace") for one in built if one["kind"] not in cluster_wide}
    assert spaces == {"pscluster"}


def test_the_pods_read_an_inventory_of_the_same_tasks_and_jobs() -> None:
    inventory = thesis()
    addresses = {f"thesis-worker-{index}": f"10.43.0.{index + 1}" for index in range(16)}
    read_by_pods = loads(
        manifests(inventory, BYTES, 8)[INVENTORY],
        INVENTORY,
        ["nodes.coordinator.address=10.42.0.9"],
        path=Path(INVENTORY),
        machine=machine(names=addresses | {"thesis-ps-0": "10.43.1.0"}),
    )
    theirs, ours = (
        [(task.name, task.port, task.metrics_port) for task in one.tasks()]
        for one in (read_by_pods, inventory)
    )
    assert theirs == ours
    assert (read_by_pods.jobs, read_by_pods.jobs.order) == (inventory.jobs, inventory.jobs.order)
    assert read_by_pods.task("worker", 3).host == "10.43.0.4"


@pytest.mark.parametrize(
    "text",
    [
        *(MINIMAL, MINIMAL + READERS, MINIMAL + "page: {listen: cluster}\n", SERVING + ALLOWED),
        MINIMAL + "ports: {ps: 3000, programs: 4000}\n",
    ],
)
def test_the_network_policies_open_what_the_firewall_opens(text: str) -> None:
    inventory = read(text)
    policies = yaml.safe_load_all(manifests(inventory, BYTES, 1)[NETWORK_POLICIES])
    opened = {
        port
        for policy in policies
        for rule in policy["spec"].get("ingress", [])[:1]
        for one in rule["ports"]
        for port in range(one["port"], one.get("endPort", one["port"]) + 1)
    }
    # A serving pod is no role and has a policy of its own.
    of_service = {inventory.service.port, inventory.service.metrics_port}
    assert opened == closed_ports(inventory, "") - of_service


def test_without_a_firewall_there_are_no_network_policies() -> None:
    files = pods(SERVING + ALLOWED + "deployment: {firewall: false}\n")
    resources = yaml.safe_load(files[KUSTOMIZATION])["resources"]
    assert not {NETWORK_POLICIES} & {*files, *resources}
    assert SERVICE in resources
    assert "NetworkPolicy" not in files[SERVICE]


@rows("old", "new", "said")
def test_what_no_pods_can_be_made_of_is_one_line(old: str, new: str, said: str) -> None:
    with pytest.raises(UsageError) as raised:
        pods(MINIMAL.replace(old, new))
    assert said in str(raised.value)
    assert "\n" not in str(raised.value)


def test_an_inventory_of_one_host_is_refused(tmp_path: Path) -> None:
    """In a folder of the test's own: the project's may have the state of the person's cluster."""
    inventory = shutil.copy(ROOT / "inventories/local.yaml", tmp_path)
    flags = RenderFlags(inventory=str(inventory), kind="kubernetes")
    with pytest.raises(UsageError, match=r"connection: local: `deploy render` is for machines"):
        render(flags)
