"""The cluster's own Prometheus on this machine, in the foreground of its command."""

import secrets
import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from pathlib import Path
from signal import Signals
from typing import TYPE_CHECKING

from core.children import Child, EndRequest
from core.control.client import NoAnswerError, ask
from core.control.door import listening
from core.control.own_state import make
from core.errors import ClusterError, reason_of
from deploy.common.interrupts import interruptible
from deploy.common.project import ROOT
from deploy.monitor import unprivileged
from deploy.monitor.files import CONFIGURATION, SERVICE_STATE, prometheus_files, write
from deploy.monitor.guard import Guard, own_names

if TYPE_CHECKING:
    from core.inventory import Inventory

HOST = "127.0.0.1"
WEB = "web.yml"
FETCHED = ROOT / ".cache/prometheus/usr/bin/prometheus"
"""Where `python -m tools.prometheus_tools` unpacks Debian's package."""
READY_SECONDS = 60.0
END_SECONDS = 30.0
COPY_SECONDS = 1.0
"""How often the services' targets are looked at where root started Prometheus."""
_POLL_SECONDS = 0.1


def find_prometheus(search: str | None = None, fetched: Path = FETCHED) -> Path:
    """The program, on PATH (or `search`) or unpacked by `tools.prometheus_tools`.

    Raises ClusterError without one.
    """
    found = shutil.which("prometheus", path=search)
    if found is not None:
        return Path(found)
    if fetched.exists():
        return fetched
    raise ClusterError(
        "no `prometheus` on this machine's PATH: in the project's folder `.venv/bin/python -m"
        " tools.prometheus_tools prometheus --version` fetches Debian's without installing it; `fab"
        " deploy monitor --out DIR` writes the files for a Prometheus on another machine"
    )


def run(inventory: "Inventory", folder: Path, say: Callable[[str], None]) -> None:
    """Write the configuration into `folder` and run Prometheus on it until an interrupt.

    The interrupt is raised again. Raises ClusterError without a program, on a taken port, and when
    Prometheus ends by itself. Main thread only: the child dies with this process.
    """
    program = find_prometheus()
    port = inventory.monitor.port
    listener = _listening(port)
    inner = _free_port()
    password = secrets.token_urlsafe(32)
    account = unprivileged.account(say)
    watched = SERVICE_STATE
    if account is not None:
        watched = unprivileged.COPIES
    write(folder, {**prometheus_files(inventory, watched), WEB: _web_configuration(password)})
    (folder / WEB).chmod(0o600)
    state = _make_service_folder(folder)
    before: tuple[str, ...] = ()
    if account is not None:
        unprivileged.copy_targets(state, folder)
        unprivileged.prepare(folder, folder / WEB, account)
        program = unprivileged.reachable(program, folder)
        before = unprivileged.prefix(account)
    log = folder / "prometheus.log"
    guard = Guard(listener, (HOST, inner), own_names(), password)
    with (
        interruptible(),
        closing(guard),
        _started((*before, *command(program, inventory, inner)), folder, log) as child,
    ):
        guard.start()
        _wait_until_ready(child, port, log)
        say(f"Prometheus: http://{HOST}:{port} (Ctrl-C ends it; its data is in {folder})")
        while child.poll() is None:
            with suppress(subprocess.TimeoutExpired):
                child.wait(COPY_SECONDS)
            if account is not None:
                unprivileged.copy_targets(state, folder)
        raise _ended(child, log)


def _make_service_folder(folder: Path) -> Path:
    """Return the state of services: Prometheus waits for files in a folder that exists.

    Raises ClusterError.
    """
    state = folder.parent.parent / Path(SERVICE_STATE).name
    try:
        for each in (state, state / "targets"):
            make(each, 0o700)
    except OSError as problem:
        raise ClusterError(
            f"{state}: cannot be made ({reason_of(problem)}): it holds what services are found by"
        ) from None
    return state


def command(program: Path, inventory: "Inventory", port: int) -> tuple[str, ...]:
    """Return the command line: loopback alone, behind the guard, files and data where it starts."""
    monitor = inventory.monitor
    return (
        str(program),
        f"--config.file={CONFIGURATION}",
        f"--storage.tsdb.path={unprivileged.DATA}",
        f"--storage.tsdb.retention.time={monitor.retention_days}d",
        f"--storage.tsdb.retention.size={monitor.retention_megabytes}MB",
        f"--web.listen-address={HOST}:{port}",
        f"--web.external-url=http://{HOST}:{monitor.port}/",
        f"--web.config.file={WEB}",
        "--web.cors.origin=^$",  # its own default lets the pages of every site read it
        "--log.level=warn",
    )


def _started(words: Sequence[str], folder: Path, log: Path) -> Child:
    with log.open("wb") as output:
        return Child(
            words,
            folder=folder,
            stdout=output,
            stderr=output,
            ending=EndRequest(Signals.SIGTERM, END_SECONDS),
        )


def _listening(port: int) -> socket.socket:
    """Where people ask. Raises ClusterError on a taken port."""
    try:
        return listening(HOST, port)
    except OSError as problem:
        raise ClusterError(
            f"port {port} of {HOST} is not free ({problem.strerror}), perhaps another Prometheus"
            " has it: choose another port, e.g. --set monitor.port=9091"
        ) from None


def _free_port() -> int:
    with socket.create_server((HOST, 0)) as probe:
        return int(probe.getsockname()[1])


def _web_configuration(password: str) -> str:
    """Return the settings that demand the password: a page could reach Prometheus's port too."""
    import bcrypt

    made = bcrypt.hashpw(
        password.encode(), bcrypt.gensalt(rounds=4)
    ).decode()  # it has 256 random bits
    return f"basic_auth_users: {{guard: {made!r}}}\n"


def _wait_until_ready(child: Child, port: int, log: Path) -> None:
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


def _ended(child: Child, log: Path) -> ClusterError:
    last = log.read_text(errors="replace").strip().splitlines()[-1:] or ["its log is empty"]
    return ClusterError(f"Prometheus ended with exit code {child.returncode}: {last[0]} ({log})")
