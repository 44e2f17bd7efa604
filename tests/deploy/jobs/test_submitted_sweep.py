"""A sweep on the coordinator's node, which is this machine with a played systemd, and its
runners."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from cluster.programs.frames import key_of_runner
from cluster.sweeps.sweep_file import read_sweep_file
from core.ground.errors import ClusterError, ExitCode, UsageError
from core.inventory import load
from deploy.cluster.connector import Connector
from deploy.cluster.places import NodePlaces
from deploy.jobs import attached_job, sweeps
from deploy.jobs.apps import app_of_job
from deploy.jobs.program_task import MEMBERS, TASK, ProgramTask
from deploy.jobs.records import JobFolder
from deploy.jobs.request import SWEEP, JobRequest, read_record
from deploy.jobs.sweeps import (
    SweepRequest,
    answering,
    begin_on_workers,
    refuse_on_nodes,
    search_flags,
)
from tests.deploy.job_node import JobNode

KEY = "0123456789abcdef"


class OneNode:
    """A fleet whose nodes are all this machine; those `off` do not answer."""

    def __init__(self, node: JobNode, *off: str) -> None:
        self._node = node
        self._off = off

    def each(self, work: Callable[[Connector], Any], names: Sequence[str]) -> Mapping[str, Any]:
        found: dict[str, Any] = {}
        for name in names:
            self._node.shell.name = name
            try:
                if name in self._off:
                    raise ClusterError("off")
                found[name] = work(self._node.shell)
            except ClusterError as problem:
                found[name] = problem
        return found


class Runners(list[tuple[ProgramTask, Mapping[str, bytes]]]):
    """Those that were begun: the task of each, and its files."""

    def start(
        self, of: Connector, places: NodePlaces, task: ProgramTask, files: Mapping[str, bytes]
    ) -> None:
        self.append((task, files))


@pytest.fixture
def runners(monkeypatch: pytest.MonkeyPatch) -> Runners:
    made = Runners()
    monkeypatch.setattr(sweeps, "start_runner", made.start)
    return made


def order_of(node: JobNode, text: str = "runs: [{}]\n") -> SweepRequest:
    path = node.folder / "widths.yaml"
    path.write_text(text)
    return SweepRequest(path, read_sweep_file(path), node.inventory)


def done(
    node: JobNode, order: SweepRequest, *more: Any, flags: Sequence[str] = (), settings: str = ""
) -> JobFolder:
    """The folder of the sweep's job, which has ended well."""
    node.play("0")
    jobs: Any = node.jobs(*filter(None, [settings]))
    name = begin_on_workers(jobs, OneNode(node), order, [*flags], *more)  # type: ignore[arg-type]
    assert attached_job.watch(jobs, name) == ExitCode.DONE
    return node.root.job(name)


def test_the_driver_gets_the_file_and_each_worker_a_runner(node: JobNode, runners: Runners) -> None:
    folder = done(node, order_of(node), flags=["--quiet"])
    request = read_record(folder.request, JobRequest, "")
    assert (request.job, request.roles) == ("sweep", {})
    words = node.asked()
    assert words[0] == "sweep"
    assert words[words.index("--sweep") + 1] == str(folder.path / SWEEP)
    assert (folder.path / SWEEP).read_text() == "runs: [{}]\n"
    ((task, files),) = runners
    own = key_of_runner(request.token, "worker:0")
    assert (task.key, task.member, task.program) == (own, "worker:0", MEMBERS[0])
    assert task.lead.endswith(f":{node.inventory.ports.programs}")
    for name, content in files.items():
        (node.folder / f"runner-{name}").write_bytes(content)
    assert read_record(node.folder / f"runner-{TASK}", ProgramTask, "") == task
    assert load(node.folder / "runner-inventory.yaml").cluster == node.inventory.cluster


def test_an_app_goes_to_the_driver_and_its_packages_to_the_nodes(
    node: JobNode, runners: Runners
) -> None:
    app = node.folder / "app.py"
    app.write_text("WIDTH = 8\n")
    setting = f"jobs.train.app={app}"
    usual = load(node.inventory.path, [setting], check_interfaces=False)
    made = app_of_job(usual, "train", [], lambda path: "")
    folder = done(node, order_of(node), made, {"rpi11": KEY}, settings=setting)
    assert made.files is not None
    assert read_record(folder.request, JobRequest, "").app == made.files.digest
    assert f'jobs.train.app="{folder.app}"' in node.asked()
    assert [task.environment for task, _ in runners] == [KEY]


def test_a_node_that_does_not_answer_is_left_out(node: JobNode) -> None:
    assert answering(OneNode(node, "rpi12"), ["rpi11", "rpi12"]) == ["rpi11"]  # type: ignore[arg-type]


def test_a_sweep_without_a_node_is_cancelled(
    node: JobNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(of: Connector, *_: object) -> None:
        raise ClusterError(f"{of.name}: no program can be started: the disk is full")

    monkeypatch.setattr(sweeps, "start_runner", refused)
    node.play("waits")
    with pytest.raises(ClusterError, match=r"the disk is full\njob .*-sweep was cancelled"):
        begin_on_workers(node.jobs(), OneNode(node), order_of(node), [])  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "grid: {jobs.train.data.window_steps: [64, 128]}\n",
            r"jobs.train.data.window_steps: with `connection: ssh`",
        ),
        (
            "grid: {jobs.train.app: [a.py, b.py]}\n",
            r"jobs.train.app: with .* get one app for all runs: write it below `base:`",
        ),
    ],
)
def test_what_nodes_get_once_is_not_varied(node: JobNode, text: str, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        refuse_on_nodes(order_of(node, text))


def test_a_search_brings_its_environment(node: JobNode) -> None:
    asked: list[str] = []

    def bring(requirements: Path) -> str:
        asked.append(requirements.read_text())
        return KEY

    assert search_flags(order_of(node), bring) == ()
    order = order_of(node, "search: {trials: 3, space: {jobs.train.epochs: [1, 2]}}\n")
    assert search_flags(order, bring) == ("--driver-environment", KEY)
    assert "optuna" in asked[0]
    assert search_flags(order, lambda _: "") == ()
