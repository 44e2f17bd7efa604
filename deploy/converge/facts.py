"""What is true of a node before anything is started on it. Gathered here for this machine; judged in `check`."""

import contextlib
import errno
import importlib.metadata
import importlib.util
import json
import platform
import socket
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import psutil

from deploy.cluster.connector import Connector, NodeDeadlineError
from deploy.common.project import module_command

_PROBE_DEADLINE_SECONDS = 60.0

# Asked in processes of their own: deploy knows neither room, and on a deployed cluster the question has to be put on
# the node anyway. Each prints one JSON object.
_GUARD_PROBE = "cluster.server.port_guard"
_DATA_PROBE = "cluster.data.look"


@dataclass(frozen=True)
class Answer:
    """Whether something holds, and one line about it."""

    holds: bool
    line: str


@dataclass(frozen=True)
class NodeFacts:
    """One machine. `taken_ports` has, for each port somebody listens on, who does as far as the system tells."""

    python: str
    machine: str
    bits: int
    tensorflow: str | None
    cores: int
    memory_bytes: int
    available_bytes: int
    taken_ports: Mapping[int, str]
    guard: Answer
    """Against other machines."""
    accounts: Answer
    """Against other accounts of this one."""
    privileges: Answer
    """Whether roles run as an account that is not root."""
    data: Answer


def gather(here: Connector, ports: Iterable[int], data_source: str | None) -> NodeFacts:
    """The facts of this machine; TensorFlow is looked for and not imported, which would take many seconds."""
    memory = psutil.virtual_memory()
    guard, accounts, privileges = guard_of(here)
    return NodeFacts(
        python=platform.python_version(),
        machine=platform.machine(),
        bits=64 if sys.maxsize > 2**32 else 32,
        tensorflow=_tensorflow_version(),
        cores=psutil.cpu_count() or 1,
        memory_bytes=memory.total,
        available_bytes=memory.available,
        taken_ports={port: _holder(port) for port in ports if _taken(port)},
        guard=guard,
        accounts=accounts,
        privileges=privileges,
        data=recordings_of(here, data_source),
    )


def guard_of(node: Connector) -> tuple[Answer, Answer, Answer]:
    """Whether roles keep other machines out of their ports, and other accounts, and are not root themselves."""
    found = _ask(node, _GUARD_PROBE)
    if isinstance(found, str):
        return Answer(False, found), Answer(False, found), Answer(False, f"roles may run as root: {found}")
    return _answer(found["machines"]), _answer(found["accounts"]), _answer(found["privileges"])


def recordings_of(node: Connector, data_source: str | None) -> Answer:
    """Whether a machine has the recordings, or finds some where none are named."""
    found = _ask(node, _DATA_PROBE, *([] if data_source is None else ["--", data_source]))
    return Answer(False, found) if isinstance(found, str) else _answer(found)


def _tensorflow_version() -> str | None:
    if importlib.util.find_spec("tensorflow") is None:
        return None
    for wheel in ("tensorflow-cpu", "tensorflow"):
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            return importlib.metadata.version(wheel)
    return "of unknown version"


def _taken(port: int) -> bool:
    """Whether somebody listens: a role binds every interface, over connections that are only still closing."""
    family = socket.AF_INET6 if socket.has_dualstack_ipv6() else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as trial:
        if family == socket.AF_INET6:
            trial.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            trial.bind(("", port))
        except OSError as error:
            return error.errno == errno.EADDRINUSE
    return False


def _holder(port: int) -> str:
    with contextlib.suppress(psutil.Error, OSError):
        for connection in psutil.net_connections("tcp"):
            if connection.laddr and connection.laddr.port == port and connection.status == psutil.CONN_LISTEN:
                if connection.pid is None:
                    return "a process of another user"
                return f"process {connection.pid} ({psutil.Process(connection.pid).name()})"
    return "another process"


def _ask(node: Connector, module: str, *arguments: str) -> dict[str, Any] | str:
    """The object that a probe prints, or why there is none."""
    try:
        asked = node.run(module_command(module, *arguments), deadline_seconds=_PROBE_DEADLINE_SECONDS)
    except NodeDeadlineError:
        return f"no answer within {_PROBE_DEADLINE_SECONDS:.0f} s"
    if not asked.ok:
        return asked.last_lines[-1] if asked.stderr.strip() else f"the probe ended with exit code {asked.return_code}"
    found: dict[str, Any] = json.loads(asked.text)
    return found


def _answer(found: Mapping[str, Any]) -> Answer:
    return Answer(bool(found["holds"]), str(found["line"]))
