"""The accounts of a node: who reaches which port, who answers there, and whose keys are whose."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from core.ground.errors import ExitCode
from core.inventory import load
from tests.lab.served import versions_come_and_go
from tests.lab.two_nodes.place import HUB, NODES, Place

pytestmark = [pytest.mark.lab, pytest.mark.timeout(600)]

EPOCHS = ("--data", "synthetic", "--epochs", "300")


def test_an_account_reaches_what_its_kind_needs_while_a_job_runs(place: Place) -> None:
    tasks = load(place.operator.inventory, check_interfaces=False).tasks()
    coordinator = next(task for task in tasks if task.role == "coordinator")
    roles = {task.address for task in tasks if task is not coordinator}
    with place.operator.running("job", "train", *EPOCHS) as job:
        job.wait_for("train: epoch")
        for node in NODES:
            graphs = {coordinator.address, f"127.0.0.1:{coordinator.port}"}
            if node != coordinator.node:  # no other node needs the coordinator's graphs
                graphs = set()
            of_job = roles | graphs
            open_to = {"root": of_job, "pscluster": of_job, "pscluster-role": roles}
            for account in (*open_to, "nobody", "pi"):
                found = place.reached(node, account, [coordinator.address, *of_job])
                connected = {address for address, how in found.items() if how == "connected"}
                assert connected == open_to.get(account, set()), (node, account, found)
        assert "cancelled" in place.operator.fab("job", "cancel").stdout
        job.end(ExitCode.CANCELLED)


SERVED = ("rpi02", "192.168.1.17")
KEYS = "/etc/pscluster/service"
STATE = "/var/lib/pscluster/service"
TAKE_PORT = """
systemctl stop pscluster-service
setpriv --reuid nobody --regid nogroup --clear-groups python3 -c '
import socket, time
taken = socket.create_server(("", 8470))
time.sleep(60)' >/dev/null 2>&1 &
sleep 2
"""


@pytest.fixture
def served(place: Place) -> Iterator[None]:
    """A service on the second node for one test: the other modules count on a place without it."""
    text = place.operator.inventory.read_text()
    line = next(one for one in text.splitlines() if SERVED[1] in one)
    place.operator.inventory.write_text(
        text.replace(line, line.replace("[worker]", "[worker, service]"))
    )
    try:
        place.operator.fab("deploy", "start", "--no-jobs")
        yield
    finally:
        place.operator.inventory.write_text(text)
        place.operator.fab("deploy", "start", "--no-jobs")


@pytest.mark.usefixtures("served")
def test_a_service_has_its_certificate_and_root_the_authority_that_phones_trust(
    place: Place, tmp_path: Path
) -> None:
    node = SERVED[0]
    assert place.on(node, f"stat -c %U:%a {KEYS}/authority.pem {STATE}").split() == [
        *("root:600", "pscluster-service:700")
    ]
    assert place.on(node, f"ls {STATE} | grep -c pem || :") == "0"
    assert "0 changed" in place.operator.fab("deploy", "start", "--no-jobs").stdout
    versions_come_and_go(place.lab, place.operator, SERVED, asks=HUB, folder=tmp_path)
    place.on(node, TAKE_PORT)
    taken = f"{SERVED[1]}:8470"
    assert place.reached(HUB, "root", [taken]) == {taken: "TimeoutError"}
    assert place.reached(node, "root", [taken]) == {taken: "TimeoutError"}
