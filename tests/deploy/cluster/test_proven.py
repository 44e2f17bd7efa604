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
    ProvenAddresses,
    address_lines,
    as_overrides,
    with_confirmed_addresses,
    with_resolved_addresses,
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
FORGED = NAMES | {"rpi05.local": ATTACKER}


def of_names(folder: Path, says: Mapping[str, str]) -> Inventory:
    """The shipped inventory with a name in the place of each address, as `fab` opens it now."""
    text = (ROOT / "inventory.yaml").read_text(encoding="utf-8")
    for name, address in NAMES.items():
        assert f"address: {address}," in text
        text = text.replace(f"address: {address},", f"address: {name},")
    machine = Machine(lambda: "operator", dict, says.get, resolves_nodes=False)
    path = folder / "inventory.yaml"
    opened = loads(text, str(path), (), path=path, machine=machine)
    return with_resolved_addresses(opened, ProvenAddresses(folder / "known_hosts"), machine)


class Silent(PlayedMachine):
    """A node at whose address another key answers."""

    def open(self) -> None:
        raise ClusterError(f"{self.name}: its host key is not the one that is pinned")


def played(folder: Path, inventory: Inventory) -> Fleet:
    """Each node where its name leads; the attacker has no pinned key."""
    nodes: list[PlayedMachine] = []
    for node in inventory.nodes:
        here = addresses(inventory)[len(nodes)].host
        kind = PlayedMachine if here == NAMES[str(node.address)] else Silent
        nodes.append(kind(folder / node.name, node.name, here))
    return Fleet(nodes, parallel=4)


def texts(inventory: Inventory) -> str:
    """Every text of the nodes that says who is let in."""
    tables = [ruleset(inventory, node.name) for node in inventory.nodes]
    shared = exports(inventory, shared_folders(inventory))
    return "\n".join((*tables, shared, addresses_drop_in(inventory)))


def looked(folder: Path, inventory: Inventory) -> DeploymentPlan:
    desired = Machines(inventory, release())
    names = tuple(node.name for node in inventory.nodes)
    request = DeploymentRequest("start", names, ("firewall", "services"))
    with played(folder, inventory) as fleet:
        return survey_and_plan(fleet, desired, request, lambda words: None)


@pytest.mark.parametrize("before", [True, False], ids=["it was proven before", "never proven"])
def test_who_answers_for_a_name_is_let_in_nowhere(tmp_path: Path, before: bool) -> None:
    proven = ProvenAddresses(tmp_path / "known_hosts")
    if before:
        opened = of_names(tmp_path, NAMES)
        own = {name: [host] for name, host in opened.present.items()}
        proven.keep(with_confirmed_addresses(opened, own), own)
    forged = of_names(tmp_path, FORGED)
    assert {a.name: a.host for a in addresses(forged)}["rpi05"] == ATTACKER
    planned = looked(tmp_path / "nodes", forged)
    assert set(planned.survey.lost) == {"rpi05"}
    after = planned.desired.inventory
    written = "".join(
        f"{change.detail}{change.diff}{change.steps}"
        for nodes in planned.plans.values()
        for changes in nodes.values()
        for change in changes
    )
    for text in (texts(forged), texts(after), written):
        assert ATTACKER not in text
        assert ("192.168.1.20" in text) == before
    assert "192.168.1.21" in texts(after)
    assert "192.168.1.21" in written
    assert len(planned.survey.facts) == 15
    (line,) = [line for line in planned.addresses if line.startswith("rpi05")]
    assert ("keep 192.168.1.20" in line) == before
    assert ("do not let it in" in line) != before
    assert ATTACKER not in " ".join(as_overrides(after))


def test_a_relay_to_the_node_is_not_its_address(tmp_path: Path) -> None:
    """It passes on the node's own key, and the node itself has another address."""
    forged = of_names(tmp_path, FORGED)
    own = {name: [host] for name, host in NAMES_BY_NODE.items()}
    after = with_confirmed_addresses(forged, own)
    assert after.unproven == {"rpi05"}
    assert ATTACKER not in texts(after)


