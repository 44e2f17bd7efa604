"""An app on its way to a node: the same files there, or a line and no folder."""

import os
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest

from cluster.apps.files import AppFiles, files_of_app
from core.ground.errors import ClusterError, UsageError
from core.ground.parcel import blocks_of, packed
from deploy.jobs.request import unpack_app
from tests.deploy.jobs import archives
from tests.deploy.jobs.archives import entry


@pytest.fixture
def app(tmp_path: Path) -> AppFiles:
    folder = tmp_path / "digits"
    (folder / "parts/deep").mkdir(parents=True)
    (folder / "app.py").write_text("from parts.deep import blocks\n")
    (folder / "parts/deep" / ("long" * 50 + "é.py")).write_text("width = 8\n")
    (folder / "weights.bin").write_bytes(os.urandom(70_000))
    (folder / "empty").touch()
    return files_of_app(folder)


def pack(app: AppFiles) -> bytes:
    with packed(app.streams("app")) as archive:
        return b"".join(blocks_of(archive))


def arrive(tmp_path: Path, content: bytes) -> tuple[Path, Path]:
    """Archive and folder of a job."""
    (tmp_path / "job").mkdir()
    archive = tmp_path / "job/app.tar.gz"
    archive.write_bytes(content)
    return archive, tmp_path / "job/app"


def test_what_arrives_is_what_was_sent(app: AppFiles, tmp_path: Path) -> None:
    archive, folder = arrive(tmp_path, pack(app))
    unpack_app(archive, app.digest, folder)
    found = files_of_app(folder)
    assert found.digest == app.digest
    assert [file.name for file in found.files] == [file.name for file in app.files]
    assert [path.name for path in folder.parent.iterdir()] == ["app"]
    assert pack(found) == pack(app)


def test_an_app_that_changes_on_the_way_out_is_not_sent(app: AppFiles) -> None:
    (app.source / "app.py").write_text("other = 1\n")
    with pytest.raises(UsageError, match="has changed while the app was read"):
        pack(app)


DAMAGED: dict[str, Callable[[bytes], bytes]] = {
    "cut": lambda whole: whole[: len(whole) // 2],
    "another app": lambda _: archives.packed(entry("app/app.py")),
    "no app": lambda _: archives.packed(entry("app/other.py")),
    "a link": lambda _: archives.packed(
        entry("app/app.py", b"", type=tarfile.SYMTYPE, linkname="/etc/passwd")
    ),
}


@pytest.mark.parametrize("damage", DAMAGED.values(), ids=DAMAGED)
def test_what_is_damaged_is_one_line_and_leaves_no_folder(
    app: AppFiles, tmp_path: Path, damage: Callable[[bytes], bytes]
) -> None:
    archive, folder = arrive(tmp_path, damage(pack(app)))
    with pytest.raises(
        ClusterError,
        match=r"^[^\n]*job/app: the app cannot be unpacked: [^\n]*submit the job again[^\n]*$",
    ):
        unpack_app(archive, app.digest, folder)
    assert [path.name for path in folder.parent.iterdir()] == ["app.tar.gz"]


def test_a_link_in_place_of_the_archive_is_not_followed(app: AppFiles, tmp_path: Path) -> None:
    archive, folder = arrive(tmp_path, b"")
    (tmp_path / "real.tar").write_bytes(pack(app))
    archive.unlink()
    archive.symlink_to(tmp_path / "real.tar")
    with pytest.raises(ClusterError, match="cannot be unpacked"):
        unpack_app(archive, app.digest, folder)
