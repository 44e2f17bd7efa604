"""A mount is right when it shows what the inventory wants, with the access it wants; who is asked below a mount."""

import os
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from cluster.inventory import Inventory
from deploy.converge.change import Shell
from deploy.converge.deployment import plan
from deploy.converge.machine_facts import MachineFacts, MountFact, Questions
from deploy.converge.memory_estimate import estimate
from deploy.converge.preflight import examine
from deploy.converge.resources import Mounted
from deploy.converge.subject import NodeWish
from deploy.converge.survey import PUBLISHED_SECONDS, fact_script, read_facts
from tests.deploy.converge.pi import ENVIRONMENT, Cluster, all_changes, converged, thesis, untouched, wish_for
from tests.deploy.converge.played_node import PlayedNode
from tests.habits import needs
from tests.inventory.cases import machine, read

CARD = MountFact("/dev/mmcblk0p2", "ext4", "179:2")
WAITING = MountFact("systemd-1", "autofs", "0:40")
OURS = MountFact("192.168.1.26:/srv", "nfs4", "0:50", read_only=True)
LINE = "192.168.1.26:/srv /mnt/pscluster nfs4 ro,hard,x-systemd.automount 0 0"
BOUND = "/srv/pscluster /mnt/pscluster none bind,nofail 0 0"

MOUNTS: dict[str, tuple[str, dict[str, MountFact], str | None]] = {
    "nothing yet": (LINE, {}, "create"),
    "waiting": (LINE, {"/mnt/pscluster": WAITING}, None),
    "mounted": (LINE, {"/mnt/pscluster": OURS}, None),
    "as FUSE shows it": (LINE, {"/mnt/pscluster": replace(OURS, kind="fuse.nfs4")}, None),
    "from another server": (LINE, {"/mnt/pscluster": replace(OURS, source="10.0.0.1:/old")}, "change"),
    "for writing": (LINE, {"/mnt/pscluster": replace(OURS, read_only=False)}, "change"),
    "read-only": (LINE.replace("ro,", "rw,"), {"/mnt/pscluster": OURS}, "change"),
    "not bound yet": (BOUND, {}, "create"),
    "bound": (BOUND, {"/mnt/pscluster": replace(CARD, root="/srv/pscluster")}, None),
    "bound to another folder": (BOUND, {"/mnt/pscluster": replace(CARD, root="/old")}, "change"),
    "bound to a folder that was removed": (
        BOUND,
        {"/mnt/pscluster": replace(CARD, root="/srv/pscluster//deleted")},
        "change",
    ),
    "the folder is on a disk of its own by now": (
        BOUND,
        {
            "/mnt/pscluster": replace(CARD, root="/srv/pscluster"),
            "/srv": MountFact("/dev/sda1", "ext4", "8:1"),
        },
        "change",
    ),
    "bound from a disk of its own": (
        BOUND,
        {
            "/srv": MountFact("/dev/sda1", "ext4", "8:1"),
            "/mnt/pscluster": MountFact("/dev/sda1", "ext4", "8:1", "/pscluster"),
        },
        None,
    ),
    "bound from a part of a file system": (
        BOUND,
        {
            "/srv": MountFact("/dev/sda1", "btrfs", "0:30", "/@srv"),
            "/mnt/pscluster": MountFact("/dev/sda1", "btrfs", "0:30", "/@srv/pscluster"),
        },
        None,
    ),
    "a client before it became the server": (BOUND, {"/mnt/pscluster": WAITING}, "change"),
}


@pytest.mark.parametrize("case", MOUNTS)
def test_a_mount_is_left_alone_when_it_shows_the_right_thing(case: str) -> None:
    line, mounts, action = MOUNTS[case]
    changes = Mounted.of(line).changes(untouched(mounts={"/": CARD, **mounts}))
    assert [change.action for change in changes] == ([] if action is None else [action])


def test_a_link_on_the_way_to_the_folder_is_followed() -> None:
    mounts = {"/": CARD, "/mnt/pscluster": replace(CARD, root="/data/pscluster")}
    assert Mounted.of(BOUND).changes(untouched(mounts=mounts, real_paths={"/srv/pscluster": "/data/pscluster"})) == ()


