"""The process that starts those of models: where there is none, where it hangs, or has ended."""

import os
import signal
import socket
from pathlib import Path

import pytest

from core.ground.errors import ClusterError
from recognise.service.limits import Limits
from recognise.service.worker import process
from recognise.service.worker.process import ForkedProcess, ModelProcess, Nursery
from tests.recognise.service.exports import export


def test_where_no_process_can_be_started(monkeypatch: pytest.MonkeyPatch) -> None:
    def short(*_: object, **__: object) -> None:
        raise OSError(12, "Cannot allocate memory")

    monkeypatch.setattr("subprocess.Popen", short)
    with pytest.raises(ClusterError, match=r"models \(Cannot allocate memory\): free some memory"):
        Nursery()


def test_one_that_hangs_is_killed(nursery: Nursery, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "END_SECONDS", 0.1)
    os.kill(nursery._process.pid, signal.SIGSTOP)
    nursery.close()
    assert nursery._process.returncode == -signal.SIGKILL


def test_what_one_that_hangs_does_not_say_counts_as_killed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(process, "END_SECONDS", 0.1)
    life, silent = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with silent:
        forked = ForkedProcess(life)
        assert forked.poll() is None
        assert forked.wait() == -signal.SIGKILL


def test_no_model_opens_once_it_has_ended(tmp_path: Path, nursery: Nursery) -> None:
    nursery._process.kill()
    nursery._process.wait()
    description = export(tmp_path)
    with pytest.raises(ClusterError, match="the process that starts models has ended"):
        ModelProcess(tmp_path, description, Limits(), nursery)
