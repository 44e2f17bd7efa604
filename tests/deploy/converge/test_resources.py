"""Changes whose scripts are of some size: the scripts run on real files."""

import subprocess
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deploy.cluster.places import shared_folders
from deploy.converge.debian import FSTAB_BEGIN, FSTAB_END, keep_account, keep_fstab, keep_mounted
from deploy.converge.machine_facts import FileFact, MachineFacts
from deploy.converge.resources import RunningUnit, keep_absent, keep_folder
from deploy.converge.roles import keep_firewall
from deploy.converge.storage import export_again, keep_exports, keep_folders_noted
from deploy.converge.subject import Changes, Shell, Upload
from deploy.render import storage
from deploy.render.network import RULES_PATH, loaded_mark, ruleset
from tests.deploy.converge.examined import roots
from tests.deploy.converge.pi import thesis, untouched
from tests.deploy.converge.played_node import PlayedNode
from tests.hang import HANG_SECONDS

MOUNT = "192.168.1.26:/srv/pscluster/shared /mnt/pscluster/shared nfs4 ro,nofail 0 0"
Plan = Callable[[MachineFacts], Changes]
WANTED = partial(keep_fstab, lines=(MOUNT,))


def scripts(plan: Plan, facts: MachineFacts) -> list[str]:
    """Those of its one change, uploads and connections apart."""
    (change,) = plan(facts)
    return [step.script for step in change.steps if isinstance(step, Shell)]


def written(folder: Path, lines: Sequence[str], fstab: tuple[str, ...]) -> tuple[str, ...]:
    """What the real script makes of a file."""
    path = folder / "fstab"
    path.write_text("".join(f"{line}\n" for line in fstab))
    (script,) = scripts(partial(keep_fstab, lines=lines), untouched(fstab=fstab))
    script = script.replace("/etc/fstab", str(path)).replace("systemctl daemon-reload", "true")
    subprocess.run(["sh", "-c", script], check=True, capture_output=True, timeout=HANG_SECONDS)
    assert path.stat().st_mode & 0o777 == 0o644
    assert [one.name for one in folder.iterdir()] == ["fstab"]
    return tuple(path.read_text().splitlines())


LINE = st.sampled_from(
    ["# a comment", "", "proc /proc proc 0 0", "UUID=1 /  ext4 noatime\\040x 0 1", "%s $HOME"]
)


@given(before=st.lists(LINE), after=st.lists(LINE), old=st.lists(LINE, max_size=2))
@settings(max_examples=12, deadline=None)
def test_fstab_keeps_the_lines_of_others(
    tmp_path_factory: pytest.TempPathFactory, before: list[str], after: list[str], old: list[str]
) -> None:
    fstab = (*before, FSTAB_BEGIN, "old one", *old, FSTAB_END, *after)
    made = written(tmp_path_factory.mktemp("etc"), (MOUNT,), fstab)
    assert made == (*before, *after, FSTAB_BEGIN, MOUNT, FSTAB_END)
    assert [*WANTED(untouched(fstab=made))] == []


def test_fstab_with_one_mark_loses_nothing(tmp_path: Path) -> None:
    others = ("ours", "/dev/sda1 /data ext4 defaults 0 2")
    made = written(tmp_path, (MOUNT,), ("proc", FSTAB_BEGIN, *others))
    assert made == ("proc", *others, FSTAB_BEGIN, MOUNT, FSTAB_END)
    assert [*WANTED(untouched(fstab=made))] == []


def test_fstab_without_lines_of_ours_has_no_marks(tmp_path: Path) -> None:
    assert [*keep_fstab(untouched(), ())] == []
    assert written(tmp_path, (), ("proc", FSTAB_BEGIN, MOUNT, FSTAB_END)) == ("proc",)


def test_exports_are_written_and_exported_but_the_server_is_never_restarted() -> None:
    inventory = thesis()
    text = storage.exports(inventory, shared_folders(inventory))
    wanted = partial(keep_exports, path=storage.EXPORTS_PATH, text=text)
    *others, last = scripts(wanted, untouched())
    assert "exportfs -ra" in last
    assert not any("restart" in script for script in (*others, last))
    shared = tuple(
        f"{line.split()[0]} {client.partition('(')[0]}(sync,wdelay,hide,ro,sec=sys)"
        for line in text.splitlines()[1:]
        for client in line.split()[1:]
    )
    files = {storage.EXPORTS_PATH: roots(text)}
    assert [*wanted(untouched(files=files, exports=shared))] == []
    lost_one = untouched(files=files, exports=shared[1:])  # the running server
    assert [*wanted(lost_one)] != []


def test_the_account_is_made_once() -> None:
    wanted = partial(keep_account, name="pscluster", uid=890)
    assert [*wanted(untouched(users={"pscluster": (890, 890)}))] == []
    (script,) = scripts(wanted, untouched())
    assert "--shell /usr/sbin/nologin" in script
    powerful = untouched(users={"pscluster": (890, 890)}, powers={"pscluster": "/bin/bash"})
    assert "usermod --shell /usr/sbin/nologin" in scripts(wanted, powerful)[0]


