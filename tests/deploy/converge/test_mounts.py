"""A mount is right when it shows what the inventory wants, with the access it wants."""

import os
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from core.inventory import Inventory
from deploy.converge.debian import keep_mounted
from deploy.converge.deployment import plan
from deploy.converge.machine_facts import MachineFacts, MountFact, Questions
from deploy.converge.subject import Change, Changes, Shell
from deploy.converge.survey import PUBLISHED_SECONDS, fact_script, read_facts
from tests.core.inventory.cases import read
from tests.deploy.converge.examined import found, problem
from tests.deploy.converge.pi import PlayedPis, machines_for, thesis, untouched
from tests.deploy.converge.played_node import PlayedNode
from tests.deploy.converge.tables import rows
from tests.habits import needs
from tests.hang import HANG_SECONDS

LINE = "192.168.1.26:/srv /mnt/pscluster nfs4 ro,hard,x-systemd.automount 0 0"
BOUND = "/srv/pscluster /mnt/pscluster none bind,nofail 0 0"
LINES = {"nfs": LINE, "nfs for writing": LINE.replace("ro,", "rw,"), "bound": BOUND}
MOUNTS = {
    "card": MountFact("/dev/mmcblk0p2", "ext4", "179:2"),
    "waiting": MountFact("systemd-1", "autofs", "0:40"),
    "ours": MountFact("192.168.1.26:/srv", "nfs4", "0:50", read_only=True),
    "disk": MountFact("/dev/sda1", "ext4", "8:1"),
}


def mount(said: Any) -> MountFact:
    """A mount of `MOUNTS`, or one that is like it."""
    if isinstance(said, str):
        return MOUNTS[said]
    changes = {name: value for name, value in said.items() if name != "like"}
    return replace(MOUNTS[said["like"]], **changes)


def of_line(line: str, facts: MachineFacts) -> Changes:
    source, path, _, options, *_ = line.split()
    return keep_mounted(facts, path, source, options.split(","))


@rows("mounts")
def test_a_mount_is_left_alone_when_it_shows_the_right_thing(row: Any) -> None:
    there = {point: mount(said) for point, said in row["there"].items()}
    facts = untouched(mounts={"/": MOUNTS["card"], **there}, real_paths=row.get("links", {}))
    changes = of_line(LINES[row["fstab"]], facts)
    assert tuple(change.action for change in changes) == row.get("planned", ())


def test_what_was_mounted_is_taken_down_before_the_right_one_comes(node: PlayedNode) -> None:
    """It may lie there twice, and systemd sees its end a little later; its unit is not stopped."""
    mounts = {"/": MOUNTS["card"], "/mnt/pscluster": MOUNTS["waiting"]}
    (change,) = of_line(BOUND, untouched(mounts=mounts))
    (step,) = change.steps
    assert isinstance(step, Shell)
    point = f"{node.root}/mnt/pscluster"
    table = node.write("proc/mounts", f"systemd-1 {point} autofs\nnas {point} nfs4\n")
    seen = node.write("seen", "")
    node.command("umount", f'echo "umount $*" >>{node.root}/done; sed -i "\\$d" {table}')
    node.command("systemd-escape", 'echo "point.${2#--suffix=}"')
    forget = f'case "$*" in *is-active*) /bin/rm {seen} 2>/dev/null ;; esac'
    node.command("systemctl", f'echo "systemctl $*" >>{node.root}/done\n{forget}')
    node.command("sleep", "exit 0")
    assert node.run(step.script).returncode == 0
    assert [line for line in node.done if "is-active" not in line] == [
        "systemctl stop point.automount",
        *[f"umount -l {point}"] * 2,
        "systemctl reset-failed point.mount",
        "systemctl start point.mount",
    ]
    assert sum("is-active" in line for line in node.done) == 2


def with_nas(coordinator: str, export: str = "/volume1") -> Inventory:
    """Three nodes and an export of somebody else's."""
    nodes = ""
    for number, role in enumerate(("ps", "worker", "worker")):
        name = f"pi-{number}"
        if name == coordinator:
            role += ", coordinator"
        nodes += f"  - {{name: {name}, address: 10.1.0.{number + 1}, roles: [{role}]}}\n"
    head = f"schema: 1\ncluster: small\nconnection: ssh\nstorage: {{external: 'nas:{export}'}}\n"
    return read(f"{head}nodes:\n{nodes}")


