"""What drives a sweep, with trainings that are played: here, and on two nodes that come and go."""

import json
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from signal import Signals

import pytest

from cluster.pages.files import RunRecord, SweepRecord
from cluster.programs.frames import Channel, FrameType, greeting, key_of_runner
from cluster.programs.lead import Lead
from cluster.programs.process import ProgramProcess
from cluster.sweeps import executors
from cluster.sweeps.drive import RUNS, ClusterLost, Drive, result_of
from cluster.sweeps.executors import LocalExecutor, Places, RemoteExecutor
from cluster.sweeps.plan import FixedRuns, Schedule
from cluster.sweeps.progress import Epoch
from core.ground.errors import ClusterError
from deploy.common.project import environment_for_any_folder
from tests.hang import HANG_SECONDS
from tests.ports import free_ports

NAMES = ("worker:0", "worker:1")
HOSTS = dict.fromkeys(NAMES, "127.0.0.1")
KEY = "jobs.train.epochs"


def schedule_of(count: int) -> Schedule:
    runs = tuple(RunRecord(f"{at:04d}", {KEY: at}, 3) for at in range(1, count + 1))
    return Schedule(SweepRecord("s", "x-sweep", "running", "node", (3,), (), runs))


class Driven:
    """A schedule that is driven over executors in a folder.

    `look` is called some times a second.
    """

    def __init__(self, folder: Path, places: Places) -> None:
        self.folder = folder
        self.schedule = schedule_of(3)
        (folder / RUNS).mkdir(exist_ok=True)
        self.places = places
        self.look: Callable[[], None] = lambda: None
        self.more: dict[str, list[str]] = {}
        """Further arguments of a run, by its id."""
        self.records: list[SweepRecord] = []
        self.loses_the_cluster: Callable[[int], bool] = lambda code: False
        self.drive: Drive | None = None

    def run(self, asked: Callable[[], bool] = lambda: False) -> bool:
        self.drive = Drive(self.schedule, self.places, self.folder, self)
        return self.drive.run(asked)

    def arguments_of(self, run: RunRecord) -> list[str]:
        return [str(run.settings[KEY]), *self.more.get(run.id, [])]

    def changed(self, record: SweepRecord) -> None:
        self.records.append(record)

    def run_over(self, run: RunRecord) -> None:
        pass

    def looked(self) -> None:
        self.look()

    def runs(self) -> list[tuple[str, str]]:
        return [(run.id, run.state) for run in self.schedule.record.runs]

    def figures(self) -> list[object]:
        return [run.final for run in self.schedule.record.runs]

    def resumptions(self) -> list[int]:
        found = [result_of(self.folder / RUNS / run.id)[1] for run in self.schedule.record.runs]
        return [result["resumptions"] for result in found if result is not None]

    def has_checkpoint(self, run: str) -> bool:
        """Whether a checkpoint of the run is there; a file comes before its content."""
        paths = (self.folder / RUNS / run).glob("*-train/checkpoints/update-*.json")
        return any(path.stat().st_size for path in paths)


class Here(Driven):
    """Two workers of this machine."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, Places([LocalExecutor(name, str(folder)) for name in NAMES]))
        self.left: list[float | None] = []

    def kill(self) -> int | None:
        """End the run of the first worker; its pid, None where it has none."""
        assert self.drive is not None
        lease = self.drive.leases.get(NAMES[0])
        if lease is None:
            return None
        assert isinstance(lease.process, ProgramProcess)
        lease.process.ask(Signals.SIGKILL)
        return lease.process.pid

    def kill_with_checkpoint(self) -> None:
        if self.has_checkpoint("0001"):
            self.kill()


@pytest.fixture(scope="module", autouse=True)
def played() -> Iterator[None]:
    """Trainings that are played."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(executors, "MEMBER", "tests.cluster.sweeps.play_member")
        patch.setattr(executors, "JOIN_EVERY_SECONDS", 0.5)
        for name, value in environment_for_any_folder().items():
            patch.setenv(name, value)
        yield


@pytest.fixture
def here(tmp_path: Path) -> Here:
    return Here(tmp_path)


@pytest.fixture(scope="module")
def calm(played: None, tmp_path_factory: pytest.TempPathFactory) -> Here:
    """A sweep that nobody disturbed, with the times left that it told meanwhile."""
    driven = Here(tmp_path_factory.mktemp("calm"))

    def look() -> None:
        assert driven.drive is not None
        driven.left.append(driven.drive.seconds_left())

    driven.look = look
    assert driven.run()
    return driven


