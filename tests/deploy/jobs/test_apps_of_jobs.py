"""What a job takes along of its app, on the way to a node that is this machine."""

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cluster.apps.files import look
from cluster.errors import ClusterError, ExitCode, UsageError
from cluster.inventory import Inventory, load
from cluster.programs.wish import ProgramWish
from deploy.cluster.cluster import local, over_ssh
from deploy.cluster.connector import NodeUnreachableError
from deploy.cluster.fleet import Fleet
from deploy.cluster.local import Local
from deploy.jobs import attached_job
from deploy.jobs.apps import NO_APP, AppOfJob, app_of_job, reads_its_data, refuse_missing_data, refuse_missing_recording
from deploy.jobs.program_runners import program_tasks
from deploy.jobs.request import JobRequest, request_of
from deploy.jobs.services import ForegroundJobs
from deploy.supervisor.services import Supervised
from tests.apps.two_files import write_app
from tests.deploy.job_node import JobNode

KEY = "0123456789abcdef"
HERE = "schema: 1\ncluster: here\nnodes: [{name: pi, address: 127.0.0.1, roles: [ps, worker, coordinator]}]\n"

THREE = """schema: 1
cluster: three
connection: ssh
nodes:
  - {name: a, address: 192.168.1.16, roles: [storage, ps, coordinator]}
  - {name: b, address: 192.168.1.17, roles: [worker, worker: {port: 3001, metrics_port: 3002}]}
  - {name: c, address: 192.168.1.18, roles: [worker]}
storage: {server: a}
"""


@pytest.fixture
def node(tmp_path: Path) -> Iterator[JobNode]:
    made = JobNode(tmp_path)
    yield made
    made.end()


@pytest.fixture
def app(tmp_path: Path) -> Path:
    entry = "from parts.blocks import data\n\n\ndef model(input_shape, outputs): ...\n"
    return write_app(tmp_path, entry, "def data(folder): ...\n")


def inventory_with(node: JobNode, app: Path, *overrides: str) -> Inventory:
    return load(node.inventory.path, [f"jobs.train.app={app}", *overrides])


def never(requirements: Path) -> str:
    raise AssertionError(f"{requirements} is not to be locked")


def test_the_files_are_there_while_the_job_runs_and_gone_after_it(node: JobNode, app: Path) -> None:
    node.play("waits")
    jobs = node.jobs()
    name = jobs.submit("train", ["--environment", KEY], app=look(app))
    node.until_it_waits()
    folder = node.root.job(name)
    assert look(folder.app).digest == look(app).digest
    assert not folder.app_archive.exists()
    words = node.asked()
    assert words[words.index(f"jobs.train.app={json.dumps(str(folder.app))}") - 1] == "--set"
    assert words[-2:] == ["--environment", KEY]
    assert JobRequest.read(folder.request).app == look(app).digest
    jobs.cancel(name)
    assert not folder.app.exists()
    assert folder.state.exists()


