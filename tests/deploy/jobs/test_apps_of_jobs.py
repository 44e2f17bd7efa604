"""What a job takes along of its app, on the way to a node that is this machine."""

import json
import os
import sys
import tracemalloc
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cluster.apps.files import files_of_app
from cluster.programs.program import ProgramRequest
from core.ground.errors import ClusterError, UsageError
from core.ground.parcel import packed
from core.inventory import Inventory, load
from core.inventory.templates import local_inventory
from deploy.cluster.cluster import local_cluster, over_ssh
from deploy.cluster.fleet import Fleet, Local
from deploy.converge.publication import PublishedData
from deploy.jobs import attached_job
from deploy.jobs.apps import (
    NO_APP,
    AppOfJob,
    app_of_job,
    reads_its_data,
    refuse_missing_data,
)
from deploy.jobs.node_jobs import new_folder
from deploy.jobs.records import APP_ARCHIVE, APP_FOLDER, JobFolder
from deploy.jobs.request import JobRequest, read_record
from deploy.jobs.services import ForegroundJobs, JobSpec
from deploy.jobs.sweeps import program_tasks
from deploy.supervisor.services import Supervised
from tests.cluster.apps.trees import write_app
from tests.deploy.job_node import JobNode
from tests.deploy.tables import Tables

rows = Tables(__file__)

KEY = "0123456789abcdef"

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
    name = jobs.submit("train", ["--environment", KEY], app=files_of_app(app))
    node.until_it_waits()
    folder = node.root.job(name)
    assert files_of_app(folder.app).digest == files_of_app(app).digest
    assert not folder.app_archive.exists()
    words = node.asked()
    assert words[words.index(f"jobs.train.app={json.dumps(str(folder.app))}") - 1] == "--set"
    assert words[-2:] == ["--environment", KEY]
    assert read_record(folder.request, JobRequest, "").app == files_of_app(app).digest
    jobs.cancel(name)
    assert not folder.app.exists()
    assert folder.state.exists()


def test_an_app_is_read_packed_and_sent_in_blocks(node: JobNode, app: Path) -> None:
    (app / "weights.bin").write_bytes(os.urandom(16 << 20))
    tracemalloc.start()
    try:
        with packed(files_of_app(app).streams(APP_FOLDER)) as archive:
            folder = new_folder(node.shell, node.places, "train", {APP_ARCHIVE: archive})
        peak_bytes = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert isinstance(folder, JobFolder)
    assert folder.app_archive.stat().st_size > 16 << 20
    assert peak_bytes < 8 << 20


