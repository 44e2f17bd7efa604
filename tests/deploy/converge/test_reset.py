"""What `reset` leaves on a node, with its script run in a folder that stands for the node."""

from pathlib import Path

import pytest

from deploy.converge.files import FSTAB_BEGIN, FSTAB_END
from deploy.converge.reset import Traces, reset_script
from tests.deploy.converge.pi import thesis
from tests.deploy.converge.played_node import PlayedNode

OURS = "192.168.1.26:/srv/pscluster/shared /mnt/pscluster/shared nfs4 ro 0 0"
THEIRS = "/dev/sda1 /data ext4 defaults 0 2"


@pytest.fixture
def node(tmp_path: Path) -> PlayedNode:
    return PlayedNode(tmp_path / "node")


def script(name: str = "rpi01", data: bool = False) -> str:
    return reset_script(Traces.of(thesis(), data), name)


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        ((THEIRS, FSTAB_BEGIN, OURS, FSTAB_END, "proc"), (THEIRS, "proc"), False),
        ((FSTAB_BEGIN, OURS, THEIRS), (OURS, THEIRS), True),  # somebody removed the second mark
        ((FSTAB_END, FSTAB_BEGIN, OURS, THEIRS), (FSTAB_END, OURS, THEIRS), True),
        ((FSTAB_BEGIN, THEIRS, FSTAB_BEGIN, OURS, FSTAB_END), (THEIRS,), False),
        ((THEIRS,), (THEIRS,), False),
    ],
)
def test_fstab_loses_our_lines_alone(
    node: PlayedNode, before: tuple[str, ...], after: tuple[str, ...], said: bool
) -> None:
    fstab = node.write("/etc/fstab", "".join(f"{line}\n" for line in before))
    done = node.run(script())
    assert done.returncode == 0, done.stderr
    assert tuple(fstab.read_text().splitlines()) == after
    assert ("what came after the first stays" in done.stdout) == said
    assert sorted(path.name for path in (node.root / "etc").iterdir()) == ["fstab", "systemd"]


ADDED = {"nfs-common": "libnfs, keyutils", "libnfs": "", "keyutils": "", "nftables": "libnft", "libnft": ""}


def remembered(node: PlayedNode) -> Path:
    return node.write("/var/lib/pscluster-deploy/packages", "".join(f"{name}\n" for name in ADDED))


def test_packages_that_were_added_go_and_nothing_is_remembered(node: PlayedNode) -> None:
    list_of_ours = remembered(node)
    node.packages({**ADDED, "base-files": ""})
    done = node.run(script())
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.strip() == f"reset; packages removed: {' '.join(sorted(ADDED))}"
    assert node.installed() == {"base-files"}
    assert not list_of_ours.parent.exists()
    assert sum("purge" in line for line in node.done) == 2  # the look ahead, and the work


def test_what_a_package_of_somebody_else_s_needs_stays_with_it(node: PlayedNode) -> None:
    list_of_ours = remembered(node)
    node.packages({**ADDED, "autofs": "nfs-common", "base-files": ""})
    done = node.run(script())
    assert (done.returncode, done.stderr) == (0, "")
    assert node.installed() == {"autofs", "base-files", "nfs-common", "libnfs", "keyutils"}
    assert "packages removed: libnft nftables;" in done.stdout
    assert "nfs-common stays, autofs would go with it" in done.stdout
    assert not list_of_ours.parent.exists()  # they are somebody else's now


def test_one_of_two_that_somebody_else_s_package_can_do_with_is_enough(node: PlayedNode) -> None:
    node.packages({**ADDED, "viewer": "libnft | keyutils"})
    remembered(node)
    done = node.run(script())
    assert done.returncode == 0, done.stderr
    assert node.installed() in ({"viewer", "libnft"}, {"viewer", "keyutils"})


def test_a_reset_whose_packages_could_not_be_removed_is_finished_by_the_next(node: PlayedNode) -> None:
    list_of_ours = remembered(node)
    broken = node.write("/broken", "")
    failing = f'case "$*" in *-s*) ;; *) [ ! -e {broken} ] || {{ echo "E: no lock" >&2; exit 100; }} ;; esac'
    node.packages(ADDED, before_apt=failing)
    done = node.run(script())
    assert done.returncode == 1
    assert "packages stay" in done.stderr
    assert "E: no lock; reset it again" in done.stderr
    assert list_of_ours.exists()
    broken.unlink()
    done = node.run(script())
    assert (done.returncode, done.stderr) == (0, "")
    assert node.installed() == set()
    assert not list_of_ours.parent.exists()


def test_a_package_that_somebody_removed_meanwhile_is_not_missed(node: PlayedNode) -> None:
    list_of_ours = remembered(node)
    list_of_ours.write_text("gone\n")
    node.packages({"base-files": ""})
    done = node.run(script())
    assert (done.returncode, done.stdout.strip()) == (0, "reset")
