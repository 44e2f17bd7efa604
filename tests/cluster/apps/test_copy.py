"""The copy of an app that its run keeps: whole, checked, and what a resumed run goes on with."""

import json
from pathlib import Path
from typing import Any

import pytest

from cluster.apps import environments
from cluster.apps.copy import AppOfRun, app_to_evaluate, app_to_train, keep, recorded_app, with_app
from cluster.apps.files import files_of_app
from core.ground.errors import ClusterError, UsageError
from core.inventory import Inventory
from tests.cluster.apps.trees import one_node, write_app, write_tree
from tests.tables import table

KEY = "0123456789abcdef"
OTHER = "fedcba9876543210"


@pytest.fixture
def app(tmp_path: Path) -> Path:
    return write_app(tmp_path, "from parts import blocks\n")


@pytest.fixture
def run(tmp_path: Path) -> Path:
    folder = tmp_path / "runs/20261123T050000Z-train"
    folder.mkdir(parents=True)
    return folder


@pytest.fixture
def inventory(tmp_path: Path, app: Path, monkeypatch: pytest.MonkeyPatch) -> Inventory:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return one_node(tmp_path, "jobs.train.app=digits")


def change(app: Path) -> None:
    write_tree(app, {"app.py": "other = 1\n"})


def test_a_copy_is_the_app(app: Path, run: Path) -> None:
    made = keep(files_of_app(app), run, KEY, "/srv/pictures")
    assert recorded_app(run) == made
    assert (run / "app/parts/blocks.py").read_text() == "width = 8\n"
    assert files_of_app(run / "app").digest == made.digest == files_of_app(app).digest
    assert sorted(path.name for path in run.iterdir()) == ["app", "app.json"]


def test_a_run_without_one_has_none(run: Path) -> None:
    assert recorded_app(run) is None
    assert app_to_evaluate(one_node(run), run, "") is None


def test_half_a_copy_does_not_count_and_is_replaced(app: Path, run: Path) -> None:
    write_tree(run, {"app/half.py": ""})
    assert recorded_app(run) is None
    keep(files_of_app(app), run)
    assert not (run / "app/half.py").exists()


def test_an_app_that_changed_since_it_was_read_is_not_kept(app: Path, run: Path) -> None:
    found = files_of_app(app)
    change(app)
    with pytest.raises(UsageError, match="has changed"):
        keep(found, run)
    assert list(run.iterdir()) == []


def test_a_copy_that_somebody_changed_is_refused(app: Path, run: Path) -> None:
    keep(files_of_app(app), run)
    change(run / "app")
    with pytest.raises(UsageError, match="no longer the app that the run began with"):
        recorded_app(run)


@pytest.mark.parametrize(
    "content",
    table("cluster/apps/rows", "damaged records"),
    ids=str,
)
def test_a_damaged_record_is_one_line(run: Path, content: Any) -> None:
    write_tree(run, {"app/app.py": "", "app.json": json.dumps(content)})
    with pytest.raises(UsageError, match=r"app\.json: expected the record") as refused:
        recorded_app(run)
    assert "\n" not in str(refused.value)


def test_a_new_training_reads_the_app_where_it_lies_and_keeps_it(
    inventory: Inventory, app: Path, run: Path
) -> None:
    found = app_to_train(inventory, None, KEY)
    assert found is not None
    assert (found.path, found.environment, found.copy) == (app, KEY, None)
    assert with_app(inventory, found).jobs.train.app == str(app)
    with_copy = found.kept_with(run)
    assert with_copy.copy == recorded_app(run)
    assert with_copy.kept_with(run) is with_copy


def resumed(inventory: Inventory, run: Path, environment: str = "") -> AppOfRun:
    found = app_to_train(inventory, run, environment)
    assert found is not None
    return found


def test_a_resumed_run_goes_on_with_its_copy_and_says_what_changed(
    inventory: Inventory, app: Path, run: Path
) -> None:
    keep(files_of_app(app), run)
    same = resumed(inventory, run)
    assert (same.path, same.notes) == (run / "app", ())
    change(app)
    changed = resumed(inventory, run)
    (note,) = changed.notes
    assert changed.path == run / "app"
    assert "has changed since the run began" in note
    (app / "app.py").unlink()
    assert "continues with its own copy" in resumed(inventory, run).notes[0]
    assert resumed(one_node(run), run).notes == ()


def test_a_run_that_began_without_an_app_is_not_resumed_with_one(
    inventory: Inventory, run: Path
) -> None:
    write_tree(run, {"checkpoints/update-1.safetensors": ""})
    with pytest.raises(UsageError, match="began without an app"):
        app_to_train(inventory, run, "")


def test_a_run_that_died_before_its_copy_begins_again(
    inventory: Inventory, app: Path, run: Path
) -> None:
    found = resumed(inventory, run)
    assert found.path == app
    assert found.kept_with(run).copy == recorded_app(run)


def test_the_environment_is_that_of_the_beginning_while_it_is_there(
    inventory: Inventory, app: Path, run: Path
) -> None:
    keep(files_of_app(app), run, KEY)
    assert resumed(inventory, run, OTHER).environment == OTHER
    assert resumed(inventory, run).environment == KEY  # whose absence is an error then
    write_tree(environments.local_environments() / KEY, {"bin/python": "", ".complete": ""})
    assert resumed(inventory, run, OTHER).environment == KEY
    evaluated = app_to_evaluate(inventory, run, OTHER)
    assert evaluated is not None
    assert evaluated.environment == KEY


@pytest.mark.parametrize(
    ("key", "error", "says"),
    [
        (KEY, ClusterError, "name the app with --app"),
        ("../../../bin", UsageError, "16 hexadecimal digits"),
    ],
)
def test_an_environment_that_is_gone_is_one_clear_error(
    tmp_path: Path, key: str, error: type[Exception], says: str
) -> None:
    with pytest.raises(error, match=says):
        environments.continue_in(tmp_path, key, ["cluster", "train"])
