"""Containers on one machine: the image in the project's store, and roles in containers as pods."""

import os
import signal
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from tests.lab.requirements import OF_CONTAINERS
from tools import build_image

STORE = build_image.Store()
TOKEN = "0123456789abcdef" * 4
UID = 890
MEGABYTES = {"ps": 480, "worker": 608, "job": 736, "service": 384, "promotion": 384}
ADDRESSES = {"ps": "10.77.0.1", "worker": "10.77.0.2", "job": "10.77.0.3", "service": "10.77.0.4"}
PORTS = {"ps": (2222, 9200), "worker": (2223, 9201)}
STATE = "/var/lib/pscluster"
_SETTINGS = """
[containers]
log_driver = "passthrough"
[engine]
lock_type = "file"
events_logger = "none"
cgroup_manager = "cgroupfs"
runtime = "crun"
"""
"""Nothing outside of the store's folder: no journal, no shared memory."""
_UNIFIED = Path("/sys/fs/cgroup/unified")
_CGROUPS = Path("/sys/fs/cgroup")
_ENDING_SECONDS = 30.0
_APART = ("unshare", "--mount", "--propagation", "private")


def why_not() -> str:
    """The reason why no container can run here, in one line; empty where one can."""
    return build_image.why_not((*build_image.PACKAGES, *OF_CONTAINERS))


@dataclass(frozen=True)
class Box:
    """A running container."""

    kind: str
    process: "subprocess.Popen[bytes]"
    log: Path

    def wait(self, seconds: float) -> int:
        """The exit code of its program."""
        return self.process.wait(seconds)


class Boxes:
    """Containers in one network namespace, which is theirs; all end with it."""

    def __init__(self, folder: Path, name: str) -> None:
        self.folder = folder
        self.name = name
        self._settings = folder / "containers.conf"
        self._started: list[Box] = []

    @classmethod
    @contextmanager
    def up(cls, folder: Path) -> Iterator["Boxes"]:
        """Inside, the namespace has the addresses; afterwards no container and no group is left."""
        boxes = cls(folder, f"pscluster-boxes-{os.getpid()}")
        boxes._settings.write_text(_SETTINGS)
        _run("ip", "netns", "add", boxes.name)
        try:
            _run("ip", "-n", boxes.name, "link", "set", "lo", "up")
            for address in ADDRESSES.values():
                _run("ip", "-n", boxes.name, "address", "add", f"{address}/32", "dev", "lo")
            yield boxes
        finally:
            boxes._end_all()
            _run("ip", "netns", "delete", boxes.name)
            boxes._remove_groups()

    def role(self, role: str, *volumes: str) -> Box:
        """Start a parameter server or a worker, with the words of its StatefulSet."""
        return self.start(role, _role_words(role), volumes)

    def start(self, kind: str, words: Sequence[str], volumes: Sequence[str] = ()) -> Box:
        """Start `python -m words` in a container: non-root, read-only, with a memory limit."""
        # Podman's own limits may be above those of a container manager around this machine.
        podman = f"""\
            podman {" ".join(STORE.flags)} --tmpdir {self.folder / "podman"} run --rm --pull never
            --network ns:/run/netns/{self.name} --cgroup-parent /{self.name} --user {UID}:{UID}
            --read-only --read-only-tmpfs=false --tmpfs /tmp:rw,size=256m
            --cap-drop all --security-opt no-new-privileges --memory {MEGABYTES[kind]}m
            --ulimit nofile=4096:4096 --ulimit nproc=4096:4096 --env PSCLUSTER_TOKEN
        """
        mounted = (f"--volume={volume}" for volume in volumes)
        command = (*podman.split(), *mounted, build_image.TAG, *words)
        log = self.folder / f"{kind}-{len(self._started)}.log"
        with log.open("wb") as output:
            process = subprocess.Popen(
                (*_APART, "sh", "-c", f'{_pure_groups()}exec "$@"', "sh", *command),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env={
                    **os.environ,
                    "CONTAINERS_CONF": str(self._settings),
                    "PSCLUSTER_TOKEN": TOKEN,
                },
            )
        self._started.append(Box(kind, process, log))
        return self._started[-1]

    def ready(self, role: str) -> bool:
        """Whether the role answers so."""
        url = f"http://{ADDRESSES[role]}:{PORTS[role][1]}/ready"
        return self.inside("sh", "-c", f"curl -sf -m 3 {url} >/dev/null && echo yes || :") != ""

    def inside(self, *words: str) -> str:
        """Return what a command of this machine prints among the addresses of the containers."""
        return _run("ip", "netns", "exec", self.name, *words)

    def processes(self, kind: str) -> list[Path]:
        """The folders in /proc of the roles in containers of that kind."""
        module = {"service": "recognise.service"}.get(kind, f"{kind}_node").encode()
        return [Path(f"/proc/{pid}") for pid in self._pids() if module in _words_of(pid)]

    def first(self, kind: str) -> Box:
        """The container of that kind that was started first."""
        return next(box for box in self._started if box.kind == kind)

    def kill(self, module: str) -> None:
        """Kill the container of `python -m module`: its first process ends the others."""
        for pid in self._pids():
            if module.encode() in _words_of(pid):
                os.kill(pid, signal.SIGKILL)

    def _pids(self) -> list[int]:
        groups = _CGROUPS.glob(f"pids/{self.name}/libpod-*/cgroup.procs")
        if not _UNIFIED.is_dir():
            groups = _CGROUPS.glob(f"{self.name}/libpod-*/**/cgroup.procs")
        return [int(pid) for group in groups for pid in group.read_text().split()]

    def memory_limits(self) -> set[int]:
        """The limits of all containers, in bytes."""
        pattern = f"**/{self.name}/libpod-*/memory.limit_in_bytes"
        found = [*_CGROUPS.glob(pattern), *_CGROUPS.glob(f"**/{self.name}/libpod-*/memory.max")]
        return {int(path.read_text()) for path in found if "conmon" not in path.parent.name}

    def _end_all(self) -> None:
        for box in self._started:
            box.process.send_signal(signal.SIGTERM)
        for box in self._started:
            try:
                box.process.wait(_ENDING_SECONDS)
            except subprocess.TimeoutExpired:
                for pid in self._pids():
                    with suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)
                box.process.wait(_ENDING_SECONDS)

    def _remove_groups(self) -> None:
        end = time.monotonic() + _ENDING_SECONDS
        for group in sorted(_CGROUPS.glob(f"**/{self.name}"), reverse=True):
            while group.exists() and time.monotonic() < end:
                for inner in (
                    *sorted((p for p in group.rglob("*") if p.is_dir()), reverse=True),
                    group,
                ):
                    with suppress(OSError):  # the container's monitor is still leaving it
                        inner.rmdir()


def _role_words(role: str) -> list[str]:
    port, metrics = PORTS[role]
    flags = f"--task 0 --host {ADDRESSES[role]} --port {port} --metrics-port {metrics}"
    return f"{role}_node {flags} --peers 16 --guard none --coordinator token".split()


def _words_of(pid: int) -> list[bytes]:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:  # it has ended
        return []


def _pure_groups() -> str:
    """A container's namespace is without version 2: crun refuses version 1 beside it."""
    if _UNIFIED.is_dir():
        return f"umount {_UNIFIED} && "
    return ""


def _run(*words: str) -> str:
    return subprocess.run(
        words, check=True, capture_output=True, text=True, stdin=subprocess.DEVNULL
    ).stdout
