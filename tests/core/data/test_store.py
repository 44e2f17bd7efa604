"""The cache of prepared sets: complete or absent, re-used only when sound, safe for two at once."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from core.data import Dataset, Source, open_prepared, prepare
from core.data.prepare import Data
from core.ground.files import PARTIAL
from tests.core.data.desk import Desk, edit_manifest, has, refused, says
from tests.core.data.given_examples import written
from tests.core.data.makers import uci_har_files
from tests.core.data.npz_files import cut_arrays
from tests.ran import PROJECT, python
from tests.tables import table


@pytest.fixture
def folder(desk: Desk) -> Path:
    return desk.write("set", uci_har_files())


def stages(desk: Desk, name: str | Path) -> tuple[Dataset, set[str]]:
    seen: set[str] = set()

    def progress(stage: str, done: int, total: int) -> None:
        assert 0 < done <= total
        seen.add(stage)

    return desk.read(name, progress=progress), seen


def test_files_are_raw_little_endian_from_offset_zero(desk: Desk, folder: Path) -> None:
    dataset = desk.read(folder)
    assert {path.name: path.stat().st_size for path in dataset.folder.glob("*.*32")} == {
        "classes.i32": 14 * 4,
        "subjects.i32": 14 * 4,
        "windows.f32": 14 * 128 * 9 * 4,
    }
    assert len(list(dataset.folder.iterdir())) == 4, "and the manifest"
    content = np.fromfile(dataset.folder / "windows.f32", "<f4").reshape(14, 128, 9)
    np.testing.assert_array_equal(content, dataset.windows())
    assert not dataset.windows().flags.writeable


def test_an_unchanged_source_is_not_read_again_and_a_changed_one_is(
    desk: Desk, folder: Path
) -> None:
    first, seen = stages(desk, folder)
    assert seen == {"hashing files", "reading", "writing"}
    assert stages(desk, folder) == (first, {"hashing files"})
    (folder / "test" / "subject_test.txt").write_text("4\n" * 6)
    changed, seen = stages(desk, folder)
    assert "writing" in seen
    assert changed.folder != first.folder
    assert set(changed.subjects()[changed.train_windows :]) == {4}
    assert open_prepared(first.folder).sha256 == first.sha256


def test_a_set_that_moved_is_found_in_the_cache_and_named_where_it_lies(
    desk: Desk, folder: Path
) -> None:
    first = desk.read(folder)
    moved = folder.rename(desk.folder / "elsewhere")
    again, seen = stages(desk, moved)
    assert seen == {"hashing files"}
    has(again, folder=first.folder, source=str(moved))


def flip_a_byte(folder: Path) -> None:
    with (folder / "windows.f32").open("r+b") as stream:
        stream.seek(1000)
        stream.write(b"\x55")


def replace_by_a_file(folder: Path) -> None:
    for path in folder.iterdir():
        path.unlink()
    folder.rmdir()
    folder.write_text("in the way")


@pytest.mark.parametrize(
    "damage",
    [
        lambda folder: os.truncate(folder / "windows.f32", 100),
        flip_a_byte,
        lambda folder: (folder / "classes.i32").unlink(),
        lambda folder: (folder / "subjects.i32").write_bytes(b""),
        lambda folder: (folder / "manifest.json").unlink(),
        lambda folder: (folder / "manifest.json").write_text("{"),
        lambda folder: (folder / "manifest.json").write_bytes(b"\xff\xfe"),
        lambda folder: (folder / "manifest.json").write_text("[]"),
        lambda folder: edit_manifest(folder, labels=None),
        replace_by_a_file,
    ],
)
def test_a_damaged_cache_is_an_error_to_open_and_repaired_by_preparing(
    desk: Desk, folder: Path, damage: Callable[[Path], None]
) -> None:
    first = desk.read(folder)
    damage(first.folder)
    with refused("prepare the data again"):
        open_prepared(first.folder)
    repaired, seen = stages(desk, folder)
    assert "reading" in seen
    assert repaired == first
    assert desk.cached() == [first.folder.name]


@pytest.mark.parametrize("row", table("core/data/tables", "damaged manifests"))
def test_a_manifest_that_no_preparation_writes(tmp_path: Path, row: dict[str, Any]) -> None:
    x = np.zeros((8, 16, 2), np.float32)
    y = np.arange(8) % 2
    folder = written(Data(x[:6], y[:6], x[6:], y[6:]), tmp_path, standardized=True).folder
    edit_manifest(folder, **row["fields"])
    with refused(f"{row['says']} ... prepare the data again"):
        open_prepared(folder)


def test_a_cache_that_cannot_be_written_is_one_error(desk: Desk, folder: Path) -> None:
    desk.cache.write_text("not a folder")
    with refused("cannot be written ... choose another cache folder"):
        desk.read(folder)


CHILD = """
import resource, sys
from pathlib import Path
from core.data import Source, prepare
from core.ground.errors import DataError

