"""Where a job's windows come from: prepared here, or, on nodes, from the one folder they all see."""

from pathlib import Path
from typing import Any

import pytest

from cluster.data.publish import publishable
from cluster.data.synthetic_hhar import write_hhar
from cluster.errors import DataError
from cluster.inventory import Inventory, load
from cluster.jobs.cancel import Cancel
from cluster.jobs.progress import Display
from cluster.jobs.sources import load_dataset
from cluster.jobs.train_result import describe_dataset
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


class Said(Display):
    """A display that keeps its lines."""

    def __init__(self) -> None:
        super().__init__(quiet=True)
        self.lines: list[str] = []

    def say(self, line: str) -> None:
        self.lines.append(line)


def test_a_test_set_that_leaks_is_named_on_the_terminal_and_in_the_result(tmp_path: Path, cache: Path) -> None:
    path = tmp_path / "Phones_accelerometer.csv"
    write_hhar(path, people=3, devices=2, seconds=2.0)
    settings = [f"jobs.train.data.source={path}", "jobs.train.data.window_steps=50"]
    local = PROJECT / "inventories" / "local.yaml"
    for split, leak in (("groups", False), ("random", True)):
        display = Said()
        inventory = load(local, [*settings, f"jobs.train.data.split={split}"])
        dataset = load_dataset(inventory, display, Cancel(), lambda _: None)
        assert any("LEAK" in line for line in display.lines) == leak
        assert any("0 a, 1 b, 2 c" in line for line in display.lines) != leak
        found = describe_dataset(dataset)["held_out"]
        assert bool(found["leak"]) == leak
        assert found["by"] == ("window" if leak else "user")


class Recorded:
    """An app whose data() notes which folder it gets."""

    def __init__(self, folder: Path) -> None:
        self.file, self.folder, self.name, self.task = folder / "app.py", folder, "recorded", None
        self.given: list[Path] = []

    def has(self, name: str) -> bool:
        return name == "data"

    def call(self, name: str, folder: Path) -> None:
        self.given.append(folder)
        raise DataError("noted")


def test_windows_that_came_for_another_network_are_not_an_app_s_data(tmp_path: Path, cache: Path) -> None:
    made = publishable(str(own_recordings(tmp_path / "mine.npz")), 128, 64, 0, tmp_path / "published")
    (tmp_path / "pictures").mkdir()
    app: Any = Recorded(tmp_path)

    def asked(source: object, recorded: str | None) -> Path:
        described = sixteen_pis(f"jobs.train.data.source={source}")
        with pytest.raises(DataError, match="noted"):
            load_dataset(described, Display(quiet=True), Cancel(), lambda _: None, app, recorded)
        folder: Path = app.given[-1]
        return folder

    assert asked(made["folder"], str(tmp_path / "pictures")) == tmp_path / "pictures"
    assert asked(made["folder"], None) == tmp_path
    assert asked(tmp_path / "pictures", None) == tmp_path / "pictures"
