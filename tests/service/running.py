"""A real service in a process of its own, for as long as a block runs."""

import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx
import numpy as np

from deploy.common.project import environment_for_any_folder

READY = re.compile(
    r"serving (?P<name>\S+) version (?P<version>\d+) at (?P<scheme>https?)://(?P<address>\S+:\d+) \((?P<rest>.*)\)\n"
)
PATH = "/v2/models/har"


@dataclass(frozen=True)
class Service:
    """`address` is HOST:PORT."""

    process: "subprocess.Popen[str]"
    folder: Path
    address: str
    version: int
    scheme: str = "http"

    @property
    def port(self) -> int:
        return int(self.address.rpartition(":")[2])

    @property
    def token(self) -> str:
        return (self.folder / "token").read_text().strip()

    @property
    def headers(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.token}"}

    def client(self, **more: object) -> httpx.Client:
        headers = self.headers if (self.folder / "token").exists() else {}
        return httpx.Client(base_url=f"http://{self.address}", headers=headers, timeout=30, **more)  # type: ignore[arg-type]

    def status(self, name: str) -> int:
        """A figure of /proc in kB, such as VmRSS."""
        lines = Path(f"/proc/{self.process.pid}/status").read_text().splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith(f"{name}:"))


def command(folder: Path, *words: str) -> list[str]:
    return [sys.executable, "-m", "recognise.service", "--state", str(folder), "--port", "0", *words]


def state_of(folder: Path) -> Path:
    return folder / ".pscluster" / "_service"


@contextmanager
def service(folder: Path, *words: str) -> Iterator[Service]:
    """A service with its state below `folder`; it must end with 0 and say nothing on stderr but log lines."""
    state = state_of(folder)
    with subprocess.Popen(
        command(state, *words), env=environment_for_any_folder(), text=True, stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:  # fmt: skip
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            found = READY.fullmatch(line)
            if found is None:
                process.kill()
                raise AssertionError((line, process.communicate()[1]))
            yield Service(process, state, found["address"], int(found["version"]), found["scheme"])
        except BaseException:
            process.kill()
            raise
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=30)
    assert process.returncode == 0, errors
    assert "Traceback" not in errors, errors


def manage(folder: Path, *words: str) -> "subprocess.CompletedProcess[str]":
    """One command of `recognise.service.manage`."""
    return subprocess.run(
        [sys.executable, "-m", "recognise.service.manage", *words, "--state", str(state_of(folder))],
        env=environment_for_any_folder(), capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip


def as_json(windows: np.ndarray, **more: object) -> dict[str, object]:
    """A request with JSON tensors."""
    tensor = {"name": "windows", "shape": list(windows.shape), "datatype": "FP32", "data": windows.ravel().tolist()}
    return {"inputs": [tensor], **more}
