import fcntl
import os
import pty
import signal
import subprocess
import sys
import termios
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from cluster.errors import ExitCode
from deploy.common.project import environment_for_any_folder
from tests.deploy.playing import PATIENCE_SECONDS, eventually, gone

HERE = Path(__file__).parents[1]


class Job:
    """A driver that runs a played job in its foreground, on a terminal of its own."""

    def __init__(self, journal: Path, how: str, deadline_seconds: float, stderr_on_terminal: bool) -> None:
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
        return self._journal.read_text().splitlines() if self._journal.exists() else []

    def pid(self) -> int:
        eventually(lambda: len(self.journal) > 0, "the start of the job")
        return int(self.journal[0])

    def end(self) -> tuple[int, str]:
        _, words = self.driver.communicate(timeout=PATIENCE_SECONDS)
        return self.driver.returncode, words


@contextmanager
def job(
    journal: Path, how: str, deadline_seconds: float = PATIENCE_SECONDS, stderr_on_terminal: bool = False
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


@pytest.mark.parametrize("code", [0, 2, 130])
def test_the_exit_code_is_passed_on(tmp_path: Path, code: int) -> None:
    with job(tmp_path / "journal", f"exit {code}") as one:
        assert one.end()[0] == code


def test_ctrl_c_reaches_the_job_once(tmp_path: Path) -> None:
    with job(tmp_path / "journal", "result") as one:
        pid = one.pid()
        os.write(one.terminal, b"\x03")
        code, words = one.end()
    assert code == ExitCode.CANCELLED
    assert one.journal == [str(pid), "SIGINT"]
    assert "result so far" in words


def test_on_a_terminal_the_message_has_a_line_of_its_own(tmp_path: Path) -> None:
    with job(tmp_path / "journal", "result", stderr_on_terminal=True) as one:
        one.pid()
        os.write(one.terminal, b"\x03")
        one.end()
        shown = os.read(one.terminal, 4096)
    assert b"\r\ninterrupted: the job has" in shown


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_to_the_command_alone_becomes_one_interrupt(tmp_path: Path, number: signal.Signals) -> None:
    with job(tmp_path / "journal", "result") as one:
        pid = one.pid()
        one.driver.send_signal(number)
        assert one.end()[0] == ExitCode.CANCELLED
    assert one.journal == [str(pid), "SIGINT"]


def test_a_second_ctrl_c_kills_a_job_that_does_not_end(tmp_path: Path) -> None:
    with job(tmp_path / "journal", "deaf") as one:
        pid = one.pid()
        os.write(one.terminal, b"\x03")
        eventually(lambda: one.journal == [str(pid), "SIGINT"], "the interrupt")
        os.write(one.terminal, b"\x03")
        assert one.end()[0] == ExitCode.CANCELLED
        assert gone(pid)


def test_a_job_that_does_not_end_is_killed_at_the_deadline(tmp_path: Path) -> None:
    with job(tmp_path / "journal", "deaf", deadline_seconds=0.5) as one:
        pid = one.pid()
        one.driver.send_signal(signal.SIGINT)
        code, words = one.end()
        assert gone(pid)
    assert code == ExitCode.CANCELLED
    assert "did not end within 0 s: killed" in words


def test_a_job_dies_with_its_command(tmp_path: Path) -> None:
    with job(tmp_path / "journal", "deaf") as one:
        pid = one.pid()
        one.driver.kill()
        eventually(lambda: gone(pid), "the death of the job")


@pytest.mark.parametrize(("number", "code"), [(signal.SIGKILL, ExitCode.FAILED), (signal.SIGTERM, ExitCode.CANCELLED)])
def test_a_job_that_is_killed_failed_and_one_that_was_asked_to_end_is_cancelled(
    tmp_path: Path, number: signal.Signals, code: int
) -> None:
    with job(tmp_path / "journal", "deaf") as one:
        os.kill(one.pid(), number)
        assert one.end()[0] == code
