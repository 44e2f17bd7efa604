"""A sweep on the coordinator's node, which is this machine with a played systemd, and its runners."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cluster.errors import ClusterError, ExitCode, UsageError
from cluster.inventory import load
from cluster.sweeps.sweep_file import read
from deploy.cluster.connector import Connector
from deploy.cluster.places import NodePlaces
from deploy.jobs import attached_job, sweeps
from deploy.jobs.apps import app_of_job
from deploy.jobs.node_job.program_task import MEMBERS, TASK, ProgramTask
from deploy.jobs.request import REFERENCES, SWEEP, JobRequest, request_of
from deploy.jobs.sweeps import SweepOrder, answering, begin_on_workers, files_of, refuse_on_nodes, search_flags
from tests.deploy.job_node import JobNode


@pytest.fixture
def node(tmp_path: Path) -> Iterator[JobNode]:
    made = JobNode(tmp_path)
    yield made
    made.end()


class OneNode:
    """A fleet of the one node; `fails` on it."""

    def __init__(self, node: JobNode) -> None:
        self._node = node

    def each(self, work: Callable[[Connector], Any], names: Sequence[str]) -> Mapping[str, Any]:
        found: dict[str, Any] = {}
        for name in names:
            self._node.shell.name = name
            try:
                found[name] = work(self._node.shell)
            except ClusterError as problem:
                found[name] = problem
        return found


def order_of(folder: Path, node: JobNode, text: str) -> SweepOrder:
    path = folder / "widths.yaml"
    path.write_text(text)
    return SweepOrder(path, read(path), node.inventory)


def test_the_driver_gets_the_file_and_each_worker_a_runner(node: JobNode, monkeypatch: pytest.MonkeyPatch) -> None:
    begun: list[tuple[ProgramTask, Mapping[str, bytes]]] = []

    def start(of: Connector, places: NodePlaces, task: ProgramTask, files: Mapping[str, bytes]) -> None:
        begun.append((task, files))

    monkeypatch.setattr(sweeps, "start_runner", start)
    node.play("0")
    order = order_of(node.folder, node, "runs: [{}]\n")
    jobs: Any = node.jobs()
    name = begin_on_workers(jobs, OneNode(node), order, ["--quiet"])  # type: ignore[arg-type]
    assert attached_job.watch(jobs, name) == ExitCode.DONE
    folder = node.root.job(name)
    request = JobRequest.read(folder.request)
    assert (request.job, request.roles) == ("sweep", {})
    words = node.asked()
    assert words[0] == "sweep"
    assert words[words.index("--sweep") + 1] == str(folder.path / SWEEP)
    assert (folder.path / SWEEP).read_text() == "runs: [{}]\n"
    ((task, files),) = begun
    assert (task.token, task.member, task.program) == (request.token, "worker:0", MEMBERS[0])
    assert task.lead.endswith(f":{node.inventory.ports.programs}")
    assert ProgramTask.read(_written(node.folder, files[TASK])) == task
    assert load(_written(node.folder, files["inventory.yaml"])).cluster == node.inventory.cluster


def _written(folder: Path, content: bytes) -> Path:
    path = folder / "written"
    path.write_bytes(content)
    return path


TABLE = '{"schema": 1, "id": "mine", "title": "notes", "rows": [{"hidden": 8, "accuracy": 0.9}]}'


def test_a_table_of_ones_own_goes_along(node: JobNode, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sweeps, "start_runner", lambda *_: None)
    node.play("0")
    order = order_of(node.folder, node, "runs: [{}]\nreferences: notes/mine.json\n")
    with pytest.raises(UsageError, match=r"notes/mine.json.*expected a table of references .* no such file"):
        files_of(order, resumes=False)
    assert list(files_of(order, resumes=True)) == [SWEEP]
    (node.folder / "notes").mkdir()
    (node.folder / "notes" / "mine.json").write_text(TABLE)
    jobs: Any = node.jobs()
    name = begin_on_workers(jobs, OneNode(node), order, [])  # type: ignore[arg-type]
    assert attached_job.watch(jobs, name) == ExitCode.DONE
    words, folder = node.asked(), node.root.job(name).path
    assert words[words.index("--references") + 1] == str(folder / REFERENCES)
    assert (folder / REFERENCES).read_text() == TABLE
    own = order_of(node.folder, node, "runs: [{}]\nreferences: thesis-runs\n")
    assert list(files_of(own, resumes=False)) == [SWEEP]


def test_an_app_goes_to_the_driver_and_its_packages_to_the_nodes(
    node: JobNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun: list[ProgramTask] = []
    monkeypatch.setattr(sweeps, "start_runner", lambda of, places, task, files: begun.append(task))
    app = node.folder / "app.py"
    app.write_text("WIDTH = 8\n")
    node.play("0")
    order = order_of(node.folder, node, "runs: [{}]\n")
    usual = load(node.inventory.path, [f"jobs.train.app={app}"], check_interfaces=False)
    made = app_of_job(usual, "train", [], lambda path: "")
    key = "0123456789abcdef"
    jobs: Any = node.jobs(f"jobs.train.app={app}")
    name = begin_on_workers(jobs, OneNode(node), order, [], made, {"rpi11": key})  # type: ignore[arg-type]
    assert attached_job.watch(jobs, name) == ExitCode.DONE
    assert JobRequest.read(node.root.job(name).request).app == made.files.digest if made.files else False
    assert f'jobs.train.app="{node.root.job(name).app}"' in node.asked()
    assert [task.environment for task in begun] == [key]


def test_a_node_that_does_not_answer_is_left_out(node: JobNode, monkeypatch: pytest.MonkeyPatch) -> None:
    class Fleet(OneNode):
        def each(self, work: Callable[[Connector], Any], names: Sequence[str]) -> Mapping[str, Any]:
            return {name: ClusterError("off") if name == "rpi12" else None for name in names}

    assert answering(Fleet(node), ["rpi11", "rpi12"]) == ["rpi11"]  # type: ignore[arg-type]


def test_a_sweep_without_a_node_is_cancelled(node: JobNode, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(of: Connector, *_: object) -> None:
        raise ClusterError(f"{of.name}: no program can be started: the disk is full")

    monkeypatch.setattr(sweeps, "start_runner", refused)
    node.play("waits")
    jobs: Any = node.jobs()
    with pytest.raises(ClusterError, match=r"the disk is full\njob .*-sweep was cancelled"):
        begin_on_workers(jobs, OneNode(node), order_of(node.folder, node, "runs: [{}]\n"), [])  # type: ignore[arg-type]


def test_what_nodes_get_once_is_not_varied(node: JobNode) -> None:
    order = order_of(node.folder, node, "grid: {jobs.train.data.window_steps: [64, 128]}\n")
    with pytest.raises(UsageError, match=r"jobs.train.data.window_steps: with `connection: ssh`"):
        refuse_on_nodes(order)
    with pytest.raises(UsageError, match=r"jobs.train.app: with .* get one app for all runs: write it below `base:`"):
        refuse_on_nodes(order_of(node.folder, node, "grid: {jobs.train.app: [a.py, b.py]}\n"))
    plain = order_of(node.folder, node, "grid: {jobs.train.epochs: [1, 2]}\n")
    refuse_on_nodes(plain)
    taught = load(node.inventory.path, ["jobs.train.distill={run: runs/first}"])
    with pytest.raises(UsageError, match=r"jobs.train.distill: with `connection: ssh`"):
        refuse_on_nodes(replace(plain, usual=taught))


def test_a_teacher_is_the_run_of_that_name_on_the_node(node: JobNode) -> None:
    taught = load(node.inventory.path, ["jobs.train.distill={run: runs/20260101T000000Z-train}"])
    for job in ("train", "cv"):
        request = request_of(taught, job, ("jobs.train.epochs=2",), (), "/var/runs")
        assert request.overrides[-1] == 'jobs.train.distill.run="/var/runs/20260101T000000Z-train"'
    assert not any("distill" in each for each in request_of(taught, "pi", (), (), "/var/runs").overrides)


def test_a_search_brings_its_environment(node: JobNode) -> None:
    asked: list[Path] = []

    def bring(requirements: Path) -> str:
        asked.append(requirements)
        return "0123456789abcdef"

    assert search_flags(order_of(node.folder, node, "runs: [{}]\n"), bring) == ()
    order = order_of(node.folder, node, "search: {trials: 3, space: {jobs.train.epochs: [1, 2]}}\n")
    assert search_flags(order, bring) == ("--driver-environment", "0123456789abcdef")
    assert "optuna" in asked[0].read_text()
    assert search_flags(order, lambda _: "") == ()
