"""The app of a sweep on its way to the nodes."""

from pathlib import Path

import pytest

from cluster.apps.copy import KeptApp, keep, kept
from cluster.apps.environments import ON_NODES
from cluster.apps.files import look
from cluster.errors import UsageError
from cluster.jobs.member import environment_here
from cluster.jobs.sweep_app import bring_app, forget_app

KEY = "0123456789abcdef"


@pytest.fixture
def copy(tmp_path: Path) -> KeptApp:
    app = tmp_path / "mine"
    (app / "parts").mkdir(parents=True)
    (app / "app.py").write_text("WIDTH = 8\n")
    (app / "parts" / "more.py").write_text("")
    sweep = tmp_path / "sweep"
    sweep.mkdir()
    return keep(look(app), sweep, data="/srv/rows")


def test_a_run_gets_the_sweeps_copy(copy: KeptApp, tmp_path: Path) -> None:
    run = tmp_path / "0001"
    run.mkdir()
    bring_app(copy, run)
    assert look(run / "app").digest == copy.digest
    bring_app(copy, run)
    assert look(run / "app").digest == copy.digest
    forget_app(run)
    forget_app(run)
    assert not (run / "app").exists()


def test_what_a_node_made_of_the_app_never_reaches_another(copy: KeptApp, tmp_path: Path) -> None:
    run = tmp_path / "0001"
    training = run / "20260101T000000Z-train"
    training.mkdir(parents=True)
    changed = tmp_path / "changed.py"
    changed.write_text("import os; os.system('true')\n")
    keep(look(changed), training, KEY, "/srv/other")
    (run / "app").mkdir()
    (run / "app" / "app.py").write_text("raise SystemExit\n")
    bring_app(copy, run)
    found = kept(training)
    assert found is not None
    assert (found.digest, found.environment, found.data) == (copy.digest, KEY, "/srv/rows")
    assert look(training / "app").digest == look(run / "app").digest == copy.digest


def test_links_and_damaged_records_of_a_node_lead_nowhere(copy: KeptApp, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "stays").write_text("")
    run = tmp_path / "0001"
    training = run / "20260101T000000Z-train"
    training.mkdir(parents=True)
    (run / "app").symlink_to(outside)
    (training / "app").symlink_to(outside)
    (training / "app.json").write_text("{")
    with pytest.raises(UsageError):
        kept(training)
    bring_app(copy, run)
    assert (outside / "stays").exists()
    found = kept(training)
    assert found is not None
    assert (found.digest, found.environment) == (copy.digest, "")


def test_a_run_names_the_environment_it_runs_in_on_a_node() -> None:
    assert environment_here(ON_NODES / KEY) == ["--environment", KEY]
    assert environment_here(Path("/usr")) == []
    assert environment_here(ON_NODES / "other") == []
