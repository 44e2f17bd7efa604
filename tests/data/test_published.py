"""A prepared folder that every node sees: made on one machine, opened as it is on the others, for the same settings."""

import json
import os
import shutil
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from cluster.data import Source, find_source, open_prepared, prepare
from cluster.data.archive import file_digest
from cluster.data.publish import publishable
from cluster.errors import DataError
from tests.data.makers import hapt_files, write_folder

PROJECT = Path(__file__).resolve().parents[2]


@pytest.fixture
def recordings(tmp_path: Path) -> Path:
    return write_folder(tmp_path / "set", hapt_files())


@pytest.fixture
def published(recordings: Path, tmp_path: Path) -> Path:
    """As the storage server has it: named after the key, with marker and sums, read-only."""
    made = publishable(str(recordings), 128, 64, 0, tmp_path / "cache")
    folder = Path(shutil.copytree(made["folder"], tmp_path / "prepared" / made["key"]))
    (folder / "SHA256SUMS").touch()
    (folder / ".complete").touch()
    folder.chmod(0o555)
    return folder


def found(folder: Path) -> Source:
    return find_source(str(folder), {}, PROJECT, folder)


def test_it_is_opened_where_it_lies_and_nothing_is_written(published: Path, recordings: Path, tmp_path: Path) -> None:
    before = {path.name: path.stat().st_mtime_ns for path in published.iterdir()}
    source = found(published)
    assert (source.kind, source.path) == ("prepared", published)
    dataset = prepare(source, cache=tmp_path / "never made")
    assert dataset.folder == published
    assert dataset.sha256 == prepare(found(recordings), cache=tmp_path / "cache").sha256
    assert {path.name: path.stat().st_mtime_ns for path in published.iterdir()} == before
    assert stat.S_IMODE(published.stat().st_mode) == 0o555
    assert not (tmp_path / "never made").exists()


@pytest.mark.parametrize(("name", "value"), [("window_steps", 64), ("window_stride", 32)])
def test_other_settings_than_the_jobs_are_an_error_in_one_line(
    published: Path, tmp_path: Path, name: str, value: int
) -> None:
    asked = {"window_steps": 128, "window_stride": 64, name: value}
    steps, stride = asked["window_steps"], asked["window_stride"]
    with pytest.raises(DataError, match=f"prepared with {name} .* expected {value} as in the job") as caught:
        prepare(found(published), cache=tmp_path, window_steps=steps, window_stride=stride)
    assert "\n" not in str(caught.value)
    assert str(published) in str(caught.value)


def test_the_seed_matters_to_synthetic_recordings_only(published: Path, tmp_path: Path) -> None:
    prepare(found(published), cache=tmp_path, seed=7)
    synthetic = Path(publishable("synthetic", 128, 64, 3, tmp_path / "cache")["folder"])
    assert prepare(found(synthetic), cache=tmp_path, seed=3).folder == synthetic
    with pytest.raises(DataError, match="prepared with seed 3, expected 0"):
        prepare(found(synthetic), cache=tmp_path, seed=0)


def test_windows_that_came_cut_have_the_length_they_have(tmp_path: Path) -> None:
    x, y = np.zeros((8, 16, 2), np.float32), np.arange(8) % 2
    np.savez(tmp_path / "mine.npz", x_train=x, y_train=y, x_test=x, y_test=y)
    made = Path(publishable(str(tmp_path / "mine.npz"), 128, 64, 0, tmp_path / "cache")["folder"])
    assert prepare(found(made), cache=tmp_path).window_steps == 16
    assert prepare(found(made), cache=tmp_path, window_steps=16, window_stride=8).window_steps == 16
    with pytest.raises(DataError, match="prepared with window_steps 16, expected 32"):
        prepare(found(made), cache=tmp_path, window_steps=32)


def forget(folder: Path) -> None:
    fields = json.loads((folder / "manifest.json").read_text())
    del fields["preparation"]
    (folder / "manifest.json").write_text(json.dumps(fields))


@pytest.mark.parametrize(
    "damage",
    [
        lambda folder: os.truncate(folder / "windows.f32", 100),
        lambda folder: (folder / "classes.i32").unlink(),
        lambda folder: (folder / "manifest.json").write_text("{"),
        forget,
    ],
)
def test_a_damaged_one_is_an_error_and_never_repaired(
    published: Path, tmp_path: Path, damage: Callable[[Path], Any]
) -> None:
    published.chmod(0o755)
    damage(published)
    with pytest.raises(DataError, match="prepare the data again"):
        prepare(found(published), cache=tmp_path)


def test_a_folder_with_its_own_manifest_is_no_prepared_one(recordings: Path) -> None:
    (recordings / "manifest.json").write_text("{}")
    assert found(recordings).kind == "hapt"


def test_publishing_says_in_json_what_is_to_be_copied(recordings: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "cluster.data.publish", "--source", str(recordings), "--window-stride", "32"]
    environment = {**os.environ, "XDG_CACHE_HOME": str(tmp_path / "home")}
    outputs = [
        subprocess.run(command, cwd=PROJECT, env=environment, check=True, capture_output=True, text=True).stdout
        for _ in range(2)
    ]
    assert outputs[0] == outputs[1]
    made = json.loads(outputs[0])
    folder = Path(made["folder"])
    assert open_prepared(folder).folder == folder
    assert {path.name for path in folder.iterdir()} == set(made["files"])
    for name, about in made["files"].items():
        assert about == {"sha256": file_digest(folder / name), "bytes": (folder / name).stat().st_size}
    assert made["key"] != publishable(str(recordings), 128, 64, 0, tmp_path / "cache")["key"]


def test_publishing_what_is_not_there_is_one_line_and_exit_code_2(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "cluster.data.publish", "--source", str(tmp_path / "nothing.zip")]
    done = subprocess.run(command, cwd=PROJECT, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (2, "")
    assert len(done.stderr.splitlines()) == 1
    assert "no such file or folder" in done.stderr


def pictures(folder: Path) -> tuple[Path, dict[str, Any], dict[str, Any]]:
    for number in range(10):
        path = folder / "pets" / ("cat", "ape")[number % 2] / f"{number}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (8, 8), (number, 0, 0)).save(path)
    return folder / "pets", {"image_size": [4, 4]}, {"image_size": [5, 5]}


def table(folder: Path) -> tuple[Path, dict[str, Any], dict[str, Any]]:
    (folder / "t.csv").write_text("a,b,y\n" + "".join(f"{row},{row % 3},{row % 2}\n" for row in range(20)))
    return folder / "t.csv", {"columns": {"target": ["y"]}}, {"columns": {"target": ["b"]}}


@pytest.mark.parametrize("make", [pictures, table])
def test_other_examples_are_published_with_their_options(
    tmp_path: Path, make: Callable[[Path], tuple[Path, dict[str, Any], dict[str, Any]]]
) -> None:
    source, options, others = make(tmp_path)
    made = publishable(str(source), 128, 64, 0, tmp_path / "cache", options)
    folder = tmp_path / "prepared" / made["key"]
    folder.mkdir(parents=True)
    for name in made["files"]:
        shutil.copy(Path(made["folder"]) / name, folder)
    assert prepare(found(folder), cache=tmp_path, options=options, seed=9).folder == folder
    with pytest.raises(DataError, match=r"prepared with .*, expected .* as in the job"):
        prepare(found(folder), cache=tmp_path, options=others)
    with pytest.raises(DataError, match="unknown setting 'colour'"):
        prepare(found(folder), cache=tmp_path, options={"colour": 3})
