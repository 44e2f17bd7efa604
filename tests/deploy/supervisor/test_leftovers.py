"""What a supervisor leaves behind, and what is cleared away of it."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from core.ground.locks import FileLock
from deploy.common.state_folder import StateFolder
from deploy.supervisor import processes
from deploy.supervisor.processes import ProcessIdentity, identify
from tests.deploy.playing import PATIENCE_SECONDS, eventually, gone
from tests.deploy.release.wheels import names


@pytest.fixture
def child() -> Iterator[subprocess.Popen[bytes]]:
    """A process of ours that is in nobody's way."""
    with subprocess.Popen([sys.executable, "-c", "import signal; signal.pause()"]) as process:
        yield process
        process.kill()


@pytest.fixture
def identity(child: subprocess.Popen[bytes]) -> ProcessIdentity:
    found = identify(child.pid)
    assert found is not None
    return found


def test_what_a_stop_clears_away_is_never_a_living_supervisors(
    tmp_path: Path, child: subprocess.Popen[bytes], identity: ProcessIdentity
) -> None:
    folder = StateFolder(tmp_path / "state")
    folder.create()
    processes.remember(folder.roles, [identity])
    for path in (folder.control_socket, folder.notify_socket, folder.pid):
        path.touch()
    before = names(folder.path)
    with FileLock(folder.lock):  # the supervisor of a `start` that came in between
        assert not processes.clear_folder(folder)
        assert child.poll() is None
    assert names(folder.path) == sorted([*before, "supervisor.lock"])
    assert processes.clear_folder(folder)
    assert child.wait(PATIENCE_SECONDS) == -signal.SIGKILL
    assert names(folder.path) == ["logs", "supervisor.lock"]


def test_clearing_what_never_ran_makes_no_files(tmp_path: Path) -> None:
    assert processes.clear_folder(StateFolder(tmp_path / "state"))
    assert list(tmp_path.iterdir()) == []


def test_a_process_that_ended_by_itself_is_no_error_to_kill(
    child: subprocess.Popen[bytes], identity: ProcessIdentity
) -> None:
    assert not replace(identity, start_ticks=identity.start_ticks - 1).kill()
    assert child.poll() is None
    assert identity.kill()
    eventually(lambda: gone(child.pid), "the death of the child")
    assert not identity.kill()  # a zombie
    child.wait()
    assert not identity.kill()


def test_leftovers_spare_a_process_that_only_has_the_same_pid(tmp_path: Path) -> None:
    path = tmp_path / "state.json"
    ours = {"pid": os.getpid(), "start_ticks": 1, "boot": "another"}
    path.write_text(json.dumps({"processes": [ours]}))
    assert processes.clear(path) == ()
    assert not path.exists()


@pytest.mark.parametrize(
    "content", ["", "{", "[]", '{"processes": [{"pid": 1}]}', '{"processes": 3}']
)
def test_a_damaged_state_file_is_no_obstacle(tmp_path: Path, content: str) -> None:
    path = tmp_path / "state.json"
    path.write_text(content)
    assert processes.clear(path) == ()
