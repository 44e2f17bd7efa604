"""A real service in a process of its own, for as long as a block runs."""

import io
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path

import httpx
import numpy as np
import psutil

from deploy.common.project import environment_for_any_folder
from recognise.service.manage import main as management
from recognise.service.versions import Versions
from tests.deploy.playing import eventually
from tests.recognise.service.exports import export

READY = re.compile(
    r"serving (?P<name>\S+) version (?P<version>\d+) at (?P<scheme>https?)://(?P<address>\S+:\d+)"
    r" \((?P<rest>.*)\)\n"
)
PATH = "/v2/models/har"
Done = subprocess.CompletedProcess[str]


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

    def client(self) -> httpx.Client:
        headers = self.headers if (self.folder / "token").exists() else {}
        return httpx.Client(base_url=f"http://{self.address}", headers=headers, timeout=30)

    def connected(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), timeout=30)

    @property
    def versions(self) -> Versions:
        return versions_in(self.folder)

    @property
    def served(self) -> int:
        """The version that answers."""
        with self.client() as client:
            return int(client.get(f"{PATH}/ready").json()["version"])

    def metrics(self) -> dict[str, float]:
        """Every figure by its name and labels but `role` and `task`: `sessions{kind="stream"}`."""
        with self.client() as client:
            text = client.get("/metrics").text
        text = re.sub('role="service",task="0",?', "", text).replace(",}", "}").replace("{}", "")
        lines = (line.rsplit(" ", 1) for line in text.splitlines() if line[0] != "#")
        return {name.removeprefix("pscluster_service_"): float(value) for name, value in lines}

    def status(self, name: str) -> int:
        """A figure of /proc in kB, such as VmRSS."""
        lines = Path(f"/proc/{self.process.pid}/status").read_text().splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith(f"{name}:"))


def command(folder: Path, *words: str) -> list[str]:
    program = (sys.executable, "-m", "recognise.service")
    return [*program, "--state", str(folder), "--port", "0", *words]


def state_of(folder: Path) -> Path:
    return folder / "state"


def versions_in(state: Path) -> Versions:
    return Versions(state / "models" / "har")


def models_of(process: int) -> list[psutil.Process]:
    """The processes of a service's models, the oldest first, which a nursery has forked."""
    (nursery,) = psutil.Process(process).children()
    return nursery.children()


@contextmanager
def service(folder: Path, *words: str, before: Sequence[str] = ()) -> Iterator[Service]:
    """A service with its state below `folder`; it must end with 0 and log no traceback."""
    state = state_of(folder)
    with subprocess.Popen(
        [*before, *command(state, *words)],
        env=environment_for_any_folder(),
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
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


@contextmanager
def served(
    folder: Path,
    *words: str,
    make: Callable[[Path], object] = export,
    before: Sequence[str] = (),
) -> Iterator[Service]:
    """A service of the export that `make` writes below `folder`."""
    make(folder / "export")
    with service(folder, "--model", str(folder / "export"), *words, before=before) as running:
        yield running


def called(main: Callable[[Sequence[str]], int], *words: str) -> Done:
    """What a command does in this process."""
    with redirect_stdout(io.StringIO()) as out, redirect_stderr(io.StringIO()) as errors:
        code = main(words)
    return subprocess.CompletedProcess(words, code, out.getvalue(), errors.getvalue())


def manage(folder: Path, *words: str) -> Done:
    """One command of `recognise.service.manage`."""
    return called(management, *words, "--state", str(state_of(folder)))


def wait_until_served(running: "Service", version: int) -> None:
    eventually(lambda: running.served == version, f"version {version} to be served")


def as_json(windows: np.ndarray, **more: object) -> dict[str, object]:
    """A request with JSON tensors."""
    tensor = {
        "name": "windows",
        "shape": list(windows.shape),
        "datatype": "FP32",
        "data": windows.ravel().tolist(),
    }
    return {"inputs": [tensor], **more}
