"""The stand-ins for the kernel's NFS behave like it: fstab, exports, squashing, a lost server."""

import pytest

from tests.lab.lab import Lab
from tests.lab.waiting import eventually

pytestmark = [pytest.mark.lab, pytest.mark.timeout(300)]

SERVER = "rpi01"
CLIENT = "rpi02"
OTHER = "rpi03"
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
    for node in (CLIENT, OTHER):
        _mount(lab, node, "shared", "ro")
        _mount(lab, node, "runs", "rw")
    return lab


def test_a_folder_is_mounted_when_it_is_looked_at_and_by_members_alone(exported: Lab) -> None:
    assert (
        "fuse.nfs4" not in exported.ssh(CLIENT, "findmnt --noheadings -o FSTYPE /mnt/shared").stdout
    )
    assert exported.ssh(CLIENT, "cat /mnt/shared/greeting").stdout == "hello\n"
    source = exported.ssh(
        CLIENT, "findmnt --noheadings -o SOURCE,FSTYPE /mnt/shared | tail -1"
    ).stdout.split()
    assert source == [f"{exported.node(SERVER).address}:/srv/shared", "fuse.nfs4"]
    assert "No such device" in exported.ssh(OTHER, "cat /mnt/shared/greeting", check=False).stderr


def test_one_port_is_enough(exported: Lab) -> None:
    listening = exported.ssh(SERVER, "ss --no-header --tcp --listening --numeric").stdout
    assert {line.split()[3].rpartition(":")[2] for line in listening.splitlines()} == {"22", "2049"}


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


def test_exports_change_without_a_restart(exported: Lab) -> None:
    members = [exported.node(name).address for name in (CLIENT, OTHER)]
    before = exported.ssh(SERVER, "systemctl show -p MainPID --value nfs-server").stdout
    runs = f"/srv/runs {members[0]}(rw,sync,no_subtree_check,all_squash,anonuid=890,anongid=890)"
    _export(exported, f"/srv/shared {members[0]}(ro) {members[1]}(ro)", runs)
    eventually(lambda: _reads(exported, OTHER), "the new member reads")
    _export(exported, f"/srv/shared {members[0]}(ro)", runs)
    exported.ssh(OTHER, "sudo umount /mnt/shared")
    eventually(lambda: not _reads(exported, OTHER), "the former member is refused")
    assert _reads(exported, CLIENT)
    assert exported.ssh(SERVER, "systemctl show -p MainPID --value nfs-server").stdout == before


def test_threads_are_what_the_configuration_says(exported: Lab) -> None:
    drop_in = "printf '[nfsd]\\nthreads=32\\nvers3=n\\n' | sudo tee /etc/nfs.conf.d/cluster.conf"
    exported.ssh(SERVER, f"sudo mkdir -p /etc/nfs.conf.d && {drop_in} && sudo rpc.nfsd 32")
    assert exported.ssh(SERVER, "cat /proc/fs/nfsd/threads").stdout == "32\n"


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


def _mount(lab: Lab, node: str, name: str, mode: str) -> None:
    line = f"{lab.node(SERVER).address}:/srv/{name} /mnt/{name} nfs4 {mode},{OPTIONS} 0 0"
    start = f"sudo systemctl daemon-reload && sudo systemctl start mnt-{name}.automount"
    lab.ssh(
        node,
        f"sudo mkdir /mnt/{name} && echo '{line}' | sudo tee -a /etc/fstab >/dev/null && {start}",
    )


def _reads(lab: Lab, node: str) -> bool:
    return lab.ssh(node, "cat /mnt/shared/greeting", check=False).returncode == 0