def progress(stage, done, total):
    if stage == "writing" and sys.argv[3] == "waits":
        print("writing", flush=True)
        sys.stdin.readline()

if sys.argv[3] == "full":
    resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, 10_000))
source = Source("uci-har", Path(sys.argv[1]), "")
try:
    print(prepare(source, cache=Path(sys.argv[2]), progress=progress).sha256)
except DataError as problem:
    print(problem)
"""


def start(desk: Desk) -> "subprocess.Popen[str]":
    """A process that prepares the set and waits in the midst of writing."""
    pipe = subprocess.PIPE
    words = [sys.executable, "-Bc", CHILD, str(desk.folder / "set"), str(desk.cache), "waits"]
    return subprocess.Popen(words, cwd=PROJECT, stdin=pipe, stdout=pipe, text=True)


def test_a_disk_that_takes_no_more_leaves_nothing_half_written(desk: Desk, folder: Path) -> None:
    said = python("-Bc", CHILD, folder, desk.cache, "full").removesuffix("\n")
    says(said, "cannot be written (File too large); free ... or choose another cache folder")
    assert desk.cached() == []


def test_an_interrupted_preparation_leaves_nothing(desk: Desk, folder: Path) -> None:
    def interrupt(stage: str, done: int, total: int) -> None:
        if stage == "writing":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        desk.read(folder, progress=interrupt)
    assert desk.cached() == []


def test_of_two_that_prepare_at_once_a_killed_one_is_swept_and_the_others_end_with_one_set(
    desk: Desk, folder: Path
) -> None:
    with ExitStack() as stack:
        killed, one, other = (stack.enter_context(start(desk)) for _ in range(3))
        for process in (killed, one, other):
            # All are in the middle of writing before any may go on.
            assert process.stdout is not None
            assert process.stdout.readline() == "writing\n"
        killed.send_signal(signal.SIGKILL)
        killed.wait()
        assert len(list(desk.cache.glob(f"*{PARTIAL}"))) == 3
        dataset = desk.read(folder)
        left = {path.name for path in desk.cache.glob(f"*{PARTIAL}")}
        assert len(left) == 2
        assert not any(f"@{killed.pid}-" in name for name in left)
        outputs = {process.communicate("\n" * 10)[0].split()[-1] for process in (one, other)}
        assert (one.returncode, other.returncode) == (0, 0)
    assert outputs == {dataset.sha256, open_prepared(dataset.folder).sha256}
    assert desk.cached() == [dataset.folder.name]


def test_a_checksum_beside_the_source_is_held_against_it(desk: Desk) -> None:
    digest = desk.read("own.npz", cut_arrays()).source_sha256
    desk.write("own.npz.sha256", f"{digest.upper()}  own.npz\n")
    assert desk.read("own.npz").source_sha256 == digest
    desk.write("own.npz.sha256", "0" * 64 + "  own.npz\n")
    desk.refuses("expected SHA-256 000 ... got ... ; fetch the file again", "own.npz")


def test_windows_of_motion_have_the_sha256_that_older_runs_resume_by(tmp_path: Path) -> None:
    x = np.arange(8 * 16 * 2, dtype=np.float32).reshape(8, 16, 2)
    y = np.arange(8) % 2
    np.savez(tmp_path / "mine.npz", x_train=x[:6], y_train=y[:6], x_test=x[6:], y_test=y[6:])
    found = prepare(Source("npz", tmp_path / "mine.npz", ""), cache=tmp_path / "cache").sha256
    assert found == "e3e700736716b1c46c76af515647437e7a0e20ebe7981b83e425f9d73799635a"
