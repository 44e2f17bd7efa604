"""Which accounts of a node reach TensorFlow's ports: the service account and root, on every node, and no other."""

import json
import subprocess

import pytest

from cluster.errors import ExitCode
from cluster.inventory import load
from tests.lab.two_nodes.place import NODES, Place

pytestmark = [pytest.mark.lab, pytest.mark.timeout(600)]

EPOCHS = ("--data", "synthetic", "--epochs", "300")

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


def reached(place: Place, node: str, account: str, addresses: list[str]) -> dict[str, str]:
    """The results of connections of a node's account."""
    command = f"sudo -n -u {account} python3 - {' '.join(addresses)}"
    words = ["ssh", "-F", str(place.lab.ssh_config), node, command]
    done = subprocess.run(words, input=CONNECT, capture_output=True, text=True, check=True, timeout=60)
    answers: dict[str, str] = json.loads(done.stdout)
    return answers


def test_only_the_account_and_root_reach_roles_and_coordinator_while_a_job_runs(place: Place) -> None:
    tasks = load(place.operator.inventory, check_interfaces=False).tasks()
    coordinator = next(task for task in tasks if task.role == "coordinator")
    addresses = [task.address for task in tasks]
    addresses += [f"127.0.0.1:{coordinator.port}"]
    with place.operator.running("job", "train", *EPOCHS) as job:
        job.wait_for("train: epoch")
        for node in NODES:
            asked = addresses if node == coordinator.node else addresses[:-1]
            for account in ("root", "pscluster"):
                assert set(reached(place, node, account, asked).values()) == {"connected"}, (node, account)
            for account in ("nobody", "pi"):
                found = reached(place, node, account, asked)
                assert set(found.values()) == {"ConnectionRefusedError"}, (node, account)
        assert "cancelled" in place.operator.fab("job", "cancel").stdout
        job.end(ExitCode.CANCELLED)
