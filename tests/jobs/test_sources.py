"""Where a job's windows come from: prepared here, or, on nodes, from the one folder they all see."""

from pathlib import Path

import pytest

from cluster.data.publish import publishable
from cluster.errors import DataError
from cluster.inventory import Inventory, load
from cluster.jobs.cancel import Cancel
from cluster.jobs.progress import Display
from cluster.jobs.sources import load_dataset
from tests.jobs.cluster import PROJECT, own_recordings


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache"


def sixteen_pis(*settings: str) -> Inventory:
    return load(PROJECT / "inventory.yaml", settings)


def test_nodes_open_the_published_folder_and_prepare_nothing(tmp_path: Path, cache: Path) -> None:
    mine = own_recordings(tmp_path / "mine.npz")
    made = publishable(str(mine), 128, 64, 0, tmp_path / "published")
    described = sixteen_pis(f"jobs.train.data.source={made['folder']}")
    dataset = load_dataset(described, Display(quiet=True), Cancel(), lambda _: None)
    assert dataset.folder == Path(made["folder"])
    assert not cache.exists()


@pytest.mark.parametrize("source", ["null", "synthetic", "mine.npz"])
def test_nodes_take_nothing_that_would_have_to_be_prepared(tmp_path: Path, cache: Path, source: str) -> None:
    given = str(own_recordings(tmp_path / source)) if source.endswith(".npz") else source
    with pytest.raises(DataError, match=r"expected a prepared folder .*/shared/prepared/<key>, got") as caught:
        load_dataset(sixteen_pis(f"jobs.train.data.source={given}"), Display(quiet=True), Cancel(), lambda _: None)
    assert "\n" not in str(caught.value)
    assert not cache.exists()
