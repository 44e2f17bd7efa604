"""An error ends in what to do next: a sample of those that a person may meet."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from cluster.errors import ClusterError
from cluster.inventory import load
from cluster.inventory.templates import local_inventory
from cluster.jobs.run_folder import RunFolder, newest_model, newest_unfinished, unfinished
from deploy.cluster.selection import select
from deploy.jobs.request import JobRequest
from deploy.supervisor.services import Supervised
from tests.deploy.typed import Fab

ADVICE = re.compile(
    r"`[^`]+`|\b(add|give|leave|set|use|write|name|run|start|wait|choose|expected|put|take|is there|is it|are they)\b"
)


def advised(problem: str) -> bool:
    """Whether the message says more than what went wrong: a command, an instruction, or what to look at."""
    *_, last = re.split(r"[:;] ", problem.strip())
    return bool(ADVICE.search(last))


@pytest.mark.parametrize(
    "line",
    [
        "deploy status",
        "deploy start --jobs --no-jobs",
        "deploy logs --role nobody",
        "deploy logs --since soon",
        "deploy logs --run 1-train",
        "deploy status --watch 0",
        "deploy restart --role worker:7",
        "job train --run runs/x",
        "job train --epochs many",
        "job attach",
    ],
)
def test_what_is_typed_wrongly(fab: Fab, tmp_path: Path, line: str) -> None:
    if line != "deploy status":  # that one without an inventory
        (tmp_path / "inventory.yaml").write_text(local_inventory(1, 1, lambda count: range(2222, 2222 + count)))
    done = fab(line)
    assert done.code in (1, 2)
    assert advised(done.stderr), done.stderr


def failing(folder: Path) -> dict[str, Callable[[], object]]:
    (folder / "inventory.yaml").write_text(local_inventory(1, 1, lambda count: range(2222, 2222 + count)))
    inventory = load(folder / "inventory.yaml")
    (folder / "taken").write_text("a file where a folder should be")
    (folder / "request.json").write_text("{}")
    (folder / "done").mkdir()
    (folder / "done" / "coordinator.log").touch()
    (folder / "done" / "result.json").write_text('{"status": "done"}')
    return {
        "no run": lambda: newest_unfinished(folder),
        "no model": lambda: newest_model(folder),
        "not a run": lambda: unfinished(folder),
        "a finished run": lambda: unfinished(folder / "done"),
        "no room": lambda: RunFolder(folder / "taken", "train"),
        "another request": lambda: JobRequest.read(folder / "request.json"),
        "stopped": lambda: Supervised(inventory, ()).restart_in_place(()),
        "nobody there": lambda: select(inventory.tasks(), ["worker"], ["rpi03"]),
    }


NAMES = ("no run", "no model", "not a run", "a finished run", "no room", "another request", "stopped", "nobody there")


@pytest.mark.parametrize("name", NAMES)
def test_what_cannot_be_done(tmp_path: Path, name: str) -> None:
    with pytest.raises(ClusterError) as raised:
        failing(tmp_path)[name]()
    assert advised(str(raised.value)), raised.value
