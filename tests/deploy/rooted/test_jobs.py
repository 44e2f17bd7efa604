"""The folder of all jobs: root's, in an order of its own, whatever the clock says."""

import base64
import json
import os
import subprocess
from pathlib import Path

import pytest

from deploy.jobs.node_job.folders import JobsRoot
from deploy.rooted.commands import drop_job, new_job
from tests.habits import needs

FIRST = "20261121T2230-pi"
NOBODY = 65534
SYSTEMCTL = '#!/bin/sh\ncat "{0}/alive" 2>/dev/null || exit {1}\n'


@pytest.fixture(autouse=True, scope="module")
def as_root() -> None:
    needs.root("files of other accounts")


class Node:
    """The folder of jobs, and a systemd that knows which of them live."""

    def __init__(self, folder: Path) -> None:
        self.root = JobsRoot(folder / "state")
        self.root.jobs.mkdir(parents=True)
        (folder / "bin").mkdir()
        self._systemctl = folder / "bin" / "systemctl"
        self._systemctl.write_text(SYSTEMCTL.format(folder, 0))
        self._systemctl.chmod(0o755)
        self._alive = folder / "alive"

    def live(self, *names: str) -> None:
        lines = [f"pscluster-job@{name}.service loaded active running a job\n" for name in names]
        self._alive.write_text("".join(lines))

    def without_systemd(self) -> None:
        self._systemctl.write_text("#!/bin/sh\nexit 1\n")

    def run(self, words: list[str], **files: str) -> "subprocess.CompletedProcess[str]":
        content = {name: base64.b64encode(text.encode()).decode() for name, text in files.items()}
        path = f"{self._systemctl.parent}:{os.environ['PATH']}"
        return subprocess.run(
            words, input=json.dumps(content), capture_output=True, text=True, env={"PATH": path}, check=False
        )

    def submit(self, first: str = FIRST, kept: int = 50) -> str:
        done = self.run(new_job(str(self.root.jobs), "nobody", kept, first), **{"request.json": "{}"})
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    @property
    def names(self) -> list[str]:
        return [folder.id for folder in self.root.all()]


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path)


def test_a_job_has_its_files_and_belongs_to_the_account(node: Node) -> None:
    assert [node.submit(), node.submit()] == [FIRST, f"{FIRST}-2"]
    found = node.root.job(FIRST).path.stat()
    assert (found.st_uid, found.st_mode & 0o777) == (NOBODY, 0o750)
    assert node.root.job(FIRST).request.read_text() == "{}"
    assert node.root.job(FIRST).request.stat().st_uid == 0
    assert node.names == [FIRST, f"{FIRST}-2"]


def test_the_first_submitted_go_first_whatever_their_names_say(node: Node) -> None:
    hours = ("2230", "2100", "2359", "0001")
    names = [node.submit(f"20261121T{hour}-pi", kept=3) for hour in hours]
    assert node.names == names[1:]
    assert sorted(path.name for path in node.root.jobs.iterdir()) == sorted([".order", *names[1:]])


def test_a_job_that_lives_stays_however_old(node: Node) -> None:
    oldest, second = node.submit("20261121T2229-pi"), node.submit("20261121T2229-train")
    node.live(oldest)
    newest = [node.submit(kept=2) for _ in range(3)]
    assert node.names == [oldest, *newest[-2:]]
    assert second not in node.names


def test_without_systemd_s_word_nothing_goes(node: Node) -> None:
    node.without_systemd()
    names = [node.submit(kept=1) for _ in range(3)]
    assert node.names == names


def test_jobs_of_an_older_version_come_before_all_others(node: Node) -> None:
    old = ["20261122T0001-pi", "20261122T0001-pi-2"]
    for name in old:
        node.root.job(name).path.mkdir()
    new = node.submit()
    assert node.names == [*old, new]
    assert [node.submit(kept=3), node.names] == [f"{FIRST}-2", [old[1], new, f"{FIRST}-2"]]


def test_links_that_an_older_version_let_in_go_and_their_targets_stay(node: Node, tmp_path: Path) -> None:
    treasure = tmp_path / "treasure"
    treasure.mkdir()
    (treasure / "file").touch()
    (node.root.jobs / "20200101T0000-pi").symlink_to(treasure)
    (node.root.jobs / ".order").symlink_to(treasure / "file")
    name = node.submit(kept=1)
    assert node.names == [name]
    assert (treasure / "file").read_bytes() == b""


def test_a_folder_of_jobs_that_is_the_account_s_is_refused(node: Node) -> None:
    os.chown(node.root.jobs, NOBODY, NOBODY)
    done = node.run(new_job(str(node.root.jobs), "nobody", 50, FIRST), **{"request.json": "{}"})
    assert done.returncode == 1
    assert "expected a folder that only root can change" in done.stderr
    assert list(node.root.jobs.iterdir()) == []


def test_a_job_that_was_refused_leaves_nothing_and_one_that_began_stays(node: Node) -> None:
    refused, began, lives = node.submit(), node.submit(), node.submit()
    node.root.job(began).state.write_text("{}")
    node.live(lives)
    for name in (refused, began, lives):
        assert node.run(drop_job(str(node.root.jobs), name)).returncode == 0
    assert node.names == [began, lives]
    assert node.run(drop_job(str(node.root.jobs), "../../etc")).returncode == 1
