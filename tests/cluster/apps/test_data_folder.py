"""Where the data of apps lies, and what of it stays."""

import os
from pathlib import Path

import pytest

from cluster.apps.environments import app_data_folder, keep_latest
from core.inventory import Inventory, load
from tests.cluster.apps.trees import ONE_NODE, one_node


@pytest.fixture
def machines(tmp_path: Path) -> Inventory:
    file = tmp_path / "machines.yaml"
    nodes = ONE_NODE.replace("[ps", "[storage, ps")
    file.write_text(f"{nodes}connection: ssh\nstorage: {{server: pi, mount: {tmp_path}/mount}}\n")
    return load(file)


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Inventory:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return one_node(tmp_path)


def test_it_is_the_shared_folder_on_machines_and_the_cache_on_one(
    machines: Inventory, here: Inventory, tmp_path: Path
) -> None:
    assert app_data_folder(machines) == tmp_path / "mount/data"
    assert app_data_folder(here) == tmp_path / "cache/pscluster/prepared"


def test_the_latest_stay_and_the_one_in_use(machines: Inventory) -> None:
    folder = app_data_folder(machines)
    for age, name in enumerate(("newest", "newer", "old", "older", "oldest")):
        (folder / name / "inside").mkdir(parents=True)
        os.utime(folder / name, (1000 - age, 1000 - age))
    (folder / "link").symlink_to(folder.parent)
    keep_latest(machines, "oldest")
    assert {path.name for path in folder.iterdir()} == {"newest", "newer", "oldest", "link"}
    keep_latest(machines, "old")
    assert (folder / "oldest").exists(), "the one used last is the latest of all"


def test_the_cache_of_one_machine_keeps_all(here: Inventory) -> None:
    for number in range(6):
        (app_data_folder(here) / str(number)).mkdir(parents=True)
    keep_latest(here, "0")
    assert len(list(app_data_folder(here).iterdir())) == 6


def test_a_folder_that_is_not_there_is_no_error(machines: Inventory) -> None:
    keep_latest(machines, "first")
    assert not app_data_folder(machines).exists()