def test_a_coordinator_that_moved_may_write_to_the_nas_and_the_former_one_may_not(
    tmp_path: Path,
) -> None:
    pis = PlayedPis(tmp_path)
    nodes = ("pi-0", "pi-1")
    # Of a deployment the mounts alone: the shared folder of the NAS is on no played machine.
    for coordinator, planned in (
        ("pi-0", ["/etc/fstab", "/mnt/pscluster"]),
        ("pi-1", ["/etc/fstab", "/mnt/pscluster"]),
        ("pi-1", []),
    ):
        machines = machines_for(with_nas(coordinator))
        plans = plan(machines, pis.facts(machines, *nodes))
        for name in nodes:
            assert [change.subject for change in plans["mounts"][name]] == planned
            pis.apply(name, plans["mounts"][name])
            if planned:  # and somebody looks there
                assert pis.machines[name].run(["mount", "/mnt/pscluster"]).ok
    one, other = (machines_for(with_nas(name)) for name in nodes)
    wanted = [*one.plan("mounts", "pi-2", untouched())]
    assert wanted == [*other.plan("mounts", "pi-2", untouched())]


@pytest.mark.parametrize(
    "inventory", [thesis(), with_nas("pi-1"), with_nas("pi-1", "/mnt/pscluster")]
)
def test_only_who_publishes_is_asked_what_is_published(inventory: Inventory) -> None:
    machines = machines_for(inventory)
    asked = {name: machines.questions(name) for name in inventory.hosts}
    assert [name for name, one in asked.items() if one.published] == [machines.publisher]
    for name in asked.keys() - {machines.publisher}:
        assert machines.folders.mount not in fact_script(asked[name])
        assert machines.nodes_to_ask((name,), ("mounts",)) == (name, machines.publisher)
        assert machines.nodes_to_ask((name,), ("monitor",)) == (name,)


def test_a_nas_that_is_gone_is_a_finding_of_the_node_that_writes_to_it() -> None:
    inventory = with_nas("pi-1")
    assert problem("pi-1", inventory) == ""
    line = found("pi-1", inventory, shared_answers=False)["storage"].line
    gone = f"/mnt/pscluster/shared (nas:/volume1) does not answer within {PUBLISHED_SECONDS} s"
    assert gone in line


def ask(script: str, *words: str) -> MachineFacts:
    done = subprocess.run(
        [*words, "sh", "-s"],
        input=script.encode(),
        capture_output=True,
        check=False,
        timeout=HANG_SECONDS,
    )
    return read_facts(done.stdout.decode(errors="replace"), 0.0, 0.0)


def test_a_shared_folder_that_does_not_answer_holds_up_nothing_else(tmp_path: Path) -> None:
    silent = tmp_path / "silent"
    os.mkfifo(silent)
    wheels = tmp_path / "wheels"
    (wheels / "a").mkdir(parents=True)
    (wheels / "a" / ".complete").touch()
    asked = Questions(units=("none.service",), published=(str(wheels),), space=("/",))
    facts = ask(fact_script(asked))
    assert (facts.shared_answers, facts.published) == (True, (f"{wheels}/a",))
    held = fact_script(asked).replace(f"timeout -s KILL {PUBLISHED_SECONDS}", "timeout -s KILL 0.2")
    facts = ask(held.replace("for folder; do", f"cat {silent}; for folder; do"))
    assert (facts.shared_answers, facts.published) == (False, ())


def test_what_the_kernel_says_of_a_bind_mount(tmp_path: Path) -> None:
    needs.mount_namespace()
    for name in ("disk", "moved/shared", "by link", "bound", "bound-disk"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "link").symlink_to("moved")
    sources = {"bound": f"{tmp_path}/link/shared", "bound-disk": f"{tmp_path}/disk/shared"}
    asked = Questions(units=("none.service",), space=("/",), bound=tuple(sources.values()))
    mounts = f"""set -e; cd {tmp_path}; mount -t tmpfs none disk; mkdir disk/shared
mount --bind link/shared bound; mount --bind disk/shared bound-disk
mount -o remount,bind,ro bound-disk
mount -t tmpfs none 'by link'; set +e
"""
    facts = ask(mounts + fact_script(asked), "unshare", "--mount")

    def changes(point: str, source: str) -> list[Change]:
        return [*keep_mounted(facts, f"{tmp_path}/{point}", source, ["bind"])]

    for point, source in sources.items():
        there = facts.mounts[f"{tmp_path}/{point}"]
        assert (there.device, there.root) == facts.place(source)
        assert changes(point, source) == []
    assert changes("bound", sources["bound-disk"]) != []
    assert facts.mounts[f"{tmp_path}/bound-disk"].read_only
    assert facts.mounts[f"{tmp_path}/by link"].kind == "tmpfs"
