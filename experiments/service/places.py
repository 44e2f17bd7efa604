"""Where a service runs: the bare host, a tenth of a core, or a container of the project's image."""

import contextlib
import os
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path

from benchmarks.beds.cpu_quota import enter, slow_places
from benchmarks.beds.cpu_quota import why_not as why_no_quota
from core.inventory.templates import free_ports
from tools import build_image

PLACES = ("host", "container", "tenth")
SHARE = 0.1
"""Of a core: about a Pi 3."""
START_SECONDS = 120.0
_UID = 890
_SETTINGS = """
[containers]
log_driver = "passthrough"
[engine]
lock_type = "file"
events_logger = "none"
cgroup_manager = "cgroupfs"
runtime = "crun"
"""
_UNIFIED = Path("/sys/fs/cgroup/unified")


def why_not(place: str) -> str:
    """The reason why no service can run there; empty where one can."""
    if place == "tenth":
        return why_no_quota()
    if place == "container":
        reason = build_image.why_not((*build_image.PACKAGES, "podman", "crun"))
        return reason or (
            ""
            if store_of_image()
            else f"the image {build_image.TAG} is not there: run `make image`"
        )
    return ""


def store_of_image() -> build_image.Store | None:
    """The store that has the image.

    That of this machine, where `make image` puts it, or that of the lab's tests.
    """
    for store in (build_image.Store(None), build_image.Store()):
        with contextlib.suppress(build_image.ImageError):
            build_image.size(store)
            return store
    return None


@contextlib.contextmanager
def service(model: Path, place: str = "host") -> Iterator[tuple[int, int]]:
    """A service process: its port and its id. It is limited from its first answer on."""
    if place == "container":
        started = _in_container(model)
    else:
        started = _on_host(model)
    with started as (port, process), contextlib.ExitStack() as stack:
        if place == "tenth":
            (group,) = stack.enter_context(slow_places(1, SHARE))
            enter(group, process)
        yield port, process


@contextlib.contextmanager
def _on_host(model: Path) -> Iterator[tuple[int, int]]:
    with tempfile.TemporaryDirectory(prefix="pscluster-benchmark-") as folder:
        command = [
            sys.executable,
            "-m",
            "recognise.service",
            "--state",
            folder,
            "--port",
            "0",
            "--no-token",
        ]
        with subprocess.Popen(
            [*command, "--model", str(model)], stdout=subprocess.PIPE, text=True
        ) as process:
            try:
                assert process.stdout is not None
                line = process.stdout.readline()
                yield (
                    int(line.partition("http://")[2].partition(" ")[0].rpartition(":")[2]),
                    process.pid,
                )
            finally:
                process.terminate()


def _podman(store: Sequence[str], folder: Path, name: str, model: Path, port: int) -> Sequence[str]:
    """Return the command that runs the service in a container, as the manifests would."""
    limits = (
        f"--name {name} --network host --cgroup-parent /{name} --read-only"
        f" --read-only-tmpfs=false --tmpfs /tmp:rw,size=256m --user {_UID}:{_UID}"
        " --cap-drop all --security-opt no-new-privileges --memory 384m"
        " --ulimit nofile=4096:4096 --ulimit nproc=4096:4096"
    )
    service = f"recognise.service --state /tmp/service --no-token --port {port} --model /model"
    return (
        *("podman", *store, "--tmpdir", str(folder / "podman"), "run", "--rm", "--pull", "never"),
        *limits.split(),
        *("--volume", f"{model}:/model:ro", build_image.TAG),
        *service.split(),
    )


@contextlib.contextmanager
def _in_container(model: Path) -> Iterator[tuple[int, int]]:
    """Non-root, read-only, without capabilities, with the memory of the manifests.

    In the host's network.
    """
    store = store_of_image() or build_image.Store()
    (port,) = free_ports(1)
    name = f"pscluster-benchmark-{uuid.uuid4().hex[:8]}"
    with tempfile.TemporaryDirectory(prefix="pscluster-benchmark-") as made:
        folder = Path(made)
        (folder / "containers.conf").write_text(_SETTINGS)
        podman = _podman(store.flags, folder, name, model, port)
        # crun refuses version 1 of cgroups beside version 2.
        if _UNIFIED.is_dir():
            apart = f"umount {_UNIFIED} && "
        else:
            apart = ""
        words = (
            "unshare",
            "--mount",
            "--propagation",
            "private",
            "sh",
            "-c",
            f'{apart}exec "$@"',
            "sh",
            *podman,
        )
        environment = {**os.environ, "CONTAINERS_CONF": str(folder / "containers.conf")}
        with subprocess.Popen(words, env=environment, stdout=subprocess.PIPE, text=True) as process:
            try:
                assert process.stdout is not None
                line = process.stdout.readline()
                if not line.startswith("serving"):
                    raise RuntimeError(f"the container did not start: {line!r}")
                yield port, _listener(port)
            finally:
                process.terminate()
                process.wait(START_SECONDS)


def _listener(port: int) -> int:
    """The process of this machine whose words have the port: that in the container."""
    end = time.monotonic() + START_SECONDS
    while time.monotonic() < end:
        for folder in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                words = (folder / "cmdline").read_bytes().split(b"\0")
                if (
                    b"recognise.service" in words
                    and words[0].endswith(b"python")
                    and str(port).encode() in words
                ):
                    return int(folder.name)
        time.sleep(0.1)
    raise RuntimeError("the container's process was not found")
