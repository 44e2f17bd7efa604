"""A running cluster of two nodes over SSH, and its operator."""

import json
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.lab import deployed
from tests.lab.deployed import trusted

NODES = ("rpi01", "rpi02")
HUB = "rpi01"
"""Shared folder, parameter server, coordinator and worker 0."""


OURS = """
systemctl list-units --plain --no-legend --state=active 'pscluster*' | cut -d ' ' -f 1
find /etc/systemd/system/pscluster* /etc/exports.d /etc/passwd -type f -exec sha256sum {} + | sort
"""
"""Prints what a test may not change on a node; it may leave runs."""

CONNECT = (
    "import json, socket, sys\n"
    "found = {}\n"
    "for word in sys.argv[1:]:\n"
    "    host, port = word.split(':')\n"
    "    try:\n"
    "        socket.create_connection((host, int(port)), timeout=2).close()\n"
    "        found[word] = 'connected'\n"
    "    except OSError as error:\n"
    "        found[word] = type(error).__name__\n"
    "print(json.dumps(found))\n"
)


class Place(deployed.Place):
    """The cluster without any job."""

    def snapshot(self) -> dict[str, str]:
        """The nodes' units, exports and accounts, and the operator's inventory."""
        return {
            "inventory": self.operator.inventory.read_text(),
            **{node: self.on(node, OURS) for node in NODES},
        }

    def reached(self, node: str, account: str, addresses: list[str]) -> dict[str, str]:
        """The results of connections of a node's account."""
        command = f"sudo -n -u {account} python3 - {' '.join(addresses)}"
        words = ["ssh", "-F", str(self.lab.ssh_config), node, command]
        done = subprocess.run(
            words, input=CONNECT, capture_output=True, text=True, check=True, timeout=60
        )
        answers: dict[str, str] = json.loads(done.stdout)
        return answers


@contextmanager
def started(folder: Path) -> Iterator[Place]:
    """The two nodes, up and deployed from an operator's `folder`."""
    with trusted(folder, len(NODES)) as (lab, operator):
        operator.fab("deploy", "start", "--no-jobs")
        yield Place(lab, operator)
