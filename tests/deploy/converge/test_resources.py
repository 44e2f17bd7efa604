"""Resources whose changes are scripts of some size: the scripts on real files, and the texts they are told by."""

import subprocess
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cluster.inventory import Inventory
from deploy.cluster.places import shared_folders
from deploy.converge.accounts import ServiceUser
from deploy.converge.change import Resource, Shell, Upload
from deploy.converge.firewall import Firewall
from deploy.converge.machine_facts import FileFact
from deploy.converge.packages import Packages
from deploy.converge.resources import (
    FSTAB_BEGIN,
    FSTAB_END,
    Absent,
    Exports,
    Folder,
    FstabLines,
    Mounted,
    NotedFolders,
    Running,
    own_fstab_lines,
)
from deploy.render import firewall, storage
from deploy.render.storage import fstab_lines
from tests.deploy.converge.pi import thesis, untouched

MOUNT = "192.168.1.26:/srv/pscluster/shared /mnt/pscluster/shared nfs4 ro,nofail 0 0"


@pytest.fixture
def inventory() -> Inventory:
    return thesis()


def only_script(resource: FstabLines, fstab: tuple[str, ...]) -> str:
    (change,) = resource.changes(untouched(fstab=fstab))
    (step,) = change.steps
    assert isinstance(step, Shell)
    return step.script


def written(folder: Path, resource: FstabLines, fstab: tuple[str, ...]) -> tuple[str, ...]:
    """What the real script makes of a file."""
    path = folder / "fstab"
    path.write_text("".join(f"{line}\n" for line in fstab))
    script = only_script(resource, fstab).replace("/etc/fstab", str(path))
    script = script.replace("systemctl daemon-reload", "true")
    subprocess.run(["sh", "-c", script], check=True, capture_output=True, timeout=20)
    assert path.stat().st_mode & 0o777 == 0o644
    assert sorted(one.name for one in folder.iterdir()) == ["fstab"]
    return tuple(path.read_text().splitlines())


LINE = st.sampled_from(["# a comment", "", "proc /proc proc 0 0", "UUID=1 /  ext4 noatime\\040x 0 1", "%s $HOME"])


@given(before=st.lists(LINE), after=st.lists(LINE), old=st.lists(LINE, max_size=2))
@settings(max_examples=12, deadline=None)
def test_fstab_keeps_the_lines_of_others(
    tmp_path_factory: pytest.TempPathFactory, before: list[str], after: list[str], old: list[str]
) -> None:
    fstab = (*before, FSTAB_BEGIN, "old one", *old, FSTAB_END, *after)
    wanted = FstabLines((MOUNT,))
    made = written(tmp_path_factory.mktemp("etc"), wanted, fstab)
    assert made == (*before, *after, FSTAB_BEGIN, MOUNT, FSTAB_END)
    assert wanted.changes(untouched(fstab=made)) == ()


def test_fstab_with_one_mark_loses_nothing(tmp_path: Path) -> None:
    fstab = ("proc", FSTAB_BEGIN, "ours", "/dev/sda1 /data ext4 defaults 0 2")
    made = written(tmp_path, FstabLines((MOUNT,)), fstab)
    assert made == ("proc", "ours", "/dev/sda1 /data ext4 defaults 0 2", FSTAB_BEGIN, MOUNT, FSTAB_END)
    assert FstabLines((MOUNT,)).changes(untouched(fstab=made)) == ()


def test_fstab_without_lines_of_ours_has_no_marks(tmp_path: Path) -> None:
    assert FstabLines(()).changes(untouched()) == ()
    assert written(tmp_path, FstabLines(()), ("proc", FSTAB_BEGIN, MOUNT, FSTAB_END)) == ("proc",)


def test_own_lines() -> None:
    assert own_fstab_lines(("a", FSTAB_BEGIN, "b", FSTAB_END, "c")) == (FSTAB_BEGIN, "b", FSTAB_END)
    assert own_fstab_lines(("a", FSTAB_BEGIN, "b")) == (FSTAB_BEGIN, "b")
    assert own_fstab_lines((FSTAB_END, "a")) == ()


def test_fstab_of_each_kind_of_node(inventory: Inventory) -> None:
    folders = shared_folders(inventory)
    worker, data = fstab_lines(inventory, "rpi01", folders)
    assert data.startswith("192.168.1.26:/srv/pscluster/data /mnt/pscluster/data nfs4 ro,hard,_netdev,nofail,")
    assert worker.startswith("192.168.1.26:/srv/pscluster/shared /mnt/pscluster/shared nfs4 ro,hard,_netdev,nofail,")
    assert "x-systemd.automount" in worker
    assert fstab_lines(inventory, "rpi11", folders) == (
        "/srv/pscluster/shared /mnt/pscluster/shared none bind,nofail 0 0",
        "/srv/pscluster/data /mnt/pscluster/data none bind,nofail 0 0",
        "/srv/pscluster/runs /mnt/pscluster/runs none bind,nofail 0 0",
    )