def test_a_damaged_archive_refuses_the_job_before_it_begins(
    node: JobNode, app: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("deploy.jobs.node_jobs.packed", lambda _: nullcontext(b"no archive"))
    node.play("0")
    said = r"rpi11: the job did not begin: .*the app cannot be unpacked"
    with pytest.raises(ClusterError, match=said):
        node.jobs().submit("train", [], app=files_of_app(app))
    assert node.jobs().records() == []
    assert not node.journal.exists()


def test_a_training_takes_files_and_an_evaluation_the_environment_alone(
    node: JobNode, app: Path
) -> None:
    inventory = inventory_with(node, app)
    assert app_of_job(inventory, "train", [], never) == AppOfJob(
        files_of_app(app), (), reads_data=True
    )
    (app / "requirements.txt").write_text("humanize\n")
    asked: list[Path] = []

    def environment(requirements: Path) -> str:
        asked.append(requirements)
        return KEY

    for job, files in (("train", files_of_app(app)), ("evaluate", None)):
        found = app_of_job(inventory, job, [], environment)
        assert found == AppOfJob(files, ("--environment", KEY), reads_data=True)
    assert app_of_job(inventory, "pi", [], never) == NO_APP
    assert app_of_job(node.inventory, "train", [], never) == NO_APP
    assert asked == [app / "requirements.txt"] * 2
    # Ours has it: no other is needed.
    assert app_of_job(inventory, "train", [], lambda _: "").flags == ()


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


@rows("source", "reads")
def test_whether_an_app_reads_its_data_is_seen_without_running_it(
    node: JobNode, app: Path, source: str, reads: bool
) -> None:
    (app / "app.py").write_text(source)
    assert reads_its_data(inventory_with(node, app)) is reads
    if reads:
        assert PublishedData(inventory_with(node, app)).prepared is None


def test_data_has_to_be_there_on_the_coordinators_node(node: JobNode, app: Path) -> None:
    def refuse(source: object) -> None:
        inventory = inventory_with(node, app, f"jobs.train.data.source={source}")
        refuse_missing_data(inventory, Local("rpi11"), "pscluster")

    for given in ("null", app / "app.py"):
        refuse(given)
    for given in (app / "missing", "relative/missing"):
        with pytest.raises(UsageError, match=r"on rpi11, where .*copy it there"):
            refuse(given)


NOTED = """
import json, os, sys
from pathlib import Path
Path(sys.argv[1]).write_text(json.dumps(sys.argv[2:]))
Path("result.json").touch()
Path(os.environ["PSCLUSTER_RUN_FILE"]).write_text(os.getcwd())
"""


def test_a_job_here_begins_with_the_environment_of_its_app(
    app: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (app / "requirements.txt").write_text("humanize\n")
    file = tmp_path / "here.yaml"
    file.write_text(local_inventory(1, 1))
    settings = ("jobs.train.app=digits",)
    inventory = load(file, settings)
    monkeypatch.setattr("deploy.jobs.services.environment_here", lambda requirements: KEY)
    monkeypatch.chdir(tmp_path)
    supervised = Supervised(inventory, ())
    coordinator = [sys.executable, "-c", NOTED, str(tmp_path / "words")]
    jobs = ForegroundJobs(
        local_cluster(inventory, settings, supervised),
        lambda: supervised.restart_in_place(()),
        coordinator,
    )
    assert jobs.run(JobSpec("train", ("--quiet",))) == 0
    assert " ".join(json.loads((tmp_path / "words").read_text())) == (
        f"train --inventory {file} --set jobs.train.app=digits --quiet --environment {KEY}"
    )
    (app / "app.py").unlink()
    with pytest.raises(UsageError, match=r"expected app\.py"):
        jobs.run(JobSpec("train"))


@pytest.mark.parametrize(
    ("setting", "order", "shared"),
    [
        ("train.mode=async", "pi train", True),
        ("train.mode=single", "pi train", False),
        ("train.app=digits", "pi train", False),
        ("train.mode=async", "train evaluate", True),
        ("evaluate.run=old", "train evaluate", False),
        ("train.mode=async", "evaluate train", False),
    ],
)
def test_jobs_share_a_process_on_the_roles_without_an_app(
    app: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    setting: str,
    order: str,
    shared: bool,
) -> None:
    file = tmp_path / "here.yaml"
    file.write_text(local_inventory(1, 1))
    settings = (f"jobs.{setting}",)
    first, last = order.split()
    monkeypatch.chdir(tmp_path)
    cluster = local_cluster(load(file, settings), settings, Supervised(load(file, settings), ()))
    words = tmp_path / "words"
    jobs = ForegroundJobs(cluster, pytest.fail, [sys.executable, "-c", NOTED, str(words)])
    assert jobs.run_jobs((first, last), ()) == 0
    asked = " ".join(json.loads(words.read_text()))
    if shared:
        assert asked.startswith(f"{first} ")
        assert asked.endswith(f" --of 2 --then {last}")
    else:
        assert asked.startswith(f"{last} ")
        assert "--of" not in asked


def submitted_jobs(
    inventory: Inventory, *nodes: str, keys: Mapping[str, str]
) -> attached_job.SubmittedJobs:
    """Jobs on nodes that are this machine, where packages have these environments."""

    def bring(fleet: Fleet, requirements: Path, asked: Sequence[str]) -> Mapping[str, str]:
        assert (requirements.name, list(asked)) == ("wanted.txt", list(keys))
        return keys

    cluster = replace(
        over_ssh(inventory, (), Supervised(inventory, ())),
        fleet=lambda: Fleet([Local(name) for name in nodes], 1),
    )
    return attached_job.SubmittedJobs(cluster, lambda fleet: (), bring)


@pytest.fixture
def program(tmp_path: Path) -> ProgramRequest:
    """A program with packages of its own."""
    (tmp_path / "wanted.txt").write_text("humanize\n")
    (tmp_path / "program.py").touch()
    return ProgramRequest(str(tmp_path / "program.py"), requirements=str(tmp_path / "wanted.txt"))


def test_a_program_on_a_node_gets_the_python_of_its_packages(
    node: JobNode, program: ProgramRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    submitted: list[ProgramRequest] = []
    monkeypatch.setattr(attached_job, "run_attached", lambda *_, request: submitted.append(request))
    for key in (KEY, ""):
        jobs = submitted_jobs(node.inventory, "rpi11", keys={"rpi11": key})
        jobs.run(JobSpec("run", program=program))
    own = f"/opt/pscluster/extras/environments/{KEY}/bin/python"
    assert [each.python for each in submitted] == [own, ""]
    with pytest.raises(UsageError, match=r"--requirements gone\.txt: cannot be read"):
        jobs.run(JobSpec("run", program=replace(program, requirements="gone.txt")))


def test_a_program_on_the_workers_gets_the_packages_of_each_node(
    tmp_path: Path, program: ProgramRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "three.yaml").write_text(THREE)
    three = load(tmp_path / "three.yaml")
    given: list[Any] = []
    monkeypatch.setattr(attached_job, "run_on_workers", lambda *words: given.append(words[-1]))
    keys = {"b": KEY, "c": "fedcba9876543210"}
    jobs = submitted_jobs(three, "a", "b", "c", keys=keys)
    program = replace(program, on="workers")
    jobs.run(JobSpec("run", program=program))
    jobs.run(JobSpec("run", program=replace(program, requirements="")))
    assert given == [keys, {}]
    tasks = program_tasks(three, program.name, "token", {"b": KEY})
    assert {task.name: told.environment for task, told in tasks} == {
        "worker:0": KEY,
        "worker:1": KEY,
        "worker:2": "",
    }
