"""A node that lies about the run of a job: nothing of the operator's is replaced, and no code comes
along."""

import json
import time
from pathlib import Path

import pytest

from cluster.apps import files as app_files
from cluster.apps.copy import FETCHED, keep, why_foreign
from cluster.apps.files import files_of_app
from core.ground.errors import ClusterError
from deploy.jobs.records import JobRecord, JobState, Submission, read_submission
from deploy.jobs.records import keep_submission as keep_submission
from tests.deploy.job_node import JobNode
from tests.deploy.tables import Tables

rows = Tables(__file__)

JOB = "20261121T2230-train"
NAME = "20261121T223100Z-train"
ASKED = Submission("train", time.mktime((2026, 11, 21, 22, 30, 0, 0, 0, 0)) - time.timezone)


@pytest.fixture
def node(node: JobNode, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> JobNode:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "own state"))
    return node


def there(node: JobNode, name: str = NAME, **content: str) -> JobRecord:
    """A run on the node, and the record of a job that names it."""
    run = node.folder / "mount/runs" / name
    for path, text in {"result.json": '{"status": "done"}', **content}.items():
        (run / path).parent.mkdir(parents=True, exist_ok=True)
        (run / path).write_text(text)
    return JobRecord(JOB, "train", JobState.DONE, exit_code=0, run_folder=str(run))


def mine(
    node: JobNode, name: str = NAME, mark: dict[str, str] | None = None, status: str = "done"
) -> Path:
    """A run of the operator's, before."""
    run = node.folder / "here/runs" / name
    run.mkdir(parents=True)
    (run / "weights").write_text("three weeks")
    (run / "result.json").write_text(json.dumps({"status": status}))
    if mark is not None:
        (run / FETCHED).write_text(json.dumps(mark))
    return run


def submitted(node: JobNode, submission: Submission = ASKED) -> None:
    keep_submission(node.inventory.cluster, "rpi11", JOB, submission)


def fetched(node: JobNode, record: JobRecord) -> Path:
    found = node.jobs().fetch(record, node.folder / "here/runs")
    assert found is not None
    return found


def test_a_fetched_run_says_where_it_came_from_and_may_be_fetched_again(node: JobNode) -> None:
    submitted(node)
    record = there(node, **{FETCHED: "forged"})
    for _ in range(2):
        run = fetched(node, record)
        assert json.loads((run / FETCHED).read_text()) == {"schema": 1, "node": "rpi11", "job": JOB}
        assert why_foreign(run) == f"was fetched from rpi11 (job {JOB})"


@pytest.mark.parametrize("known", [True, False], ids=["submitted here", "of another machine"])
@rows("name", "why")
def test_a_run_that_the_job_cannot_have_made_is_not_fetched(
    node: JobNode, name: str, why: str, known: bool
) -> None:
    if known:
        submitted(node)
    before = mine(node, name)
    with pytest.raises(ClusterError, match=f"names {name} as its run.*{why}"):
        node.jobs().fetch(there(node, name), before.parent)
    assert (before / "weights").read_text() == "three weeks"


@pytest.mark.parametrize(
    "mark", [None, {"node": "rpi11", "job": "20261120T2230-train"}, {"node": "rpi12", "job": JOB}]
)
@pytest.mark.parametrize("resumes", [False, True], ids=["a new run", "a resumed one"])
def test_a_run_of_another_job_stays(
    node: JobNode, mark: dict[str, str] | None, resumes: bool
) -> None:
    submitted(node, Submission("train", ASKED.begun, resumes=resumes))
    before = mine(node, mark=mark)
    with pytest.raises(
        ClusterError, match=rf"is here already .*move it elsewhere.*job attach --job {JOB}"
    ):
        fetched(node, there(node))
    assert (before / "weights").read_text() == "three weeks"
    before.rename(before.with_name("elsewhere"))
    fetched(node, there(node))


