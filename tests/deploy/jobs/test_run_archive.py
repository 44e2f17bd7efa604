"""Archives from a node that is not trusted: a run's files, or one line and nothing on the disk."""

import errno
import gzip
import io
import math
import os
import re
import subprocess
import tarfile
from dataclasses import replace
from pathlib import Path
from unittest.mock import Mock

import pytest

from core.ground import parcel
from core.ground.errors import ClusterError
from core.ground.parcel import ParcelKind, unpack_folder
from deploy.jobs.request import RUN, pack_command
from tests.deploy.jobs.archives import entry, packed

NAME = "20261121T223000Z-train"


def refused(archive: bytes, into: Path, name: str = NAME, kind: ParcelKind = RUN) -> str:
    with pytest.raises(ClusterError) as caught:
        unpack_folder(io.BytesIO(archive), name, into, kind)
    assert not [path for path in into.rglob("*") if path.is_file()]
    return str(caught.value)


@pytest.mark.parametrize(
    ("name", "size"),
    [(f"{NAME}/log", 300 << 20), ("elsewhere", 100 << 20)],
    ids=["in the run", "beside it, which is read past"],
)
def test_a_bomb_is_ended_before_it_fills_the_disk(tmp_path: Path, name: str, size: int) -> None:
    bomb = packed(entry(name, bytes(size)))
    assert len(bomb) < 400_000
    assert "unpacks to more than 67108864 bytes" in refused(bomb, tmp_path)


def test_a_size_that_is_not_there_is_no_loop(tmp_path: Path) -> None:
    lying, _ = entry(f"{NAME}/log")
    lying.size = 1 << 60
    header = lying.tobuf(tarfile.GNU_FORMAT) + bytes(1024)
    refused(gzip.compress(header), tmp_path)


def test_more_than_the_disk_takes_and_more_files_than_a_run_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as full:
        full.setattr(parcel, "room_on_disk", lambda folder: 9)
        archive = packed(entry(f"{NAME}/a", b"12345"), entry(f"{NAME}/b", b"12345"))
        assert "its files would fill this disk" in refused(archive, tmp_path)
    archive = packed(*(entry(f"{NAME}/{number}") for number in range(51)))
    assert "expected at most 50 files" in refused(
        archive, tmp_path, kind=replace(RUN, most_entries=50)
    )


@pytest.mark.parametrize("kind", [tarfile.PAX_FORMAT, tarfile.GNU_FORMAT])
def test_a_name_of_megabytes_is_not_read(tmp_path: Path, kind: int) -> None:
    archive = packed(entry(f"{NAME}/" + "n" * (60 << 20)), kind=kind)
    assert "longer than any of ours" in refused(archive, tmp_path)


ODD = {
    "not gzip": b"no archive",
    "not tar": gzip.compress(b"no archive" * 100),
    "empty": b"",
    "twice": packed(entry(f"{NAME}/log"), entry(f"{NAME}/log")),
    "file as folder": packed(entry(f"{NAME}/log"), entry(f"{NAME}/log/log")),
}


@pytest.mark.parametrize("archive", ODD.values(), ids=ODD)
def test_what_is_no_archive_of_a_run_is_one_line(tmp_path: Path, archive: bytes) -> None:
    cause = r"the run cannot be kept here: (the archive is damaged: |'.*' is there twice)"
    assert re.search(cause, refused(archive, tmp_path))


def test_a_disk_that_is_full_or_not_ours_damages_no_archive(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive = packed(entry(f"{NAME}/log"))
    for error, remedy in ((errno.ENOSPC, "free some space"), (errno.EACCES, "writable for this")):
        problem = Mock(side_effect=OSError(error, os.strerror(error)))
        monkeypatch.setattr(parcel, "extract", problem)
        line = refused(archive, tmp_path)
        assert f"the run cannot be kept here: {os.strerror(error)}: " in line
        assert remedy in line
        assert "damaged" not in line


@pytest.mark.parametrize("name", ["..", ".", "", "/", "a/b", "../x"])
def test_a_run_has_a_plain_name(tmp_path: Path, name: str) -> None:
    (tmp_path / "mine").mkdir()
    assert "expected the plain name of a folder" in refused(
        packed(entry(f"{NAME}/log")), tmp_path / "mine", name
    )
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]


def test_only_plain_files_with_plain_names_are_taken(tmp_path: Path) -> None:
    odd = (f"/{NAME}/a", f"{NAME}/../b", f"../{NAME}/c", f"{NAME}/\x1b[2J", f"{NAME}/new\nline")
    kinds = (tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE, tarfile.CHRTYPE)
    archive = packed(
        *map(entry, (*odd, "other/d", f"{NAME}/good")),
        *(entry(f"{NAME}/odd", b"", type=kind, linkname="/etc/passwd") for kind in kinds),
        entry(f"{NAME}/time", mtime=1e300),
    )
    kept = tmp_path / NAME
    kept.mkdir()
    (kept / "old").touch()
    assert unpack_folder(io.BytesIO(archive), NAME, tmp_path, RUN) == kept
    assert sorted(path.name for path in kept.iterdir()) == ["good", "time"]
    assert not math.isinf((kept / "time").stat().st_mtime)
    with pytest.raises(ClusterError, match="the archive is damaged: Compressed file ended"):
        unpack_folder(io.BytesIO(archive[: len(archive) // 2]), NAME, tmp_path, RUN)
    assert (kept / "good").read_bytes() == b"x"
    assert list(tmp_path.iterdir()) == [kept]


def test_checkpoints_stay_there_those_of_a_sweep_s_runs_too(tmp_path: Path) -> None:
    kept = ("runs/0001/x-train/result.json", "sweep.json")
    checkpoints = ("checkpoints/one", "runs/0001/x-train/checkpoints/update-1.json")
    run = tmp_path / "a b-sweep"
    for name in (*kept, *checkpoints):
        (run / name).parent.mkdir(parents=True, exist_ok=True)
        (run / name).touch()
    for with_checkpoints, wanted in ((False, kept), (True, (*kept, *checkpoints))):
        command = pack_command(str(run), checkpoints=with_checkpoints)
        archive = subprocess.run(command, check=True, capture_output=True).stdout
        target = unpack_folder(io.BytesIO(archive), run.name, tmp_path / "here", RUN)
        files = [path for path in target.rglob("*") if path.is_file()]
        assert {str(path.relative_to(target)) for path in files} == {*wanted}
