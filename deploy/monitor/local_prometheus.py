"""The cluster's own Prometheus on this machine, in the foreground of its command."""

import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from cluster.control.client import NoAnswerError, ask
from cluster.errors import ClusterError, reason_of
from deploy.common.interrupts import interruptible
from deploy.common.project import ROOT, die_with_parent
from deploy.monitor.files import CONFIGURATION, SERVICE_STATE, prometheus_files, write

if TYPE_CHECKING:
    from cluster.inventory import Inventory

HOST = "127.0.0.1"
FETCHED = ROOT / ".cache/prometheus/usr/bin/prometheus"
"""Where `python -m tools.prometheus_tools` unpacks Debian's package."""
READY_SECONDS = 60.0
END_SECONDS = 30.0
_POLL_SECONDS = 0.1


def find_prometheus(search: str | None = None, fetched: Path = FETCHED) -> Path:
    """The program, on PATH (or `search`) or unpacked by `tools.prometheus_tools`. Raises ClusterError without one."""
    found = shutil.which("prometheus", path=search)
    if found is not None:
        return Path(found)
    if fetched.exists():
        return fetched
    raise ClusterError(
        "no `prometheus` on this machine's PATH: in the project's folder `.venv/bin/python -m tools.prometheus_tools "
        "prometheus --version` fetches Debian's without installing it; `fab deploy monitor --out DIR` writes the files "
        "for a Prometheus on another machine"
    )


def run(inventory: "Inventory", folder: Path, say: Callable[[str], None]) -> None:
    """Write the configuration into `folder` and run Prometheus on it until an interrupt, which it raises again.

    Raises ClusterError without a program, on a taken port, and when Prometheus ends by itself. Main thread only: the
    child dies with this process.
    """
    program = find_prometheus()
    port = inventory.monitor.port
    _refuse_taken(port)
    write(folder, prometheus_files(inventory, SERVICE_STATE))
    _make_service_folder(folder)
    log = folder / "prometheus.log"
    with interruptible(), _running(command(program, inventory, folder), log) as child:
        _wait_until_ready(child, port, log)
        say(f"Prometheus: http://{HOST}:{port} (Ctrl-C ends it; its data is in {folder})")
        child.wait()
        raise _ended(child, log)


def _make_service_folder(folder: Path) -> None:
    """Prometheus waits for files in a folder that exists. Raises ClusterError."""
    state = folder.parent.parent / Path(SERVICE_STATE).name
    try:
        for each in (state, state / "targets"):
            each.mkdir(mode=0o700, exist_ok=True)
    except OSError as problem:
        raise ClusterError(
            f"{state}: cannot be made ({reason_of(problem)}): it holds what services are found by"
        ) from None


def command(program: Path, inventory: "Inventory", folder: Path) -> tuple[str, ...]:
    """The command line: it listens on loopback alone and keeps its data below `folder`."""
    monitor = inventory.monitor
    return (
        str(program),
        f"--config.file={folder / CONFIGURATION}",
        f"--storage.tsdb.path={folder / 'data'}",
        f"--storage.tsdb.retention.time={monitor.retention_days}d",
        f"--storage.tsdb.retention.size={monitor.retention_megabytes}MB",
        f"--web.listen-address={HOST}:{monitor.port}",
        "--log.level=warn",
    )


@contextmanager
def _running(words: Sequence[str], log: Path) -> Iterator[subprocess.Popen[bytes]]:
    with log.open("wb") as output:
        child = subprocess.Popen(
            words,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            process_group=0,  # a terminal's Ctrl-C does not reach it: this process ends it, once
            preexec_fn=die_with_parent(),
        )
    try:
        yield child
    finally:
        child.terminate()
        try:
            child.wait(END_SECONDS)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()


def _refuse_taken(port: int) -> None:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError as problem:
            raise ClusterError(
                f"port {port} of {HOST} is not free ({problem.strerror}), perhaps another Prometheus has it: choose "
                "another port, e.g. --set monitor.port=9091"
            ) from None


def _wait_until_ready(child: subprocess.Popen[bytes], port: int, log: Path) -> None:
    end = time.monotonic() + READY_SECONDS
    while time.monotonic() < end:
        try:
            if ask(f"{HOST}:{port}", "GET", "/-/ready", deadline_seconds=5.0).status == 200:
                return
        except NoAnswerError:
            pass
        try:
            child.wait(_POLL_SECONDS)
        except subprocess.TimeoutExpired:
            continue
        raise _ended(child, log)
    raise ClusterError(f"Prometheus was not ready within {READY_SECONDS:.0f} s: see {log}")


def _ended(child: subprocess.Popen[bytes], log: Path) -> ClusterError:
    last = log.read_text(errors="replace").strip().splitlines()[-1:] or ["its log is empty"]
    return ClusterError(f"Prometheus ended with exit code {child.returncode}: {last[0]} ({log})")
