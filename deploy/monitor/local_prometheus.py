"""The cluster's own Prometheus on this machine, in the foreground of its command."""

import os
import shutil
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from signal import Signals
from typing import TYPE_CHECKING

from core.control.door import listening
from core.control.own_state import kept_token, make_private, state_of_services
from core.ground.children import Child, EndRequest
from core.ground.errors import ClusterError, reason_of
from deploy.common.interrupts import interruptible
from deploy.common.project import ROOT
from deploy.monitor.files import (
    CONFIGURATION,
    PASSWORD,
    WEB,
    prometheus_files,
    web_configuration,
    write,
)
from deploy.monitor.ready import USER, is_ready

if TYPE_CHECKING:
    from core.inventory import Inventory

HOST = "127.0.0.1"
FETCHED = ROOT / ".cache/prometheus/usr/bin/prometheus"
"""Program that `python -m tools.prometheus_tools` unpacks from Debian's package."""
READY_SECONDS = 60.0
END_SECONDS = 30.0
_POLL_SECONDS = 0.1


def find_prometheus(search: str | None = None, fetched: Path = FETCHED) -> Path:
    """The program, on PATH (or `search`) or unpacked by `tools.prometheus_tools`.

    Raises ClusterError without one.
    """
    executable = shutil.which("prometheus", path=search)
    if executable is not None:
        return Path(executable)
    if fetched.exists():
        return fetched
    raise ClusterError(
        "no `prometheus` on this machine's PATH: in the project's folder `.venv/bin/python -m"
        " tools.prometheus_tools prometheus --version` fetches Debian's without installing it; `fab"
        " deploy monitor --out DIR` writes the files for a Prometheus on another machine"
    )


def run(inventory: "Inventory", folder: Path, say: Callable[[str], None]) -> None:
    """Write the configuration into `folder` and run Prometheus on it until an interrupt.

    The interrupt is raised again. Raises ClusterError for root, without a program, on a taken port,
    and when Prometheus ends by itself. Main thread only: the child dies with this process.
    """
    refuse_root()
    program = find_prometheus()
    port = inventory.monitor.port
    _check_that_it_is_free(port)
    services = state_of_services(inventory.path.resolve().parent)
    password = _secrets_and_services(folder, services)
    write(folder, prometheus_files(inventory, services))
    write(folder, {WEB: web_configuration(password)})
    log = folder / "prometheus.log"
    with interruptible(), _started(command(program, inventory), folder, log) as child:
        _wait_until_ready(child, f"{HOST}:{port}", password, log)
        say(
            f"Prometheus: http://{HOST}:{port} (user {USER}, password in {folder / PASSWORD};"
            f" Ctrl-C ends it; its data is in {folder})"
        )
        child.wait()
        raise _ended(child, log)


def refuse_root() -> None:
    """Raises ClusterError for root: figures come from processes of other accounts."""
    if os.geteuid() == 0:
        raise ClusterError(
            "root starts no Prometheus: type this as an ordinary account, with a copy of the"
            " inventory in a folder of that account: every account may read the figures"
        )


def _secrets_and_services(folder: Path, services: Path) -> str:
    """Return the password, made once, and make the state of services.

    Prometheus waits for files in a folder that exists. Raises ClusterError.
    """
    try:
        make_private(folder)
        make_private(services / "targets")
        return kept_token(folder, PASSWORD)
    except OSError as problem:
        raise ClusterError(
            f"{problem.filename}: cannot be made ({reason_of(problem)}): Prometheus reads it"
        ) from None


def command(program: Path, inventory: "Inventory") -> tuple[str, ...]:
    """Return the command line: loopback alone, with files and data where it starts."""
    monitor = inventory.monitor
    return (
        str(program),
        f"--config.file={CONFIGURATION}",
        "--storage.tsdb.path=data",
        f"--storage.tsdb.retention.time={monitor.retention_days}d",
        f"--storage.tsdb.retention.size={monitor.retention_megabytes}MB",
        f"--web.listen-address={HOST}:{monitor.port}",
        f"--web.config.file={WEB}",
        "--web.cors.origin=^$",  # its own default lets the pages of every site read it
        "--log.level=warn",
    )


def _started(command_line: Sequence[str], folder: Path, log: Path) -> Child:
    with log.open("wb") as output:
        return Child(
            command_line,
            folder=folder,
            stdout=output,
            stderr=output,
            ending=EndRequest(Signals.SIGTERM, END_SECONDS),
        )


def _check_that_it_is_free(port: int) -> None:
    """Raises ClusterError on a taken port."""
    try:
        listening(HOST, port).close()
    except OSError as problem:
        raise ClusterError(
            f"port {port} of {HOST} is not free ({problem.strerror}), perhaps another Prometheus"
            " has it: choose another port, e.g. --set monitor.port=9091"
        ) from None


def _wait_until_ready(child: Child, address: str, password: str, log: Path) -> None:
    end = time.monotonic() + READY_SECONDS
    while time.monotonic() < end:
        try:
            child.wait(_POLL_SECONDS)
        except subprocess.TimeoutExpired:
            if is_ready(address, password):
                return
            continue
        raise _ended(child, log)
    raise ClusterError(f"Prometheus was not ready within {READY_SECONDS:.0f} s: see {log}")


def _ended(child: Child, log: Path) -> ClusterError:
    last = log.read_text(errors="replace").strip().splitlines()[-1:] or ["its log is empty"]
    return ClusterError(f"Prometheus ended with exit code {child.returncode}: {last[0]} ({log})")
