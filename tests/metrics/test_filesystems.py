"""Room on file systems, and NFS servers that answer, fail, or never do."""

import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from cluster.metrics.filesystems import FilesystemCollector, Probe, is_remote, type_of
from cluster.metrics.instruments import Identity

SHARED = "/mnt/pscluster/shared"
LOCAL = "22 1 179:2 / / rw,noatime shared:1 - ext4 /dev/mmcblk0p2 rw\n"
AUTOMOUNT = "40 22 0:35 / /mnt/pscluster/shared rw,relatime shared:20 - autofs systemd-1 rw,fd=51\n"
NFS = "61 40 0:51 / /mnt/pscluster/shared ro,nosuid,nodev shared:33 - nfs4 192.168.1.26:/srv/pscluster/shared rw\n"
ODD = "62 22 0:52 / /mnt/with\\040space rw - nfs4 nas:/a rw\n"
HANG_SECONDS = 30.0


@pytest.fixture
def gate() -> Iterator[threading.Event]:
    """A server that hangs until the test is over."""
    event = threading.Event()
    yield event
    event.set()


def mountinfo(folder: Path, text: str) -> Path:
    path = folder / "mountinfo"
    path.write_text(text)
    return path


def samples(collector: FilesystemCollector) -> dict[tuple[str, str], float]:
    return {
        (sample.name.removeprefix("pscluster_node_"), sample.labels["mount"]): sample.value
        for family in collector.collect()
        for sample in family.samples
    }


def test_the_type_is_that_of_the_deepest_mount_on_top() -> None:
    assert type_of(SHARED, LOCAL) == "ext4"
    assert type_of(SHARED, LOCAL + AUTOMOUNT) == "autofs"
    assert type_of(f"{SHARED}/prepared", LOCAL + AUTOMOUNT + NFS) == "nfs4"
    assert type_of("/mnt/pscluster/shared-not", LOCAL + AUTOMOUNT + NFS) == "ext4"
    assert type_of("/mnt/with space", LOCAL + ODD) == "nfs4"
    assert type_of("/", "") is None
    assert [is_remote(kind) for kind in ("nfs", "nfs4", "autofs", "ext4", None)] == [True, True, True, False, False]


def test_this_machine_s_root_and_no_shared_folder() -> None:
    found = samples(FilesystemCollector(Identity("ps", 0), None))
    assert set(found) == {("filesystem_size_bytes", "root"), ("filesystem_available_bytes", "root")}
    assert 0 < found["filesystem_available_bytes", "root"] <= found["filesystem_size_bytes", "root"]


def test_a_server_that_answers_is_up(tmp_path: Path) -> None:
    mounts = mountinfo(tmp_path, LOCAL + NFS)
    found = samples(FilesystemCollector(Identity("ps", 0), SHARED, mounts, ask=lambda _: os.statvfs("/")))
    assert found["nfs_up", "shared"] == 1
    assert found["nfs_probe_seconds", "shared"] < HANG_SECONDS
    assert found["filesystem_size_bytes", "shared"] > 0


def test_the_storage_server_s_own_disk_is_no_nfs(tmp_path: Path) -> None:
    mounts = mountinfo(tmp_path, LOCAL)
    found = samples(FilesystemCollector(Identity("ps", 0), SHARED, mounts, ask=lambda _: os.statvfs("/")))
    assert ("nfs_up", "shared") not in found
    assert ("filesystem_size_bytes", "shared") in found


def test_a_server_that_refuses_is_down(tmp_path: Path) -> None:
    def ask(folder: str) -> os.statvfs_result:
        if folder == SHARED:
            raise OSError("Stale file handle")
        return os.statvfs(folder)

    found = samples(FilesystemCollector(Identity("ps", 0), SHARED, mountinfo(tmp_path, LOCAL + NFS), ask))
    assert found["nfs_up", "shared"] == 0
    assert ("filesystem_size_bytes", "shared") not in found
    assert ("filesystem_size_bytes", "root") in found


def test_a_server_that_hangs_is_down_and_no_second_question_is_asked(tmp_path: Path, gate: threading.Event) -> None:
    asked = []

    def ask(folder: str) -> os.statvfs_result:
        if folder == SHARED:
            asked.append(folder)
            gate.wait(HANG_SECONDS)
        return os.statvfs("/")

    mounts = mountinfo(tmp_path, LOCAL + NFS)
    collector = FilesystemCollector(Identity("ps", 0), SHARED, mounts, ask, 0.01, patience_seconds=0.05)
    assert ("nfs_up", "shared") not in samples(collector), "too early to say"
    end = time.monotonic() + HANG_SECONDS
    while ("nfs_up", "shared") not in (first := samples(collector)):
        assert time.monotonic() < end
    assert first["nfs_up", "shared"] == 0
    assert first["nfs_probe_seconds", "shared"] >= 0.05
    second = samples(collector)
    assert second["nfs_up", "shared"] == 0
    assert second["nfs_probe_seconds", "shared"] > first["nfs_probe_seconds", "shared"]
    assert asked == [SHARED]
    gate.set()
    end = time.monotonic() + HANG_SECONDS
    while samples(collector)["nfs_up", "shared"] == 0:
        assert time.monotonic() < end


def test_a_slow_server_is_slow_and_not_down(tmp_path: Path) -> None:
    turn = threading.Semaphore(0)

    def ask(folder: str) -> os.statvfs_result:
        if folder == SHARED:
            assert turn.acquire(timeout=HANG_SECONDS)
        return os.statvfs("/")

    mounts = mountinfo(tmp_path, LOCAL + NFS)
    collector = FilesystemCollector(Identity("ps", 0), SHARED, mounts, ask, 0.01, HANG_SECONDS)
    assert ("nfs_up", "shared") not in samples(collector)
    turn.release()
    end = time.monotonic() + HANG_SECONDS
    while ("nfs_up", "shared") not in (seen := samples(collector)):
        assert time.monotonic() < end
    slowest = seen["nfs_probe_seconds", "shared"]
    assert slowest >= 0.01
    for _ in range(3):  # the next question is open now: what was answered before is told again
        seen = samples(collector)
        assert seen["nfs_up", "shared"] == 1
        assert ("filesystem_available_bytes", "shared") in seen
        assert seen["nfs_probe_seconds", "shared"] >= slowest
    turn.release()


def test_all_who_ask_while_a_question_hangs_are_told_at_once(gate: threading.Event) -> None:
    probe = Probe(lambda: gate.wait(HANG_SECONDS), deadline_seconds=0.01, patience_seconds=0.02)
    assert probe().value is None
    assert probe().value is None
    assert sum(thread.name == "probe" and thread.is_alive() for thread in threading.enumerate()) == 1
