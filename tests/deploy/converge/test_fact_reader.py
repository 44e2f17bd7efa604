"""What a node says of itself: asked for real on this machine, and read from answers of other machines."""

import os
import shutil
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from cluster.errors import ClusterError
from deploy.converge.fact_reader import read_facts
from deploy.converge.fact_script import SECTION, fact_script
from deploy.converge.machine_facts import MachineFacts, MountFact, Questions
from tests.habits import needs

SECTIONS = (
    *(
        "clock",
        "system",
        "model",
        "python",
        "memory",
        "controllers",
        "cmdline",
        "boot",
        "synchronized",
        "space",
        "leftovers",
    ),
    *("addresses", "users", "uid", "gid", "packages", "units", "processes", "mounts", "real", "fstab", "exports"),
    *("firewall", "environments", "releases", "current", "published", "listening", "temperature", "throttled", "files"),
)
UNITS = """\
Id=pscluster-worker-0.service
LoadState=loaded
ActiveState=active
SubState=running
UnitFileState=enabled
NeedDaemonReload=no
Result=success
MainPID=812
NRestarts=2
StatusText=serves; a = b
ExecMainStartTimestampMonotonic=60000000

Id=nfs-server.service
LoadState=not-found
ActiveState=inactive
SubState=dead
MainPID=0
NRestarts=0
ExecMainStartTimestampMonotonic=0
"""
PI = {
    "clock": "1800000100.250000000",
    "system": "debian\n12\naarch64\n64\n6.12.47+rpt-rpi-v8\n4",
    "model": "Raspberry Pi 3 Model B Plus Rev 1.3",
    "python": "3.11.2 64",
    "memory": "MemTotal:         928000 kB\nMemFree: 1 kB\nMemAvailable:     700000 kB\nActive(anon): 3 kB",
    "controllers": "cpuset cpu io pids",
    "cmdline": "/boot/firmware/cmdline.txt",
    "boot": "100.25 380.0",
    "synchronized": "yes",
    "space": "/opt/pscluster/environments 20000000\n/srv/pscluster 20000000",
    "leftovers": "/opt/pscluster/environments 1800000",
    "addresses": "1: lo    inet 127.0.0.1/8 scope host\n2: eth0    inet 192.168.1.16/24 scope global\n"
    "2: eth0    inet 169.254.3.4/16 scope link eth0\n3: wlan0    inet6 fe80::1/64 scope link",
    "users": "pscluster:x:890:890::/var/lib/pscluster:/usr/sbin/nologin",
    "uid": "pscluster:x:890:890::/var/lib/pscluster:/usr/sbin/nologin",
    "gid": "other:x:890:",
    "packages": "nfs-common ii  1:2.6.2-4\nnfs-kernel-server un  \nnftables rc  1.0.6-2",
    "units": UNITS,
    "processes": "812 90000 /opt/pscluster/releases/feedfacefeedface",
    "mounts": "25 1 179:2 / / rw,noatime shared:1 - ext4 /dev/mmcblk0p2 rw,errors=remount-ro\n"
    "40 25 179:2 /a\\040b /mnt/a\\040b rw,noatime shared:1 - ext4 /dev/mmcblk0p2 rw\n"
    "60 25 0:40 / /mnt/pscluster/shared rw,relatime shared:9 - autofs systemd-1 rw,fd=52,direct\n"
    "70 60 0:50 / /mnt/pscluster/shared ro,nosuid,nodev shared:11 - nfs4 192.168.1.26:/srv/pscluster/shared rw,hard",
    "real": "/srv/pscluster/shared /data/shared",
    "fstab": "# a comment\nproc /proc proc defaults 0 0",
    "exports": "/srv/pscluster/shared  192.168.1.16(sync,wdelay,hide,no_subtree_check,ro,root_squash)",
    "firewall": "pscluster 0123456789abcdef",
    "environments": "/opt/pscluster/environments/0123456789abcdef/.complete",
    "releases": "/opt/pscluster/releases/feedfacefeedface ../../environments/0123456789abcdef",
    "current": "releases/feedfacefeedface",
    "published": "/srv/pscluster/shared/wheels/0123456789abcdef/.complete",
    "listening": 'LISTEN 0 128 0.0.0.0:22 0.0.0.0:* users:(("sshd",pid=700,fd=3))\n'
    'LISTEN 0 128 [::]:2223 [::]:* users:(("python",pid=812,fd=9))\nLISTEN 0 64 *:2049 *:*',
    "temperature": "48312",
    "throttled": "throttled=0x50005",
}


