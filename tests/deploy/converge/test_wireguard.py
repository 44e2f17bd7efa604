"""The tunnel as a part of a deployment: keys, pins, peers, and what an inventory may say of it."""

from collections.abc import Sequence
from dataclasses import replace
from ipaddress import IPv4Network
from pathlib import Path
from typing import Any

import pytest

from core.ground.errors import ClusterError
from deploy.cluster.login import IN_CLEAR, TunnelKeys
from deploy.converge.deployment import plan
from deploy.converge.desired import Machines, examine
from deploy.converge.machine_facts import MachineFacts
from deploy.converge.wireguard import KEY, NETWORKS
from deploy.render.network import (
    PEERS_PATH,
    PRIVATE_KEY,
    TUNNEL_FOLDER,
    TUNNEL_MODULE,
    TUNNEL_SCRIPT,
    TUNNEL_UNIT,
)
from tests.core.inventory.cases import edited, only, problems, read
from tests.deploy.converge.pi import PlayedPis, machines_for, named, on_node, untouched
from tests.deploy.converge.tables import rows

ENCRYPTED = edited(("connection: ssh", "connection: ssh\ntransport: wireguard"))
NODES = ("rpi01", "rpi02", "rpi03")
TUNNEL = ("prepare", "transport")
"""The phases that make it, so all that most tests need."""


def tunnelled(path: Path | None = None, text: str = ENCRYPTED) -> Machines:
    return replace(machines_for(read(text)), keys=TunnelKeys(path))


def test_all_but_ssh_goes_to_addresses_of_the_tunnel() -> None:
    inventory = read(ENCRYPTED)
    assert inventory.links["rpi02"] == "192.168.1.17"
    assert inventory.hosts["rpi02"] == inventory.of_role("worker")[0].host == "10.217.1.17"
    plain = read(edited())
    assert plain.hosts == plain.links


@rows("what_would_go_past_it_is_refused", "more", "part")
def test_what_would_go_past_it_is_refused(more: str, part: str) -> None:
    assert part in str(only(f"{ENCRYPTED}{more}\n"))


def test_two_nodes_with_the_same_end_and_other_ways_past_it() -> None:
    twice = edited(("192.168.1.17", "192.169.1.16"), ("schema: 1", "schema: 1\nallow_public: true"))
    found = only(twice.replace("connection: ssh", "connection: ssh\ntransport: wireguard"))
    assert "rpi01 and rpi02 would both be 10.217.1.16" in str(found)
    small = f"{ENCRYPTED}wireguard: {{subnet: 10.0.0.0/28}}\n"
    assert "rpi01 would be 10.0.0.0, which means all of" in str(problems(small)[0])
    external = edited(
        ("[storage, ", "["), ("{server: rpi01}", "{external: 'nas:/x'}"), text=ENCRYPTED
    )
    assert "NFS of a machine outside the tunnel" in str(only(external))
    local = edited(("connection: ssh", "connection: local"), text=ENCRYPTED)
    assert any("wireguard without `connection: ssh`" in str(one) for one in problems(local))


def test_the_key_is_named_where_it_was_written_into_the_cluster() -> None:
    found = only(edited(("cluster: bench", "cluster: {transport: wireguard}")))
    assert "beside it a key of its own: `transport: wireguard`" in str(found)


def test_each_node_makes_its_key_and_knows_the_others(tmp_path: Path) -> None:
    pis = PlayedPis(tmp_path / "pis")
    machines = tunnelled(tmp_path / "keys.json")
    facts, plans = pis.deploy(machines, *NODES, phases=TUNNEL)
    changes = on_node(plans, "rpi02")
    (packages,) = (one for one in changes if "wireguard-tools, wireguard-go" in one)
    assert changes.index(packages) < changes.index("create WireGuard")
    pinned = TunnelKeys(tmp_path / "keys.json").known
    assert pinned == {name: facts[name].more[KEY] for name in NODES}
    peers = facts["rpi02"].text(PEERS_PATH)
    assert f"PublicKey = {pinned['rpi01']}\nEndpoint = 192.168.1.16:51820" in peers
    assert "AllowedIPs = 10.217.1.18/32" in peers
    assert pinned["rpi02"] not in peers
    assert (facts["rpi02"].files[TUNNEL_FOLDER].mode, facts["rpi02"].files[PEERS_PATH].mode) == (
        0o700,
        0o600,
    )
    for name in NODES:
        private = (tmp_path / "pis" / name / PRIVATE_KEY[1:]).read_text().strip()
        assert private not in repr(facts)


