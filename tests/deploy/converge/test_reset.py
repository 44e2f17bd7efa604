"""What `reset` leaves on a node, with its script run in a folder that stands for the node."""

from pathlib import Path
from typing import Any

from deploy.converge.debian import FSTAB_BEGIN, FSTAB_END
from deploy.converge.subjects import reset_script
from tests.deploy.converge.pi import thesis
from tests.deploy.converge.played_node import PlayedNode
from tests.deploy.converge.tables import rows

LINES = {
    "ours": "192.168.1.26:/srv/pscluster/shared /mnt/pscluster/shared nfs4 ro 0 0",
    "theirs": "/dev/sda1 /data ext4 defaults 0 2",
    "B": FSTAB_BEGIN,
    "E": FSTAB_END,
}
ADDED = {
    "nfs-common": "libnfs, keyutils",
    "libnfs": "",
    "keyutils": "",
    "nftables": "libnft",
    "libnft": "",
}
RESET = reset_script(thesis(), "rpi01", data=False)


@rows("fstab_of_reset")
def test_fstab_loses_our_lines_alone(node: PlayedNode, row: Any) -> None:
    before, after = (
        "".join(f"{LINES.get(word, word)}\n" for word in row[when]) for when in ("before", "after")
    )
    fstab = node.write("/etc/fstab", before)
    done = node.run(RESET)
    assert done.returncode == 0, done.stderr
    assert fstab.read_text() == after
    assert ("what came after the first stays" in done.stdout) == row.get("said", False)
    assert sorted(path.name for path in node.at("etc").iterdir()) == ["fstab", "systemd"]


def added(node: PlayedNode, *others: tuple[str, str], before_apt: str = "") -> Path:
    """A node with our packages and others; the list of ours."""
    node.packages({**ADDED, **dict(others)}, before_apt)
    return node.write("/var/lib/pscluster-deploy/packages", "".join(f"{one}\n" for one in ADDED))


def test_packages_that_were_added_go_and_nothing_is_remembered(node: PlayedNode) -> None:
    ours = added(node, ("base-files", ""))
    assert node.does(RESET).strip() == f"reset; packages removed: {' '.join(sorted(ADDED))}"
    assert node.installed() == {"base-files"}
    assert not ours.parent.exists()
    assert sum("purge" in line for line in node.done) == 2  # the look ahead, and the work


def test_what_a_package_of_somebody_else_s_needs_stays_with_it(node: PlayedNode) -> None:
    ours = added(node, ("autofs", "nfs-common"), ("base-files", ""))
    said = node.does(RESET)
    assert node.installed() == {"autofs", "base-files", "nfs-common", "libnfs", "keyutils"}
    assert "packages removed: libnft nftables;" in said
    assert "nfs-common stays, autofs would go with it" in said
    assert not ours.parent.exists()  # they are somebody else's now


def test_one_of_two_that_somebody_else_s_package_can_do_with_is_enough(node: PlayedNode) -> None:
    added(node, ("viewer", "libnft | keyutils"))
    assert node.run(RESET).returncode == 0
    assert node.installed() in ({"viewer", "libnft"}, {"viewer", "keyutils"})


def test_a_reset_whose_packages_could_not_be_removed_is_finished_by_the_next(
    node: PlayedNode,
) -> None:
    broken = node.write("/broken", "")
    locked = f'[ ! -e {broken} ] || {{ echo "E: no lock" >&2; exit 100; }}'
    ours = added(node, before_apt=f'case "$*" in *-s*) ;; *) {locked} ;; esac')
    done = node.run(RESET)
    assert done.returncode == 1
    assert "packages stay" in done.stderr
    assert "E: no lock; reset it again" in done.stderr
    assert ours.exists()
    broken.unlink()
    node.does(RESET)
    assert node.installed() == set()
    assert not ours.parent.exists()


def test_a_package_that_somebody_removed_meanwhile_is_not_missed(node: PlayedNode) -> None:
    added(node).write_text("gone\n")
    node.packages({"base-files": ""})
    done = node.run(RESET)
    assert (done.returncode, done.stdout.strip()) == (0, "reset")
