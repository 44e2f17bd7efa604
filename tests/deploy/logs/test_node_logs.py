"""A node's logs, read and followed by the commands that it is given: nothing is lost between,
nothing comes twice."""

import os
import re
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from core.logs.lines import utc
from deploy.cluster.connection import _DIES_WITH_ITS_INPUT
from deploy.common.command_line import Words, shell
from deploy.logs import sources
from deploy.logs.sources import FileLog, Journal, fixed, log_of_latest_job, log_of_run
from tests.deploy.logs.files import Journals, readers, write
from tests.deploy.playing import eventually
from tests.hang import HANG_SECONDS

HERE = Path(__file__).parents[1]
AT = 1795305600
PATIENCE_SECONDS = 60.0
RUN = "20261122T000000Z-train"


@pytest.fixture
def journal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Journals:
    made = Journals(tmp_path / "journal")
    monkeypatch.setattr(sources, "JOURNALCTL", made.journalctl)
    made.write("another.service", AT, "begins")  # a machine's journal is never empty
    return made


def on_node(command: Words) -> bytes:
    ended = subprocess.run(command, capture_output=True, timeout=HANG_SECONDS)
    assert (ended.returncode, ended.stderr) == (0, b""), command
    return ended.stdout


def read(log: Journal | FileLog, follow: bool = False, before: bytes = b"") -> list[str]:
    """The lines of now; the node's start file prints something before them."""
    return [entry.text for entry in log.read(before + on_node(log.reading()), follow=follow)]


def seconds(log: FileLog) -> list[float]:
    """The times of what is read."""
    return [entry.seconds - AT for entry in log.read(on_node(log.reading()))]


@contextmanager
def streamed(log: Journal | FileLog, *files: Path) -> "Iterator[Comes]":
    """Follows it as `NodeConnection.stream` does: the command ends when its input does.

    Nobody reads the files then.
    """
    words = shell(_DIES_WITH_ITS_INPUT, *log.following())
    with subprocess.Popen(
        words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True
    ) as process:
        try:
            yield Comes(log, process)
        finally:
            assert process.stdin is not None
            process.stdin.close()
            process.wait(PATIENCE_SECONDS)
    unread(*files)


def unread(*files: Path) -> None:
    for file in files:
        eventually(lambda file=file: not any(readers(file)), "the end of who reads the log")  # type: ignore[misc]


class Comes:
    """What comes of a log that is followed."""

    def __init__(self, log: Journal | FileLog, process: "subprocess.Popen[str]") -> None:
        assert process.stdout is not None
        self._log = log
        self.stdout = process.stdout

    def __call__(self, *expected: str) -> None:
        """These lines come, and nothing between; the test's own time limit is the patience."""
        told: list[str] = []
        while len(told) < len(expected):
            text = self.stdout.readline()
            assert text, f"it ended after {told}"
            entry = self._log.came(text.removesuffix("\n"))
            told += [] if entry is None else [entry.text]
        assert told == list(expected)


WORKER = "pscluster-worker-0.service"


def of_worker(
    count: int = 20, since: float = 0.0, patterns: Sequence[str] = (WORKER, "pscluster-*")
) -> Journal:
    return Journal("pi-2", "pi-2", patterns, count, since)


def test_a_journal_is_followed_from_the_line_at_which_reading_ended(journal: Journals) -> None:
    journal.write(WORKER, AT + 1, "one", "two", "three")
    journal.write("ssh.service", AT + 1, "not ours")
    log = of_worker(2)
    assert read(log) == ["two", "three"]
    journal.write(WORKER, AT + 2, "between")
    journal.write("pscluster-ps-0.service", AT + 2, "of a role that is new")
    with streamed(log) as comes:
        comes("between", "of a role that is new")
        journal.write(WORKER, AT + 3, "live")
        comes("live")


def test_without_lines_wanted_following_begins_there_too(journal: Journals) -> None:
    journal.write(WORKER, AT + 1, "one", "two")
    log = of_worker(0)
    log.read(on_node(log.reading()))
    journal.write(WORKER, AT + 2, "between")
    with streamed(log) as comes:
        comes("between")


