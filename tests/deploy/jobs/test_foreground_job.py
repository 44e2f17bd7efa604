import fcntl
import json
import os
import pty
import signal
import subprocess
import sys
import termios
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from core.ground.children import Child
from core.ground.errors import ExitCode
from deploy.common.project import environment_for_any_folder
from deploy.jobs import foreground_job
from tests.deploy.playing import PATIENCE_SECONDS, eventually, gone

HERE = Path(__file__).parents[1]


class Job:
    """A driver that runs a played job in its foreground, on a terminal of its own."""

    def __init__(
        self, journal: Path, how: str, deadline_seconds: float, stderr_on_terminal: bool
    ) -> None:
        self._journal = journal
        self.terminal, side = pty.openpty()
        command = [sys.executable, str(HERE / "play_job.py"), str(journal), *how.split()]
        self.driver = subprocess.Popen(
            [sys.executable, str(HERE / "run_job.py"), str(deadline_seconds), *command],
            env=environment_for_any_folder(),
            stdin=side,
            stderr=side if stderr_on_terminal else subprocess.PIPE,
            text=True,
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
        )
        os.close(side)

    @property
    def journal(self) -> list[str]:
        if self._journal.exists():
            return self._journal.read_text().splitlines()
        return []

    def pid(self) -> int:
        eventually(lambda: len(self.journal) > 0, "the start of the job")
        return int(self.journal[0])

    def end(self) -> tuple[int, str]:
        _, words = self.driver.communicate(timeout=PATIENCE_SECONDS)
        return self.driver.returncode, words


@contextmanager
def job(
    journal: Path,
    how: str,
    deadline_seconds: float = PATIENCE_SECONDS,
    stderr_on_terminal: bool = False,
) -> Iterator[Job]:
    made = Job(journal, how, deadline_seconds, stderr_on_terminal)
    try:
        yield made
    finally:
        made.driver.kill()
        made.driver.wait()
        if made.driver.stderr is not None:
            made.driver.stderr.close()
        os.close(made.terminal)
        if made.journal:
            pid = int(made.journal[0])
            eventually(lambda: gone(pid), "the death of the job with its command")


def interrupted(one: Job) -> int:
    """Ctrl-C while the job runs; the job's pid."""
    pid = one.pid()
    os.write(one.terminal, b"\x03")
    eventually(lambda: one.journal == [str(pid), "SIGINT"], "the interrupt")
    return pid


@pytest.mark.parametrize(
    ("finished", "status", "remaining", "resumes"),
    [
        ("pi", "done", ["train", "evaluate"], False),
        ("train", "done", ["evaluate"], False),
        ("train", "cancelled", ["train", "evaluate"], True),
    ],
)
def test_a_run_that_is_done_is_never_resumed(
    tmp_path: Path, finished: str, status: str, remaining: list[str], resumes: bool
) -> None:
    """Its coordinator was killed before it reported the end, or before it removed the name."""
    (tmp_path / "result.json").write_text(json.dumps({"job": finished, "status": status}))
    file = tmp_path / "run"
    file.write_text(f"{tmp_path}\n")
    last = foreground_job.JobProcess("evaluate", tmp_path, (), {}, file)
    process = replace(last, name="train", following=(last,), of=3).after_finished_run()
    assert process is not None
    assert [process.name, *(job.name for job in process.following)] == remaining
    assert bool(process.run_to_resume) is resumes


def test_a_last_job_that_is_killed_once_it_is_done_does_not_run_again(tmp_path: Path) -> None:
    (tmp_path / "result.json").write_text('{"job": "train", "status": "done"}')
    file = tmp_path / "run"
    command_line = ("sh", "-c", f"echo {tmp_path} > {file}; kill -KILL $$")
    process = foreground_job.JobProcess("train", tmp_path, command_line, os.environ, file, of=2)
    policy = foreground_job.JobRestartPolicy()
    assert foreground_job.run_to_its_end(process, lambda: pytest.fail("again"), policy) == 0


def test_ctrl_c_reaches_the_job_once(tmp_path: Path) -> None:
    with job(tmp_path / "journal", "result") as one:
        pid = interrupted(one)
        code, words = one.end()
    assert (code, one.journal) == (ExitCode.CANCELLED, [str(pid), "SIGINT"])
    assert "result so far" in words


def test_on_a_terminal_the_message_has_a_line_of_its_own(tmp_path: Path) -> None:
    with job(tmp_path / "journal", "result", stderr_on_terminal=True) as one:
        interrupted(one)
        one.end()
        assert b"\r\ninterrupted: the job has" in os.read(one.terminal, 4096)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_to_the_command_alone_becomes_one_interrupt(
    tmp_path: Path, number: signal.Signals
) -> None:
    with job(tmp_path / "journal", "result") as one:
        pid = one.pid()
        one.driver.send_signal(number)
        assert one.end()[0] == ExitCode.CANCELLED
    assert one.journal == [str(pid), "SIGINT"]


@pytest.mark.parametrize(
    ("deadline_seconds", "said"),
    [(PATIENCE_SECONDS, ""), (0.5, "did not end within 0 s: killed")],
    ids=["by a second Ctrl-C", "at the deadline"],
)
def test_a_job_that_does_not_end_is_killed(
    tmp_path: Path, deadline_seconds: float, said: str
) -> None:
    with job(tmp_path / "journal", "deaf", deadline_seconds) as one:
        pid = one.pid()
        if not said:  # else it may be killed before it hears the interrupt
            interrupted(one)
        os.write(one.terminal, b"\x03")
        code, words = one.end()
        assert gone(pid)
    assert code == ExitCode.CANCELLED
    assert said in words


def test_a_job_dies_with_its_command(tmp_path: Path) -> None:
    with job(tmp_path / "journal", "deaf") as one:
        pid = one.pid()
        one.driver.kill()
        eventually(lambda: gone(pid), "the death of the job")


class CountingJob(Child):
    """Stands for a job; counts its interrupts."""

    interrupts = 0

    def __init__(self) -> None: ...

    def __del__(self) -> None: ...

    def __enter__(self) -> "CountingJob":
        return self

    def __exit__(self, *raised: object) -> None: ...

    def interrupt(self) -> None:
        type(self).interrupts += 1

    def wait(self, timeout: float | None = None) -> int:
        return 0


def test_one_interrupt_is_one_at_every_line_of_a_start() -> None:
    """The second one would kill the job. Ctrl-C may come between its start and the wait for it."""
    code = foreground_job.run_in_foreground.__code__
    lines = sorted({line for *_, line in code.co_lines() if line is not None})
    for wanted in lines:
        CountingJob.interrupts = 0
        sent = False

        def traced(frame: FrameType, event: str, _found: object, at: int = wanted) -> Any:
            nonlocal sent
            if frame.f_code is not code:
                return None
            handled = signal.getsignal(signal.SIGINT) is not signal.default_int_handler
            if event == "line" and frame.f_lineno == at and handled and not sent:
                sent = True
                os.kill(os.getpid(), signal.SIGINT)
            return traced

        before = sys.gettrace()
        sys.settrace(traced)
        try:
            ending = foreground_job.run_in_foreground(CountingJob)
        finally:
            sys.settrace(before)
        assert ending.interrupted == sent
        assert CountingJob.interrupts == sent
        assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)
