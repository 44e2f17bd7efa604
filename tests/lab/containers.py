"""Containers on one machine: the image in the project's store, and roles in containers as pods.

`python -m tests.lab.containers` measures the start of a parameter server, in a container and
without one in turns.
"""

import os
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from tests.lab.commands import LabError
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
        self.parent = f"/{name}"
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
            for address in ("lo", *ADDRESSES.values()):
                words = (
                    ("link", "set", "lo", "up")
                    if address == "lo"
                    else ("address", "add", f"{address}/32", "dev", "lo")
                )
                _run("ip", "-n", boxes.name, *words)
            yield boxes
        finally:
            boxes._end_all()
            _run("ip", "netns", "delete", boxes.name)
            boxes._remove_groups()

    def role(self, role: str, *volumes: str) -> Box:
        """Start a parameter server or a worker, with the words of its StatefulSet."""
        return self.start(role, _role_words(role), volumes)

    def bare(self) -> Box:
        """The parameter server of `role` without a container, in the same namespace."""
        log = self.folder / f"bare-{len(self._started)}.log"
        with log.open("wb") as output:
            process = subprocess.Popen(
                ("ip", "netns", "exec", self.name, sys.executable, "-m", *_role_words("ps")),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env={**os.environ, "PSCLUSTER_TOKEN": TOKEN},
            )
        self._started.append(Box("bare", process, log))
        return self._started[-1]

    def start(self, kind: str, words: Sequence[str], volumes: Sequence[str] = ()) -> Box:
        """Start `python -m words` in a container: non-root, read-only, with a memory limit."""
        podman = (
            *(
                "podman",
                *STORE.flags,
                "--tmpdir",
                str(self.folder / "podman"),
                "run",
                "--rm",
                "--pull",
                "never",
            ),
            *("--network", f"ns:/run/netns/{self.name}", "--cgroup-parent", self.parent),
            *(
                "--read-only",
                "--read-only-tmpfs=false",
                "--tmpfs",
                "/tmp:rw,size=256m",
                "--user",
                f"{UID}:{UID}",
            ),
            *(
                "--cap-drop",
                "all",
                "--security-opt",
                "no-new-privileges",
                "--memory",
                f"{MEGABYTES[kind]}m",
            ),
            # Podman's own limits are above those that a container manager around this machine may
            # allow.
            *(
                "--ulimit",
                "nofile=4096:4096",
                "--ulimit",
                "nproc=4096:4096",
                "--env",
                "PSCLUSTER_TOKEN",
            ),
            *(word for volume in volumes for word in ("--volume", volume)),
            *(build_image.TAG, *words),
        )
        log = self.folder / f"{kind}-{len(self._started)}.log"
        with log.open("wb") as output:
            process = subprocess.Popen(
                (*_APART, "sh", "-c", f'{_pure_groups()}exec "$@"', "sh", *podman),
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

    def status_of(self, method: str, role: str, path: str, *headers: str) -> int:
        """The HTTP status of a request from within the namespace; 0 without an answer."""
        url = f"http://{ADDRESSES[role]}:{PORTS[role][1]}{path}"
        program = "import sys,tests.lab.containers as c; print(c.asked(*sys.argv[1:]))"
        said = self.inside(sys.executable, "-c", program, method, url, *headers)
        return int(said.split()[-1])

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

    def log_of(self, kind: str) -> str:
        """What the first container of that kind has printed."""
        return self.first(kind).log.read_text()

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


def asked(method: str, url: str, *headers: str) -> int:
    """The HTTP status; 0 without an answer."""
    named = dict(header.split(": ", 1) for header in headers)
    try:
        with urllib.request.urlopen(
            urllib.request.Request(url, method=method, headers=named), timeout=3
        ) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as refusal:
        return refusal.code
    except OSError:
        return 0


def measure(times: int = 5) -> Mapping[str, Sequence[float]]:
    """Seconds from the call to the line `ready after`, in turns."""
    found: dict[str, list[float]] = {"bare": [], "container": []}
    with tempfile.TemporaryDirectory() as folder, Boxes.up(Path(folder)) as boxes:
        for _ in range(times):
            for name in found:
                begun = time.time()
                if name == "bare":
                    box = boxes.bare()
                else:
                    box = boxes.role("ps")
                found[name].append(_ready_at(box) - begun)
                box.process.send_signal(signal.SIGTERM)
                box.wait(_ENDING_SECONDS)
    return found


def _ready_at(box: Box) -> float:
    end = time.monotonic() + 4 * _ENDING_SECONDS
    while (line := re.search(r"^(\S+Z) INFO .*ready after", box.log.read_text(), re.M)) is None:
        if time.monotonic() > end or box.process.poll() is not None:
            raise LabError(f"the parameter server did not start: {box.log.read_text()}")
        time.sleep(0.01)
    return datetime.fromisoformat(line[1]).timestamp()


def _role_words(role: str) -> tuple[str, ...]:
    port, metrics = PORTS[role]
    flags = (
        "--task",
        "0",
        "--host",
        ADDRESSES[role],
        "--port",
        str(port),
        "--metrics-port",
        str(metrics),
    )
    return (f"{role}_node", *flags, "--peers", "16", "--guard", "none", "--coordinator", "token")


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


if __name__ == "__main__":
    build_image.build(STORE)
    for name, seconds in measure().items():
        print(
            f"{name}: median {statistics.median(seconds):.2f} s of"
            f" {', '.join(f'{one:.2f}' for one in seconds)}"
        )