def test_exports_are_written_and_exported_but_the_server_is_never_restarted(inventory: Inventory) -> None:
    text = storage.exports(inventory, shared_folders(inventory))
    wanted = Exports(storage.EXPORTS_PATH, text)
    (change,) = wanted.changes(untouched())
    scripts = [step.script for step in change.steps if isinstance(step, Shell)]
    assert scripts[-1] == "exportfs -ra"
    assert not any("restart" in script for script in scripts)
    shared = tuple(
        f"{line.split()[0]} {client.partition('(')[0]}(sync,wdelay,hide,ro,sec=sys)"
        for line in text.splitlines()[1:]
        for client in line.split()[1:]
    )
    file = {storage.EXPORTS_PATH: FileFact("file", 0o644, "root", "root", text.encode())}
    assert wanted.changes(untouched(files=file, exports=shared)) == ()
    assert wanted.changes(untouched(files=file, exports=shared[1:])) != ()  # the running server lost one


def test_packages_that_are_there_are_not_asked_for() -> None:
    wanted = Packages(("nftables", "nfs-common"))
    assert wanted.changes(untouched(packages={"nftables": "1", "nfs-common": "1"})) == ()
    (change,) = wanted.changes(untouched(packages={"nftables": "1"}))
    assert change.subject == "nfs-common"


def test_the_account_is_made_once() -> None:
    assert ServiceUser(890).changes(untouched(users={"pscluster": (890, 890)})) == ()
    (change,) = ServiceUser(890).changes(untouched())
    (step,) = change.steps
    assert isinstance(step, Shell)
    assert "--shell /usr/sbin/nologin" in step.script


def test_folders_are_remembered_once_for_each_set_of_them() -> None:
    noted = NotedFolders(("/mnt", "/mnt/x"))
    (change,) = noted.changes(untouched())
    path = change.subject
    kept = {path: FileFact("file", 0o644, "root", "root", b"# /mnt /mnt/x\n/mnt/x\n")}
    assert noted.changes(untouched(files=kept)) == ()
    assert NotedFolders(("/mnt", "/mnt/y")).changes(untouched(files=kept)) != ()


def test_what_is_not_there_need_not_be_removed() -> None:
    assert Absent("/etc/x").changes(untouched()) == ()


def test_the_firewall_is_tried_from_a_new_connection_before_it_is_kept(inventory: Inventory) -> None:
    rules = firewall.ruleset(inventory)
    (change,) = Firewall(rules).changes(untouched())
    kinds = [type(step).__name__ for step in change.steps]
    assert kinds == ["Shell", "Upload", "Shell", "Reconnect", "Shell"]
    upload, load = change.steps[1], change.steps[2]
    assert isinstance(upload, Upload)
    assert isinstance(load, Shell)
    assert upload.path.endswith(".trial")
    assert load.script.index("systemd-run") < load.script.index("\nnft -f")
    kept = {firewall.PATH: FileFact("file", 0o644, "root", "root", rules.encode())}
    assert Firewall(rules).changes(untouched(files=kept, firewall=firewall.loaded_mark(rules))) == ()
    assert Firewall(rules).changes(untouched(files=kept, firewall="0" * 16)) != ()
    assert Firewall(rules).changes(untouched(files=kept, firewall=None)) != ()


QUIET = ("install", "mkdir", "rm", "systemctl", "systemd-escape", "umount", "mv", "journalctl", "chmod", "awk")


def test_a_value_is_a_word_of_its_script(tmp_path: Path) -> None:
    """The schema refuses such paths; the scripts would hold against them all the same."""
    trap = f"touch {tmp_path}/trapped"
    awkward = f"{tmp_path}/a 'b' \"c\" $({trap}) `{trap}`; {trap}"
    commands = tmp_path / "commands"
    commands.mkdir()
    for name in QUIET:
        (commands / name).symlink_to("/bin/true")
    (commands / "touch").symlink_to("/usr/bin/touch")
    facts = untouched(files={awkward: FileFact("file", 0o644, "root", "root")})
    resources: tuple[Resource, ...] = (
        Folder(f"{awkward}/x"),
        Absent(awkward),
        Mounted(awkward, awkward, automount=True),
        Running(awkward),
        FstabLines((f"x {awkward} nfs4 ro 0 0",)),
        NotedFolders((awkward,)),
    )
    for resource in resources:
        for step in [step for change in resource.changes(facts) for step in change.steps]:
            assert isinstance(step, Shell)
            script = step.script.replace("/etc/fstab", f"{tmp_path}/fstab").replace("/var/lib/", f"{tmp_path}/")
            done = subprocess.run(
                ["/bin/sh", "-c", script], capture_output=True, env={"PATH": str(commands)}, timeout=20, check=False
            )
            assert b"yntax error" not in done.stderr, script
    assert not (tmp_path / "trapped").exists()
    subprocess.run(["/bin/sh", "-c", trap], env={"PATH": str(commands)}, check=True)
    assert (tmp_path / "trapped").exists()
