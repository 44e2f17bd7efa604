"""Which accounts of a node reach TensorFlow's ports: the service account and root, on every node, and no other."""

import json
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from cluster.errors import ExitCode
from cluster.inventory import load
from tests.lab.environment import environment_seed
from tests.lab.lab import Lab
from tests.lab.operator import Operator

pytestmark = [pytest.mark.lab, pytest.mark.timeout(600)]

NODES = ("rpi01", "rpi02")
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


@dataclass(frozen=True)
class Started:
    """A running cluster of two nodes, and its operator."""

    lab: Lab
    operator: Operator

    def reached(self, node: str, account: str, addresses: list[str]) -> dict[str, str]:
        """The results of connections of a node's account."""
        command = f"sudo -n -u {account} python3 - {' '.join(addresses)}"
        words = ["ssh", "-F", str(self.lab.ssh_config), node, command]
        done = subprocess.run(words, input=CONNECT, capture_output=True, text=True, check=True, timeout=60)
        answers: dict[str, str] = json.loads(done.stdout)
        return answers


@pytest.fixture(scope="module")
def started(lab_can_run: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Started]:
    layer = environment_seed()
    with Lab.up(len(NODES), seeds=dict.fromkeys(NODES, layer)) as lab:
        operator = Operator(lab, tmp_path_factory.mktemp("operator"))
        written = subprocess.run(
            [*operator.tool, "init", "--hosts", "192.168.1.16-17"], capture_output=True, text=True, check=True
        )
        operator.inventory.write_text(written.stdout.replace("node0", "rpi0"))
        operator.fab("deploy", "trust", "--yes")
        operator.fab("deploy", "start", "--no-jobs")
        yield Started(lab, operator)


def test_only_the_account_and_root_reach_roles_and_coordinator_while_a_job_runs(started: Started) -> None:
    tasks = load(started.operator.inventory, check_interfaces=False).tasks()
    coordinator = next(task for task in tasks if task.role == "coordinator")
    addresses = [task.address for task in tasks]
    addresses += [f"127.0.0.1:{coordinator.port}"]
    with started.operator.running("job", "train", *EPOCHS) as job:
        job.wait_for("train: epoch")
        for node in NODES:
            asked = addresses if node == coordinator.node else addresses[:-1]
            for account in ("root", "pscluster"):
                assert set(started.reached(node, account, asked).values()) == {"connected"}, (node, account)
            for account in ("nobody", "pi"):
                found = started.reached(node, account, asked)
                assert set(found.values()) == {"ConnectionRefusedError"}, (node, account)
        assert "cancelled" in started.operator.fab("job", "cancel").stdout
        job.end(ExitCode.CANCELLED)
