"""What a hostile or damaged archive can do: end in one error."""

import os
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from core.data.archive import open_zip, tree_of
from tests.core.data.desk import Desk, refused, write
from tests.core.data.makers import uci_har_files, write_folder
from tests.tables import table

CLASSES = "train/y_train.txt"


@pytest.mark.parametrize(("name", "said"), table("core/data/tables", "entries").items())
def test_names_outside_the_archive_and_none_are_refused(desk: Desk, name: str, said: str) -> None:
    path = with_an_entry(desk, name)
    with refused(said):
        tree_of(path)


def with_an_entry(desk: Desk, name: str) -> Path:
    path = desk.write("set.zip", uci_har_files())
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr(zipfile.ZipInfo(name), b"x")
    return path


def test_a_small_archive_of_endless_zeros_is_refused_unread(desk: Desk) -> None:
    zeros = {"train/Inertial Signals/body_acc_x_train.txt": b"0" * (65 << 20)}
    path = desk.write("bomb.zip", zeros)
    with refused("unpacks to 68157440 bytes from"):
        desk.source(path)


def test_small_files_that_together_unpack_to_too_much_are_refused(desk: Desk) -> None:
    path = desk.folder / "many.zip"
    with zipfile.ZipFile(path, "w") as archive:
        for name in ("a", "b", "c"):
            archive.writestr(name, b"0" * 40)
    with path.open("rb") as stream:
        open_zip(stream, "many.zip", most_bytes=120).close()
    with path.open("rb") as stream, refused("many.zip: c unpacks to 40 bytes from"):
        open_zip(stream, "many.zip", most_bytes=119)


def test_more_files_than_any_recordings_have_are_refused_unlisted(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("core.data.archive.MOST_FILES", 1)
    with refused("more than 1 files; name a smaller folder"):
        tree_of(write_folder(desk.folder / "set", uci_har_files()))
    for name in ("set.zip", "set.npz"):
        path = desk.write(name, uci_har_files())
        content = bytearray(path.read_bytes())
        content[-10:-6] = struct.pack("<L", 17 << 20)  # the bytes of the list
        desk.refuses("lists more files than any recordings have", name, bytes(content))


def test_a_dictionary_larger_than_the_memory_is_damage(desk: Desk) -> None:
    with patch.object(zipfile.ZipExtFile, "read", side_effect=MemoryError):
        desk.refuses("damaged in the archive (MemoryError)", "set.zip", uci_har_files())


def test_a_damaged_member_is_refused(desk: Desk) -> None:
    path = desk.write("set.zip", uci_har_files())
    content = bytearray(path.read_bytes())
    with zipfile.ZipFile(path) as archive:
        start = archive.getinfo(CLASSES).header_offset + 30 + len(CLASSES)
    content[start : start + 8] = b"\xff" * 8
    desk.refuses(f"{CLASSES}: damaged in the archive", "set.zip", bytes(content))


def test_a_folder_reads_no_file_larger_than_any_recording(tmp_path: Path) -> None:
    with (tmp_path / "huge.txt").open("wb") as stream:
        stream.truncate(2**30)
    with refused("which no recording is"):
        tree_of(tmp_path).read("huge.txt")


@pytest.mark.parametrize("make", [os.mkdir, os.mkfifo])
def test_a_folder_or_a_pipe_in_the_place_of_a_file_is_refused_and_not_waited_for(
    desk: Desk, make: Callable[[Path], None]
) -> None:
    folder = write_folder(desk.folder / "set", uci_har_files())
    (folder / CLASSES).unlink()
    make(folder / CLASSES)
    desk.refuses("y_train.txt: expected a file", "set")


def test_a_pipe_is_no_recording(desk: Desk) -> None:
    os.mkfifo(desk.folder / "pipe.npz")
    desk.refuses("pipe.npz: not a recording of a known kind", "pipe.npz")


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[bytes, str]:
    """A sound archive, and the hash of what is prepared of it."""
    desk = Desk(tmp_path_factory.mktemp("whole"))
    path = write(desk.folder / "set.zip", uci_har_files())
    return path.read_bytes(), desk.read(path).sha256


@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_any_damage_to_a_zip_ends_in_the_same_windows_or_one_error(
    tmp_path_factory: pytest.TempPathFactory, whole: tuple[bytes, str], data: st.DataObject
) -> None:
    content = bytearray(whole[0])
    places = st.integers(0, len(content) - 1)
    if data.draw(st.booleans(), label="truncate"):
        del content[data.draw(places, label="kept") :]
    else:
        for position in data.draw(st.lists(places, min_size=1, max_size=5), label="flipped"):
            content[position] ^= 1 << data.draw(st.integers(0, 7), label="bit")
    dataset = Desk(tmp_path_factory.mktemp("zip")).tried("set.zip", bytes(content))
    assert dataset is None or dataset.sha256 == whole[1]
