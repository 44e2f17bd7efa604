"""What is asked of the supervisor for each fault of a process, over a real socket."""

import json
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from queue import Queue

import pytest

from cluster.engine.chaos import Chaos, ChaosPlan, Fault
from cluster.engine.saboteur import Saboteur
from cluster.jobs.run_folder import ChaosLog

WAIT_SECONDS = 30.0
EVERYBODY = (0, 1)


class Supervisor:
    """Answers every request with `reply`, and remembers it."""

    def __init__(self, path: Path) -> None:
        self.path, self.reply = path, {"ok": True, "pid": 17}
        self.heard: Queue[dict[str, str]] = Queue()
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(path))
        self._listener.listen()
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def _serve(self) -> None:
        while True:
            connection, _ = self._listener.accept()
            with connection, connection.makefile("rwb") as stream:
                request = json.loads(stream.readline())
                if request["verb"] == "end":
                    return
                stream.write(json.dumps(self.reply).encode() + b"\n")
                stream.flush()
                self.heard.put(request)

    def close(self) -> None:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.connect(str(self.path))
            connection.sendall(b'{"verb": "end"}\n')
            self._thread.join(WAIT_SECONDS)
        self._listener.close()


@pytest.fixture
def supervisor(tmp_path: Path) -> Iterator[Supervisor]:
    made = Supervisor(tmp_path / "supervisor.sock")
    yield made
    made.close()


def saboteur(text: str, supervisor: Supervisor, longest_seconds: float = 1000.0) -> tuple[Saboteur, ChaosLog]:
    record = ChaosLog(supervisor.path.parent)
    plan = ChaosPlan(ChaosPlan.parse(text).probabilities, 0, 0.0, longest_seconds)
    return Saboteur(Chaos(plan, servers=1), record, supervisor.path), record


def unused(_name: str) -> None:
    raise AssertionError("nobody was to be cut off")


def test_a_stopped_worker_goes_on_when_its_time_has_come(supervisor: Supervisor) -> None:
    with saboteur("stop-worker:1", supervisor, longest_seconds=0.01)[0] as made:
        assert made.dispatched(1, 1, EVERYBODY, unused) is None, "nothing for the lane to do"
        stopped, continued = (supervisor.heard.get(timeout=WAIT_SECONDS) for _ in range(2))
    assert stopped == {"verb": "signal", "task": "worker:1", "signal": "SIGSTOP"}
    assert continued == {"verb": "signal", "task": "worker:1", "signal": "SIGCONT"}


def test_nobody_is_left_stopped_at_the_end(supervisor: Supervisor) -> None:
    made, _ = saboteur("stop-worker:1", supervisor)
    made.dispatched(1, 1, EVERYBODY, unused)
    assert supervisor.heard.get(timeout=WAIT_SECONDS)["signal"] == "SIGSTOP"
    made.close()
    assert supervisor.heard.get(timeout=WAIT_SECONDS)["signal"] == "SIGCONT"
    made.dispatched(0, 1, EVERYBODY, unused)
    assert supervisor.heard.empty(), "it is over"


@pytest.mark.parametrize(("fault", "task"), [(Fault.KILL_WORKER, "worker:1"), (Fault.KILL_PS, "ps:0")])
def test_who_is_killed_is_counted_if_there_was_anybody_to_kill(supervisor: Supervisor, fault: Fault, task: str) -> None:
    made, record = saboteur(f"{fault}:1", supervisor)
    supervisor.reply = {"ok": True, "pid": 0}
    made.dispatched(1, 1, EVERYBODY, unused)
    assert supervisor.heard.get(timeout=WAIT_SECONDS)["task"] == task
    made.close()
    assert record.describe() == {"injected": {}}
    supervisor.reply = {"ok": True, "pid": 17}
    made, record = saboteur(f"{fault}:1", supervisor)
    made.dispatched(1, 1, EVERYBODY, unused)
    assert supervisor.heard.get(timeout=WAIT_SECONDS)["verb"] == "kill"
    made.close()
    assert record.describe() == {"injected": {fault.value: 1}}


def test_a_worker_is_cut_off_from_a_parameter_server_by_the_supervisor(supervisor: Supervisor) -> None:
    made, record = saboteur("cut-ps:1", supervisor)
    with made:
        assert made.dispatched(1, 1, EVERYBODY, unused) is None
        assert supervisor.heard.get(timeout=WAIT_SECONDS) == {"verb": "cut", "task": "worker:1", "peer": "ps:0"}
    assert record.describe() == {"injected": {"cut-ps": 1}}


def test_a_supervisor_that_is_gone_ends_nothing(tmp_path: Path) -> None:
    record = ChaosLog(tmp_path)
    plan = ChaosPlan({Fault.KILL_WORKER: 1.0})
    with Saboteur(Chaos(plan), record, tmp_path / "nobody.sock") as made:
        assert made.dispatched(1, 1, EVERYBODY, unused) is None
    assert record.describe() == {"injected": {}}


def test_a_worker_is_cut_off_without_a_supervisor_and_a_delivery_is_left_to_the_lane(tmp_path: Path) -> None:
    record, cut = ChaosLog(tmp_path), Queue[str]()
    with Saboteur(Chaos(ChaosPlan({Fault.CUT_WORKER: 1.0})), record, None) as made:
        assert made.dispatched(1, 1, EVERYBODY, cut.put) is None
        assert cut.get(timeout=WAIT_SECONDS) == "worker:1"
    with Saboteur(Chaos(ChaosPlan({Fault.LATE: 1.0})), record, None) as made:
        strike = made.dispatched(1, 1, EVERYBODY, cut.put)
    assert strike is not None
    assert (strike.fault, strike.target) == (Fault.LATE, "worker:1")
    assert cut.empty()
