"""The cache of prepared sets: complete or absent, re-used only when sound, safe for two at once."""

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from cluster.data import Dataset, Source, find_source, open_prepared, prepare
from cluster.data.store import PARTIAL
from cluster.errors import DataError
from tests.data.makers import uci_har_files, write_folder

PROJECT = Path(__file__).resolve().parents[2]


@pytest.fixture
def source(tmp_path: Path) -> Source:
    folder = write_folder(tmp_path / "set", uci_har_files())
    return find_source(str(folder), {}, tmp_path, tmp_path)


def stages(source: Source, cache: Path) -> tuple[Dataset, set[str]]:
    seen: set[str] = set()

    def progress(stage: str, done: int, total: int) -> None:
        assert 0 < done <= total
        seen.add(stage)

    return prepare(source, cache=cache, progress=progress), seen


def test_files_are_raw_little_endian_from_offset_zero(source: Source, tmp_path: Path) -> None:
    dataset = prepare(source, cache=tmp_path / "cache")
    rows = dataset.train_windows + dataset.test_windows
    assert sorted(path.name for path in dataset.folder.iterdir()) == [
        "classes.i32",
        "manifest.json",
        "subjects.i32",
        "windows.f32",
    ]
    content = (dataset.folder / "windows.f32").read_bytes()
    assert len(content) == rows * 128 * 9 * 4
    np.testing.assert_array_equal(np.frombuffer(content, "<f4").reshape(rows, 128, 9), dataset.windows())
    assert not dataset.windows().flags.writeable
    assert (dataset.folder / "classes.i32").stat().st_size == rows * 4


def test_an_unchanged_source_is_not_read_again_and_a_changed_one_is(source: Source, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    first, seen = stages(source, cache)
    assert seen == {"hashing", "reading", "writing"}
    again, seen = stages(source, cache)
    assert seen == {"hashing"}
    assert again == first
    assert source.path is not None
    (source.path / "test" / "subject_test.txt").write_text("4\n" * 6)
    changed, seen = stages(source, cache)
    assert "writing" in seen
    assert changed.folder != first.folder
    assert set(changed.subjects()[changed.train_windows :].tolist()) == {4}
    assert open_prepared(first.folder).sha256 == first.sha256


def test_a_set_that_moved_is_found_in_the_cache_and_named_where_it_lies(source: Source, tmp_path: Path) -> None:
    first = prepare(source, cache=tmp_path / "cache")
    assert source.path is not None
    moved = source.path.rename(tmp_path / "elsewhere")
    again, seen = stages(Source(source.kind, moved, "moved"), tmp_path / "cache")
    assert seen == {"hashing"}
    assert (again.folder, again.source) == (first.folder, str(moved))


def rewrite_manifest(change: Callable[[dict[str, object]], object]) -> Callable[[Path], None]:
    def damage(folder: Path) -> None:
        fields = json.loads((folder / "manifest.json").read_text())
        change(fields)
        (folder / "manifest.json").write_text(json.dumps(fields))

    return damage


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
        rewrite_manifest(lambda fields: fields.update(format=0)),
        rewrite_manifest(lambda fields: fields.update(train_windows=6, test_windows=8)),
        rewrite_manifest(lambda fields: fields.update(labels=["a"] * 6)),
        rewrite_manifest(lambda fields: fields.pop("labels")),
        replace_by_a_file,
    ],
)
def test_a_damaged_cache_is_an_error_to_open_and_repaired_by_preparing(
    source: Source, tmp_path: Path, damage: Callable[[Path], None]
) -> None:
    first = prepare(source, cache=tmp_path / "cache")
    damage(first.folder)
    with pytest.raises(DataError, match="prepare the data again"):
        open_prepared(first.folder)
    repaired, seen = stages(source, tmp_path / "cache")
    assert "reading" in seen
    assert repaired == first
    assert [path.name for path in (tmp_path / "cache").iterdir()] == [first.folder.name]


