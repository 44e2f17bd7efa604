"""Which accounts of a node reach TensorFlow's ports: the service account and root, on every node, and no other."""

import pytest

from cluster.errors import ExitCode
from cluster.inventory import load
from tests.lab.two_nodes.place import NODES, Place

pytestmark = [pytest.mark.lab, pytest.mark.timeout(600)]

EPOCHS = ("--data", "synthetic", "--epochs", "300")


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
                assert set(place.reached(node, account, asked).values()) == {"connected"}, (node, account)
            for account in ("nobody", "pi"):
                found = place.reached(node, account, asked)
                assert set(found.values()) == {"ConnectionRefusedError"}, (node, account)
        assert "cancelled" in place.operator.fab("job", "cancel").stdout
        job.end(ExitCode.CANCELLED)
