"""The leak check sees what it is there to see."""

import os
import signal
import socket
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from tests.habits import leaks

SESSION = "the session of this test"
FORGOTTEN_LOOP = "import signal; print('up', flush=True); signal.pause()"


def left(before: leaks.Snapshot, *folders: Path) -> list[str]:
    return leaks.left_behind(before, folders, SESSION, grace_seconds=0.0)


def test_a_quiet_test_leaves_nothing(tmp_path: Path) -> None:
    before = leaks.take((tmp_path,), SESSION)
    assert left(before, tmp_path) == []


def test_a_child_process_is_found() -> None:
    before = leaks.take((), SESSION)
    with subprocess.Popen([sys.executable, "-c", FORGOTTEN_LOOP], stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        child.stdout.readline()
        found = left(before)
        child.kill()
    assert [line.split(":")[0] for line in found] == [f"process {child.pid}"]
    assert left(before) == []


def test_a_detached_process_is_found_by_its_mark(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(leaks.MARK, SESSION)
    before = leaks.take((), SESSION)
    daemon = "import os, signal; os.fork() and os._exit(0); os.setsid(); print(os.getpid(), flush=True); signal.pause()"
    with subprocess.Popen([sys.executable, "-c", daemon], stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        detached = int(parent.stdout.readline())
        parent.wait()
        found = left(before)
        os.kill(detached, signal.SIGKILL)
    assert [line.split(":")[0] for line in found] == [f"process {detached}"]
    assert leaks.left_behind(before, (), SESSION) == []


def test_a_listening_port_is_found() -> None:
    before = leaks.take((), SESSION)
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        assert left(before) == [f"listening port {port} on 127.0.0.1"]
    assert left(before) == []


def test_a_thread_is_found_unless_it_is_a_daemon() -> None:
    before = leaks.take((), SESSION)
    over = threading.Event()
    forgotten = threading.Thread(target=over.wait, name="forgotten")
    daemon = threading.Thread(target=over.wait, daemon=True)
    forgotten.start()
    daemon.start()
    found = left(before)
    over.set()
    forgotten.join()
    daemon.join()
    assert found == ["thread 'forgotten'"]


def test_a_file_is_found_unless_it_is_source_or_a_cache(tmp_path: Path) -> None:
    before = leaks.take((tmp_path,), SESSION)
    (tmp_path / "result.json").touch()
    (tmp_path / "module.py").touch()
    (tmp_path / ".pytest_cache").mkdir()
    assert left(before, tmp_path) == [f"file {tmp_path / 'result.json'}"]


def test_another_cluster_excuses_its_runs_in_the_project_alone(tmp_path: Path) -> None:
    before = replace(leaks.take((tmp_path,), SESSION), others_run_a_cluster=True)
    (tmp_path / "runs").mkdir()
    assert left(before, tmp_path) == [f"file {tmp_path / 'runs'}"]


def test_a_leak_fails_the_test_that_left_it(tmp_path: Path) -> None:
    leaky = tmp_path / "test_leaky.py"
    leaky.write_text("import pathlib\ndef test_leaky():\n    pathlib.Path('forgotten.json').touch()\n")
    (tmp_path / "conftest.py").write_text("from tests.conftest import *\n")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", f"--rootdir={tmp_path}", "-c", os.devnull, leaky],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(leaks.PROJECT)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 1
    assert f"the test left behind: file {tmp_path / 'forgotten.json'}" in done.stdout
