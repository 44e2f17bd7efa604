"""A node's logs, read and followed by the commands that it is given: nothing is lost between, nothing comes twice."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from cluster.logs.lines import utc
from deploy.cluster.connection import _DIES_WITH_ITS_INPUT
from deploy.common.command_line import Words, shell
from deploy.logs import journal as journals
from deploy.logs.file_log import FileLog, fixed, log_of_latest_job, log_of_run
from deploy.logs.journal import Journal
from tests.habits import needs

HERE = Path(__file__).parents[1]
AT = 1795305600
PATIENCE_SECONDS = 60.0
RUN = "20261122T000000Z-train"


class PlayedJournal:
    """A journal in a folder of its own, with journalctl for it: the real one, or one that is played."""

    def __init__(self, folder: Path, *, real: bool) -> None:
        folder.mkdir()
        self._folder, self._real, self._written = folder, real, 0
        words = [str(needs.tool("journalctl"))] if real else [sys.executable, str(HERE / "play_journalctl.py")]
        self.journalctl = (*words, "-D", str(folder))
        if real:
            self.write("another.service", 0, "begins")  # a machine's journal is never empty

    def write(self, unit: str, seconds: float, *messages: str) -> None:
        """Lines of that time."""
        for message in messages:
            self._written += 1
            fields = {
                "__REALTIME_TIMESTAMP": str(int((AT + seconds) * 1e6) + self._written),
                "__MONOTONIC_TIMESTAMP": str(self._written),
                "_BOOT_ID": "0" * 31 + "1",
                "_SYSTEMD_UNIT": unit,
                "MESSAGE": message,
            }
            if self._real:
                exported = "".join(f"{name}={value}\n" for name, value in fields.items()) + "\n"
                writer = [*needs.machine_id(), str(needs.tool("systemd-journal-remote"))]
                words = [*writer, "-o", str(self._folder / "it.journal"), "-"]
                subprocess.run(words, input=exported, text=True, check=True, capture_output=True, timeout=60)
            else:
                with (self._folder / "journal").open("a") as journal:
                    journal.write(json.dumps(fields) + "\n")


@pytest.fixture(params=["real", "played"])
def journal(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> PlayedJournal:
    made = PlayedJournal(tmp_path / "journal", real=request.param == "real")
    monkeypatch.setattr(journals, "JOURNALCTL", made.journalctl)
    return made


def on_node(command: Words) -> bytes:
    ended = subprocess.run(command, capture_output=True, timeout=60)
    assert (ended.returncode, ended.stderr) == (0, b""), command
    return ended.stdout


@contextmanager
def streamed(command: Words) -> "Iterator[subprocess.Popen[str]]":
    """As `NodeConnection.stream` starts it: it ends when its input does."""
    words = shell(_DIES_WITH_ITS_INPUT, *command)
    with subprocess.Popen(
        words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True
    ) as it:
        try:
            yield it
        finally:
            assert it.stdin is not None
            it.stdin.close()
            it.wait(PATIENCE_SECONDS)


def lines_of(log: Journal | FileLog, following: "subprocess.Popen[str]", last: str) -> list[str]:
    """What comes, up to the line that ends with `last`; the test's own time limit is the patience."""
    assert following.stdout is not None
    told: list[str] = []
    while not told or not told[-1].endswith(last):
        text = following.stdout.readline()
        assert text, f"it ended after {told}"
        entry = log.came(text.removesuffix("\n"))
        told += [] if entry is None else [entry.text]
    return told


WORKER = "pscluster-worker-0.service"


def of_worker(count: int = 20, since: float = 0.0, patterns: Sequence[str] = (WORKER, "pscluster-*")) -> Journal:
    return Journal("pi-2", "pi-2", patterns, count, since)


