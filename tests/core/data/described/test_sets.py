"""Several sets as one: common channels and classes by name, and one set left out."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from core.data import Dataset, prepare
from core.data.folds import folds_of
from core.data.source import find_source
from tests.core.data.described.test_known_formats import ROWS, sample
from tests.core.data.desk import refused

FORMS = {row["format"]: row for row in ROWS}
WORDS = {
    "motionsense": {"walking": "walk", "standing": "stand"},
    "usc-had": {"walking forward": "walk", "elevator down": "stand"},
    "pamap2": {"walking": "walk", "rope jumping": "stand"},
}
SETS: dict[str, dict[str, Any]] = {
    name: {"data": name, "format": name, "labels": words} for name, words in WORDS.items()
}
SETS["pamap2"]["channels"] = {"chest_acc": "acc", "chest_gyro": "gyro"}


def written(folder: Path, **changes: Any) -> Path:
    """Made-up samples of three sets in their published forms, and the file that names them."""
    for name in SETS:
        if not (folder / name).exists():
            sample(FORMS[name], folder / name)
    path = folder / "sets.yaml"
    path.write_text(yaml.safe_dump({"hertz": 50, "sets": SETS, **changes}), encoding="utf-8")
    return path


def read(path: Path, **options: Any) -> Dataset:
    source = find_source(str(path), {}, path, path)
    assert source.kind == "sets"
    return prepare(
        source, window_steps=20, window_stride=20, cache=path.parent / "cache", options=options
    )


def test_windows_have_what_all_sets_have(tmp_path: Path) -> None:
    found = read(written(tmp_path), test_set="usc-had")
    assert found.labels == ("stand", "walk")
    assert found.channel_names == ("acc_x", "acc_y", "acc_z", "gyro_x", "gyro_y", "gyro_z")
    assert (found.units[0], found.units[3], found.sampling_hz) == ("g", "rad/s", 50)
    assert (found.held_out.by, found.held_out.groups) == ("set", tuple(sorted(SETS)))
    groups = np.array(found.held_out.groups)[found.subjects()]
    assert set(groups[: found.train_windows]) == {"motionsense", "pamap2"}
    assert set(groups[found.train_windows :]) == {"usc-had"}
    # Each sample is the same movement: two people, two labels, four seconds at 50 Hz.
    for name in SETS:
        own = found.windows()[groups == name]
        assert len(own) == 2 * 2 * 10
        middle = own.mean(axis=(0, 1))
        assert middle == pytest.approx([0.01, -0.02, 1.0, 0.1, -0.2, 0.3], abs=1e-4)
    folds = folds_of(found.subjects()[: found.train_windows], "groups", 0)
    assert [len(fold.groups) for fold in folds] == [1, 1]


def test_a_set_is_the_test_without_a_word_and_changed_data_are_read_again(tmp_path: Path) -> None:
    path = written(tmp_path)
    first = read(path)
    assert 0 < first.test_windows < first.train_windows
    assert read(path).folder == first.folder
    changed = tmp_path / "motionsense" / "A_DeviceMotion_data" / "wlk_7" / "sub_1.csv"
    lines = changed.read_text(encoding="utf-8").splitlines()
    changed.write_text("\n".join(lines[:-30]), encoding="utf-8")
    assert read(path).rows == first.rows - 2


@pytest.mark.parametrize(
    ("changes", "options", "says"),
    [
        ({"hertz": 0}, {}, "sets.yaml:1: hertz: Input should be greater than or equal to 1"),
        (
            {"sets": {"a": SETS["usc-had"]}},
            {},
            "sets.yaml:1: ... expected 2 to 64 sets; name others",
        ),
        ({"chanels": []}, {}, "chanels: Extra inputs"),
        ({}, {"test_set": "hapt"}, "test_set: expected one of motionsense, pamap2, usc-had, got"),
        ({"channels": ["mag"]}, {}, "'mag' of one unit in all sets, got motionsense: none"),
        (
            {"sets": {**SETS, "pamap2": {**SETS["pamap2"], "channels": {}}}},
            {},
            "no channel is in all sets (motionsense: acc, gyro; pamap2: hand_acc",
        ),
        (
            {"sets": {**SETS, "pamap2": {**SETS["pamap2"], "channels": {"hand_mag": "acc"}}}},
            {},
            "'acc' of one unit in all sets, got motionsense: g; pamap2: uT",
        ),
        (
            {"sets": {**SETS, "pamap2": {**SETS["pamap2"], "labels": {"walking": "walk"}}}},
            {},
            "expected at least 2 classes, got 'walk' alone ... pamap2: rope jumping, walk",
        ),
        (
            {"sets": {**SETS, "gone": {"data": "gone", "format": "hapt"}}},
            {},
            "sets.gone.data: no such file or folder",
        ),
        (
            {"sets": {**SETS, "x": {"data": "pamap2", "format": "pamap"}}},
            {},
            "unknown format 'pamap'; did you mean `pamap2`?",
        ),
        (
            {"sets": {**SETS, "x": {"data": "pamap2", "format": "hapt"}}},
            {},
            "expected intervals in a file RawData/labels.txt, found none",
        ),
    ],
)
def test_sets_that_have_too_little_in_common(
    changes: dict[str, Any], options: dict[str, Any], says: str, tmp_path: Path
) -> None:
    path = written(tmp_path, **changes)
    with refused(says):
        read(path, **options)