def test_a_changed_key_is_refused_and_a_new_pair_reaches_all_others(tmp_path: Path) -> None:
    pis = PlayedPis(tmp_path / "pis")
    machines = tunnelled(tmp_path / "keys.json")
    pis.deploy(machines, *NODES, phases=TUNNEL)
    before = dict(machines.keys.known)  # type: ignore[union-attr]
    (tmp_path / "pis/rpi02" / PRIVATE_KEY[1:]).write_text("A" * 43 + "=\n")
    facts = pis.facts(machines, *NODES)
    (line,) = findings(machines, facts["rpi02"], "rpi02")
    assert f"{before['rpi02']} is pinned" in line
    assert "`fab deploy start --new-keys rpi02`" in line
    with pytest.raises(ClusterError, match="is pinned"):
        machines.keys.pin("rpi02", str(facts["rpi02"].more[KEY]))  # type: ignore[union-attr]
    machines.keys.replace(["rpi02"])  # type: ignore[union-attr]
    assert findings(machines, facts["rpi02"], "rpi02") == []
    part = replace(machines, takes_part=frozenset(NODES))
    _, plans = pis.deploy(part, *NODES, phases=TUNNEL)
    changed = [one for phase in TUNNEL for node in NODES for one in plans[phase][node]]
    assert sorted(named(changed)) == [*[f"change {PEERS_PATH}"] * 3, "change WireGuard"]
    after = TunnelKeys(tmp_path / "keys.json").known
    assert [name for name in NODES if after[name] != before[name]] == ["rpi02"]


def test_a_node_that_comes_later_is_told_to_those_that_are_there(tmp_path: Path) -> None:
    pis = PlayedPis(tmp_path / "pis")
    machines = tunnelled(tmp_path / "keys.json")
    pis.deploy(machines, *NODES[:2], phases=TUNNEL)
    facts = pis.facts(machines, *NODES)
    part = replace(machines, takes_part=frozenset(facts))
    planned = plan(part, facts)["transport"]
    assert f"change {PEERS_PATH}" in named(planned["rpi01"])
    assert named(plan(machines, facts)["transport"]["rpi01"]) == []


def test_transport_plain_takes_the_tunnel_away(tmp_path: Path) -> None:
    pis = PlayedPis(tmp_path / "pis")
    machines = tunnelled(tmp_path / "keys.json")
    pis.deploy(machines, *NODES)
    plain = replace(machines_for(read(edited())), keys=machines.keys)
    facts, plans = pis.deploy(plain, *NODES)
    assert TunnelKeys(tmp_path / "keys.json").known == {}
    assert TUNNEL_FOLDER not in facts["rpi02"].files
    removed = [f"remove {path}" for path in (TUNNEL_SCRIPT, PEERS_PATH, "WireGuard")]
    # Mounts and roles leave the tunnel before it goes: an NFS mount without its server stays.
    assert on_node(plans, "rpi02")[0] == "create tunnel"
    assert on_node(plans, "rpi02")[-4:] == [f"remove /etc/systemd/system/{TUNNEL_UNIT}", *removed]
    assert facts["rpi02"].unit(TUNNEL_UNIT) is None


def findings(
    machines: Machines, facts: MachineFacts, name: str, levels: Sequence[str] = ("problem",)
) -> list[str]:
    found = examine(
        machines.of_node(name),
        replace(facts, files={}, disk_free_bytes=untouched().disk_free_bytes),
    )
    return [one.line for one in found if one.topic.endswith("transport") and one.level in levels]


def facts_with(**more: Any) -> MachineFacts:
    return untouched("192.168.1.16", more=more)


def test_a_network_of_the_node_may_not_lie_in_the_tunnel_s() -> None:
    lan = ("eth0", IPv4Network("192.168.1.0/24"))
    machines = tunnelled()
    assert findings(machines, facts_with(**{NETWORKS: (lan,)}), "rpi01") == []
    vpn = ("tun0", IPv4Network("10.0.0.0/8"))
    (line,) = findings(machines, facts_with(**{NETWORKS: (lan, vpn)}), "rpi01")
    assert "tun0 is in 10.0.0.0/8, which the tunnel's 10.217.0.0/16 overlaps" in line


def test_a_key_that_was_made_before_is_pinned_once() -> None:
    key = "A" * 43 + "="
    machines = tunnelled()
    facts = {"rpi01": facts_with(**{KEY: key})}
    assert "pin WireGuard" in named(plan(machines, facts)["prepare"]["rpi01"])
    machines.keys.pin("rpi01", key)  # type: ignore[union-attr]
    assert "pin WireGuard" not in named(plan(machines, facts)["prepare"]["rpi01"])


def test_a_kernel_without_it_and_a_cluster_without_it_are_said() -> None:
    words = ("ok", "warning")
    assert "wireguard-go" in findings(tunnelled(), facts_with(), "rpi01", words)[0]
    assert findings(tunnelled(), facts_with(**{TUNNEL_MODULE: True}), "rpi01", words) == []
    plain = machines_for(read(edited()))
    assert [len(findings(plain, facts_with(), name, words)) for name in NODES] == [1, 0, 0]
    assert findings(plain, facts_with(), "rpi01", words) == [IN_CLEAR]


@pytest.mark.parametrize("text", ["", "[]", '{"rpi01": "short"}', '{"a": 1}'])
def test_a_file_of_pins_that_is_none_is_named(tmp_path: Path, text: str) -> None:
    (tmp_path / "keys.json").write_text(text)
    with pytest.raises(ClusterError, match=r"keys\.json"):
        TunnelKeys(tmp_path / "keys.json")