def answer(**changes: str) -> str:
    """As a Pi prints it; the blank line before each section is the script's."""
    said = PI | changes
    return "".join(f"\n{SECTION}{name}\n{said.get(name, '')}\n" for name in (*SECTIONS, "end"))


def facts_of(**changes: str) -> MachineFacts:
    return read_facts(answer(**changes), 1_800_000_099.0, 1_800_000_100.0)


def test_a_pi_s_answer() -> None:
    facts = facts_of()
    assert (facts.os_id, facts.os_version, facts.machine, facts.bits, facts.cores) == ("debian", "12", "aarch64", 64, 4)
    assert (facts.kernel, facts.model) == ("6.12.47+rpt-rpi-v8", "Raspberry Pi 3 Model B Plus Rev 1.3")
    assert (facts.python, facts.python_version, facts.python_bits) == ("3.11.2", "3.11", 64)
    assert (facts.memory_bytes, facts.available_bytes) == (928_000 * 1024, 700_000 * 1024)
    assert "memory" not in facts.controllers
    assert facts.cmdline_path == "/boot/firmware/cmdline.txt"
    assert facts.clock_offset_seconds == pytest.approx(0.75)
    assert facts.clock_error_seconds == pytest.approx(0.5)
    assert facts.clock_synchronized is True
    assert facts.disk_free_bytes["/srv/pscluster"] == 20_000_000 * 1024
    assert facts.leftover_bytes == {"/opt/pscluster/environments": 1_800_000 * 1024}
    assert facts.addresses == {"lo": ("127.0.0.1",), "eth0": ("192.168.1.16", "169.254.3.4")}
    assert facts.users == {"pscluster": (890, 890)}
    assert (facts.uid_owner, facts.gid_owner) == ("pscluster", "other")
    assert facts.packages == {"nfs-common": "1:2.6.2-4"}
    shared = MountFact("192.168.1.26:/srv/pscluster/shared", "nfs4", "0:50", "/", read_only=True)
    assert facts.mounts["/mnt/pscluster/shared"] == shared
    assert facts.mounts["/mnt/a b"] == MountFact("/dev/mmcblk0p2", "ext4", "179:2", "/a b")
    assert facts.place("/srv/pscluster/shared") == ("179:2", "/data/shared")
    assert facts.place("/mnt/a b/c") == ("179:2", "/a b/c")
    assert facts.exports == ("/srv/pscluster/shared 192.168.1.16(sync,wdelay,hide,no_subtree_check,ro,root_squash)",)
    assert (facts.firewall, facts.environments) == ("0123456789abcdef", ("0123456789abcdef",))
    assert facts.release_environments == {"feedfacefeedface": "0123456789abcdef"}
    assert facts.current == "feedfacefeedface"
    assert facts.published == ("/srv/pscluster/shared/wheels/0123456789abcdef",)
    assert facts.listening == {22: "process 700 (sshd)", 2223: "process 812 (python)", 2049: "a process"}
    assert (facts.temperature_celsius, facts.throttled) == (48.312, 0x50005)


def test_a_unit_with_its_process() -> None:
    facts = facts_of()
    unit = facts.unit("pscluster-worker-0.service")
    assert unit is not None
    assert (unit.running, unit.enabled, unit.restarts, unit.needs_reload) == (True, "enabled", 2, False)
    assert unit.status == "serves; a = b"
    assert (unit.release, unit.anonymous_memory_bytes) == ("feedfacefeedface", 90_000 * 1024)
    assert unit.started_seconds == pytest.approx(1_800_000_060.0)
    assert facts.unit("nfs-server.service") is None
    assert facts.unit("nobody.service") is None


