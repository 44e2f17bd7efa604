"""What nodes say of themselves over a real sshd, and why one says nothing."""

import os
import re
from pathlib import Path

import pytest

from core.ground.errors import ClusterError
from deploy.cluster.connection import NodeConnection
from deploy.converge.apply import survey
from deploy.converge.check import Finding
from tests.deploy.converge.pi import machines_for, thesis
from tests.deploy.over_ssh.nodes import fleet_of, trusting
from tests.deploy.over_ssh.sshd import Sshd, running_sshd
from tests.habits import needs


@pytest.mark.usefixtures("sudo")
def test_a_node_says_what_it_is(node: NodeConnection) -> None:
    facts = machines_for(thesis()).ask(node)
    assert facts.machine == os.uname().machine
    assert abs(facts.clock_offset_seconds) <= facts.clock_error_seconds + 0.1
    needs.tool("ss")  # it tells root the process that listens
    assert facts.listening.get(node.address.port, "").endswith("(sshd)")


@pytest.mark.usefixtures("sudo")
def test_nodes_that_are_lost_are_findings_and_the_others_are_asked(
    sshd: Sshd, tmp_path: Path
) -> None:
    (tmp_path / "gone").mkdir()
    with running_sshd(tmp_path / "gone") as gone:
        pinned = trusting(tmp_path, sshd, gone)
    machines = machines_for(thesis())
    with fleet_of(pinned, [("rpi01", sshd), ("rpi02", gone)]) as fleet:
        seen = survey(fleet, machines.ask)
    assert [*seen.facts] == ["rpi01"]
    lost = {name: (one.phase, one.return_code) for name, one in seen.lost.items()}
    assert lost == {"rpi02": ("facts", None)}
    found = {one.subject: one for one in machines.findings(seen)}
    finding = found["rpi02 connection"]
    assert isinstance(finding, Finding)
    assert (finding.level, finding.node, finding.topic) == ("problem", "rpi02", "connection")
    assert "nothing listens at port" in finding.line
    assert re.search("is no address of this node|eth0 has", found["rpi01 network"].line)
    assert "rpi03 connection" not in found  # nobody asked it


def test_a_node_without_sudo_is_told_to_install_it(tmp_path: Path) -> None:
    """An account whose commands are those of an empty folder, `sh` and `timeout` apart."""
    commands = tmp_path / "commands"
    commands.mkdir()
    for name in ("sh", "timeout"):
        (commands / name).symlink_to(needs.tool(name))
    with running_sshd(tmp_path, f"SetEnv=PATH={commands}") as server:
        bare = NodeConnection(server.address("rpi01"), trusting(tmp_path, server))
        with pytest.raises(
            ClusterError, match=r"rpi01: sudo is missing \(.*\): run `su -c 'apt-get install sudo'`"
        ):
            machines_for(thesis()).ask(bare)
        bare.close()
