"""With `transport: wireguard` the switch carries nothing in clear, and a member shows nothing.

One story, in the order of the file. This kernel has no module: `wireguard-go` carries the tunnel.
"""

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from deploy.cluster.login import TUNNEL_KEYS_FILE
from deploy.render.network import PRIVATE_KEY, TUNNEL_FOLDER, TUNNEL_INTERFACE, TUNNEL_UNIT
from tests.deploy.playing import eventually
from tests.deploy.render.wire import Seen, watched
from tests.lab import deployed
from tests.lab.deployed import trusted

pytestmark = [pytest.mark.lab, pytest.mark.timeout(900)]

NODES = ("rpi01", "rpi02")
OTHER = "rpi02"
LINK_MBIT_PER_SECOND = 94
TRAIN = ("job", "train", "--mode", "async", "--data", "synthetic", "--epochs", "3")
SSH = ("tcp", 22)
TUNNEL = ("udp", 51820)
OTHERWISE = {("1", 0), ("2", 0)}
"""ICMP, and the groups that a host joins."""
SCAN = """
import asyncio, sys
async def asked(address, port, places):
    async with places:
        try:
            _, writer = await asyncio.wait_for(asyncio.open_connection(address, port), 10)
        except (OSError, asyncio.TimeoutError):
            return
        writer.close()
        print(port)
async def main(address):
    places = asyncio.Semaphore(300)
    await asyncio.gather(*(asked(address, port, places) for port in range(1, 65536)))
asyncio.run(main(sys.argv[1]))
"""


class Place(deployed.Place):
    """Two nodes whose cables a test can read."""

    @contextmanager
    def wire(self) -> Iterator[Seen]:
        """What the cable of a worker's node carries."""
        with watched(self.lab.places.cable(OTHER)) as seen:
            yield seen

    def pinned(self) -> dict[str, str]:
        """The public keys beside the host keys."""
        found: dict[str, str] = json.loads(
            self.operator.known_hosts().with_name(TUNNEL_KEYS_FILE).read_text()
        )
        return found

    def transport(self, name: str) -> None:
        """The inventory with this transport."""
        lines = self.operator.inventory.read_text().splitlines()
        kept = [line for line in lines if not line.startswith("transport:")]
        self.operator.inventory.write_text("\n".join([*kept, f"transport: {name}"]) + "\n")

    def rest_of(self, shows: str) -> str:
        """What a script and the tunnel's interface still show, on all nodes."""
        look = f"{{ ip link show {TUNNEL_INTERFACE}; {shows}; }} 2>/dev/null; :"
        return "".join(self.on(name, look) for name in NODES)

    def trained(self) -> None:
        """A training over the cables."""
        self.operator.fab(*TRAIN)


@pytest.fixture(scope="module")
def place(lab_can_run: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    folder = tmp_path_factory.mktemp("operator")
    with trusted(folder, len(NODES), mbit_per_second=LINK_MBIT_PER_SECOND) as found:
        yield Place(*found)


def test_without_it_start_says_what_is_in_clear_and_the_wire_shows_it(place: Place) -> None:
    said = place.operator.fab("deploy", "start", "--no-jobs")
    assert said.stderr.count("cross the switch in clear") == 1
    with place.wire() as seen:
        place.trained()
    assert TUNNEL not in seen
    assert {("tcp", 2222), ("tcp", 2049)} <= seen.keys()


def test_with_it_a_training_shows_nothing_but_the_tunnel_and_ssh(place: Place) -> None:
    place.transport("wireguard")
    with place.wire() as seen:
        said = place.operator.fab("deploy", "start", "--no-jobs")
        begun = seen.copy()
        place.trained()
    assert "in clear" not in said.stderr
    assert (
        place.on(OTHER, f"ip -o -4 address show {TUNNEL_INTERFACE}").split()[3] == "10.217.1.17/16"
    )
    assert (seen - begun).keys() - OTHERWISE == {TUNNEL, SSH}
    assert (seen - begun)[TUNNEL] > 1_000_000
    assert "0 changed" in place.operator.fab("deploy", "start", "--no-jobs").stdout


def test_the_private_key_stays_and_the_public_one_is_pinned(place: Place) -> None:
    for name in NODES:
        assert place.on(name, f"stat -c '%U %a' {PRIVATE_KEY}") == "root 600"
        assert place.on(name, f"wg show {TUNNEL_INTERFACE} public-key") == place.pinned()[name]
        private = place.on(name, f"cat {PRIVATE_KEY}")
        kept = [path for path in place.operator.folder.rglob("*") if path.is_file()]
        assert not [path for path in kept if private.encode() in path.read_bytes()]


def test_a_scan_of_every_port_finds_ssh_alone(place: Place) -> None:
    for name in NODES:
        address = place.lab.node(name).address
        assert place.lab.outsider(sys.executable, "-c", SCAN, address).stdout.split() == ["22"]
    neighbour = place.lab.node(OTHER).command(
        "python3", "-c", SCAN, place.lab.node(NODES[0]).address
    )
    done = subprocess.run(neighbour, capture_output=True, text=True, check=True, timeout=600)
    assert done.stdout.split() == ["22"]


def test_the_tunnel_comes_up_with_the_node_and_again_when_its_process_dies(place: Place) -> None:
    node = place.lab.node(OTHER)
    place.on(OTHER, f"kill -KILL $(systemctl show -p MainPID --value {TUNNEL_UNIT})")
    node.execute("systemctl", "--wait", "is-system-running", check=False)
    place.trained()
    node.crash()
    node.boot()
    node.wait_until_reachable()
    active = f"systemctl is-active {TUNNEL_UNIT} || :"
    eventually(lambda: place.on(OTHER, active) == "active", "the tunnel comes up with the node")
    place.operator.fab("deploy", "start", "--no-jobs")
    place.trained()


def test_back_to_plain_and_reset_leave_nothing_of_it(place: Place) -> None:
    place.transport("plain")
    place.operator.fab("deploy", "start", "--no-jobs")
    place.trained()
    assert place.rest_of(f"ls {TUNNEL_FOLDER}") == ""
    assert place.pinned() == {}
    place.transport("wireguard")
    place.operator.fab("deploy", "start", "--no-jobs")
    place.operator.fab("deploy", "reset", "--yes")
    assert place.rest_of("command -v wg; ls /etc/pscluster") == ""
