"""What drives a sweep, with trainings that are played: here, and on two nodes that come and go."""

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from signal import Signals

import pytest

from cluster.errors import ClusterError
from cluster.inventory.templates import free_ports
from cluster.jobs import lanes
from cluster.jobs.drive import RUNS, ClusterLost, Drive, Hooks, result_of
from cluster.jobs.lanes import Lane, LaneHere, LanesThere
from cluster.programs.lead import Lead
from cluster.programs.process import ProgramProcess
from cluster.sweeps.progress import Epoch
from cluster.sweeps.record import RunRecord, SweepRecord
from cluster.sweeps.schedule import MOST_ENDINGS, Schedule
from deploy.common.project import environment_for_any_folder

NAMES = ("worker:0", "worker:1")
KEY = "jobs.train.epochs"


def schedule_of(count: int) -> Schedule:
    runs = tuple(RunRecord(f"{at:04d}", {KEY: at}, 3) for at in range(1, count + 1))
    return Schedule(SweepRecord("s", "x-sweep", "running", "node", (3,), (), None, runs))


class Driven:
    """A schedule that is driven over lanes in a folder; `look` is called some times a second."""

    def __init__(self, folder: Path, places: list[Lane], runs: int = 3) -> None:
        self.folder, self.schedule = folder, schedule_of(runs)
        (folder / RUNS).mkdir(exist_ok=True)
        self.lanes = places
        self.look: Callable[[], None] = lambda: None
        self.prune: Callable[[RunRecord, Epoch], str] = lambda run, epoch: ""
        self.more: dict[str, str] = {}
        """A further argument of a run, by its id."""
        self.records: list[SweepRecord] = []
        self.lost_cluster: Callable[[int], bool] = lambda code: False
        self.drive: Drive | None = None

    def run(self, asked: Callable[[], bool] = lambda: False) -> bool:
        hooks = Hooks(
            self.words_of, self.records.append, lambda run, epoch: self.prune(run, epoch), lambda run: None,
            lambda code: self.lost_cluster(code), lambda: self.look(),
        )  # fmt: skip
        self.drive = Drive(self.schedule, self.lanes, self.folder, hooks)
        return self.drive.run(asked)

    def words_of(self, run: RunRecord) -> list[str]:
        return [f"{run.settings[KEY]}", *([self.more[run.id]] if run.id in self.more else [])]

    def runs(self) -> list[tuple[str, str]]:
        return [(run.id, run.state) for run in self.schedule.record.runs]

    def figures(self) -> list[object]:
        return [run.final for run in self.schedule.record.runs]

    def resumptions(self) -> list[int]:
        found = [result_of(self.folder / RUNS / run.id)[1] for run in self.schedule.record.runs]
        return [result["resumptions"] for result in found if result is not None]

    def has_checkpoint(self, run: str) -> bool:
        return any((self.folder / RUNS / run).glob("*-train/checkpoints/update-*.json"))


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Driven:
    monkeypatch.setattr(lanes, "MEMBER", "tests.sweeps.play_member")
    for name, value in environment_for_any_folder().items():
        monkeypatch.setenv(name, value)
    return Driven(tmp_path, [LaneHere(name, str(tmp_path)) for name in NAMES])


def process_of(lane: Lane) -> ProgramProcess | None:
    assert isinstance(lane, LaneHere)
    return lane._process


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> list[object]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lanes, "MEMBER", "tests.sweeps.play_member")
        for name, value in environment_for_any_folder().items():
            patch.setenv(name, value)
        folder = tmp_path_factory.mktemp("undisturbed")
        driven = Driven(folder, [LaneHere(name, str(folder)) for name in NAMES])
        assert driven.run()
    return driven.figures()


def test_every_run_is_trained_once_and_every_change_is_taken_down(here: Driven, undisturbed: list[object]) -> None:
    assert here.run()
    assert here.runs() == [("0001", "finished"), ("0002", "finished"), ("0003", "finished")]
    assert here.figures() == undisturbed
    assert here.resumptions() == [0, 0, 0]
    assert {run.node for run in here.schedule.record.runs} == set(NAMES)
    assert here.schedule.record.runs[0].folder == f"{RUNS}/0001/20260101T000000Z-train"
    states = [[run.state for run in record.runs] for record in here.records]
    assert states[0] == ["waiting"] * 3
    assert ["running", "running", "waiting"] in states
    assert (here.folder / RUNS / "0001.log").read_text().count("pscluster_run") > 2


