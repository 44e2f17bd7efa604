"""The tunnel of two nodes in network namespaces: what its cable carries, and who is let in."""

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from benchmarks.beds.tunnels import tunnels
from core.inventory import Inventory
from deploy.render.network import ruleset
from tests.core.server.namespaces import ip
from tests.deploy.converge.pi import thesis
from tests.deploy.render.test_firewall import loaded
from tests.deploy.render.test_firewall_accounts import (
    CONNECT,
    GRAPHS,
    METRICS,
    NFS,
    OTHER,
    inside,
    serving,
    wired,
)
from tests.deploy.render.wire import watched
from tests.habits import needs
from tests.hang import HANG_SECONDS

NODES = ("rpi11", "rpi02")
"""The storage server, which has port 2049, and a worker."""
ELSEWHERE = "192.168.1.200"
FORGED = "10.217.1.18"
"""An address of the second machine that no inventory has, and another node's within the tunnel."""
CLUSTER = (GRAPHS, METRICS, NFS)


def inventory() -> Inventory:
    return thesis("transport=wireguard")


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, str]]:
    """Two nodes on one cable, each with its end of the tunnel, its table and its servers."""
    needs.tools("nft", "wg", "wireguard-go", "unshare")
    needs.possible("" if Path("/dev/net/tun").exists() else "no /dev/net/tun")
    ours, theirs = (inventory().links[node] for node in NODES)
    with wired(ours, theirs=[theirs, ELSEWHERE]) as spaces, ExitStack() as stack:
        folder = tmp_path_factory.mktemp("nodes")
        prefixes = {node: inside(space) for node, space in zip(NODES, spaces, strict=True)}
        stack.enter_context(tunnels(inventory(), prefixes, folder))
        for node, space in zip(NODES, spaces, strict=True):
            rules = folder / f"{node}.nft"
            rules.write_text(ruleset(inventory(), node))
            loaded(f"nft -f {rules}", *inside(space))
            stack.enter_context(serving(space, {0: [*CLUSTER, OTHER]}))
        yield spaces


def found(space: str, source: str, host: str, *ports: int) -> dict[int, str]:
    """What connections of root from an address to the ports of a host come to."""
    code = CONNECT.replace("timeout=1)", f"timeout=2, source_address=({source!r}, 0))")
    words = inside(space, sys.executable, "-c", code, "0", *(f"{host}:{port}" for port in ports))
    answers = json.loads(subprocess.check_output(words, timeout=HANG_SECONDS))
    return {port: answers[f"{host}:{port}"] for port in ports}


def test_nodes_reach_each_other_and_the_cable_carries_the_tunnel_alone(
    pair: tuple[str, str],
) -> None:
    hosts = inventory().hosts
    here, there = (hosts[node] for node in NODES)
    with watched("cable", f"/run/netns/{pair[0]}") as seen:
        assert found(pair[1], there, here, *CLUSTER) == dict.fromkeys(CLUSTER, "connected")
        assert found(pair[0], here, there, GRAPHS) == {GRAPHS: "connected"}
    assert {kind for kind in seen if kind[0] in ("tcp", "udp")} == {("udp", 51820)}


@pytest.mark.parametrize("source", [inventory().links[NODES[1]], ELSEWHERE])
def test_beside_the_tunnel_no_port_of_the_cluster_answers(
    pair: tuple[str, str], source: str
) -> None:
    here = inventory().links[NODES[0]]
    closed = dict.fromkeys(CLUSTER, "TimeoutError")
    assert found(pair[1], source, here, *CLUSTER, OTHER) == {**closed, OTHER: "connected"}


def test_an_address_of_the_tunnel_on_the_cable_is_no_way_in(pair: tuple[str, str]) -> None:
    """The other end has no key for it, and the cable is not the tunnel."""
    ip("-n", pair[1], "addr", "add", f"{FORGED}/32", "dev", "cable")
    ip("-n", pair[0], "route", "add", f"{FORGED}/32", "dev", "cable")
    hosts = inventory().hosts
    here = hosts[NODES[0]]
    try:
        assert found(pair[1], FORGED, here, GRAPHS) == {GRAPHS: "TimeoutError"}
        ip("-n", pair[1], "route", "add", f"{here}/32", "dev", "cable")
        assert found(pair[1], FORGED, here, GRAPHS) == {GRAPHS: "TimeoutError"}
    finally:
        ip("-n", pair[0], "route", "del", f"{FORGED}/32", "dev", "cable")
        ip("-n", pair[1], "addr", "del", f"{FORGED}/32", "dev", "cable")
