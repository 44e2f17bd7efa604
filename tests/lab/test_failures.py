"""Nodes with faults: each leaves the run with its reason, the others become a cluster.

One scenario, in the order of the file: a lab of seven untouched nodes, of which five are unusable.
"""

import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from deploy.cluster.connection import NodeConnection
from deploy.cluster.login import PinnedKeys, SshAddress
from deploy.converge.apply import StepFailedError, apply
from deploy.converge.roles import keep_firewall
from tests.deploy.playing import eventually
from tests.lab.deployed import Place, trusted
from tests.lab.oddities import Oddity
from tests.lab.operator import Done, Operator
from tests.lab.over_ssh import USER

pytestmark = [pytest.mark.lab, pytest.mark.timeout(900)]

HUB = "rpi01"
WELL = "rpi02"
DARK = "rpi07"
ODDITIES = {
    "rpi03": Oddity.FULL_CARD,
    "rpi04": Oddity.WITHOUT_PYTHON,
    "rpi05": Oddity.WRONG_ARCHITECTURE,
    "rpi06": Oddity.WRONG_CLOCK,
}
SAID = {
    "rpi03": "MB are free below /opt, 100 MB are needed",
    "rpi04": "no /usr/bin/python3 that starts: `sudo apt install --reinstall python3` there",
    "rpi05": "the processor runs as armv7l",
    "rpi06": "s behind this machine's: `sudo timedatectl set-ntp true` there",
    DARK: "is it switched on, and is the address right?",
}
"""The expected line of the recap for each, with the remedy."""

FEW = ("--set", "deployment.minimum_workers=2")
UNDONE_SECONDS = 60.0 + 30.0
"""The time until rules that lock us out are undone, with a margin for a busy machine."""


@pytest.fixture(scope="module")
def patient(lab_can_run: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    with trusted(tmp_path_factory.mktemp("operator"), 7, oddities_of=ODDITIES) as (lab, operator):
        lab.node(DARK).crash()
        yield Place(lab, operator)


def test_check_says_everything_at_once(patient: Place) -> None:
    problems = patient.problems()
    assert {one.get("node") for one in problems} == SAID.keys()
    for name, part in SAID.items():
        assert any(part in one["line"] for one in problems if one["node"] == name), name


def test_a_start_that_is_killed_or_interrupted_is_simply_run_again(patient: Place) -> None:
    operator = patient.operator
    with operator.running("deploy", "start", "--no-jobs", *FEW) as killed:
        killed.wait_for("looking at the nodes\n")
        killed.wait_for(": create user pscluster")
        killed.kill()
        killed.end(-9)
    with operator.running("deploy", "start", "--no-jobs", *FEW) as interrupted:
        interrupted.wait_for(f"{HUB}: create link /opt/pscluster/current")
        interrupted.interrupt()
        assert "Traceback" not in interrupted.end(130).text

    begun = operator.fab("deploy", "start", "--no-jobs", *FEW, code=3)

    _reasons(operator, begun, SAID)
    rows = operator.status(code=3)
    assert [name for name, row in rows.items() if row["well"]] == [HUB, WELL]
    with_recordings = operator.fab("deploy", "start", *FEW, code=3)
    assert "already running, jobs not repeated" in with_recordings.text
    again = operator.fab("deploy", "start", *FEW, code=3)
    assert "7 nodes: 2 ok, 5 failed; 0 changed" in again.text


def test_a_retry_goes_for_those_that_failed_alone(patient: Place) -> None:
    lab = patient.lab
    operator = patient.operator
    python = Path(lab.plan.image, "usr/bin/python3.11").read_bytes()
    over_there = "sudo tee /usr/bin/python3.11 >/dev/null && sudo chmod 755 /usr/bin/python3.11"
    subprocess.run(["ssh", "-F", lab.ssh_config, "rpi04", over_there], input=python, check=True)
    lab.ssh(
        "rpi06",
        "sudo sh -c 'mv /usr/bin/date.real /usr/bin/date; rm"
        " /usr/lib/python3/dist-packages/lab_oddity*'",
    )
    lab.node(DARK).boot()
    lab.node(DARK).wait_until_reachable()

    retried = operator.fab("deploy", "start", "--retry", "--no-jobs", *FEW, code=3)

    assert "once more: rpi03, rpi04, rpi05, rpi06, rpi07" in retried.text
    # The hub takes part as well: no node can mount what its exports do not name.
    assert operator.recap()["nodes"].keys() == {*SAID, HUB}
    assert operator.recap()["nodes"][HUB]["state"] == "ok"
    _reasons(operator, retried, {name: SAID[name] for name in ("rpi03", "rpi05")})
    rows = operator.status(code=3)
    assert [name for name, row in rows.items() if not row["well"]] == ["rpi03", "rpi05"]


def test_rules_that_lock_us_out_are_undone_by_themselves(patient: Place) -> None:
    lab = patient.lab
    node = patient.lab.node(WELL)
    listing = ("nft", "list", "table", "inet", "pscluster")
    before = node.execute(*listing).stdout
    locking = (
        "table inet pscluster\ndelete table inet pscluster\ntable inet pscluster {\n  chain"
        " input {\n"
    )
    locking += (
        "    type filter hook input priority 0; policy accept;\n    tcp dport 22 drop\n  }\n}\n"
    )
    address = SshAddress(WELL, node.address, USER, 22, str(lab.places.key), 5.0)
    connection = NodeConnection(address, PinnedKeys(patient.operator.known_hosts()))
    try:
        (change,) = keep_firewall(patient.operator.wish().ask(connection), locking)
        with pytest.raises(StepFailedError) as caught:
            apply(connection, "firewall", (change,), lambda change, seconds: None)
        assert caught.value.record.step == "log in again through the new rules"
        assert not node.reachable()
        eventually(node.reachable, "the way in is open again", UNDONE_SECONDS)
    finally:
        connection.close()
    assert node.execute(*listing).stdout == before


def _reasons(operator: Operator, begun: Done, expected: Mapping[str, str]) -> None:
    """Exactly these nodes left the run; the last lines and the recap's file have the reason."""
    nodes = operator.recap()["nodes"]
    assert {name for name, node in nodes.items() if node["state"] == "failed"} == expected.keys()
    for name, part in expected.items():
        failure = nodes[name]["failure"]
        assert part in " ".join(failure["last_lines"]) + failure["hint"]
        assert any(
            line.startswith(f"failed {name}: ") and part in line for line in begun.text.splitlines()
        )
