"""A folder on the storage server gets the files it lacks, and is complete when all are right."""

import shutil
from pathlib import Path

import pytest

from deploy.release.requirements import SUMS, parse_sums
from deploy.release.scripts import (
    Refusal,
    RefusedError,
    finish_folder,
    missing_files,
    prune_folders,
    read_missing,
)
from deploy.release.wheelhouse import Wheelhouse
from tests.deploy.release.wheels import installing, names, printed, refusal, run, times

OTHER_KEY = "0" * 16


@pytest.fixture
def folder(wheelhouse: Wheelhouse, tmp_path: Path) -> Path:
    """Where the wheelhouse is published."""
    return tmp_path / "it's shared" / "wheels" / wheelhouse.key


def publish(wheelhouse: Wheelhouse, folder: Path) -> set[str]:
    """As the deployment does; the names of what travelled."""
    sums = parse_sums(wheelhouse.sums())
    missing = read_missing(printed(missing_files(str(folder), sums)))
    for name in missing:
        shutil.copyfile(wheelhouse.folder / name, folder / name)
    run(finish_folder(str(folder), sums))
    return set(missing)


def test_everything_travels_once_and_can_be_installed_from(
    wheelhouse: Wheelhouse, folder: Path, tmp_path: Path
) -> None:
    assert publish(wheelhouse, folder) == set(wheelhouse.files) - {SUMS}
    before = times(folder.parent)
    assert not run(missing_files(str(folder), parse_sums(wheelhouse.sums()))).changed
    assert times(folder.parent) == before
    assert (folder / SUMS).read_bytes() == (wheelhouse.folder / SUMS).read_bytes()
    assert run(installing(wheelhouse, folder, tmp_path / "opt")).changed


def test_only_what_is_missing_or_damaged_travels(wheelhouse: Wheelhouse, folder: Path) -> None:
    publish(wheelhouse, folder)
    (folder / ".complete").unlink()
    (alpha,) = folder.glob("alpha-*")
    alpha.write_bytes(b"half")
    (folder / "requirements.txt").unlink()
    assert publish(wheelhouse, folder) == {alpha.name, "requirements.txt"}


def test_what_another_wheelhouse_has_is_linked(wheelhouse: Wheelhouse, folder: Path) -> None:
    other = folder.with_name(OTHER_KEY)
    publish(wheelhouse, other)
    (other / "requirements.txt").write_text("of another list")
    assert publish(wheelhouse, folder) == {"requirements.txt"}
    (one,) = folder.glob("uv-*")
    assert one.samefile(other / one.name)


def test_a_folder_with_a_wrong_file_is_not_finished(wheelhouse: Wheelhouse, folder: Path) -> None:
    shutil.copytree(wheelhouse.folder, folder, ignore=shutil.ignore_patterns(".complete"))
    (folder / "requirements.txt").write_text("changed on the way")
    found, line = refusal(finish_folder(str(folder), parse_sums(wheelhouse.sums())))
    assert found is Refusal.HASH_MISMATCH
    assert "requirements.txt" in line
    assert "publish it again" in line
    assert not (folder / ".complete").exists()


def test_a_storage_that_is_too_small_is_told_before_anything_travels(
    wheelhouse: Wheelhouse, folder: Path
) -> None:
    listing = printed(missing_files(str(folder), parse_sums(wheelhouse.sums())))
    assert read_missing(listing, wheelhouse.files) == read_missing(listing)
    with pytest.raises(RefusedError, match=r"needs \d+ MiB more, \d+ MiB are free") as caught:
        read_missing(listing, {"requirements.txt": 1 << 60})
    assert caught.value.refusal is Refusal.NO_SPACE


def test_leftovers_of_uploads_go(wheelhouse: Wheelhouse, folder: Path) -> None:
    folder.mkdir(parents=True)
    (folder / ".alpha.whl.partial").write_text("half")
    (folder / "stranger-1.0-py3-none-any.whl").write_text("not ours")
    publish(wheelhouse, folder)
    assert {*names(folder)} == {*wheelhouse.files, ".complete"}


def test_old_folders_are_removed_and_nothing_else(wheelhouse: Wheelhouse, folder: Path) -> None:
    publish(wheelhouse, folder)
    others = ("notes", "0123456789abcdex")
    for name in (OTHER_KEY, *others):
        folder.with_name(name).mkdir()
    script = prune_folders(str(folder.parent), [wheelhouse.key])
    assert run(script).changed
    assert {*names(folder.parent)} == {wheelhouse.key, *others}
    assert not run(script).changed


@pytest.mark.parametrize("name", ["../x", "a b", "-rf", "$(id)", ".hidden", "a\nb"])
def test_a_name_that_is_no_plain_file_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="plain file name"):
        missing_files(f"/srv/{OTHER_KEY}", {name: "0"})