def test_a_damaged_archive_refuses_the_job_before_it_begins(
    node: JobNode, app: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("deploy.jobs.node_jobs.pack", lambda app: b"no archive")
    node.play("0")
    with pytest.raises(ClusterError, match=r"rpi11: the job was not begun: .*the app cannot be unpacked"):
        node.jobs().submit("train", [], app=look(app))
    assert node.jobs().records() == []
    assert not node.journal.exists()


def test_an_app_that_does_not_arrive_leaves_no_job(node: JobNode, app: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def break_off(*_: object, **__: object) -> None:
        raise NodeUnreachableError("rpi11: the connection broke")

    node.play("0")
    monkeypatch.setattr(node.shell, "put", break_off)
    with pytest.raises(NodeUnreachableError):
        node.jobs().submit("train", [], app=look(app))
    assert node.jobs().records() == []


def test_of_jobs_in_order_each_takes_its_own_along(node: JobNode, app: Path) -> None:
    node.play("0")
    apps = {"train": AppOfJob(look(app), ("--environment", KEY))}
    order: list[tuple[str, list[str]]] = [("pi", []), ("train", [])]
    assert attached_job.run_in_order(node.jobs(), order, ["--quiet"], apps=apps) == ExitCode.DONE
    pi, train = (JobRequest.read(node.root.job(record.id).request) for record in node.jobs().records())
    assert (pi.app, pi.flags) == ("", ("--quiet",))
    assert (train.app, train.flags) == (look(app).digest, ("--quiet", "--environment", KEY))


def test_a_training_takes_files_and_an_evaluation_the_environment_alone(node: JobNode, app: Path) -> None:
    asked: list[Path] = []
    inventory = inventory_with(node, app)
    assert app_of_job(inventory, "train", [], never) == AppOfJob(look(app), (), reads_data=True)
    (app / "requirements.txt").write_text("humanize\n")

    def environment(requirements: Path) -> str:
        asked.append(requirements)
        return KEY

    flags = ("--environment", KEY)
    assert app_of_job(inventory, "train", [], environment) == AppOfJob(look(app), flags, reads_data=True)
    assert app_of_job(inventory, "evaluate", [], environment) == AppOfJob(None, flags, reads_data=True)
    assert app_of_job(inventory, "pi", [], never) == NO_APP
    assert app_of_job(node.inventory, "train", [], never) == NO_APP
    assert asked == [app / "requirements.txt"] * 2


def test_packages_that_our_environment_has_need_no_other(node: JobNode, app: Path) -> None:
    (app / "requirements.txt").write_text("numpy\n")
    assert app_of_job(inventory_with(node, app), "train", [], lambda _: "").flags == ()


def test_what_is_wrong_ends_a_new_training_and_is_a_line_for_a_run_that_has_its_copy(
    node: JobNode, app: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (app / "app.py").unlink()
    inventory = inventory_with(node, app)
    with pytest.raises(UsageError, match=r"expected app\.py"):
        app_of_job(inventory, "train", [], never)
    for job, flags in (("train", ["--resume"]), ("evaluate", [])):
        assert app_of_job(inventory, job, flags, never) == NO_APP
        (line,) = capsys.readouterr().err.splitlines()
        assert line.endswith("the run's own copy and environment are used")


READS = {
    "def data(folder):\n    return {}\n": True,
    "from readers import pictures as data\n": True,
    "import data\n": True,
    "data = None\n": True,
    "model, data = 1, 2\n": True,
    "data: object = 1\n": True,
    "try:\n    import fast\nexcept ImportError:\n    def data(folder): ...\n": True,
    "if True:\n    pass\nelse:\n    data = 3\n": True,
    "def model(input_shape, outputs):\n    data = 3\n": False,
    "class Holder:\n    data = 3\n": False,
    "other = 'data'\n": False,
    "this is no Python\n": False,
    "\0": False,
    "": False,
}


@pytest.mark.parametrize("source", READS)
def test_whether_an_app_reads_its_data_is_seen_without_running_it(node: JobNode, app: Path, source: str) -> None:
    (app / "app.py").write_text(source)
    assert reads_its_data(inventory_with(node, app)) is READS[source]


def test_data_has_to_be_there_on_the_coordinators_node(node: JobNode, app: Path, tmp_path: Path) -> None:
    there = Local("rpi11")
    for given in ("null", tmp_path):
        refuse_missing_data(inventory_with(node, app, f"jobs.train.data.source={given}"), there, "pscluster")
    for given in (tmp_path / "nothing", "relative/folder"):
        with pytest.raises(UsageError, match=r"on rpi11, where .*copy it there"):
            refuse_missing_data(inventory_with(node, app, f"jobs.train.data.source={given}"), there, "pscluster")


def test_a_recording_has_to_be_there_on_the_coordinators_node(node: JobNode, app: Path, tmp_path: Path) -> None:
    there, recording = Local("rpi11"), tmp_path / "day.csv"
    refuse_missing_recording(inventory_with(node, app), there, "pscluster")
    for given in (recording, "day.csv"):
        with pytest.raises(UsageError, match=r"--data .*day.csv: the coordinator reads .* on rpi11, .*copy it there"):
            refuse_missing_recording(inventory_with(node, app, f"jobs.recognise.data={given}"), there, "pscluster")
    recording.touch()
    refuse_missing_recording(inventory_with(node, app, f"jobs.recognise.data={recording}"), there, "pscluster")


def test_the_run_of_a_recognition_is_the_one_of_that_name_on_the_node(node: JobNode, app: Path) -> None:
    described = inventory_with(node, app, "jobs.recognise.run=runs/20260101T000000Z-train")
    request = request_of(described, "recognise", (), (), "/mnt/runs")
    assert 'jobs.recognise.run="/mnt/runs/20260101T000000Z-train"' in request.overrides


def test_a_request_of_a_version_without_apps_is_read(tmp_path: Path) -> None:
    request = json.loads(JobRequest("train", "inventory.yaml").to_bytes())
    del request["app"]
    (tmp_path / "request.json").write_text(json.dumps(request))
    assert JobRequest.read(tmp_path / "request.json").app == ""


def test_a_job_here_begins_with_the_environment_of_its_app(
    app: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (app / "requirements.txt").write_text("humanize\n")
    (tmp_path / "here.yaml").write_text(HERE)
    inventory = load(tmp_path / "here.yaml", ["jobs.train.app=digits"])
    monkeypatch.setattr("deploy.jobs.services.environment_here", lambda requirements: KEY)
    noted = (
        "import json, os, sys; from pathlib import Path; Path(sys.argv[1]).write_text(json.dumps(sys.argv[2:]));"
        "Path('result.json').touch(); Path(os.environ['PSCLUSTER_RUN_FILE']).write_text(os.getcwd())"
    )
    monkeypatch.chdir(tmp_path)
    coordinator = [sys.executable, "-c", noted, str(tmp_path / "words")]
    cluster = local(inventory, ("jobs.train.app=digits",), Supervised(inventory, ()))
    jobs = ForegroundJobs(cluster, lambda: Supervised(inventory, ()).restart_in_place(()), coordinator)
    assert jobs.run_job("train", ["--quiet"]) == 0
    words = json.loads((tmp_path / "words").read_text())
    assert words == [
        *("train", "--inventory", str(tmp_path / "here.yaml"), "--set", "jobs.train.app=digits"),
        *("--quiet", "--environment", KEY),
    ]
    (app / "app.py").unlink()
    with pytest.raises(UsageError, match=r"expected app\.py"):
        jobs.run_job("train", [])


def test_a_program_on_a_node_gets_the_python_of_its_packages(
    node: JobNode, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = tmp_path / "wanted.txt"
    submitted: list[ProgramWish] = []
    wanted.write_text("humanize\n")
    program = tmp_path / "program.py"
    program.touch()
    cluster = replace(
        over_ssh(node.inventory, (), Supervised(node.inventory, ())), fleet=lambda: Fleet([Local("rpi11")], parallel=1)
    )
    monkeypatch.setattr(attached_job, "run_attached", lambda *_, wish: submitted.append(wish))
    jobs = attached_job.SubmittedJobs(cluster, lambda fleet: (), lambda fleet, file, nodes: dict.fromkeys(nodes, KEY))
    wish = ProgramWish(str(program), requirements=str(wanted))
    jobs.run_program(wish, [])
    assert submitted[0].python == f"/opt/pscluster/extras/environments/{KEY}/bin/python"
    bare = attached_job.SubmittedJobs(cluster, lambda fleet: (), lambda fleet, file, nodes: dict.fromkeys(nodes, ""))
    bare.run_program(wish, [])
    assert submitted[1].python == ""
    with pytest.raises(UsageError, match=r"--requirements .*gone\.txt: cannot be read"):
        jobs.run_program(replace(wish, requirements=str(tmp_path / "gone.txt")), [])


def test_a_program_on_the_workers_gets_the_packages_of_each_node(
    node: JobNode, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    inventory = tmp_path / "three.yaml"
    inventory.write_text(THREE)
    three = load(inventory)
    (tmp_path / "wanted.txt").write_text("humanize\n")
    cluster = replace(
        over_ssh(three, (), Supervised(three, ())), fleet=lambda: Fleet([Local("a"), Local("b"), Local("c")], 1)
    )
    given: list[Any] = []
    monkeypatch.setattr(attached_job, "run_on_workers", lambda jobs, fleet, wish, flags, keys: given.append(keys))
    keys = {"b": KEY, "c": "fedcba9876543210"}
    asked: list[list[str]] = []

    def bring(fleet: Fleet, requirements: Path, nodes: Sequence[str]) -> Mapping[str, str]:
        asked.append([requirements.name, *nodes])
        return keys

    jobs = attached_job.SubmittedJobs(cluster, lambda fleet: (), bring)
    wish = ProgramWish(str(tmp_path / "p.py"), on="workers", requirements=str(tmp_path / "wanted.txt"))
    jobs.run_program(wish, [])
    assert asked == [["wanted.txt", "b", "c"]]
    assert given == [keys]
    tasks = {task.name: told.environment for task, told in program_tasks(three, wish, "token", {"b": KEY})}
    assert tasks == {"worker:0": KEY, "worker:1": KEY, "worker:2": ""}
    jobs.run_program(replace(wish, requirements=""), [])
    assert given == [keys, {}]
