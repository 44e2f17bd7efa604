"""Where a job's windows come from: prepared here, or in the one folder that nodes see."""

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks.synthetic_hhar import write_hhar
from cluster.apps.app import App
from cluster.jobs.cancel import Cancel
from cluster.jobs.progress import Display
from cluster.jobs.sources import load_dataset
from cluster.jobs.train_result import describe_dataset
from core.data import Dataset
from core.data.publish import publishable
from core.ground.errors import DataError, UsageError
from core.inventory import load
from tests.cluster.jobs.cluster import PROJECT, own_recordings
from tests.core.data.described.movement import DESCRIBED_SO, EVERYONE, Form, put


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache"


def loaded(source: object, *others: Any) -> Dataset:
    """What nodes take of it; `others` as those of `load_dataset`."""
    inventory = load(PROJECT / "inventory.yaml", [f"jobs.train.data.source={source}"])
    return load_dataset(inventory, Display(quiet=True), Cancel(), lambda _: None, *others)


def data_of_job(*settings: str) -> Dataset:
    """What a job on this machine trains with."""
    inventory = load(PROJECT / "inventories" / "local.yaml", settings)
    return load_dataset(inventory, Display(), Cancel(), lambda _: None)


@pytest.fixture
def published(tmp_path: Path) -> Path:
    """A folder that all nodes see."""
    mine = own_recordings(tmp_path / "mine.npz")
    return Path(publishable(str(mine), 128, 64, 0, tmp_path / "published")["folder"])


def test_nodes_open_the_published_folder_and_prepare_nothing(published: Path, cache: Path) -> None:
    assert loaded(published).folder == published
    assert not cache.exists()


@pytest.mark.parametrize("source", ["null", "synthetic", "{folder}/mine.npz"])
def test_nodes_take_nothing_that_would_have_to_be_prepared(
    tmp_path: Path, cache: Path, source: str
) -> None:
    own_recordings(tmp_path / "mine.npz")
    with pytest.raises(
        DataError, match=r"expected a prepared folder .*/shared/prepared/<key>, got"
    ) as caught:
        loaded(source.format(folder=tmp_path))
    assert "\n" not in str(caught.value)
    assert not cache.exists()


def test_a_test_set_that_leaks_is_named_on_the_terminal_and_in_the_result(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "Phones_accelerometer.csv"
    write_hhar(path, people=3, devices=2, seconds=2.0)
    settings = [f"jobs.train.data.source={path}", "jobs.train.data.window_steps=50"]
    for split, by, leak in (("groups", "user", False), ("random", "window", True)):
        dataset = data_of_job(*settings, f"jobs.train.data.split={split}")
        said = " ".join(capsys.readouterr().err.split())
        assert ("LEAK" in said, "0 a, 1 b, 2 c" in said) == (leak, not leak)
        found = describe_dataset(dataset)["held_out"]
        assert (bool(found["leak"]), found["by"]) == (leak, by)


def test_described_recordings_are_those_of_a_job(tmp_path: Path) -> None:
    """The run keeps who and what was read, and the preparation the whole format."""
    folder = tmp_path / "own"
    put(folder, {"r.csv": Form().bytes_of(EVERYONE)}, {"files": "*.csv", **DESCRIBED_SO})
    (folder / "format.yaml").rename(tmp_path / "own.yaml")
    keys = {"source": folder, "format": tmp_path / "own.yaml", "window_steps": 32}
    settings = [f"jobs.train.data.{key}={value}" for key, value in keys.items()]
    dataset = data_of_job(*settings)
    found = describe_dataset(dataset)
    assert found["channel_names"][:3] == ["acc_x", "acc_y", "acc_z"]
    assert list(found["held_out"]["groups"]) == ["anna", "bert", "cleo"]
    prepared = json.loads((dataset.folder / "manifest.json").read_text(encoding="utf-8"))
    assert prepared["preparation"]["format"]["files"] == ["*.csv"]


def test_windows_that_came_for_another_network_are_not_an_app_s_data(
    tmp_path: Path, published: Path
) -> None:
    pictures = tmp_path / "pictures"
    pictures.mkdir()
    found: list[Path] = []

    def data(folder: Path) -> None:
        found.append(folder)
        raise DataError("noted")

    app = App("recorded", tmp_path / "app.py", None, {"data": data})
    for source, recorded in ((published, str(pictures)), (published, None), (pictures, None)):
        with pytest.raises(UsageError, match="noted"):
            loaded(source, app, recorded)
    assert found == [pictures, tmp_path, pictures]
