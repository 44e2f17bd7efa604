"""What root prepared is copied for the roles' account alone, where that cannot read it."""

from dataclasses import replace
from pathlib import Path

import pytest

from cluster.jobs import sources
from cluster.jobs.sources import handed_over
from core.cage import landlock
from core.data import Dataset, open_prepared
from core.data.publish import publishable
from core.ground.accounts import ROLES_ACCOUNT
from core.ground.errors import DataError
from tests.cluster.jobs.cluster import own_recordings
from tests.habits import needs


@pytest.fixture
def private(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Dataset:
    """Prepared where the roles' cage shows it, in a folder that they may not enter."""
    needs.root("giving files to another account")
    monkeypatch.setattr(sources, "prepared_folders", lambda account: [str(tmp_path)])
    made = publishable(
        str(own_recordings(tmp_path / "mine.npz")), 128, 64, 0, tmp_path / "prepared"
    )
    tmp_path.chmod(0o700)
    return open_prepared(Path(made["folder"]))


def test_the_copy_is_the_same_and_only_root_and_the_roles_read_it(
    private: Dataset, tmp_path: Path
) -> None:
    copy = handed_over(private, ROLES_ACCOUNT, tmp_path / "cache" / "roles")
    assert copy == replace(private, folder=copy.folder)
    assert open_prepared(copy.folder) == copy
    for path, mode in {copy.folder: 0o750, **dict.fromkeys(copy.folder.iterdir(), 0o640)}.items():
        found = path.stat()
        assert (found.st_uid, found.st_gid, found.st_mode & 0o7777) == (0, ROLES_ACCOUNT, mode)
    assert list(copy.folder.parent.iterdir()) == [copy.folder]


def test_a_sound_copy_is_kept_and_a_damaged_one_replaced(private: Dataset, tmp_path: Path) -> None:
    copy = handed_over(private, ROLES_ACCOUNT, tmp_path / "roles")
    before = copy.folder.stat().st_ino
    assert handed_over(private, ROLES_ACCOUNT, tmp_path / "roles").folder.stat().st_ino == before
    (copy.folder / "windows.f32").write_bytes(b"short")
    again = handed_over(private, ROLES_ACCOUNT, tmp_path / "roles")
    assert open_prepared(again.folder) == copy
    assert list(copy.folder.parent.iterdir()) == [copy.folder]


def test_a_folder_that_cannot_be_made_is_one_line(private: Dataset, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(
        DataError, match=rf"uid {ROLES_ACCOUNT}, which cannot read .*XDG_CACHE_HOME"
    ) as caught:
        handed_over(private, ROLES_ACCOUNT, tmp_path / "file" / "roles")
    assert "\n" not in str(caught.value)


def test_roles_of_this_account_get_links_below_the_folder_that_their_cage_shows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    needs.possible("" if landlock.abi() else landlock.kernel_coverage().reason)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    recordings = str(own_recordings(tmp_path / "mine.npz"))
    elsewhere = publishable(recordings, 128, 64, 0, tmp_path / "elsewhere")
    dataset = open_prepared(Path(elsewhere["folder"]))
    copy = handed_over(dataset, None)
    assert copy.folder.parent == tmp_path / "cache" / "pscluster" / "prepared"
    for name in dataset.files:
        assert (copy.folder / name).samefile(dataset.folder / name)
    assert handed_over(copy, None) is copy