def test_a_killed_process_resumes_and_the_figures_are_the_same(here: Driven, undisturbed: list[object]) -> None:
    killed: list[int] = []

    def kill() -> None:
        process = process_of(here.lanes[0])
        if not killed and here.has_checkpoint("0001") and process is not None:
            killed.append(process.pid)
            process.ask(Signals.SIGKILL)

    here.look = kill
    assert here.run()
    assert killed
    assert here.figures() == undisturbed
    assert here.resumptions() == [1, 0, 0]


def test_a_person_s_interrupt_leaves_checkpoints_and_the_next_driver_resumes(
    here: Driven, undisturbed: list[object]
) -> None:
    assert not here.run(lambda: here.has_checkpoint("0001"))
    assert ("0001", "waiting") in here.runs()
    assert here.run()
    assert here.figures() == undisturbed
    assert here.resumptions()[0] == 1


def test_a_run_that_fails_ends_alone(here: Driven) -> None:
    here.more = {"0001": "failing", "0002": "refused"}
    assert here.run()
    assert here.runs() == [("0001", "failed"), ("0002", "failed"), ("0003", "finished")]
    errors = [run.error or "" for run in here.schedule.record.runs]
    assert errors[0] == "it diverged"
    assert "expected others" in errors[1]


def test_a_folder_that_cannot_be_made_ends_the_driver_with_a_line(here: Driven) -> None:
    (here.folder / RUNS / "0002").write_text("")
    with pytest.raises(ClusterError, match=r"0002: the folder of the run cannot be made .*change `runs`"):
        here.run()
    assert not here.drive or not here.drive.leases


def test_a_run_that_is_ended_early_is_over(here: Driven) -> None:
    here.prune = lambda run, epoch: "too slow" if run.id == "0002" and epoch.epoch == 2 else ""
    assert here.run()
    assert here.runs()[1] == ("0002", "pruned")
    assert here.schedule.record.runs[1].error == "too slow"


def test_the_time_left_is_known_while_runs_are_on(here: Driven) -> None:
    found: list[float | None] = []
    here.look = lambda: found.append(here.drive.seconds_left() if here.drive else None)
    assert here.run()
    known = [seconds for seconds in found if seconds is not None]
    assert known
    assert min(known) >= 0.0
    assert here.drive is not None
    assert here.drive.seconds_left() == 0.0


def test_a_cluster_that_is_lost_ends_the_driver_and_the_run_waits(here: Driven, undisturbed: list[object]) -> None:
    here.lanes = here.lanes[:1]
    here.lost_cluster = lambda code: code < 0

    def kill() -> None:
        process = process_of(here.lanes[0])
        if process is not None and here.has_checkpoint("0001"):
            process.ask(Signals.SIGKILL)

    here.look = kill
    with pytest.raises(ClusterLost, match="run 0001"):
        here.run()
    assert here.runs()[0] == ("0001", "waiting")
    here.look = lambda: None
    assert here.run()
    assert here.figures() == undisturbed


class Nodes(Driven):
    """Two nodes with a runner each, as units would run them."""

    def __init__(self, folder: Path, runs: int = 3) -> None:
        self._lead = Lead("127.0.0.1", 0, "secret")
        self.places = LanesThere(self._lead, NAMES)
        super().__init__(folder, list(self.places.lanes), runs)
        self.units: dict[int, subprocess.Popen[bytes]] = {}
        self._ports = free_ports(8)
        self._joined_at = time.monotonic()

    def begin(self, index: int, send_seconds: float = 0.1) -> None:
        there = self.folder / f"node-{index}"
        there.mkdir(exist_ok=True)
        words = [str(self._lead.port), NAMES[index], str(there), str(send_seconds), *map(str, self._ports[index::2])]
        self.units[index] = subprocess.Popen(
            [sys.executable, "-m", "tests.sweeps.play_runner", *words], env=environment_for_any_folder()
        )

    def join(self) -> None:
        if time.monotonic() - self._joined_at > 0.5:
            self._joined_at = time.monotonic()
            self.places.join()

    def again(self) -> None:
        """Another driver, at the same port."""
        port = self._lead.port
        self.places.close(last=False)
        self._lead = Lead("127.0.0.1", port, "secret")
        self.places = LanesThere(self._lead, NAMES)
        self.lanes = list(self.places.lanes)

    def end(self) -> None:
        self.places.close(last=True)
        for unit in self.units.values():
            try:
                unit.wait(timeout=10)
            except subprocess.TimeoutExpired:
                unit.kill()
                unit.wait()


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[Nodes]:
    made = Nodes(tmp_path)
    yield made
    made.end()


