"""What a job refuses before anything is started: one line, exit status 2, no run."""

from pathlib import Path

import numpy as np
import pytest

from cluster.__main__ import main
from cluster.apps.app import load as load_app
from cluster.apps.networks import Kind, network_of
from cluster.engine.chaos import ChaosPlan
from cluster.errors import ExitCode, UsageError
from cluster.inventory import Inventory, load
from cluster.inventory.templates import local_inventory
from cluster.jobs.cancel import Cancel
from cluster.jobs.evaluate import EvaluateRun
from cluster.jobs.lifecycle import conduct
from cluster.jobs.progress import Display
from cluster.jobs.train import TrainRun
from cluster.jobs.train_result import store
from cluster.models.thesis import ThesisModel
from tests.jobs.cluster import own_recordings
from tests.jobs.test_model_store import stored
from worker_node.recordings import Standardization


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path


def inventory(folder: Path, *settings: str, servers: int = 1) -> Inventory:
    path = folder / "inventory.yaml"
    path.write_text(local_inventory(1, servers))
    mine = own_recordings(folder / "mine.npz")
    return load(path, [f"jobs.train.data.source={mine}", *settings])


def refusal(job: type[TrainRun | EvaluateRun], described: Inventory, folder: Path) -> str:
    """What the job says; it must say it in one line, and leave nothing."""
    display, cancel = Display(quiet=True), Cancel()
    with pytest.raises(UsageError) as caught:
        conduct(job(described, display, cancel), folder / "runs", cancel)
    assert caught.value.exit_code == ExitCode.BAD_USAGE
    assert not (folder / "runs").exists()
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        (("jobs.train.data.source=/nonexistent",), "/nonexistent"),
        (("jobs.train.batch_size=500",), "jobs.train.batch_size"),
        (("jobs.train.batch_size=350",), "at most 300"),  # one of four subjects is held out
        (("jobs.train.validation_subjects=4",), "validation_subjects"),
        (("jobs.train.validation_subjects=[9]",), "9 is not a training subject"),
    ],
)
def test_train_refuses(here: Path, settings: tuple[str, ...], words: str) -> None:
    described = inventory(here, "jobs.train.validation_subjects=1", *settings)
    assert words in refusal(TrainRun, described, here)


def test_early_stopping_is_refused_where_too_few_windows_leave_no_validation(here: Path) -> None:
    described = inventory(here, "jobs.train.batch_size=2", "jobs.train.early_stopping={patience: 2}")
    own_recordings(here / "mine.npz", train=8)
    content = dict(np.load(here / "mine.npz"))
    del content["subject_train"]
    np.savez(here / "mine.npz", **content)
    assert "it goes by the validation, for which these 8 training windows are too few" in refusal(
        TrainRun, described, here
    )


def test_a_weight_of_a_label_that_the_data_does_not_have_is_refused(here: Path) -> None:
    described = inventory(here, "jobs.train.validation_subjects=0", "jobs.train.class_weights={walking: 2}")
    said = refusal(TrainRun, described, here)
    assert "jobs.train.class_weights: 'walking' is not a label of this data: choose among 0, 1, 2, 3" in said


def test_faults_are_refused_where_there_is_no_worker_to_strike(here: Path) -> None:
    described = inventory(here, "jobs.train.mode=single")
    cancel = Cancel()
    job = TrainRun(described, Display(quiet=True), cancel, chaos=ChaosPlan.parse("late:0.1"))
    with pytest.raises(UsageError, match=r"--chaos: jobs\.train\.mode is single"):
        conduct(job, here / "runs", cancel)


@pytest.mark.parametrize(
    ("job", "faults", "words"),
    [
        ("train", "kill-worker:0.1", "--chaos kill-worker needs a supervisor"),
        ("pi", "kill-ps:0.1", "only train resumes after that"),
        ("pi", "kill-everybody:0.1", "no fault is called 'kill-everybody'"),
    ],
)
def test_faults_that_cannot_be_injected_are_refused_in_one_line(
    here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], job: str, faults: str, words: str
) -> None:
    monkeypatch.delenv("PSCLUSTER_SUPERVISOR", raising=False)
    described = inventory(here, f"runs={here / 'runs'}")
    assert main([job, "--inventory", str(described.path), "--chaos", faults]) == ExitCode.BAD_USAGE
    (line,) = capsys.readouterr().err.splitlines()
    assert words in line
    assert not (here / "runs").exists()


def test_train_refuses_more_servers_than_the_network_can_be_cut_for(here: Path) -> None:
    smallest = ("jobs.train.model.hidden=8", "jobs.train.model.n_stacked_layers=1")
    described = inventory(here, *smallest, servers=4)
    assert "use fewer parameter servers" in refusal(TrainRun, described, here)


def test_evaluate_refuses_a_model_that_is_not_there(here: Path) -> None:
    described = inventory(here, "jobs.evaluate.run=/nonexistent")
    assert "/nonexistent/model/model.json" in refusal(EvaluateRun, described, here)


def test_a_teacher_of_other_windows_is_refused_before_the_run(here: Path) -> None:
    (here / "run").mkdir()
    stored(here / "run" / "model", ThesisModel(hidden=8))
    (here / "run" / "result.json").write_text('{"status": "done"}')
    said = refusal(TrainRun, inventory(here, f"jobs.train.distill={{run: {here / 'run'}}}"), here)
    assert "the teacher takes windows of 16 x 2" in said
    assert "jobs.train.distill.run" in said


def test_evaluate_refuses_recordings_of_another_shape(here: Path) -> None:
    (here / "run").mkdir()
    stored(here / "run" / "model", ThesisModel(hidden=8))
    said = refusal(EvaluateRun, inventory(here, f"jobs.evaluate.run={here / 'run'}"), here)
    assert "windows of 16 x 2" in said
    assert "64 x 6" in said


APP = """
import keras
import numpy as np

def model(input_shape, outputs):
    return keras.Sequential([keras.Input(input_shape), keras.layers.Dense(outputs)])

def data(folder):
    x, y = np.ones((6, 4), "float32"), np.arange(24).reshape(6, 4) % 3
    return {"x_train": x, "y_train": y, "x_test": x, "y_test": y}
"""


def test_evaluate_refuses_classes_at_positions_for_a_model_of_one_class(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cluster.jobs.train_result.one_thread_an_operation", lambda: None)  # too late in this process
    run = here / "run"
    (run / "app").mkdir(parents=True)
    (run / "app" / "app.py").write_text(APP)
    network = network_of(load_app(run / "app"), Kind("classification", 3, (4,), "float32", (), "int32"), 0)
    nothing = Standardization(np.empty(0, np.float32), np.empty(0, np.float32))
    store(run / "model", network, network.initial(0), nothing, ("0", "1", "2"), "0" * 64)
    path = here / "inventory.yaml"
    path.write_text(local_inventory(1, 1))
    said = refusal(EvaluateRun, load(path, [f"jobs.evaluate.run={run}"]), here)
    assert "the model is for targets of one number an example" in said
    assert "has 4: evaluate it on data like that" in said
