"""A folder on the storage server gets the files it lacks, and is complete when all are right."""

import shutil
from pathlib import Path

import pytest

from deploy.release.hashes import SUMS, parse_sums
from deploy.release.scripts import (
    Refusal,
    RefusedError,
    finish_folder,
    install_environment,
    missing_files,
    prune_folders,
    read_missing,
)
from deploy.release.wheelhouse import Wheelhouse
from tests.deploy.release.wheels import EXECUTABLE, printed, run, times

OTHER_KEY = "0" * 16


@pytest.fixture
def shared(tmp_path: Path) -> Path:
    return tmp_path / "it's shared" / "wheels"


def publish(wheelhouse: Wheelhouse, folder: Path) -> tuple[str, ...]:
    """As the deployment does; the names of what travelled."""
    sums = parse_sums(wheelhouse.sums())
    names = read_missing(printed(missing_files(str(folder), sums)))
    for name in names:
        shutil.copyfile(wheelhouse.folder / name, folder / name)
    run(finish_folder(str(folder), sums))
    return names


def test_everything_travels_once_and_can_be_installed_from(
    wheelhouse: Wheelhouse, shared: Path, tmp_path: Path
) -> None:
    folder = shared / wheelhouse.key
    assert set(publish(wheelhouse, folder)) == set(wheelhouse.files) - {SUMS}
    before = times(shared)
    done = run(missing_files(str(folder), parse_sums(wheelhouse.sums())))
    assert not done.changed
    assert times(shared) == before
    assert (folder / SUMS).read_bytes() == (wheelhouse.folder / SUMS).read_bytes()
    assert run(install_environment(wheelhouse, str(folder), root=str(tmp_path / "opt"), python=EXECUTABLE)).changed


def test_only_what_is_missing_or_damaged_travels(wheelhouse: Wheelhouse, shared: Path) -> None:
    folder = shared / wheelhouse.key
    publish(wheelhouse, folder)
    (folder / ".complete").unlink()
    (alpha,) = folder.glob("alpha-*")
    alpha.write_bytes(b"half")
    (folder / "requirements.txt").unlink()
    assert set(publish(wheelhouse, folder)) == {alpha.name, "requirements.txt"}


def test_what_another_wheelhouse_has_is_linked(wheelhouse: Wheelhouse, shared: Path) -> None:
    publish(wheelhouse, shared / OTHER_KEY)
    (shared / OTHER_KEY / "requirements.txt").write_text("of another list")
    assert publish(wheelhouse, shared / wheelhouse.key) == ("requirements.txt",)
    (one,) = (shared / wheelhouse.key).glob("uv-*")
    assert one.samefile(shared / OTHER_KEY / one.name)


def test_a_folder_with_a_wrong_file_is_not_finished(wheelhouse: Wheelhouse, shared: Path) -> None:
    folder = shared / wheelhouse.key
    shutil.copytree(wheelhouse.folder, folder, ignore=shutil.ignore_patterns(".complete"))
    (folder / "requirements.txt").write_text("changed on the way")
    with pytest.raises(RefusedError, match=r"requirements\.txt.*publish it again") as caught:
        run(finish_folder(str(folder), parse_sums(wheelhouse.sums())))
    assert caught.value.refusal is Refusal.HASH_MISMATCH
    assert not (folder / ".complete").exists()


def test_a_storage_that_is_too_small_is_told_before_anything_travels(wheelhouse: Wheelhouse, shared: Path) -> None:
    listing = printed(missing_files(str(shared / wheelhouse.key), parse_sums(wheelhouse.sums())))
    assert read_missing(listing, wheelhouse.files) == read_missing(listing)
    with pytest.raises(RefusedError, match=r"needs \d+ MiB more, \d+ MiB are free") as caught:
        read_missing(listing, {"requirements.txt": 1 << 60})
    assert caught.value.refusal is Refusal.NO_SPACE


def test_leftovers_of_uploads_go(wheelhouse: Wheelhouse, shared: Path) -> None:
    folder = shared / wheelhouse.key
    folder.mkdir(parents=True)
    (folder / ".alpha.whl.partial").write_text("half")
    (folder / "stranger-1.0-py3-none-any.whl").write_text("not ours")
    publish(wheelhouse, folder)
    assert {path.name for path in folder.iterdir()} == {*wheelhouse.files, ".complete"}


def test_old_folders_are_removed_and_nothing_else(wheelhouse: Wheelhouse, shared: Path) -> None:
    publish(wheelhouse, shared / wheelhouse.key)
    for name in (OTHER_KEY, "notes", "0123456789abcdex"):
        (shared / name).mkdir()
    assert run(prune_folders(str(shared), [wheelhouse.key])).changed
    assert {path.name for path in shared.iterdir()} == {wheelhouse.key, "notes", "0123456789abcdex"}
    assert not run(prune_folders(str(shared), [wheelhouse.key])).changed


@pytest.mark.parametrize("name", ["../x", "a b", "-rf", "$(id)", ".hidden", "a\nb"])
def test_a_name_that_is_no_plain_file_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="plain file name"):
        missing_files(f"/srv/{OTHER_KEY}", {name: "0"})
