"""The process that starts those of models: where there is none, where it hangs, or has ended."""

import os
import selectors
import signal
import socket
import subprocess
from pathlib import Path

import pytest

from core.ground.errors import ClusterError
from recognise.service.limits import Limits
from recognise.service.worker import process
from recognise.service.worker.__main__ import ChildProcess, ForkServer
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


def test_an_end_that_is_heard_with_its_life_ends_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    service_end, channel = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    life, child_life = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    server = ForkServer(channel)
    reap = server._reap

    def reaped(child: ChildProcess) -> None:
        reap(child)
        service_end.close()

    monkeypatch.setattr(server, "_reap", reaped)
    with subprocess.Popen(["true"]) as ended:
        child = ChildProcess(ended.pid, os.pidfd_open(ended.pid), child_life)
        os.waitid(os.P_PID, ended.pid, os.WEXITED | os.WNOWAIT)
        life.close()
        server._children[child.pid] = child
        server._heard.register(child.end, selectors.EVENT_READ, child)
        server._heard.register(child.life, selectors.EVENT_READ, child)
        with channel:
            server.follow()
        assert server._children == {}
        server._heard.close()