def test_folders_are_remembered_once_for_each_set_of_them() -> None:
    (change,) = keep_folders_noted(untouched(), ("/mnt", "/mnt/x"))
    kept = untouched(files={change.subject: roots("# /mnt /mnt/x\n/mnt/x\n")})
    assert [*keep_folders_noted(kept, ("/mnt", "/mnt/x"))] == []
    assert [*keep_folders_noted(kept, ("/mnt", "/mnt/y"))] != []


@pytest.mark.parametrize(
    ("owner", "verb"), [("pscluster", "give"), ("pscluster-service", "folder")]
)
def test_what_another_account_had_is_given_over_whole(owner: str, verb: str) -> None:
    wanted = partial(keep_folder, path="/x", mode=0o700, owner="pscluster-service", whole=True)
    found = FileFact("folder", 0o750, owner, owner)
    (script,) = scripts(wanted, untouched(files={"/x": found}))
    assert script.endswith(f" {verb} /x 700 pscluster-service")


def test_what_is_not_there_need_not_be_removed() -> None:
    assert [*keep_absent(untouched(), "/etc/x")] == []


def test_the_firewall_is_tried_from_a_new_connection_before_it_is_kept() -> None:
    rules = ruleset(thesis(), "rpi11")
    (change,) = keep_firewall(untouched(), rules)
    kinds = [type(step).__name__ for step in change.steps]
    assert kinds == ["Shell", "Upload", "Shell", "Reconnect", "Shell"]
    _, upload, load, *_ = change.steps
    assert isinstance(upload, Upload)
    assert isinstance(load, Shell)
    assert upload.path.endswith(".trial")
    assert load.script.index("systemd-run") < load.script.index("\nnft -f")

    def left(loaded: str | None) -> int:
        kept = {RULES_PATH: roots(rules)}
        return len([*keep_firewall(untouched(files=kept, firewall=loaded), rules)])

    assert [left(mark) for mark in (loaded_mark(rules), "0" * 16, None)] == [0, 1, 1]


QUIET = (
    *("install", "mkdir", "rm", "systemctl", "systemd-escape", "umount", "mv", "journalctl"),
    *("chmod", "awk"),
)


def test_a_value_is_a_word_of_its_script(tmp_path: Path) -> None:
    """The schema refuses such paths; the scripts would hold against them all the same."""
    trap = f"touch {tmp_path}/trapped"
    awkward = f"{tmp_path}/a 'b' \"c\" $({trap}) `{trap}`; {trap}"
    commands = tmp_path / "commands"
    commands.mkdir()
    for name in QUIET:
        (commands / name).symlink_to("/bin/true")
    (commands / "touch").symlink_to("/usr/bin/touch")

    def run(script: str) -> bytes:
        words = ["/bin/sh", "-c", script]
        path = {"PATH": str(commands)}
        done = subprocess.run(
            words, capture_output=True, env=path, timeout=HANG_SECONDS, check=False
        )
        return done.stderr

    automount = ("x-systemd.automount",)
    plans: tuple[Plan, ...] = (
        partial(keep_folder, path=f"{awkward}/x"),
        partial(keep_absent, path=awkward),
        partial(keep_mounted, path=awkward, source=awkward, options=automount),
        RunningUnit(awkward).changes,
        partial(keep_fstab, lines=(f"x {awkward} nfs4 ro 0 0",)),
        partial(keep_folders_noted, folders=(awkward,)),
    )
    for plan in plans:
        for script in scripts(plan, untouched(files={awkward: roots("")})):
            here = script.replace("/etc/fstab", f"{tmp_path}/fstab")
            assert b"yntax error" not in run(here.replace("/var/lib/", f"{tmp_path}/")), script
    assert not (tmp_path / "trapped").exists()
    run(trap)
    assert (tmp_path / "trapped").exists()


STALE = "exportfs: Failed to stat /media/pi/OLD_USB: No such file or directory"


@pytest.mark.parametrize("exported", ["/shared  10.0.0.2(ro,sync)", ""])
def test_an_export_has_failed_when_it_is_not_exported_whatever_exportfs_says(
    node: PlayedNode, exported: str
) -> None:
    """Its exit code is also that of the owner's own entries."""
    folder = f"{node.root}/srv/pscluster"
    fails = f'{{ echo "{STALE}" >&2; exit 1; }}'
    node.command("exportfs", f'[ "$1" = -s ] && echo "{folder}{exported}" || {fails}')
    done = node.run(export_again([("/srv/pscluster/shared", "10.0.0.2")]))
    assert done.returncode == (not exported), done.stderr
    if not exported:
        assert done.stderr.splitlines() == [STALE, f"{folder}/shared 10.0.0.2 is not exported"]
