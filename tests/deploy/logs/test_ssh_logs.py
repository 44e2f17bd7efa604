"""`fab deploy logs` over SSH as somebody types it, on nodes that are one real sshd without
systemd."""

import getpass
import json
from pathlib import Path
from typing import Any

import pytest

from deploy.cluster.places import NodePlaces
from deploy.converge.systemd import Systemd
from deploy.logs import ClusterLogs, sources
from deploy.logs.sources import FileLog, Journal
from tests.deploy.logs.files import Journals, write
from tests.deploy.typed import Fab, Outcome


def line_of(seconds: int, role: str, message: str) -> str:
    return f"2026-11-22T00:00:{seconds:02d}.000Z INFO {role} 10.77.0.2:2223 run 1-train: {message}"


def tell(journal: Journals, unit: str, seconds: int, message: str) -> None:
    journal.write(f"pscluster-{unit}.service", 1795305600 + seconds, message)


@pytest.fixture
def journal(asked: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Journals:
    """The journal that all nodes have here, where systemd is not, with a coordinator's log of the
    run 1-train."""
    made = Journals(tmp_path / "journal")
    monkeypatch.setattr(sources, "JOURNALCTL", made.journalctl)
    places = NodePlaces(state=str(tmp_path / "state"), user=getpass.getuser())
    monkeypatch.setattr(NodePlaces, "runs", lambda _, inventory: str(tmp_path / "runs"))
    monkeypatch.setattr(Systemd.__init__, "__defaults__", (places,))
    write(tmp_path / "state/jobs/1-train/run", f"{tmp_path}/runs/1-train", end="")
    write(
        tmp_path / "runs/1-train/coordinator.log",
        line_of(2, "coordinator:0", "two"),
        line_of(4, "coordinator:0", "four"),
    )
    for index, seconds in ((0, 1), (1, 3)):
        role = f"worker:{index}"
        tell(made, f"worker-{index}", 0, "ready")
        tell(made, f"worker-{index}", seconds, line_of(seconds, role, "run 1-train begins"))
    return made


ROLES = "deploy logs --role worker --role coordinator"
STORY = [
    "pi-2 worker-0       | run 1-train begins",
    "pi-1 coordinator-0  | two",
    "pi-3 worker-1       | run 1-train begins",
    "pi-1 coordinator-0  | four",
]


def told(shown: Outcome) -> list[str]:
    assert shown.code == 0, shown.stderr
    return [row.partition(" ")[2] for row in shown.stdout.splitlines()[1:]]


def test_the_logs_of_all_nodes_and_the_coordinators_are_one_story(
    journal: Journals, fab: Fab
) -> None:
    assert told(fab(f"{ROLES} --run 1-train")) == STORY
    assert told(fab(f"{ROLES} --lines 3")) == STORY[1:]
    assert told(fab(f"{ROLES} --since 2026-11-22T00:00:03.000Z")) == STORY[2:]
    assert told(fab(f"{ROLES} --since 2026-11-22T00:00:01Z --lines 1")) == STORY[3:]
    tell(journal, "job@1-train", 5, "Deactivated")
    rows = [json.loads(row) for row in fab(f"{ROLES} --json --lines 3").stdout.splitlines()]
    assert [row["message"] for row in rows] == ["run 1-train begins", "four", "Deactivated"]
    assert [row["run"] for row in rows] == ["1-train", "1-train", None]


@pytest.mark.usefixtures("journal")
def test_the_coordinators_log_is_told_where_no_job_stands_in_the_journal(fab: Fab) -> None:
    assert told(fab("deploy logs --role coordinator")) == [STORY[1], STORY[3]]


def test_what_is_written_between_reading_and_following_is_told_once(
    journal: Journals, tmp_path: Path, fab: Fab, monkeypatch: pytest.MonkeyPatch
) -> None:
    follow = ClusterLogs.follow

    def between(*args: Any) -> None:
        tell(journal, "worker-1", 5, line_of(5, "worker:1", "between"))
        of_none = line_of(5, "worker:0", "of no run").replace(" run 1-train", "", 1)
        tell(journal, "worker-0", 5, of_none)
        log = tmp_path / "runs/1-train/coordinator.log"
        write(log, line_of(6, "coordinator:0", "the last"))
        follow(*args)

    def to_its_end(log: FileLog) -> list[str]:
        return ["timeout", "5", "tail", "-c", f"+{log._position + 1}", str(log._path)]

    staying = Journal.following
    monkeypatch.setattr(
        Journal, "following", lambda log: [word for word in staying(log) if word != "-f"]
    )
    monkeypatch.setattr(ClusterLogs, "follow", between)
    monkeypatch.setattr(FileLog, "following", to_its_end)
    more = ["pi-3 worker-1       | between", "pi-1 coordinator-0  | the last"]
    found = told(fab(f"{ROLES} --run 1-train --follow"))
    assert found[: len(STORY)] == STORY
    assert sorted(found[len(STORY) :], reverse=True) == more, (
        "two logs followed at once: either line may come first"
    )
