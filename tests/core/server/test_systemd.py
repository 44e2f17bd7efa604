"""systemd's watchdog: heartbeats while the server answers, and none when it hangs."""

import os
import shutil
import threading
from pathlib import Path

import pytest

from core.ground.errors import ExitCode
from core.server.process import heartbeat_seconds, send_heartbeats
from tests.core.server.processes import HANG_SECONDS, PROJECT, launch, notified
from tests.ports import free_ports
from tests.tables import table


@pytest.mark.parametrize(("environ", "seconds"), table("core/server/tables", "watchdog"))
def test_a_third_of_what_systemd_allows(environ: dict[str, str], seconds: float | None) -> None:
    assert heartbeat_seconds(environ, pid=7) == seconds


def test_no_sign_of_life_while_the_server_does_not_answer() -> None:
    answers = iter([True, False, False, True])
    stop = threading.Event()
    heard: list[str] = []

    def answer(_seconds: float) -> bool:
        return next(answers, True)

    def notify(state: str) -> None:
        heard.append(state)
        if state == "STATUS=serving":
            stop.set()

    send_heartbeats(0.01, answer, notify, stop).join(HANG_SECONDS)
    assert heard == [
        "WATCHDOG=1",
        "STATUS=the server does not answer on its own port",
        "WATCHDOG=1",
        "STATUS=serving",
    ]


def test_a_role_reports_its_life_also_after_it_has_read_its_inventory(tmp_path: Path) -> None:
    port, metrics_port = free_ports(2)
    # A copy: the shipped one may have a person's cluster beside it.
    inventory = shutil.copy(PROJECT / "inventories" / "local.yaml", tmp_path)
    override = f"nodes.localhost.roles.2.worker={{port: {port}, metrics_port: {metrics_port}}}"
    flags = ["--inventory", str(inventory), "--task", "1", "--set", override]
    with notified() as (address, wait):
        environment = {"NOTIFY_SOCKET": address, "WATCHDOG_USEC": "600000"}
        process = launch("worker_node", flags, environment)
        try:
            for word in ("READY=1", "WATCHDOG=1", "WATCHDOG=1"):
                assert wait(process, word)
            assert wait.heard[0] == "STATUS=loading TensorFlow"
            assert f"STATUS=serving on port {port}" in wait.heard
            arguments = Path(f"/proc/{process.pid}/cmdline").read_text()
            assert "\0--peers\x0016\0" in arguments
            assert "\0--guard\0loopback\0" in arguments
            assert "--inventory" not in arguments
            process.terminate()
            assert wait(process, "STOPPING=1")
        finally:
            process.terminate()
            output, _ = process.communicate(timeout=HANG_SECONDS)
    assert process.returncode == ExitCode.DONE, output
    assert f"worker:1 127.0.0.1:{port}: ready after" in output


def test_a_process_that_is_not_meant_gives_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WATCHDOG_USEC", "1000000")
    for pid, meant in ((os.getppid(), False), (os.getpid(), True)):
        monkeypatch.setenv("WATCHDOG_PID", str(pid))
        assert (heartbeat_seconds() is not None) == meant
