"""A node behaves like a Raspberry Pi on the switch: one can log in, limit it, unplug it."""

import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.deploy.playing import eventually
from tests.lab import cgroups, network
from tests.lab.commands import LabError
from tests.lab.lab import Lab

pytestmark = [pytest.mark.lab, pytest.mark.timeout(300)]


def test_user_pi_logs_in_everywhere_and_becomes_root_without_a_password(lab: Lab) -> None:
    facts = (
        "id -un; sudo -n id -un; hostname; ip -brief -4 address show dev eth0; systemctl"
        " is-system-running --wait"
    )
    for name, node in lab.nodes.items():
        user, root, host, interface, system = lab.ssh(name, facts).stdout.splitlines()
        assert (user, root, host, system) == ("pi", "root", name, "running")
        assert interface.split()[-1] == f"{node.address}/24"


def test_root_and_strangers_are_refused(lab: Lab, tmp_path: Path) -> None:
    stranger = tmp_path / "key"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", stranger], check=True)
    others = (
        lab.ssh_config.read_text().replace(str(lab.places.key), str(stranger)),
        lab.ssh_config.read_text(),
    )
    for text, user in zip(others, ("pi", "root"), strict=True):
        configuration = tmp_path / "ssh_config"
        configuration.write_text(text)
        command = ["ssh", "-F", str(configuration), "-l", user, "rpi01", "true"]
        refused = subprocess.run(command, capture_output=True, check=False)
        assert refused.returncode == 255
        assert b"Permission denied" in refused.stderr


def test_there_is_no_route_out(lab: Lab) -> None:
    assert (
        lab.ssh("rpi01", "timeout 2 bash -c '</dev/tcp/198.51.100.1/80'", check=False).returncode
        != 0
    )


def test_a_cable_carries_what_it_was_shaped_to(lab: Lab) -> None:
    node = lab.node("rpi01")
    content = bytes(2 << 20)

    def mbit_per_second() -> float:
        began = time.monotonic()
        subprocess.run(
            ["ssh", "-F", lab.ssh_config, "rpi01", "cat >/dev/null"], input=content, check=True
        )
        return len(content) * 8e-6 / (time.monotonic() - began)

    unshaped = mbit_per_second()
    node.shape(4)
    try:
        shaped = mbit_per_second()
    finally:
        node.shape(network.LINK_MBIT_PER_SECOND)
    # A busy machine makes both slower; the second is never faster than its cable and the permitted
    # burst.
    assert shaped < min(4 * 1.2, unshaped)


def test_a_program_above_the_memory_limit_is_killed_and_the_node_lives_on(lab: Lab) -> None:
    node = lab.node("rpi01")
    assert lab.ssh("rpi01", "sed -n 's/^MemTotal: *//p' /proc/meminfo").stdout == "1048576 kB\n"
    killed = cgroups.usage(lab.places, "rpi01")["killed_for_memory"]
    node.limit_memory(150 << 20)
    try:
        greedy = lab.ssh("rpi01", """python3 -c 'print(len(b"x" * (400 << 20)))'; echo $?""").stdout
        told = lab.ssh("rpi01", "sed -n 's/^MemTotal: *//p' /proc/meminfo").stdout
    finally:
        node.limit_memory(cgroups.MEMORY_BYTES)
    assert (greedy, told) == ("137\n", "153600 kB\n")
    assert cgroups.usage(lab.places, "rpi01")["killed_for_memory"] > killed


def test_a_quota_holds_a_node_up(lab: Lab) -> None:
    node = lab.node("rpi02")
    node.limit_cpu(10)
    try:
        used = (
            "import time; end = time.monotonic() + 2\nwhile time.monotonic() < end:"
            " pass\nprint(time.process_time())"
        )
        seconds = float(lab.ssh("rpi02", f"python3 -c '{used}'").stdout)
    finally:
        node.limit_cpu(None)
    assert seconds < 1  # of two


def test_a_crash_tells_nobody_and_the_card_keeps_what_was_written(lab: Lab) -> None:
    node = lab.node("rpi03")
    lab.ssh(
        "rpi03",
        "echo kept >note && sync && sudo touch /run/forgotten && cat"
        " /proc/sys/kernel/random/boot_id",
    )
    with socket.create_connection((node.address, 22), timeout=5) as connection:
        assert connection.recv(4) == b"SSH-"
        node.crash()
        connection.settimeout(1)
        while True:  # the rest of the greeting, then silence: no end, no reset
            try:
                assert connection.recv(100)
            except TimeoutError:
                break
    assert not node.running
    assert not node.reachable()
    with pytest.raises(LabError, match="rpi03 is off: `boot rpi03`"):
        node.execute("true")

    node.boot()
    node.wait_until_reachable()

    assert lab.ssh("rpi03", "cat note; ls /run/forgotten 2>&1 || true").stdout.startswith(
        "kept\nls: cannot access"
    )
    with pytest.raises(LabError, match="rpi03 is on already"):
        node.boot()