def test_what_was_mounted_is_taken_down_before_the_right_one_comes(tmp_path: Path) -> None:
    """Also when it lies there twice, and systemd sees that it is gone a little later; its unit is not stopped."""
    (change,) = Mounted.of(BOUND).changes(untouched(mounts={"/": CARD, "/mnt/pscluster": WAITING}))
    (step,) = change.steps
    assert isinstance(step, Shell)
    node = PlayedNode(tmp_path / "node")
    table, seen = node.root / "proc/mounts", node.root / "seen"
    table.write_text(f"systemd-1 {node.root}/mnt/pscluster autofs\nnas {node.root}/mnt/pscluster nfs4\n")
    seen.touch()
    node.command("umount", f'echo "umount $*" >>{node.root}/done; sed -i "\\$d" {table}')
    node.command("systemd-escape", 'echo "point.${2#--suffix=}"')
    node.command(
        "systemctl",
        f'echo "systemctl $*" >>{node.root}/done\ncase "$*" in *is-active*) /bin/rm {seen} 2>/dev/null ;; esac',
    )
    node.command("sleep", "exit 0")
    assert node.run(step.script).returncode == 0
    point = f"{node.root}/mnt/pscluster"
    assert [line for line in node.done if "is-active" not in line] == [
        "systemctl stop point.automount",
        *(f"umount -l {point}", f"umount -l {point}"),
        "systemctl reset-failed point.mount",
        "systemctl start point.mount",
    ]
    assert sum("is-active" in line for line in node.done) == 2


def test_an_export_that_moved_is_shown_on_the_server_too() -> None:
    cluster, _ = converged(wish_for(thesis()), {})
    wish = wish_for(thesis("storage.export=/mnt/ssd/pscluster"))
    cluster["rpi11"] = replace(
        cluster["rpi11"], mounts={**cluster["rpi11"].mounts, "/mnt/ssd": MountFact("/dev/sda1", "ext4", "8:1")}
    )
    cluster, plans = converged(wish, cluster)
    moved = {change.subject: change.action for change in plans["mounts"]["rpi11"] if change.kind == "mount"}
    points = [f"/mnt/pscluster/{part}" for part in ("shared", "data", "runs")]
    assert moved == dict.fromkeys(["/etc/fstab", *points], "change")
    assert cluster["rpi11"].mounts["/mnt/pscluster/runs"].root == "/pscluster/runs"
    assert all_changes(plan(wish, cluster)) == []


def with_nas(coordinator: str, export: str = "/volume1") -> Inventory:
    """Three nodes and an export of somebody else's."""
    roles = {"pi-0": "ps", "pi-1": "worker", "pi-2": "worker"}
    nodes = [
        f"  - {{name: {name}, address: 10.1.0.{number}, roles: [{role}{', coordinator' * (name == coordinator)}]}}"
        for number, (name, role) in enumerate(roles.items(), start=1)
    ]
    text = "schema: 1\ncluster: small\nconnection: ssh\nstorage: {external: 'nas:"
    text += f"{export}'}}\nnodes:\n"
    return read(text + "\n".join(nodes), on=machine())


def mounted(cluster: Cluster) -> Cluster:
    """Somebody looked everywhere: what was waiting is mounted, as its line says."""
    made = {}
    for name, facts in cluster.items():
        (line,) = (line for line in facts.fstab if "nfs4" in line)
        now = MountFact("nas:/volume1", "nfs4", "0:50", read_only="nfs4 ro," in line)
        made[name] = replace(facts, mounts={**facts.mounts, "/mnt/pscluster": now})
    return made


def test_a_coordinator_that_moved_may_write_to_the_nas_and_the_former_one_may_not() -> None:
    before = wish_for(with_nas("pi-0"))
    cluster, _ = converged(before, {})
    cluster = mounted(cluster)
    assert all_changes(plan(before, cluster)) == []
    wish = wish_for(with_nas("pi-1"))
    cluster, plans = converged(wish, cluster)
    changed = {name: [change.subject for change in changes] for name, changes in plans["mounts"].items()}
    assert changed == {"pi-0": ["/etc/fstab", "/mnt/pscluster"], "pi-1": ["/etc/fstab", "/mnt/pscluster"], "pi-2": []}
    assert all_changes(plan(wish, mounted(cluster))) == []


