"""What is asked of the supervisor for each fault of a process, over a real socket."""

import json
import socketserver
import threading
from collections.abc import Iterator
from pathlib import Path
from queue import Queue

import pytest

from cluster.jobs.run_logs import ChaosLog
from core.engine.chaos import Chaos, ChaosPlan, Fault
from core.engine.threads import Saboteur

WAIT_SECONDS = 30.0
EVERYBODY = (0, 1)


class Supervisor(socketserver.ThreadingUnixStreamServer):
    """Answers every request with `reply`, and remembers it."""

    reply: dict[str, object]
    heard: "Queue[dict[str, str]]"

    def ask_next(self) -> dict[str, str]:
        return self.heard.get(timeout=WAIT_SECONDS)


class Answering(socketserver.StreamRequestHandler):
    server: Supervisor

    def handle(self) -> None:
        request = json.loads(self.rfile.readline())
        self.wfile.write(json.dumps(self.server.reply).encode() + b"\n")
        self.server.heard.put(request)


@pytest.fixture
def supervisor(tmp_path: Path) -> Iterator[Supervisor]:
    with Supervisor(str(tmp_path / "supervisor.sock"), Answering) as made:
        made.reply = {"ok": True, "pid": 17}
        made.heard = Queue()
        thread = threading.Thread(target=made.serve_forever, args=(0.01,))
        thread.start()
        yield made
        made.shutdown()
        thread.join()


def saboteur(
    text: str, supervisor: Supervisor, longest_seconds: float = 1000.0
) -> tuple[Saboteur, ChaosLog]:
    path = Path(str(supervisor.server_address))
    record = ChaosLog(path.parent)
    plan = ChaosPlan(ChaosPlan.parse(text).probabilities, 0, 0.0, longest_seconds)
    return Saboteur(Chaos(plan, servers=1), record, path), record


def unused(_name: str) -> None:
    raise AssertionError("nobody was to be cut off")


def test_a_stopped_worker_goes_on_when_its_time_has_come(supervisor: Supervisor) -> None:
    with saboteur("stop-worker:1", supervisor, longest_seconds=0.01)[0] as made:
        assert made.dispatched(1, 1, EVERYBODY, unused) is None, "nothing for the lane to do"
        stopped, continued = (supervisor.ask_next() for _ in range(2))
    assert stopped == {"verb": "signal", "task": "worker:1", "signal": "SIGSTOP"}
    assert continued == {"verb": "signal", "task": "worker:1", "signal": "SIGCONT"}


def test_nobody_is_left_stopped_at_the_end(supervisor: Supervisor) -> None:
    made, _ = saboteur("stop-worker:1", supervisor)
    made.dispatched(1, 1, EVERYBODY, unused)
    assert supervisor.ask_next()["signal"] == "SIGSTOP"
    made.close()
    assert supervisor.ask_next()["signal"] == "SIGCONT"
    ended, _ = saboteur("stop-worker:1", supervisor)
    ended.close()
    ended.dispatched(1, 1, EVERYBODY, unused)
    assert not any(isinstance(thread, threading.Timer) for thread in threading.enumerate())
    assert supervisor.heard.empty(), "it is over"


@pytest.mark.parametrize("pid", [0, 17])
@pytest.mark.parametrize(
    ("fault", "expected"),
    [
        ("kill-worker", {"verb": "kill", "task": "worker:1", "reason": "chaos"}),
        ("kill-ps", {"verb": "kill", "task": "ps:0", "reason": "chaos"}),
        ("cut-ps", {"verb": "cut", "task": "worker:1", "peer": "ps:0"}),
    ],
)
def test_what_the_supervisor_did_to_a_process_is_counted(
    supervisor: Supervisor, fault: str, expected: dict[str, str], pid: int
) -> None:
    made, record = saboteur(f"{fault}:1", supervisor)
    supervisor.reply = {"ok": True, "pid": pid}
    with made:
        assert made.dispatched(1, 1, EVERYBODY, unused) is None
        assert supervisor.ask_next() == expected
    assert record.describe() == {"injected": {fault: 1} if pid else {}}


def test_a_supervisor_that_is_gone_ends_nothing(tmp_path: Path) -> None:
    record = ChaosLog(tmp_path)
    plan = ChaosPlan({Fault.KILL_WORKER: 1.0})
    with Saboteur(Chaos(plan), record, tmp_path / "nobody.sock") as made:
        assert made.dispatched(1, 1, EVERYBODY, unused) is None
    assert record.describe() == {"injected": {}}


def test_a_worker_is_cut_off_without_a_supervisor_and_a_delivery_is_left_to_the_lane(
    tmp_path: Path,
) -> None:
    record = ChaosLog(tmp_path)
    cut = Queue[str]()
    with Saboteur(Chaos(ChaosPlan({Fault.CUT_WORKER: 1.0})), record, None) as made:
        assert made.dispatched(1, 1, EVERYBODY, cut.put) is None
        assert cut.get(timeout=WAIT_SECONDS) == "worker:1"
    with Saboteur(Chaos(ChaosPlan({Fault.LATE: 1.0})), record, None) as made:
        strike = made.dispatched(1, 1, EVERYBODY, cut.put)
    assert strike is not None
    assert (strike.fault, strike.target) == (Fault.LATE, "worker:1")
    assert cut.empty()