def test_a_reboot_is_a_new_boot_on_the_same_card(lab: Lab) -> None:
    boot = "cat /proc/sys/kernel/random/boot_id"
    before = lab.ssh("rpi02", f"echo kept >note; {boot}").stdout
    lab.ssh("rpi02", "sudo systemd-run --quiet --on-active=0 systemctl reboot")
    eventually(
        lambda: lab.ssh("rpi02", boot, check=False).stdout not in ("", before), "rpi02 boots again"
    )
    assert lab.ssh("rpi02", "cat note").stdout == "kept\n"
    assert float(lab.ssh("rpi02", "cat /proc/uptime").stdout.split()[0]) < 60
    assert (
        "Reached target" in lab.ssh("rpi02", "sudo journalctl --boot=-1 --no-pager _PID=1").stdout
    )


def test_a_pulled_cable_is_silence_and_goes_on_when_it_is_back(lab: Lab) -> None:
    node = lab.node("rpi02")
    node.link(False)
    try:
        assert not node.reachable()
        assert node.execute("hostname").stdout == "rpi02\n"
    finally:
        node.link(True)
    eventually(node.reachable, "rpi02 greets again")


def test_a_firewall_in_a_node_is_its_own(lab: Lab) -> None:
    serving = "sudo systemd-run --quiet --unit=web python3 -m http.server 8000 --directory /srv"
    lab.ssh("rpi01", "sudo apt-get install -y -qq nftables >/dev/null 2>&1")
    lab.ssh("rpi01", serving)
    allowed = lab.node("rpi02").address
    rule = f"type filter hook input priority 0; tcp dport 8000 ip saddr != {allowed} drop;"
    try:
        eventually(lambda: _answers(lab, "outsider"), "the server answers")
        lab.ssh("rpi01", f"echo 'table inet trial {{ chain input {{ {rule} }}; }}' | sudo nft -f -")
        assert (_answers(lab, "rpi02"), _answers(lab, "rpi03"), _answers(lab, "outsider")) == (
            True,
            False,
            False,
        )
        lab.ssh("rpi01", "sudo nft delete table inet trial")
        assert _answers(lab, "outsider")
    finally:
        lab.ssh("rpi01", "sudo systemctl stop web")


def test_a_unit_that_denies_addresses_really_drops_them(lab: Lab) -> None:
    allowed = lab.node("rpi02").address
    ring = f"-p IPAddressDeny=any -p IPAddressAllow={allowed}"
    lab.ssh(
        "rpi01",
        f"sudo systemd-run --quiet --unit=ringed {ring} python3 -m http.server 8000 --directory"
        " /srv",
    )
    try:
        eventually(lambda: _answers(lab, "rpi02"), "the server answers the allowed address")
        assert (_answers(lab, "rpi03"), _answers(lab, "outsider")) == (False, False)
    finally:
        lab.ssh("rpi01", "sudo systemctl stop ringed")


def test_a_snapshot_finds_what_was_changed_and_nothing_once_it_is_undone(lab: Lab) -> None:
    node = lab.node("rpi02")
    before = node.snapshot()
    lab.ssh(
        "rpi02",
        "sudo sh -c 'echo x >>/etc/fstab; rm /etc/issue; mkdir /opt/new; chmod 700 /mnt; echo y"
        ' >/srv/data; touch /var/log/x; printf "[Service]\\nExecStart=sleep 1000\\n"'
        " >/etc/systemd/system/extra.service; systemctl daemon-reload; systemctl start extra; cp -p"
        " /etc/fstab /etc/kept'",
    )
    changed = {line.split(":")[0] for line in before.differences(node.snapshot())}
    assert changed == {
        *(
            "file etc/fstab",
            "file etc/issue",
            "file etc/kept",
            "file etc/systemd/system/extra.service",
            "file mnt",
        ),
        *("file opt/new", "file srv/data", "unit extra.service", "unit extra.service (loaded)"),
    }
    lab.ssh(
        "rpi02",
        "sudo sh -c 'systemctl stop extra; rm -r /opt/new /srv/data /etc/kept"
        ' /etc/systemd/system/extra.service; systemctl daemon-reload; sed -i "/^x$/d" /etc/fstab;'
        " chmod 755 /mnt'",
    )
    assert [line.split(":")[0] for line in before.differences(node.snapshot())] == [
        "file etc/issue"
    ]


def _answers(lab: Lab, where: str) -> bool:
    ask = (
        f"import socket; socket.create_connection(('{lab.node('rpi01').address}', 8000), timeout=1)"
    )
    if where == "outsider":
        return lab.outsider(sys.executable, "-c", ask, check=False).returncode == 0
    return lab.ssh(where, f'python3 -c "{ask}"', check=False).returncode == 0
