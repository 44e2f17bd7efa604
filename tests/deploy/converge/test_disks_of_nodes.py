"""A disk that is missing, or too small, is found before a start."""

from typing import Any

import pytest

from deploy.cluster.places import ENVIRONMENTS
from deploy.converge.machine_facts import MountFact
from deploy.converge.memory_estimate import MEGABYTE
from deploy.converge.storage import NOTE
from tests.deploy.converge.examined import found, problem, roots
from tests.deploy.converge.played_machine import ENVIRONMENT
from tests.deploy.converge.tables import rows

SHARED = "/srv/pscluster"
USB = MountFact("/dev/sda1", "ext4", "8:1")
CARD = {"/": MountFact("/dev/mmcblk0p2", "ext4", "179:2")}


def marked(mark: str) -> dict[str, Any]:
    """The files of the server after its first start, with this mark in its shared folder."""
    files = {NOTE: roots(f"{SHARED} a-mark\n")}
    if mark:
        files[f"{SHARED}/.pscluster-storage"] = roots(f"{mark}\n")
    return files


@rows("missing_disks")
def test_a_shared_folder_whose_disk_is_missing_is_not_taken_for_an_empty_one(row: Any) -> None:
    facts: dict[str, Any] = {"fstab": row.get("fstab", ())}
    if "mark" in row:
        facts["files"] = marked(row["mark"])
    missing = found("rpi11", **facts)["storage"]
    assert missing.level == "problem"
    assert row["says"] in missing.line
    assert found(**facts) == {}  # another node's disk is its owner's business


@pytest.mark.parametrize("point", ["/opt", "/var", "/var/lib/pscluster"])
def test_a_disk_that_would_hold_our_folders_and_is_missing_is_not_replaced_by_the_card(
    point: str,
) -> None:
    fstab = (f"LABEL=usb {point} ext4 nofail 0 2",)
    assert f"{point} of /etc/fstab is not mounted" in found(fstab=fstab)["storage"].line
    assert found(fstab=fstab, mounts={point: USB}) == {}
    assert found(fstab=("LABEL=usb /media/films ext4 nofail 0 2",)) == {}


def test_the_shared_folder_of_the_first_start_is_fit() -> None:
    files = marked("a-mark")
    fstab = ("LABEL=usb /srv ext4 nofail 0 2",)
    assert found("rpi11", files=files) == {}
    assert found("rpi11", files=files, fstab=fstab, mounts={"/srv": USB}) == {}


def megabytes(environments: int, shared: int | None = None) -> dict[str, int]:
    """So many free on the two folders, or left by an attempt."""
    sizes = {ENVIRONMENTS: environments * MEGABYTE}
    if shared is not None:
        sizes[SHARED] = shared * MEGABYTE
    return sizes


def test_an_installed_environment_needs_no_room() -> None:
    little = megabytes(300)
    assert found(disk_free_bytes=little, environments=(ENVIRONMENT,)) == {}
    assert "disk" in found(disk_free_bytes=little, environments=("ffffffffffffffff",))


def test_what_an_attempt_left_is_room_for_the_next_one() -> None:
    def short(left: int) -> str:
        return problem(disk_free_bytes=megabytes(900), leftover_bytes=megabytes(left))

    assert "900 MB are free below /opt" in short(0)
    assert "1,000 MB are free" in short(100)
    assert short(2_000) == ""


def of_server(publishes: int, free: dict[str, int], **changes: Any) -> str:
    """What is wrong with the storage server, for so many MB to publish."""
    return problem("rpi11", publishes_bytes=publishes * MEGABYTE, disk_free_bytes=free, **changes)


def test_the_storage_server_has_to_take_what_is_published() -> None:
    mounts = {**CARD, SHARED: USB}
    assert of_server(400, megabytes(2_800, 400), mounts=mounts) == ""
    line = of_server(400, megabytes(2_800, 300), mounts=mounts)
    short = "300 MB are free below /srv/pscluster, 400 MB are needed for what all nodes install: "
    assert line.startswith(short)
    assert "`storage.export`" in line
    assert of_server(0, megabytes(2_800, 0), mounts=mounts) == ""
    sent = {f"{SHARED}/shared/wheels": 150 * MEGABYTE}
    assert of_server(400, megabytes(2_800, 300), mounts=mounts, leftover_bytes=sent) == ""


def test_one_disk_of_the_server_has_to_take_both() -> None:
    assert of_server(400, megabytes(3_200, 3_200)) == ""
    line = of_server(400, megabytes(2_900, 2_900))
    assert "2,900 MB are free below /srv/pscluster, 3,200 MB are needed" in line
    assert "with its own environment on the same disk" in line
    left = {**megabytes(200), f"{SHARED}/shared/wheels": 100 * MEGABYTE}
    assert of_server(400, megabytes(2_900, 2_900), leftover_bytes=left) == ""