def test_runs_on_nodes_bring_their_files_and_leave_those_of_others(nodes: Nodes, undisturbed: list[object]) -> None:
    for index in (0, 1):
        nodes.begin(index)
    nodes.places.gather(lambda: False, 30.0)
    assert nodes.run()
    assert nodes.figures() == undisturbed
    assert {run.node for run in nodes.schedule.record.runs} == set(NAMES)
    for run in nodes.schedule.record.runs:
        assert run.folder is not None
        content = json.loads((nodes.folder / run.folder / "result.json").read_text())
        assert content["final"] == run.final
        assert len(list((nodes.folder / RUNS / run.id).glob("*-train"))) == 1


@pytest.mark.long
def test_the_run_of_a_lost_node_ends_on_another(nodes: Nodes, undisturbed: list[object]) -> None:
    for index in (0, 1):
        nodes.begin(index)
    nodes.places.gather(lambda: False, 30.0)

    def lose() -> None:
        if nodes.has_checkpoint("0002"):
            nodes.units[1].kill()
        nodes.join()

    nodes.look = lose
    assert nodes.run()
    assert nodes.figures() == undisturbed
    assert {run.node for run in nodes.schedule.record.runs} == {NAMES[0]}
    assert nodes.resumptions() == [0, 1, 0]


@pytest.mark.long
def test_an_interrupted_run_resumes_on_another_node_from_its_checkpoint(
    nodes: Nodes, undisturbed: list[object]
) -> None:
    nodes.begin(0)
    nodes.places.gather(lambda: NAMES[0] in nodes._lead.processes, 30.0)
    begun = nodes.folder / "node-0"
    assert not nodes.run(lambda: any(begun.glob("files/*-train/checkpoints/update-*.json")))
    assert nodes.has_checkpoint("0001")
    nodes.again()
    nodes.units[0].kill()
    nodes.begin(1)
    nodes.places.gather(lambda: NAMES[1] in nodes._lead.processes, 30.0)
    assert nodes.run()
    assert nodes.figures() == undisturbed
    assert nodes.resumptions() == [1, 0, 0]
    assert {run.node for run in nodes.schedule.record.runs} == {NAMES[1]}


def test_a_node_that_comes_back_resumes_what_it_began(nodes: Nodes, undisturbed: list[object]) -> None:
    """The driver dies: the node's own checkpoint never came to it."""
    nodes.begin(0, send_seconds=600.0)
    nodes.places.gather(lambda: NAMES[0] in nodes._lead.processes, 30.0)
    begun = nodes.folder / "node-0"

    def die() -> None:
        if any(begun.glob("files/*-train/checkpoints/update-*.json")):
            raise KeyboardInterrupt

    nodes.look = die
    with pytest.raises(KeyboardInterrupt):
        nodes.run()
    assert not nodes.has_checkpoint("0001")
    nodes.look = lambda: None
    nodes.schedule = Schedule(nodes.schedule.record)
    nodes.again()
    nodes.places.gather(lambda: NAMES[0] in nodes._lead.processes, 30.0)
    assert nodes.run()
    assert nodes.figures() == undisturbed
    assert nodes.resumptions() == [1, 0, 0]


@pytest.mark.long
def test_a_run_is_not_tried_for_ever(here: Driven) -> None:
    here.schedule = schedule_of(1)
    here.lanes = here.lanes[:1]
    kills: list[int] = []

    def kill() -> None:
        process = process_of(here.lanes[0])
        if process is not None and process.pid not in kills:
            kills.append(process.pid)
            process.ask(Signals.SIGKILL)

    here.look = kill
    assert here.run()
    assert len(kills) == MOST_ENDINGS
    assert here.runs() == [("0001", "failed")]
