"""What nodes say of themselves over a real sshd, and why one says nothing."""

import getpass
import os
from pathlib import Path

import pytest

from cluster.errors import ClusterError
from deploy.cluster.connection import NodeConnection
from deploy.converge.check import Finding
from deploy.converge.survey import survey
from tests.deploy.converge.pi import thesis, wish_for
from tests.deploy.over_ssh.nodes import fleet_of, trusting
from tests.deploy.over_ssh.sshd import ACCOUNT, Sshd, running_sshd, sshd_with_an_account
from tests.habits import needs


@pytest.mark.usefixtures("sudo")
def test_a_node_says_what_it_is(node: NodeConnection) -> None:
    facts = wish_for(thesis()).ask(node)
    assert facts.machine == os.uname().machine
    assert abs(facts.clock_offset_seconds) <= facts.clock_error_seconds + 0.1
    needs.tool("ss")  # it tells root the process that listens
    assert facts.listening.get(node.address.port, "").endswith("(sshd)")


@pytest.mark.usefixtures("sudo")
def test_nodes_that_are_lost_are_findings_and_the_others_are_asked(sshd: Sshd, tmp_path: Path) -> None:
    (tmp_path / "gone").mkdir()
    with running_sshd(tmp_path / "gone") as gone:
        pinned = trusting(tmp_path, sshd, gone)
    wish = wish_for(thesis())
    with fleet_of(pinned, [("rpi01", sshd), ("rpi02", gone)]) as fleet:
        seen = survey(fleet, wish.ask)
    assert set(seen.facts) == {"rpi01"}
    assert set(seen.lost) == {"rpi02"}
    assert (seen.lost["rpi02"].phase, seen.lost["rpi02"].return_code) == ("facts", None)
    found = {one.subject: one for one in wish.findings(seen)}
    lost = found["rpi02 connection"]
    assert isinstance(lost, Finding)
    assert (lost.level, lost.node, lost.topic) == ("problem", "rpi02", "connection")
    assert "is it switched on" in lost.line
    assert "is no address of this node" in found["rpi01 network"].line or "eth0 has" in found["rpi01 network"].line
    assert "rpi03 connection" not in found  # nobody asked it


def test_an_account_without_sudo_is_told_the_line_that_gives_it(tmp_path: Path) -> None:
    with sshd_with_an_account(tmp_path) as server:
        account = NodeConnection(server.address("rpi01", user=ACCOUNT), trusting(tmp_path, server))
        try:
            assert account.run(["id", "-un"]).text == f"{ACCOUNT}\n"
            with pytest.raises(ClusterError) as caught:
                wish_for(thesis()).ask(account)
        finally:
            account.close()
    said = str(caught.value)
    assert said.startswith(f"rpi01: {ACCOUNT} may not use sudo without a password (sudo: a password is required)")
    assert f"`echo '{ACCOUNT} ALL=(ALL) NOPASSWD: ALL' | sudo tee /etc/sudoers.d/010_{ACCOUNT}-nopasswd` there" in said
    assert len(said.splitlines()) == 1


def test_a_node_without_sudo_is_told_to_install_it(tmp_path: Path) -> None:
    """An account whose commands are those of an empty folder, `sh` and `timeout` apart."""
    commands = tmp_path / "commands"
    commands.mkdir()
    for name in ("sh", "timeout"):
        (commands / name).symlink_to(needs.tool(name))
    with running_sshd(tmp_path, f"SetEnv=PATH={commands}") as server:
        bare = NodeConnection(server.address("rpi01", user=getpass.getuser()), trusting(tmp_path, server))
        try:
            with pytest.raises(ClusterError, match=r"rpi01: there is no sudo \(.*\): `su -c 'apt-get install sudo'`"):
                wish_for(thesis()).ask(bare)
        finally:
            bare.close()
