"""Tests leave nothing behind: snapshots before and after each file of tests are compared."""

import ctypes
import os
import subprocess
import threading
from dataclasses import dataclass
from pathlib import Path

import psutil

from cluster.programs.process import PR_SET_CHILD_SUBREAPER

MARK = "PSCLUSTER_TEST_SESSION"
"""Every process that a test starts inherits this variable, detached ones too, and is recognised by
it."""

GRACE_SECONDS = 2.0
"""A process or thread that got its signal to end may need a moment."""

PROJECT = Path(__file__).resolve().parents[2]

CACHES = {
    ".git",
    ".venv",
    ".cache",
    ".hypothesis",
    ".mypy_cache",
    ".pytest_cache",
    ".ruff_cache",
    "__pycache__",
}
CACHES |= {".import_linter_cache", "_build"}

SOURCES = {".py", ".md", ".toml", ".svg", ".lock", ".swp"}
"""A person may edit these while the tests run."""


KEPT: list[dict[str, subprocess.Popen[bytes]]] = []
"""Processes that outlive a file of tests on purpose, such as those of a pool of clusters."""


@dataclass(frozen=True)
class Snapshot:
    """Processes of this session, ports this process listens on, its threads, and files of the
    project and the cwd."""

    processes: frozenset[psutil.Process]
    ports: frozenset[tuple[str, int]]
    threads: frozenset[threading.Thread]
    files: frozenset[Path]
    others_run_a_cluster: bool


def reap_for_others_no_more() -> None:
    """Undo what the code of programs sets for its process: later orphans of any test would become
    children here."""
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0)


def take(folders: tuple[Path, ...], session: str) -> Snapshot:
    """The state now. `folders` are searched for files; `session` is the value of MARK.

    Only the project is searched completely, because the tests may run from any folder, from `/`
    too.
    """
    mine, others_run_a_cluster = _processes(session)
    return Snapshot(
        processes=mine,
        ports=_listening(),
        threads=frozenset(thread for thread in threading.enumerate() if not thread.daemon),
        files=frozenset(file for folder in folders for file in _files(folder)),
        others_run_a_cluster=others_run_a_cluster,
    )


def left_behind(
    before: Snapshot, folders: tuple[Path, ...], session: str, grace_seconds: float = GRACE_SECONDS
) -> list[str]:
    """One line for each thing that exists now and is not in `before`.

    A process whose parent is in `before` belongs to that parent: a cluster that outlives the test
    may restart a role.
    """
    new = _orphans(take((), session).processes - before.processes, before.processes)
    psutil.wait_procs(new, timeout=grace_seconds)
    for thread in threading.enumerate():
        if not thread.daemon and thread not in before.threads:
            thread.join(grace_seconds)
    after = take(folders, session)
    # A cluster that a person runs from this checkout meanwhile writes here too, and looks the same.
    if before.others_run_a_cluster or after.others_run_a_cluster:
        shared = {"runs"}
    else:
        shared = set()
    return [
        *(
            f"process {process.pid}: {_command(process)}"
            for process in new
            if process in after.processes
        ),
        *(f"listening port {port} on {host}" for host, port in sorted(after.ports - before.ports)),
        *(f"thread {thread.name!r}" for thread in after.threads - before.threads),
        *(
            f"file {file}"
            for file in sorted(after.files - before.files)
            if not (file.is_relative_to(PROJECT) and shared.intersection(file.parts))
        ),
    ]


def _processes(session: str) -> tuple[frozenset[psutil.Process], bool]:
    mine: set[psutil.Process] = set()
    others_run_a_cluster = False
    for process in psutil.process_iter():
        if process.pid == os.getpid():
            continue
        try:
            if process.environ().get(MARK) == session:
                mine.add(process)
            elif any(
                Path(word).name.startswith(("cluster", "core", "deploy", "fab"))
                for word in process.cmdline()[:4]
            ):
                others_run_a_cluster = True
        except psutil.Error:  # it ended while we looked, or belongs to another user
            continue
    mine.update(psutil.Process().children(recursive=True))
    kept = {process.pid for processes in KEPT for process in processes.values()}
    running = (process for process in mine if process.pid not in kept and _runs(process))
    return frozenset(running), others_run_a_cluster


def _runs(process: psutil.Process) -> bool:
    """Whether it is neither gone nor a zombie, which only its parent can remove."""
    try:
        return process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def _orphans(
    new: frozenset[psutil.Process], before: frozenset[psutil.Process]
) -> list[psutil.Process]:
    """Those of `new` that descend from none of `before`."""
    orphans = []
    for process in new:
        try:
            if before.isdisjoint(process.parents()):
                orphans.append(process)
        except psutil.NoSuchProcess:
            continue
    return orphans


def _listening() -> frozenset[tuple[str, int]]:
    return frozenset(
        (socket.laddr.ip, socket.laddr.port)
        for socket in psutil.Process().net_connections(kind="tcp")
        if socket.status == psutil.CONN_LISTEN
    )


def _files(folder: Path) -> list[Path]:
    found = []
    for where, names, files in os.walk(folder):
        names[:] = [name for name in names if name not in CACHES]
        found += [
            Path(where, name) for name in [*files, *names] if Path(name).suffix not in SOURCES
        ]
        if folder != PROJECT:
            break
    return found


def _command(process: psutil.Process) -> str:
    try:
        return " ".join(process.cmdline()) or process.name()
    except psutil.Error:
        return "gone meanwhile"