@pytest.mark.parametrize("since", [0.0, AT + 5.25])
def test_where_nothing_was_read_all_that_is_there_is_new(journal: Journals, since: float) -> None:
    journal.write("pscluster-job@1-pi.service" if since else "ssh.service", AT + 1, "old")
    log = of_worker(20, since, ["pscluster-job@*"])
    assert log.read(on_node(log.reading())) == []
    journal.write("pscluster-job@2-pi.service", AT + 6, "Started")
    with streamed(log) as comes:
        comes("Started")


def test_of_a_time_the_newest_lines_are_read_not_the_first(journal: Journals) -> None:
    for seconds in range(6):
        journal.write(WORKER, AT + seconds, f"at {seconds}")
    log = of_worker(2, AT + 1.5)
    told = log.read(on_node(log.reading()))
    assert [entry.text for entry in told] == ["at 4", "at 5"]
    assert [entry.seconds - AT for entry in told] == pytest.approx([4, 5], abs=0.001)
    assert read(of_worker(20, AT + 3.5)) == ["at 4", "at 5"]


def test_a_journal_that_could_not_be_read_is_followed_from_now_on(journal: Journals) -> None:
    journal.write(WORKER, AT + 1, "old")
    with streamed(of_worker()) as comes:
        os.set_blocking(comes.stdout.fileno(), False)
        told = ""

        def came() -> bool:
            nonlocal told
            journal.write(WORKER, AT + 2, "new")
            time.sleep(0.1)
            told = comes.stdout.readline()
            return bool(told)

        eventually(came, "a line")
    assert re.search('"MESSAGE": ?"new"', told)


def test_no_character_of_a_line_splits_it(journal: Journals) -> None:
    message = "a\N{LINE SEPARATOR}b\x1ec\x85d"
    journal.write(WORKER, AT + 1, message)
    assert read(of_worker()) == [message]


def line(seconds: float, message: str) -> str:
    return f"{utc(AT + seconds)} INFO coordinator:0 127.0.0.1:1 run {RUN}: {message}"


def coordinators(folder: Path, count: int = 20, run: str = "") -> FileLog:
    if run:
        place = log_of_run(str(folder / "runs"), run)
    else:
        place = log_of_latest_job(str(folder / "jobs"))
    return FileLog("pi-1", place, count, run=run, clock=lambda: AT + 99)


def last(folder: Path, count: int, run: str = "") -> list[str]:
    return read(coordinators(folder, count, run))[-count:]


def job_with_run(folder: Path, job: str, run: str) -> Path:
    """The coordinator's log of the job's run."""
    write(folder / "jobs" / job / "run", f"{folder}/runs/{run}")
    return folder / "runs" / run / "coordinator.log"


def test_the_coordinators_log_on_its_node(tmp_path: Path) -> None:
    assert last(tmp_path, 5) == []
    write(tmp_path / "jobs/20261122T0000-pi/output.log", "refused")
    assert last(tmp_path, 5) == ["refused"]
    write(tmp_path / "runs" / RUN / "coordinator.log", "one", "two")
    job_with_run(tmp_path, "20261122T0001-train", RUN)
    assert last(tmp_path, 1) == ["two"]
    assert last(tmp_path, 5, RUN) == ["one", "two"]
    assert last(tmp_path, 5, "another") == []


def test_what_a_job_said_that_never_got_as_far_as_a_run_has_the_time_of_its_file(
    tmp_path: Path,
) -> None:
    output = tmp_path / "jobs/20261122T0000-pi/output.log"
    write(output, "refused", "    for a reason")
    os.utime(output, (AT + 7, AT + 7))
    assert seconds(coordinators(tmp_path)) == [7, 7]
    write(output, line(9, "again"))
    assert seconds(coordinators(tmp_path)) == [9, 9, 9]


def test_the_end_of_a_traceback_has_the_time_of_its_beginning(tmp_path: Path) -> None:
    path = job_with_run(tmp_path, "1-train", RUN)
    write(path, line(1, "before"), line(2, "it fails"), *(f"    row {row}" for row in range(40)))
    log = coordinators(tmp_path, 20)
    told = log.read(on_node(log.reading()))
    assert [entry.seconds - AT for entry in told] == [2] * 41
    assert {entry.run for entry in told} == {RUN}


