"""Archives from a node that is not trusted: a run's files, or one line and nothing on the disk."""

import gzip
import io
import math
import os
import resource
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest

from cluster.errors import ClusterError
from deploy.jobs import run_archive
from deploy.jobs.run_archive import unpack

NAME = "20261121T223000Z-train"


def packed(*entries: tuple[tarfile.TarInfo, bytes], kind: int = tarfile.PAX_FORMAT) -> bytes:
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w:gz", format=kind) as archive:
        for entry, content in entries:
            archive.addfile(entry, io.BytesIO(content))
    return made.getvalue()


def entry(name: str, content: bytes = b"x", **more: object) -> tuple[tarfile.TarInfo, bytes]:
    made = tarfile.TarInfo(name)
    made.size = len(content)
    for field, value in more.items():
        setattr(made, field, value)
    return made, content


def refused(archive: bytes, into: Path, name: str = NAME) -> str:
    with pytest.raises(ClusterError) as caught:
        unpack(io.BytesIO(archive), name, into)
    assert not [path for path in into.rglob("*") if path.is_file()]
    return str(caught.value)


def test_a_run_of_usual_size_is_kept(tmp_path: Path) -> None:
    content = os.urandom(3_000_000)
    archive = packed(
        entry(f"{NAME}/events.jsonl", b"{}\n" * 100_000), entry(f"{NAME}/model/weights", content, mtime=7.5)
    )
    target = unpack(io.BytesIO(archive), NAME, tmp_path)
    assert (target / "model" / "weights").read_bytes() == content
    assert (target / "model" / "weights").stat().st_mtime == 7.5


def test_a_bomb_is_ended_before_it_fills_the_disk(tmp_path: Path) -> None:
    bomb = packed(entry(f"{NAME}/log", bytes(300 << 20)))
    assert len(bomb) < 400_000
    assert "unpacks to more than 67108864 bytes" in refused(bomb, tmp_path)


def test_a_bomb_beside_the_run_is_one_too(tmp_path: Path) -> None:
    """Entries that are not taken are read past, which takes their time."""
    assert "unpacks to more than" in refused(packed(entry("elsewhere", bytes(100 << 20))), tmp_path)


def test_a_size_that_is_not_there_is_no_loop(tmp_path: Path) -> None:
    lying, _ = entry(f"{NAME}/log")
    lying.size = 1 << 60
    header = lying.tobuf(tarfile.GNU_FORMAT) + bytes(1024)
    refused(gzip.compress(header), tmp_path)


def test_more_files_than_a_run_has(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_archive, "MOST_ENTRIES", 50)
    archive = packed(*(entry(f"{NAME}/{number}") for number in range(51)))
    assert "expected at most 50 files in a run" in refused(archive, tmp_path)


def test_a_name_of_megabytes_is_not_read(tmp_path: Path) -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for kind in (tarfile.PAX_FORMAT, tarfile.GNU_FORMAT):
        archive = packed(entry(f"{NAME}/" + "n" * (60 << 20)), kind=kind)
        before = max(before, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
        assert "longer than any run's" in refused(archive, tmp_path)


ODD: dict[str, Callable[[], bytes]] = {
    "not gzip": lambda: b"no archive",
    "not tar": lambda: gzip.compress(b"no archive" * 100),
    "empty": lambda: b"",
    "twice": lambda: packed(entry(f"{NAME}/log"), entry(f"{NAME}/log")),
    "file as folder": lambda: packed(entry(f"{NAME}/log"), entry(f"{NAME}/log/log")),
}


@pytest.mark.parametrize("archive", ODD.values(), ids=ODD)
def test_what_is_no_archive_of_a_run_is_one_line(tmp_path: Path, archive: Callable[[], bytes]) -> None:
    assert "the run cannot be kept here" in refused(archive(), tmp_path)


@pytest.mark.parametrize("name", ["..", ".", "", "/", "a/b", "../x"])
def test_a_run_has_a_plain_name(tmp_path: Path, name: str) -> None:
    (tmp_path / "mine").mkdir()
    assert "expected the plain name of a folder" in refused(packed(entry(f"{NAME}/log")), tmp_path / "mine", name)
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]


def test_only_plain_files_with_plain_names_are_taken(tmp_path: Path) -> None:
    odd = [f"/{NAME}/a", f"{NAME}/../b", f"../{NAME}/c", f"{NAME}/\x1b[2J", f"{NAME}/new\nline", "other/d"]
    links = [
        entry(f"{NAME}/link", b"", type=tarfile.SYMTYPE, linkname="/etc/passwd"),
        entry(f"{NAME}/hard", b"", type=tarfile.LNKTYPE, linkname="/etc/passwd"),
        entry(f"{NAME}/pipe", b"", type=tarfile.FIFOTYPE),
        entry(f"{NAME}/device", b"", type=tarfile.CHRTYPE),
    ]
    times = [entry(f"{NAME}/time", mtime=mtime) for mtime in (1e300,)]
    archive = packed(*map(entry, odd), *links, *times, entry(f"{NAME}/good"))
    target = unpack(io.BytesIO(archive), NAME, tmp_path)
    assert sorted(path.name for path in target.iterdir()) == ["good", "time"]
    assert not math.isinf((target / "time").stat().st_mtime)
