"""`make run` stops what it started and keeps the status of what it ran.

`fab` is stood in for by a script that writes down what it is asked: how a cluster starts and stops
is tested with deploy/.
"""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.deploy.tables import Tables
from tests.habits.leaks import PROJECT

rows = Tables(__file__)

FAB = """
import os, pathlib, signal, sys
with pathlib.Path("asked").open("a") as asked:
    asked.write(" ".join(sys.argv[1:]) + chr(10))
if sys.argv[2] == "status":
    print("local.yaml: no such file", file=sys.stderr)
    before = "deploy start" not in pathlib.Path("asked").read_text()
    state = os.environ.get("STATE", "stopped") if before else os.environ.get("AFTER", "ready")
    print('{"state": "%s"}' % state)
    sys.exit(int(os.environ.get("STATUS_STATUS", "3")))
if sys.argv[2] == "start":
    if "--wait" in sys.argv:
        got = []
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda number, frame: got.append(number))
        print("started", flush=True)
        while not got:
            signal.pause()
        sys.exit(130 if got == [signal.SIGINT] else 1)
    print("stops after it:", "PSCLUSTER_STOPS_AFTER" in os.environ)
    sys.exit(int(os.environ.get("START_STATUS", "0")))
sys.exit(int(os.environ.get("STOP_STATUS", "0")))
"""

RUN = """
import sys
sys.path.insert(0, sys.argv[1])
from tools.run_local import run
sys.exit(run("local.yaml", sys.argv[2:], fab=(sys.executable, "fab.py")))
"""

SIGNAL_BEFORE_START = """
import os, subprocess
class Popen(subprocess.Popen):
    def __init__(self, arguments, **settings):
        if "start" in arguments:
            os.kill(os.getpid(), int(os.environ["SIGNAL"]))
        super().__init__(arguments, **settings)
subprocess.Popen = Popen
"""


def command(folder: Path, *extra: str, before: str = "") -> list[str]:
    (folder / "fab.py").write_text(FAB)
    return [sys.executable, "-c", before + RUN, str(PROJECT), *extra]


def run(folder: Path, *extra: str, **environment: str) -> subprocess.CompletedProcess[str]:
    before = SIGNAL_BEFORE_START if "SIGNAL" in environment else ""
    return subprocess.run(
        command(folder, *extra, before=before),
        cwd=folder,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
    )


def asked(folder: Path) -> list[str]:
    status = "deploy status --inventory local.yaml --json"
    first, *later = (folder / "asked").read_text().splitlines()
    assert first == status
    return [line for line in later if line != status]


def test_a_second_one_is_refused_and_stops_nothing(tmp_path: Path) -> None:
    (tmp_path / "local.yaml").touch()
    with subprocess.Popen(command(tmp_path, "--wait"), cwd=tmp_path, stdout=subprocess.PIPE) as one:
        assert one.stdout is not None
        assert one.stdout.readline() == b"started\n"
        second = run(tmp_path)
        assert second.returncode == 2
        assert second.stderr.startswith("another `make run` uses the cluster of local.yaml: wait")
        assert asked(tmp_path) == ["deploy start --inventory local.yaml --wait"]
        one.terminate()


@rows("start", "stop", "status")
def test_stops_and_keeps_the_status(tmp_path: Path, start: int, stop: int, status: int) -> None:
    statuses = {"START_STATUS": str(start), "STOP_STATUS": str(stop)}
    done = run(tmp_path, "--data", "synthetic", **statuses)
    assert (done.returncode, done.stdout) == (status, "stops after it: True\n")
    assert asked(tmp_path) == [
        "deploy start --inventory local.yaml --data synthetic",
        "deploy stop --inventory local.yaml",
    ]


def test_a_refusal_before_anything_was_started_is_the_last_line(tmp_path: Path) -> None:
    assert run(tmp_path, START_STATUS="2", AFTER="stopped").returncode == 2
    assert asked(tmp_path) == ["deploy start --inventory local.yaml"]


def test_a_cluster_that_was_running_before_is_left_running(tmp_path: Path) -> None:
    done = run(tmp_path, STATE="running", STATUS_STATUS="0")
    assert done.returncode == 0
    assert asked(tmp_path) == ["deploy start --inventory local.yaml --jobs"]
    assert "stops after it: False\nthe cluster ran before and stays up" in done.stdout


def test_an_inventory_that_cannot_be_used_is_told_once(tmp_path: Path) -> None:
    done = run(tmp_path, STATUS_STATUS="2")
    assert (done.returncode, done.stderr) == (2, "local.yaml: no such file\n")
    assert asked(tmp_path) == []


@pytest.mark.parametrize(
    ("number", "whole_group", "status"), [(signal.SIGINT, True, 130), (signal.SIGTERM, False, 1)]
)
def test_stops_after_a_signal(
    tmp_path: Path, number: signal.Signals, whole_group: bool, status: int
) -> None:
    with subprocess.Popen(
        command(tmp_path, "--wait"), cwd=tmp_path, stdout=subprocess.PIPE, start_new_session=True
    ) as running:
        assert running.stdout is not None
        assert running.stdout.readline() == b"started\n"
        (os.killpg if whole_group else os.kill)(running.pid, number)
        running.wait()
    assert running.returncode == status
    assert asked(tmp_path)[-1] == "deploy stop --inventory local.yaml"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_just_before_there_is_a_start_to_tell_reaches_it(
    tmp_path: Path, number: signal.Signals
) -> None:
    done = run(tmp_path, "--wait", SIGNAL=str(int(number)))
    # As `start` had set up its handlers by then, or not.
    assert done.returncode in (1, 130, 128 + number)
    assert asked(tmp_path)[-1] == "deploy stop --inventory local.yaml"