def test_a_cache_that_cannot_be_written_is_one_error(source: Source, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a folder")
    with pytest.raises(DataError, match=r"cannot be written .* choose another cache folder"):
        prepare(source, cache=tmp_path / "file")


FULL_DISK = """
import resource, sys
from pathlib import Path
from cluster.data import Source, prepare
from cluster.errors import DataError

resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, 10_000))
try:
    prepare(Source("uci-har", Path(sys.argv[1]), ""), cache=Path(sys.argv[2]))
except DataError as problem:
    print(problem)
"""


def test_a_disk_that_takes_no_more_leaves_nothing_half_written(source: Source, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    command = [sys.executable, "-B", "-c", FULL_DISK, str(source.path), str(cache)]
    output = subprocess.run(command, cwd=PROJECT, check=True, capture_output=True, text=True).stdout
    assert re.search(r"cannot be written \(File too large\); free .* or choose another cache folder", output)
    assert not list(cache.iterdir())


def test_an_interrupted_preparation_leaves_nothing(source: Source, tmp_path: Path) -> None:
    def interrupt(stage: str, done: int, total: int) -> None:
        if stage == "writing":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        prepare(source, cache=tmp_path / "cache", progress=interrupt)
    assert not list((tmp_path / "cache").iterdir())


PREPARE = """
import sys
from pathlib import Path
from cluster.data import Source, prepare

def progress(stage, done, total):
    if stage == "writing":
        print("writing", flush=True)
        sys.stdin.readline()

print(prepare(Source("uci-har", Path(sys.argv[1]), ""), cache=Path(sys.argv[2]), progress=progress).sha256)
"""


def start(source: Source, cache: Path) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-c", PREPARE, str(source.path), str(cache)],
        cwd=PROJECT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def test_two_processes_that_prepare_at_once_end_with_one_sound_set(source: Source, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    with start(source, cache) as one, start(source, cache) as other:
        assert one.stdout is not None
        assert other.stdout is not None
        # Both are in the middle of writing before either may go on.
        assert one.stdout.readline() == other.stdout.readline() == "writing\n"
        outputs = [process.communicate("\n" * 10)[0].split()[-1] for process in (one, other)]
        assert (one.returncode, other.returncode) == (0, 0)
    (folder,) = cache.iterdir()
    assert {open_prepared(folder).sha256, *outputs} == {outputs[0]}


def test_what_a_killed_process_left_is_swept_and_what_a_living_one_writes_is_not(
    source: Source, tmp_path: Path
) -> None:
    cache = tmp_path / "cache"
    with start(source, cache) as killed, start(source, cache) as living:
        assert killed.stdout is not None
        assert living.stdout is not None
        assert killed.stdout.readline() == living.stdout.readline() == "writing\n"
        killed.send_signal(signal.SIGKILL)
        killed.wait()
        assert len(list(cache.glob(f"{PARTIAL}*"))) == 2
        dataset = prepare(source, cache=cache)
        (left,) = cache.glob(f"{PARTIAL}*")
        assert f"@{living.pid}-" in left.name
        assert living.communicate("\n" * 10)[0].split()[-1] == dataset.sha256
    assert [path.name for path in cache.iterdir()] == [dataset.folder.name]


def test_a_checksum_beside_the_source_is_held_against_it(tmp_path: Path) -> None:
    path = tmp_path / "own.npz"
    x, y = np.zeros((2, 4, 1)), np.zeros(2, dtype=int)
    np.savez(path, x_train=x, y_train=y, x_test=x, y_test=y)
    source = Source("npz", path, "")
    digest = prepare(source, cache=tmp_path / "cache").source_sha256
    beside = tmp_path / "own.npz.sha256"
    beside.write_text(f"{digest.upper()}  own.npz\n")
    assert prepare(source, cache=tmp_path / "cache").source_sha256 == digest
    beside.write_text("0" * 64 + "  own.npz\n")
    with pytest.raises(DataError, match=r"expected SHA-256 000.* got .*; fetch the file again"):
        prepare(source, cache=tmp_path / "cache")


def test_windows_of_motion_have_the_sha256_that_older_runs_resume_by(tmp_path: Path) -> None:
    x, y = np.arange(8 * 16 * 2, dtype=np.float32).reshape(8, 16, 2), np.arange(8) % 2
    np.savez(tmp_path / "mine.npz", x_train=x[:6], y_train=y[:6], x_test=x[6:], y_test=y[6:])
    found = prepare(Source("npz", tmp_path / "mine.npz", ""), cache=tmp_path / "cache").sha256
    assert found == "e3e700736716b1c46c76af515647437e7a0e20ebe7981b83e425f9d73799635a"