@pytest.fixture(scope="module")
def undisturbed(calm: Here) -> list[object]:
    return calm.figures()


def test_every_run_is_trained_once_and_every_change_is_taken_down(calm: Here) -> None:
    runs = calm.schedule.record.runs
    assert calm.runs() == [("0001", "finished"), ("0002", "finished"), ("0003", "finished")]
    assert calm.resumptions() == [0, 0, 0]
    assert {run.node for run in runs} == set(NAMES)
    assert runs[0].folder == f"{RUNS}/0001/20260101T000000Z-train"
    states = [[run.state for run in record.runs] for record in calm.records]
    assert states[0] == ["waiting"] * 3
    assert ["running", "running", "waiting"] in states
    assert (calm.folder / RUNS / "0001.log").read_text().count("pscluster_run") > 2


def test_the_time_left_is_known_while_runs_are_on(calm: Here) -> None:
    known = [seconds for seconds in calm.left if seconds is not None]
    assert known
    assert min(known) >= 0.0
    assert calm.drive is not None
    assert calm.drive.seconds_left() == 0.0


@pytest.fixture
def slowly(monkeypatch: pytest.MonkeyPatch) -> None:
    """Trains long enough to be met in mid-training, however busy the machine is."""
    monkeypatch.setenv("PLAYED_STEP_SECONDS", "0.3")


@pytest.mark.usefixtures("slowly")
def test_a_killed_process_resumes_and_the_figures_are_the_same(
    here: Here, undisturbed: list[object]
) -> None:
    killed: list[int | None] = []

    def kill_once() -> None:
        if not killed and here.has_checkpoint("0001"):
            killed.append(here.kill())

    here.look = kill_once
    assert here.run()
    assert killed
    assert here.figures() == undisturbed
    assert here.resumptions() == [1, 0, 0]


@pytest.mark.usefixtures("slowly")
def test_a_person_s_interrupt_leaves_checkpoints_and_the_next_driver_resumes(
    here: Here, undisturbed: list[object]
) -> None:
    assert not here.run(lambda: here.has_checkpoint("0001"))
    assert ("0001", "waiting") in here.runs()
    assert here.run()
    assert here.figures() == undisturbed
    assert here.resumptions()[0] == 1


def test_a_run_that_fails_ends_alone(here: Here) -> None:
    here.more = {"0001": ["failing"], "0002": ["refused"]}
    assert here.run()
    assert here.runs() == [("0001", "failed"), ("0002", "failed"), ("0003", "finished")]
    diverged, refused, _ = (str(run.error) for run in here.schedule.record.runs)
    assert diverged == "it diverged"
    assert "expected others" in refused


def test_a_folder_that_cannot_be_made_ends_the_driver_with_a_line(here: Here) -> None:
    (here.folder / RUNS / "0002").write_text("")
    with pytest.raises(
        ClusterError, match=r"0002: the folder of the run cannot be made .*change `runs`"
    ):
        here.run()
    assert not here.drive or not here.drive.leases


def test_a_run_that_is_ended_early_is_over(here: Here) -> None:
    class Impatient(FixedRuns):
        def epoch_ended(self, run: RunRecord, epoch: Epoch) -> str:
            return "too slow" if run.id == "0002" and epoch.epoch == 2 else ""

    here.schedule = Schedule(here.schedule.record, Impatient())
    assert here.run()
    assert here.runs()[1] == ("0002", "pruned")
    assert here.schedule.record.runs[1].error == "too slow"


def test_a_cluster_that_is_lost_ends_the_driver_and_the_run_waits(
    here: Here, undisturbed: list[object]
) -> None:
    here.places = Places(here.places.executors[:1])
    here.loses_the_cluster = lambda code: code < 0
    here.look = here.kill_with_checkpoint
    with pytest.raises(ClusterLost, match="run 0001"):
        here.run()
    assert here.runs()[0] == ("0001", "waiting")
    here.look = lambda: None
    assert here.run()
    assert here.figures() == undisturbed