def test_a_journal_is_followed_from_the_line_at_which_reading_ended(journal: PlayedJournal) -> None:
    journal.write(WORKER, 1, "one", "two", "three")
    journal.write("ssh.service", 1, "not ours")
    log = of_worker(2)
    assert [entry.text for entry in log.read(on_node(log.reading()))] == ["two", "three"]
    journal.write(WORKER, 2, "between")
    journal.write("pscluster-ps-0.service", 2, "of a role that is new")
    with streamed(log.following()) as following:
        assert lines_of(log, following, "new") == ["between", "of a role that is new"]
        journal.write(WORKER, 3, "live")
        assert lines_of(log, following, "live") == ["live"]


def test_without_lines_wanted_following_begins_there_too(journal: PlayedJournal) -> None:
    journal.write(WORKER, 1, "one", "two")
    log = of_worker(0)
    log.read(on_node(log.reading()))
    journal.write(WORKER, 2, "between")
    with streamed(log.following()) as following:
        assert lines_of(log, following, "between") == ["between"]


@pytest.mark.parametrize("since", [0.0, AT + 5.25])
def test_where_nothing_was_read_all_that_is_there_is_new(journal: PlayedJournal, since: float) -> None:
    journal.write("pscluster-job@1-pi.service" if since else "ssh.service", 1, "old")
    log = of_worker(20, since, ["pscluster-job@*"])
    assert log.read(on_node(log.reading())) == []
    journal.write("pscluster-job@2-pi.service", 6, "Started")
    with streamed(log.following()) as following:
        assert lines_of(log, following, "Started") == ["Started"]


def test_of_a_time_the_newest_lines_are_read_not_the_first(journal: PlayedJournal) -> None:
    for seconds in range(6):
        journal.write(WORKER, seconds, f"at {seconds}")
    log = of_worker(2, AT + 1.5)
    told = log.read(on_node(log.reading()))
    assert [entry.text for entry in told] == ["at 4", "at 5"]
    assert [entry.seconds - AT for entry in told] == pytest.approx([4, 5], abs=0.001)
    log = of_worker(20, AT + 3.5)
    assert [entry.text for entry in log.read(on_node(log.reading()))] == ["at 4", "at 5"]


def test_a_journal_that_could_not_be_read_is_followed_from_now_on(journal: PlayedJournal) -> None:
    journal.write(WORKER, 1, "old")
    log = of_worker()
    with streamed(log.following()) as following:
        assert following.stdout is not None
        os.set_blocking(following.stdout.fileno(), False)
        end, told = time.monotonic() + PATIENCE_SECONDS, ""
        while not told and time.monotonic() < end:
            journal.write(WORKER, 2, "new")
            time.sleep(0.1)
            told = following.stdout.readline()
    assert '"MESSAGE": "new"' in told or '"MESSAGE":"new"' in told


def test_no_character_of_a_line_splits_it(journal: PlayedJournal) -> None:
    message = "a\N{LINE SEPARATOR}b\x1ec\x85d"
    journal.write(WORKER, 1, message)
    log = of_worker()
    assert [entry.text for entry in log.read(on_node(log.reading()))] == [message]


def line(seconds: float, message: str) -> str:
    return f"{utc(AT + seconds)} INFO coordinator:0 127.0.0.1:1 run {RUN}: {message}"


def write(path: Path, *lines: str, end: str = "\n") -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as log:
        log.write("\n".join(lines) + end)


def coordinators(folder: Path, count: int = 20, run: str = "") -> FileLog:
    place = log_of_run(str(folder / "runs"), run) if run else log_of_latest_job(str(folder / "jobs"))
    return FileLog("pi-1", place, count, run=run, clock=lambda: AT + 99)


def last(folder: Path, count: int, run: str = "") -> list[str]:
    log = coordinators(folder, count, run)
    return [entry.text for entry in log.read(on_node(log.reading()))][-count:]


def job_with_run(folder: Path, job: str, run: str) -> Path:
    """The coordinator's log of the job's run."""
    write(folder / "jobs" / job / "run", f"{folder}/runs/{run}")
    return folder / "runs" / run / "coordinator.log"


