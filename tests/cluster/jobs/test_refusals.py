"""What a job refuses before anything is started: one line, exit status 2, no run."""

import socket
from contextlib import ExitStack, nullcontext
from http import HTTPStatus
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from cluster.__main__ import _parser, _training, main
from cluster.apps.app import load as load_app
from cluster.apps.app_network import Kind
from cluster.apps.copy import AppOfRun, keep
from cluster.apps.files import files_of_app, remember_digest
from cluster.apps.networks import network_of
from cluster.jobs import session
from cluster.jobs.cancel import Cancel, JobCancelled
from cluster.jobs.cv import CrossValidationRun
from cluster.jobs.evaluate import EvaluateRun
from cluster.jobs.job_metrics import CoordinatorMetrics
from cluster.jobs.progress import Display
from cluster.jobs.run_folder import JobLogging
from cluster.jobs.session import DRAIN_ANSWERS
from cluster.jobs.train import TrainRun
from cluster.jobs.train_result import StoredModel, store
from core.data.signals import Signals
from core.engine import changes
from core.engine.changes import Drain, ParameterServerLost
from core.engine.chaos import ChaosPlan
from core.engine.guardian import Loss
from core.ground.errors import ClusterError, ExitCode, UsageError
from core.models.network import build
from core.models.thesis import ThesisModel
from tests.cluster.jobs.cluster import own_recordings
from tests.cluster.jobs.kit import inventory_in, refusal, with_recordings
from tests.cluster.jobs.test_model_store import stored
from tests.tables import table
from worker_node.recordings import Standardization


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path


@pytest.fixture
def run(here: Path) -> Path:
    """A run with a model of windows of 16 x 2."""
    stored(here / "run" / "model", ThesisModel(hidden=8))
    (here / "run" / "result.json").write_text('{"status": "done"}')
    return here / "run"


@pytest.mark.parametrize(
    ("settings", "words"),
    table("cluster/jobs/rows", "train refuses"),
)
def test_train_refuses(here: Path, settings: str, words: str) -> None:
    held_out = "jobs.train.validation_subjects=1"
    described = with_recordings(here, held_out, f"jobs.train.{settings}")
    assert words in refusal(TrainRun, described, here)


@pytest.mark.parametrize(
    ("settings", "words"),
    table("cluster/jobs/rows", "cv refuses"),
)
def test_cv_refuses(here: Path, settings: str, words: str) -> None:
    mode = "async" if "codec" in settings else "single"
    few = (f"jobs.train.mode={mode}", "jobs.train.slots=2", "jobs.cv.folds=2")
    assert words in refusal(CrossValidationRun, with_recordings(here, *few, settings), here)


def test_early_stopping_is_refused_where_too_few_windows_leave_no_validation(here: Path) -> None:
    path = own_recordings(here / "mine.npz", train=8)
    content = dict(np.load(path))
    del content["subject_train"]
    np.savez(path, **content)
    early = ("jobs.train.batch_size=2", "jobs.train.early_stopping={patience: 2}")
    said = refusal(TrainRun, with_recordings(here, *early), here)
    assert "it goes by the validation, for which these 8 training windows are too few" in said


def test_faults_are_refused_where_there_is_no_worker_to_strike(here: Path) -> None:
    described = with_recordings(here, "jobs.train.mode=single")
    said = refusal(TrainRun, described, here, chaos=ChaosPlan.parse("late:0.1"))
    assert "--chaos: jobs.train.mode is single" in said


@pytest.mark.parametrize(
    ("words", "said"),
    table("cluster/jobs/rows", "flags"),
)
def test_flags_that_this_job_cannot_have_are_refused_in_one_line(
    here: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    words: str,
    said: str,
) -> None:
    monkeypatch.delenv("PSCLUSTER_SUPERVISOR", raising=False)
    monkeypatch.chdir(here)
    path = inventory_in(here).path
    assert main([*words.split(), "--inventory", str(path)]) == ExitCode.BAD_USAGE
    (line,) = capsys.readouterr().err.splitlines()
    assert said in line
    assert not (here / "runs").exists()


