"""The folder of all jobs: root's, in an order of its own, whatever the clock says."""

import hashlib
import os
import resource
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from deploy.jobs.records import JobsRoot
from deploy.rooted.commands import drop_job, file_list, new_job
from tests.deploy.release.wheels import names
from tests.habits import needs

FIRST = "20261121T2230-pi"
SECOND = f"{FIRST}-2"
NOBODY = 65534
REQUEST = b"{}"


@pytest.fixture(autouse=True, scope="module")
def as_root() -> None:
    needs.root("files of other accounts")


Limit = Callable[[], None]
Files = tuple[bytes, ...]


def limited(kind: int, size: int) -> Limit:
    return lambda: resource.setrlimit(kind, (size, size))


class Node:
    """The folder of jobs, and a systemd that knows which of them live."""

    def __init__(self, folder: Path) -> None:
        self.root = JobsRoot(folder / "state")
        self.root.jobs.mkdir(parents=True)
        self._systemctl = folder / "systemctl"
        self._alive = folder / "alive"
        self.systemd(f'cat "{self._alive}" 2>/dev/null || exit 0')

    def systemd(self, script: str) -> None:
        self._systemctl.write_text(f"#!/bin/sh\n{script}\n")
        self._systemctl.chmod(0o755)

    def live(self, *names: str) -> None:
        lines = [f"pscluster-job@{name}.service loaded active running a job\n" for name in names]
        self._alive.write_text("".join(lines))

    def start(self, words: list[str], limit: Limit | None = None) -> "subprocess.Popen[bytes]":
        return subprocess.Popen(
            words,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={"PATH": f"{self._systemctl.parent}:{os.environ['PATH']}"},
            preexec_fn=limit,
        )

    def words(self, first: str = FIRST, kept: int = 50, files: Files = (REQUEST,)) -> list[str]:
        names = ("request.json", "train.tar")
        listed = [
            (name, hashlib.sha256(content).hexdigest(), len(content))
            for name, content in zip(names, files, strict=False)
        ]
        return new_job(str(self.root.jobs), "nobody", kept, first, file_list(listed))

    def submitting(
        self, words: list[str], sent: bytes = REQUEST, limit: Limit | None = None
    ) -> tuple[int, str]:
        """The return code, and the last line."""
        with self.start(words, limit) as process:
            out, errors = process.communicate(sent)
        return process.returncode, (errors or out).decode().strip()

    def submit(self, first: str = FIRST, kept: int = 50) -> str:
        code, name = self.submitting(self.words(first, kept))
        assert code == 0, name
        return name

    def drop(self, name: str) -> int:
        return self.submitting(drop_job(str(self.root.jobs), name))[0]

    @property
    def names(self) -> list[str]:
        return [folder.id for folder in self.root.all()]


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path)


def test_a_job_has_its_files_and_belongs_to_the_account(node: Node) -> None:
    assert [node.submit(), node.submit()] == node.names == [FIRST, SECOND]
    job = node.root.job(FIRST)
    found = job.path.stat()
    assert (found.st_uid, found.st_mode & 0o777) == (NOBODY, 0o750)
    assert (job.request.read_text(), job.request.stat().st_uid) == ("{}", 0)


def test_the_first_submitted_go_first_whatever_their_names_say(node: Node) -> None:
    hours = ("2230", "2100", "2359", "0001")
    submitted = [node.submit(f"20261121T{hour}-pi", kept=3) for hour in hours]
    assert node.names == submitted[1:]
    assert names(node.root.jobs) == sorted([".order", *submitted[1:]])


def test_a_job_that_lives_stays_however_old(node: Node) -> None:
    oldest = node.submit("20261121T2229-pi")
    node.submit("20261121T2229-train")
    node.live(oldest)
    newest = [node.submit(kept=2) for _ in range(3)]
    assert node.names == [oldest, *newest[-2:]]