def test_the_coordinators_log_on_its_node(tmp_path: Path) -> None:
    assert last(tmp_path, 5) == []
    write(tmp_path / "jobs" / "20261122T0000-pi" / "output.log", "refused")
    assert last(tmp_path, 5) == ["refused"]
    write(tmp_path / "runs" / RUN / "coordinator.log", "one", "two")
    job_with_run(tmp_path, "20261122T0001-train", RUN)
    assert last(tmp_path, 1) == ["two"]
    assert last(tmp_path, 5, RUN) == ["one", "two"]
    assert last(tmp_path, 5, "another") == []


def test_what_a_job_said_that_never_got_as_far_as_a_run_has_the_time_of_its_file(tmp_path: Path) -> None:
    output = tmp_path / "jobs" / "20261122T0000-pi" / "output.log"
    write(output, "refused", "    for a reason")
    os.utime(output, (AT + 7, AT + 7))
    log = coordinators(tmp_path)
    assert [entry.seconds - AT for entry in log.read(on_node(log.reading()))] == [7, 7]
    write(output, line(9, "again"))
    log = coordinators(tmp_path)
    assert [entry.seconds - AT for entry in log.read(on_node(log.reading()))] == [9, 9, 9]


def test_the_end_of_a_traceback_has_the_time_of_its_beginning(tmp_path: Path) -> None:
    path = job_with_run(tmp_path, "1-train", RUN)
    write(path, line(1, "before"), line(2, "it fails"), *(f"    row {row}" for row in range(40)))
    log = coordinators(tmp_path, 20)
    told = log.read(on_node(log.reading()))
    assert [entry.seconds - AT for entry in told] == [2] * 41
    assert {entry.run for entry in told} == {RUN}


def test_the_coordinators_log_is_followed_from_the_byte_at_which_reading_ended(tmp_path: Path) -> None:
    path = job_with_run(tmp_path, "1-train", RUN)
    write(path, line(1, "one"), line(2, "two"), line(3, "h\N{LATIN SMALL LETTER A WITH DIAERESIS}l"), end="")
    log = coordinators(tmp_path, 1)
    assert [entry.text for entry in log.read(on_node(log.reading()), follow=True)] == [line(2, "two")]
    write(path, "f", "    between")
    with streamed(log.following()) as following:
        half = line(3, "h\N{LATIN SMALL LETTER A WITH DIAERESIS}lf")
        assert lines_of(log, following, "between") == [half, "    between"]
        write(path, "    live")
        assert lines_of(log, following, "live") == ["    live"]
        assert log.came("    more") is not None
    assert _ended(path)


def test_what_a_run_said_before_the_next_began_is_followed_too(tmp_path: Path) -> None:
    first = job_with_run(tmp_path, "1-pi", "1-pi")
    write(first, line(1, "one"))
    log = coordinators(tmp_path)
    assert len(log.read(on_node(log.reading()), follow=True)) == 1
    write(first, line(2, "over"))
    second = job_with_run(tmp_path, "2-train", "2-train")
    write(second, line(3, "begins"))
    with streamed(log.following()) as following:
        assert lines_of(log, following, "begins") == [line(2, "over"), line(3, "begins")]
    assert _ended(first)
    assert _ended(second)


def test_the_next_run_is_followed_too_and_nothing_stays_behind(tmp_path: Path) -> None:
    first, second = job_with_run(tmp_path, "1-pi", "1-pi"), tmp_path / "runs" / "2-train" / "coordinator.log"
    write(first, line(1, "old"))
    log = coordinators(tmp_path)
    with streamed(log.following()) as following:  # it was not read: from now on
        end = time.monotonic() + PATIENCE_SECONDS
        while not any(_tails(first)) and time.monotonic() < end:
            time.sleep(0.05)
        write(first, line(2, "new"))
        assert lines_of(log, following, "new") == [line(2, "new")]
        write(second, "refused", "begins")
        job_with_run(tmp_path, "2-train", "2-train")
        assert lines_of(log, following, "begins") == ["refused", "begins"]
        undated = log.came("more")
        assert undated is not None
        assert undated.seconds == AT + 99  # that at which it came, not the time of the run before
        assert undated.run == ""
    assert _ended(first)
    assert _ended(second)