@pytest.mark.parametrize(
    ("status", "code", "state", "error"),
    [("done", 0, "finished", None), ("failed", 1, "failed", "it diverged")],
)
def test_a_node_that_hangs_up_after_its_run_has_ended_that_run(
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    status: str,
    code: int,
    state: str,
    error: str | None,
) -> None:
    lead = Lead("127.0.0.1", 0, "secret", HOSTS)
    driven = Driven(tmp_path, Places([RemoteExecutor(NAMES[0], lead)], lead))
    driven.schedule = schedule_of(1)
    with socket.create_connection(("127.0.0.1", lead.port)) as node:
        channel = Channel(node)
        hello = greeting(node, key_of_runner("secret", NAMES[0]), NAMES[0])
        channel.send(FrameType.HELLO, {**hello, "port": 5000, "second_port": 5001})

        def hang_up() -> None:
            driven.look = lambda: None
            result = json.dumps({"status": status, "reason": error}).encode()
            for name, content in (("coordinator.log", b"-"), ("result.json", result)):
                channel.send(FrameType.FILE, {"path": f"20260101T000000Z-train/{name}"})
                channel.send(FrameType.BYTES, content)
            channel.send(FrameType.ENDED, {"return_code": code})
            node.shutdown(socket.SHUT_WR)

        driven.look = hang_up
        driven.places.gather(lambda: bool(lead.processes), HANG_SECONDS)
        driven.run(lambda: "is lost" in caplog.text)
        driven.places.close(last=True)
    run = driven.schedule.record.runs[0]
    assert (run.state, run.error, caplog.text.count("is lost")) == (state, error, 0)


class Nodes(Driven):
    """Two nodes with a runner each, as units would run them."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, self._listen(0))
        self.units: dict[int, subprocess.Popen[bytes]] = {}
        self._ports = free_ports(8)

    def _listen(self, port: int) -> Places:
        self._lead = Lead("127.0.0.1", port, "secret", HOSTS)
        return Places([RemoteExecutor(name, self._lead) for name in NAMES], self._lead)

    def begin(self, *indices: int, send_seconds: float = 0.1) -> None:
        """Start these nodes and wait for them."""
        for index in indices:
            there = self.folder / f"node-{index}"
            there.mkdir(exist_ok=True)
            words = (self._lead.port, NAMES[index], there, send_seconds, *self._ports[index::2])
            self.units[index] = subprocess.Popen(
                [sys.executable, "-m", "tests.cluster.sweeps.play_runner", *map(str, words)],
                env=environment_for_any_folder(),
            )
        self.gather(*indices)

    def gather(self, *indices: int) -> None:
        names = {NAMES[index] for index in indices}
        self.places.gather(lambda: names <= set(self._lead.processes), 30.0)

    def began(self, index: int) -> bool:
        """Whether a run on that node has a checkpoint there."""
        pattern = "files/*-train/checkpoints/update-*.json"
        return any((self.folder / f"node-{index}").glob(pattern))

    def again(self) -> None:
        """Another driver, at the same port."""
        port = self._lead.port
        self.places.close(last=False)
        self.places = self._listen(port)

    def end(self) -> None:
        self.places.close(last=True)
        for unit in self.units.values():
            try:
                unit.wait(timeout=HANG_SECONDS)
            except subprocess.TimeoutExpired:
                unit.kill()
                unit.wait()


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[Nodes]:
    made = Nodes(tmp_path)
    yield made
    made.end()


def test_runs_on_nodes_bring_their_files_and_leave_those_of_others(
    nodes: Nodes, undisturbed: list[object]
) -> None:
    nodes.begin(0, 1)
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
    nodes.begin(0, 1)

    def lose() -> None:
        if nodes.has_checkpoint("0002"):
            nodes.units[1].kill()

    nodes.look = lose
    assert nodes.run()
    assert nodes.figures() == undisturbed
    assert {run.node for run in nodes.schedule.record.runs} == {NAMES[0]}
    assert nodes.resumptions() == [0, 1, 0]


def test_a_node_that_comes_back_resumes_what_it_began(
    nodes: Nodes, undisturbed: list[object]
) -> None:
    """The driver dies: the node's own checkpoint never came to it."""
    nodes.begin(0, send_seconds=600.0)

    def die() -> None:
        if nodes.began(0):
            raise KeyboardInterrupt

    nodes.look = die
    with pytest.raises(KeyboardInterrupt):
        nodes.run()
    assert not nodes.has_checkpoint("0001")
    nodes.look = lambda: None
    nodes.schedule = Schedule(nodes.schedule.record)
    nodes.again()
    nodes.gather(0)
    assert nodes.run()
    assert nodes.figures() == undisturbed
    assert nodes.resumptions() == [1, 0, 0]
