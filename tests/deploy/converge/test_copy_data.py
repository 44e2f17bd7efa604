"""Windows come to the node's own disk whole or not at all; the script runs in a folder."""

import errno
import hashlib
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from deploy.converge.publication import Publication, copy_data
from deploy.converge.subject import PublishedFile
from deploy.release.scripts import Refusal
from deploy.rooted.files import Refused, copy_one
from tests.deploy.converge.played_node import PlayedNode

KEY = "0123456789abcdef"
SEEN = f"/mnt/pscluster/shared/prepared/{KEY}"
FOLDER = "/opt/pscluster/prepared"
FILE = PublishedFile("windows.npy", Path("windows.npy"), hashlib.sha256(b"windows").hexdigest(), 7)
COPY = copy_data(Publication("prepared", KEY, (FILE,)), SEEN)


@pytest.fixture
def windows(node: PlayedNode) -> Path:
    """The published file as the node sees it."""
    node.write(f"{SEEN}/.complete", "")
    return node.write(f"{SEEN}/windows.npy", "windows")


def test_what_is_copied_is_on_the_disk_before_it_has_its_name(
    node: PlayedNode, windows: Path
) -> None:
    node.command("sync", f'echo "sync $* in $PWD" >>{node.root}/done; exec /bin/sync "$@"')
    node.command("mv", f'echo "mv $*" >>{node.root}/done; exec /bin/mv "$@"')
    os.mkfifo(windows.with_name("device"))  # what lies beside it does not come to the node
    node.does(COPY)
    folder = node.at(FOLDER)
    assert [path.name for path in folder.iterdir()] == [KEY]
    there = {path.name: path.read_text() for path in (folder / KEY).iterdir()}
    assert there == {"windows.npy": "windows", ".complete": ""}
    assert node.done == [
        f"sync -f . in {folder}/.partial-{KEY}",
        f"mv -T {folder}/.partial-{KEY} {folder}/{KEY}",
    ]


def damaged(windows: Path) -> None:
    windows.write_text("wind0ws")


def longer(windows: Path) -> None:
    windows.write_text("windowsx")


def linked(windows: Path) -> None:
    windows.rename(windows.with_name("elsewhere"))
    windows.symlink_to(windows.with_name("elsewhere"))


def waiting(windows: Path) -> None:
    windows.unlink()
    os.mkfifo(windows)


@pytest.mark.parametrize("swap", [damaged, longer, linked, waiting])
def test_what_is_not_the_published_file_is_refused(
    node: PlayedNode, windows: Path, swap: Callable[[Path], None]
) -> None:
    """Also with sums of its own beside it: the server's are not asked for."""
    swap(windows)
    node.write(f"{SEEN}/SHA256SUMS", f"{hashlib.sha256(b'wind0ws').hexdigest()}  windows.npy\n")
    done = node.run(COPY)
    assert done.returncode == Refusal.HASH_MISMATCH, done.stderr
    assert "publish it again" in done.stderr
    assert not node.at(f"{FOLDER}/{KEY}").exists()


@pytest.mark.parametrize(
    "code", [errno.ENODEV, errno.ESTALE, errno.EIO, errno.ETIMEDOUT, errno.EHOSTUNREACH]
)
def test_a_server_that_does_not_answer_is_no_damaged_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    def fails(*_: object, **__: object) -> int:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(os, "open", fails)
    with pytest.raises(Refused) as caught:
        copy_one(str(tmp_path), -1, "windows.npy", "0" * 64, 7)
    said = str(caught.value)
    why = f"windows.npy cannot be read ({os.strerror(code)}): does this node reach the server"
    assert why in said
    assert "publish it again" not in said
