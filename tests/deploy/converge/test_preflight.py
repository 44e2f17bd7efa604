"""What would make a start fail on a node is found before it, with what to do about it."""

from typing import Any

import pytest

from deploy.converge.card import clones
from deploy.converge.machine_facts import MountFact
from deploy.converge.resources import File
from tests.deploy.converge.examined import INVENTORY, findings, found, roots, running
from tests.deploy.converge.pi import untouched
from tests.deploy.converge.tables import rows


@pytest.mark.parametrize("name", ["rpi01", "rpi11"])
def test_a_pi_as_it_comes_from_the_card_is_fit(name: str) -> None:
    assert found(name) == {}


def test_a_fit_node_says_what_it_is() -> None:
    lines = {one.subject: one.line for one in findings() if one.level == "ok"}
    model = "Raspberry Pi 3 Model B Plus Rev 1.3, 4 cores, 950 MB, Python 3.11.2"
    assert lines["rpi01 node"] == model
    assert "= 193 MB of 950 MB" in lines["rpi01 memory"]


@rows("problems")
def test_what_keeps_a_node_out(row: Any) -> None:
    ((topic, problem),) = found(**row["facts"]).items()
    assert (topic, problem.level) == (row["topic"], "problem")
    assert (problem.node, problem.subject) == ("rpi01", f"rpi01 {topic}")
    assert all(piece in problem.line for piece in row["says"]), problem.line


@rows("warnings")
def test_what_is_worth_knowing_keeps_nobody_out(row: Any) -> None:
    warnings = found(**row["facts"])
    assert {one.level for one in warnings.values()} == {"warning"}
    line = warnings[row["topic"]].line
    assert all(piece in line for piece in row["says"]), line


@pytest.mark.parametrize(("name", "need"), [("rpi01", "192.168.1.26"), ("rpi11", "192.168.1.17")])
def test_packets_that_leave_from_another_address_are_told_before_a_start(
    name: str, need: str
) -> None:
    """Wi-Fi has come up beside the cable: a worker asks its server, the coordinator a worker."""
    own = INVENTORY.hosts[name]
    problem = found(name, sources={need: "192.168.1.117"})["network"]
    assert problem.level == "problem"
    assert f"{name} asks for " in problem.line
    assert f"at {need}:" in problem.line
    assert f"from 192.168.1.117, and the inventory says {own}" in problem.line
    assert found(name, sources={need: own}) == {}


def test_the_roles_of_rpi11_do_not_fit_into_700_mb() -> None:
    problem = found("rpi11", memory_bytes=700_000_000)["memory"]
    assert problem.level == "problem"
    roles = "ps 101 + worker 193 + coordinator 317 = 611 MB of 700 MB: more than 80%"
    assert problem.line.startswith(roles)
    assert "move the coordinator or the PS to another node" in problem.line
    assert found("rpi11", memory_bytes=770_000_000) == {}
    assert "memory" in found("rpi11", model_units=128)


def test_a_slow_answer_is_no_wrong_clock() -> None:
    assert found(clock_offset_seconds=40.0, clock_error_seconds=39.0) == {}


def test_several_problems_are_told_at_once() -> None:
    together = found(python=None, clock_offset_seconds=900.0, disk_free_bytes={}, addresses={})
    assert set(together) == {"python", "clock", "disk", "network"}


def test_exports_of_the_owner_are_named_with_what_a_start_changes_for_them() -> None:
    exported = ("/srv/media 192.168.1.0/24(rw)", "/srv/pscluster/shared 192.168.1.17(ro)")
    line = found("rpi11", exports=exported)["exports"].line
    assert "its owner exports /srv/media, reached after a start by NFS 4 alone" in line
    assert "by the inventory's nodes alone (port 2049)" in line
    assert "`storage.external`" in line
    assert found("rpi11", exports=exported[1:]) == {}
    assert found("rpi01", exports=exported) == {}  # no storage server
    mounts = {"/mnt/old": MountFact("nas:/old", "nfs", "0:50")}
    masked = found("rpi11", mounts=mounts, units={"rpcbind.service": running()})["exports"].line
    assert "mounts /mnt/old with NFS 3, and a start masks rpcbind" in masked
    assert found("rpi11", mounts=mounts) == {}


def test_cards_that_were_copied_are_named() -> None:
    facts = {
        "rpi01": untouched(machine_id="a", host_keys=frozenset({"x", "y"})),
        "rpi02": untouched(machine_id="a", host_keys=frozenset({"z"})),
        "rpi03": untouched(machine_id="b", host_keys=frozenset({"y"})),
        "rpi04": untouched(),
        "rpi05": untouched(),
    }
    said = {
        name: [line.partition(",")[0] for line in lines] for name, lines in clones(facts).items()
    }
    assert said == {
        "rpi01": ["it has the SSH host key of rpi03", "it has the machine-id of rpi02"],
        "rpi02": ["it has the machine-id of rpi01"],
        "rpi03": ["it has the SSH host key of rpi01"],
    }
    (key,) = clones(facts)["rpi03"]
    (identity,) = clones(facts)["rpi02"]
    assert "dpkg-reconfigure openssh-server" in key
    assert "systemd-machine-id-setup" in identity


def test_the_service_account_is_no_stranger() -> None:
    ours = {"pscluster": (890, 890)}
    assert found(users=ours, uid_owners={890: "pscluster"}, gid_owners={890: "pscluster"}) == {}


def test_a_resource_that_is_as_wanted_is_left_alone() -> None:
    facts = untouched(files={"/etc/x": roots("text")})
    assert File("/etc/x", b"text").changes(facts) == ()
    for other in (File("/etc/x", b"other"), File("/etc/x", b"text", mode=0o600)):
        (change,) = other.changes(facts)
        assert (change.action, change.kind) == ("change", "file")