def test_train_refuses_more_servers_than_the_network_can_be_cut_for(here: Path) -> None:
    smallest = ("jobs.train.model.hidden=8", "jobs.train.model.n_stacked_layers=1")
    described = with_recordings(here, *smallest, servers=4)
    assert "use fewer parameter servers" in refusal(TrainRun, described, here)


@pytest.mark.parametrize(
    "order", ["train --then evaluate", "run --of 1", "sweep --of 1", "train --then pi --of 1"]
)
def test_an_order_of_jobs_is_refused_unless_its_number_fits(
    here: Path, capsys: pytest.CaptureFixture[str], order: str
) -> None:
    assert main([*order.split(), "--inventory", str(here / "any.yaml")]) == ExitCode.BAD_USAGE
    assert "--of " in capsys.readouterr().err


def test_a_process_of_several_jobs_does_not_change_its_environment(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def app(*_: object) -> AppOfRun:
        return AppOfRun(here / "mine", None, None, "0123456789abcdef", None)

    monkeypatch.setattr("cluster.__main__.app_to_evaluate", app)
    monkeypatch.setattr("cluster.__main__.continue_in", pytest.fail)
    options = _parser().parse_args(["evaluate", "--of", "1", "--inventory", "any.yaml"])
    with pytest.raises(UsageError, match=r"mine has requirements of its own: run evaluate by its"):
        _training(options, with_recordings(here, "jobs.evaluate.run=any"), JobLogging())


def test_evaluate_refuses_a_model_that_is_not_there(here: Path) -> None:
    described = with_recordings(here, "jobs.evaluate.run=/nonexistent")
    assert "/nonexistent/model/model.json" in refusal(EvaluateRun, described, here)


def test_evaluate_refuses_recordings_of_another_shape(here: Path, run: Path) -> None:
    said = refusal(EvaluateRun, with_recordings(here, f"jobs.evaluate.run={run}"), here)
    assert "windows of 16 x 2" in said
    assert "64 x 6" in said


def run_of_recordings(here: Path, labels: str = "0123", hertz: float | None = None) -> Path:
    """A run with a model of windows like those of `with_recordings`."""
    network = build(ThesisModel(hidden=8), window_steps=64, channels=6, classes=4)
    plain = Standardization(np.zeros(6, np.float32), np.ones(6, np.float32))
    facts = Signals(sampling_hz=hertz)
    model = StoredModel(network, network.initial(0), plain, tuple(labels), "", facts)
    store(here / "run" / "model", model)
    (here / "run" / "result.json").write_text('{"status": "done"}')
    return here / "run"


def test_evaluate_refuses_windows_of_another_rate(here: Path) -> None:
    run = run_of_recordings(here, hertz=50.0)
    described = with_recordings(here, f"jobs.evaluate.run={run}")
    with np.load(here / "mine.npz") as arrays:
        np.savez(here / "mine.npz", **arrays, sampling_hz=25.0)
    assert "sampling_hz: expected those of the model, 50.0" in refusal(EvaluateRun, described, here)


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
    monkeypatch.setattr(
        "cluster.jobs.train_result.one_thread_an_operation", lambda: None
    )  # too late in this process
    run = here / "run"
    run.mkdir()
    path = here / "mine.py"
    path.write_text(APP)
    remember_digest(keep(files_of_app(path), run).digest, "mine")
    kind = Kind("classification", 3, (4,), "float32", (), "int32")
    network = network_of(load_app(path), kind, 0)
    nothing = Standardization(np.empty(0, np.float32), np.empty(0, np.float32))
    model = StoredModel(network, network.initial(0), nothing, ("0", "1", "2"), "0" * 64)
    store(run / "model", model)
    said = refusal(EvaluateRun, inventory_in(here, f"jobs.evaluate.run={run}"), here)
    assert "the model is for targets of one number an example" in said
    assert "has 4: evaluate it on data like that" in said


@pytest.mark.parametrize(
    ("accepts", "kind", "words"),
    [
        (True, ParameterServerLost, "it is stopped or hangs"),
        (False, ClusterError, "is it started, and on this port"),
    ],
)
def test_a_server_that_does_not_answer_is_stopped_or_not_started(
    here: Path,
    monkeypatch: pytest.MonkeyPatch,
    accepts: bool,
    kind: type[ClusterError],
    words: str,
) -> None:
    monkeypatch.setattr(session, "answering", lambda *_: set())
    monkeypatch.setattr(session, "accepts", lambda *_: accepts)
    with Display(quiet=True) as display, pytest.raises(ClusterError, match=words) as caught:
        session.Session(inventory_in(here), Cancel(), CoordinatorMetrics(muted=True), display)
    assert type(caught.value) is kind


@pytest.mark.parametrize(
    ("labels", "words"),
    [
        ("0124", "has the class '4', the recordings have 0, 1, 2, 3: add recordings of it"),
        ("1023", "has its classes in another order, 1, 0, 2, 3: take"),
    ],
)
def test_a_model_of_other_classes_is_not_continued(here: Path, labels: str, words: str) -> None:
    run = run_of_recordings(here, labels)
    described = with_recordings(here, f"jobs.train.from_run={run}")
    assert words in refusal(TrainRun, described, here)


def test_cv_takes_no_faults_and_no_run_that_saw_its_people(here: Path) -> None:
    described = with_recordings(here, "jobs.train.mode=single")
    chaos = ChaosPlan.parse("late:0.1")
    assert "--chaos: strikes a training" in refusal(
        CrossValidationRun, described, here, chaos=chaos
    )
    described = with_recordings(here, "jobs.train.mode=single", "jobs.train.from_run=/run")
    said = refusal(CrossValidationRun, described, here)
    assert "jobs.train.from_run: that run saw people whom a fold holds out" in said


@pytest.mark.parametrize(
    ("name", "status"), [("worker:1", 409), ("worker:1234567", 404), ("ps:0", 404), ("", 404)]
)
def test_what_cannot_be_drained_while_no_worker_works(name: str, status: int) -> None:
    assert session.drain(None, name, 1.0)[0] == status


def test_a_taken_port_of_the_coordinator_is_one_line(here: Path) -> None:
    inventory = inventory_in(here)
    port = inventory.task("coordinator", 0).port
    with socket.create_server(("127.0.0.1", port)), pytest.raises(ClusterError) as caught:
        session.Session(inventory, Cancel(), CoordinatorMetrics(muted=True))
    assert caught.value.exit_code == ExitCode.PORT_TAKEN
    assert str(port) in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("raised", "lost"), [(ValueError, True), (JobCancelled, False), (None, False)]
)
def test_what_fails_of_a_server_that_was_cut_off_says_so(
    monkeypatch: pytest.MonkeyPatch, raised: type[Exception] | None, lost: bool
) -> None:
    monkeypatch.setattr(changes, "losses", lambda: [Loss("ps:0", "127.0.0.1:1", 10)])
    ended = session.Session.__new__(session.Session)
    ended._stack = ExitStack()
    with pytest.raises(ParameterServerLost) if lost else nullcontext():
        ended.__exit__(raised, None, None)


@pytest.mark.parametrize(("name", "status"), table("cluster/jobs/rows", "drains"))
def test_a_drain_is_of_a_worker_once_there_are_some(name: str, status: int) -> None:
    last: Any = SimpleNamespace(drain=lambda task, seconds: Drain.LAST)
    assert session.drain(None, name, 1.0)[0] == status
    expected = DRAIN_ANSWERS[Drain.UNKNOWN if status == HTTPStatus.NOT_FOUND else Drain.LAST]
    assert session.drain(last, name, 1.0) == expected