NAMES_BY_NODE = {name.removesuffix(".local"): host for name, host in NAMES.items()}


def test_a_new_address_of_a_name_is_said_and_kept(tmp_path: Path) -> None:
    proven = ProvenAddresses(tmp_path / "known_hosts")
    own = {name: [host] for name, host in NAMES_BY_NODE.items()}
    proven.keep(with_confirmed_addresses(of_names(tmp_path, NAMES), own), own)
    moved = of_names(tmp_path, NAMES | {"rpi05.local": "192.168.1.99"})
    assert moved.hosts["rpi05"] == "192.168.1.20"
    after = with_confirmed_addresses(moved, own | {"rpi05": ["192.168.1.99"]})
    assert "rpi05: rpi05.local is 192.168.1.99 now, it was 192.168.1.20" in address_lines(
        moved, after, own
    )
    proven.keep(after, own)
    again = of_names(tmp_path, {})
    assert again.hosts["rpi05"] == "192.168.1.99"
    assert "nodes.rpi05.address=192.168.1.99" in as_overrides(again)
    assert not again.unproven


@pytest.mark.parametrize(
    "answer", ["127.0.1.1", "0.0.0.0", "224.0.0.1", "8.8.8.8", "192.168.1.21", None]
)
def test_an_answer_that_is_no_node_s_address_is_the_trouble_of_its_node(
    tmp_path: Path, answer: str | None
) -> None:
    says = {name: host for name, host in NAMES.items() if name != "rpi05.local"}
    if answer is not None:
        says["rpi05.local"] = answer
    inventory = of_names(tmp_path, says)
    assert "rpi05" not in inventory.present
    assert inventory.hosts["rpi05"] == "rpi05.local"
    own = {name: [host] for name, host in NAMES_BY_NODE.items() if name in inventory.present}
    assert "rpi05.local" not in texts(with_confirmed_addresses(inventory, own))
    with pytest.raises(ClusterError, match=r"rpi11\.local was never proven"):
        as_overrides(inventory)
    (at,) = [
        one for one in as_overrides(with_confirmed_addresses(inventory, own)) if "rpi05" in one
    ]
    assert at == "nodes.rpi05.address=198.18.0.5"


def test_a_damaged_list_of_addresses_proves_nothing(tmp_path: Path) -> None:
    path = tmp_path / "addresses.json"
    for text in ("", "[]", "x" * 2_000_000, '{"schema": 1, "nodes": {"rpi05": {"name": 1}}}'):
        path.write_text(text)
        assert ProvenAddresses(tmp_path / "known_hosts").load() == {}
    nodes = {"rpi05": {"name": "rpi05.local", "address": "192.168.1.20; drop"}}
    path.write_text(json.dumps({"schema": 1, "nodes": nodes}))
    assert ProvenAddresses(tmp_path / "known_hosts").load() == {}


def test_a_literal_address_counts_once_its_key_is_pinned(tmp_path: Path) -> None:
    path = ROOT / "inventory.yaml"
    machine = Machine(lambda: "operator", dict, lambda name: None, resolves_nodes=False)
    opened = loads(path.read_text(encoding="utf-8"), str(path), (), path=path, machine=machine)
    hosts = [host for host in NAMES.values() if host != "192.168.1.20"]
    lines = [f"{host} ssh-ed25519 AAAA" for host in hosts[:8]]
    lines += [f"[{host}]:2200 ssh-ed25519 AAAA" for host in hosts[8:]]
    (tmp_path / "known_hosts").write_text("\n".join(lines) + "\n")
    found = with_resolved_addresses(opened, ProvenAddresses(tmp_path / "known_hosts"), machine)
    assert found.unproven == {"rpi05"}
    assert "192.168.1.20" not in texts(found)
    assert with_confirmed_addresses(found, {"rpi05": ["192.168.1.20"]}).unproven == frozenset()


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
