"""The stand-ins for the kernel's NFS behave like it: fstab, exports, squashing, a lost server."""

import pytest

from tests.deploy.playing import eventually
from tests.lab.lab import Lab

pytestmark = [pytest.mark.lab, pytest.mark.timeout(300)]

SERVER = "rpi01"
CLIENT = "rpi02"
OPTIONS = "hard,noatime,nodev,nosuid,_netdev,nofail,x-systemd.automount,x-systemd.mount-timeout=10"


@pytest.fixture(scope="module")
def exported(lab: Lab) -> Lab:
    """Mount /srv/shared read-only, and /srv/runs writable and always as user 890."""
    client = lab.node(CLIENT).address
    lab.ssh(
        SERVER,
        "sudo apt-get install -y -qq nfs-kernel-server >/dev/null 2>&1 && sudo mkdir /srv/shared"
        " /srv/runs && sudo chown 890:890 /srv/runs && echo hello | sudo tee /srv/shared/greeting"
        " >/dev/null",
    )
    _export(
        lab,
        f"/srv/shared {client}(ro,sync,no_subtree_check,root_squash)",
        f"/srv/runs {client}(rw,sync,no_subtree_check,all_squash,anonuid=890,anongid=890)",
    )
    _mount(lab, "shared", "ro")
    _mount(lab, "runs", "rw")
    return lab


def test_what_is_exported_read_only_is_refused_by_the_server_too(exported: Lab) -> None:
    assert "Read-only" in exported.ssh(CLIENT, "sudo touch /mnt/shared/new", check=False).stderr
    exported.ssh(
        CLIENT,
        "sudo mkdir /tmp/again && sudo mount -t nfs4 -o rw $(findmnt -n -o SOURCE /mnt/shared|tail"
        " -1) /tmp/again",
    )
    try:
        assert exported.ssh(CLIENT, "sudo touch /tmp/again/new", check=False).returncode != 0
    finally:
        exported.ssh(CLIENT, "sudo umount /tmp/again")


def test_whoever_writes_is_the_service_user_over_there(exported: Lab) -> None:
    exported.ssh(
        CLIENT,
        "cd /mnt/runs && sudo sh -c 'umask 022; mkdir job && "
        "echo one >job/partial && mv job/partial job/result.json && "
        "ln -s job latest && chmod 640 job/result.json && touch -d @1000000000 job && "
        "cp -r /usr/lib/python3.11/json job/ && "
        "echo two >>latest/result.json && truncate -s 2M job/big && rm job/big'",
    )
    seen = "cd /srv/runs; stat -c '%n %u:%g %a %s %Y' job/result.json job; readlink latest; ls job"
    result, _, link, *names = exported.ssh(SERVER, seen).stdout.splitlines()
    assert result.rsplit(" ", 1)[0] == "job/result.json 890:890 640 8"
    assert (link, names) == ("job", ["json", "result.json"])
    same = "diff -r /usr/lib/python3.11/json /mnt/runs/job/json"
    assert exported.ssh(CLIENT, same).stdout == ""


def test_a_writer_waits_for_a_server_that_lost_power(exported: Lab) -> None:
    """Last: the server reboots."""
    lines = "for i in 1 2 3 4 5 6; do echo $i; sleep 0.5; done"
    writing = f"{lines} >/mnt/runs/log && sync /mnt/runs/log && cp /mnt/runs/log /tmp"
    exported.ssh(CLIENT, f"sudo systemd-run --quiet --unit=writer sh -c '{writing}'")
    eventually(
        lambda: exported.ssh(SERVER, "cat /srv/runs/log", check=False).returncode == 0, "it writes"
    )

    server = exported.node(SERVER)
    server.crash()
    server.boot()
    server.wait_until_reachable()

    eventually(
        lambda: exported.ssh(CLIENT, "cat /tmp/log", check=False).stdout == "1\n2\n3\n4\n5\n6\n",
        "it continues",
        60,
    )
    assert exported.ssh(SERVER, "sudo cat /srv/runs/log").stdout == "1\n2\n3\n4\n5\n6\n"


def _export(lab: Lab, *lines: str) -> None:
    text = "\n".join(lines)
    lab.ssh(
        SERVER,
        f"sudo mkdir -p /etc/exports.d && echo '{text}' | sudo tee /etc/exports.d/cluster.exports"
        " && sudo exportfs -ra",
    )


def _mount(lab: Lab, name: str, mode: str) -> None:
    line = f"{lab.node(SERVER).address}:/srv/{name} /mnt/{name} nfs4 {mode},{OPTIONS} 0 0"
    start = f"sudo systemctl daemon-reload && sudo systemctl start mnt-{name}.automount"
    lab.ssh(
        CLIENT,
        f"sudo mkdir /mnt/{name} && echo '{line}' | sudo tee -a /etc/fstab >/dev/null && {start}",
    )