def test_a_process_that_ended_while_it_was_looked_at() -> None:
    unit = facts_of(processes="812  ").unit("pscluster-worker-0.service")
    assert unit is not None
    assert unit.release is None


def test_facts_that_are_not_there_are_not_there() -> None:
    facts = read_facts("".join(f"\n{SECTION}{name}\n" for name in (*SECTIONS, "end")), 10.0, 12.0)
    assert (facts.os_id, facts.machine, facts.bits, facts.cores) == ("", "", 0, 1)
    assert facts.python is None
    assert facts.python_version is None
    assert facts.clock_synchronized is None
    assert (facts.uid_owner, facts.firewall, facts.current, facts.cmdline_path) == (None, None, None, None)
    assert (facts.temperature_celsius, facts.throttled) == (None, None)
    assert (facts.files, facts.units, facts.mounts, facts.listening) == ({}, {}, {}, {})


OTHERS: Sequence[Any] = [
    ("system", "debian\n12\naarch64\n32\n6.12\n4", "bits", 32),
    ("system", "debian\n12\narmv7l\n\n6.12\n4", "kernel", "6.12"),  # getconf is missing
    ("throttled", "VCHI initialization failed", "throttled", None),
    ("throttled", "throttled=0x0", "throttled", 0),
    ("temperature", "no sensor", "temperature_celsius", None),
    ("synchronized", "", "clock_synchronized", None),
    ("synchronized", "no", "clock_synchronized", False),
    ("python", "", "python", None),
    ("users", "garbage", "users", {}),
    ("listening", "ss: cannot open netlink socket", "listening", {}),
    ("files", "", "files", {}),
]


def test_other_machines() -> None:
    for section, text, fact, value in OTHERS:
        assert getattr(facts_of(**{section: text}), fact) == value


GARBAGE: Sequence[Any] = [
    ("clock", "1800000100.%N"),
    ("space", "df: no such option"),
    ("boot", "up 3 days"),
    ("throttled", "throttled=maybe"),
    ("files", "bm90IGEgdGFyIGZpbGU="),
    ("files", "not base64 at all!"),
]


def test_garbage_is_an_error_of_one_line() -> None:
    for section, text in GARBAGE:
        with pytest.raises(ClusterError, match="cannot be read") as caught:
            facts_of(**{section: text})
        assert len(str(caught.value).splitlines()) == 1


def test_a_missing_section_is_an_error() -> None:
    with pytest.raises(ClusterError, match=r"cannot be read .*'units'"):
        read_facts(answer().replace(f"{SECTION}units\n", "\n"), 0.0, 1.0)


@given(end=st.integers(0, 10_000))
@example(end=0)
@settings(max_examples=30, deadline=None)
def test_an_answer_that_was_cut_off_is_no_answer(end: int) -> None:
    whole = answer()
    with pytest.raises(ClusterError, match="cut off"):
        read_facts(whole[: min(end, len(whole) - len(f"{SECTION}end\n\n"))], 0.0, 1.0)


@given(section=st.sampled_from(SECTIONS), text=st.text(max_size=60))
@settings(max_examples=80, deadline=None)
def test_whatever_a_command_prints_there_are_facts_or_one_error(section: str, text: str) -> None:
    try:
        told = repr(facts_of(**{section: text}))
    except ClusterError as error:
        told = str(error)
    assert told.startswith(("MachineFacts(", "the node's answer about itself"))


def questions(*files: Path, space: str = "/opt/pscluster") -> Questions:
    names = tuple(map(str, files))
    return Questions(names, ("pscluster-worker-0.service",), ("base-files", "nothing-of-this-name"), 890, (), (space,))


