"""The switch and its cables: a bridge, and a network namespace behind a shaped veth pair."""

import json
from collections.abc import Sequence
from pathlib import Path

from tests.lab.commands import LabError, run
from tests.lab.places import Places

NETWORK = "192.168.1"
HOST_ADDRESS = f"{NETWORK}.1"
OPERATOR = "operator"
"""The network namespace of the host's end of the switch, if not the machine's own."""
OUTSIDER = "outsider"
OUTSIDER_ADDRESS = f"{NETWORK}.200"
LINK_MBIT_PER_SECOND = 300
"""The rate of a Raspberry Pi 3B+'s gigabit port behind USB 2."""


def addresses(count: int) -> dict[str, str]:
    """By the machine's name: rpi01 is 192.168.1.16."""
    return {f"rpi{number + 1:02d}": f"{NETWORK}.{16 + number}" for number in range(count)}


def make_switch(places: Places) -> None:
    """The bridge, with the host's own address on it.

    Raises:
        LabError: Something here already has an address of the lab's network.
    """
    taken = [
        f"{address['local']} on {link['ifname']}"
        for link in json.loads(run("ip", "-json", "address").stdout)
        for address in link["addr_info"]
        if address.get("local", "").startswith(f"{NETWORK}.")
    ]
    if taken:
        raise LabError(
            f"the lab needs {NETWORK}.0/24 for itself, but this machine has {', '.join(taken)}: "
            "`python -m tests.lab apart NAME COMMAND` runs a lab in a network namespace of its own"
        )
    bridge = places.switch
    _batch(
        f"link add {bridge} type bridge",
        f"link set {bridge} type bridge forward_delay 0 stp_state 0",
        f"address add {HOST_ADDRESS}/24 dev {bridge}",
        f"link set {bridge} up",
        "link set lo up",
    )


def plug_in(places: Places, machine: str, address: str, mbit_per_second: float) -> None:
    """Gives a machine a network namespace with `eth0` on the switch."""
    cable = places.cable(machine)
    space = places.namespace(machine)
    # As on a Pi, a reboot does not change it, so no neighbour table is wrong afterwards.
    hardware = f"b8:27:eb:00:00:{int(address.rpartition('.')[2]):02x}"
    _batch(
        f"netns add {space}",
        f"link add {cable} type veth peer name eth0 address {hardware} netns {space}",
    )
    _batch(
        *("link set lo up", f"address add {address}/24 dev eth0", "link set eth0 up"),
        f"route add default via {HOST_ADDRESS}",
        options=("-n", space),
    )
    _batch(f"link set {cable} master {places.switch} up")
    shape(places, machine, mbit_per_second)


def unplug(places: Places, machine: str) -> None:
    """Removes cable and namespace at once: the machine's peers get nothing more, not even a FIN."""
    run("ip", "link", "delete", places.cable(machine), check=False)
    run("ip", "netns", "delete", places.namespace(machine), check=False)


def shape(places: Places, machine: str, mbit_per_second: float) -> None:
    """Limits the cable in both directions."""
    limit = f"root tbf rate {round(mbit_per_second * 1000)}kbit burst 64kb latency 50ms"
    run("tc", "qdisc", "replace", "dev", places.cable(machine), *limit.split())
    run("tc", "-n", places.namespace(machine), "qdisc", "replace", "dev", "eth0", *limit.split())


def set_link(places: Places, machine: str, up: bool) -> None:
    """Pulls the cable at the switch, or puts it back; the machine only sees silence."""
    run("ip", "link", "set", places.cable(machine), "up" if up else "down")


def remove_all(places: Places) -> None:
    """Removes what is left of the lab: cables, namespaces, the switch."""
    cables, spaces = _left(places)
    _batch(
        *(f"link delete {name}" for name in cables),
        *(f"netns delete {name}" for name in spaces),
        options=("-force",),
        check=False,
    )


def left(places: Places) -> list[str]:
    """Names of the lab's remaining cables and namespaces."""
    return [name for names in _left(places) for name in names]


def _left(places: Places) -> tuple[list[str], list[str]]:
    prefix = f"{places.lab}-"
    links = [link["ifname"] for link in json.loads(run("ip", "-json", "link").stdout)]
    spaces = [space.name for space in Path("/run/netns").glob(f"{prefix}*")]
    spaces = [name for name in spaces if name != places.namespace(OPERATOR)]
    return sorted(name for name in links if name.startswith(prefix)), sorted(spaces)


def _batch(*lines: str, options: Sequence[str] = (), check: bool = True) -> None:
    if lines:
        run("ip", *options, "-batch", "-", stdin="\n".join(lines) + "\n", check=check)
