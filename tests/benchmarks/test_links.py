import subprocess
import sys
from contextlib import suppress
from pathlib import Path

from benchmarks.beds.virtual_network import Machine, machines, on_this_machine, why_not
from benchmarks.links.__main__ import ROLES, inventory_in
from tests.habits import needs
from tests.hang import HANG_SECONDS


def test_a_cluster_over_machines_has_each_role_on_its_own(tmp_path: Path) -> None:
    places = [Machine(("anywhere",), f"198.18.79.{k}") for k in range(1, 5)]
    inventory = inventory_in(tmp_path, "ours", places)
    assert inventory.connection == "ssh"
    tasks = [
        inventory.task("coordinator", 0),
        *inventory.of_role("ps"),
        *inventory.of_role("worker"),
    ]
    hosts = [task.host for task in tasks]
    assert hosts == [place.address for place in places]
    here = inventory_in(tmp_path, "here", on_this_machine(len(ROLES)))
    assert here.connection == "local"
    assert len(here.of_role("worker")) == 2


def namespaces() -> set[str]:
    listed = subprocess.run(
        ["ip", "netns", "list"], check=True, capture_output=True, text=True
    ).stdout
    return {line.split()[0] for line in listed.splitlines()}


def test_machines_reach_each_other_through_their_shapers_and_are_gone_afterwards() -> None:
    needs.tools("ip", "tc")
    needs.possible(why_not())
    before = namespaces()
    with suppress(KeyboardInterrupt), machines(2, megabits=94.0) as (here, there):
        ping = [*here.prefix, sys.executable, "-c", REACH, there.address]
        listener = subprocess.Popen(
            [*there.prefix, sys.executable, "-c", LISTEN],
            stdout=subprocess.PIPE,
            text=True,
            bufsize=1,
        )
        try:
            assert listener.stdout is not None
            port = listener.stdout.readline().strip()
            answer = subprocess.run(
                [*ping, port], check=True, capture_output=True, text=True, timeout=HANG_SECONDS
            ).stdout
            assert answer.strip() == here.address
        finally:
            listener.kill()
            listener.communicate()
        shown = subprocess.run(
            [*there.prefix, "tc", "qdisc", "show"], check=True, capture_output=True, text=True
        ).stdout
        assert "rate 94Mbit" in shown
        raise KeyboardInterrupt
    assert namespaces() == before


LISTEN = (
    "import socket; l = socket.create_server(('', 0)); print(l.getsockname()[1], flush=True); "
    "c, (host, _) = l.accept(); c.sendall(host.encode())"
)
REACH = (
    "import socket, sys; print(socket.create_connection((sys.argv[1], int(sys.argv[2])),"
    " 20).recv(99).decode())"
)
