"""The leak check sees what it is there to see."""

import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from tests.habits import leaks

SESSION = "the session of this test"
CHILD = """
import os, signal
print(os.getpid(), flush=True)
signal.pause()
"""
DETACHED = CHILD.replace("print", "os.fork() and os._exit(0)\nos.setsid()\nprint")


def left(before: leaks.Snapshot, *folders: Path) -> list[str]:
    return leaks.left_behind(before, folders, SESSION, grace_seconds=0.0)


@contextmanager
def process(program: str) -> Iterator[str]:
    words = [sys.executable, "-c", program]
    with subprocess.Popen(words, stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        yield f"process {pid}"
        os.kill(pid, signal.SIGKILL)


@contextmanager
def listening_port() -> Iterator[str]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"listening port {server.getsockname()[1]} on 127.0.0.1"


@contextmanager
def thread() -> Iterator[str]:
    """A daemon is none."""
    over = threading.Event()
    threads = [threading.Thread(target=over.wait, name="forgotten")]
    threads += [threading.Thread(target=over.wait, daemon=True)]
    for one in threads:
        one.start()
    yield "thread 'forgotten'"
    over.set()
    for one in threads:
        one.join()


child = partial(process, CHILD)
detached = partial(process, DETACHED)


@pytest.mark.parametrize(
    "leak",
    [child, detached, listening_port, thread],
    ids=["child", "detached process", "port", "thread"],
)
def test_what_is_left_behind_is_found_until_it_is_gone(
    leak: Callable[[], AbstractContextManager[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    if leak is detached:
        monkeypatch.setenv(leaks.MARK, SESSION)
    before = leaks.take((), SESSION)
    with leak() as line:
        assert [found.split(": ")[0] for found in left(before)] == [line]
    assert leaks.left_behind(before, (), SESSION) == []


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