def test_the_coordinators_log_is_followed_from_the_byte_at_which_reading_ended(
    tmp_path: Path,
) -> None:
    path = job_with_run(tmp_path, "1-train", RUN)
    write(path, line(1, "one"), line(2, "two"), line(3, "häl"), end="")
    log = coordinators(tmp_path, 1)
    assert read(log, follow=True) == [line(2, "two")]
    write(path, "f", "    between")
    with streamed(log, path) as comes:
        comes(line(3, "hälf"), "    between")
        write(path, "    live")
        comes("    live")
        assert log.came("    more") is not None


def test_what_a_run_said_before_the_next_began_is_followed_too(tmp_path: Path) -> None:
    first = job_with_run(tmp_path, "1-pi", "1-pi")
    write(first, line(1, "one"))
    log = coordinators(tmp_path)
    assert read(log, follow=True) == [line(1, "one")]
    write(first, line(2, "over"))
    second = job_with_run(tmp_path, "2-train", "2-train")
    write(second, line(3, "begins"))
    with streamed(log, first, second) as comes:
        comes(line(2, "over"), line(3, "begins"))


def test_the_next_run_is_followed_too_and_nothing_stays_behind(tmp_path: Path) -> None:
    first = job_with_run(tmp_path, "1-pi", "1-pi")
    second = tmp_path / "runs/2-train/coordinator.log"
    write(first, line(1, "old"))
    log = coordinators(tmp_path)
    with streamed(log, first, second) as comes:  # it was not read: from now on
        eventually(lambda: any(readers(first)), "somebody who reads the log")
        write(first, line(2, "new"))
        comes(line(2, "new"))
        write(second, "refused", "begins")
        job_with_run(tmp_path, "2-train", "2-train")
        comes("refused", "begins")
        undated = log.came("more")
        assert undated is not None
        assert undated.seconds == AT + 99  # that at which it came, not the time of the run before
        assert undated.run == ""


def test_a_job_that_gets_as_far_as_a_run_is_told_once(tmp_path: Path) -> None:
    log = coordinators(tmp_path)
    assert read(log, follow=True) == []
    output = tmp_path / "jobs/1-train/output.log"
    path = tmp_path / "runs" / RUN / "coordinator.log"
    with streamed(log, path) as comes:
        write(output, "it begins")
        comes("it begins")
        job_with_run(tmp_path, "1-train", RUN)
        write(path, line(1, "the run"))
        comes(line(1, "the run"))
        unread(output)  # what goes to both is told by the run's log alone


def test_what_a_start_file_prints_is_no_log(tmp_path: Path) -> None:
    log = coordinators(tmp_path)
    assert read(log, before=b"Welcome to pi-1\n") == []
    write(job_with_run(tmp_path, "1-train", RUN), line(1, "one"))
    assert read(log, before=b"Welcome to pi-1\n") == [line(1, "one")]


def test_the_end_of_a_file_is_its_last_lines(tmp_path: Path) -> None:
    path = tmp_path / "worker-0.log"

    def last_lines(count: int) -> list[str]:
        return read(FileLog("worker:0", fixed(str(path)), count))[-count:]

    assert last_lines(5) == []
    lines = [line(number, f"{'x' * (number % 300)} é") for number in range(2000)]
    write(path, *lines)
    for count in (3, 1999, 10**6):
        assert last_lines(count) == lines[-count:]


def test_a_file_that_is_set_aside_new_or_cut_is_followed_by_whole_lines(tmp_path: Path) -> None:
    path = tmp_path / "ps-0.log"
    log = FileLog("ps:0", fixed(str(path)), 20)
    assert read(log, follow=True) == []
    with streamed(log, path) as comes:
        write(path, "born")
        comes("born")
        write(path, "half a line", end="")
        write(path, ", the other half", "next")
        comes("half a line, the other half", "next")
        path.replace(tmp_path / "ps-0.log.1")
        write(path, "after")
        comes("after")
        path.write_text("cut\n")
        comes("cut")
