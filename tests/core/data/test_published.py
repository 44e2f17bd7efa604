"""A prepared folder that every node sees, made on one machine.

The others open it as it is, for the same settings.
"""

import json
import os
import shutil
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from core.data import open_prepared
from core.data.archive import file_digest
from core.data.publish import publishable
from tests.core.data.desk import Desk, edit_manifest, has, refused, says
from tests.core.data.makers import hapt_files
from tests.core.data.npz_files import cut_arrays
from tests.ran import python


def publish(desk: Desk, name: str, content: Any, **options: Any) -> Path:
    """Put a set where the storage server has it: named after the key, with marker and sums."""
    source = desk.write(name, content)
    made = publishable(str(source), 128, 64, 0, desk.cache, options)
    folder = Path(shutil.copytree(made["folder"], desk.folder / "prepared" / made["key"]))
    (folder / "SHA256SUMS").touch()
    (folder / ".complete").touch()
    return folder


@pytest.fixture
def published(desk: Desk) -> Path:
    """A published set, read-only."""
    folder = publish(desk, "set", hapt_files())
    folder.chmod(0o555)
    return folder


def test_it_is_opened_where_it_lies_and_nothing_is_written(desk: Desk, published: Path) -> None:
    def times() -> dict[str, int]:
        return {path.name: path.stat().st_mtime_ns for path in published.iterdir()}

    before = times()
    assert desk.source(published).kind == "prepared"
    expected = desk.read("set").sha256
    desk.cache = desk.folder / "never made"
    has(desk.read(published), folder=published, sha256=expected)
    assert times() == before
    assert stat.S_IMODE(published.stat().st_mode) == 0o555
    assert not desk.cache.exists()


def test_the_seed_matters_to_synthetic_recordings_only(desk: Desk, published: Path) -> None:
    desk.read(published, seed=7)
    synthetic = Path(publishable("synthetic", 128, 64, 3, desk.cache)["folder"])
    assert desk.read(synthetic, seed=3).folder == synthetic
    desk.refuses("prepared with seed 3, expected 0", synthetic, seed=0)


def test_windows_that_came_cut_have_the_length_they_have(desk: Desk) -> None:
    made = publish(desk, "mine.npz", cut_arrays())
    assert desk.read(made).window_steps == 16
    assert desk.read(made, window_steps=16, window_stride=8).window_steps == 16
    desk.refuses("prepared with window_steps 16, expected 32", made, window_steps=32)


@pytest.mark.parametrize(
    "damage",
    [
        lambda folder: (folder / "classes.i32").unlink(),
        lambda folder: edit_manifest(folder, preparation=None),
    ],
)
def test_a_damaged_one_is_an_error_and_never_repaired(
    desk: Desk, damage: Callable[[Path], Any]
) -> None:
    published = publish(desk, "mine.npz", cut_arrays())
    damage(published)
    with refused("prepare the data again"):
        desk.read(published)


def test_a_folder_with_its_own_manifest_is_no_prepared_one(desk: Desk) -> None:
    desk.write("set", hapt_files() | {"manifest.json": b"{}"})
    assert desk.source("set").kind == "hapt"


def published_by_command(source: Path, cache: Path, code: int = 0) -> str:
    words = ("-m", "core.data.publish", "--window-stride", "32", "--source", source)
    return python(*words, code=code, environment={**os.environ, "XDG_CACHE_HOME": str(cache)})


def test_publishing_says_in_json_what_is_to_be_copied(desk: Desk) -> None:
    source = desk.write("mine.npz", cut_arrays())
    made = json.loads(published_by_command(source, desk.folder))
    again = publishable(str(source), 128, 32, 0, Path(made["folder"]).parent)
    assert made == again, "the key and the folder are those of the same settings"
    folder = Path(made["folder"])
    assert open_prepared(folder).folder == folder
    assert made["files"] == {
        path.name: {"sha256": file_digest(path), "bytes": path.stat().st_size}
        for path in folder.iterdir()
    }


def test_publishing_what_is_not_there_is_one_line_and_exit_code_2(tmp_path: Path) -> None:
    said = published_by_command(tmp_path / "nothing.zip", tmp_path, code=2)
    says(said.removesuffix("\n"), "no such file or folder")


def test_an_unknown_setting_is_refused(desk: Desk, published: Path) -> None:
    with refused("unknown setting 'colour'"):
        desk.read(published, colour=3)
