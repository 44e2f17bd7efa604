"""Jobs of one process: forks, their endings, Ctrl-C, and the socket to `fab`.

Played jobs, without TensorFlow and without recordings.
"""

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from core.ground.errors import ExitCode
from tests.ran import PROJECT

PROCESS = """
import os, select, signal, sys, time
from pathlib import Path
from cluster import in_order
from cluster.jobs.cancel import Cancel

journal, of, *plan = sys.argv[1:]
endings = dict(words.split("=") for words in plan)
source, sink = os.pipe()

def note(*words):
    with open(journal, "a") as file:
        print(*words, file=file)

def prepare(cancel):
    os.read(source, 1)
    note("prepared")
    return 0

def run(job, cancel):
    run_file = Path(os.environ["PSCLUSTER_RUN_FILE"])
    place = "here" if os.getpid() == own else "fork"
    note(job, place, "interrupted" if cancel.asked else "", "stale" if run_file.exists() else "")
    run_file.write_text("runs/one")
    if job == "pi":
        os.write(sink, b"p")
    ending = endings[job]
    if ending == "waits":
        print("waits", flush=True)
        while not cancel.asked:
            select.select([], [], [], 0.05)
        ending = "0"
    if int(ending) < 0:
        os.kill(os.getpid(), -int(ending))
    return int(ending)

def interrupted_fork():
    "Fork; the request to stop comes before either process can go on."
    child = fork()
    if child:
        os.kill(own, signal.SIGINT)
    else:
        for _ in range(100):
            if signal.sigpending():
                break
            time.sleep(0.05)
    return child

fork = os.fork
if "--interrupted" in endings:
    del endings["--interrupted"]
    os.fork = interrupted_fork
own = os.getpid()
if endings.pop("--killed", None):
    in_order._forget_run = lambda: os.kill(own, signal.SIGKILL)
in_order.load_jobs = lambda *jobs: note("loaded", *jobs)
in_order._prepare_recordings = lambda inventory: in_order._fork(prepare)
with Cancel() as cancel:
    sys.exit(in_order.run_in_order(list(endings), int(of), None, run, cancel))
"""


@contextmanager
def process(
    folder: Path, of: int, *plan: str
) -> Iterator[tuple[subprocess.Popen[str], socket.socket]]:
    ours, theirs = socket.socketpair()
    words = [sys.executable, "-c", PROCESS, str(folder / "journal"), str(of), *plan]
    with (
        ours,
        subprocess.Popen(
            words,
            cwd=PROJECT,
            env={**os.environ, "PSCLUSTER_RUN_FILE": str(folder / "run")},
            stdin=theirs.fileno(),
            stdout=subprocess.PIPE,
            text=True,
        ) as child,
    ):
        theirs.close()
        try:
            yield child, ours
        finally:
            child.kill()


def journal(folder: Path) -> list[str]:
    return [" ".join(line.split()) for line in (folder / "journal").read_text().splitlines()]


def test_jobs_follow_one_another_and_the_last_runs_in_the_process_itself(tmp_path: Path) -> None:
    with process(tmp_path, 3, "pi=0", "train=0") as (child, fab):
        fab.send(b"\n")
        words, _ = child.communicate()
        assert fab.recv(10) == b"\n"
    assert child.returncode == 0
    assert words == "job 2 of 3: pi\njob 3 of 3: train\n"
    # The recordings are prepared after pi here: train waits for them.
    assert journal(tmp_path) == ["loaded pi train", "pi fork", "prepared", "train here"]


@pytest.mark.parametrize("ending", [ExitCode.SERVER_LOST, -signal.SIGKILL, -signal.SIGSEGV])
def test_a_job_that_fails_is_the_last_one(tmp_path: Path, ending: int) -> None:
    with process(tmp_path, 2, f"pi={int(ending)}", "train=0") as (child, fab):
        fab.send(b"\n")
        child.communicate()
        assert fab.recv(10) == b""
    assert child.returncode == ending
    assert "train here" not in journal(tmp_path)


def test_ctrl_c_reaches_the_job_in_its_fork_and_the_next_one(tmp_path: Path) -> None:
    with process(tmp_path, 2, "pi=waits", "train=130") as (child, fab):
        fab.send(b"\n")
        assert child.stdout is not None
        assert [child.stdout.readline() for _ in range(2)] == ["job 1 of 2: pi\n", "waits\n"]
        child.send_signal(signal.SIGINT)
        assert child.wait() == ExitCode.CANCELLED
    assert journal(tmp_path)[-1] == "train here interrupted"


def test_ctrl_c_during_the_fork_reaches_the_job_once(tmp_path: Path) -> None:
    with process(tmp_path, 2, "--interrupted=", "pi=0", "pi2=0") as (child, fab):
        fab.send(b"\n")
        child.communicate()
    assert child.returncode == 0
    assert journal(tmp_path)[1:] == ["pi fork interrupted", "pi2 here interrupted"]


def test_fab_knows_that_a_job_is_done_before_its_run_is_forgotten(tmp_path: Path) -> None:
    with process(tmp_path, 2, "--killed=then", "pi=0", "pi2=0") as (child, fab):
        fab.send(b"\n")
        child.communicate()
        assert fab.recv(10) == b"\n"
    assert child.returncode == -signal.SIGKILL


def test_without_fab_no_job_begins(tmp_path: Path) -> None:
    with process(tmp_path, 2, "pi=0", "train=0") as (child, fab):
        fab.shutdown(socket.SHUT_RDWR)
        child.communicate()
    assert child.returncode == ExitCode.CANCELLED
    assert journal(tmp_path) == ["loaded pi train"]