def test_a_resumed_run_replaces_what_came_of_it_before(node: JobNode) -> None:
    submitted(
        node,
        Submission.of("train", time.time(), "", ["--resume", f"/runs/{NAME}"]),
    )
    mine(node, mark={"node": "rpi11", "job": "20261120T2230-train"}, status="failed")
    assert not (fetched(node, there(node)) / "weights").exists()
    with pytest.raises(
        ClusterError, match=f"names 20261121T223200Z-train as its run, expected {NAME}"
    ):
        fetched(node, there(node, "20261121T223200Z-train"))


@pytest.mark.parametrize("app", ["", "a" * 64], ids=["none was sent", "another was sent"])
@pytest.mark.parametrize("below", ["", f"runs/1/{NAME}/"], ids=["of the job", "of a sweep's run"])
def test_code_that_was_not_sent_with_the_job_is_not_fetched(
    node: JobNode, app: str, below: str
) -> None:
    submitted(node, Submission("train", ASKED.begun, app))
    record = there(node, **{f"{below}app/app.py": "print('evil')\n", f"{below}app.json": "{}"})
    with pytest.raises(ClusterError, match="its run has code that was not sent with it"):
        fetched(node, record)
    assert not list((node.folder / "here").rglob("app*"))


def test_the_app_that_was_sent_comes_back_and_runs_without_a_flag(
    node: JobNode, tmp_path: Path
) -> None:
    app = tmp_path / "app.py"
    app.write_text("WIDTH = 8\n")
    planted = ("app/__pycache__/app.cpython-311.pyc", "app/numpy.pyc", "app/.venv/x.py")
    record = there(node)
    assert record.run_folder is not None
    digest = keep(files_of_app(app), Path(record.run_folder)).digest
    app_files.remember_digest(digest, "as a submission does")
    submitted(node, Submission("train", ASKED.begun, digest))
    for path in planted:
        there(node, **{path: "evil"})
    run = fetched(node, record)
    assert app_files.is_own(files_of_app(run / "app").digest)
    assert [path.name for path in (run / "app").rglob("*") if path.is_file()] == ["app.py"]


def test_code_of_a_job_of_another_machine_comes_and_does_not_run(node: JobNode) -> None:
    run = fetched(node, there(node, **{"app/app.py": "WIDTH = 8\n"}))
    assert not app_files.is_own(files_of_app(run / "app").digest)


def test_a_submission_is_written_down_with_what_was_sent(node: JobNode, tmp_path: Path) -> None:
    app = tmp_path / "app.py"
    app.write_text("WIDTH = 8\n")
    node.play("0")
    files = files_of_app(app)
    name = node.jobs().submit("train", ["--resume", "runs/one", "--quiet"], app=files)
    found = read_submission(node.inventory.cluster, "rpi11", name)
    assert found is not None
    assert (found.job, found.app, found.resumes, found.run) == ("train", files.digest, True, "one")
    assert app_files.is_own(files.digest)
    request = json.loads((node.root.job(name).path / "request.json").read_text())
    assert request["apps"] == [files.digest]


def test_only_the_files_of_a_run_come(node: JobNode, capsys: pytest.CaptureFixture[str]) -> None:
    submitted(node)
    foreign = ("conftest.py", "model/sitecustomize.py", "fetched.json")
    own = ("model/model.json", "coordinator.log", "files/a.py")
    record = there(node, **dict.fromkeys((*foreign, *own, "report.html"), "x"))
    run = fetched(node, record)
    came = {str(path.relative_to(run)) for path in run.rglob("*") if path.is_file()}
    assert came == {*own, "result.json", "fetched.json"}
    assert json.loads((run / FETCHED).read_bytes())["job"] == JOB
    assert "3 files that no run has stay there" in capsys.readouterr().err


def test_a_file_beyond_its_bound_ends_the_fetch(node: JobNode) -> None:
    submitted(node)
    record = there(node, sequence="9" * 65)
    with pytest.raises(ClusterError, match="sequence: expected at most 64 bytes, got 65"):
        fetched(node, record)
    assert not list((node.folder / "here/runs").iterdir())