@pytest.mark.parametrize("inventory", [thesis(), with_nas("pi-1"), with_nas("pi-1", "/mnt/pscluster")])
def test_only_who_publishes_is_asked_what_is_published(inventory: Inventory) -> None:
    wish = wish_for(inventory)
    asked = {name: wish.questions(name).published for name in inventory.hosts}
    assert {name for name, folders in asked.items() if folders} == {wish.publisher}
    for name in set(asked) - {wish.publisher}:
        assert wish.folders.mount not in fact_script(wish.questions(name))


def test_a_nas_that_is_gone_is_a_finding_of_the_node_that_writes_to_it() -> None:
    inventory = with_nas("pi-1")
    wish = NodeWish(inventory, "pi-1", estimate(32), ENVIRONMENT)
    assert [one.topic for one in examine(wish, untouched("10.1.0.2")) if one.level == "problem"] == []
    (problem,) = [one for one in examine(wish, untouched("10.1.0.2", shared_answers=False)) if one.level == "problem"]
    assert problem.topic == "storage"
    assert f"/mnt/pscluster/shared (nas:/volume1) does not answer within {PUBLISHED_SECONDS} s" in problem.line


def ask(script: str, before: str = "") -> MachineFacts:
    done = subprocess.run(["sh", "-s"], input=(before + script).encode(), capture_output=True, check=False, timeout=60)
    return read_facts(done.stdout.decode(errors="replace"), 0.0, 0.0)


def test_a_shared_folder_that_does_not_answer_holds_up_nothing_else(tmp_path: Path) -> None:
    silent = tmp_path / "silent"
    os.mkfifo(silent)
    (tmp_path / "wheels" / "a").mkdir(parents=True)
    (tmp_path / "wheels" / "a" / ".complete").touch()
    asked = Questions((), ("none.service",), (), 890, (f"{tmp_path}/wheels",), ("/",))
    facts = ask(fact_script(asked))
    assert (facts.shared_answers, facts.published) == (True, (f"{tmp_path}/wheels/a",))
    held = fact_script(asked).replace(f"timeout -s KILL {PUBLISHED_SECONDS}", "timeout -s KILL 0.2")
    facts = ask(held.replace("for folder; do", f"cat {silent}; for folder; do"))
    assert (facts.shared_answers, facts.published) == (False, ())


def test_what_the_kernel_says_of_a_bind_mount(tmp_path: Path) -> None:
    needs.mount_namespace()
    for name in ("disk", "moved", "by link", "bound", "bound-disk"):
        (tmp_path / name).mkdir()
    (tmp_path / "moved" / "shared").mkdir()
    (tmp_path / "link").symlink_to("moved")
    bound = (f"{tmp_path}/link/shared", f"{tmp_path}/disk/shared")
    script = fact_script(Questions((), ("none.service",), (), 890, (), ("/",), bound=bound))
    mounts = f"""set -e; cd {tmp_path}; mount -t tmpfs none disk; mkdir disk/shared
mount --bind link/shared bound; mount --bind disk/shared bound-disk; mount -o remount,bind,ro bound-disk
mount -t tmpfs none 'by link'; set +e
"""
    done = subprocess.run(
        ["unshare", "--mount", "sh", "-s"],
        input=(mounts + script).encode(),
        capture_output=True,
        check=True,
        timeout=60,
    )
    facts = read_facts(done.stdout.decode(), 0.0, 0.0)
    for source, point in (("link/shared", "bound"), ("disk/shared", "bound-disk")):
        mount = facts.mounts[f"{tmp_path}/{point}"]
        assert (mount.device, mount.root) == facts.place(f"{tmp_path}/{source}")
        assert Mounted(f"{tmp_path}/{point}", f"{tmp_path}/{source}", automount=False).changes(facts) == ()
    assert facts.mounts[f"{tmp_path}/bound-disk"].read_only
    assert facts.mounts[f"{tmp_path}/by link"].kind == "tmpfs"
    assert Mounted(f"{tmp_path}/bound", f"{tmp_path}/disk/shared", automount=False).changes(facts) != ()
