"""An error ends in what to do next: a sample of those that a person may meet."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from cluster.jobs.run_folder import RunFolder, newest_model, newest_unfinished, unfinished
from core.errors import ClusterError
from core.inventory import load
from core.inventory.templates import local_inventory
from deploy.cluster.selection import select
from deploy.jobs.request import JobRequest
from deploy.supervisor.services import Supervised
from tests.deploy.typed import Fab

ADVICE = re.compile(
    r"`[^`]+`|\b(add|give|leave|set|use|write|name|run|start|wait|choose|expected|put|take|is"
    r" there|is it|are they)\b"
)


def advised(problem: str) -> bool:
    """Whether the message names a command, an instruction, or what to look at."""
    *_, last = re.split(r"[:;] ", problem.strip())
    return bool(ADVICE.search(last))


def inventory_in(folder: Path) -> Path:
    path = folder / "inventory.yaml"
    path.write_text(local_inventory(1, 1, lambda count: range(2222, 2222 + count)))
    return path


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
        inventory_in(tmp_path)
    done = fab(line)
    assert done.code in (1, 2)
    assert advised(done.stderr), done.stderr


FAILING: dict[str, Callable[[Path], object]] = {
    "no run": newest_unfinished,
    "no model": newest_model,
    "not a run": unfinished,
    "a finished run": lambda folder: unfinished(folder / "done"),
    "no room": lambda folder: RunFolder(folder / "taken", "train"),
    "another request": lambda folder: JobRequest.read(folder / "request.json"),
    "stopped": lambda folder: Supervised(load(inventory_in(folder)), ()).restart_in_place(()),
    "nobody there": lambda folder: select(
        load(inventory_in(folder)).tasks(), ["worker"], ["rpi03"]
    ),
}


@pytest.mark.parametrize("fails", FAILING.values(), ids=FAILING)
def test_what_cannot_be_done(tmp_path: Path, fails: Callable[[Path], object]) -> None:
    (tmp_path / "taken").write_text("a file where a folder should be")
    (tmp_path / "request.json").write_text("{}")
    (tmp_path / "done").mkdir()
    (tmp_path / "done" / "coordinator.log").touch()
    (tmp_path / "done" / "result.json").write_text('{"status": "done"}')
    with pytest.raises(ClusterError) as raised:
        fails(tmp_path)
    assert advised(str(raised.value)), raised.value
