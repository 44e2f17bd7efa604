"""A child dies with its parent, is interrupted once, and is killed at its deadline."""

import signal
import subprocess
import sys
import threading
import time
from signal import Signals

import pytest

from core.ground.children import Child, EndRequest, finished
from tests.hang import HANG_SECONDS

READY = "print('ready', flush=True); import time; time.sleep(60)"
STUBBORN = "import signal; signal.signal(signal.SIGINT, signal.SIG_IGN); " + READY
PARENT = f"""
import os, subprocess, sys
from core.ground.children import Child
child = Child([sys.executable, "-c", {READY!r}], stdout=subprocess.PIPE)
child.stdout.readline()
print(child.pid, flush=True)
os.kill(os.getpid(), 9)
"""


def started(program: str, ending: EndRequest | None = None) -> Child:
    child = Child([sys.executable, "-c", program], stdout=subprocess.PIPE, ending=ending)
    assert child.stdout is not None
    assert child.stdout.readline() == b"ready\n"
    return child


def test_it_dies_with_a_killed_parent() -> None:
    child = None
    with Child([sys.executable, "-c", PARENT], stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        child = int(parent.stdout.readline())
        assert parent.wait() == -signal.SIGKILL
        end = time.monotonic() + HANG_SECONDS
        while _lives(child):
            assert time.monotonic() < end
            time.sleep(0.01)


def _lives(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat") as stat:
            return stat.read().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_the_first_interrupt_is_one_and_the_second_kills() -> None:
    with started(STUBBORN) as child:
        child.interrupt()
        with pytest.raises(subprocess.TimeoutExpired):
            child.wait(0.2)
        child.interrupt()
        assert child.wait() == -signal.SIGKILL


@pytest.mark.parametrize(
    ("program", "deadline", "code"),
    [(READY, 60.0, -signal.SIGTERM), (STUBBORN.replace("SIGINT", "SIGTERM"), 0.1, -signal.SIGKILL)],
)
def test_leaving_asks_it_to_end_and_kills_it_at_the_deadline(
    program: str, deadline: float, code: int
) -> None:
    with started(program, EndRequest(Signals.SIGTERM, deadline)) as child:
        assert child.poll() is None
    assert child.returncode == code


def test_an_interrupt_while_it_ends_kills_it_and_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    child = started(STUBBORN, EndRequest(Signals.SIGINT, 60.0))
    wait = child.wait

    def interrupted(timeout: float | None = None) -> int:
        if timeout is None:
            return wait()
        raise KeyboardInterrupt

    monkeypatch.setattr(child, "wait", interrupted)
    with pytest.raises(KeyboardInterrupt), child:
        pass
    assert child.returncode == -signal.SIGKILL


def test_a_child_of_another_thread_outlives_the_thread() -> None:
    children: list[Child] = []
    thread = threading.Thread(target=lambda: children.append(started(READY)))
    thread.start()
    thread.join()
    with children[0] as child, pytest.raises(subprocess.TimeoutExpired):
        child.wait(0.2)


def test_a_short_program_is_run_to_its_end_and_reads_nothing() -> None:
    program = "import sys; print(len(sys.stdin.read())); print('a\\nno room', file=sys.stderr)"
    ended = finished([sys.executable, "-c", f"{program}; sys.exit(3)"])
    assert (ended.code, ended.output, ended.last_error) == (3, "0\n", "no room")
