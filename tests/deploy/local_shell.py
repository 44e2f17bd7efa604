"""A node that is this machine: what `NodeConnection` does over SSH, with sh and files here."""

import os
import subprocess
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from deploy.remote.outcome import NodeUnreachableError, Outcome

HANG_SECONDS = 100.0


class LocalShell:
    """Runs every command with `sh`, as whoever runs the tests. `breaks` is how many streams break after one line."""

    name = "rpi11"

    def __init__(self, environment: Mapping[str, str]) -> None:
        self.environment = {**os.environ, **environment}
        self.breaks = 0

    def run(
        self, command: str, *, deadline_seconds: float = 30.0, stdin: bytes | None = None, root: bool = False
    ) -> Outcome:
        begun = time.monotonic()
        done = subprocess.run(
            ["sh", "-c", command],
            input=stdin or b"",
            capture_output=True,
            env=self.environment,
            timeout=deadline_seconds,
            check=False,
        )
        seconds = time.monotonic() - begun
        return Outcome(command, done.returncode, done.stdout, done.stderr.decode(), seconds)

    def stream(
        self,
        command: str,
        on_line: Callable[[str], None],
        *,
        root: bool = False,
        stop: threading.Event | None = None,
    ) -> int:
        with subprocess.Popen(
            ["sh", "-c", f"exec {command}"], stdout=subprocess.PIPE, env=self.environment, text=True
        ) as process:
            assert process.stdout is not None
            try:
                for line in process.stdout:
                    on_line(line.rstrip("\n"))
                    if self.breaks:
                        self.breaks -= 1
                        raise NodeUnreachableError(f"{self.name}: the connection broke")
            finally:
                process.kill()
        return process.returncode

    def put(
        self, content: Path | bytes, remote: str, *, deadline_seconds: float, root: bool = False, mode: int = 0o644
    ) -> None:
        path = Path(remote)
        path.write_bytes(content if isinstance(content, bytes) else content.read_bytes())
        path.chmod(mode)