def test_without_systemd_s_word_nothing_goes(node: Node) -> None:
    node.systemd("exit 1")
    assert [node.submit(kept=1) for _ in range(3)] == node.names


def test_jobs_of_an_older_version_come_before_all_others(node: Node) -> None:
    old = ["20261122T0001-pi", "20261122T0001-pi-2"]
    for name in old:
        node.root.job(name).path.mkdir()
    assert node.submit() == FIRST
    assert node.names == [*old, FIRST]
    assert node.submit(kept=3) == SECOND
    assert node.names == [old[1], FIRST, SECOND]


def test_links_that_an_older_version_let_in_go_and_their_targets_stay(
    node: Node, tmp_path: Path
) -> None:
    treasure = tmp_path / "treasure"
    treasure.mkdir()
    (treasure / "file").touch()
    (node.root.jobs / "20200101T0000-pi").symlink_to(treasure)
    (node.root.jobs / ".order").symlink_to(treasure / "file")
    assert [node.submit(kept=1)] == node.names
    assert (treasure / "file").read_bytes() == b""


def test_a_folder_of_jobs_that_is_the_account_s_is_refused(node: Node) -> None:
    os.chown(node.root.jobs, NOBODY, NOBODY)
    code, line = node.submitting(node.words())
    assert code == 1
    assert "expected a folder that only root can change" in line
    assert names(node.root.jobs) == []


@pytest.mark.parametrize(
    ("sent", "line"),
    [
        (b"{}12", "train.tar: expected 3 bytes, 2 came: submit it again"),
        (b"{}1234", "more bytes came than the files have: submit the job again"),
        (b"{}124", "train.tar: other bytes came than were sent: submit it again"),
    ],
)
def test_other_bytes_than_were_listed_are_one_line_and_leave_nothing(
    node: Node, sent: bytes, line: str
) -> None:
    assert node.submitting(node.words(files=(REQUEST, b"123")), sent) == (1, line)
    assert names(node.root.jobs) == []


def test_a_full_disk_is_told_and_leaves_nothing(node: Node) -> None:
    limit = limited(resource.RLIMIT_FSIZE, 1 << 10)
    content = bytes(2 << 10)
    code, line = node.submitting(node.words(files=(content,)), content, limit)
    assert (code, line) == (71, f"{node.root.jobs}: [Errno 27] File too large")
    assert names(node.root.jobs) == []


def test_an_archive_passes_through_root_in_bounded_memory(node: Node) -> None:
    content = os.urandom(64 << 20)
    limit = limited(resource.RLIMIT_AS, 80 << 20)
    assert node.submitting(node.words(files=(content,)), content, limit) == (0, FIRST)
    assert node.root.job(FIRST).request.read_bytes() == content


@pytest.mark.parametrize(("number", "rest"), [(signal.SIGTERM, 0), (signal.SIGKILL, 1)])
def test_a_submission_that_is_ended_holds_up_no_other_one_and_leaves_nothing(
    node: Node, number: signal.Signals, rest: int
) -> None:
    with node.start(node.words(files=(bytes(2 << 20),))) as process:
        assert process.stdin is not None
        process.stdin.write(bytes(1 << 20))
        process.stdin.flush()  # more than a pipe holds: some was read
        assert node.submit() == FIRST
        process.send_signal(number)
        process.wait()
    assert len(names(node.root.jobs)) == len([".order", FIRST]) + rest
    assert node.submit() == SECOND
    assert names(node.root.jobs) == [".order", FIRST, SECOND]


def test_a_job_that_was_refused_leaves_nothing_and_one_that_began_stays(node: Node) -> None:
    refused, began, lives = (node.submit() for _ in range(3))
    node.root.job(began).state.write_text("{}")
    node.live(lives)
    assert [node.drop(name) for name in (refused, began, lives)] == [0, 0, 0]
    assert node.names == [began, lives]
    assert node.drop("../../etc") == 1
