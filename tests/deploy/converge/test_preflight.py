"""Each thing that would make a start fail on a node is found before it, with what to do about it."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from deploy.cluster.places import ENVIRONMENTS, UNIT_FOLDER
from deploy.converge.check import Finding
from deploy.converge.files import File
from deploy.converge.machine_facts import FileFact, MountFact, UnitFact
from deploy.converge.memory_estimate import MEGABYTE, estimate
from deploy.converge.preflight import examine
from deploy.converge.subject import NodeWish
from tests.deploy.converge.pi import ENVIRONMENT, thesis, untouched

INVENTORY = thesis()
RPI01, RPI11 = "192.168.1.16", "192.168.1.26"


def found(
    name: str = "rpi01", model_units: int = 32, installed: str | None = None, **changes: Any
) -> dict[str, Finding]:
    """What is not well on a node, by topic."""
    facts = untouched(INVENTORY.hosts[name], **({"controllers": ("cpu", "memory")} | changes))
    wish = NodeWish.of(INVENTORY, name, estimate(model_units), installed or ENVIRONMENT)
    return {finding.topic: finding for finding in examine(wish, facts) if finding.level != "ok"}


def running(**changes: Any) -> UnitFact:
    fresh = UnitFact("loaded", "active", "running", "enabled", False, "success", 812, 0)
    return replace(fresh, **changes)


@pytest.mark.parametrize("name", ["rpi01", "rpi11"])
def test_a_pi_as_it_comes_from_the_card_is_fit(name: str) -> None:
    assert found(name) == {}


def test_a_fit_node_says_what_it_is() -> None:
    wish = NodeWish.of(INVENTORY, "rpi01", estimate(32), ENVIRONMENT)
    lines = {one.subject: one.line for one in examine(wish, untouched(RPI01)) if one.level == "ok"}
    assert lines["rpi01 node"] == "Raspberry Pi 3 Model B Plus Rev 1.3, 4 cores, 950 MB, Python 3.11.2"
    assert "= 193 MB of 950 MB" in lines["rpi01 memory"]


PROBLEMS: Sequence[Any] = [
    ({"disk_free_bytes": {ENVIRONMENTS: 300 * MEGABYTE}}, "disk", "300 MB are free", "sudo apt clean"),
    ({"disk_free_bytes": {}}, "disk", "0 MB are free", "a larger card"),
    ({"python": None, "python_bits": 0}, "python", "no python3 that starts", "sudo apt install python3"),
    ({"python": "3.9.2"}, "python", "Python 3.9.2", "bookworm (3.11) or trixie (3.13)"),
    ({"python_bits": 32}, "python", "a 32-bit Python", "64-bit wheels only"),
    ({"machine": "armv7l", "bits": 32}, "platform", "armv7l", "install a 64-bit Raspberry Pi OS on a Pi 3"),
    ({"bits": 32}, "platform", "a 64-bit kernel (aarch64) under a 32-bit system", "install the 64-bit"),
    ({"clock_offset_seconds": 3600.0}, "clock", "3600 s ahead of this machine's", "timedatectl set-ntp true"),
    ({"clock_offset_seconds": -86400.0}, "clock", "86400 s behind this machine's", "timedatectl set-ntp true"),
    ({"addresses": {"eth0": ("192.168.1.99",)}}, "network", "eth0 has 192.168.1.99", "correct the address"),
    ({"addresses": {"wlan0": (RPI01,)}}, "network", "eth0 has no IPv4 address", "or `interface:`"),
    ({"uid_owner": "backup"}, "account", "uid 890 belongs to backup", "`deployment.service_uid`"),
    ({"gid_owner": "backup"}, "account", "gid 890 belongs to backup", "`deployment.service_uid`"),
    (
        {"users": {"pscluster": (1001, 1001)}, "uid_owner": None},
        *("account", "uid 1001 and gid 1001 here, not 890", "sudo userdel pscluster"),
    ),
    ({"listening": {2223: "process 5 (nc)"}}, "port", "2223 of worker:0 is taken by process 5 (nc)", "stop it"),
    ({"listening": {9201: "a process"}}, "port", "9201 of worker:0 is taken by a process", "another port"),
]


def test_what_keeps_a_node_out() -> None:
    for changes, topic, says, remedy in PROBLEMS:
        problems = found(**changes)
        assert set(problems) == {topic}
        assert problems[topic].level == "problem"
        assert (problems[topic].node, problems[topic].subject) == ("rpi01", f"rpi01 {topic}")
        assert says in problems[topic].line
        assert remedy in problems[topic].line


WARNINGS: Sequence[Any] = [
    (
        {"controllers": ("cpu", "io")},
        *("memory limits", "memory controller is switched off", "to the one line of /boot/firmware/cmdline.txt"),
    ),
    (
        {"controllers": (), "cmdline_path": "/boot/cmdline.txt"},
        *("memory limits", "append `cgroup_enable=memory`", "/boot/cmdline.txt and reboot"),
    ),
    ({"throttled": 0x50005}, "power", "under-voltage now", "a stronger supply"),
    ({"throttled": 0x50000}, "power", "since it was switched on", "a shorter cable"),
    ({"throttled": 0x4}, "heat", "throttled at 48 °C", "cool it"),
    ({"temperature_celsius": 84.0}, "heat", "84 °C", "cool it"),
    ({"throttled": 0x4, "temperature_celsius": None}, "heat", "throttled:", "cool it"),
    ({"clock_offset_seconds": 12.0}, "clock", "12 s ahead", "timedatectl"),
    ({"os_id": "fedora", "os_version": "41"}, "system", "fedora 41", "Debian"),
    ({"os_id": "", "os_version": ""}, "system", "unknown", "Debian"),
]


def test_what_is_worth_knowing_keeps_nobody_out() -> None:
    for changes, topic, says, remedy in WARNINGS:
        warnings = found(**changes)
        assert topic in warnings
        assert {one.level for one in warnings.values()} == {"warning"}
        assert says in warnings[topic].line
        assert remedy in warnings[topic].line


def test_the_roles_of_rpi11_do_not_fit_into_700_mb() -> None:
    problem = found("rpi11", memory_bytes=700_000_000)["memory"]
    assert problem.level == "problem"
    assert problem.line.startswith("ps 101 + worker 193 + coordinator 317 = 611 MB of 700 MB: more than 80%")
    assert "move the coordinator or the PS to another node" in problem.line
    assert found("rpi11", memory_bytes=770_000_000) == {}
    assert "memory" in found("rpi11", model_units=128)


def test_a_slow_answer_is_no_wrong_clock() -> None:
    assert found(clock_offset_seconds=40.0, clock_error_seconds=39.0) == {}


def test_an_installed_environment_needs_no_room() -> None:
    little = {ENVIRONMENTS: 300 * MEGABYTE}
    assert found(disk_free_bytes=little, environments=(ENVIRONMENT,)) == {}
    assert "disk" in found(disk_free_bytes=little, environments=("ffffffffffffffff",))


def test_what_an_attempt_left_is_room_for_the_next_one() -> None:
    little, left = {ENVIRONMENTS: 900 * MEGABYTE}, {ENVIRONMENTS: 2_000 * MEGABYTE}
    assert "900 MB are free below /opt" in found(disk_free_bytes=little)["disk"].line
    assert found(disk_free_bytes=little, leftover_bytes=left) == {}
    assert (
        "1,000 MB are free" in found(disk_free_bytes=little, leftover_bytes={ENVIRONMENTS: 100 * MEGABYTE})["disk"].line
    )


def disk_of_the_server(publishes: int, free: dict[str, int], **changes: Any) -> str:
    """What is wrong with it, for so many MB to publish."""
    facts = untouched(
        RPI11, controllers=("memory",), disk_free_bytes={k: v * MEGABYTE for k, v in free.items()}, **changes
    )
    wish = NodeWish.of(INVENTORY, "rpi11", estimate(32), ENVIRONMENT, publishes * MEGABYTE)
    lines = [finding.line for finding in examine(wish, facts) if finding.level != "ok"]
    return "; ".join(lines)


SSD = {"/srv/pscluster": MountFact("/dev/sda1", "ext4", "8:1")}


def test_the_storage_server_has_to_take_what_is_published() -> None:
    card = {"/": MountFact("/dev/mmcblk0p2", "ext4", "179:2")}
    assert disk_of_the_server(400, {ENVIRONMENTS: 2_800, "/srv/pscluster": 400}, mounts=card | SSD) == ""
    line = disk_of_the_server(400, {ENVIRONMENTS: 2_800, "/srv/pscluster": 300}, mounts=card | SSD)
    assert line.startswith("300 MB are free below /srv/pscluster, 400 MB are needed for what all nodes install: ")
    assert "`storage.export`" in line
    assert disk_of_the_server(0, {ENVIRONMENTS: 2_800, "/srv/pscluster": 0}, mounts=card | SSD) == ""
    sent = {"/srv/pscluster/shared/wheels": 150 * MEGABYTE}
    few = {ENVIRONMENTS: 2_800, "/srv/pscluster": 300}
    assert disk_of_the_server(400, few, mounts=card | SSD, leftover_bytes=sent) == ""


def test_one_disk_of_the_server_has_to_take_both() -> None:
    assert disk_of_the_server(400, {ENVIRONMENTS: 3_200, "/srv/pscluster": 3_200}) == ""
    line = disk_of_the_server(400, {ENVIRONMENTS: 2_900, "/srv/pscluster": 2_900})
    assert "2,900 MB are free below /srv/pscluster, 3,200 MB are needed" in line
    assert "with its own environment on the same disk" in line
    left = {ENVIRONMENTS: 200 * MEGABYTE, "/srv/pscluster/shared/wheels": 100 * MEGABYTE}
    assert disk_of_the_server(400, {ENVIRONMENTS: 2_900, "/srv/pscluster": 2_900}, leftover_bytes=left) == ""


def test_several_problems_are_told_at_once() -> None:
    together = found(python=None, clock_offset_seconds=900.0, disk_free_bytes={}, addresses={})
    assert set(together) == {"python", "clock", "disk", "network"}


def test_ports_of_our_own_roles_are_not_taken() -> None:
    own = running()
    assert found(listening={2223: "process 812 (python)"}, units={"pscluster-worker-0.service": own}) == {}
    ended = running(active="inactive")
    assert "port" in found(listening={2223: "process 9 (nc)"}, units={"pscluster-worker-0.service": ended})


def test_ports_of_a_role_that_gets_another_index_are_free_by_then() -> None:
    text = b"ExecStart=python -m worker_node --task 7 --port 2223 --metrics-port 9201 --peers 16\n"
    path = f"{UNIT_FOLDER}/pscluster-worker-7.service"
    changes: dict[str, Any] = {
        "listening": {2223: "process 812 (python)", 9201: "process 812 (python)"},
        "units": {"pscluster-worker-7.service": running()},
        "files": {path: FileFact("file", 0o644, "root", "root", text)},
    }
    assert found(**changes) == {}
    assert "port" in found(**changes | {"units": {"pscluster-worker-7.service": running(active="failed")}})


def test_a_way_in_that_the_firewall_would_close_is_told() -> None:
    line = found(listening={2222: "process 700 (sshd)"})["ssh"].line  # the parameter server's port, on another node
    assert "the SSH server listens on port 2222 alone, which the firewall will close to all but the nodes" in line
    assert "(`ports`)" in line
    assert "ssh" in found(listening={9100: "process 700 (sshd)"})
    assert found(listening={22: "process 700 (sshd)", 2222: "process 9 (nc)"}) == {}
    assert found(listening={22: "process 700 (sshd)", 2222: "process 701 (sshd)"}) == {}  # there is another way
    by_socket: dict[str, Any] = {"listening": {2222: "process 1 (systemd)"}}
    assert found(**by_socket) == {}
    for overrides, topics in (
        (("ssh.port=2222",), ["ssh"]),
        (("ssh.port=2222", "deployment.firewall=false"), []),
        (("ssh.port=2222", "ports.ps=2322"), []),
    ):
        wish = NodeWish.of(thesis(*overrides), "rpi01", estimate(32), ENVIRONMENT)
        facts = untouched(RPI01, controllers=("memory",), **by_socket)
        assert [one.topic for one in examine(wish, facts) if one.level != "ok"] == topics


def test_the_service_account_is_no_stranger() -> None:
    assert found(users={"pscluster": (890, 890)}, uid_owner="pscluster", gid_owner="pscluster") == {}


def test_a_resource_that_is_as_wanted_is_left_alone() -> None:
    facts = untouched(files={"/etc/x": FileFact("file", 0o644, "root", "root", b"text")})
    assert File("/etc/x", b"text").changes(facts) == ()
    for other in (File("/etc/x", b"other"), File("/etc/x", b"text", mode=0o600)):
        (change,) = other.changes(facts)
        assert (change.action, change.kind) == ("change", "file")
