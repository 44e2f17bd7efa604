"""Several sets as one: common channels and classes by name, and one set left out."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from core.data import Dataset, prepare
from core.data.source import find_source
from core.data.split import folds_of
from tests.core.data.described.test_known_formats import BY_NAME, sample
from tests.core.data.desk import refused
from tests.tables import table

SETS: dict[str, dict[str, Any]] = table("core/data/tables", "sets")


def written(folder: Path, **changes: Any) -> Path:
    """Made-up samples of three sets in their published forms, and the file that names them."""
    for name in SETS:
        if not (folder / name).exists():
            sample(BY_NAME[name], folder / name)
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
    assert found.signals.channels == ("acc_x", "acc_y", "acc_z", "gyro_x", "gyro_y", "gyro_z")
    assert (found.signals.units[::3], found.signals.sampling_hz) == (("g", "rad/s"), 50)
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


@pytest.mark.parametrize("row", table("core/data/described/sets"))
def test_sets_that_have_too_little_in_common(row: dict[str, Any], tmp_path: Path) -> None:
    changes = row.get("changes", {})
    if "pamap2" in row:
        changes = {"sets": {**SETS, "pamap2": {**SETS["pamap2"], **row["pamap2"]}}}
    path = written(tmp_path, **changes)
    with refused(row["says"]):
        read(path, **row.get("options", {}))