def ask(
    asked: Questions, environment: dict[str, str] | None = None, replaced: tuple[str, str] = ("", "")
) -> MachineFacts:
    """This machine's own facts, through `sh` as on a node."""
    script = fact_script(asked).replace(*replaced) if replaced[0] else fact_script(asked)
    before = time.time()
    done = subprocess.run(
        ["sh", "-s"], input=script.encode(), capture_output=True, env={**os.environ, **(environment or {})}, check=False
    )
    return read_facts(done.stdout.decode(errors="replace"), before, time.time())


def test_this_machine(tmp_path: Path) -> None:
    awkward = tmp_path / "with 'quotes' $HOME `id` \"x\""
    awkward.write_bytes(b"\x00\xff content")
    awkward.chmod(0o640)
    (tmp_path / "link").symlink_to("elsewhere")
    facts = ask(questions(awkward, tmp_path, tmp_path / "link", tmp_path / "missing", space=f"{tmp_path}/not/yet"))
    assert facts.machine == os.uname().machine
    assert facts.kernel == os.uname().release
    assert facts.bits in (32, 64)
    assert facts.cores >= 1
    assert facts.memory_bytes > 50_000_000
    assert abs(facts.clock_offset_seconds) <= facts.clock_error_seconds + 0.1
    assert facts.disk_free_bytes[f"{tmp_path}/not/yet"] == pytest.approx(shutil.disk_usage(tmp_path).free, rel=0.2)
    assert "/" in facts.mounts
    found = facts.files[str(awkward)]
    assert (found.kind, found.mode, found.content) == ("file", 0o640, b"\x00\xff content")
    assert found.modified_seconds == pytest.approx(awkward.stat().st_mtime, abs=1.0)
    assert facts.files[str(tmp_path)].kind == "folder"
    assert (facts.files[f"{tmp_path}/link"].kind, facts.files[f"{tmp_path}/link"].target) == ("link", "elsewhere")
    assert f"{tmp_path}/missing" not in facts.files
    assert "nothing-of-this-name" not in facts.packages


def test_what_attempts_left_is_measured_and_what_is_complete_is_not(tmp_path: Path) -> None:
    for folder in (".partial-a/environment", ".partial-removed-b", "c", "d"):
        (tmp_path / "wheels" / folder).mkdir(parents=True)
        (tmp_path / "wheels" / folder / "file").write_bytes(b"x" * 300_000)
    for complete in (".partial-removed-b", "d"):
        (tmp_path / "wheels" / complete / ".complete").touch()
    (tmp_path / "empty").mkdir()
    wheels, nothing = f"{tmp_path}/wheels", f"{tmp_path}/empty"
    facts = ask(Questions((), ("x.service",), (), 890, (), ("/",), unfinished=(wheels, nothing, f"{tmp_path}/none")))
    sizes = {folder: size for folder, size in facts.leftover_bytes.items() if folder.startswith(str(tmp_path))}
    assert sizes == {wheels: pytest.approx(900_000, rel=0.1)}


def test_a_machine_without_most_commands(tmp_path: Path) -> None:
    for name in ("date", "uname", "tar", "base64", "sort", "cat", "df", "awk"):
        (tmp_path / name).symlink_to(needs.tool(name))
    path = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
    facts = ask(questions(tmp_path), replaced=(path, f"PATH={tmp_path}"))
    assert facts.python is None
    assert (facts.machine, facts.bits, facts.kernel) == (os.uname().machine, 0, os.uname().release)
    assert (facts.addresses, facts.packages, facts.units, facts.listening) == ({}, {}, {}, {})


def test_values_of_the_inventory_are_words_for_the_shell(tmp_path: Path) -> None:
    trap = f"{tmp_path}/x'; touch {tmp_path}/trapped; echo '$(touch {tmp_path}/trapped)`touch {tmp_path}/trapped`"
    asked = Questions((trap,), (trap,), (trap,), 890, (trap,), (f"{tmp_path}/ok", trap.replace("\n", "")))
    script = fact_script(asked)
    subprocess.run(["sh", "-s"], input=script.encode(), capture_output=True, check=False)
    assert not (tmp_path / "trapped").exists()