def test_a_job_that_gets_as_far_as_a_run_is_told_once(tmp_path: Path) -> None:
    log = coordinators(tmp_path)
    assert log.read(on_node(log.reading()), follow=True) == []
    output = tmp_path / "jobs" / "1-train" / "output.log"
    with streamed(log.following()) as following:
        write(output, "it begins")
        assert lines_of(log, following, "it begins") == ["it begins"]
        path = job_with_run(tmp_path, "1-train", RUN)
        write(path, line(1, "the run"))
        assert lines_of(log, following, "the run") == [line(1, "the run")]
        assert _ended(output), "what goes to both is told by the run's log alone"
    assert _ended(path)


def test_what_a_start_file_prints_is_no_log(tmp_path: Path) -> None:
    log = coordinators(tmp_path)
    assert log.read(b"Welcome to pi-1\n" + on_node(log.reading())) == []
    write(job_with_run(tmp_path, "1-train", RUN), line(1, "one"))
    assert [entry.text for entry in log.read(b"Welcome to pi-1\n" + on_node(log.reading()))] == [line(1, "one")]


def test_the_log_of_a_run_that_has_not_begun_is_followed_from_its_beginning(tmp_path: Path) -> None:
    log = coordinators(tmp_path, 20, RUN)
    assert log.read(on_node(log.reading()), follow=True) == []
    path = tmp_path / "runs" / RUN / "coordinator.log"
    with streamed(log.following()) as following:
        write(path, line(1, "one"))
        assert lines_of(log, following, "one") == [line(1, "one")]
    assert _ended(path)


def _ended(log: Path) -> bool:
    end = time.monotonic() + PATIENCE_SECONDS
    while any(_tails(log)) and time.monotonic() < end:
        time.sleep(0.05)
    return not any(_tails(log))


def _tails(log: Path) -> Iterator[str]:
    """Processes that read this log."""
    for process in Path("/proc").glob("[0-9]*/fd/*"):
        try:
            if os.readlink(process) == str(log):
                yield process.parts[2]
        except OSError:
            continue


def test_the_end_of_a_file_is_its_last_lines(tmp_path: Path) -> None:
    path = tmp_path / "worker-0.log"

    def last_lines(count: int) -> list[str]:
        log = FileLog("worker:0", fixed(str(path)), count)
        return [entry.text for entry in log.read(on_node(log.reading()))][-count:]

    assert last_lines(5) == []
    lines = [line(number, f"{'x' * (number % 300)} é") for number in range(2000)]
    write(path, *lines)
    for count in (3, 1999, 10**6):
        assert last_lines(count) == lines[-count:]


def test_a_file_that_is_set_aside_new_or_cut_is_followed_by_whole_lines(tmp_path: Path) -> None:
    path = tmp_path / "ps-0.log"
    log = FileLog("ps:0", fixed(str(path)), 20)
    assert log.read(on_node(log.reading()), follow=True) == []
    with streamed(log.following()) as following:
        write(path, "born")
        assert lines_of(log, following, "born") == ["born"]
        write(path, "half a line", end="")
        write(path, ", the other half", "next")
        assert lines_of(log, following, "next") == ["half a line, the other half", "next"]
        path.replace(tmp_path / "ps-0.log.1")
        write(path, "after")
        assert lines_of(log, following, "after") == ["after"]
        path.write_text("cut\n")
        assert lines_of(log, following, "cut") == ["cut"]
    assert _ended(path)
