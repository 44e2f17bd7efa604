"""The nftables table in two connected network namespaces: which account of a node reaches TensorFlow's ports."""

import json
import subprocess
import sys
import uuid
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest

from deploy.render import firewall
from tests.deploy.converge.pi import thesis
from tests.habits import needs
from tests.server.namespaces import ip, why_not

HANG_SECONDS = 60.0
HERE, THERE, ELSEWHERE = "192.168.1.16", "192.168.1.17", "10.77.0.17"
"""Two nodes of the inventory, and an address of the second one that the inventory does not have."""
GRAPHS, METRICS, NFS, OTHER = 2222, 9200, 2049, 7777
ACCOUNT, STRANGER = 890, 65534

SERVE = """
import os, socket, sys
ports = [int(word) for word in sys.argv[2:]]
os.setgroups([]); os.setresgid(*[int(sys.argv[1])] * 3); os.setresuid(*[int(sys.argv[1])] * 3)
listeners = [socket.create_server(("", port)) for port in ports]
print("listening", flush=True)
sys.stdin.read()
"""
CONNECT = """
import encodings.idna, json, os, socket, sys
os.setgroups([]); os.setresgid(*[int(sys.argv[1])] * 3); os.setresuid(*[int(sys.argv[1])] * 3)
found = {}
for word in sys.argv[2:]:
    host, port = word.split(":")
    try:
        socket.create_connection((host, int(port)), timeout=1).close()
        found[word] = "connected"
    except OSError as error:
        found[word] = type(error).__name__
print(json.dumps(found))
"""


@dataclass(frozen=True)
class Pair:
    """Two nodes on one cable, each with the table."""

    names: tuple[str, str]

    def reaches(self, uid: int, *addresses: str) -> dict[str, str]:
        """What connections of an account of the first node come to."""
        words = ["ip", "netns", "exec", self.names[0], sys.executable, "-c", CONNECT, str(uid), *addresses]
        done = subprocess.run(words, capture_output=True, text=True, check=True, timeout=HANG_SECONDS)
        answers: dict[str, str] = json.loads(done.stdout)
        return answers


@pytest.fixture(scope="module")
def pair() -> Iterator[Pair]:
    needs.tool("nft")
    needs.possible(why_not())
    tag = uuid.uuid4().hex[:8]
    names = (f"pfa{tag}", f"pfb{tag}")
    with ExitStack() as stack:
        for name in names:
            ip("netns", "add", name)
            stack.callback(ip, "netns", "del", name)
            ip("-n", name, "link", "set", "lo", "up")
        ip("-n", names[0], "link", "add", "cable", "type", "veth", "peer", "name", "cable", "netns", names[1])
        for name, addresses in zip(names, ((HERE,), (THERE, ELSEWHERE)), strict=True):
            for address in addresses:
                ip("-n", name, "addr", "add", f"{address}/24", "dev", "cable")
            ip("-n", name, "link", "set", "cable", "up")
        ip("-n", names[0], "route", "add", f"{ELSEWHERE}/32", "dev", "cable", "src", HERE)
        yield Pair(names)


@pytest.fixture(scope="module")
def listening(pair: Pair) -> Iterator[Pair]:
    """The account listens on the cluster's ports of both; a stranger on TensorFlow's second port of the second."""
    with ExitStack() as stack:
        for name in pair.names:
            stack.enter_context(serving(name, ACCOUNT, GRAPHS, METRICS, NFS, OTHER))
        stack.enter_context(serving(pair.names[1], STRANGER, GRAPHS + 1))
        yield pair


class serving:  # noqa: N801  a context manager
    """Processes of an account of a node that listen."""

    def __init__(self, name: str, uid: int, *ports: int) -> None:
        words = ["ip", "netns", "exec", name, sys.executable, "-c", SERVE, str(uid), *map(str, ports)]
        self._process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def __enter__(self) -> None:
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == "listening\n"

    def __exit__(self, *_: object) -> None:
        self._process.communicate(timeout=HANG_SECONDS)


def load_rules(pair: Pair, folder: Path) -> None:
    rules = folder / "rules.nft"
    rules.write_text(firewall.ruleset(thesis()))
    for name in pair.names:
        done = subprocess.run(
            ["ip", "netns", "exec", name, "nft", "-f", rules], capture_output=True, text=True, check=False
        )
        refused = "Operation not supported" in done.stderr
        needs.possible(f"this kernel has no nftables: {done.stderr.splitlines()[0]}" if refused else "")
        assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("uid", [0, ACCOUNT])
def test_the_account_and_root_reach_every_node(listening: Pair, tmp_path: Path, uid: int) -> None:
    load_rules(listening, tmp_path)
    wanted = [f"{host}:{port}" for host in ("127.0.0.1", HERE, THERE) for port in (GRAPHS, METRICS, NFS, OTHER)]
    assert set(listening.reaches(uid, *wanted).values()) == {"connected"}


def test_another_account_of_a_node_reaches_no_tensorflow_port_of_any_node(listening: Pair, tmp_path: Path) -> None:
    wanted = [f"{host}:{GRAPHS}" for host in ("127.0.0.1", HERE, THERE)]
    load_rules(listening, tmp_path)
    assert set(listening.reaches(STRANGER, *wanted).values()) == {"ConnectionRefusedError"}
    others = [f"{host}:{port}" for host in ("127.0.0.1", HERE, THERE) for port in (METRICS, NFS, OTHER)]
    assert set(listening.reaches(STRANGER, *others).values()) == {"connected"}


def test_an_address_that_is_in_no_inventory_is_no_way_in(listening: Pair, tmp_path: Path) -> None:
    """The output chain of a node does not know it; the node that has it does."""
    load_rules(listening, tmp_path)
    found = listening.reaches(STRANGER, f"{ELSEWHERE}:{GRAPHS}", f"{ELSEWHERE}:{OTHER}")
    assert found == {f"{ELSEWHERE}:{GRAPHS}": "TimeoutError", f"{ELSEWHERE}:{OTHER}": "connected"}


def test_another_account_cannot_take_the_place_of_a_role(listening: Pair, tmp_path: Path) -> None:
    load_rules(listening, tmp_path)
    assert set(listening.reaches(ACCOUNT, f"{THERE}:{GRAPHS + 1}").values()) == {"TimeoutError"}


def test_what_nft_lists_can_be_loaded_again(pair: Pair, tmp_path: Path) -> None:
    """The undo of a start does so."""
    load_rules(pair, tmp_path)
    script = "nft list table inet pscluster >$0 && nft delete table inet pscluster && nft -f $0 && nft list ruleset"
    words = ["ip", "netns", "exec", pair.names[0], "sh", "-c", script, str(tmp_path / "before")]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    assert firewall.loaded_mark(firewall.ruleset(thesis())) in done.stdout
    assert "meta skuid" in done.stdout
