"""What `reset` leaves on a node, with its script run in a folder that stands for the node."""

from pathlib import Path

import pytest

from deploy.converge.files import FSTAB_BEGIN, FSTAB_END
from deploy.converge.reset import Traces, reset_script
from tests.converge.pi import thesis
from tests.converge.played_node import PlayedNode

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
