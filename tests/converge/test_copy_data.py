"""Windows come to the node's own disk whole or not at all, with the script run in a folder that stands for the node."""

import hashlib
from pathlib import Path

import pytest

from deploy.converge.code import copy_data
from tests.converge.played_node import PlayedNode

KEY = "0123456789abcdef"
SEEN = f"/mnt/pscluster/shared/prepared/{KEY}"


@pytest.fixture
def node(tmp_path: Path) -> PlayedNode:
    node = PlayedNode(tmp_path / "node")
    node.write(f"{SEEN}/windows.npy", "windows")
    node.write(f"{SEEN}/SHA256SUMS", f"{hashlib.sha256(b'windows').hexdigest()}  windows.npy\n")
    node.write(f"{SEEN}/.complete", "")
    node.command("sync", f'echo "sync $* in $PWD" >>{node.root}/done; exec /bin/sync "$@"')
    node.command("mv", f'echo "mv $*" >>{node.root}/done; exec /bin/mv "$@"')
    return node


def test_what_is_copied_is_on_the_disk_before_it_has_its_name(node: PlayedNode) -> None:
    done = node.run(copy_data(KEY, SEEN))
    assert (done.returncode, done.stderr) == (0, "")
    folder = node.root / "opt/pscluster/prepared"
    assert sorted(path.name for path in folder.iterdir()) == [KEY]
    assert (folder / KEY / "windows.npy").read_text() == "windows"
    assert (folder / KEY / ".complete").exists()
    assert node.done == [f"sync -f . in {folder}/.partial-{KEY}", f"mv -T {folder}/.partial-{KEY} {folder}/{KEY}"]


def test_damaged_windows_are_refused(node: PlayedNode) -> None:
    node.write(f"{SEEN}/windows.npy", "wind0ws")
    assert node.run(copy_data(KEY, SEEN)).returncode != 0
    assert not (node.root / "opt/pscluster/prepared" / KEY).exists()
