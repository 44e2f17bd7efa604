"""A machine on the switch answers for the name of a node: what the other nodes then let in.

The resolver is played in the place of mDNS; keys, SSH servers and texts are the real ones.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from core.ground.errors import ClusterError
from core.inventory import Inventory, Machine
from core.inventory.loading import loads
from deploy.cluster.cluster import (
    TrustedAddresses,
    as_overrides,
    resolved_names,
    with_trusted_addresses,
)
from deploy.cluster.connection import NodeConnection
from deploy.cluster.fleet import Fleet
from deploy.cluster.login import PinnedKeys, SshAddress, addresses
from deploy.cluster.places import shared_folders
from deploy.cluster.refusals import ask_for_key
from deploy.common.project import ROOT
from deploy.converge.deployment import DeploymentPlan, DeploymentRequest, survey_and_plan
from deploy.converge.desired import Machines
from deploy.render.network import ruleset
from deploy.render.storage import exports
from deploy.render.units import addresses_drop_in
from tests.deploy.converge.pi import release
from tests.deploy.converge.played_machine import PlayedMachine
from tests.deploy.over_ssh.sshd import Sshd, running_sshd

ATTACKER = "192.168.1.66"
NAMES = {f"rpi{number:02d}.local": f"192.168.1.{15 + number}" for number in range(1, 17)}
HOSTS = {name.removesuffix(".local"): host for name, host in NAMES.items()}


def machine_of(says: Mapping[str, str]) -> Machine:
    return Machine(lambda: "operator", dict, says.get, resolves_nodes=False)


def of_names(folder: Path) -> Inventory:
    """The shipped inventory with a name in the place of each address, as `fab` opens it now."""
    text = (ROOT / "inventory.yaml").read_text(encoding="utf-8")
    for name, address in NAMES.items():
        assert f"address: {address}," in text
        text = text.replace(f"address: {address},", f"address: {name},")
    path = folder / "inventory.yaml"
    opened = loads(text, str(path), (), path=path, machine=machine_of({}))
    return with_trusted_addresses(opened, folder / "known_hosts")


def trusted(folder: Path, says: Mapping[str, str]) -> Inventory:
    """The same after `fab deploy trust`, for which the network says this of names."""
    inventory = of_names(folder)
    hosts = resolved_names(inventory, HOSTS, machine_of(says))
    TrustedAddresses(folder / "known_hosts").keep(inventory, hosts)
    return of_names(folder)


def played(folder: Path, inventory: Inventory, lost: str) -> Fleet:
    """Each node where it is, but for one that is elsewhere by now."""

    class Silent(PlayedMachine):
        def open(self) -> None:
            raise ClusterError(f"{self.name}: its host key is not the one that is pinned")

    return Fleet(
        [
            (Silent if node.name == lost else PlayedMachine)(
                folder / node.name, node.name, HOSTS[node.name]
            )
            for node in inventory.nodes
        ],
        parallel=4,
    )


def texts(inventory: Inventory) -> str:
    """Every text of the nodes that says who is let in."""
    tables = [ruleset(inventory, node.name) for node in inventory.nodes]
    shared = exports(inventory, shared_folders(inventory))
    return "\n".join((*tables, shared, addresses_drop_in(inventory)))


def looked(folder: Path, inventory: Inventory, lost: str = "") -> DeploymentPlan:
    desired = Machines(inventory, release())
    names = tuple(node.name for node in inventory.nodes)
    request = DeploymentRequest("start", names, ("firewall", "services"))
    with played(folder, inventory, lost) as fleet:
        return survey_and_plan(fleet, desired, request, lambda words: None)


@pytest.mark.parametrize("before", [True, False], ids=["it was trusted before", "never trusted"])
def test_who_answers_for_a_name_is_let_in_nowhere(tmp_path: Path, before: bool) -> None:
    """After `trust` nothing asks the network for a name; whom it does not know stays out."""
    inventory = trusted(tmp_path, {k: v for k, v in NAMES.items() if before or v[-3:] != ".20"})
    where = {address.name: address.host for address in addresses(inventory)}
    assert where["rpi05"] == ("192.168.1.20" if before else "rpi05.local")
    planned = looked(tmp_path / "nodes", inventory, "rpi05")
    assert set(planned.survey.lost) == {"rpi05"}
    after = planned.desired.inventory
    written = "".join(
        f"{change.detail}{change.diff}{change.steps}"
        for nodes in planned.plans.values()
        for changes in nodes.values()
        for change in changes
    )
    for text in (texts(inventory), texts(after), written):
        assert ("192.168.1.20" in text) == before
        assert "192.168.1.21" in text
        assert "rpi05.local" not in text
    assert len(planned.survey.facts) == 15
    (line,) = [line for line in planned.addresses if line.startswith("rpi05")]
    assert ("looked for at rpi05.local 192.168.1.20" in line) == before
    assert ("do not let it in" in line) != before
    (override,) = [one for one in as_overrides(after) if "rpi05" in one]
    assert override.endswith("=192.168.1.20" if before else "=198.18.0.5")


def test_a_relay_to_the_node_is_not_its_address(tmp_path: Path) -> None:
    """It passes on the node's own key, and the node itself has another address."""
    forged = trusted(tmp_path, NAMES | {"rpi05.local": ATTACKER})
    after = looked(tmp_path / "nodes", forged).desired.inventory
    assert after.unproven == {"rpi05"}
    assert ATTACKER not in texts(after)
    assert ATTACKER not in " ".join(as_overrides(after))


