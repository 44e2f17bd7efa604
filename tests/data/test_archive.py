"""What a hostile or damaged archive can do: end in one error."""

import os
import zipfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cluster.data import find_source, prepare
from cluster.data.archive import FolderTree, open_tree
from cluster.errors import DataError
from tests.data.makers import uci_har_files, write_folder, write_zip


@pytest.mark.parametrize("name", ["../outside.txt", "/etc/outside.txt", "a/../../outside.txt", "..\\outside.txt"])
def test_names_outside_the_archive_are_refused(tmp_path: Path, name: str) -> None:
    path = write_zip(tmp_path / "set.zip", uci_har_files() | {name: b"x"})
    with pytest.raises(DataError, match=r"names a file outside the archive .* do not trust"), open_tree(path):
        pass


def test_a_small_archive_of_endless_zeros_is_refused_unread(tmp_path: Path) -> None:
    path = tmp_path / "bomb.zip"
    with (
        zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive,
        archive.open("train/Inertial Signals/body_acc_x_train.txt", "w") as member,
    ):
        for _ in range(65):
            member.write(b"0" * 2**20)
    with pytest.raises(DataError, match="unpacks to 68157440 bytes from"):
        find_source(str(path), {}, tmp_path, tmp_path)


def test_a_member_that_is_encrypted_or_damaged_is_refused(tmp_path: Path) -> None:
    files = uci_har_files()
    path = write_zip(tmp_path / "set.zip", files)
    content = bytearray(path.read_bytes())
    with zipfile.ZipFile(path) as archive:
        start = archive.getinfo("train/y_train.txt").header_offset + 30 + len("train/y_train.txt")
    content[start : start + 8] = b"\xff" * 8
    path.write_bytes(content)
    with pytest.raises(DataError, match=r"train/y_train\.txt: damaged in the archive"):
        prepare(find_source(str(path), {}, tmp_path, tmp_path), cache=tmp_path / "cache")
    assert not (tmp_path / "cache").exists()


def test_a_folder_reads_no_file_larger_than_any_recording(tmp_path: Path) -> None:
    with (tmp_path / "huge.txt").open("wb") as stream:
        stream.truncate(2**30)
    with pytest.raises(DataError, match="which no recording is"):
        FolderTree(tmp_path).read("huge.txt")


def test_a_name_that_is_a_folder_is_an_error(tmp_path: Path) -> None:
    files = uci_har_files()
    del files["train/y_train.txt"]
    folder = write_folder(tmp_path / "set", files)
    (folder / "train" / "y_train.txt").mkdir()
    with pytest.raises(DataError, match=r"y_train\.txt: expected a file"):
        prepare(find_source(str(folder), {}, tmp_path, tmp_path), cache=tmp_path / "cache")


def test_a_pipe_is_refused_and_not_waited_for(tmp_path: Path) -> None:
    files = uci_har_files()
    del files["train/y_train.txt"]
    folder = write_folder(tmp_path / "set", files)
    os.mkfifo(folder / "train" / "y_train.txt")
    os.mkfifo(tmp_path / "pipe.npz")
    with pytest.raises(DataError, match=r"y_train\.txt: expected a file"):
        prepare(find_source(str(folder), {}, tmp_path, tmp_path), cache=tmp_path / "cache")
    with pytest.raises(DataError, match=r"pipe\.npz: not a recording of a known kind"):
        find_source(str(tmp_path / "pipe.npz"), {}, tmp_path, tmp_path)


@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_any_damage_to_a_zip_ends_in_the_same_windows_or_one_error(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    folder = tmp_path_factory.mktemp("zip")
    content = bytearray(write_zip(folder / "set.zip", uci_har_files()).read_bytes())
    expected = prepare(find_source(str(folder / "set.zip"), {}, folder, folder), cache=folder / "cache").sha256
    if data.draw(st.booleans(), label="truncate"):
        del content[data.draw(st.integers(0, len(content) - 1), label="kept") :]
    else:
        for position in data.draw(st.lists(st.integers(0, len(content) - 1), min_size=1, max_size=5), label="flipped"):
            content[position] ^= 1 << data.draw(st.integers(0, 7), label="bit")
    (folder / "set.zip").write_bytes(content)
    try:
        found = find_source(str(folder / "set.zip"), {}, folder, folder)
        damaged = prepare(found, cache=folder / "damaged").sha256
    except DataError:
        return
    assert damaged == expected


def with_an_entry(path: Path, name: str) -> Path:
    with zipfile.ZipFile(path, "w") as archive:
        for member, content in uci_har_files().items():
            archive.writestr(member, content)
        archive.writestr(zipfile.ZipInfo(name), b"x")
    return path


@pytest.mark.parametrize("name", ["/", "//", ".", "./", "\x00x"])
def test_an_entry_with_no_usable_name_ends_in_at_most_one_error(tmp_path: Path, name: str) -> None:
    path, said = with_an_entry(tmp_path / "set.zip", name), ""
    try:
        prepare(find_source(str(path), {}, tmp_path, tmp_path), cache=tmp_path / "cache")
    except DataError as problem:
        said = str(problem)
    assert "\n" not in said


def test_an_entry_without_a_name_is_refused(tmp_path: Path) -> None:
    path = with_an_entry(tmp_path / "set.zip", "")
    with pytest.raises(DataError, match=r"set\.zip: an entry of the archive has no name"), open_tree(path) as tree:
        tree.names()
