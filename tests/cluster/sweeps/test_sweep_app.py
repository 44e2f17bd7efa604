"""The app of a sweep on its way to the nodes."""

from pathlib import Path
from typing import Any

import pytest

from cluster.apps.copy import KeptApp, app_to_train, keep, recorded_app
from cluster.apps.environments import ON_NODES
from cluster.apps.files import DIGESTS_VARIABLE, files_of_app
from cluster.programs.frames import bytes_back
from cluster.sweeps.executors import bring_app, settle_app
from cluster.sweeps.member import environment_here, resumed_in
from core.ground.errors import UsageError
from tests.cluster.apps.planted import plant
from tests.cluster.apps.trees import one_node, write_tree

KEY = "0123456789abcdef"


TRAINING = "20260101T000000Z-train"


@pytest.fixture
def copy(tmp_path: Path) -> KeptApp:
    app = write_tree(tmp_path / "mine", {"app.py": "WIDTH = 8\n", "parts/more.py": ""})
    (tmp_path / "sweep").mkdir()
    return keep(files_of_app(app), tmp_path / "sweep", data="/srv/rows")


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """The folder of a run, with that of its training."""
    (tmp_path / "0001" / TRAINING).mkdir(parents=True)
    return tmp_path / "0001"


def test_a_run_gets_the_sweeps_copy(copy: KeptApp, tmp_path: Path) -> None:
    run = tmp_path / "empty"
    run.mkdir()
    for _ in range(2):
        bring_app(copy, run)
        assert files_of_app(run / "app").digest == copy.digest
    for _ in range(2):
        settle_app(copy, run)
        assert list(run.iterdir()) == []


def test_what_a_node_made_of_the_app_never_reaches_another(
    copy: KeptApp, run: Path, tmp_path: Path
) -> None:
    changed = {
        "changed.py": "import os; os.system('true')\n",
        "0001/app/app.py": "raise SystemExit\n",
    }
    write_tree(tmp_path, changed)
    keep(files_of_app(tmp_path / "changed.py"), run / TRAINING, KEY, "/srv/other")
    bring_app(copy, run)
    found = recorded_app(run / TRAINING)
    assert found is not None
    assert (found.digest, found.environment, found.data) == (copy.digest, "", "/srv/rows")
    assert (
        files_of_app(run / TRAINING / "app").digest
        == files_of_app(run / "app").digest
        == copy.digest
    )


def test_links_and_damaged_records_of_a_node_lead_nowhere(
    copy: KeptApp, run: Path, tmp_path: Path
) -> None:
    outside = write_tree(tmp_path / "outside", {"stays": ""})
    for place in (run, run / TRAINING):
        (place / "app").symlink_to(outside)
    write_tree(run / TRAINING, {"app.json": "{"})
    with pytest.raises(UsageError):
        recorded_app(run / TRAINING)
    bring_app(copy, run)
    assert (outside / "stays").exists()
    found = recorded_app(run / TRAINING)
    assert found is not None
    assert (found.digest, found.environment) == (copy.digest, "")


@pytest.mark.parametrize("settle", [settle_app, bring_app])
def test_what_a_node_sent_of_an_app_goes_also_from_a_sweep_without_one(
    run: Path, settle: Any
) -> None:
    for place in (run, run / TRAINING, run / "other"):
        write_tree(place, {"app/app.py": "", "app.json": ""})
    settle(None, run)
    assert [path.name for path in run.rglob("app*")] == []


@pytest.mark.parametrize(
    "path",
    [
        f"{TRAINING}/checkpoints/update-1.json",
        f"{TRAINING}/result.json",
        f"{TRAINING}-2/model/weights.safetensors",
    ],
)
def test_what_a_run_left_travels_back(path: str) -> None:
    assert bytes_back(Path(path).parts) > 0


def test_a_member_of_a_sweep_without_an_app_takes_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = tmp_path / TRAINING
    digest = plant(run, tmp_path / "mark", record=True, finished=False)

    def refused(said: str, resumed: Path | None, *overrides: str) -> None:
        with pytest.raises(UsageError, match=said):
            app_to_train(one_node(tmp_path, *overrides), resumed, "", member=True)

    refused(f"--trust-app {digest}", run)
    assert resumed_in(tmp_path) == []
    monkeypatch.setenv(DIGESTS_VARIABLE, digest)
    refused("has an app, and the sweep has none", run)
    monkeypatch.setenv(DIGESTS_VARIABLE, "")
    refused(f"--trust-app {digest}", None, f"jobs.train.app={run / 'app'}")
    assert not (tmp_path / "mark").exists()


def test_a_run_names_the_environment_it_runs_in_on_a_node() -> None:
    assert environment_here(ON_NODES / KEY) == ["--environment", KEY]
    assert environment_here(Path("/usr")) == []
    assert environment_here(ON_NODES / "other") == []