def test_a_name_that_is_trusted_again_has_its_new_address(tmp_path: Path) -> None:
    assert trusted(tmp_path, NAMES).hosts["rpi05"] == "192.168.1.20"
    again = trusted(tmp_path, NAMES | {"rpi05.local": "192.168.1.99"})
    assert again.hosts["rpi05"] == "192.168.1.99"
    assert "nodes.rpi05.address=192.168.1.99" in as_overrides(again)
    assert not again.unproven
    TrustedAddresses(tmp_path / "known_hosts").keep(again, {"rpi05": None})
    assert of_names(tmp_path).unproven == {"rpi05"}


@pytest.mark.parametrize(
    "answer", ["127.0.1.1", "0.0.0.0", "224.0.0.1", "8.8.8.8", "192.168.1.21", None]
)
def test_an_answer_that_is_no_node_s_address_is_the_trouble_of_its_node(
    tmp_path: Path, answer: str | None
) -> None:
    says = {name: host for name, host in NAMES.items() if name != "rpi05.local"}
    if answer is not None:
        says["rpi05.local"] = answer
    assert "rpi05" not in resolved_names(of_names(tmp_path), HOSTS, machine_of(says))
    inventory = trusted(tmp_path, says)
    assert inventory.hosts["rpi05"] == "rpi05.local"
    assert "rpi05.local" not in texts(inventory)


def test_a_coordinator_without_an_address_runs_no_job(tmp_path: Path) -> None:
    with pytest.raises(ClusterError, match=r"rpi11\.local is not proven yet: `fab deploy trust`"):
        as_overrides(of_names(tmp_path))


def test_a_damaged_list_of_addresses_proves_nothing(tmp_path: Path) -> None:
    path = tmp_path / "addresses.json"
    for text in ("", "[]", "x" * 2_000_000, '{"schema": 1, "nodes": {"rpi05": {"name": 1}}}'):
        path.write_text(text)
        assert TrustedAddresses(tmp_path / "known_hosts").load() == {}
    nodes = {"rpi05": {"name": "rpi05.local", "address": "192.168.1.20; drop"}}
    path.write_text(json.dumps({"schema": 1, "nodes": nodes}))
    assert TrustedAddresses(tmp_path / "known_hosts").load() == {}


def test_a_literal_address_counts_once_its_key_is_pinned(tmp_path: Path) -> None:
    path = ROOT / "inventory.yaml"
    opened = loads(
        path.read_text(encoding="utf-8"), str(path), (), path=path, machine=machine_of({})
    )
    hosts = [host for host in NAMES.values() if host != "192.168.1.20"]
    lines = [f"{host} ssh-ed25519 AAAA" for host in hosts[:8]]
    lines += [f"[{host}]:2200 ssh-ed25519 AAAA" for host in hosts[8:]]
    (tmp_path / "known_hosts").write_text("\n".join(lines) + "\n")
    found = with_trusted_addresses(opened, tmp_path / "known_hosts")
    assert found.unproven == {"rpi05"}
    assert "192.168.1.20" not in texts(found)


@pytest.fixture(scope="module")
def sshd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sshd]:
    with running_sshd(tmp_path_factory.mktemp("sshd"), hosts=("127.0.0.2", "127.0.0.3")) as server:
        yield server


def test_a_name_keeps_its_key_while_its_address_changes(sshd: Sshd, tmp_path: Path) -> None:
    pinned = PinnedKeys(tmp_path / "known_hosts")
    first = sshd.address("rpi05", host="127.0.0.2", key_name="rpi05.local")
    pinned.record([pinned.standing(first, ask_for_key(first))])
    assert pinned.path.read_text().startswith(f"[rpi05.local]:{sshd.port} ")
    (tmp_path / "other").mkdir()
    with running_sshd(tmp_path / "other", hosts=("127.0.0.4",)) as other:
        there = replace(first, host="127.0.0.4", given_port=other.port, key=str(other.user_key))
        named = replace(there, key_name="rpi05.local")
        record = pinned.path.read_text()
        pinned.path.write_text(record + record.replace(f":{sshd.port} ", f":{other.port} "))
        assert "not the one that is pinned" in why_not(named, pinned)
    assert why_not(replace(first, host="127.0.0.3"), pinned) == ""


def why_not(address: SshAddress, pinned: PinnedKeys) -> str:
    node = NodeConnection(address, pinned)
    try:
        node.open()
    except ClusterError as error:
        return str(error)
    finally:
        node.close()
    return ""
