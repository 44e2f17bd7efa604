"""Files out of foreign archives: below their folder, once, on the Python of every node."""

import io
import tarfile
from functools import partial
from pathlib import Path

import pytest

from core.ground import parcel
from core.ground.errors import ClusterError
from core.ground.parcel import RefusedArchive, bounded_tar, extract

MOST_BYTES = 1 << 20


def packed(name: str = "a", content: bytes = b"x", **more: object) -> io.BytesIO:
    made = io.BytesIO()
    entry = tarfile.TarInfo(name)
    entry.size = len(content)
    for field, value in more.items():
        setattr(entry, field, value)
    with tarfile.open(fileobj=made, mode="w") as archive:
        archive.addfile(entry, io.BytesIO(content))
    made.seek(0)
    return made


def taken(stream: io.BytesIO, folder: Path, name: str) -> None:
    with bounded_tar(stream, MOST_BYTES) as archive:
        for member in archive:
            extract(archive, member, folder, name)


@pytest.mark.parametrize("compressed", [True, False])
def test_a_disk_without_room_for_what_travels_is_one_line(
    monkeypatch: pytest.MonkeyPatch, compressed: bool
) -> None:
    monkeypatch.setattr("tempfile.TemporaryFile", partial(open, "/dev/full", "r+b"))
    files = [("a", 9, io.BytesIO(b"some more"))]
    with (
        pytest.raises(ClusterError, match=r"cannot be packed there .*free some space or name"),
        parcel.packed(files, compressed),
    ):
        raise AssertionError("it was packed")


def test_without_a_folder_for_what_travels_the_same_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "missing"))
    with (
        pytest.raises(ClusterError, match=r"missing: what travels .*No such file.* name another"),
        parcel.packed([]),
    ):
        raise AssertionError("it was packed")


@pytest.mark.parametrize(
    ("path", "size_bytes", "said"),
    [
        ("/proc/self/mem", 9, "cannot be read: Input/output error"),
        ("some", 5, "has changed while it was packed: run it again"),
        ("some", 3, "has changed while it was packed: run it again"),
        ("missing", 3, "cannot be read: No such file"),
    ],
)
def test_a_file_that_cannot_be_read_as_it_was_seen_is_named(
    tmp_path: Path, path: str, size_bytes: int, said: str
) -> None:
    (tmp_path / "some").write_bytes(b"some")
    with (
        pytest.raises(ClusterError, match=f"{path}: {said}"),
        parcel.packed(parcel.opened({"a": (tmp_path / path, size_bytes)})),
    ):
        raise AssertionError("it was packed")


@pytest.mark.parametrize("name", ["a", "b/c/a"])
def test_a_file_lies_below_its_folder_with_its_content_and_time(tmp_path: Path, name: str) -> None:
    taken(packed(content=b"some", mtime=7, mode=0o4777), tmp_path, name)
    path = tmp_path / name
    assert path.read_bytes() == b"some"
    assert path.stat().st_mtime == 7
    assert not path.stat().st_mode & 0o7111


def test_it_needs_no_filter_of_tarfile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Debian 12 has Python 3.11.2, whose tarfile knows none."""
    for name in ("extract", "extractall"):
        monkeypatch.delattr(tarfile.TarFile, name)
    taken(packed(), tmp_path, "a")
    assert (tmp_path / "a").read_bytes() == b"x"


@pytest.mark.parametrize("name", ["", ".", "..", "../a", "/a", "b/../a", "a\n", "x" * 256])
def test_a_name_that_leads_elsewhere_is_refused(tmp_path: Path, name: str) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    with pytest.raises(RefusedArchive):
        taken(packed(), folder, name)
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def test_a_file_is_made_once_and_never_through_a_link(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"before")
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere")
    for name in ("a", "link"):
        with pytest.raises(RefusedArchive, match="there twice"):
            taken(packed(), tmp_path, name)
    assert (tmp_path / "a").read_bytes() == b"before"
    assert not (tmp_path / "elsewhere").exists()


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE])
def test_only_a_plain_file_is_taken(tmp_path: Path, kind: bytes) -> None:
    with pytest.raises(RefusedArchive, match="no plain file"):
        taken(packed(content=b"", type=kind, linkname="/etc/passwd"), tmp_path, "a")
    assert list(tmp_path.iterdir()) == []
