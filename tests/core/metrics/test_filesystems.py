"""Room on file systems, and NFS servers that answer, fail, or never do."""

import os
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from core.metrics.node import Filesystems, is_remote, type_of
from tests.hang import HANG_SECONDS

SHARED = "/mnt/pscluster/shared"
LOCAL = "22 1 179:2 / / rw,noatime shared:1 - ext4 /dev/mmcblk0p2 rw\n"
AUTOMOUNT = "40 22 0:35 / /mnt/pscluster/shared rw,relatime shared:20 - autofs systemd-1 rw,fd=51\n"
NFS = (
    "61 40 0:51 / /mnt/pscluster/shared ro,nosuid,nodev shared:33 - nfs4"
    " 192.168.1.26:/srv/pscluster/shared rw\n"
)
ODD = "62 22 0:52 / /mnt/with\\040space rw - nfs4 nas:/a rw\n"
UP, SECONDS = ("nfs_up", "shared"), ("nfs_probe_seconds", "shared")
SIZE = ("filesystem_size_bytes", "shared")


@pytest.fixture
def gate() -> Iterator[threading.Event]:
    """A server that hangs until the test is over."""
    event = threading.Event()
    yield event
    event.set()


def statvfs(folder: str) -> os.statvfs_result:
    return os.statvfs("/")


def collector(
    folder: Path,
    ask: Callable[[str], os.statvfs_result] = statvfs,
    mounts: str = LOCAL + NFS,
    **waits: float,
) -> Filesystems:
    """A collector of a node with these mounts, whose shared folder is asked like that."""
    path = folder / "mountinfo"
    path.write_text(mounts)

    def asked(place: str) -> os.statvfs_result:
        return (ask if place == SHARED else statvfs)(place)

    return Filesystems(SHARED, path, asked, **waits)


def samples(filesystems: Filesystems) -> dict[tuple[str, str], float]:
    return {
        (short.removeprefix("node_"), str(labels[0])): value
        for short, value, labels, _ in filesystems.read()
    }


def until(collector: Filesystems, up: float) -> dict[tuple[str, str], float]:
    """What is told once the server is said to be up, 1.0, or down."""
    end = time.monotonic() + HANG_SECONDS
    while (found := samples(collector)).get(UP) != up:
        assert time.monotonic() < end
    return found


def test_the_type_is_that_of_the_deepest_mount_on_top() -> None:
    assert type_of(SHARED, LOCAL) == "ext4"
    assert type_of(SHARED, LOCAL + AUTOMOUNT) == "autofs"
    assert type_of(f"{SHARED}/prepared", LOCAL + AUTOMOUNT + NFS) == "nfs4"
    assert type_of("/mnt/pscluster/shared-not", LOCAL + AUTOMOUNT + NFS) == "ext4"
    assert type_of("/mnt/with space", LOCAL + ODD) == "nfs4"
    assert type_of("/", "") is None
    remote = {kind for kind in ("nfs", "nfs4", "autofs", "ext4", None) if is_remote(kind)}
    assert remote == {"nfs", "nfs4", "autofs"}


def test_this_machine_s_root_and_no_shared_folder() -> None:
    found = samples(Filesystems(None))
    assert set(found) == {("filesystem_size_bytes", "root"), ("filesystem_available_bytes", "root")}
    assert 0 < found["filesystem_available_bytes", "root"] <= found["filesystem_size_bytes", "root"]


def test_a_server_that_answers_is_up(tmp_path: Path) -> None:
    found = samples(collector(tmp_path))
    assert found[UP] == 1
    assert found[SECONDS] < HANG_SECONDS
    assert found[SIZE] > 0


def test_the_storage_server_s_own_disk_is_no_nfs(tmp_path: Path) -> None:
    found = samples(collector(tmp_path, mounts=LOCAL))
    assert UP not in found
    assert SIZE in found


def test_a_server_that_refuses_is_down(tmp_path: Path) -> None:
    def ask(folder: str) -> os.statvfs_result:
        raise OSError("Stale file handle")

    found = samples(collector(tmp_path, ask))
    assert found[UP] == 0
    assert SIZE not in found
    assert ("filesystem_size_bytes", "root") in found


def test_a_server_that_hangs_is_down_and_no_second_question_is_asked(
    tmp_path: Path, gate: threading.Event
) -> None:
    asked = []

    def ask(folder: str) -> os.statvfs_result:
        asked.append(folder)
        gate.wait(HANG_SECONDS)
        return statvfs(folder)

    hung = collector(tmp_path, ask, deadline_seconds=0.01, patience_seconds=0.05)
    assert UP not in samples(hung), "too early to say"
    first = until(hung, 0.0)
    second = samples(hung)
    assert second[UP] == 0
    assert second[SECONDS] > first[SECONDS] >= 0.05
    assert asked == [SHARED]
    gate.set()
    until(hung, 1.0)


def test_a_slow_server_is_slow_and_not_down(tmp_path: Path) -> None:
    turn = threading.Semaphore(0)

    def ask(folder: str) -> os.statvfs_result:
        assert turn.acquire(timeout=HANG_SECONDS)
        return statvfs(folder)

    slow = collector(tmp_path, ask, deadline_seconds=0.01, patience_seconds=HANG_SECONDS)
    assert UP not in samples(slow)
    turn.release()
    slowest = until(slow, 1.0)[SECONDS]
    assert slowest >= 0.01
    for _ in range(3):  # the next question is open now: what was answered before is told again
        seen = samples(slow)
        assert seen[UP] == 1
        assert ("filesystem_available_bytes", "shared") in seen
        assert seen[SECONDS] >= slowest
    turn.release()
