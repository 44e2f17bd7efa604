"""Windows come to the node's own disk whole or not at all, with the script run in a folder that stands for the node."""

import hashlib
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from deploy.converge.change import PublishedFile
from deploy.converge.code import copy_data
from deploy.converge.publication import Publication
from deploy.release.script import Refusal
from tests.deploy.converge.played_node import PlayedNode

KEY = "0123456789abcdef"
SEEN = f"/mnt/pscluster/shared/prepared/{KEY}"


WINDOWS = b"windows"
PUBLISHED = Publication(
    "prepared", KEY, (PublishedFile("windows.npy", Path("windows.npy"), hashlib.sha256(WINDOWS).hexdigest(), 7),)
)


@pytest.fixture
def node(tmp_path: Path) -> PlayedNode:
    node = PlayedNode(tmp_path / "node")
    node.write(f"{SEEN}/windows.npy", "windows")
    node.write(f"{SEEN}/.complete", "")
    node.command("sync", f'echo "sync $* in $PWD" >>{node.root}/done; exec /bin/sync "$@"')
    node.command("mv", f'echo "mv $*" >>{node.root}/done; exec /bin/mv "$@"')
    return node


def test_what_is_copied_is_on_the_disk_before_it_has_its_name(node: PlayedNode) -> None:
    done = node.run(copy_data(PUBLISHED, SEEN))
    assert (done.returncode, done.stderr) == (0, "")
    folder = node.root / "opt/pscluster/prepared"
    assert sorted(path.name for path in folder.iterdir()) == [KEY]
    assert (folder / KEY / "windows.npy").read_text() == "windows"
    assert (folder / KEY / ".complete").exists()
    assert node.done == [f"sync -f . in {folder}/.partial-{KEY}", f"mv -T {folder}/.partial-{KEY} {folder}/{KEY}"]


def damaged(windows: Path) -> None:
    windows.write_text("wind0ws")


def longer(windows: Path) -> None:
    with windows.open("ab") as stream:
        stream.write(b"x")


def linked(windows: Path) -> None:
    windows.rename(windows.with_name("elsewhere"))
    windows.symlink_to(windows.with_name("elsewhere"))


def waiting(windows: Path) -> None:
    windows.unlink()
    os.mkfifo(windows)


@pytest.mark.parametrize("swap", [damaged, longer, linked, waiting])
def test_what_is_not_the_published_file_is_refused(node: PlayedNode, swap: Callable[[Path], None]) -> None:
    """Also with sums of its own beside it: the server's are not asked for."""
    swap(node.root / SEEN.lstrip("/") / "windows.npy")
    node.write(f"{SEEN}/SHA256SUMS", f"{hashlib.sha256(b'wind0ws').hexdigest()}  windows.npy\n")
    done = node.run(copy_data(PUBLISHED, SEEN))
    assert done.returncode == Refusal.HASH_MISMATCH, done.stderr
    assert "publish it again" in done.stderr
    assert not (node.root / "opt/pscluster/prepared" / KEY).exists()


def test_what_lies_beside_it_does_not_come_to_the_node(node: PlayedNode) -> None:
    os.mkfifo(node.root / SEEN.lstrip("/") / "device")
    assert node.run(copy_data(PUBLISHED, SEEN)).returncode == 0
    there = (node.root / "opt/pscluster/prepared" / KEY).iterdir()
    assert sorted(path.name for path in there) == [".complete", "windows.npy"]
